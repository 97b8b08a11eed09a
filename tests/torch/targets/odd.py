# SPDX-License-Identifier: Apache-2.0
"""Forwards that raise, recurse, run on threads, are freed, or happen in a forked child."""
import collections
import os
import threading

import torch
from torch import nn
from waiting import run

calls = collections.Counter()
lock = threading.Lock()


def note(name):
    with lock:
        calls[name] += 1


class Raises(nn.Module):
    def forward(self, n):
        if n % 3 == 0:
            raise ValueError("%d" % n)
        note("Raises")
        return n


class Recursive(nn.Module):
    def forward(self, n):
        result = self(n - 1) if n else 0
        note("Recursive")
        return result


class Threaded(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = Child()

    def forward(self, x):
        x = self.child(x)
        note("Threaded")
        return x


class Child(nn.Module):
    def forward(self, x):
        note("child")
        return x


class Short(nn.Module):
    def forward(self, *args, **kwargs):
        note("Short")
        return len(args) + len(kwargs)


class Lived(nn.Module):
    def forward(self):
        note("Lived")


class OwnCall(nn.Module):
    """Its __call__ is its own: no row, and nothing changes."""

    def __call__(self, x):
        return x + 1


raises, recursive, threaded, own = Raises(), Recursive(), Threaded(), OwnCall()


def on_threads():
    def many():
        for i in range(2000):
            assert threaded(i) == i
    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def freed():
    """Addresses are used again by modules of another class."""
    for i in range(3000):
        module = (Short if i % 2 else Lived)()
        module()
        del module


def in_child():
    pid = os.fork()
    if pid == 0:
        ok = Short()(1, 2, x=3) == 3 and recursive(5) == 0
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0


class InWorker(torch.utils.data.Dataset):
    """Calls a module in a DataLoader's forked worker."""

    def __len__(self):
        return 16

    def __getitem__(self, i):
        return Short()(*range(i))


def loader():
    batches = torch.utils.data.DataLoader(InWorker(), batch_size=4, num_workers=2)
    assert [n for batch in batches for n in batch.tolist()] == list(range(16))


def work():
    for n in range(30):
        try:
            assert raises(n) == n and n % 3
        except ValueError as error:
            assert str(error) == "%d" % n and n % 3 == 0
    recursive(50)
    on_threads()
    freed()
    many = tuple(range(3000))
    assert Short()(*many) == 3000 and nn.Module.__call__(Short(), 1, b=2) == 2
    assert Short().__call__(*many, x=1) == 3001
    assert own(1) == 2
    in_child()
    loader()
    with torch.no_grad():
        assert torch.equal(nn.Identity()(torch.ones(2)), torch.ones(2))
    calls["Identity"] += 1
    return calls


run(work)
