# SPDX-License-Identifier: Apache-2.0
"""Reports of crashes: what is kept when a process crashes, and that it crashes as if nobody looked.

Most targets are tests/e2e/crashing.c, preloaded with the core; it crashes when a file appears.
"""
import ctypes
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pythons import PYENV
from world import BUILD, CORE, DEBIAN_PYTHON, LIMIT, has_torch, wait_for

CRASHING = BUILD / "tests" / "e2e" / "crashing"
ON = {"LD_PRELOAD": str(CORE), "PROBING_CRASH": "1"}
PYTHONS = [str(p) for p in sorted(Path(PYENV).glob("3.*/bin/python3"))
           if int(p.parts[-3].split(".")[1]) >= 8] or [sys.executable]
X86 = os.uname().machine == "x86_64"


class Crasher:
    """crashing.c with the core in it, or without."""

    def __init__(self, world, how, where="main", env=ON, handler=True):
        self.world = world
        self.go = world.tmp / ("go-%d" % len(world.targets))
        self.target = world.start(str(CRASHING), how, where, str(self.go), env=env)
        self.target.wait_line("ready")
        if env and handler:
            self.wait_ready({"thread": 4, "four": 7}.get(where, 3))

    def state(self, item):
        rows = self.target.rows("select item, state, detail from crash.status")
        return {row[0]: row[1:] for row in rows}[item]

    def wait_ready(self, threads):
        """The handler is there, and every thread has a stack to crash on."""
        wait_for(lambda: self.target.probing("info").returncode == 0, "the core")
        wait_for(lambda: self.state("stacks")[1].startswith("%d threads" % threads), "the stacks")

    def crash(self):
        self.go.touch()
        return self.target.process.wait(timeout=LIMIT)

    def rows(self, sql):
        return self.target.rows(sql)

    def report(self):
        rows = self.rows("select signal, code, fault_address, tid, thread_name, message, threads, "
                         "note, survived from crash.reports")
        assert len(rows) == 1, rows
        names = "signal code address tid thread_name message threads note survived".split()
        return dict(zip(names, rows[0]))

    def functions(self, state="crashed"):
        """All threads in that state; a compiler's suffixes (.cold, .isra.0) do not matter."""
        return [(row[0] or "?").split(".")[0] for row in self.rows(
            "select func from crash.frames where state = '%s' order by tid, depth" % state)]


CRASHES = [("segv", signal.SIGSEGV, "SEGV_MAPERR", 0), ("bus", signal.SIGBUS, "BUS_ADRERR", None),
           ("fpe", signal.SIGFPE, "FPE_INTDIV", None), ("ill", signal.SIGILL, None, None),
           ("abort", signal.SIGABRT, "SI_TKILL", None), ("kill", signal.SIGSEGV, "SI_USER", None),
           ("trap", signal.SIGTRAP, None, None)]


@pytest.mark.parametrize("where", ["main", "thread"])
@pytest.mark.parametrize("how, number, code, address", CRASHES)
def test_each_signal(world, how, number, code, address, where):
    if how in ("fpe", "trap") and not X86:
        pytest.skip("this machine does not fault there")
    plain = Crasher(world, how, where, env=None)
    crashed = Crasher(world, how, where)
    assert plain.crash() == crashed.crash() == -number
    assert plain.target.output().split()[2:] == crashed.target.output().split()[2:]
    report = crashed.report()
    assert report["signal"] == number.name
    assert code is None or report["code"] == code
    assert address is None or report["address"] == address
    assert (report["tid"] == crashed.target.pid) == (where == "main" or how == "kill")
    assert report["note"] is None and report["survived"] == 0
    assert {"crash", "main" if where == "main" else "crashing_thread"} <= set(
        crashed.functions()) or how == "kill"
    others = crashed.rows("select distinct func, state from crash.frames "
                          "where func in ('sleeper', 'spinner') order by 1")
    assert others == [["sleeper", "waiting"], ["spinner", "running"]]


