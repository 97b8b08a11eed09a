# SPDX-License-Identifier: Apache-2.0
"""Processes that replace themselves while they are entered, and cores that leave while they are
asked: what is said is what has happened."""
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from world import CLI, LIMIT, ROOT, wait_for, world  # noqa: F401

sys.path.insert(0, str(ROOT / "plugins" / "python" / "package"))
from probing import _door, client  # noqa: E402

EXEC = """
import os
while 'probing-core' not in open('/proc/self/maps').read():
    pass
os.execv('/bin/sleep', ['sleep', '600'])
"""


def test_exec_while_it_is_entered(world):
    """As a shell does that is about to exec.  Sometimes the core has answered before."""
    seen = turns = 0
    while turns < 8 or (seen == 0 and turns < 100):
        turns += 1
        target = world.python(EXEC, python="/usr/bin/python3")
        done = target.probing("inject")
        wait_for(lambda: os.readlink("/proc/%d/exe" % target.pid).endswith("sleep"), "its exec")
        said = done.stdout + done.stderr
        if done.returncode == 1 and "the core is in process" not in said:
            seen += "now runs another program (exec" in said
            assert "does not answer" not in said, said
        again = target.probing("inject")
        assert again.returncode == 0, again.stdout + again.stderr
        assert target.rows("select 1 as n") == [[1]]
        target.kill()
    assert seen > 0


# Threads, of which an exec waits until all have ended.
EXEC_OF_MANY = """
import os, threading, time
for _ in range(40):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
def becomes():
    print("ready", flush=True)
    while not os.path.exists(%r):
        time.sleep(0.0005)
    os.execv("/bin/sleep", ["sleep", "600"])
if %d %% 2:  # the first thread ends before the one that execs takes its place
    threading.Thread(target=becomes).start()
    time.sleep(600)
becomes()
"""
GONE = ("runs another program", "lives on with another program (exec)",
        "has no probing core in it")


@pytest.mark.parametrize("words", [("eject",), ("query", "select count(*) from probing.tables a, "
                                                "probing.tables b, probing.tables c")])
