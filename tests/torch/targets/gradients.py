# SPDX-License-Identifier: Apache-2.0
"""Outputs that are finite, and gradients that are not: of modules, and where the loss is made.

usage: gradients.py GO ANSWER
"""
import torch
from torch import nn
from waiting import run

STEPS = 6


class Root(nn.Module):
    """At zero its derivative is infinite."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x, bad):
        x = x * self.scale
        return torch.sqrt(x - x.detach() if bad else x.abs() + 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.root, self.last = nn.Linear(4, 4), Root(), nn.Linear(4, 1)

    def forward(self, x, bad):
        return self.last(self.root(self.first(x), bad))


model = Net()
nn.init.ones_(model.last.weight)  # a gradient that reaches the root
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)


def work():
    for step in range(STEPS):
        optimizer.zero_grad()
        out = model(torch.ones(2, 4), step == 2)
        loss = out.sum() if step != 4 else torch.sqrt(out.sum() * 0)
        loss.backward()
        optimizer.zero_grad() if step in (2, 4) else None  # the weights shall stay numbers
        optimizer.step()
    return {"steps": STEPS}


run(work)
