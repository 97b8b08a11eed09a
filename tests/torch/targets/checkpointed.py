# SPDX-License-Identifier: Apache-2.0
"""A model that computes its parts again in the backward, and one whose parts are called alone: few
and large enough that the screen shows all of them, also where the first step is slow.

usage: checkpointed.py GO ANSWER
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from waiting import run

STEPS = 12


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(256, 256)) for _ in range(2)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x.sum()


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(256, 256))


net, agent = Net(), Agent()
optimizer = torch.optim.SGD([*net.parameters(), *agent.parameters()], lr=0.1)


def work():
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = torch.ones(512, 256, requires_grad=True)
        (net(x) + agent.actor(x).sum()).backward()
        optimizer.step()
    return {"steps": STEPS}


run(work)
