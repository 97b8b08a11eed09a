# SPDX-License-Identifier: Apache-2.0
"""What entering and leaving do to signals: threads that a signal reaches late or never.

A signal that we sent ends the program when it is delivered after its handler has gone.  So the
program is entered and left again and again while its threads stand in vfork, get no processor,
block every signal, are stopped, or are held by a debugger; it lives each time, and has the
handlers that it had.  PROBING_STRESS_ROUNDS=300 makes the rounds of each case three hundred.
"""
import ctypes
import os
import re
import resource
import shutil
import signal
import subprocess
import time

import pytest

from world import BUILD, ROOT, wait_for

STARVED = BUILD / "tests" / "hostile" / "starved"
GO = ROOT / "tests" / "soak" / "targets" / "server.go"
LIMITED = BUILD / "tests" / "hostile" / "limited"
ROUNDS = int(os.environ.get("PROBING_STRESS_ROUNDS") or 12)
WAYS = [("-c",), ("-P",), ("-c", "-P")]


def ours(pid):
    """Names of threads of ours in the process."""
    names = []
    for tid in os.listdir("/proc/%d/task" % pid):
        try:
            names.append(open("/proc/%d/task/%s/comm" % (pid, tid)).read())
        except OSError:
            continue
    return [n for n in names if n.startswith("probing/")]


def caught(pid):
    """The signals for which the process has a handler, as the kernel says."""
    return re.search(r"SigCgt:\s*(\S+)", open("/proc/%d/status" % pid).read())[1]


def pending(pid):
    """Real-time signals that threads still have to take."""
    found = 0
    for tid in os.listdir("/proc/%d/task" % pid):
        try:
            text = open("/proc/%d/task/%s/status" % (pid, tid)).read()
        except OSError:
            continue
        found |= int(re.search(r"SigPnd:\s*(\S+)", text)[1], 16)
    return found >> signal.SIGRTMIN - 1


def moved_on(target, before):
    """It lives, also when every thread has taken what it had to: a late one would have ended it."""
    assert target.alive(), "ended by signal %s" % -target.process.returncode
    wait_for(lambda: not target.alive() or (caught(target.pid) == before
                                            and not pending(target.pid)), "signals to be as before")
    assert target.alive(), "ended by signal %s" % -target.process.returncode


@pytest.mark.parametrize("kinds", ["vfork", "nice", "idle", "deaf", "waits comes",
                                   "nice idle urgent",
                                   "vfork nice idle deaf waits comes onstack"])
def test_entered_and_left_while_threads_starve(world, kinds):
    """Each round enters another way, looks at stacks, and leaves with signals on their way."""
    target = world.start(str(STARVED), *kinds.split())
    target.wait_line("ready")
    before = caught(target.pid)
    for i in range(ROUNDS):
        target.inject(*WAYS[i % len(WAYS)])
        if i % 3 == 0:
            target.probing("backtrace")
        target.probing("eject")
        wait_for(lambda: not target.alive() or not ours(target.pid), "threads of ours to end")
        moved_on(target, before)


def test_stopped_and_continued(world):
    """A process that stands still by SIGSTOP has signals pending when it goes on and we leave."""
    target = world.start(str(STARVED), "nice", "vfork")
    target.wait_line("ready")
    before = caught(target.pid)
    for _ in range(ROUNDS):
        target.inject("-c", "-P")
        os.kill(target.pid, signal.SIGSTOP)
        wait_for(lambda: re.search(r"State:\s*T", open("/proc/%d/status" % target.pid).read()),
                 "the target to stop")
        os.kill(target.pid, signal.SIGCONT)
        assert target.alive()
        target.probing("eject")
        wait_for(lambda: not target.alive() or not ours(target.pid), "threads of ours to end")
        moved_on(target, before)


def lent(target):
    """How many threads have an alternate signal stack of ours."""
    text = target.rows("select detail from crash.status where item = 'stacks'")[0][0]
    return int(text.split()[0])


@pytest.mark.parametrize("refusal", ["no room in the queue", "the signal is taken"])
def test_a_stack_that_is_not_given_back_stays(world, refusal):
    """What a thread has as its alternate stack must stay mapped, whyever it was not taken back:
    the next signal on it would end the program."""
    target = world.start(str(STARVED), "onstack")
    target.wait_line("ready")
    target.inject("-c")
    wait_for(lambda: lent(target) >= 2, "stacks to be lent")
    if refusal == "no room in the queue":
        resource.prlimit(target.pid, resource.RLIMIT_SIGPENDING, (0, 0))
    else:
        os.kill(target.pid, signal.SIGUSR2)  # puts a handler over ours
        wait_for(lambda: "taken" in target.output(), "the handler over ours")
    target.probing("eject")
    wait_for(lambda: not target.alive() or not ours(target.pid), "threads of ours to end")
    rounds = target.output().count("\n")
    os.kill(target.pid, signal.SIGWINCH)  # it says how many signals it took since
    wait_for(lambda: not target.alive() or target.output().count("\n") > rounds, "signals since")
    assert target.alive(), "ended by signal %s" % -target.process.returncode


