# SPDX-License-Identifier: Apache-2.0
"""One rank of a job in which rank 1 is killed while rank 0 waits for it."""
import datetime
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
while not os.path.exists(go) and os.getppid() == parent:
    time.sleep(0.01)


def attempt(word, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except RuntimeError as error:
        print("%s %s: %s" % (word, type(error).__name__, str(error).split("\n")[0]), flush=True)


if rank == 0:
    attempt("waited", dist.all_reduce, torch.ones(4))
    attempt("called", dist.monitored_barrier, timeout=datetime.timedelta(seconds=0.1))
    print("done", flush=True)
while os.getppid() == parent:
    time.sleep(0.05)
os._exit(0)
