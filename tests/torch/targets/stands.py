# SPDX-License-Identifier: Apache-2.0
"""A loop that stands: a worker of its DataLoader hangs, or it holds the GIL.

usage: stands.py GO ANSWER HANGS
"""
import ctypes
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from waiting import run

BATCHES = 8
LONG = 600  # seconds: longer than any test


class Data(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, n):
        if n == BATCHES:
            with open(sys.argv[3], "w") as out:
                out.write(str(os.getpid()))
            while os.path.exists(sys.argv[3]):
                time.sleep(0.01)
        return torch.ones(4)


model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def work():
    for number, batch in enumerate(DataLoader(Data(), batch_size=None, num_workers=2)):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        if number == 2 * BATCHES:
            break
    print("holds the GIL", flush=True)
    ctypes.PyDLL(None).sleep(LONG)


run(work)
