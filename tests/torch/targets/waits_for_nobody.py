# SPDX-License-Identifier: Apache-2.0
"""One rank whose DDP has nothing to wait for when its gradients are computed."""
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


def ended(state, bucket):
    """An all_reduce that has ended before anybody waits for it."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


model.register_comm_hook(None, ended)
print("ready %d" % rank, flush=True)
while not os.path.exists(go) and os.getppid() == parent:
    time.sleep(0.01)
for _ in range(50):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
print("done %d" % rank, flush=True)
while os.getppid() == parent:
    time.sleep(0.05)
os._exit(0)
