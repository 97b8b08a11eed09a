# SPDX-License-Identifier: Apache-2.0
"""Steps of two accumulated batches, with a scheduler, evaluation, and a second optimizer later."""
import torch
from torch import nn
from waiting import run

STEPS = 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return self.layer(x)


class Net2(Net):
    pass


def make(kind, optimizer_class):
    model = kind()
    optimizer = optimizer_class(model.parameters(), lr=1e-3)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)


model, optimizer, scheduler = make(Net, torch.optim.SGD)
loss_of = nn.MSELoss()
x = torch.randn(16, 64)


def work():
    net, optimizers = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        for micro in range(2):
            loss_of(model(x), x).backward()
            net.append([step, micro])
        optimizer.step()
        optimizers.append([step, "SGD"])
        scheduler.step()
        model.eval()
        with torch.no_grad():
            model(x)
        net.append([step + 1, None])
        model.train()
    other, late, late_scheduler = make(Net2, torch.optim.AdamW)
    for step in range(STEPS, 2 * STEPS):
        late.zero_grad()
        loss_of(other(x), x).backward()
        late.step()
        optimizers.append([step, "AdamW"])
        late_scheduler.step()
    return {"net": net, "optimizers": optimizers}


run(work)
