# SPDX-License-Identifier: Apache-2.0
"""A module that calls itself, one that has two names, and time that is nobody else's.

usage: reuse.py GO ANSWER
"""
import time

import torch
from torch import nn
from waiting import run

STEPS, DEEP, OWN = 12, 3, 0.004


class Again(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = nn.Linear(4, 4)

    def forward(self, x, n):
        time.sleep(OWN)
        return self(x, n - 1) if n else self.part(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.again, self.shared = Again(), nn.Linear(4, 4)
        self.other_name = self.shared

    def forward(self, x):
        return self.other_name(self.shared(self.again(x, DEEP)))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def work():
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        time.sleep(OWN)
    return {"steps": STEPS, "calls": DEEP + 1}


run(work)
