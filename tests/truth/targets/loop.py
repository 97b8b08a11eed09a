# SPDX-License-Identifier: Apache-2.0
"""A training loop that times the parts of each step itself and keeps its losses.

usage: loop.py GO ANSWER SECONDS    25 steps for each of these seconds
"""
import sys
import time

import torch
from torch import nn
from account import run

torch.set_num_threads(1)
torch.manual_seed(11)
clock = time.perf_counter


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 30

    def __getitem__(self, i):
        return torch.sin(torch.arange(64.0) * (i % 97)), i % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(1000, 64, sparse=True)
        self.layers = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x, label):
        return self.head(self.layers(x.unsqueeze(1) + self.rows(label).unsqueeze(1)).mean(1))


model = Net()
dense = [p for name, p in model.named_parameters() if not name.startswith("rows")]
optimizers = [torch.optim.AdamW(dense, lr=1e-3),
              torch.optim.SparseAdam(list(model.rows.parameters()))]
loader = torch.utils.data.DataLoader(Data(), batch_size=16)
losses, parts = [], {"dataloader": [], "forward": [], "backward": [], "optimizer": []}


def train(batches):
    times = [clock()]
    x, label = next(batches)
    times.append(clock())
    out = model(x, label)
    times.append(clock())
    loss = nn.functional.cross_entropy(out, label)
    for optimizer in optimizers:
        optimizer.zero_grad()
    begun = clock()
    loss.backward()
    parts["backward"].append(clock() - begun)
    spent = []
    for optimizer in optimizers:
        begun = clock()
        optimizer.step()
        spent.append(clock() - begun)
    parts["optimizer"].append(spent)
    parts["dataloader"].append(times[1] - times[0])
    parts["forward"].append(times[2] - times[1])
    losses.append(loss.item())


def work(end):
    steps = int(25 * float(sys.argv[3]))
    batches = iter(loader)
    for _ in range(steps):
        train(batches)


run(work, losses=losses, parts=parts)
