# SPDX-License-Identifier: Apache-2.0
"""A loop that runs torch's profiler itself while the file `go` is there."""
import time

import torch
from torch.autograd import profiler
from waiting import is_told

net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


profiled = None  # does a profiler run on this thread, as torch sees it, in or out of a step?


def step():
    global profiled
    profiled = (torch.autograd._profiler_enabled()
                or getattr(profiler, "_is_profiler_enabled", False))
    optimizer.zero_grad()
    net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.002)


step()
print("ready", flush=True)
while True:
    step()
    if is_told():
        with profiler.profile(use_kineto=True) as own:
            print("its own begins", flush=True)
            n = 0
            while is_told():
                step()
                n += 1
        seen = sum(e.count for e in own.key_averages() if e.key == "Optimizer.step#SGD.step")
        print("its own has seen %d of %d" % (seen, n), flush=True)