def test_what_the_dead_say(world):
    crashed = Crasher(world, "segv")
    crashed.crash()
    text = crashed.target.probing("backtrace").stdout
    assert re.search(r"Process %d crashed in thread %d \"crashing\" at 20\d\d-" %
                     (crashed.target.pid, crashed.target.pid), text)
    assert "SIGSEGV: nothing is mapped there (0x0), in crash+0x" in text
    assert re.search(r'Thread \d+ "crashing" \(crashed\)\n  0 crash \(crashing\+0x', text)
    assert re.search(r'Thread \d+ "crashing" \(waiting\)\n( +\d \? \(libc.*\n)* +\d pause \(libc',
                     text)  # glibc 2.41 waits in a function without a name
    assert re.search(r"registers: \w+=0x", text)
    directory = str(next(world.data.iterdir()))
    assert world.probing(directory, "backtrace").stdout == text
    listing = world.probing("list", "--dead").stdout
    assert re.search(r"%d .*crashing segv.*\(crashed: SIGSEGV\)" % crashed.target.pid, listing)
    done = world.probing("-t", directory, "export", "--format", "jsonl", "--table",
                         "crash.reports", "-o", str(world.tmp / "out"))
    assert done.returncode == 0, done.stderr
    assert json.loads((world.tmp / "out").read_text())["signal"] == "SIGSEGV"


def test_who_did_not_crash_says_so(world):
    lives = Crasher(world, "segv")
    assert lives.rows("select * from crash.reports") == []
    lives.target.kill()
    done = lives.target.probing("backtrace")
    assert done.returncode == 1 and "left no stacks" in done.stderr
    listing = world.probing("list", "--dead").stdout  # others of this machine are in it, too
    own = [line for line in listing.splitlines() if line.split()[0] == str(lives.target.pid)]
    assert own and "crashed" not in own[0], listing


@pytest.mark.parametrize("how, where, number, function", [
    ("malloc", "thread", signal.SIGABRT, "abort"), ("loader", "main", signal.SIGSEGV, "main"),
    ("loader", "thread", signal.SIGSEGV, "crashing_thread"),
    ("segv", "handler", signal.SIGSEGV, "main"), ("abort", "handler", signal.SIGABRT, "main"),
    ("zero", "main", signal.SIGSEGV, "crash"), ("overflow", "main", signal.SIGSEGV, "overflow"),
    ("overflow", "thread", signal.SIGSEGV, "overflow"), ("smash", "main", signal.SIGSEGV, "crash"),
    ("smash", "thread", signal.SIGSEGV, "crash")])
def test_bad_places(world, how, where, number, function):
    """With malloc's lock, the loader's lock, in a handler, without code and without a stack."""
    if how == "smash" and not X86:
        pytest.skip("written for x86-64")
    crashed = Crasher(world, how, where)
    assert crashed.crash() == -number
    report = crashed.report()
    assert report["signal"] == number.name and report["note"] is None, report
    assert function in crashed.functions()
    assert "pause" in crashed.functions("waiting")


def test_four_at_once(world):
    for _ in range(5):
        crashed = Crasher(world, "segv", "four")
        assert crashed.crash() == -signal.SIGSEGV
        report = crashed.report()
        assert report["note"] is None and report["threads"] == 7
        assert crashed.functions().count("crash") + crashed.functions("running").count("crash") >= 1


@pytest.mark.parametrize("how", ["mend", "jump", "jump_nodefer", "raise_abort", "ignored"])
def test_who_mends_is_not_reported(world, how):
    """Virtual machines and collectors use these signals for themselves."""
    plain = Crasher(world, how, env=None)
    crashed = Crasher(world, how)
    assert plain.crash() == crashed.crash() == 0
    assert plain.target.output().split()[2:] == crashed.target.output().split()[2:]
    assert crashed.rows("select * from crash.reports") == []


@pytest.mark.parametrize("how, number", [("own_default", signal.SIGSEGV),
                                         ("own_reset", signal.SIGSEGV),
                                         ("own_abort", signal.SIGABRT)])
def test_own_handlers_that_do_not_mend(world, how, number):
    crashed = Crasher(world, how)
    assert crashed.crash() == -number
    assert crashed.target.output().count("own handler\n") == 1
    report = crashed.report()
    assert report["signal"] == number.name and report["note"] is None
    assert "main" in crashed.functions()


