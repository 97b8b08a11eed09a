# SPDX-License-Identifier: Apache-2.0
"""A host that ends in every way, on every CPython, while a core is busy in it."""
import shutil
import subprocess

import pytest
from life import BUSY, LEAVING, enter, our_threads, slept, time_in_cpu
from pythons import PYTHONS, minor_of
from world import CLI, wait_for

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
@pytest.mark.parametrize("busy", sorted(BUSY))
@pytest.mark.parametrize("how", sorted(EXITS))
def test_exit(world, how, busy):
    statement, code = EXITS[how]
    target = enter(world, "wait_go()\n%s%s\n" % (LEAVING, statement),
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
        waited = slept(target)
        assert target.process.returncode == code, target.output()
        # Nobody waits for us: a plugin, a client and a script each would take 10 s or more.
        assert waited < 9, "%s while %s: %.3f s" % (how, busy, waited)
        if how == "atexit":
            assert target.output().index("last in") < target.output().index("first in")
    finally:
        for client in clients:
            client.terminate()
            client.wait()


@pytest.mark.parametrize("busy", ["eval", "backtrace"])
@pytest.mark.parametrize("how", ["sys.exit", "end", "exception"])
@pytest.mark.parametrize("python", list(PYTHONS.values()), ids=list(PYTHONS))
def test_finalization_of_every_python(world, python, how, busy):
    """The interpreter ends while code of ours waits for its GIL, or looks at its stacks."""
    statement, code = EXITS[how]
    target = enter(world, "wait_go()\n%s%s\n" % (LEAVING, statement),
                   "inject", python=python)
    clients = [subprocess.Popen([str(CLI), "-t", str(target.pid), *BUSY[busy]], env=world.env,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for _ in range(2)]
    try:
        if busy == "eval":
            time_in_cpu(target.pid, "probing/python")
        target.go()
        waited = slept(target)
        assert target.process.returncode == code, target.output()
        assert waited < 10  # nobody waits for us: that would be for ever
    finally:
        for client in clients:
            client.terminate()
            client.wait()


# A thread of ours is at the door of the interpreter, and has no processor until that has ended; or
# until it has begun to end a while ago, as it may wait for us.
STARVED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile int ended, came, passed;

static void end(void) /* all that is Python's is gone */
{
    ended = 1;
    for (int i = 0; came && !passed && i < 5000; i++)
        usleep(1000);
    usleep(20000); /* for it to do in there what it does */
}

static void starve(void)
{
    char name[16] = "";
    int (*initialized)(void) = (int (*)(void))dlsym(RTLD_NEXT, "Py_IsInitialized");
    prctl(PR_GET_NAME, name);
    if (strncmp(name, "probing/", 8) != 0 || access("starve", F_OK) != 0 || came)
        return;
    came = 1;
    ((int (*)(void (*)(void)))dlsym(RTLD_NEXT, "Py_AtExit"))(end);
    (void)write(1, "at the door\n", 12);
    while (initialized())
        usleep(1000);
    for (int i = 0; !ended && i < 500; i++)
        usleep(1000);
    passed = 1;
}

int PyGILState_Ensure(void)
{
    starve();
    return ((int (*)(void))dlsym(RTLD_NEXT, "PyGILState_Ensure"))();
}

void *PyThreadState_New(void *interpreter)
{
    starve();
    return ((void *(*)(void *))dlsym(RTLD_NEXT, "PyThreadState_New"))(interpreter);
}

int Py_AddPendingCall(int (*call)(void *), void *arg)
{
    starve();
    return ((int (*)(int (*)(void *), void *))dlsym(RTLD_NEXT, "Py_AddPendingCall"))(call, arg);
}
"""
# Only where these functions are in a library can another one stand before it.
SHARED = {version: path for version, path in PYTHONS.items()
          if "libpython3" in subprocess.run(["ldd", path], capture_output=True, text=True).stdout}


@pytest.mark.parametrize("command", [["eval", "1"], ["plugin", "stop", "python"]],
                         ids=["eval", "stop"])
@pytest.mark.parametrize("python", list(SHARED.values()), ids=list(SHARED))
def test_the_interpreter_ends_while_a_thread_of_ours_enters_it(world, python, command):
    """It must not be in the middle of making itself known to an interpreter that is gone."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    if minor_of(python) == 8 and command[0] == "plugin":
        pytest.skip("3.8: an ending interpreter's queue of calls cannot be asked without its GIL")
    (world.tmp / "starved.c").write_text(STARVED)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(world.tmp / "starved.so"),
                    str(world.tmp / "starved.c"), "-ldl"], check=True)
    target = enter(world, "wait_go()\n%ssys.exit(3)\n" % LEAVING, "inject", python=python,
                   env={"LD_PRELOAD": str(world.tmp / "starved.so")})
    assert target.probing("eval", "1 + 1").returncode == 0
    (world.tmp / "starve").touch()
    client = subprocess.Popen([str(CLI), "-t", str(target.pid), *command], env=world.env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        target.wait_line("at the door")
        target.go()
        target.process.wait(60)
        assert target.process.returncode == 3, target.output()
    finally:
        client.terminate()
        client.wait()
