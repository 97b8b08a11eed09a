# SPDX-License-Identifier: Apache-2.0
"""For the tests of the torch plugin: real training processes, with every torch at hand.

Debian's, and those of the Pythons that the variable PROBING_TEST_TORCH names (separated by `:`, for
example a virtual environment with PyPI's torch).
"""
import ctypes
import functools
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import world as shared

HERE = Path(__file__).resolve().parent
OTHERS = [p for p in os.environ.get("PROBING_TEST_TORCH", "").split(":") if p]
PYTHONS = [shared.DEBIAN_PYTHON] + (OTHERS or ["another torch"])
HOOKS_LEFT = ("import torch; "
              "print(type(torch.nn.Module.__dict__['__call__']).__name__, "
              "type(torch.optim.SGD.step).__name__, "
              "type(torch.optim.AdamW.step).__name__, "
              "type(torch.optim.Optimizer._optimizer_step_code).__name__, "
              "type(torch.Tensor.backward).__name__, "
              "type(torch.autograd.backward).__name__)")


PR_SET_CHILD_SUBREAPER = 36
FLAGS = ["-W", "ignore", "-u"]


class Adopted:
    """A child that another process of ours has made, as the tests use a subprocess.Popen."""

    def __init__(self, pid):
        self.pid, self.returncode = pid, None

    def wait(self, timeout=shared.LIMIT):
        shared.wait_for(lambda: self.poll() is not None, "the end of %d" % self.pid, timeout)
        return self.returncode

    def poll(self):
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) \
                    else os.WEXITSTATUS(status)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


WARM = {}  # {python: one that has imported torch}; it ends with us, for then it can read no more


def begin_warm(args, env, log):
    """As shared.begin(), by a fork of a Python that has imported torch (warm.py)."""
    python, argv = args[0], args[1 + len(FLAGS):]
    log.touch()
    if python not in WARM:
        WARM[python] = subprocess.Popen(
            [python, *FLAGS, str(HERE / "warm.py")], env=env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
    print(json.dumps({"argv": argv, "env": env, "log": str(log)}), file=WARM[python].stdin,
          flush=True)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        pid = WARM[python].stdout.readline()
        assert pid, "a Python that imports torch ended"
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    return Adopted(int(pid))


class Case:
    """A target from targets/: it makes its models, waits for us, works, and writes what it saw.

    cold: it imports torch itself; else a process forks into it that has done so."""

    def __init__(self, world, name, python, *more, env=None, cold=False):
        self.answer, self.go = world.tmp / "answer.json", world.tmp / "go"
        begin = shared.begin if cold or env else begin_warm
        self.target = world.start(python, *FLAGS, str(HERE / "targets" / name),
                                  str(self.go), str(self.answer), *more, env=env, begin=begin)
        self.target.wait_line("ready")
        self.target.inject()
        self.load()

    def load(self):
        done = self.target.probing("plugin", "load", "torch")
        # settings of torch's in the environment have loaded it
        assert done.returncode == 0 or "is loaded already" in done.stderr, done.stderr

    def stop(self):
        done = self.target.probing("plugin", "stop", "torch")
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self):
        self.go.touch()
        self.target.wait_line("done")
        return json.loads(self.answer.read_text())

    def counts(self):
        rows = self.target.rows("select module, count(*) from python.torch_trace "
                                "where stage = 'post forward' group by module")
        return {name: n for name, n in rows}

    def hooks(self):
        done = self.target.probing("eval", HOOKS_LEFT)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.split()


def backward_on(target, runs=False):
    """Or skipped, where torch cannot: the setting says so, and at a step's begin the log."""
    done = target.probing("config", "torch.backward=on")
    if done.returncode == 0:
        return
    assert "this torch does not tell the order of its graph's nodes" in done.stderr
    if not runs:
        pytest.skip("this torch does not tell the order of its nodes: no rows")
    assert target.probing("config", "torch.profiling=on,backward=on").returncode == 0
    shared.wait_for(lambda: target.rows("select 1 from probing.log where level = 'warn' and "
                                        "text like 'torch.backward: this torch does not %'"),
                    "a line in the log")
    pytest.skip("this torch does not tell the order of its nodes: no rows")
