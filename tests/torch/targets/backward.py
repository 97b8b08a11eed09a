# SPDX-License-Identifier: Apache-2.0
"""Modules whose backward takes a known time, in all the places where one can be mistaken."""
import collections
import copy
import sys
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from waiting import run

TICK = float(sys.argv[3])  # seconds: long beside what the machine is late by now
slept = collections.defaultdict(list)  # seconds, by name


class Slow(torch.autograd.Function):
    """Nothing, but its backward takes so many ticks."""

    @staticmethod
    def forward(ctx, x, ticks, name):
        ctx.ticks, ctx.slept = ticks, slept[name]
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        begin = time.perf_counter()
        time.sleep(ctx.ticks * TICK)
        ctx.slept.append(time.perf_counter() - begin)
        return grad, None, None


class Sleepy(nn.Module):
    def __init__(self, ticks, name):
        super().__init__()
        self.ticks, self.name = ticks, name
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return Slow.apply(x * self.weight, self.ticks, self.name)


class Fork(nn.Module):
    """Three children of one input, and work of its own before, between and behind them."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = Sleepy(1, "q"), Sleepy(2, "k"), Sleepy(3, "v")

    def forward(self, x):
        x = Slow.apply(x, 4, "before")
        q = self.q(x)
        aside = Slow.apply(x, 2, "aside")
        k = self.k(x)
        v = self.v(x)
        return {"sum": Slow.apply(q + k + v, 1, "behind") + aside, "q": q}


class Again(nn.Module):
    """One child, called twice; its output is changed in place."""

    def __init__(self):
        super().__init__()
        self.child = Sleepy(2, "child")

    def forward(self, x):
        once = self.child(x)
        once.relu_()
        return self.child(once).mul_(2), x


class Same(nn.Module):
    def forward(self, x):
        return x


class Aside(nn.Module):
    """The first child's output lives on, but nothing depends on it."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Sleepy(1, "nothing"), Sleepy(1, "aside.second")

    def forward(self, x):
        self.kept = self.first(x)
        return self.second(x)


class Long(nn.Module):
    def forward(self, x):
        for _ in range(60):
            x = x * 1.0
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fork, self.again, self.same, self.kept = Fork(), Again(), Same(), Sleepy(1, "kept")
        self.nest = nn.Sequential(nn.Sequential(Sleepy(1, "nest.0.0"), Sleepy(2, "nest.0.1")),
                                  Sleepy(1, "nest.1"))
        self.aside = Aside()
        self.deep = nn.Sequential(*[Long() for _ in range(40)])  # more nodes than are walked

    def forward(self, x):
        x = self.fork(x)["sum"]
        x, _ = self.again(self.same(x))
        return self.kept(x).sum()


def step(net):
    x = torch.arange(4.0, requires_grad=True)
    loss = net(x)
    loss.backward()
    return [loss.item(), x.grad.tolist()] + [p.grad.tolist() for p in net.parameters()
                                             if p.grad is not None]


def again_inside(module):
    checkpoint(module, torch.ones(4, requires_grad=True), use_reentrant=False).sum().backward()


again_inside(Sleepy(0, "first"))  # torch imports what it needs for it
net = Net()
wanted = step(copy.deepcopy(net))


def work():
    slept.clear()
    assert step(net) == wanted
    with torch.no_grad():
        net(torch.ones(4))
    x = torch.ones(4, requires_grad=True)
    y = net.kept(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    # what is not asked for does not run: no row for fork and its children
    torch.autograd.grad(net.again(net.fork(x)["q"])[0].sum(), net.again.child.weight)
    # computes its forward again, inside its backward
    again_inside(Sleepy(1, "apart"))
    for _ in range(4):  # more often than a module is walked
        for part in (net.nest, net.aside, net.deep):
            part(torch.ones(4, requires_grad=True)).sum().backward()
    child, kept = slept["child"], slept["kept"]
    nest = [slept[name] for name in ("nest.0.0", "nest.0.1", "nest.1")]
    fork = [slept[name][0] for name in ("q", "k", "v", "before", "aside", "behind")]
    return {"fork.q": slept["q"], "fork.k": slept["k"], "fork.v": slept["v"], "fork": [sum(fork)],
            "again.child": child, "again": [sum(child[:2]), sum(child[2:])], "kept": kept,
            "Sleepy": slept["apart"], "aside": slept["aside.second"],
            "aside.second": slept["aside.second"],
            "nest.0.0": nest[0], "nest.0.1": nest[1], "nest.1": nest[2],
            "nest.0": list(map(sum, zip(*nest[:2]))), "nest": list(map(sum, zip(*nest))),
            "deep": [0] * 4, **{"deep.%d" % i: [0] * 4 for i in range(40)},
            "Net": [sum(fork) + sum(child[:2]) + kept[0]]}


run(work)
