# SPDX-License-Identifier: Apache-2.0
"""Modules of some milliseconds each, timed by hand around their forward()."""
import time

import torch
from torch import nn
from waiting import run

STEPS = 20


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(512, 1024), nn.ReLU())
        self.second = nn.Linear(1024, 512)
        self.attention = nn.TransformerEncoderLayer(512, 8, 1024)

    def forward(self, x):
        return self.attention(self.second(self.first(x)))


model = Deep()
loss_of = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(32, 8, 512)
names = {"Deep": model, "first": model.first, "first.0": model.first[0], "second": model.second,
         "attention": model.attention, "attention.self_attn": model.attention.self_attn}
seconds = {name: [] for name in names}


def timed(forward, spent):
    def wrapper(*args, **kwargs):
        begin = time.perf_counter()
        result = forward(*args, **kwargs)
        spent.append(time.perf_counter() - begin)
        return result
    return wrapper


def work():
    for name, module in names.items():
        module.forward = timed(module.forward, seconds[name])
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model(x), x).backward()
        optimizer.step()
    return seconds


run(work)
