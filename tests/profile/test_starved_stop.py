# SPDX-License-Identifier: Apache-2.0
"""A core leaves although threads of its plugins get hardly any time of a processor."""
import os
import subprocess
import sys

import pytest

from world import world  # noqa: F401

THREADS = """
import threading, time
def naps():
    while True:
        time.sleep(0.01)
for _ in range(20):
    threading.Thread(target=naps, daemon=True).start()
print("ready", flush=True)
naps()
"""


def put_last(pid, name):
    """The thread of that name runs when nobody else wants to."""
    for tid in os.listdir("/proc/%d/task" % pid):
        if open("/proc/%d/task/%s/comm" % (pid, tid)).read().strip() == name:
            os.sched_setscheduler(int(tid), os.SCHED_IDLE, os.sched_param(0))
            return True
    return False


@pytest.fixture
def busy():
    """Somebody else wants to on each processor."""
    made = []

    def begin():
        for cpu in os.sched_getaffinity(0):
            for _ in range(2):
                made.append(subprocess.Popen([
                    sys.executable, "-c",
                    "import os; os.sched_setaffinity(0, [%d])\nwhile True: pass" % cpu]))
    yield begin
    for one in made:
        one.kill()
        one.wait()


@pytest.mark.parametrize("options, name", [(["-P"], "probing/profile"),
                                           (["--plugin", "memory"], "probing/memory")])
def test_eject_waits_for_a_thread_without_a_processor(world, busy, options, name):
    """It needs some milliseconds of one, which took it six seconds and more."""
    target = world.python(THREADS, python="/usr/bin/python3")
    target.wait_line("ready")
    target.inject(*options)
    assert put_last(target.pid, name)
    busy()
    done = target.probing("eject")
    assert done.returncode == 0 and "ejected" in done.stdout, done.stdout + done.stderr
