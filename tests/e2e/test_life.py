# SPDX-License-Identifier: Apache-2.0
"""A core's life in its host: children, exits, eject, what the dead leave, and the ways in.

A test that counts descriptors or signal handlers reads them from /proc, never from the core.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from world import CLI, CORE, DEBIAN_PYTHON, ROOT, has_torch, threads_of, wait_for

PACKAGE = ROOT / "plugins" / "python" / "package"
WAYS = ["inject", "hook", "preload"]

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


def enter(world, source, way, python=DEBIAN_PYTHON, env=None):
    """A Python process with a core in it, brought in in one of three ways; it waits for a line
    `go` in a file of that name before it does what `source` says after `wait_go()`."""
    go = world.tmp / "go"
    head = OURS + ("def wait_go():\n    print('ready', flush=True)\n"
                   "    while not os.path.exists(%r):\n        time.sleep(0.01)\n" % str(go))
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
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "the core", 20)
    target.go = lambda: go.write_text("go")
    return target


def ends(target, code=0, timeout=60):
    wait_for(lambda: not target.alive(), "the target to end; it said:\n" + target.output(), timeout)
    assert target.process.returncode == code, target.output()
    return target.output()


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


# ---- children ----

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
    target.wait_line("all well", 30)
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
    assert "all well" in ends(target, timeout=120)


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
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "its core", 20)
    assert "sleep" in os.readlink("/proc/%d/exe" % target.pid)


def test_exec_after_inject_leaves_nothing(world):
    target = enter(world, "wait_go()\nos.execv('/bin/sleep', ['sleep', '600'])\n", "inject")
    target.go()
    wait_for(lambda: "sleep" in os.readlink("/proc/%d/exe" % target.pid), "the exec")
    left = [f for f in fds(target.pid) if "probing" in f or str(world.data) in f or "event" in f]
    assert left == [] and our_threads(target.pid) == []


FORK_STORM = """
import statistics
def storm(n):
    times = []
    for i in range(n):
        t = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os._exit(i & 127)
        times.append(time.perf_counter() - t)
        assert os.waitpid(pid, 0)[1] == (i & 127) << 8
    return statistics.median(times) * 1e6
