# SPDX-License-Identifier: Apache-2.0
"""A thread that ends steps by calling a model, until another one's optimizer does: then the first
still calls, and ends none.

usage: handover.py GO
"""
import threading
import time

import torch
from torch import nn
from waiting import is_told

profiled = False


def calls(model):
    global profiled
    while True:
        with torch.no_grad():
            model(torch.ones(2, 4))
        profiled = torch.autograd._profiler_enabled()
        time.sleep(0.002)


def steps(model, optimizer):
    while True:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        time.sleep(0.002)


threading.Thread(target=calls, args=(nn.Linear(4, 4).eval(),), daemon=True).start()
print("ready", flush=True)
while not is_told():
    time.sleep(0.01)
net = nn.Linear(4, 4)
steps(net, torch.optim.SGD(net.parameters(), lr=0.1))
