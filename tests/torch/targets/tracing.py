# SPDX-License-Identifier: Apache-2.0
"""torch.fx traces a model for long, which puts a function of its own in Module.__call__'s place and
then puts back what it found there; a loop goes on meanwhile.

usage: tracing.py GO ANSWER    the trace ends when there is a file GO
"""
import threading
import time

import torch
import torch.fx
from torch import nn
from waiting import is_told


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = nn.Linear(4, 4)

    def forward(self, x):
        x = self.part(x)
        print("ready", flush=True)
        while not is_told():
            time.sleep(0.01)
        return self.part(x)


class Net(nn.Sequential):
    pass


def train():
    net = Net(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    traced.wait()
    while True:
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        time.sleep(0.001)


traced = threading.Event()
threading.Thread(target=train).start()
torch.fx.symbolic_trace(Slow())
traced.set()
print("done", flush=True)
