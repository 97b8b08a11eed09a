# SPDX-License-Identifier: Apache-2.0
"""Children of a process with a core in it: forks, daemons, multiprocessing, exec."""
import os
import re
import signal
import socket

import pytest
from life import WAYS, ends, enter, fds, free_port, our_threads
from pythons import FULL
from world import DEBIAN_PYTHON, has_torch, wait_for

FORKS = """
def child(code):
    left = ours()
    if left:
        print('CHILD HAS', left, flush=True)
        os._exit(9)
    os._exit(code)
def fork_once():
    pid = os.fork()
    if pid == 0:
        child(7)
    assert os.waitpid(pid, 0)[1] == 7 << 8, 'a child had something of ours'
wait_go()
fork_once()
threads = [threading.Thread(target=fork_once) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
import subprocess
assert subprocess.run(['/bin/true']).returncode == 0
assert subprocess.run(['/bin/sh', '-c', 'exit 3'], close_fds=False).returncode == 3
assert os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)[1] == 0
import pty
pid, fd = pty.fork()
if pid == 0:
    child(5)
assert os.waitpid(pid, 0)[1] == 5 << 8
pid = os.fork()
if pid == 0:
    sys.exit(4)  # finalises the interpreter in the child
assert os.waitpid(pid, 0)[1] == 4 << 8
print('all well', flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("way", WAYS)
def test_children_have_nothing_of_ours(world, way):
    target = enter(world, FORKS, way)
    target.go()
    target.wait_line("all well")
    assert "CHILD HAS" not in target.output()
    assert target.rows("select 1") == [[1]]
    assert len([d for d in world.data.iterdir() if d.name.startswith("%d-" % target.pid)]) == 1


@pytest.mark.parametrize("way", ["inject", "hook", "preload"])
def test_daemon_goes_on_without_us(world, way):
    """Double fork and setsid: the daemon is a plain process, and the first parent leaves."""
    target = enter(world, """
wait_go()
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
print('daemon', os.getpid(), ours(), flush=True)
def in_the_daemon():
    while True: time.sleep(0.01)
in_the_daemon()
""", way)
    target.go()
    wait_for(lambda: "daemon" in target.output(), "the daemon")
    pid = int(re.search(r"daemon (\d+) (.*)", target.output()).group(1))
    try:
        ends(target)
        assert "daemon %d []" % pid in target.output()
        for _ in range(2):  # a daemon may be entered by itself, and left
            done = world.probing("-t", str(pid), "inject")
            assert done.returncode == 0, done.stderr
            assert world.probing("-t", str(pid), "query", "select 1").returncode == 0
            assert world.probing("-t", str(pid), "eval", "print(6*7)").stdout == "42\n"
            assert "in_the_daemon" in world.probing("-t", str(pid), "backtrace").stdout
            done = world.probing("-t", str(pid), "eject")
            assert done.returncode == 0, done.stderr
            wait_for(lambda: not our_threads(pid), "our threads to end")
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(world, method):
    target = enter(world, """
import multiprocessing
def work(n):
    found = ours() if %(method)r != 'spawn' else []
    return (n * n, found)
if __name__ == '__main__':
    wait_go()
    with multiprocessing.get_context(%(method)r).Pool(3) as pool:
        for n, (square, found) in enumerate(pool.map(work, range(30))):
            assert square == n * n and not found, found
    print('all well', flush=True)
""" % {"method": method}, "inject")
    target.go()
    assert "all well" in ends(target)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers(world, method):
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s" % DEBIAN_PYTHON)
    target = enter(world, """
import torch, torch.utils.data
class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.net = torch.nn.Linear(4, 4)
    def __len__(self):
        return 64
    def __getitem__(self, i):
        with torch.no_grad():
            self.net(torch.ones(4))  # what the hooks would see
        return torch.tensor([i])
