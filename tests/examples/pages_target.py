# SPDX-License-Identifier: Apache-2.0
"""The program that the pages of docs/ speak of, started as train.py: modules and batches, spans, a
list that grows, exceptions and tasks.  It ends when it has made as many steps as its word says."""
import asyncio
import gc
import json
import sys
import threading
import time

import torch
from torch import nn

import probing

torch.set_num_threads(1)
batches, history, train_loss, val_loss, acc1, epoch, rank = 0, [], 0.0, 0.0, 0.0, 0, 0
losses = probing.table("loss", {"step": int, "value": float, "note": str})
steps = probing.table("steps", {"step": int})


class Trainer:
    def step(self, batch, scale=1.0):
        loss = 0.0
        for i in range(3):
            loss += (batch + i) * scale
        if batch % 7 == 6:
            raise ValueError("batch %d is bad" % batch)
        return loss


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(64, 64)
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 30

    def __getitem__(self, n):
        return torch.randn(64)


@probing.span
def forward(number):
    return 1.0 / (number + 1)


def step(number):
    return forward(number)


def load(trainer):
    number = 0
    while True:
        try:
            trainer.step(number, scale=0.5)
        except ValueError:
            pass
        number += 1
        time.sleep(0.02)


def fail(trainer):
    while True:
        thread = threading.Thread(target=trainer.step, args=(6,), name="bad")
        thread.start()
        thread.join()
        gc.collect(0)
        time.sleep(0.3)


async def leaf():
    await asyncio.sleep(3600)


async def tasks():
    await asyncio.gather(asyncio.create_task(leaf(), name="leaf"))


def train(model, optimizer, data, last):
    global batches, train_loss, val_loss, acc1
    for number, batch in enumerate(data):
        with probing.step(number):
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with probing.span("batch", size=32) as span:
                span.set(loss=step(number))
            train_loss = val_loss = acc1 = loss.item()
            losses.append(number, train_loss, "first" if number == 1 else None)
            steps.append(number)
        history.append(json.dumps({"text": "x" * 2000}))
        batches += 1
        if number == 3:
            print("ready", flush=True)
        if number == last:
            break
        time.sleep(0.05)  # it is looked at for minutes, beside other tests


def main():
    trainer, model = Trainer(), Net()
    for target, args in (load, (trainer,)), (fail, (trainer,)), (asyncio.run, (tasks(),)):
        threading.Thread(target=target, args=args, daemon=True).start()
    train(model, torch.optim.AdamW(model.parameters()),
          torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=1),
          int(sys.argv[1]) if len(sys.argv) > 1 else -1)


main()
