# SPDX-License-Identifier: Apache-2.0
"""A group of one rank: operations on one tensor and on many, in turn, timed at the group's own
methods."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

OPERATIONS = 200
GO, ANSWER = sys.argv[1:3]
dist.init_process_group("gloo", init_method="file://%s.store" % ANSWER, rank=0, world_size=1)
group = dist.distributed_c10d._get_default_group()
options = dist.distributed_c10d.AllreduceCoalescedOptions()
many = [torch.ones(4) for _ in range(250)]
print("ready", flush=True)
while not os.path.exists(GO):
    time.sleep(0.01)
took = []
for i in range(OPERATIONS):
    tensors = many[:1] if i % 2 else many
    begin = time.perf_counter()
    operation = group.allreduce_coalesced(tensors, options)
    operation.wait()
    took.append(time.perf_counter() - begin)
    del operation  # lets go of its tensors: not in the time
with open(ANSWER + ".part", "w") as f:
    json.dump(took, f)
os.rename(ANSWER + ".part", ANSWER)
print("done", flush=True)
time.sleep(1000)
