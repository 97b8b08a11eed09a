# SPDX-License-Identifier: Apache-2.0
"""A host that ends in every way, on every CPython, while a core is busy in it."""
import subprocess

import pytest
from life import BUSY, LEAVING, enter, our_threads, slept, time_in_cpu
from pythons import PYTHONS
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