def test_exec_while_it_is_asked(world, words):
    """Whenever it comes, it is called by its name, and nothing waits for a core that has gone."""
    for i in range(8):
        go = world.tmp / ("go-%d" % i)
        target = world.python(EXEC_OF_MANY % (str(go), i), python="/usr/bin/python3")
        target.wait_line("ready")
        target.inject("-D", "probing.plugins=")
        timer = threading.Timer(0.004 * (i // 2), go.touch)
        timer.start()
        begun = time.monotonic()
        done = target.probing(*words)
        said = done.stdout + done.stderr
        assert (done.returncode == 0 and words[0] == "query") or "ejected" in said or \
            any(text in said for text in GONE), said
        assert "has ended" not in said
        assert time.monotonic() - begun < 50, said  # a minute is the limit of what has gone
        timer.join()
        target.kill()


def test_exec_and_waited_for(world):
    target = world.python(EXEC, python="/usr/bin/python3")
    done = target.probing("inject", "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(lambda: os.readlink("/proc/%d/exe" % target.pid).endswith("sleep"), "its exec")
    done = target.probing("inject", "--wait")  # the first program's core may have answered before
    assert done.returncode == 0, done.stdout + done.stderr
    assert target.rows("select 1 as n") == [[1]]


@pytest.fixture
def target(world):
    made = world.start("sleep", "600")
    made.inject("-D", "probing.plugins=")
    return made


def directory_of(target):
    return re.search(r"^data: (.*)$", target.probing("info").stdout, re.M).group(1)


def watch(world, target):
    """A command that follows something, once it does."""
    made = subprocess.Popen([str(CLI), "-t", str(target.pid), "watch", "--interval", "50ms",
                             "select count(*) as n from probing.tables"], env=world.env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    made.stdout.readline()
    return made


def test_a_death_is_called_so(world, target):
    one = watch(world, target)
    os.kill(target.pid, signal.SIGKILL)
    out, err = one.communicate(timeout=LIMIT)
    assert one.returncode == 1 and "the process has died" in err, err


def test_a_death_that_nobody_has_reaped(world, target):
    """Its parent, this test, does not look: it is a zombie."""
    one = watch(world, target)
    os.kill(target.pid, signal.SIGSEGV)
    out, err = one.communicate(timeout=LIMIT)
    assert "the process has died" in err, err


def test_a_connection_that_is_closed_is_no_death(world, target):
    """A relay in the way of the client, which hangs up; the process that listens is this one."""
    folder = world.tmp / ("%d-%s" % (os.getpid(), _door.identity(os.getpid())[1]))
    folder.mkdir(mode=0o700)
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(folder / "sock"))
    os.chmod(folder / "sock", 0o600)
    door.listen(8)

    def hang_up():
        for _ in range(8):
            try:
                door.accept()[0].close()
            except OSError:
                return
    threading.Thread(target=hang_up, daemon=True).start()
    done = world.probing("-t", str(folder / "sock"), "version-of-nothing")
    door.close()
    assert done.returncode != 0 and "died" not in done.stderr, done.stderr
    assert re.search("closed by the core|process %d (lives|runs)" % os.getpid(), done.stderr)


def test_python_client_tells_them_apart(world, target):
    place = directory_of(target)
    held = client.connect(place)
    assert target.probing("eject").returncode == 0
    with pytest.raises(client.Gone, match="core has left process %d" % target.pid):
        held.run("version")
        held.run("version")
    target.inject("-D", "probing.plugins=")
    held = client.connect(directory_of(target))
    os.kill(target.pid, signal.SIGKILL)
    with pytest.raises(client.Gone, match="the process has died"):
        held.run("version")
        held.run("version")


def test_python_client_and_exec(world):
    target = world.start("/usr/bin/python3", "-c",
                         "import os, sys, time\n"
                         "while not os.path.exists(%r): time.sleep(0.01)\n"
                         "os.execv('/bin/sleep', ['sleep', '600'])" % str(world.tmp / "go"))
    target.inject("-D", "probing.plugins=")
    held = client.connect(directory_of(target))
    (world.tmp / "go").write_text("")
    with pytest.raises(client.Gone, match="another program"):
        for _ in range(1000000):
            held.run("version")


def spin(n):
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]


def test_eject_on_a_busy_machine(world):
    """The last answer comes by need, not within some time; and the core has left when it ends."""
    target = world.start("sleep", "600")
    busy = spin(3 * (os.cpu_count() or 2))
    try:
        for _ in range(15):
            target.inject("-D", "probing.plugins=")
            done = target.probing("eject")
            assert done.returncode == 0, done.stdout + done.stderr
            assert "ejected" in done.stdout
            names = [open("/proc/%d/task/%s/comm" % (target.pid, tid)).read()
                     for tid in os.listdir("/proc/%d/task" % target.pid)]
            assert not [name for name in names if name.startswith("probing/")]
    finally:
        for one in busy:
            one.kill()
            one.wait()


def test_eject_beside_a_client_that_takes_nothing(world, target):
    """A client that does not read holds nobody up."""
    deaf = socket.socket(socket.AF_UNIX)
    deaf.connect(os.path.join(directory_of(target), "sock"))
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
    for _ in range(50):
        deaf.sendall(b"query select * from probing.settings\n")
    done = target.probing("eject")
    assert done.returncode == 0 and "ejected" in done.stdout, done.stdout + done.stderr
    assert target.alive()
    deaf.close()


def test_eject_of_one_that_dies(world, target):
    """Killed at the same moment: nothing is ejected from the dead."""
    os.kill(target.pid, signal.SIGKILL)
    done = target.probing("eject")
    assert done.returncode == 1 and "ejected" not in done.stdout and done.stderr, done.stdout
