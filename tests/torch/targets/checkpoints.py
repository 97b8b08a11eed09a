# SPDX-License-Identifier: Apache-2.0
"""Blocks whose forwards a checkpoint computes again, each call counted by hand.

usage: checkpoints.py GO ANSWER reentrant|other
What was called before the first step ends, and after the last one, is of no whole step.
"""
import collections
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from waiting import run

STEPS = 6
counts = {"post forward": collections.Counter(), "recomputed forward": collections.Counter()}
stage = "post forward"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        return self.out(self.inside(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=sys.argv[3] == "reentrant")
        return x


def counted(name, forward):
    def wrapper(*args):
        counts[stage][name] += 1
        return forward(*args)
    return wrapper


def step():
    global stage
    loss = model(torch.ones(2, 8, requires_grad=True)).sum()
    stage = "recomputed forward"
    loss.backward()
    stage = "post forward"
    optimizer.step()


model, early, late = Net(), nn.Tanh(), nn.Sigmoid()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step()


def work():
    early(torch.ones(2))
    step()
    for name, module in model.named_modules():
        module.forward = counted(name or "Net", module.forward)
    for _ in range(STEPS):
        step()
    late(torch.ones(2))
    return counts


run(work)