def ticks(pid, tid):
    """How long a thread has run in user mode: proc(5) stat."""
    text = open("/proc/%d/task/%d/stat" % (pid, tid)).read()
    return int(text.rsplit(")", 1)[1].split()[11])


class Debugger:
    """One thread of a process under ptrace(2): it stops whenever a signal is about to come."""

    CONT, DETACH, SEIZE, WALL = 7, 17, 0x4206, 0x40000000

    def __init__(self, tid):
        self.tid, self.libc = tid, ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p,
                                     ctypes.c_void_p]
        if self.call(self.SEIZE) == -1:
            pytest.skip("no right to trace: %s" % os.strerror(ctypes.get_errno()))

    def call(self, what, number=0):
        return self.libc.ptrace(what, self.tid, None, number)

    def held_signal(self):
        """A real-time signal that the thread is about to take, and does not yet; others come."""
        while True:
            status = os.waitpid(self.tid, self.WALL)[1]
            number = os.WSTOPSIG(status)
            if status >> 16 == 0 and number >= signal.SIGRTMIN:
                return number
            self.call(self.CONT, 0 if status >> 16 else number)


def test_a_debugger_holds_a_signal_of_ours(world):
    """It is not pending any more, and not yet taken: nobody can say when.  A handler that does
    nothing stays, that is said, and it goes when we come and leave again."""
    target = world.start(str(STARVED), "nice")
    target.wait_line("ready")
    before = caught(target.pid)
    tid = max(int(t) for t in os.listdir("/proc/%d/task" % target.pid))
    debugger = Debugger(tid)
    target.inject("-c")
    number = debugger.held_signal()
    done = target.probing("eject")
    wait_for(lambda: not target.alive() or not ours(target.pid), "threads of ours to end")
    assert debugger.call(Debugger.DETACH, number) == 0
    ran = ticks(target.pid, tid)
    wait_for(lambda: not target.alive() or ticks(target.pid, tid) > ran, "that thread to run")
    assert target.alive(), "ended by signal %s" % -target.process.returncode
    assert "signal %d keeps a handler of ours" % number in done.stdout, done.stdout
    assert "thread %d, which is traced" % tid in done.stdout
    target.inject("-c")
    done = target.probing("eject")
    assert "keeps a handler" not in done.stdout
    moved_on(target, before)


def enter_until_it_ends(world, *words):
    """The result of a wait of 3 s, while we come and go at least once a second."""
    target = world.start(str(LIMITED), *words)
    target.wait_line("ready")
    deadline = time.monotonic() + 60
    while len(target.output().splitlines()) < 2 and time.monotonic() < deadline:
        target.inject()
        target.probing("eject")
    return target.output()


@pytest.mark.parametrize("call", ["epoll_wait", "epoll_pwait"])
def test_a_wait_goes_on_with_what_is_left(world, call):
    """The kernel would begin it anew at each stop: entered again and again it would never end."""
    if not os.path.exists("/proc/self/sched"):
        pytest.skip("the kernel does not tell when a thread ran last (/proc/PID/sched)")
    assert "ended after" in enter_until_it_ends(world, call, "3000")


@pytest.mark.parametrize("call", ["epoll_wait", "sigtimedwait", "recv", "semtimedop"])
def test_another_thread_is_taken(world, call):
    """A signal that cannot be handed back is not taken if another thread can be had."""
    assert "ended after" in enter_until_it_ends(world, call, "3000", "beside")


def test_beside_a_runtime_that_has_every_signal(world):
    """Go's has a handler on each.  Ours comes before one of them and hands on what is not ours; the
    program gets its own signals and recovers from its own faults, as before, and is left so."""
    if not shutil.which("go") or not shutil.which("gcc"):
        pytest.skip("no Go here (Debian: golang-go, gcc)")
    program = world.tmp / "server"
    built = subprocess.run(["go", "build", "-o", str(program), str(GO)], capture_output=True,
                           text=True, cwd=world.tmp,
                           env=dict(world.env, CGO_ENABLED="1", GOCACHE=str(world.tmp / "cache")))
    if built.returncode:
        pytest.skip("this Go builds no cgo program: " + built.stderr[-200:])
    target = world.start(str(program))
    target.wait_line("port")
    before = caught(target.pid)
    for i in range(1, 6):
        target.inject("-c", "-P")
        status = target.rows("select item, state from crash.status where item = 'SIGSEGV'")
        assert status == [["SIGSEGV", "on"]], status
        wait_for(lambda: target.rows("select count(*) from python.samples")[0][0] > 5, "samples")
        for number in (signal.SIGUSR1, 62, 63):
            os.kill(target.pid, number)
        wait_for(lambda: all(target.output().count("got %d\n" % number) == i
                             for number in (signal.SIGUSR1, 62, 63)), "its own signals")
        assert target.probing("eject").returncode == 0
        wait_for(lambda: not target.alive() or not ours(target.pid), "threads of ours to end")
        moved_on(target, before)
    assert target.output().count("got") == 15
