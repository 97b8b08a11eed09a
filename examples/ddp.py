# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training of two ranks, one of which may be made slow.

    torchrun --standalone --nproc_per_node 2 examples/ddp.py --slow-rank 1

Enter every rank (their pids are in what they print), then ask any. Who is slow; how long this rank
waits in all_reduce (a row for every hundred steps); how even the steps are:

    probing -t PID inject --plugin torch
    probing -t PID torch --last 10s
    probing -t PID query "select local_step, backward_sec, comm_sec, overlap_sec from python.ddp_timing order by ts desc limit 3"
    probing -t PID query "select rank, count(*) as steps, avg(step_duration_sec) as sec, max(step_duration_sec) as worst from python.torch_step_timing group by rank"
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    options = argparse.ArgumentParser(description="train on several ranks")
    options.add_argument("--steps", type=int, default=0, help="0: for ever")
    options.add_argument("--slow-rank", type=int, default=-1, help="this one sleeps in each step")
    options.add_argument("--sleep", type=float, default=0.02, help="for so many seconds")
    o = options.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    print("rank %d is pid %d" % (rank, os.getpid()), flush=True)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(),
                                                  nn.Linear(512, 512), nn.ReLU(),
                                                  nn.Linear(512, 10)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    while o.steps == 0 or step < o.steps:
        inputs = torch.randn(64, 256)
        target = inputs[:, :10].argmax(1)
        if rank == o.slow_rank:
            time.sleep(o.sleep)
        loss = nn.functional.cross_entropy(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and step % 50 == 1:
            print("step %d loss %.4f" % (step, loss.item()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
