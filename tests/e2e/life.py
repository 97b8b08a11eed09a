# SPDX-License-Identifier: Apache-2.0
"""For the tests of a core's life: programs with a core in them, and what of ours is left in one."""
import os
import re
import socket
import time
from pathlib import Path

from world import CORE, DEBIAN_PYTHON, ROOT, threads_of, wait_for

PACKAGE = ROOT / "plugins" / "python" / "package"
WAYS = ["inject", "hook", "preload"]
BUSY = {
    "idle": None,
    "query": ["query", "with recursive_join as (select a.name from probing.settings a, "
              "probing.settings b, probing.settings c, probing.settings d) "
              "select count(*) from recursive_join"],
    "eval": ["eval", "while True: pass"],
    "backtrace": ["backtrace"],
    "script": ["script", "run"],
}

LOOP = "wait_go()\nwhile True: time.sleep(0.005)\n"
GLIBC_OWN = 1 << 31 | 1 << 32  # SIGCANCEL and SIGSETXID: glibc takes them with the first thread

# A helper for target sources: what of ours a process still has.
OURS = """
import os, sys, threading, time
def ours():
    found = []
    for n in os.listdir('/proc/self/fd'):
        try:
            at = os.readlink('/proc/self/fd/' + n)
        except OSError:
            continue
        if 'probing' in at or os.environ['PROBING_DATA_DIR'] in at or 'urandom' in at \\
                or at.startswith('anon_inode:[event'):
            found.append(at)
    for line in open('/proc/self/maps'):
        if 'rw-s' in line and (os.environ['PROBING_DATA_DIR'] in line or '/probing-' in line):
            found.append(line.strip())
    for t in os.listdir('/proc/self/task'):
        name = open('/proc/self/task/%s/comm' % t).read().strip()
        if name.startswith('probing/'):
            found.append(name)
    found += [line for line in open('/proc/net/unix') if ('@probing-%d' % os.getpid()) in line]
    return found
def wait_for_core():
    while not any(open('/proc/self/task/%s/comm' % t).read().startswith('probing/serve')
                  for t in os.listdir('/proc/self/task')):
        time.sleep(0.01)
"""


def waits_for(go):
    """In the program under test: wait_go() comes back once that file is there."""
    return ("def wait_go():\n    print('ready', flush=True)\n"
            "    while not os.path.exists(%r):\n        time.sleep(0.01)\n" % str(go))


def enter(world, source, way, python=DEBIAN_PYTHON, env=None):
    """A Python process with a core in it, brought in in one of three ways; it waits for a line
    `go` in a file of that name before it does what `source` says after `wait_go()`."""
    go = world.tmp / "go"
    head = OURS + waits_for(go)
    env = dict(env or {})
    if way == "hook":
        head = "import site\nsite.addsitedir(%r)\n" % str(PACKAGE) + head
        env.update(PROBING="1", PROBING_LIBRARY=str(CORE))
    if way == "preload":
        env.update(LD_PRELOAD=str(CORE))
    target = world.python(head + source, python=python, env=env)
    target.wait_line("ready")
    if way == "inject":
        target.inject()
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "the core")
    target.go = lambda: go.write_text("go")
    return target


def ends(target, code=0):
    wait_for(lambda: not target.alive(), "the target to end; it said:\n" + target.output())
    assert target.process.returncode == code, target.output()
    return target.output()


# In the program under test, on its first thread: it begins to end.
LEAVING = ("print('leaving', time.monotonic(), *open('/proc/self/schedstat').read().split()[:2],"
           " flush=True)\n")


def slept(target):
    """Seconds that its first thread has been waiting for something since it said that it leaves,
    until it has ended: a processor does not count, for which it waits on a starved machine."""
    wait_for(lambda: os.waitid(os.P_PID, target.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG),
             lambda: "the target to end; it said:\n" + target.output())
    end = time.monotonic()
    with open("/proc/%d/schedstat" % target.pid) as stat:  # a zombie has it still
        ran = sum(map(int, stat.read().split()[:2]))
    target.process.wait()
    begin, *before = re.search(r"^leaving (\S+) (\d+) (\d+)$", target.output(), re.M).groups()
    return end - float(begin) - (ran - sum(map(int, before))) / 1e9


def fds(pid):
    found = []
    for n in os.listdir("/proc/%d/fd" % pid):
        try:
            found.append(os.readlink("/proc/%d/fd/%s" % (pid, n)))
        except OSError:
            continue
    return sorted(re.sub(r"\[\d+\]", "", f) for f in found)


def status(pid, key):
    return re.search(r"^%s:\s*(\S+)" % key, open("/proc/%d/status" % pid).read(), re.M).group(1)


def our_threads(pid):
    return [name for name in threads_of(pid) if name.startswith("probing/")]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def time_in_cpu(pid, name):
    """Wait until a thread of that name has used some time: it is inside what it was asked."""
    def used():
        for t in os.listdir("/proc/%d/task" % pid):
            try:
                text = open("/proc/%d/task/%s/stat" % (pid, t)).read()
            except OSError:
                continue
            after = text[text.rindex(")") + 2:].split()
            if "(" + name + ")" in text and int(after[11]) + int(after[12]) >= 5:
                return True
        return False
    wait_for(used, "%s to be busy" % name)


def state_of(pid):
    return {"fds": fds(pid), "SigCgt": int(status(pid, "SigCgt"), 16) & ~GLIBC_OWN,
            "SigBlk": status(pid, "SigBlk"), "SigIgn": status(pid, "SigIgn"),
            "threads": status(pid, "Threads")}


def gone(target, before):
    """Everything is as `before`; what is not is told."""
    wait_for(lambda: state_of(target.pid) == before,
             lambda: "%s; there is %s" % (before, state_of(target.pid)))


def prepared(world, source=LOOP, **kwargs):
    go = world.tmp / "go"
    head = OURS + waits_for(go)
    target = world.python(head + source, python=DEBIAN_PYTHON, **kwargs)
    target.wait_line("ready")
    target.go = lambda: go.write_text("go")
    return target


def memory_of(world):
    return {str(d) for root in [Path("/dev/shm/probing-%d" % os.geteuid())]
            if root.is_dir() for d in root.iterdir()
            if (d / "home").exists() and str(world.data) in (d / "home").read_text()}
