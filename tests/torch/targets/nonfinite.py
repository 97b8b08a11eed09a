# SPDX-License-Identifier: Apache-2.0
"""One module a step gives a NaN or an infinity, in every layout and type that is read; a mode of
torch counts what it hears of tensors, which is the same with whoever watches."""
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from waiting import run

LONG = 1003  # numbers: no multiple of a vector


class Gives(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, bad):
        return self.make(float("nan") if bad else 1.0)


def last(value, dtype=torch.float32, n=LONG):
    out = torch.ones(n, dtype=dtype)
    out[-1] = value
    return out


def hidden(value):
    """A NaN that only a view's holes have."""
    whole = torch.ones(8, 8)
    whole[0, 5] = float("nan")
    whole[3, 2] = value
    return whole[:, :4]


KINDS = {
    "float32": last,
    "float64": lambda v: last(v, torch.float64),
    "float16": lambda v: last(v, torch.float16),
    "bfloat16": lambda v: last(v, torch.bfloat16),
    "exactly": lambda v: last(v, n=64),
    "behind": lambda v: last(v, torch.bfloat16, n=33),
    "first": lambda v: last(v, n=65).flip(0),
    "negative": lambda v: last(1.0 if v == 1.0 else -float("inf"), torch.float16),
    "infinite": lambda v: last(1.0 if v == 1.0 else float("inf")),
    "single": lambda v: torch.tensor(v),
    "transposed": lambda v: last(v, n=1000).reshape(10, 20, 5).permute(2, 0, 1),
    "sliced": lambda v: last(v, n=999)[::2],
    "holes": hidden,
    "expanded": lambda v: last(v, n=7).reshape(7, 1).expand(7, 9),
    "tuple": lambda v: (torch.ones(3), {"b": (torch.ones(2), last(v))}),
    "list": lambda v: [last(v)],
    "large": lambda v: last(v, n=(1 << 22) + 5),
}
def largest(dtype):
    return lambda v: torch.full((LONG,), -torch.finfo(dtype).max, dtype=dtype)


QUIET = {**{"largest" + str(dtype)[6:]: largest(dtype) for dtype in
            (torch.float16, torch.bfloat16, torch.float32, torch.float64)},
         "long": lambda v: torch.ones(5, dtype=torch.int64), "empty": lambda v: torch.ones(0),
         "meta": lambda v: torch.full((4,), v, device="meta"),
         "sparse": lambda v: torch.tensor([[0.0, v]]).to_sparse(), "none": lambda v: None,
         "complex": lambda v: torch.tensor([complex(v, 0)])}
heard = []


class Hears(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        heard.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


class All(nn.Module):
    def __init__(self):
        super().__init__()
        for name, make in {**QUIET, **KINDS}.items():
            setattr(self, name, Gives(make))

    def forward(self, bad):
        for name, part in self.named_children():
            part(name == bad or name in QUIET)
        return None


def step(bad, mode=None):
    optimizer.zero_grad()
    if mode:
        with mode:
            model(bad)
            model.float32.weight.sum().backward()
    else:
        model(bad)
    optimizer.step()


def listen():
    heard.clear()
    step("float32", Hears())
    return list(heard)


model = All()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
before = listen()


def work():
    for name in KINDS:
        step(name)
    step("nothing")
    now = listen()
    return {"kinds": list(KINDS), "heard": [before, now]}


run(work)
