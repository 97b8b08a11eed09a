# SPDX-License-Identifier: Apache-2.0
"""Steps in which the variable that is kept is small, and then steps in which it is large."""
import torch
from torch import nn
from waiting import run

STEPS = 10
model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(40)])  # one call in 61 is measured
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def work():
    small, large = torch.ones(1), torch.ones(1 << 22)
    for n in range(2 * STEPS):
        kept = small if n < STEPS else large
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    return {"steps": STEPS, "numbers": kept.numel()}


run(work)