def caught(pid):
    status = Path("/proc/%d/status" % pid).read_text()
    return int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) & 0xffffffff


def test_on_and_off_leave_nothing(world):
    lives = Crasher(world, "segv", env={"LD_PRELOAD": str(CORE)}, handler=False)
    wait_for(lambda: lives.target.probing("info").returncode == 0, "the core")
    before = caught(lives.target.pid)
    outside = before & ~(1 << signal.SIGBUS - 1)  # for lost pages of the store's files
    assert lives.state("SIGSEGV")[0] == "off"
    assert lives.target.probing("config", "crash.handler=on").returncode == 0
    assert caught(lives.target.pid) & 1 << signal.SIGSEGV - 1
    assert lives.state("SIGSEGV") == ["on", "then the default action"]
    assert lives.target.probing("config", "crash.handler=off").returncode == 0
    assert caught(lives.target.pid) == before
    assert lives.target.probing("config", "crash.handler=on").returncode == 0
    assert lives.target.probing("eject").returncode == 0
    wait_for(lambda: caught(lives.target.pid) == outside, "the handlers to go")
    assert lives.crash() == -signal.SIGSEGV
    assert not list(world.data.glob("*/crash"))


def test_a_child_crashes_for_itself(world):
    crashed = Crasher(world, "child")
    assert crashed.crash() == 0
    assert "child %d" % signal.SIGSEGV in crashed.target.output()
    assert not list(world.data.glob("*/crash"))


def test_our_own_thread_crashes(world):
    crashed = Crasher(world, "ours")
    assert crashed.crash() == -signal.SIGSEGV
    report = crashed.report()
    assert report["thread_name"] == "probing/crash" and "did not answer" in report["note"]
    assert "sleeper" in crashed.functions("running")  # unwound after death


def test_what_eval_calls_crashes(world):
    """It is the user's code on a thread of ours: as loud as anywhere else."""
    target = world.python("import faulthandler, time\nfaulthandler.enable()\n"
                          "print('ready', flush=True)\ntime.sleep(600)")
    target.wait_line("ready")
    target.inject("-c")
    done = target.probing("eval", "__import__('ctypes').string_at(8)")
    assert done.returncode != 0
    assert target.process.wait(timeout=LIMIT) == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in target.output()
    rows = target.rows("select signal, thread_name from crash.reports")
    assert rows == [["SIGSEGV", "probing/python"]], rows


def test_our_thread_is_stuck(world):
    """Then the handler writes what it can, in bounded time, and the reader unwinds."""
    crashed = Crasher(world, "segv")
    tasks = Path("/proc/%d/task" % crashed.target.pid)
    tid = next(int(t.name) for t in tasks.iterdir()
               if (t / "comm").read_text() == "probing/crash\n")
    libc = ctypes.CDLL(None, use_errno=True)
    ptrace = libc.ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if ptrace(0x4206, tid, None, None) == -1:  # PTRACE_SEIZE
        pytest.skip("ptrace is not permitted here")
    assert ptrace(0x4207, tid, None, None) == 0  # PTRACE_INTERRUPT
    os.waitpid(tid, 0x40000000)  # __WALL
    crashed.go.touch()

    def reap():  # its end is told to its tracer first
        done, _ = os.waitpid(tid, os.WNOHANG | 0x40000000)
        return done
    wait_for(reap, "the thread that is stuck to be ended")
    assert crashed.target.process.wait(timeout=LIMIT) == -signal.SIGSEGV
    report = crashed.report()
    assert report["signal"] == "SIGSEGV" and "did not answer" in report["note"]
    assert crashed.functions()[:2] == ["crash", "main"]
    assert "sleeper" in crashed.functions("running")


