# SPDX-License-Identifier: Apache-2.0
"""A loop that validates before it trains, and in between.

usage: validates.py GO ANSWER
"""
import torch
from torch import nn
from waiting import run

STEPS = 6
model = nn.Linear(8, 1)


def validate():
    model.eval()
    with torch.no_grad():
        for _ in range(5):
            model(torch.ones(2, 8))
    model.train()


def work():
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(STEPS):
        if step % 3 == 0:
            validate()
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    return {"steps": STEPS}


run(work)
