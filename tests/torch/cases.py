# SPDX-License-Identifier: Apache-2.0
"""For the tests of the torch plugin: real training processes, with every torch at hand.

Debian's, and those of the Pythons that the variable PROBING_TEST_TORCH names (separated by `:`, for
example a virtual environment with PyPI's torch).
"""
import json
import os
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


class Case:
    """A target from targets/: it makes its models, waits for us, works, and writes what it saw."""

    def __init__(self, world, name, python, *more, env=None):
        self.answer, self.go = world.tmp / "answer.json", world.tmp / "go"
        self.target = world.start(python, "-W", "ignore", "-u", str(HERE / "targets" / name),
                                  str(self.go), str(self.answer), *more, env=env)
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
