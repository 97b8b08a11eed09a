# SPDX-License-Identifier: Apache-2.0
"""What the system plugin's tests share: a target with threads of known load, and an independent
reading of /proc."""
import os

from world import BUILD

TICK = os.sysconf("SC_CLK_TCK")


def loads(world, *words):
    target = world.start(str(BUILD / "tests" / "system" / "loads"), *words)
    target.wait_line("ready")
    return target


def threads(pid):
    """{tid: (name, user seconds, system seconds)}, as proc(5) says."""
    found = {}
    for tid in os.listdir("/proc/%d/task" % pid):
        try:
            text = open("/proc/%d/task/%s/stat" % (pid, tid), errors="replace").read()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
        found[int(tid)] = name, int(rest[11]) / TICK, int(rest[12]) / TICK
    return found


def process(pid):
    """(user seconds, system seconds) of a whole process."""
    rest = open("/proc/%d/stat" % pid, errors="replace").read().rpartition(")")[2].split()
    return int(rest[11]) / TICK, int(rest[12]) / TICK