def test_core_dumps_as_before(world):
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("core dumps are forbidden here")
    found = {}
    for name, env in (("plain", None), ("ours", ON)):
        place = world.tmp / name
        place.mkdir()
        go = place / "go"
        go.touch()
        script = "ulimit -c %s; cd %s; exec %s segv main %s" % (
            "unlimited" if hard == resource.RLIM_INFINITY else hard, place, CRASHING,
            go if env is None else place / "late")
        process = subprocess.Popen(["/bin/sh", "-c", script], env=dict(world.env),
                                   stdout=subprocess.PIPE, text=True)
        if env:
            process.kill()
            process.wait()
            process = subprocess.Popen(
                ["/bin/sh", "-c", script.replace("exec ", "exec env LD_PRELOAD=%s PROBING_CRASH=1 "
                                                 % CORE)],
                env=dict(world.env), stdout=subprocess.PIPE, text=True)
            wait_for(lambda: caught(process.pid) & 1 << signal.SIGSEGV - 1, "the handler")
            (place / "late").touch()
        _, status = os.waitpid(process.pid, 0)
        process.returncode = -os.WTERMSIG(status)
        assert os.WTERMSIG(status) == signal.SIGSEGV
        found[name] = os.WCOREDUMP(status), place
    assert found["plain"][0] == found["ours"][0]
    if pattern.startswith("|") or "/" in pattern or not found["ours"][0]:
        pytest.skip("core dumps do not come as files here (%s)" % pattern)
    if not shutil.which("gdb"):
        pytest.skip("no gdb to read the core dumps (Debian: gdb)")
    said = []
    for _, place in found.values():
        core = next(place.glob("core*"))
        gdb = subprocess.run(["timeout", "-s", "KILL", "60", "gdb", "-batch", "-ex",
                              "p $_siginfo.si_signo", "-ex", "p $_siginfo.si_code", "-ex",
                              "p $_siginfo._sifields._sigfault.si_addr", "-ex", "x/i $pc", "-ex",
                              "bt 1", str(CRASHING), str(core)], capture_output=True, text=True)
        said.append(re.findall(r"^(?:\$\d = .*|=> .*|#0 .*)$", gdb.stdout, flags=re.M))
    assert said[0] and re.sub("0x[0-9a-f]+ ", "", str(said[0])) == \
        re.sub("0x[0-9a-f]+ ", "", str(said[1]))


def test_many_crashes_without_one_hang(world):
    """Four at a time, each in another place; all end in time and all have a report."""
    places = ["segv", "abort", "malloc", "loader", "zero", "overflow"] * 4
    for i in range(0, len(places), 4):
        batch = [Crasher(world, how, "four" if how != "malloc" else "thread")
                 for how in places[i:i + 4]]
        for crashed in batch:
            crashed.go.touch()
        for crashed in batch:
            assert crashed.target.process.wait(timeout=LIMIT) < 0
            assert crashed.report()["note"] is None


# ---- Python ----

PYTHON = """
import ctypes, faulthandler, os, sys, threading, time
def crash():
    how = sys.argv[1]
    if how == 'string_at': ctypes.string_at(0)
    if how == 'abort': os.abort()
    if how == 'sigsegv': faulthandler._sigsegv()
    if how == 'sigfpe': faulthandler._sigfpe()
    if how == 'overflow': faulthandler._stack_overflow()
def inner():
    crash()
def wait():
    while not os.path.exists(sys.argv[4]):
        time.sleep(0.01)
if sys.argv[3] == 'before': faulthandler.enable()
threading.Thread(target=lambda: time.sleep(1000), daemon=True, name='idle').start()
print('ready', flush=True)
wait()
if sys.argv[3] == 'after': faulthandler.enable()
if sys.argv[2] == 'main':
    inner()
else:
    t = threading.Thread(target=inner)
    t.start()
    t.join()
"""


class PythonCrasher(Crasher):
    def __init__(self, world, how, where="main", handlers="none", python=sys.executable, env=ON):
        self.world = world
        self.go = world.tmp / ("go-%d" % len(world.targets))
        script = world.tmp / "crash.py"
        script.write_text(PYTHON)
        self.target = world.start(python, "-u", str(script), how, where, handlers, str(self.go))
        self.target.wait_line("ready")
        if env:
            self.target.inject()
            assert self.target.probing("config", "crash.handler=on").returncode == 0


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("how, number", [("string_at", signal.SIGSEGV), ("abort", signal.SIGABRT),
                                         ("sigfpe", signal.SIGFPE)])
