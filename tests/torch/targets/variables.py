# SPDX-License-Identifier: Apache-2.0
"""A loop with variables of every kind, and a module that makes a NaN in one step."""
import gc
import math
import weakref

import torch
from torch import nn
from waiting import run

STEPS = 12


class Inner:
    def __init__(self):
        self._rate = 0.75

    @property
    def rate(self):
        return self._rate


class Meter:
    """And a property, which nobody shall ask for."""
    asked, unit = 0, "ms"

    def __init__(self):
        self.avg, self.inner = 0.0, Inner()

    @property
    def median(self):
        Meter.asked += 1
        return self.avg

    @property
    def mean(self) -> float:
        """That is read: it does nothing."""
        return self.avg

    @property
    def deeper(self):
        return self.inner.rate

    @property
    def negative(self):
        return -self.avg

    @property
    def endless(self):
        return self.endless


class Box:
    """A value whose code would run."""

    def __getattr__(self, name):
        Meter.asked += 1
        raise AttributeError(name)

    def __getitem__(self, key):
        Meter.asked += 1
        return key


class Slotted:
    __slots__ = ("rate",)


class Stepper:
    """Steps in a method."""

    def step(self, number):
        box = Box()
        state = {"acc": number / 4, "all": [number, {"a,b": (1.5, 2.5)}]}  # noqa: F841
        slotted = Slotted()
        slotted.rate = 0.25
        wide, exact, huge, meta = 1 << 70, (1 << 53) + 1, "x" * 500, torch.ones(2, device="meta")
        hidden = torch.ones(2, requires_grad=True) * 2  # a gradient that is asked for warns
        optimizer.step()
        return box, state, wide, exact, huge, meta, hidden


class Breaks(nn.Module):
    """Makes a NaN when its input is negative."""

    def forward(self, x):
        return torch.sqrt(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.breaks, self.last = nn.Linear(4, 4), Breaks(), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.breaks(self.layer(x) * 0 + x))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
stepper = Stepper()
free = []


def train():
    meter = Meter()
    losses = []
    for step in range(STEPS):
        acc1 = torch.tensor([step / 10])
        kept = step * 2

        def inner():
            return kept
        text, flag, meter.avg = "step %d" % step, step % 2 == 0, step * 0.5
        grid = torch.tensor([[float(step), -1.0], [math.nan, 3.0]])
        optimizer.zero_grad()
        x = torch.full((2, 4), 1.0 if step != 3 else -1.0)
        loss = model(x).sum()
        loss.backward()
        if math.isnan(loss.item()):
            optimizer.zero_grad()  # the weights shall stay numbers
        if inner() == 4:
            model.last.weight.grad.fill_(2.0)
        stepper.step(step)
        losses.append(loss.item())
        big = torch.ones(8)
        free.append(weakref.ref(big))
        del big, loss, grid, acc1, text, flag  # gone, whoever looked
        gc.collect()
        assert free[-1]() is None
    return [None if math.isnan(loss) else loss for loss in losses]


def work():
    return {"losses": train(), "asked": Meter.asked}


run(work)
