# SPDX-License-Identifier: Apache-2.0
"""A program that closes descriptors which it did not open, ours among them, and gets numbers anew:
its files and connections stay its own, and the core can be asked again."""
import fcntl
import os
import re
import urllib.request

import pytest

from world import CLI, DEBIAN_PYTHON, LIMIT, wait_for

# As daemons do that run closefrom(3).  From then on it checks its own files for ever.
PROGRAM = """
import os, socket, sys, time
go, folder = sys.argv[1:]
print("ready", flush=True)
while not os.path.exists(go):
    time.sleep(0.01)
os.closerange(3, 4096)
files = []
for i in range(300):
    fd = os.open("%s/file%d" % (folder, i), os.O_RDWR | os.O_CREAT)
    os.write(fd, b"host %d" % i)
    files.append((fd, os.fstat(fd).st_ino, i))
ends = socket.socketpair()
for end in ends:
    end.setblocking(False)
print("closed", flush=True)
said = 0
while True:
    for fd, inode, i in files:
        if os.fstat(fd).st_ino != inode or os.pread(fd, 99, 0) != b"host %d" % i \\
                or os.lseek(fd, 0, 1) != len(b"host %d" % i):
            os._exit(3)
    ends[0].send(b"x")
    if ends[1].recv(99) != b"x":
        os._exit(4)
    said += 1
    if said % 10 == 0:
        print("round", flush=True)
    time.sleep(0.02)
"""


class Closing:
    """The program before it closes them."""

    def __init__(self, world):
        script, self.go = world.tmp / "closing.py", world.tmp / "go"
        script.write_text(PROGRAM)
        self.target = world.start(DEBIAN_PYTHON, "-u", str(script), str(self.go), str(world.tmp))
        self.target.wait_line("ready")
        self.folder = "/proc/%d/fd" % self.target.pid

    def close_all(self):
        self.go.touch()
        self.target.wait_line("closed")

    def goes_on(self):
        def rounds():
            return self.target.output().count("round")
        before = rounds()
        wait_for(lambda: rounds() > before + 2 or not self.target.alive(), "more rounds")
        assert self.target.alive(), self.target.output()[-400:]


@pytest.fixture
def closing(world):
    return Closing(world)


@pytest.mark.parametrize("asked", [False, True])
def test_its_files_stay_its_own(world, closing, asked):
    """asked: somebody is connected meanwhile."""
    target = closing.target
    done = target.probing("inject", "--plugin", "python", "--plugin", "system", "--plugin",
                          "memory", "-l", "127.0.0.1:0")
    assert done.returncode == 0, done.stderr
    page = re.search(r"http://([\d.:]+)/\?token=(\w+)", done.stdout)
    watch = world.start(str(CLI), "-t", str(target.pid), "watch", "select 1") if asked else None
    if watch:
        watch.wait_line("1")
    closing.close_all()
    closing.goes_on()
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "an answer")
    closing.goes_on()
    assert "closing.py" in target.probing("backtrace").stdout
    newest = "select max(ts) from memory.usage"
    before = target.rows(newest)
    wait_for(lambda: target.rows(newest) != before, "rows that come")
    request = urllib.request.Request("http://%s/query?q=select%%20777&format=csv" % page[1],
                                     headers={"Authorization": "Bearer " + page[2]})
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        assert b"777" in answer.read()
    text = "select count(*) from probing.log where text like '%had not opened%'"
    assert target.rows(text)[0][0] >= 1
    assert target.probing("plugin", "load", "profile").returncode == 0
    assert target.probing("eject").returncode == 0
    closing.goes_on()
    target.inject("--plugin", "python")
    closing.goes_on()


def is_locked(path):
    with open(path, "r+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_a_core_that_nobody_asks_finds_it_out(world, closing):
    """It holds its directory again, which others would take for a dead one's, and its sockets."""
    target = closing.target
    target.inject()
    held = next(world.data.glob("*/held"))
    inode = os.stat(held).st_ino

    def listens():
        found = []
        for number in os.listdir(closing.folder):
            try:
                at = os.stat("%s/%s" % (closing.folder, number))
                name = os.readlink("%s/%s" % (closing.folder, number))
            except OSError:
                continue
            found += ["held"] * (at.st_ino == inode) + ["socket"] * name.startswith("socket:")
        return found.count("held") == 1 and found.count("socket") >= 4 + 1  # two are its own
    assert is_locked(held)
    closing.close_all()
    wait_for(listens, "descriptors that are open again")
    wait_for(lambda: is_locked(held), "a lock")
    assert target.probing("query", "select 1").returncode == 0
    assert target.probing("plugin", "load", "system").returncode == 0
    assert target.probing("eject").returncode == 0
    closing.goes_on()


def test_numbers_are_far_from_the_programs(world, closing):
    """Whatever is low is what the program gets next."""
    target = closing.target
    before = set(os.listdir(closing.folder))
    target.inject("--plugin", "python", "--plugin", "system")
    watch = world.start(str(CLI), "-t", str(target.pid), "watch", "select 1")
    watch.wait_line("1")

    def low():
        return [n for n in set(os.listdir(closing.folder)) - before if int(n) < 800]
    assert len(set(os.listdir(closing.folder)) - before) > 10
    wait_for(lambda: not low(), "no low number")


AGAIN = """
import os, sys, time
print("ready", flush=True)
while not os.path.exists(sys.argv[1] + "/go"):
    time.sleep(0.01)
for turn in range(40):
    os.closerange(3, 4096)
    files = [os.open("%s/file%d" % (sys.argv[1], i), os.O_RDWR | os.O_CREAT) for i in range(40)]
    for i, fd in enumerate(files):
        os.pwrite(fd, b"host %d" % i, 0)
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        time.sleep(0.02)
        for i, fd in enumerate(files):
            assert os.pread(fd, 99, 0) == b"host %d" % i and os.lseek(fd, 0, 1) == 0
print("done", flush=True)
while True:
    time.sleep(0.1)
"""


def test_again_and_again(world):
    """Also while ours are being opened again, and more often than there are numbers of ours."""
    target = world.start(DEBIAN_PYTHON, "-u", "-c", AGAIN, str(world.tmp))
    target.wait_line("ready")
    target.inject("--plugin", "memory")
    (world.tmp / "go").touch()
    while "done" not in target.output():
        assert target.alive(), target.output()[-400:]
        target.probing("query", "select 1")  # it may find nobody
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "an answer")
    assert target.probing("eject").returncode == 0
