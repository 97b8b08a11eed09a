# SPDX-License-Identifier: Apache-2.0
"""A loop that stands in the middle of a step: of its two modules one has been called in it."""
import torch
from torch import nn
from waiting import run

first, second = nn.Linear(4, 4), nn.Tanh()
optimizer = torch.optim.SGD(first.parameters(), lr=0.1)


def work():
    for _ in range(8):
        second(first(torch.ones(2, 4))).sum().backward()
        optimizer.step()
    first(torch.ones(2, 4))
    return {}


run(work)
