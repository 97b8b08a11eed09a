# SPDX-License-Identifier: Apache-2.0
"""A training loop whose tensors are counted by itself, too, and some that nobody may ask.

usage: tensors.py GO ANSWER [many]    many: beside so many objects that they cannot all be looked at

Before "ready" it writes what each kind of storage has, to ANSWER.plan; once there is a file GO, it
drops a tensor that it has watched by a weak reference, and writes what it has seen meanwhile.
"""
import json
import sys
import weakref

import torch
from torch import nn
from waiting import is_told


class Loud(torch.Tensor):
    """Whoever asks it anything is counted."""
    asked = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Loud.asked += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Half(torch.Tensor):
    """Made of a plain tensor, as a DTensor is."""
    __slots__ = ["part"]

    @staticmethod
    def __new__(cls, part):
        made = torch.Tensor._make_wrapper_subclass(cls, part.shape, dtype=part.dtype)
        made.part = part
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Loud.asked += func is not torch.Tensor.__repr__
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


class Net(nn.Sequential):
    pass


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("wrapped", Half(torch.zeros(1000, 3)))

    def forward(self, x):
        return x


class Watched:
    def __init__(self):
        self.tensor = torch.zeros(123, 457)


def size_of(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


torch.manual_seed(0)
model = Net(nn.Linear(64, 512), nn.ReLU(), nn.BatchNorm1d(512), Holder(), nn.Linear(512, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
big = torch.zeros(1 << 20)
views = [big[:10], big.view(1024, 1024), big[5:]]
del big
loud = [torch.zeros(7).as_subclass(Loud) for _ in range(3)]
others = [torch.empty(5, 5, device="meta"), torch.eye(30).to_sparse()]
kept = [model(torch.ones(4, 64)) for _ in range(5)]  # with all that a backward would need
watched = Watched()
gone = weakref.ref(watched.tensor)
objects = [[] for _ in range(3000000 if len(sys.argv) > 3 else 0)]


def train():
    optimizer.zero_grad()
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()


train()
plan = {"parameter": size_of(model.parameters()), "gradient": size_of(model.parameters()),
        "buffer": size_of(b for b in model.buffers() if type(b) is torch.Tensor) + 12000,
        "state": size_of(value for state in optimizer.state.values() for value in state.values()),
        "loud": len(loud), "outputs": size_of(kept)}
with open(sys.argv[2] + ".plan", "w") as answer:
    json.dump(plan, answer)
Loud.asked = 0
print("ready", flush=True)
while not is_told():
    train()
del watched.tensor
with open(sys.argv[2], "w") as answer:
    json.dump({"asked": Loud.asked, "gone": gone() is None}, answer)
print("done", flush=True)
while True:
    train()
