# SPDX-License-Identifier: Apache-2.0
"""A debugger, or another tracer, that looks at a process with probing in it."""
import shutil
import subprocess
import sys

import pytest
from world import IDLE, wait_for

# It stops the first thread at each system call, and holds it for that many seconds.
TRACER = """
import ctypes, os, sys, time
pid, seconds = int(sys.argv[1]), float(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(0x4206, pid, None, None):
    sys.exit(os.strerror(ctypes.get_errno()))
assert libc.ptrace(0x4207, pid, None, None) == 0
print("traces", flush=True)
while True:
    stopped, status = os.waitpid(pid, 0x40000000)
    time.sleep(seconds)
    libc.ptrace(24, pid, None, None)
"""


def test_gdb_attaches_and_leaves(world):
    """It opens what the process has mapped by the names that the loader knows: of /proc/self/fd/3
    that was a pipe of its own, from which it read for ever, with the process stopped."""
    if not shutil.which("gdb"):
        pytest.skip("no gdb (Debian: gdb)")
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject("--wait", "--plugin", "python")
    done = subprocess.run(["timeout", "-s", "KILL", "60", "gdb", "-p", str(target.pid), "-batch",
                           "-ex", "info sharedlibrary"], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=world.env)
    if "ptrace: Operation not permitted" in done.stdout:
        pytest.skip("gdb may not attach here")
    assert done.returncode == 0, done.stdout
    assert "/proc/" not in done.stdout
    assert target.rows("select 1") == [[1]]


NAMES = """
import ctypes
class Info(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("name", ctypes.c_char_p)]
look = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
def take(info, size, arg):
    print(info[0].name.decode())
    return 0
ctypes.CDLL(None).dl_iterate_phdr(look(take), None)
"""


def test_the_loader_names_no_descriptor(world):
    """Nor one of the program's that has the number by now.  torch's snapshots of memory, with
    stacks of C++, ask addr2line of each name, and failed ("stoi") where we were in a stack."""
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject("--wait", "--plugin", "python", "--plugin", "system")
    done = target.probing("eval", NAMES)
    assert done.returncode == 0, done.stderr
    names = done.stdout.splitlines()
    assert len(names) > 5 and not [n for n in names if n.startswith("/proc/")], names


@pytest.mark.parametrize("seconds", [0.03, 600])
def test_who_is_traced_answers_and_who_is_held_is_read(world, seconds):
    """strace stops a thread at each call: it was said to be stopped where a look met that."""
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    tracer = world.start(sys.executable, "-u", "-c", TRACER, str(target.pid), str(seconds))
    wait_for(lambda: "traces" in tracer.output() or not tracer.alive(), "a tracer")
    if not tracer.alive():
        pytest.skip("no right to trace: " + tracer.output())
    stat = "/proc/%d/stat" % target.pid
    try:
        for _ in range(5):
            wait_for(lambda: ") t " in open(stat).read(), "a stop")
            done = target.probing("query", "select 1")
            assert done.returncode == 0, done.stderr
            assert ("is read from its files" in done.stderr) == (seconds == 600), done.stderr
    finally:
        tracer.kill()  # before the target: its end would be told to nobody else