print('without %.1f' % storm(500), flush=True)
wait_go()
print('with %.1f' % storm(500), flush=True)
print('beside queries %.1f' % storm(2000), flush=True)
time.sleep(600)
"""


def test_two_thousand_forks_beside_queries(world):
    """No child hangs or crashes, and a fork costs less than 300 us more while the core is quiet;
    beside queries it shares the processors with them."""
    target = enter(world, FORK_STORM, "inject")
    target.go()
    target.wait_line("with [0-9]", 60)
    answered = 0
    while "beside queries" not in target.output():
        assert target.rows("select count(*) from probing.tables")[0][0] > 0
        backtrace = target.probing("backtrace")
        assert backtrace.returncode == 0, backtrace.stderr
        assert target.probing("eval", "print(1)").stdout == "1\n"
        answered += 1
        assert target.alive(), target.output()
    assert answered > 0
    without, quiet, beside = (float(n) for n in re.findall(r"(?:without|with|queries) ([\d.]+)",
                                                           target.output()))
    print("fork: %.0f us without, %.0f with us, %.0f beside %d rounds of queries"
          % (without, quiet, beside, answered))
    assert quiet < without * 1.5 + 300  # the half: other tests run meanwhile


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


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---- the host's exit ----

EXITS = {
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(4)", 4),
    "exception": ("raise RuntimeError('on purpose')", 1),
    "SIGTERM": ("os.kill(os.getpid(), 15); time.sleep(600)", -15),
    "end": ("pass", 0),
    "atexit": ("import atexit; atexit.register(print, 'first in'); "
               "atexit.register(print, 'last in'); sys.exit(5)", 5),
    "exec fails": ("\ntry:\n    os.execv('/no/such', ['x'])\nexcept OSError:\n    sys.exit(6)", 6),
    "from a thread": ("threading.Thread(target=lambda: os._exit(8)).start(); time.sleep(600)", 8),
}
BUSY = {
    "idle": None,
    "query": ["query", "with recursive_join as (select a.name from probing.settings a, "
              "probing.settings b, probing.settings c, probing.settings d) "
              "select count(*) from recursive_join"],
    "eval": ["eval", "while True: pass"],
    "backtrace": ["backtrace"],
    "script": ["script", "run"],
}


@pytest.mark.parametrize("busy", sorted(BUSY))
@pytest.mark.parametrize("how", sorted(EXITS))
def test_exit(world, how, busy):
    statement, code = EXITS[how]
    target = enter(world, "wait_go()\nprint('leaving', time.time(), flush=True)\n%s\n" % statement,
                   "inject")
    clients = []
    command = BUSY[busy]
    if busy == "script":
        script = world.tmp / "spin.lua"
        script.write_text("while true do end\n")
        command = command + [str(script)]
    try:
        if command:
            for _ in range(2):
                clients.append(subprocess.Popen([str(CLI), "-t", str(target.pid), *command],
                                                stdout=subprocess.DEVNULL, env=world.env,
                                                stderr=subprocess.DEVNULL))
        if busy in ("eval", "script"):
            name = {"eval": "probing/python", "script": "probing/lua"}[busy]
            wait_for(lambda: name in our_threads(target.pid), "the thread that is busy")
            time_in_cpu(target.pid, name)
        target.go()
        wait_for(lambda: not target.alive(), "the end", 30)
        left = time.time()
        assert target.process.returncode == code, target.output()
        began = float(re.search(r"leaving ([\d.]+)", target.output()).group(1))
        # Nobody waits for us: a plugin, a client and a script each would take 10 s or more.
        assert left - began < 5, "%s while %s: %.3f s" % (how, busy, left - began)
        if how == "atexit":
            assert target.output().index("last in") < target.output().index("first in")
    finally:
        for client in clients:
            client.terminate()
            client.wait()


def pythons():
    found = [DEBIAN_PYTHON]
    for at in sorted(Path.home().glob(".pyenv/versions/*/bin/python3")):
        version = [int(n) for n in at.parent.parent.name.split(".")[:2]]
        if version >= [3, 8]:
            found.append(str(at))
    return found


@pytest.mark.parametrize("busy", ["eval", "backtrace"])
@pytest.mark.parametrize("how", ["sys.exit", "end", "exception"])
@pytest.mark.parametrize("python", pythons())
def test_finalization_of_every_python(world, python, how, busy):
    """The interpreter ends while code of ours waits for its GIL, or looks at its stacks."""
    statement, code = EXITS[how]
    target = enter(world, "wait_go()\nprint('leaving', time.time(), flush=True)\n%s\n" % statement,
                   "inject", python=python)
    clients = [subprocess.Popen([str(CLI), "-t", str(target.pid), *BUSY[busy]], env=world.env,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for _ in range(2)]
    try:
        if busy == "eval":
            time_in_cpu(target.pid, "probing/python")
        target.go()
        wait_for(lambda: not target.alive(), "the end", 30)
        began = float(re.search(r"leaving ([\d.]+)", target.output()).group(1))
        assert target.process.returncode == code, target.output()
        assert time.time() - began < 10  # nobody waits for us: that would be for ever
    finally:
        for client in clients:
            client.terminate()
            client.wait()


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


# ---- eject ----

LOOP = "wait_go()\nwhile True: time.sleep(0.005)\n"


GLIBC_OWN = 1 << 31 | 1 << 32  # SIGCANCEL and SIGSETXID: glibc takes them with the first thread


def state_of(pid):
    return {"fds": fds(pid), "SigCgt": int(status(pid, "SigCgt"), 16) & ~GLIBC_OWN,
            "SigBlk": status(pid, "SigBlk"), "SigIgn": status(pid, "SigIgn"),
            "threads": status(pid, "Threads")}


def gone(target, before, timeout=20):
    """Everything is as `before`; what is not is told."""
    def same():
        return state_of(target.pid) == before
    end = time.monotonic() + timeout
    while not same() and time.monotonic() < end:
        time.sleep(0.02)
    assert state_of(target.pid) == before


def prepared(world, source=LOOP, **kwargs):
    go = world.tmp / "go"
    head = OURS + ("def wait_go():\n    print('ready', flush=True)\n"
                   "    while not os.path.exists(%r):\n        time.sleep(0.01)\n" % str(go))
    target = world.python(head + source, python=DEBIAN_PYTHON, **kwargs)
    target.wait_line("ready")
    target.go = lambda: go.write_text("go")
    return target


def test_eject_leaves_nothing(world):
    target = prepared(world)
    before = state_of(target.pid)
    environment = open("/proc/%d/environ" % target.pid).read()
    target.inject()
    assert target.probing("eval", "import os; k = len(os.environ)").returncode == 0
    assert target.probing("backtrace").returncode == 0
    done = target.probing("eject")
    assert done.returncode == 0, done.stderr
    gone(target, before)
    assert open("/proc/%d/environ" % target.pid).read() == environment
    assert open("/proc/net/unix").read().count("@probing-%d\n" % target.pid) == 0
    assert not [line for line in open("/proc/%d/maps" % target.pid)
                if "rw-s" in line and (str(world.data) in line or "/probing-" in line)]
    assert target.alive()


@pytest.mark.parametrize("busy", ["query", "watch", "eval", "backtrace", "script", "fork"])
def test_eject_while_busy(world, busy):
    """What runs is ended, or the refusal says what it is; nothing hangs and nothing is left."""
    source = LOOP if busy != "fork" else """
