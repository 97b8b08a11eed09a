# SPDX-License-Identifier: Apache-2.0
"""Models with shared, frozen and broken parts; torch itself says what they consist of."""
import math

import torch
from torch import nn
from waiting import run


class Block(nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.own, self.norm, self.shared = nn.Linear(4, 4), nn.BatchNorm1d(4), shared

    def forward(self, x):
        return self.shared(self.norm(self.own(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        shared = nn.Linear(4, 4, bias=False)
        self.blocks = nn.ModuleList([Block(shared), Block(shared)])
        self.head = nn.Linear(4, 3).double()
        self.frozen = nn.Linear(5, 5)
        self.register_module("nothing", None)
        for p in self.frozen.parameters():
            p.requires_grad_(False)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x.double())


model = Model()
model.frozen.eval()
alone = nn.Linear(2, 2)


def own(tensors):
    tensors = list(tensors)
    return [sum(t.numel() for t in tensors), sum(t.numel() for t in tensors if t.requires_grad),
            sum(t.numel() * t.element_size() for t in tensors)]


def work():
    model(torch.ones(4, 4) * torch.arange(4.0)[:, None]).square().sum().backward()
    alone(torch.ones(1, 2))
    grad = model.blocks[1].own.weight.grad
    grad[0, 0], grad[1, 1] = math.nan, math.inf
    modules = {}
    for root in (model, alone):
        kind = type(root).__name__
        for name, m in root.named_modules():
            modules[kind + ":" + (name or kind)] = [type(m).__name__, int(m.training)] + own(
                m.parameters(recurse=False)) + own(m.buffers(recurse=False))[2:]
    norms = {name: float(p.grad.double().norm()) for name, p in model.named_parameters()
             if p.grad is not None}
    return {"modules": modules, "norms": norms}


run(work)
