# SPDX-License-Identifier: Apache-2.0
"""Backwards of a rank that waits for others: again on one graph, failing, one inside of another,
and one during which the plugin stops."""
import gc
import os
import sys
import time
import types

import torch
from torch import nn
from waiting import run

WAIT_SEC = 0.005
weight = nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.0)


class Late(torch.autograd.Function):
    """Waits behind all gradients, as DistributedDataParallel does."""
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        torch.autograd.Variable._execution_engine.queue_callback(lambda: time.sleep(WAIT_SEC))
        return grad


class Does(torch.autograd.Function):
    """Calls a function in its backward."""
    @staticmethod
    def forward(ctx, x, function):
        ctx.function = function
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.function()
        return grad, None


def loss_of(function=lambda: None):
    return Does.apply(Late.apply(weight * 2), function).sum()


def held():
    """References to the plugin's functions that a backward gets, and handles of hooks."""
    gc.collect()
    everything = gc.get_objects()
    ours = [o for o in everything if isinstance(o, types.BuiltinFunctionType)
            and o.__name__.startswith("probing_backward_")]
    return sorted((o.__name__, sys.getrefcount(o)) for o in ours), \
        sum(type(o).__name__ == "RemovableHandle" for o in everything)


def backward(loss, retain=False):
    """The gradient that it adds."""
    weight.grad = None
    loss.backward(retain_graph=retain)
    return weight.grad.tolist()


def fail():
    raise ValueError("the program's own")


def failing():
    try:
        return backward(loss_of(fail))
    except ValueError as error:
        return str(error)


def inner():
    with torch.enable_grad():
        (weight * 3).sum().backward()


def stand():
    print("inside", flush=True)
    while not os.path.exists(sys.argv[1] + ".on"):
        time.sleep(0.005)


def work():
    found = {}
    backward(loss_of())
    optimizer.step()
    before = held()
    again = loss_of()
    found["again"] = [backward(again, retain=True) for _ in range(20)]
    optimizer.step()
    found["failing"] = [failing() for _ in range(20)]
    optimizer.step()
    found["nested"] = backward(loss_of(inner))
    optimizer.step()
    found["kept"] = held() == before and len(before[0]) == 2
    standing = loss_of(stand)
    found["standing"] = backward(standing, retain=True)
    found["left"] = backward(standing)
    return found


run(work)