wait_go()
while True:
    pid = os.fork()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
"""
    target = prepared(world, source)
    before = state_of(target.pid)
    target.inject()
    script = world.tmp / "spin.lua"
    script.write_text("while true do end\n")
    command = {"watch": ["watch", "select * from probing.log"],
               "script": ["script", "run", str(script)]}.get(busy, BUSY.get(busy))
    client = None
    if command:
        client = subprocess.Popen([str(CLI), "-t", str(target.pid), *command], env=world.env,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if busy in ("eval", "script"):
            time_in_cpu(target.pid, {"eval": "probing/python", "script": "probing/lua"}[busy])
    target.go()
    began = time.monotonic()
    done = target.probing("eject")
    took = time.monotonic() - began
    try:
        assert took < 10, "eject took %.1f s" % took
        if done.returncode != 0:
            assert busy == "eval" and "try again" in done.stderr, done.stderr
            client.terminate()
            client.wait()
            wait_for(lambda: target.probing("eject").returncode == 0, "eject after the eval", 20)
        if busy == "fork":  # its own children come and go
            wait_for(lambda: not our_threads(target.pid), "our threads to end")
        else:
            gone(target, before)
        assert target.alive()
    finally:
        if client:
            client.terminate()
            client.wait()


def rss_kb(pid):
    return int(status(pid, "VmRSS"))


def cycles(target, n, between=None):
    sizes = []
    for i in range(n):
        target.inject()
        if between:
            between()
        done = target.probing("eject")
        assert done.returncode == 0, done.stderr
        wait_for(lambda: not our_threads(target.pid), "our threads to end")
        if i in (n // 4, n - 1):
            sizes.append(rss_kb(target.pid))
    return sizes


def test_two_hundred_times(world):
    target = prepared(world)
    before = state_of(target.pid)
    quarter, _ = cycles(target, 20)
    maps = len(open("/proc/%d/maps" % target.pid).readlines())
    files = [sorted(f) for _, _, f in os.walk(world.data)]
    quarter, end = cycles(target, 200)
    gone(target, before)
    assert len(open("/proc/%d/maps" % target.pid).readlines()) <= maps + 2  # arenas move
    assert [sorted(f) for _, _, f in os.walk(world.data)] == files and memory_of(world) == set()
    print("RSS after 50: %d kB, after 200: %d kB" % (quarter, end))
    assert end - quarter < 4096  # kB, of 150 more times
    assert target.alive()


def test_eighty_times_into_training(world):
    """The heap grows with the first 40 or so, by 30 MB, and then no more."""
    target = world.train()
    before = fds(target.pid)

    def load():
        done = target.probing("plugin", "load", "torch")
        assert done.returncode == 0, done.stderr
    quarter, end = cycles(target, 80, load)
    wait_for(lambda: fds(target.pid) == before, "the same descriptors")
    print("RSS after 20: %d kB, after 80: %d kB" % (quarter, end))
    assert end - quarter < 16384  # kB, of 60 more times
    steps = target.output().count("step")
    wait_for(lambda: target.output().count("step") > steps, "the loop to go on")


HANGING = r"""
#include <probing/plugin.h>
#include <unistd.h>
static int self_;
static int init(const struct probing_host *h, void **s) { (void)h; *s = &self_; return 0; }
static int hang(void *s) { (void)s; for (;;) pause(); return 0; }
static void destroy(void *s) { (void)s; }
const struct probing_plugin probing_plugin_v1 __attribute__((visibility("default"))) = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "hanging",
    .version = "1", .doc = "hangs", .init = init, .destroy = destroy, .%s = hang };
