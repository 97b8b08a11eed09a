# SPDX-License-Identifier: Apache-2.0
"""One rank of a job in which rank 1 does not come to an all_reduce until it is told."""
import os
import sys
import time

import torch
import torch.distributed as dist

go = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
parent = os.getppid()
print("ready %d" % rank, flush=True)


def wait_for(name):
    while not os.path.exists(name) and os.getppid() == parent:
        time.sleep(0.01)


wait_for(go)
dist.barrier()
if rank == 1:
    wait_for(go + ".too")
dist.all_reduce(torch.ones(4))
print("done %d" % rank, flush=True)
while os.getppid() == parent:
    time.sleep(0.05)
os._exit(0)
