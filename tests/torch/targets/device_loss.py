# SPDX-License-Identifier: Apache-2.0
"""A loop whose losses say that they are on a GPU, with a stand-in for CUDA's driver.

usage: device_loss.py GO ANSWER LIBRARY variable|backward
"""
import ctypes
import sys

import torch
from torch import nn
from waiting import run

STEPS, CAPTURED, AFTER = 24, 5, 10
cuda = ctypes.CDLL(sys.argv[3])
losses, asked = [], []
there = set()  # addresses of tensors that say so
torch._C._cuda_memoryStats = lambda device: {}
torch._C._cuda_getDevice = lambda: 0
torch._C._cuda_getCurrentRawStream = lambda device: 7
torch.cuda._initialized = True
torch.Tensor.is_cpu = property(lambda t: t.data_ptr() not in there)
torch.Tensor.is_cuda = property(lambda t: t.data_ptr() in there)
torch.Tensor.get_device = lambda t: 0 if t.data_ptr() in there else -1
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)


def value_of(found):  # not by item(): who asks for that on a GPU waits
    return ctypes.c_float.from_address(found.data_ptr()).value


def forward_backward(found):
    losses.append(value_of(found))
    there.add(found.data_ptr())
    found.backward()


def step(n):
    cuda.stand_in_capture(n == CAPTURED)
    found = model(torch.full((2, 4), 1.0 + n)).pow(2).mean()
    forward_backward(found)
    if sys.argv[4] == "variable":
        loss = found  # noqa: F841
    optimizer.step()
    optimizer.zero_grad()
    cuda.stand_in_capture(0)
    there.clear()
    ctypes.c_float.from_address(found.data_ptr()).value = -1.0  # its memory is another's now


def work():
    torch.Tensor.item = torch.Tensor.__float__ = lambda t: asked.append(t)
    for n in range(STEPS):
        step(n)
    for _ in range(AFTER):
        optimizer.step()
    return {"losses": losses, "captured": CAPTURED, "refused": cuda.stand_in_refused(),
            "asked": len(asked)}


run(work)
