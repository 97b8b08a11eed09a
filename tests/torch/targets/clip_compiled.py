# SPDX-License-Identifier: Apache-2.0
"""A function that clips gradients, compiled as a whole, while the plugin looks at who clips."""
import torch
from torch import nn
from waiting import run

model = nn.Linear(4, 1)


def clip(x):
    return model(x).sum(), nn.utils.clip_grad_norm_(list(model.parameters()), 1.0)


def gradients():
    model.zero_grad()
    model(torch.ones(2, 4)).sum().backward()


def work():
    if not hasattr(torch, "compile"):
        return {}
    seen = []
    for function in (clip, torch.compile(clip, backend="eager", fullgraph=True)):
        gradients()
        found = function(torch.ones(2, 4))
        seen.append([value.item() for value in found])
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    return {"plain": seen[0], "compiled": seen[1], "breaks": breaks}


run(work)
