# SPDX-License-Identifier: Apache-2.0
"""A process that has closed its standard input and outputs, as daemons do: what it prints went into
a socket or a file of ours, which had got such a number."""
import os
import subprocess
import sys

from world import CLI, wait_for

# All three are closed; one that can be written to is found out, whenever it is.
DAEMON = """
import os, sys, threading, time
open(os.environ["READY"], "w").close()
for fd in (0, 1, 2):
    os.close(fd)
wrote = []
while True:
    for fd in (1, 2):
        try:
            wrote.append((fd, os.write(fd, b"x"), os.readlink("/proc/self/fd/%d" % fd)))
        except OSError:
            pass
    time.sleep(0.001)
"""


def open_ones(target):
    return {int(n) for n in os.listdir("/proc/%d/fd" % target.pid)} & {0, 1, 2}


def test_nothing_of_ours_gets_their_numbers(world):
    ready = world.tmp / "ready"
    target = world.python(DAEMON, env={"READY": str(ready)})
    wait_for(lambda: ready.exists() and not open_ones(target), "a daemon")
    target.inject()
    for _ in range(3):  # connections, plugins and files that come later
        assert target.probing("eval", "wrote").stdout == "[]\n"
        target.rows("select count(*) from cpu.tasks")
    assert target.probing("eval", "os.read(0, 1)").returncode == 1
    # A file that the program puts there itself is its own, and stays.
    assert target.probing("eval", "os.dup2(os.open('/dev/zero', 0), 0)").returncode == 0
    child = target.probing("eval", "os.fork() or (threading.Event().wait(600), os._exit(0))")
    assert child.returncode == 0, child.stderr
    pid = int(child.stdout)
    try:
        wait_for(lambda: set(os.listdir("/proc/%d/fd" % pid)) & {"0", "1", "2"} == {"0"},
                 "a child without what was put there")
    finally:
        os.kill(pid, 9)
    assert target.probing("eject").returncode == 0
    wait_for(lambda: open_ones(target) == {0}, "its own descriptors only")
    assert os.readlink("/proc/%d/fd/0" % target.pid) == "/dev/zero"


def test_a_program_that_begins_without_them(world):
    """Python made its sys.stdout of a socket of ours."""
    said = world.tmp / "said"
    script = world.tmp / "script.py"
    script.write_text("import os, sys\nprint('lost', flush=True)\nprint(file=sys.stderr)\n"
                      "with open(sys.argv[1], 'w') as f:\n"
                      "    for fd in (0, 1, 2):\n"
                      "        print(os.readlink('/proc/self/fd/%d' % fd), file=f)\n")
    done = subprocess.run(["sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh", str(CLI), "launch", "--",
                           sys.executable, str(script), str(said)], env=world.env)
    assert done.returncode == 0 and said.read_text() == 3 * "/dev/null\n", said
