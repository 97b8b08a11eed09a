# SPDX-License-Identifier: Apache-2.0
"""Training loops as people write them: each step's loss, learning rate, gradient norm and speed as
the program itself has them.  argv[3]: which."""
import math
import sys
import time

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset
from waiting import run

STEPS, ACCUMULATED = 14, 3
said = {"loss": [], "lr": [], "grad_norm": [], "tokens_per_sec": [], "micro": ACCUMULATED,
        "clips_elsewhere": hasattr(nn.utils.clip_grad, "_get_total_norm")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x, target=None):
        logits = self.head(torch.tanh(self.body(x)))
        return logits, nn.functional.cross_entropy(logits, target)


def batch(n=6):
    return torch.randn(n, 8), torch.randint(4, (n,))


def get_lr(it):
    return 0.1 * (1 + math.cos(math.pi * it / STEPS)) / 2


class Engine:
    """As DeepSpeed's: it holds the optimizer, divides the loss and knows when to step; here
    clip_grad_norm_ has a name of the program's own."""

    def __init__(self, model, optimizer):
        self.module, self.optimizer, self.micro_steps = model, optimizer, 0
        self.scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)

    def __call__(self, *args):
        return self.module(*args)

    def backward(self, loss):
        (loss / ACCUMULATED).backward()
        self.micro_steps += 1

    def step(self):
        if self.micro_steps % ACCUMULATED:
            return
        said["lr"].append(self.optimizer.param_groups[0]["lr"])
        norm = clip_grad_norm_(self.module.parameters(), 0.5)
        said["grad_norm"].append(norm.item())
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()


def engine(model, optimizer):
    engine = Engine(model, optimizer)
    for n in range(STEPS * ACCUMULATED):
        x, y = batch()
        _, loss = engine(x, y)
        if (n + 1) % ACCUMULATED == 0:
            said["loss"].append(loss.item())
        engine.backward(loss)
        engine.step()


def nanogpt(model, optimizer):
    """As nanoGPT's train.py, with the loss divided where it is."""
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    X, Y = batch()
    t0 = time.time()
    for iter_num in range(STEPS):
        lr = get_lr(iter_num)
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr
        for _ in range(ACCUMULATED):
            _, loss = model(X, Y)
            loss = loss / ACCUMULATED
            X, Y = batch()
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        said["loss"].append(loss.item())
        said["lr"].append(lr)
        dt = time.time() - t0
        tokens_per_sec = 6 * ACCUMULATED / dt
        said["tokens_per_sec"].append(tokens_per_sec)
        t0 = time.time()


def returned(model, optimizer):
    """The step is a function's, which gives a number."""
    def train_step(x, y):
        optimizer.zero_grad()
        _, error = model(x, y)
        error.backward()
        total_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        said["grad_norm"].append(float(total_norm))
        return error.item()
    said["micro"] = 1
    for _ in range(STEPS):
        said["lr"].append(optimizer.param_groups[0]["lr"])
        said["loss"].append(train_step(*batch()))


def outside(model, optimizer):
    """The loss is made elsewhere, the step is here."""
    def forward_backward(x, y):
        _, loss = model(x, y)
        loss.backward()
        return loss.detach()
    said["micro"] = 1
    for _ in range(STEPS):
        optimizer.zero_grad()
        train_loss = forward_backward(*batch()).item()
        optimizer.step()
        said["loss"].append(train_loss)
        said["lr"].append(optimizer.param_groups[0]["lr"])


def loader(model, optimizer):
    """As PyTorch's examples: epochs over a DataLoader, a scheduler at each epoch's end."""
    data = DataLoader(TensorDataset(*batch(7 * 6)), batch_size=6, shuffle=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    said["micro"] = 1
    for _ in range(1, 3):
        for _, (inputs, target) in enumerate(data):
            optimizer.zero_grad()
            _, loss = model(inputs, target)
            loss.backward()
            optimizer.step()
            said["loss"].append(loss.item())
            said["lr"].append(optimizer.param_groups[0]["lr"])
        scheduler.step()


class Wrapper(torch.optim.Optimizer):
    """As accelerate's: its step() does nothing but for the last of the batches."""

    def __init__(self, optimizer, state):
        self.optimizer, self.state_of = optimizer, state

    def step(self, closure=None):
        if self.state_of["sync"]:
            self.optimizer.step(closure)

    def zero_grad(self, set_to_none=True):
        if self.state_of["sync"]:
            self.optimizer.zero_grad()

    @property
    def param_groups(self):
        return self.optimizer.param_groups


def accumulate(model, optimizer):
    state = {"sync": False}
    wrapper = Wrapper(optimizer, state)
    for n in range(STEPS * ACCUMULATED):
        state["sync"] = (n + 1) % ACCUMULATED == 0
        _, loss = model(*batch())
        if state["sync"]:
            said["loss"].append(loss.item())
            said["lr"].append(wrapper.param_groups[0]["lr"])
        (loss / ACCUMULATED).backward()
        if state["sync"]:
            grad_norm = clip_grad_norm_(model.parameters(), 1.0)
            said["grad_norm"].append(grad_norm.item())
        wrapper.step()
        wrapper.zero_grad()


def work():
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    globals()[sys.argv[3]](model, optimizer)
    return said


run(work)