if __name__ == '__main__':
    data = Data()
    wait_go()
    for epoch in range(2):
        loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2,
                                             multiprocessing_context=%r)
        seen = sorted(int(v) for batch in loader for v in batch)
        assert seen == list(range(64)), seen
    print('all well', flush=True)
""" % method, "inject")
    assert target.probing("plugin", "load", "torch").returncode == 0
    target.go()
    assert "all well" in ends(target)


def test_exec_in_place(world):
    """The same pid, another program: preloaded, it has a core and a directory of its own."""
    target = enter(world, """
wait_go()
os.execv('/bin/sleep', ['sleep', '600'])
""", "preload")
    first = [d.name for d in world.data.iterdir()]
    target.go()
    wait_for(lambda: len(list(world.data.iterdir())) == 2, "a second directory")
    assert first[0] + ".2" in [d.name for d in world.data.iterdir()]
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "its core")
    assert "sleep" in os.readlink("/proc/%d/exe" % target.pid)


def test_exec_after_inject_leaves_nothing(world):
    target = enter(world, "wait_go()\nos.execv('/bin/sleep', ['sleep', '600'])\n", "inject")
    target.go()
    wait_for(lambda: "sleep" in os.readlink("/proc/%d/exe" % target.pid), "the exec")
    left = [f for f in fds(target.pid) if "probing" in f or str(world.data) in f or "event" in f]
    assert left == [] and our_threads(target.pid) == []


# The median of forks: how long it took, how often it waited for somebody, and pages it had copied.
FORK_STORM = """
import resource, statistics
def now():
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return time.thread_time() * 1e6, usage.ru_nvcsw, usage.ru_minflt
def storm(n):
    costs = []
    for i in range(n):
        before = now()
        pid = os.fork()
        if pid == 0:
            os._exit(i & 127)
        costs.append([b - a for a, b in zip(before, now())])
        assert os.waitpid(pid, 0)[1] == (i & 127) << 8
    return [statistics.median(c) for c in zip(*costs)]
print('without', *storm(300), flush=True)
wait_go()
print('with', *storm(300), flush=True)
print('beside', *storm(%d), flush=True)
time.sleep(600)
""" % (2000 if FULL else 600)


def test_hundreds_of_forks_beside_queries(world):
    """No child hangs or crashes, and while the core is quiet a fork waits for nobody of ours.  Its
    time is only printed: it shares processors and caches with whatever else runs."""
    target = enter(world, FORK_STORM, "inject")
    target.go()
    target.wait_line("^with ")
    answered = 0
    while "beside" not in target.output():
        assert target.rows("select count(*) from probing.tables")[0][0] > 0
        backtrace = target.probing("backtrace")
        assert backtrace.returncode == 0, backtrace.stderr
        assert target.probing("eval", "print(1)").stdout == "1\n"
        answered += 1
        assert target.alive(), target.output()
    assert answered > 0
    cost = {name: list(map(float, numbers.split())) for name, numbers in
            re.findall(r"^(without|with|beside) (.*)$", target.output(), re.M)}
    print("a fork beside %d rounds of queries:" % answered, cost)
    assert cost["with"][1] == cost["without"][1]
    assert cost["with"][2] < 2 * cost["without"][2] + 50


def test_kill_frees_the_port_while_a_child_lives(world):
    """The child of a killed process holds neither its port nor its socket nor its memory."""
    target = enter(world, """
wait_go()
if os.fork() == 0:
    print('child', os.getpid(), flush=True)
    time.sleep(600)
os.wait()
""", "inject")
    port = free_port()
    assert target.probing("config", "set", "server.listen", "127.0.0.1:%d" % port).returncode == 0
    target.go()
    wait_for(lambda: "child" in target.output(), "the child")
    child = int(re.search(r"child (\d+)", target.output()).group(1))
    try:
        target.kill()
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
            s.listen()
        maps = open("/proc/%d/maps" % child).read()
        assert "/rings" not in maps and "/strings" not in maps
    finally:
        os.kill(child, signal.SIGKILL)
