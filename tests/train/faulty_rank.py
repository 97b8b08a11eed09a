# SPDX-License-Identifier: Apache-2.0
"""One rank of a job of tests/bench/stragglers_campaign.py: faulty_rank.py FOLDER LOOP WIDTH BATCH.

It trains until it is killed.  In each step it looks into FOLDER/fault.json, which says which ranks
do what else from now on; into FOLDER/steps-RANK it writes how many steps it has made, which costs
nothing.  LOOP: ddp, or plain, which calls all_reduce itself."""
import gc
import json
import mmap
import os
import random
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

FOLDER, LOOP, WIDTH, BATCH = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
LEAST_SEC = 0.02
CONTROL, BLOB = os.path.join(FOLDER, "fault.json"), os.path.join(FOLDER, "blob")
torch.set_num_threads(1)
dist.init_process_group("gloo")
RANK = dist.get_rank()
torch.manual_seed(RANK)
chance = random.Random(RANK)


class Fault:
    """This rank's deed beside training: `name`, and how long or how often."""

    def __init__(self):
        self.seen, self.said, self.began, self.done = None, {"name": "none"}, 0, False
        self.last_sec = self.own_sec = 0.0  # of the step before, and what of it was the fault
        self.lock, self.heap = threading.Lock(), []

    def look(self, step):
        stat = os.stat(CONTROL)
        if self.seen == (stat.st_mtime_ns, stat.st_ino):
            return
        self.seen = (stat.st_mtime_ns, stat.st_ino)
        with open(CONTROL) as file:
            said = json.load(file)
        mine = said["who"] == "all" or RANK in said["who"]
        self.said = said if mine else {"name": "none"}
        self.began, self.done, self.heap = step, False, []
        if self.name == "gc":
            self.heap = [[i] for i in range(said["objects"])]
        for name, work in (("lock", self.hold), ("gil", self.spin)):
            if self.name == name:
                threading.Thread(target=work, args=(self.seen,), daemon=True).start()

    @property
    def name(self):
        return self.said["name"]

    def sec(self):
        return max(LEAST_SEC, self.said["share"] * self.last_sec)

    def due(self, step):
        return step % self.said["every"] == 0  # of all ranks the same

    def hold(self, seen):  # threads of it
        while self.seen == seen:
            with self.lock:
                time.sleep(self.sec())
            time.sleep(0.0005)

    def spin(self, seen):
        while self.seen == seen:
            sum(range(100))

    def at(self, place, step):
        """Do it in that place of a step."""
        began = time.monotonic()
        name = self.name
        if name == place and name in ("loader", "sleep"):
            time.sleep(self.sec())
        elif name == place:
            compute(self.sec())
        elif place == "loader" and name == "disk":
            read_from_disk(self.sec())
        elif place == "loader" and name == "jitter":
            time.sleep(chance.expovariate(1 / LEAST_SEC))
        elif place == "sleep" and name == "lock":
            with self.lock:
                pass
        elif place == "sleep" and name == "gc" and self.due(step):
            gc.collect()
        elif place == "sleep" and name == "checkpoint" and self.due(step):
            save(10 * self.sec())
        elif place == "sleep" and name == "evaluation" and self.due(step):
            with torch.no_grad():
                for _ in range(20):
                    model(torch.randn(BATCH, WIDTH))
        elif place == "sleep" and name == "rare" and not self.done and \
                self.due(step) and step > self.began + 20:
            self.done = True
            time.sleep(max(6 * self.said["share"], 6 * self.last_sec))
        self.own_sec += time.monotonic() - began

    def end_step(self, sec):
        self.last_sec, self.own_sec = max(0.0, sec - self.own_sec), 0.0


def compute(sec):
    until, a = time.monotonic() + sec, torch.randn(64, 64)
    while time.monotonic() < until:
        a = torch.tanh(a @ a)


def read_from_disk(sec):
    """A page cache that has nothing of a file."""
    until = time.monotonic() + sec
    while time.monotonic() < until:
        with open(BLOB, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.read(1 << 20):
                pass


def save(sec):
    until, path = time.monotonic() + sec, os.path.join(FOLDER, "checkpoint-%d" % RANK)
    state = {"model": model.state_dict(), "more": torch.zeros(1 << 18)}
    while time.monotonic() < until:
        with open(path, "wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())


fault, step = Fault(), 0


class Batches(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            fault.at("loader", step)
            uneven = fault.name == "uneven"
            yield torch.randn(BATCH * (chance.randint(1, 4) if uneven else 1), WIDTH)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))

    def forward(self, x):
        fault.at("forward", step)
        return self.layers(x)


class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        fault.at("optimizer", step)
        return super().step(closure)


def in_backward(grad):
    fault.at("backward", step)
    return grad


model = Model()
if LOOP == "ddp":
    model = nn.parallel.DistributedDataParallel(model)
next(model.parameters()).register_hook(in_backward)
optimizer = Optimizer(model.parameters(), lr=1e-3)
parent = os.getppid()
with open(os.path.join(FOLDER, "steps-%d" % RANK), "w+b") as file:
    file.truncate(8)
    counted = mmap.mmap(file.fileno(), 8)
with open(os.path.join(FOLDER, "rank-%d" % RANK), "w") as ready:
    ready.write(str(os.getpid()))
began = time.monotonic()
for x in torch.utils.data.DataLoader(Batches(), batch_size=None):
    fault.look(step)
    fault.at("sleep", step)
    model(x).sum().backward()
    if LOOP == "plain":
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
    optimizer.step()
    optimizer.zero_grad()
    fault.end_step(time.monotonic() - began)
    began, step = time.monotonic(), step + 1
    counted[:8] = step.to_bytes(8, "little")
    if os.getppid() != parent:
        break
