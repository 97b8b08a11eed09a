# SPDX-License-Identifier: Apache-2.0
"""One rank of a job: collectives of many kinds, DDP, and a wait for a rank that is late."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

LATE = 0.3
MANY = 300  # that nobody waits for: more than are remembered
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
go, answer = sys.argv[1], sys.argv[2]


def waits(group):
    """All start here together, whoever came first."""
    dist.barrier(group)


def work():
    pair = dist.new_group([0, 1])
    ones = torch.ones(256)
    waits(pair)
    if rank == 1:
        time.sleep(LATE)
    dist.all_reduce(ones)
    assert ones[0].item() == size
    later = dist.all_reduce(torch.ones(2, 3, dtype=torch.float64), group=pair, async_op=True)
    later.wait()
    parts = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(parts, torch.full((4,), float(rank)))
    assert [part[0].item() for part in parts] == list(range(size))
    dist.broadcast(ones, 0)
    if rank == 0:
        dist.send(torch.ones(5), 1)
    else:
        dist.recv(torch.zeros(5), 0)
    dist.reduce(torch.ones(7), 1)
    dist.gather(torch.ones(7), [torch.zeros(7) for _ in range(size)] if rank == 1 else None, 1)
    dist.scatter(torch.ones(7), [torch.zeros(7) for _ in range(size)] if rank == 0 else None, 0)
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        dist.all_reduce(ones)
    for _ in range(40):  # of which torch measures the first ten
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    kept = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(MANY)]
    for later in kept[:-1]:
        while not later.is_completed():
            time.sleep(0.001)
    kept[-1].wait()
    del kept, later
    optimizer.step()
    return sum(p.sum().item() for p in model.parameters())


parent = os.getppid()  # torchrun; when the test kills it, nobody else would end us
print("ready %d" % rank, flush=True)
while not os.path.exists(go) and os.getppid() == parent:
    time.sleep(0.01)
found = work()
with open("%s.%d" % (answer, rank), "w") as out:
    out.write("%.17g" % found)
print("done %d" % rank, flush=True)
while os.getppid() == parent:
    time.sleep(0.05)
os._exit(0)
