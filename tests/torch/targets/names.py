# SPDX-License-Identifier: Apache-2.0
"""Models of many shapes, made before and after the plugin came, and how often each name is called.

The counts come from wrapping forward() of every module that named_modules() gives.
"""
import collections

import torch
from torch import nn
from waiting import run

calls = collections.Counter()


class Block(nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.named = nn.ModuleDict({"a": nn.ReLU(), "b-c": nn.Tanh()})
        self.shared = shared
        self.nothing = None

    def forward(self, x):
        for layer in self.layers:
            x = self.named["a"](layer(x))
        return self.named["b-c"](self.shared(x))


class Before(nn.Module):
    def __init__(self):
        super().__init__()
        shared = nn.Linear(4, 4)
        self.one, self.two = Block(shared), Block(shared)

    def forward(self, x):
        return self.two(self.one(x))


class After(Before):
    pass


class Grows(nn.Module):
    """Gets a child during a forward, and loses one."""

    def __init__(self):
        super().__init__()
        self.old = nn.Linear(4, 4)

    def forward(self, x):
        if not hasattr(self, "late"):
            self.late = nn.Linear(4, 4)
            count(self.late, "late")
        return self.late(self.old(x))


def count(module, name):
    forward = module.forward

    def wrapper(*args, **kwargs):
        result = forward(*args, **kwargs)
        calls[name] += 1
        return result
    module.forward = wrapper


def count_all(model):
    for name, module in model.named_modules():
        count(module, name or type(module).__name__)
    return model


before = count_all(Before())
never_called = Before()
parts = nn.ModuleDict({"encoder": count_all(nn.Sequential(nn.Linear(4, 4)))})


def work():
    x = torch.randn(2, 4)
    after, grows = count_all(After()), count_all(Grows())
    for _ in range(3):
        before(x)
        after(x)
        grows(x)
    return calls


run(work)
