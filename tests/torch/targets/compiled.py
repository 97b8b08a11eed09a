# SPDX-License-Identifier: Apache-2.0
"""A compiled model in a training loop; steps: 0 where torch cannot compile."""
import torch
from torch import nn
from waiting import run

net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
STEPS = 6 if hasattr(torch, "compile") else 0
model = torch.compile(net, backend="eager") if STEPS else net


def work():
    for _ in range(STEPS):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    return {"steps": STEPS}


run(work)
