# SPDX-License-Identifier: Apache-2.0
"""Everything that people put around modules, before us and again with us: the same to the last bit.

Prints what it cannot do with this torch; each part gives tensors, and notes its modules' forwards.
"""
import collections
import itertools
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from waiting import run

warnings.simplefilter("ignore")
torch.use_deterministic_algorithms(True)
calls = collections.Counter()


class Part(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name, self.linear = name, nn.Linear(8, 8)

    def forward(self, x):
        calls[self.name] += 1
        return torch.tanh(self.linear(x))


class Net(nn.Module):
    """A module of two parts, one of them used twice; `around` is put around the second."""

    def __init__(self, kind, around=None):
        super().__init__()
        self.first, self.second = Part(kind + ".first"), Part(kind + ".second")
        self.around = around

    def forward(self, x):
        x = self.first(self.first(x))
        return self.around(self.second, x) if self.around else self.second(x)


def train(model, net, steps=3, inside=None):
    """Losses, outputs and gradients of some steps."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    found = []
    for n in range(steps):
        x = torch.linspace(-1, 1, 32).reshape(4, 8).requires_grad_()
        with inside() if inside else torch.enable_grad():
            out = model(x)
        loss = out.float().square().sum()
        optimizer.zero_grad()
        loss.backward()
        found += [out.detach().clone(), loss.detach().clone(), x.grad.clone()]
        found += [p.grad.clone() for p in net.parameters()]
        optimizer.step()
    return found


def plain():
    net = Net("plain")
    return train(net, net)


def autocast():
    net = Net("autocast")
    return train(net, net, inside=lambda: torch.autocast("cpu", dtype=torch.bfloat16))


def reentrant():
    net = Net("reentrant", lambda part, x: checkpoint(part, x, use_reentrant=True))
    return train(net, net)


def checkpointed():
    net = Net("checkpointed", lambda part, x: checkpoint(part, x, use_reentrant=False))
    return train(net, net)


def data_parallel():
    net = Net("data_parallel")
    return train(nn.DataParallel(net), net)


def hooked():
    """Hooks of others change what goes through; each is called as often as without us."""
    net, seen = Net("hooked"), collections.Counter()

    def note(name, result=None):
        def hook(*args):
            seen[name] += 1
            return result(*args) if result else None
        return hook
    net.first.register_forward_pre_hook(note("pre", lambda m, args: (args[0] * 2,)))
    net.second.register_forward_hook(note("post", lambda m, args, out: out * 3))
    net.second.register_full_backward_hook(note("backward"))
    every = nn.modules.module.register_module_forward_hook(note("global"))
    found = train(net, net)
    every.remove()
    return found + [torch.tensor(seen[name]) for name in sorted(seen)]


def raising():
    """A forward that raises in the middle of a step, and goes on."""
    net = Net("raising")
    net.second.register_forward_pre_hook(lambda m, args: 1 // next(numbers) and None)
    numbers = itertools.cycle([1, 0, 1])
    found = []
    for _ in range(6):
        try:
            found.append(net(torch.ones(4, 8)).detach())
        except ZeroDivisionError:
            found.append(torch.zeros(1))
    return found


def compiled():
    if not hasattr(torch, "compile"):
        return []
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    net = Net("compiled")
    found = train(torch.compile(net, backend="aot_eager", fullgraph=True), net)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert not torch._dynamo.utils.counters["graph_break"]
    return found + [torch.tensor(graphs)]


def kept_compiled():
    """Compiled once, before us, and called again with us."""
    if not hasattr(torch, "compile"):
        return []
    x = torch.linspace(-1, 1, 32).reshape(4, 8)
    if not kept:
        torch.manual_seed(5)
        net = Net("kept_compiled")
        kept.append(torch.compile(net, backend="aot_eager"))
    return [kept[0](x).detach() for _ in range(3)]


def compiled_step():
    """An optimizer's step by itself, and in a function that is compiled."""
    if not hasattr(torch, "compile"):
        return []
    torch._dynamo.reset()
    net = Net("compiled_step")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def both():
        optimizer.step()
        scheduler.step()
    found = []
    for step in (torch.compile(optimizer.step, backend="eager"),
                 torch.compile(both, backend="eager")):
        for _ in range(3):
            loss = net(torch.ones(4, 8)).square().sum()
            loss.backward()
            step()
            optimizer.zero_grad()
            found.append(loss.detach())
    return found


kept = []
PARTS = (kept_compiled, plain, autocast, reentrant, checkpointed, data_parallel, hooked, raising,
         compiled, compiled_step)


def everything():
    calls.clear()
    found = {}
    for part in PARTS:
        torch.manual_seed(7)
        found[part.__name__] = part()
    return found


before = everything()
counted = dict(calls)


def again():
    now = everything()
    different = [name for name in before
                 if len(before[name]) != len(now[name])
                 or not all(torch.equal(a, b) for a, b in zip(before[name], now[name]))]
    assert all(before[name] for name in before if "compiled" not in name)
    return {"different": different, "calls": dict(calls), "calls before": counted}


run(again)
