# SPDX-License-Identifier: Apache-2.0
"""Forked children: off by default; with probing.follow_fork=on a life and directory of their own.

Whatever way a child is made in, it works as if we were not there: same exit codes, nothing hangs.
"""
import os
import re
import signal
import time

import pytest

from world import DEBIAN_PYTHON, has_torch, wait_for


def prepared(world, source, follow="on", torch=False):
    """A target with a core in it that does what `source` says when a file `go` is there."""
    go = world.tmp / "go"
    head = ("import os, sys, threading, time, ctypes\n%s\ndef wait_go():\n"
            "    print('ready', flush=True)\n"
            "    while not os.path.exists(%r): time.sleep(0.01)\n"
            % ("import torch" if torch else "", str(go)))
    target = world.python(head + source, python=DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject("-D", "probing.follow_fork=" + follow)
    if torch:
        assert target.probing("plugin", "load", "torch").returncode == 0
    target.go = lambda: go.write_text("go")
    return target


def directories(world, pid):
    return [d for d in world.data.iterdir() if d.name.startswith("%d-" % pid)]


def children(target, n):
    wait_for(lambda: len(re.findall(r"child (\d+)", target.output())) >= n, "the children")
    return [int(pid) for pid in re.findall(r"child (\d+)", target.output())]


def answers(world, pid):
    return world.probing("-t", str(pid), "eval", "print(6 * 7)").stdout == "42\n"


CHILD = """
def in_child():
    while True: time.sleep(0.01)
def work(*_):
    print('child', os.getpid(), flush=True)
    in_child()
"""
WAYS = {
    "fork": "wait_go()\nif os.fork() == 0: work()\ntime.sleep(600)\n",
    "fork in a thread": "wait_go()\ndef f():\n    if os.fork() == 0: work()\n"
                        "threading.Thread(target=f).start()\ntime.sleep(600)\n",
    "daemon": "wait_go()\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: work()\n"
              "    os._exit(0)\nos.wait()\ntime.sleep(600)\n",
    "multiprocessing fork": "import multiprocessing as m\nwait_go()\n"
                            "m.get_context('fork').Process(target=work).start()\ntime.sleep(600)\n",
    "child of a child": "wait_go()\nif os.fork() == 0:\n    time.sleep(0.5)\n"
                        "    if os.fork() == 0: work()\n    time.sleep(600)\ntime.sleep(600)\n",
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_followed_child_has_a_life_of_its_own(world, way):
    target = prepared(world, CHILD + WAYS[way])
    target.go()
    (pid,) = children(target, 1)
    try:
        wait_for(lambda: answers(world, pid), "the child's core")
        assert len(directories(world, pid)) == 1 and len(directories(world, target.pid)) == 1
        assert "in_child" in world.probing("-t", str(pid), "backtrace").stdout
        assert target.probing("eval", "import os; print(os.getpid())").stdout == "%d\n" % target.pid
        asked = world.probing("-t", str(pid), "eval", "import os; print(os.getpid())")
        assert asked.stdout == "%d\n" % pid  # and not its parent
        done = world.probing("-t", str(pid), "eject")
        assert done.returncode == 0, done.stderr
        assert len(os.listdir("/proc/%d/task" % pid)) == 1
        assert target.rows("select 1") == [[1]]
    finally:
        os.kill(pid, signal.SIGKILL)


def test_forks_while_its_core_starts_are_followed(world):
    """A child that forks on and on, from before its own core begins until that runs."""
    target = prepared(world, CHILD + "wait_go()\nif os.fork() == 0:\n    for i in range(10):\n"
                      "        if os.fork() == 0: work()\n        time.sleep(0.025)\n"
                      "    time.sleep(600)\ntime.sleep(600)\n")
    target.go()
    pids = children(target, 10)
    try:
        for i, pid in enumerate(pids):
            wait_for(lambda pid=pid: answers(world, pid), "the core of child %d" % i)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def test_nobody_is_followed_unasked(world):
    """Then a child is not its parent either: nobody answers for it."""
    target = prepared(world, CHILD + WAYS["fork"], follow="off")
    target.go()
    (pid,) = children(target, 1)
    try:
        time.sleep(0.5)  # five times what a followed child waits
        asked = world.probing("-t", str(pid), "eval", "1")
        assert asked.returncode == 1 and "no probing core in it" in asked.stderr
        assert directories(world, pid) == []
        assert len(os.listdir("/proc/%d/task" % pid)) == 1
        assert target.probing("config", "set", "probing.follow_fork", "on").returncode == 0
        assert target.probing("config", "get", "probing.follow_fork").stdout == "on\n"
    finally:
        os.kill(pid, signal.SIGKILL)


SHORT = """
import signal, subprocess
wait_go()
def check(pid, code):
    assert os.waitpid(pid, 0)[1] == code << 8
for i in range(300):
    pid = os.fork()
    if pid == 0: os._exit(i & 63)
    check(pid, i & 63)
def forks():
    for i in range(50):
        pid = os.fork()
        if pid == 0: os._exit(5)
        check(pid, 5)
threads = [threading.Thread(target=forks) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
for i in range(50):
    pid = os.fork()
    if pid == 0: os.execv('/bin/sh', ['sh', '-c', 'exit 9'])
    check(pid, 9)
    assert subprocess.run(['/bin/sh', '-c', 'exit 3'], preexec_fn=lambda: None).returncode == 3
    assert subprocess.run(['/bin/sh', '-c', 'exit 4'], close_fds=False).returncode == 4
    check(os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 6'], os.environ), 6)
libc = ctypes.CDLL(None)
for i in range(50):
    for make in ('_Fork', 'clone'):
        if make == '_Fork' and not hasattr(libc, '_Fork'):
            continue
        pid = libc._Fork() if make == '_Fork' else libc.syscall(56, 17, 0, 0, 0, 0)
        if pid == 0: libc._exit(8)
        check(pid, 8)
def handler(*_):
    pid = os.fork()
    if pid == 0: os._exit(2)
    check(pid, 2)
signal.signal(signal.SIGUSR1, handler)
for i in range(50): os.kill(os.getpid(), signal.SIGUSR1)
pid = os.fork()
if pid == 0:
    time.sleep(0.15)  # just when its life begins
    sys.exit(7)
check(pid, 7)
print('all well', flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("follow", ["on", "off"])
def test_children_that_end_at_once_never_notice(world, follow):
    """Hundreds of them, in every way; none hangs, and who is followed has lived 100 ms, as the last
    does, and any other on a machine that is slow."""
    target = prepared(world, SHORT, follow)
    target.go()
    target.wait_line("all well")
    assert target.rows("select 1") == [[1]]
    left = [d for d in world.data.iterdir() if not d.name.startswith("%d-" % target.pid)]
    assert follow == "on" or left == []
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    for directory in left:  # PID-TICKS, and `held` is as old as the core that made it
        began = booted + int(directory.name.split("-")[1]) / os.sysconf("SC_CLK_TCK")
        assert (directory / "held").stat().st_mtime - began > 0.08, directory  # ticks of 10 ms


def test_forks_while_we_come_and_go(world):
    """Children made at any moment of a start or a stop: none crashes, all end as they should."""
    target = prepared(world, """
wait_go()
n = 0
while True:
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    assert os.waitpid(pid, 0)[1] == 3 << 8
    n += 1
    if n % 100 == 0: print('forks', n, flush=True)
""")
    target.go()
    for _ in range(25):
        assert target.probing("eject").returncode == 0
        target.inject("-D", "probing.follow_fork=on")
    so_far = target.output().count("forks")
    wait_for(lambda: target.output().count("forks") > so_far or not target.alive(), "more forks")
    assert target.alive(), target.output()


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_pools(world, method):
    target = prepared(world, """
import multiprocessing
def square(n):
    time.sleep(0.02)
    return n * n
if __name__ == '__main__':
    wait_go()
    for _ in range(3):
        with multiprocessing.get_context(%r).Pool(3) as pool:
            assert pool.map(square, range(60), chunksize=1) == [n * n for n in range(60)]
    print('all well', flush=True)
""" % method)
    target.go()
    wait_for(lambda: not target.alive(), "the end")
    assert target.process.returncode == 0 and "all well" in target.output(), target.output()


def test_data_loader_workers_are_followed(world):
    """Torch's workers, with the torch plugin in the parent: they load their data, and answer."""
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s" % DEBIAN_PYTHON)
    target = prepared(world, """
import torch.utils.data
class Data(torch.utils.data.Dataset):
    def __init__(self): self.net = torch.nn.Linear(4, 4)
    def __len__(self): return 400
    def __getitem__(self, i):
        if i < 2: print('child', os.getpid(), flush=True)
        time.sleep(0.02)
        with torch.no_grad(): self.net(torch.ones(4))
        return torch.tensor([i])
wait_go()
loader = torch.utils.data.DataLoader(Data(), batch_size=1, num_workers=2)
assert sorted(int(v) for batch in loader for v in batch) == list(range(400))
print('all well', flush=True)
time.sleep(600)
""", torch=True)
    target.go()
    first, second = children(target, 2)
    wait_for(lambda: answers(world, first) and answers(world, second), "the workers' cores")
    target.wait_line("all well")
    assert target.rows("select 1") == [[1]]
