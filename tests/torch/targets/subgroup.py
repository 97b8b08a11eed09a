# SPDX-License-Identifier: Apache-2.0
"""Four ranks, of which 2 and 3 are 0 and 1 of a group.  They use it when `go` is there; then rank 3
does not come to the last operation until `go`.too is there."""
import os
import sys
import time

import torch
import torch.distributed as dist

GO = sys.argv[1]
dist.init_process_group("gloo")
rank, parent = dist.get_rank(), os.getppid()
group = dist.new_group([2, 3])


def wait_for(path):
    while not os.path.exists(path) and os.getppid() == parent:
        time.sleep(0.01)


dist.barrier()
os.write(1, b"ready %d\n" % rank)  # in one piece: all ranks share this output
wait_for(GO)
if rank >= 2:
    values = torch.ones(7)
    dist.broadcast(values, src=3, group=group)
    dist.reduce(values, dst=2, group=group)
    if rank == 2:
        dist.send(values, 3, group=group, tag=5)
    else:
        dist.recv(values, 2, group=group, tag=5)
        wait_for(GO + ".too")
    dist.all_reduce(values, group=group)
    if rank == 3:
        wait_for(GO + ".send")
        dist.send(values, 2, group=group)
    else:
        dist.recv(values, 3, group=group)
    os.write(1, b"done %d\n" % rank)
wait_for(GO + ".end")