"""


@pytest.mark.parametrize("step", ["start", "stop"])
def test_eject_with_a_plugin_that_hangs(world, step):
    """Others are served meanwhile; the plugin is given up; eject leaves and says so."""
    target = prepared(world)
    before = state_of(target.pid)
    target.inject("-D", "probing.plugin_timeout=1s")
    plugin = world.plugin("hanging", HANGING % step)
    load = subprocess.Popen([str(CLI), "-t", str(target.pid), "plugin", "load", str(plugin)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=world.env)
    if step == "start":
        wait_for(lambda: "hanging" in target.probing("plugin", "list").stdout, "the plugin")
        assert target.rows("select 1") == [[1]]
        _, why = load.communicate(timeout=30)
        assert load.returncode != 0 and "has not come back" in why, why
        assert target.probing("config", "set", "probing.log_level", "debug").returncode == 0
        assert target.probing("eval", "print(2)").stdout == "2\n"
    else:
        assert load.wait(20) == 0
    began = time.monotonic()
    done = target.probing("eject")
    assert done.returncode == 0, done.stderr
    assert "a thread stays inside plugin hanging" in done.stdout
    assert time.monotonic() - began < 15
    wait_for(lambda: not our_threads(target.pid), "our threads to end", 20)
    wait_for(lambda: fds(target.pid) == before["fds"], "the same descriptors")
    target.inject()
    assert target.rows("select 1") == [[1]]
    again = target.probing("plugin", "load", str(plugin))
    assert again.returncode != 0 and "has not come back" in again.stderr
    assert target.alive()


HANGING_IN = r"""
#include <probing/plugin.h>
#include <unistd.h>
static const struct probing_host *host;
static _Atomic int go_on;
static void wait_here(void) { while (!go_on) usleep(10000); }
static void on_event(void *self, const char *topic, const void *payload, uint32_t n)
{ (void)self; (void)topic; (void)payload; (void)n; wait_here(); }
static void on_tick(void *self, uint64_t now) { (void)self; (void)now; wait_here(); }
static int publish(void *self, int argc, const char *const *argv, struct probing_reply *out)
{ (void)self; (void)argc; (void)argv; (void)out; return host->publish(host, "hanging.x", "", 0); }
static int release(void *self, int argc, const char *const *argv, struct probing_reply *out)
{ (void)self; (void)argc; (void)argv; (void)out; go_on = 1; return 0; }
static int init(const struct probing_host *h, void **self)
{
    static const struct probing_command commands[] = {
        {.size = sizeof(commands[0]), .name = "publish_it", .usage = "", .doc = "p",
         .run = publish},
        {.size = sizeof(commands[0]), .name = "release_it", .usage = "", .doc = "r",
         .run = release}};
    host = h;
    *self = &host;
    int r = h->command(h, &commands[0]);
    if (r >= 0) r = h->command(h, &commands[1]);
    if (r >= 0) r = %s;
    return r;
}
static void destroy(void *self) { (void)self; }
const struct probing_plugin probing_plugin_v1 __attribute__((visibility("default"))) = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "hanging_in",
    .version = "1", .doc = "hangs", .init = init, .destroy = destroy };
