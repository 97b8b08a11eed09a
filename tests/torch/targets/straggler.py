# SPDX-License-Identifier: Apache-2.0
"""One rank of a job: straggler.py FOLDER FAULT RANK.  It trains until FOLDER has a file `stop`, and
the rank that FAULT is of comes late in each step, or each tenth."""
import gc
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

FOLDER, FAULT, WHO = sys.argv[1], sys.argv[2], int(sys.argv[3])
STEPS = 10  # of the optimizer, on a rank that makes more
LEAST, SHARE = 0.02, 0.2  # seconds, and of the step before: a starved machine's steps are long
parent = os.getppid()
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
late = rank == WHO
last = LEAST


def stall(kind):
    if late and FAULT == kind:
        time.sleep(max(LEAST, SHARE * last))


class Slow(torch.optim.SGD):
    def step(self, closure=None):
        stall("optimizer")
        if late and FAULT == "steps":
            time.sleep(max(LEAST, SHARE * last) / STEPS)
        return super().step(closure)


class Batches(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            stall("loader")
            yield torch.randn(16, 64)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        stall("forward")
        return self.layers(x)


torch.manual_seed(rank)
model, ddp = Model(), FAULT.startswith("ddp_")
if ddp:
    FAULT = FAULT[4:]
    model = nn.parallel.DistributedDataParallel(model)
if late and FAULT == "backward":
    next(model.parameters()).register_hook(lambda grad: stall("backward") or grad)
store, size = dist.distributed_c10d._get_default_store(), dist.get_world_size()


def meet(n):
    """Wait for all ranks, without an operation that torch has as one."""
    if store.add("came-%d" % n, 1) == size:
        store.set("go-%d" % n, "")
    store.wait(["go-%d" % n])


def evaluate():
    until = time.monotonic() + max(0.3, 3 * last)
    model.eval()
    with torch.no_grad():
        while time.monotonic() < until:
            model(torch.randn(16, 64))
    model.train()


garbage = [[i] for i in range(200000)] if late and FAULT == "gc" else []
optimizer = Slow(model.parameters(), lr=1e-3)
go = torch.ones(1)
print("ready", flush=True)
for n, x in enumerate(torch.utils.data.DataLoader(Batches(), batch_size=None)):
    began = time.monotonic()
    stall("sleep")
    if late and FAULT == "gc":
        gc.collect()
    if late and FAULT == "sometimes" and n % 40 == 39:
        time.sleep(max(0.3, 3 * last))
    if late and FAULT == "evaluation" and n % 40 == 39:
        evaluate()
    model(x).sum().backward()
    if not ddp:
        stall("before")
    for p in model.parameters() if not ddp and FAULT != "unseen" else []:
        dist.all_reduce(p.grad)
    if FAULT == "unseen":
        meet(n)
    for _ in range(STEPS if late and FAULT == "steps" else 1):
        optimizer.step()
    optimizer.zero_grad()
    if n % 8 == 7 and FAULT != "unseen":
        go[0] = not (rank == 0 and os.path.exists(os.path.join(FOLDER, "stop")))
        dist.all_reduce(go, op=dist.ReduceOp.MIN)
        if not go[0] or os.getppid() != parent:
            break
    own = LEAST if late else 0
    last = max(LEAST, time.monotonic() - began - own)
print("done", flush=True)
