# SPDX-License-Identifier: Apache-2.0
"""A loop on a GPU that is none: a stand-in for CUDA's driver, and for what torch's allocator says.

usage: device.py GO ANSWER LIBRARY [wide]
"""
import ctypes
import sys
import time

import torch
from torch import nn
from waiting import run

MB = 1 << 20
STEPS = 8
WIDE, PARTS = 5, 2000  # steps of so many calls: more than are read at a time
cuda = ctypes.CDLL(sys.argv[3])
cuda.stand_in_work.argtypes = [ctypes.c_double]
memory = {"now": 10 * MB, "peak": 10 * MB, "held": 64 * MB}


def stats(device):
    assert device == 0
    both = {"current": memory["now"], "peak": memory["peak"]}
    return {"allocated_bytes": {"all": both, "small_pool": {}},
            "reserved_bytes": {"all": {"current": memory["held"], "peak": memory["held"]}},
            "num_ooms": 2}


def snapshot():
    """As torch.cuda.memory_snapshot(), with a history of one of its blocks."""
    frames = [{"filename": "??", "name": "c10::alloc", "line": 0},
              {"filename": "/lib/torch/nn/functional.py", "name": "linear", "line": 9},
              {"filename": "/home/me/model.py", "name": "forward", "line": 30}]
    blocks = [{"size": 4 * MB, "requested_size": 4 * MB - 100, "state": "active_allocated",
               "frames": frames} for _ in range(3)]
    return [{"device": 0, "segment_type": "large", "total_size": 20 * MB,
             "blocks": blocks + [{"size": 8 * MB, "requested_size": 0, "state": "inactive"}]}]


class Part(nn.Module):
    """So many ms of work, so many MB that stay."""

    def __init__(self, ms, mb):
        super().__init__()
        self.ms, self.mb, self.weight = ms, mb, nn.Parameter(torch.ones(1))

    def forward(self, x):
        cuda.stand_in_work(self.ms)
        memory["now"] += self.mb * MB
        memory["peak"] = max(memory["peak"], memory["now"])
        if x is None:
            raise ValueError("in the middle")
        return x * self.weight


model = nn.Sequential(Part(2.0, 5), nn.Sequential(Part(3.0, 1), Part(4.0, 0)))
wide = nn.Sequential(*[nn.Sequential() for _ in range(PARTS)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch._C._cuda_memoryStats = stats
torch._C._cuda_getDevice = lambda: 0
torch._C._cuda_getDeviceCount = lambda: 1
torch.cuda.memory_snapshot = snapshot
torch._C._cuda_getCurrentRawStream = lambda device: 7
torch.cuda._initialized = True


def step(n):
    memory["now"] = 10 * MB
    if n == 2:
        try:
            model(None)
        except ValueError:
            pass
    cuda.stand_in_capture(n == 4)
    cuda.stand_in_capture_elsewhere(n == 5)
    model(torch.ones(1)).sum().backward()
    optimizer.step()
    cuda.stand_in_capture(0)
    cuda.stand_in_capture_elsewhere(0)


def work():
    for n in range(STEPS if len(sys.argv) == 4 else 0):
        step(n)
    for _ in range(WIDE if len(sys.argv) > 4 else 0):
        wide(torch.ones(1))
        optimizer.step()
        time.sleep(0.3)  # else rows come faster than a busy machine takes them away
    for _ in range(10):
        optimizer.step()
    living = cuda.stand_in_living()
    return {"steps": STEPS, "wide": WIDE * PARTS, "living": living,
            "refused": cuda.stand_in_refused()}


run(work)
