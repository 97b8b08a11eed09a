# SPDX-License-Identifier: Apache-2.0
"""One rank of a job; rank 1 does not come to init_process_group until it is told."""
import os
import sys
import time

import torch
import torch.distributed as dist

go = sys.argv[1]
rank = int(os.environ["RANK"])
parent = os.getppid()
print("ready %d" % rank, flush=True)
while rank == 1 and not os.path.exists(go) and os.getppid() == parent:
    time.sleep(0.01)
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("done %d" % rank, flush=True)
while os.getppid() == parent:
    time.sleep(0.05)
os._exit(0)
