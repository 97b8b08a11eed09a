# SPDX-License-Identifier: Apache-2.0
"""A backward that lasts until it is told to end, in which modules run; then whole steps."""
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from waiting import is_told, run


class Waits(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        while waiting and not is_told():
            with torch.no_grad():
                aside(torch.ones(2))
            time.sleep(0.005)
        return grad


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return Waits.apply(checkpoint(self.second, self.first(x), use_reentrant=False))


def step():
    optimizer.zero_grad()
    loss = net(torch.ones(3, 2)).square().sum()
    loss.backward()
    optimizer.step()
    return [loss.item()] + [p.grad.tolist() for p in net.parameters()]


aside, waiting = nn.Identity(), False
net = Net()
kept = {key: value.clone() for key, value in net.state_dict().items()}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
wanted = [step() for _ in range(3)]
net.load_state_dict(kept)
waiting = True
print("ready", flush=True)
found = [step()]
waiting = False
run(lambda: {"same": found + [step(), step()] == wanted})
