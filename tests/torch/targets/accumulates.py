# SPDX-License-Identifier: Apache-2.0
"""Optimizers inside others, as accelerate and its like wrap them: step() for each accumulated
batch, the inner one's for the last only.  argv[3]: "plain" or "made" (the wrapper is itself one
that torch has put its own hooks around), "two" around each other, "scheduled": with a function of a
scheduler's around step(), "late": it is made after us."""
import sys

import torch
from torch import nn
from waiting import run

STEPS, MICRO = 6, 4


class Wrapper(torch.optim.Optimizer):
    def __init__(self, optimizer, made):
        self.optimizer, self.last, self.param_groups = optimizer, False, optimizer.param_groups
        if made:
            super().__init__(optimizer.param_groups, {})

    def step(self, closure=None):
        if self.last:
            self.optimizer.step(closure)


model = nn.Linear(8, 8)
inner = torch.optim.AdamW(model.parameters(), lr=1e-3)


def make():
    outer = Wrapper(inner, "made" in sys.argv[3])
    if "scheduled" in sys.argv[3]:  # it puts a function around the class's own, in the instance
        torch.optim.lr_scheduler.StepLR(outer, 3)
    return Wrapper(outer, False) if "two" in sys.argv[3] else outer


outer = None if "late" in sys.argv[3] else make()


def set_last(optimizer, last):
    while isinstance(optimizer, Wrapper):
        optimizer.last, optimizer = last, optimizer.optimizer


def work():
    optimizer = outer or make()
    forwards = []
    for batch in range(STEPS * MICRO):
        model(torch.ones(2, 8)).sum().backward()
        forwards.append([batch // MICRO, batch % MICRO])
        set_last(optimizer, batch % MICRO == MICRO - 1)
        optimizer.step()
        if optimizer.last:
            inner.zero_grad()
    return {"forwards": forwards, "steps": [[n, "AdamW"] for n in range(STEPS)]}


run(work)
