# SPDX-License-Identifier: Apache-2.0
"""Threads that train a model each, without a pause, until there is a file GO.

usage: training.py GO ANSWER    then the first of them computes on without its model
"""
import threading

import torch
from torch import nn
from waiting import is_told

THREADS = 3
begun = threading.Semaphore(0)  # the first steps import much of torch


class First(nn.Sequential):
    pass


class Other(nn.Sequential):
    pass


def train(kind):
    model = kind(*[nn.Linear(32, 32) for _ in range(20)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    while not is_told():
        model(torch.ones(2, 32)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        begun.release()
    print("%s has ended" % kind.__name__, flush=True)
    while kind is First:
        sum(range(1000))
    model.zero_grad()


threads = [threading.Thread(target=train, args=(First if n == 0 else Other,))
           for n in range(THREADS)]
for thread in threads:
    thread.start()
for thread in range(THREADS * 10):
    begun.acquire()
print("ready", flush=True)