"""


def test_an_event_handler_that_hangs(world):
    """It is named and given up; others' events and commands, settings and eject go on."""
    target = prepared(world)
    before = state_of(target.pid)
    target.inject("-D", "probing.plugin_timeout=500ms")
    plugin = world.plugin("hanging_in", HANGING_IN % 'h->subscribe(h, "hanging.*", on_event)')
    assert target.probing("plugin", "load", str(plugin)).returncode == 0
    assert target.probing("publish_it").returncode == 0
    state = "select state, reason from probing.plugins where name = 'hanging_in'"
    wait_for(lambda: target.rows(state)[0][0] == "failed", "the plugin to be given up", 20)
    assert "its handler has not come back after 0.5 s" in target.rows(state)[0][1]
    assert target.rows("select count(*) from probing.log where text like '%hanging_in failed at "
                       "event%'") == [[1]]
    assert target.probing("config", "set", "probing.log_level", "debug").returncode == 0
    assert target.probing("eval", "print(2)").stdout == "2\n"
    done = target.probing("eject")
    assert done.returncode == 0 and "stays inside plugin hanging_in" in done.stdout, done.stderr
    wait_for(lambda: not our_threads(target.pid), "our threads to end", 20)
    wait_for(lambda: fds(target.pid) == before["fds"], "the same descriptors")
    target.inject()
    assert target.rows("select 1") == [[1]] and target.alive()


HEARS = r"""
#include <probing/ext/draft/note.h>
#include <probing/ext/draft/rows.h>
static const struct probing_host *host;
static int scan(void *self, struct probing_rows *out)
{
    const struct probing_rows_1 *rows = host->extension(host, PROBING_ROWS_1);
    union probing_cell cells[3];
    (void)self;
    for (uint32_t c = 0; c < 3; c++)
        cells[c].i = rows->wanted(out, 0) + 10 * rows->wanted(out, 1) + 100 * rows->wanted(out, 2) +
                     1000 * rows->wanted(out, 3);
    return host->emit(out, cells, 3);
}
static int init(const struct probing_host *h, void **self)
{
    static const struct probing_column columns[] = {
        {.name = "a", .type = PROBING_I64, .doc = ""},
        {.name = "b", .type = PROBING_I64, .doc = ""},
        {.name = "c", .type = PROBING_I64, .doc = ""}};
    struct probing_table_desc d = {.size = sizeof(d), .column_size = sizeof(columns[0]),
        .name = "hears", .doc = "", .columns = columns, .n_columns = 3, .scan = scan};
    struct probing_table *t;
    host = h;
    *self = &host;
    return h->table(h, &d, &t);
}
static int start(void *self)
{
    const struct probing_note_1 *note = host->extension(host, PROBING_NOTE_1);
    (void)self;
    note->set(host, "half of it");
    return 0;
}
static void destroy(void *self) { (void)self; }
const struct probing_plugin probing_plugin_v1 __attribute__((visibility("default"))) = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "hears",
    .version = "1", .doc = "hears", .init = init, .start = start, .destroy = destroy };
"""


def test_a_plugin_notes_and_hears_which_columns_are_asked_for(world):
    target = prepared(world)
    target.inject()
    plugin = world.plugin("hears", HEARS)
    assert target.probing("plugin", "load", str(plugin)).returncode == 0
    assert target.rows("select state, reason from probing.plugins where name = 'hears'") == \
        [["running", "half of it"]]
    table = target.rows("select table_schema || '.' || table_name from information_schema.tables "
                        "where table_name = 'hears'")[0][0]
    assert target.rows("select a from %s" % table) == [[1]]
    assert target.rows("select c, a from %s where b > 0" % table) == [[111, 111]]
    assert target.rows("select * from %s" % table) == [[111, 111, 111]]
    assert target.rows("select max(c) from %s" % table) == [[100]]
    assert target.rows("select count(*) from %s" % table) == [[1]]


