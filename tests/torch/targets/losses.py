# SPDX-License-Identifier: Apache-2.0
"""Loops in which no function that runs at a step's end has a variable `loss`.  argv[3]: what the
model gives."""
import collections
import sys

import torch
from torch import nn
from waiting import run

STEPS = 12
kind = sys.argv[3]
losses = []


class Output(collections.OrderedDict):  # as those of transformers
    def __setattr__(self, name, value):
        super().__setattr__(name, value)


class Plain:
    def __init__(self, found):
        self.loss = found


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        found = self.layer(x).pow(2).mean()
        if kind == "named":
            return found
        return {"dict": lambda: Output(loss=found, logits=x), "object": lambda: Plain(found),
                "tuple": lambda: (x, found), "scalar": lambda: found}[kind]()


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def training_step(x):
    given = model(x)
    found = {"dict": lambda: given["loss"], "object": lambda: given.loss,
             "tuple": lambda: given[1], "scalar": lambda: given}.get(kind, lambda: given)()
    losses.append(found.item())
    norm, = torch.autograd.grad(found, model.layer.bias, retain_graph=True)
    assert norm is not None
    # accumulated or scaled; what the model gave is the loss
    (found / 4 if kind in ("dict", "object") else found).backward()


def work():
    if kind == "named":
        loss = nn.MSELoss()
        assert loss is not None
    for _ in range(STEPS):
        training_step(torch.ones(2, 4))
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": losses}


run(work)
