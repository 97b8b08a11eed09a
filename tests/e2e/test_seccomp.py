# SPDX-License-Identifier: Apache-2.0
"""Processes under seccomp filters: what is refused with an error is lived with or named, and who
would be killed for a call of ours is not entered."""
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from test_environments import IDLE, ROOT_ONLY, Life, descendant, descriptors
from world import CLI, LIMIT, ROOT, wait_for

# filtered(calls, action): a filter for the thread that calls it.  Each call: (number, no argument's
# index or None, its value).
FILTER = """
import ctypes, select, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
class Program(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.c_void_p)]
def filtered(calls, action):
    code = []
    for number, index, value in calls:
        code += [(0x20, 0, 0, 0), (0x15, 0, 1 if index is None else 3, number)]
        if index is not None:
            code += [(0x20, 0, 0, 16 + 8 * index), (0x15, 0, 1, value)]
        code += [(0x06, 0, 0, action)]
    code += [(0x06, 0, 0, 0x7fff0000)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *c) for c in code))
    program = Program(len(code), ctypes.cast(text, ctypes.c_void_p))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    print("ready", flush=True)
    assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
"""
CALLS = {"x86_64": {"memfd_create": 319, "openat": 257, "socket": 41, "nanosleep": 35,
                    "sched_getaffinity": 204, "utimensat": 280, "prctl": 157, "mprotect": 10,
                    "restart_syscall": 219},
         "aarch64": {"memfd_create": 279, "openat": 56, "socket": 198, "nanosleep": 101,
                     "sched_getaffinity": 123, "utimensat": 88, "prctl": 167, "mprotect": 226,
                     "restart_syscall": 128}}[os.uname().machine]
EPERM, KILL, TRAP = 0x00050001, 0x80000000, 0x00030000
HEADER = ROOT / "cli" / "inject" / "seccomp_calls.h"
THEN_SLEEP = "while True: time.sleep(0.05)\n"


def filtered(world, calls, action, text=None):
    """A Python; calls: names, or (name, index, value) of one argument."""
    rows = [(CALLS[c], None, 0) if isinstance(c, str) else (CALLS[c[0]], *c[1:]) for c in calls]
    target = world.python(FILTER + (text or "filtered(%r, %r)\n" + THEN_SLEEP) % (rows, action))
    target.wait_line("ready")
    wait_for(lambda: any("Seccomp:\t2" in status.read_text() for status in
                         Path("/proc/%d/task" % target.pid).glob("*/status")), "a filter")
    return target


@ROOT_ONLY
def test_filter_without_memfd(world):
    Life(world, filtered(world, ["memfd_create"], EPERM).pid).whole()


@ROOT_ONLY
@pytest.mark.parametrize("call", ["openat", "socket"])
def test_filter_that_refuses_what_the_core_needs(world, call):
    """The core says what it could not do, and is gone again."""
    target = filtered(world, [call], EPERM)
    before = descriptors(target.pid)
    done = target.probing("inject")
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert call in done.stderr and "seccomp" in done.stderr, done.stderr
    wait_for(lambda: descriptors(target.pid) == before, "closed descriptors")
    assert target.alive()


def not_entered(target, call):
    before = descriptors(target.pid)
    done = target.probing("inject")
    assert done.returncode == 1 and call in done.stderr and "seccomp" in done.stderr, done.stderr
    assert target.alive() and descriptors(target.pid) == before


@ROOT_ONLY
@pytest.mark.parametrize("action", [KILL, TRAP])
@pytest.mark.parametrize("call", ["memfd_create", "nanosleep", "sched_getaffinity", "utimensat"])
def test_filter_that_kills(world, call, action):
    """A trap, too: the program's handler may mean to end it."""
    not_entered(filtered(world, [call], action), call)


@ROOT_ONLY
@pytest.mark.parametrize("call, index, value", [("socket", 0, 1), ("prctl", 0, 15),
                                                ("mprotect", 1, 4096)])
def test_filter_that_kills_for_an_argument(world, call, index, value):
    """It was asked about arguments of zeros; one that it may be asked about counts, too."""
    not_entered(filtered(world, [(call, index, value)], KILL), call)