@pytest.mark.parametrize("leave", [False, True])
def test_an_every_function_that_is_late(world, leave):
    """It is named; everything else goes on; eject leaves, and says so if it has not come back."""
    target = prepared(world)
    before = state_of(target.pid)
    target.inject("-D", "probing.plugin_timeout=500ms")
    plugin = world.plugin("hanging_in", HANGING_IN % "h->every(h, 50000000, on_tick)")
    assert target.probing("plugin", "load", str(plugin)).returncode == 0
    state = "select state, reason from probing.plugins where name = 'hanging_in'"
    wait_for(lambda: "late" in (target.rows(state)[0][1] or ""), "the plugin to be named", 20)
    assert target.probing("publish_it").returncode == 0
    if leave:
        done = target.probing("eject")
        assert done.returncode == 0 and "stays inside plugin hanging_in" in done.stdout, done.stderr
        wait_for(lambda: not our_threads(target.pid), "our threads to end", 20)
        wait_for(lambda: fds(target.pid) == before["fds"], "the same descriptors")
        target.inject()
        assert target.rows("select 1") == [[1]] and target.alive()
        return
    assert target.probing("release_it").returncode == 0
    wait_for(lambda: not target.rows(state)[0][1], "its name to be cleared", 20)
    done = target.probing("eject")
    assert done.returncode == 0, done.stderr
    gone(target, before)


# ---- what the dead leave ----

def memory_of(world):
    return {str(d) for root in [Path("/dev/shm/probing-%d" % os.geteuid())]
            if root.is_dir() for d in root.iterdir()
            if (d / "home").exists() and str(world.data) in (d / "home").read_text()}


def age(path, seconds):
    then = time.time() - seconds
    for at in [*path.iterdir(), path]:
        os.utime(at, (then, then))  # of what a link leads to


def test_memory_of_the_killed_is_given_back(world):
    """kill -9, the data directory removed or not: the next start takes the memory back."""
    first, second, third = (world.start("/bin/sleep", "600", env={"LD_PRELOAD": str(CORE)})
                            for _ in range(3))
    for target in (first, second, third):
        wait_for(lambda: target.probing("query", "select 1").returncode == 0, "a core", 20)
    assert len(memory_of(world)) == 3
    first.kill()
    second.kill()
    directories = {int(d.name.split("-")[0]): d for d in world.data.iterdir()}
    shutil.rmtree(directories[first.pid])
    for memory in memory_of(world):
        age(Path(memory), 3600)
    age(directories[third.pid], 3600)
    last = world.start("/bin/sleep", "600", env={"LD_PRELOAD": str(CORE)})
    wait_for(lambda: {int(m.split("/")[-1].split("-")[0]) for m in memory_of(world)}
             == {third.pid, last.pid}, "the memory to be swept", 20)
    assert (directories[second.pid] / "rings").is_file()
    assert not (directories[second.pid] / "rings").is_symlink()
    done = world.probing("-t", str(second.pid), "query", "select 1")
    assert done.returncode == 0, done.stderr  # what is not too old may be asked
    assert third.rows("select 1") == [[1]]


def test_data_of_the_dead_is_kept_within_limits(world):
    old = world.start("/bin/sleep", "600", env={"LD_PRELOAD": str(CORE)})
    wait_for(lambda: old.probing("query", "select 1").returncode == 0, "a core", 20)
    directory = next(world.data.iterdir())
    old.kill()
    age(directory, 8 * 86400)
    world.start("/bin/sleep", "600", env={"LD_PRELOAD": str(CORE)})
    wait_for(lambda: not directory.exists(), "data that is too old to be swept", 20)


# ---- ways in ----

def test_preload_leaves_programs_alone(world):
    """A pipeline of programs that end at once, or before the core is up: same words, same codes."""
    env = dict(world.env, LD_PRELOAD=str(CORE))
    for _ in range(20):
        done = subprocess.run(["/bin/sh", "-c",
                               "echo a b | tr ' ' '\\n' | sort -r | head -1; exit 7"],
                              capture_output=True, text=True, env=env, timeout=20)
        assert (done.returncode, done.stdout, done.stderr) == (7, "b\n", "")