def test_pythons(world, python, how, number):
    crashed = PythonCrasher(world, how, "thread", python=python)
    assert crashed.crash() == -number
    report = crashed.report()
    assert report["signal"] == number.name and report["note"] is None
    rows = crashed.rows("select func, file, lineno from crash.frames where frame_type = 'python' "
                        "and state = 'crashed' order by depth")
    assert [row[0] for row in rows if row[0] in ("crash", "inner")] == ["crash", "inner"]
    assert all(row[1].endswith(".py") and row[2] > 0 for row in rows)
    assert crashed.rows("select 1 from crash.frames where frame_type = 'python' and "
                        "state = 'waiting'")


def test_python_overflows_its_stack(world):
    crashed = PythonCrasher(world, "overflow")
    wait_for(lambda: crashed.state("stacks")[1].startswith("2 threads"), "the stacks")
    assert crashed.crash() == -signal.SIGSEGV
    assert len(crashed.functions()) > 200


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how, number", [("string_at", signal.SIGSEGV), ("abort", signal.SIGABRT)])
def test_faulthandler_prints_as_before(world, how, number, when):
    plain = PythonCrasher(world, how, handlers=when, env=None)
    crashed = PythonCrasher(world, how, handlers=when)
    assert plain.crash() == crashed.crash() == -number

    def said(target):
        text = re.sub(r"0x[0-9a-f]+", "0x", target.target.output())
        return re.sub(r"go-\d", "go", text)
    assert "Fatal Python error" in said(plain)
    assert said(plain) == said(crashed)
    report = crashed.report()
    assert report["signal"] == number.name and report["note"] is None
    if how == "string_at":  # the fault itself, not how faulthandler raised it again
        assert [report["code"], report["address"]] == ["SEGV_MAPERR", 0]


def test_displaced_is_said(world):
    crashed = PythonCrasher(world, "string_at", handlers="after")
    assert crashed.state("SIGSEGV") == ["on", "then the default action"]
    done = crashed.target.probing("eval", "import faulthandler; faulthandler.enable()")
    assert done.returncode == 0, done.stderr
    assert crashed.state("SIGSEGV") == ["displaced", "Python's faulthandler"]
    wait_for(lambda: crashed.rows("select text from probing.log where source = 'crash' and text "
                                  "like 'SIGSEGV now goes to Python''s faulthandler%'"), "the log")
    done = crashed.target.probing("eval", "faulthandler.disable()")
    wait_for(lambda: crashed.state("SIGSEGV")[0] == "on", "ours to be there again")


def test_torch_training_crashes(world):
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s (Debian: python3-torch)" % DEBIAN_PYTHON)
    target = world.train()
    target.inject()
    assert target.probing("config", "set", "crash.handler", "on").returncode == 0
    done = target.probing("eval", "import os, threading; threading.Timer(0.1, os.abort).start()")
    assert done.returncode == 0, done.stderr
    assert target.process.wait(timeout=LIMIT) == -signal.SIGABRT
    rows = target.rows("select signal, note from crash.reports")
    assert rows == [["SIGABRT", None]]


FAULTY = r"""
#include <probing/plugin.h>
static const struct probing_host *host;
static int self_;
static void tick(void *self, uint64_t now) { (void)self; (void)now; *(volatile int *)16 = 1; }
static int init(const struct probing_host *h, void **s) { host = h; *s = &self_; return 0; }
static int start(void *s) { (void)s; return host->every(host, 100000000, tick); }
static void destroy(void *s) { (void)s; }
const struct probing_plugin probing_plugin_v1 __attribute__((visibility("default"))) = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "faulty",
    .version = "1", .doc = "faults", .init = init, .start = start, .destroy = destroy };
"""


def test_a_fault_of_our_own_thread_is_reported(world):
    """Its signals are blocked, but a blocked fault would end the process without a word."""
    target = world.start("/bin/sleep", "600")
    target.inject("-c")
    target.probing("plugin", "load", str(world.plugin("faulty", FAULTY)))
    assert target.process.wait(LIMIT) == -signal.SIGSEGV
    done = target.probing("backtrace")
    assert done.returncode == 0 and "tick (faulty.so" in done.stdout, done
    rows = target.rows("select signal, fault_address, thread_name from crash.reports")
    assert len(rows) == 1 and rows[0][0] == "SIGSEGV" and "probing/" in rows[0][2], rows
