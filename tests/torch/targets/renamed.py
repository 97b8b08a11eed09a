# SPDX-License-Identifier: Apache-2.0
"""Modules of two models at once, renamed, replaced, taken out and wrapped while the loop runs.

The counts are of what named_modules() of the called model says before each call.
"""
import collections

import torch
from torch import nn
from waiting import run

counts = collections.Counter()


class Leaf(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x * self.weight


class Tree(nn.Module):
    def __init__(self, **children):
        super().__init__()
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, x):
        for child in self._modules.values():
            x = child(x)
        return x


class First(Tree):
    pass


class Second(Tree):
    pass


shared = Leaf()
first, second = First(enc=shared, head=Leaf()), Second(deep=Tree(backbone=shared), tail=Leaf())
optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)


def step(root):
    for name, _ in root.named_modules():
        counts[name or type(root).__name__] += 1
    root(torch.ones(2)).sum().backward()
    optimizer.step()


def work():
    for _ in range(10):
        step(first)
        step(second)
    third = First(p=Leaf(), q=Leaf(), r=Tree(x=Leaf()))
    for n in range(20):
        step(third)
        if n % 3 == 0:
            third.p, third.q = third.q, third.p
        if n % 5 == 1:
            third.r.x = Leaf()
        if n % 7 == 1:
            third.renamed = third._modules.pop("q")
            step(third)
            third.q = third._modules.pop("renamed")
    alone = third.p
    del third.p
    step(alone)
    step(third)
    around = Tree(module=second)
    step(around)
    del around
    step(second)
    return counts


run(work)
