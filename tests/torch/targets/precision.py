# SPDX-License-Identifier: Apache-2.0
"""Numbers that are none, where modules are not simply called one after another: under autocast, in
checkpoints (which call them again in the backward), scaled, and in compiled parts.

usage: precision.py GO ANSWER
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from waiting import run


class Breaks(nn.Linear):
    bad = False

    def forward(self, x):
        x = super().forward(x)
        return x / 0.0 if self.bad else x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.body = nn.Sequential(nn.Linear(4, 4), Breaks(4, 4), nn.Linear(4, 4))
        self.head = nn.Linear(4, 1)
        self.reentrant = None

    def forward(self, x):
        x = self.first(x)
        x = self.body(x) if self.reentrant is None else \
            checkpoint(self.body, x, use_reentrant=self.reentrant)
        return self.head(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
compiled = torch.compile(model.body, backend="eager") if hasattr(torch, "compile") else None
try:
    scaler = torch.amp.GradScaler("cpu", init_scale=3e38)
except (AttributeError, TypeError):  # torch before 2.3
    scaler = None
wanted = []  # for each step: module and kind


def step(name=None, kind=None, bad=False, reentrant=None, loss_of=torch.sum, scaled=False):
    model.body[1].bad, model.reentrant = bad, reentrant
    wanted.append([len(wanted), name, kind])
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        out = model(torch.ones(2, 4))
    loss = loss_of(out.float())
    (scaler.scale(loss) if scaled else loss).backward()
    optimizer.zero_grad()
    optimizer.step()


def work():
    for reentrant in (None, False, True):
        step(reentrant=reentrant)
        step("body.1", "Tensor", bad=True, reentrant=reentrant)
        step("head", "gradient", reentrant=reentrant, loss_of=lambda out: (out * 0).sum().sqrt())
    if scaler:
        step("head", "gradient", scaled=True, loss_of=lambda out: (out * 100).sum())
    if compiled:  # two more steps
        model.body, breaks = compiled, model.body[1]
        for bad in (False, True):
            breaks.bad, model.reentrant = bad, None
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.zero_grad()
            optimizer.step()
    return {"wanted": [w for w in wanted if w[1]], "steps": len(wanted),
            "compiled": int(compiled is not None)}


run(work)