def test_probing_0_disables(world):
    target = world.start("/bin/sleep", "600", env={"LD_PRELOAD": str(CORE), "PROBING": "0"})
    wait_for(lambda: "sleep" in os.readlink("/proc/%d/exe" % target.pid), "sleep")
    wait_for(lambda: "libprobing" in open("/proc/%d/maps" % target.pid).read(), "the library")
    assert our_threads(target.pid) == [] and list(world.data.iterdir()) == []
    hook = world.python("import site\nsite.addsitedir(%r)\nprint('ready', flush=True)\n"
                        "import time; time.sleep(600)\n" % str(PACKAGE),
                        env={"PROBING": "0", "PROBING_LIBRARY": str(CORE)})
    hook.wait_line("ready")
    assert our_threads(hook.pid) == []


CHILD_OF_HOOK = """
import site
site.addsitedir(%r)
import subprocess, sys, time
if len(sys.argv) > 1:
    print('child', __import__('os').getpid(), flush=True)
    time.sleep(600)
child = subprocess.Popen([sys.executable, '-u', __file__, 'child'])
print('ready', flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("value,parent,child", [("1", True, False), ("2", True, True),
                                                ("regex:target-0", True, True),
                                                ("regex:no_such", False, False),
                                                ("target-0.py", True, True),
                                                ("other.py", False, False)])
def test_hook_chooses(world, value, parent, child):
    target = world.python(CHILD_OF_HOOK % str(PACKAGE), python=DEBIAN_PYTHON,
                          env={"PROBING": value, "PROBING_LIBRARY": str(CORE)})
    target.wait_line("ready")
    target.wait_line("child")
    pid = int(re.search(r"child (\d+)", target.output()).group(1))
    try:
        for asked, expected in ((target.pid, parent), (pid, child)):
            if expected:
                wait_for(lambda: world.probing("-t", str(asked), "query", "select 1")
                         .returncode == 0, "a core in %d" % asked, 20)
            else:
                assert our_threads(asked) == []
    finally:
        os.kill(pid, signal.SIGKILL)


def http(port, path, token=None, host="127.0.0.1"):
    request = urllib.request.Request("http://%s:%d%s" % (host, port, path))
    if token:
        request.add_header("Authorization", "Bearer " + token)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_old_names(world):
    """PROBE_ADDR and PROBE_... as the oldest versions had them."""
    port = free_port()
    target = world.start("/bin/sleep", "600",
                         env={"LD_PRELOAD": str(CORE), "PROBE_ADDR": "127.0.0.1:%d" % port,
                              "PROBE_RETENTION_DAYS": "3", "PROBING_RETENTION_DAYS": "2"})
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "a core", 20)
    assert "listening: 127.0.0.1:%d" % port in target.probing("info").stdout
    assert target.probing("config", "get", "probing.retention").stdout == "2d\n"


@pytest.mark.parametrize("value,address", [("%d", "127.0.0.1"), ("127.0.0.1:%d", "127.0.0.1"),
                                           ("0.0.0.0:%d", "0.0.0.0")])
def test_port_wants_a_token(world, value, address):
    """A bare port is for this machine only; all addresses must be asked for.  A token always."""
    port = free_port()
    target = world.start("/bin/sleep", "600",
                         env={"LD_PRELOAD": str(CORE), "PROBING_PORT": value % port})
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "a core", 20)
    token_file = next(world.data.iterdir()) / "token"
    wait_for(token_file.exists, "the token")
    assert token_file.stat().st_mode & 0o077 == 0
    token = token_file.read_text()
    assert http(port, "/query?q=select+1") == 401
    assert http(port, "/query?q=select+1", "wrong") == 401
    assert http(port, "/query?q=select+1", token) == 200
    listening = subprocess.run(["cat", "/proc/%d/net/tcp" % target.pid], capture_output=True,
                               text=True).stdout
    local = re.findall(r" ([0-9A-F]{8}):%04X 00000000:0000 0A" % port, listening)
    assert local == ["%08X" % int.from_bytes(socket.inet_aton(address), "little")]
    assert target.probing("eject").returncode == 0
    wait_for(lambda: not our_threads(target.pid), "the end")
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", port))
