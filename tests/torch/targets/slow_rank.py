# SPDX-License-Identifier: Apache-2.0
"""One rank of a DDP job; rank 1 sleeps in each step, and the others wait for it."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

SLEEP = 0.1
dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
parent = os.getppid()
print("ready %d" % rank, flush=True)
while not os.path.exists(sys.argv[1]) and os.getppid() == parent:
    time.sleep(0.01)
for _ in range(20):  # of which torch measures the first ten
    if rank == 1:
        time.sleep(SLEEP)
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
print("done %d" % rank, flush=True)
while os.getppid() == parent:
    time.sleep(0.05)
os._exit(0)
