# SPDX-License-Identifier: Apache-2.0
"""One rank of a job in which rank 1 does not come to a DDP model's backward until it is told."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

go = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
parent = os.getppid()
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("ready %d" % rank, flush=True)


def wait_for(name):
    while not os.path.exists(name) and os.getppid() == parent:
        time.sleep(0.01)


def step():
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()


wait_for(go)
step()
print("begun %d" % rank, flush=True)
if rank == 1:
    wait_for(go + ".too")
step()
print("done %d" % rank, flush=True)
while os.getppid() == parent:
    time.sleep(0.05)
os._exit(0)
