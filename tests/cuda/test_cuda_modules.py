# SPDX-License-Identifier: Apache-2.0
"""Kernels find the module, the step and the thread that asked for them.  The modules are torch's,
the kernels a stand-in's: each is "launched" where a real one would be."""
import os

import pytest
from standin import Device
from world import DEBIAN_PYTHON, has_torch, wait_for

TRAIN = """
import torch
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        kernel("scale_forward")
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        kernel("scale_backward")
        return grad * 2
class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
    def forward(self, x):
        return Scale.apply(x * self.weight)
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Inner(), Inner()
    def forward(self, x):
        kernel("of_outer")
        return self.second(self.first(x))
class Steps(torch.optim.SGD):
    def step(self, closure=None):
        kernel("update")
        return super().step(closure)
model = Outer()
optimizer = Steps(model.parameters(), lr=0.1)
def train(n):
    for _ in range(n):
        optimizer.zero_grad()
        model(torch.ones(4)).sum().backward()
        optimizer.step()
        kernel("between")
"""


OTHERS = [p for p in os.environ.get("PROBING_TEST_TORCH", "").split(":") if p]


def a_step_of_a_module(d):
    """Plugin torch begins when torch is there, and finds the modules at their first calls."""
    d.do("train(1)")
    return d.rows("select max(step) from cuda.kernels where module = 'Outer'")[0][0]


@pytest.mark.parametrize("python", [DEBIAN_PYTHON] + OTHERS)
def test_module_step_and_thread(world, python):
    if not has_torch(python):
        pytest.skip("%s has no torch" % python)
    d = Device(world, "driver", "cupti", plugins="cuda torch", python=python,
               settings=["torch.sample_rate=1", "torch.backward=on"])
    d.do(TRAIN)
    d.wait_state("tracing")
    first = 1 + wait_for(lambda: a_step_of_a_module(d), "steps and modules that plugin torch knows")
    d.do("train(5)")
    d.wait_rows("select 1 from cuda.kernels where name = 'between' and step = %d" % (first + 4))
    rows = d.rows("select name, module, step, count(*), count(thread_id) from cuda.kernels where "
                  "step between %d and %d group by name, module, step" % (first, first + 2))
    tells = d.rows("select count(*) from python.torch_trace where stage = 'post backward'")[0][0]
    backward = {("scale_backward", "first"): 1, ("scale_backward", "second"): 1} if tells \
        else {("scale_backward", None): 2}  # torch before 2 does not tell where they are
    expected = {("between", None): 1, ("of_outer", "Outer"): 1, ("update", "Steps"): 1,
                ("scale_forward", "first"): 1, ("scale_forward", "second"): 1}
    expected.update(backward)
    for step in range(first, first + 3):
        assert {(r[0], r[1]): r[3] for r in rows if r[2] == step} == expected
    assert all(r[3] == r[4] for r in rows)
    assert d.wait_rows("select sum(count) from cuda.kernel_stats where name = 'update' and step "
                       "between %d and %d and module = 'Steps' having sum(count) = 3" %
                       (first, first + 2))
    assert d.tracing("unlaunched", "unplaced") == [0, 0]
