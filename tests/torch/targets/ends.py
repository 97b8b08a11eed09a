# SPDX-License-Identifier: Apache-2.0
"""Loops that a capture does not get its steps from.

usage: ends.py GO stands    no step ends before GO is there
       ends.py GO grows     each step keeps 32 MB
       ends.py GO main      the program ends when GO is there
       ends.py GO thread    the same, and the loop is another thread's
"""
import sys
import threading
import time

import torch
from waiting import is_told

net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
mode = sys.argv[2]
kept = []
profiled = False  # on the loop's thread


def loop():
    global profiled
    while not (is_told() and mode in ("main", "thread")):
        net(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        profiled = torch.autograd._profiler_enabled()
        if mode == "grows":
            kept[:0] = [torch.ones(1 << 23)] if len(kept) < 12 else []
        time.sleep(0.002)


print("ready", flush=True)
while not is_told() and mode in ("stands", "grows"):
    time.sleep(0.01)
if mode == "thread":
    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
else:
    loop()
print("done", flush=True)
