# SPDX-License-Identifier: Apache-2.0
"""A rank that uses functional collectives: before us, with us, and after us; the same bits."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

go, answer = sys.argv[1], sys.argv[2]
torch.set_num_threads(1)
parent = os.getppid()  # torchrun; when the test kills it, nobody else would end us
try:
    from torch.distributed import _functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import parallel
    ops = torch.ops._c10d_functional
except (ImportError, AttributeError):  # torch 1.13
    print("ready %s\nnone" % os.environ["RANK"], flush=True)
    os._exit(0)
dist.init_process_group("gloo")
rank = dist.get_rank()
world = dist.group.WORLD
optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)


def plain():
    x = torch.arange(6.) + rank
    later = functional.all_reduce(x, "sum", world)
    found = [later[:4].view(2, 2) + 1]  # waits for a view of it
    found += [functional.broadcast(x, 0, world) + 0]
    found += [t + 0 for t in functional.all_reduce_coalesced([x, x[:2]], "sum", world)]
    leaf = x.clone().requires_grad_()
    (functional.all_reduce(leaf, "sum", world) * 2).sum().backward()
    return [t.tolist() for t in found + [leaf.grad]]


def work(x):
    y = ops.wait_tensor(ops.all_reduce(x * 2, "sum", "0"))
    return ops.wait_tensor(ops.all_gather_into_tensor(y, 2, "0")) + 1


compiled = torch.compile(work, backend="aot_eager", fullgraph=True)


def traced():
    return [torch.jit.script(scripted).code, [compiled(torch.full((3,), n)).tolist()
                                                 for n in (1., 2.)]]


def scripted(x):
    return torch.ops._c10d_functional.wait_tensor(x)


def tensor_parallel():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    parallel.parallelize_module(model, init_device_mesh("cpu", (2,)), {
        "0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()})
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for n in range(3):
        sgd.zero_grad()
        loss = model(torch.full((5, 8), 0.1 * n)).square().mean()
        loss.backward()
        sgd.step()
        losses.append(loss.item().hex())
    return losses


def everything():
    found = [plain(), traced(), tensor_parallel()]
    optimizer.step()
    return found


def wait_for(name):
    while not os.path.exists(name) and os.getppid() == parent:
        time.sleep(0.01)


found = [everything()]
torch._dynamo.config.error_on_recompile = True  # we are no reason for one
print("ready %d" % rank, flush=True)
for name in ("with", "after"):
    wait_for(go + "." + name)
    found.append(everything())
    with open("%s.%d" % (answer, rank), "w") as out:
        json.dump(found, out)
    print("%s %d" % (name, rank), flush=True)
while os.getppid() == parent:
    time.sleep(0.05)
os._exit(0)
