# SPDX-License-Identifier: Apache-2.0
"""Steps through a GradScaler: every third has an overflow and is skipped."""
import torch
from torch import nn
from waiting import run

STEPS = 9
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu") if hasattr(torch.amp, "GradScaler") else None


def work():
    if scaler is None:
        return {"stages": None}
    stages = []
    for step in range(STEPS):
        bad = step % 3 == 2
        x = torch.full((4, 8), float("inf") if bad else 1.0)
        optimizer.zero_grad()
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        stages.append([step, "skipped step" if bad else "post step"])
    return {"stages": stages}


run(work)