@ROOT_ONLY
def test_filter_that_kills_for_what_we_never_ask(world):
    """A socket that sniffs packets, and memory that is written to and run."""
    calls = [("socket", 0, 17), ("mprotect", 2, 7)]
    Life(world, filtered(world, calls, KILL).pid).whole()


@ROOT_ONLY
def test_filter_of_another_thread(world):
    """The first thread has none, and the one that would be borrowed does."""
    not_entered(filtered(world, ["socket"], KILL, """
def sandboxed():
    filtered(%r, %r)
    while True: time.sleep(600)
threading.Thread(target=sandboxed, daemon=True).start()
while True: bytearray(1 << 20)
"""), "socket")


@ROOT_ONLY
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only there a stop can do without")
def test_filter_that_kills_for_going_on_with_a_wait(world):
    """The kernel makes this call for a thread that was stopped in poll()."""
    target = filtered(world, ["restart_syscall"], KILL, """
filtered(%r, %r)
while True: select.poll().poll(100000)
""")
    not_entered(target, "restart_syscall")
    assert target.alive()


WORK = [["plugin", "load", "system"], ["plugin", "load", "memory"], ["plugin", "load", "gpu"],
        ["plugin", "load", "nccl"], ["plugin", "load", "profile"], ["eval", "print(1)"],
        ["query", "select count(*) from process.fds, cpu.tasks"], ["backtrace", "--all"],
        ["flamegraph", "wall", "-s", "1", "-f", "folded"], ["config"], ["script", "list"],
        ["memory"], ["eject"]]



def calls_of_ours(trace):
    """{system call: {index: values of that argument}} of our threads, as strace -X raw has them."""
    names, made = {}, {}
    for line in trace.splitlines():
        call = re.match(r"(\d+) +(\w+)\((.*)", line)
        if not call:
            continue
        tid, name, rest = call.groups()
        named = name == "prctl" and re.match(r'0xf, "(.*?)"', rest)
        if named:
            names[tid] = named[1]
        if names.get(tid, "").startswith("probing/"):
            values = made.setdefault(name, {})
            for i, argument in enumerate(re.split(r"[,)]", re.sub(r'"[^"]*"', "", rest))[:3]):
                if re.fullmatch(r" *(0x[0-9a-f]+|0|[1-9]\d*)", argument):
                    values.setdefault(i, set()).add(int(argument, 0))
    return made


ARGUMENTS = """
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
int main(void)
{
#define ARGUMENT(call, index, ...) \
    for (unsigned i = 0, v[] = {__VA_ARGS__}; i < sizeof(v) / sizeof(v[0]); i++) \
        printf("%s %d %u\\n", #call, index, v[i]);
#include "seccomp_calls.h"
}
"""


def arguments_listed(world):
    """{(system call, index): values}"""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    made = world.tmp / "arguments"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-I", str(HEADER.parent), "-x", "c", "-", "-o",
                    str(made)], input=ARGUMENTS, text=True, check=True)
    listed = {}
    for line in subprocess.check_output([str(made)], text=True).splitlines():
        call, index, value = line.split()
        listed.setdefault((call, int(index)), set()).add(int(value))
    return listed


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace")
def test_filters_are_asked_about_every_call_of_ours(world):
    """One that is not in the list may end the program under a filter that kills for it."""
    written = world.tmp / "trace"
    tracer = world.start("strace", "-f", "-qq", "-X", "raw", "-o", str(written), str(CLI), "launch",
                         "--", "/usr/bin/python3", "-u", "-c", IDLE)
    tracer.wait_line("ready")
    pid = descendant(tracer.pid, "python3")
    wait_for(lambda: world.probing("-t", str(pid), "query", "select 1").returncode == 0, "a core")
    for words in WORK:
        done = world.probing("-t", str(pid), *words)
        assert done.returncode == 0, (words, done.stderr)
    os.kill(pid, signal.SIGKILL)
    tracer.process.wait(LIMIT)
    made = calls_of_ours(written.read_text())
    assert len(made) > 40, made
    known = set(re.findall(r"(?:NEEDED|CALLED)\((\w+)\)", HEADER.read_text()))
    assert not set(made) - known, set(made) - known
    listed = arguments_listed(world)
    seen = {(call, i): values for call in made for i, values in made[call].items()}
    unknown = {which: seen[which] - listed[which] for which in listed if which in seen}
    assert not any(unknown.values()), unknown
    assert len(unknown) > 5, seen
