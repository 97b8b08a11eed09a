# SPDX-License-Identifier: Apache-2.0
"""A rank of a job that trains with DDP and FSDP, before us and again with us: the same bits."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

go, answer = sys.argv[1], sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
parent = os.getppid()  # torchrun; when the test kills it, nobody else would end us


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for n in range(4):
        optimizer.zero_grad()
        loss = model(torch.full((4, 8), 0.1 * (rank + 1) + n)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    return losses


def sharded():
    """FSDP where this torch has it for the CPU."""
    try:
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.device_mesh import init_device_mesh
    except (ImportError, ValueError):  # 1.13's cannot be imported by Python 3.11
        return None
    model = net()
    mesh = init_device_mesh("cpu", (2,))
    for part in (model[0], model[2]):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return train(model)


def everything():
    return {"ddp": train(nn.parallel.DistributedDataParallel(net())), "fsdp": sharded()}


before = everything()
print("ready %d" % rank, flush=True)
while not os.path.exists(go) and os.getppid() == parent:
    time.sleep(0.01)
now = everything()
with open("%s.%d" % (answer, rank), "w") as out:
    json.dump([before, now], out)
print("done %d" % rank, flush=True)
while os.getppid() == parent:
    time.sleep(0.05)
os._exit(0)
