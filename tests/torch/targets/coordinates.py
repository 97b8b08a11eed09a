# SPDX-License-Identifier: Apache-2.0
"""One of two processes that are given no rank: they make their process group while we look.

usage: coordinates.py GO ANSWER RANK STORE
"""
import os
import sys

import probing
import torch
import torch.distributed as dist
from torch import nn
from waiting import run

rank = int(sys.argv[3])
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    with probing.span("step"):
        for _ in range(2):  # two batches of one step
            loss = model(torch.ones(2, 4)).sum()
            loss.backward()
        optimizer.step()


def work():
    step()
    step()
    os.environ["LOCAL_RANK"] = str(rank + 4)
    dist.init_process_group("gloo", init_method="file://" + sys.argv[4], rank=rank, world_size=2)
    dist.all_reduce(torch.ones(3))
    step()
    probing.set_role("learner")
    probing.step(100)
    step()
    probing.step(101)
    dist.destroy_process_group()
    step()
    return os.getpid()


run(work)
