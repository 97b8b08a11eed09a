# SPDX-License-Identifier: Apache-2.0
"""A loop whose parts are timed by hand, with a DataLoader whose data set is slow."""
import multiprocessing
import time

import torch
from torch import nn
from waiting import run

STEPS = 12
clock = time.perf_counter


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, i):
        time.sleep(0.01)
        return torch.full((64,), float(i))


class Timed:
    """Whoever loops over it has waited for so long."""

    def __init__(self, inner):
        self.inner, self.waited = inner, 0.0

    def __iter__(self):
        batches = iter(self.inner)
        while True:
            begin = clock()
            batch = next(batches, None)
            if batch is None:
                return  # the wait for the end is no step's
            self.waited += clock() - begin
            yield batch


model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
first = torch.optim.SGD(model[:2].parameters(), lr=1e-3)
second = torch.optim.SGD(model[2:].parameters(), lr=1e-3)


def epoch(workers, spent, ends):
    loader = Timed(torch.utils.data.DataLoader(Slow(), batch_size=1, num_workers=workers))
    for batch in loader:
        times = [clock()]
        loss = model(batch).sum()
        times.append(clock())
        loss.backward()
        times.append(clock())
        first.step()
        second.step()  # of the same step
        times.append(clock())
        for name, begin, end in zip(("forward", "backward", "optimizer"), times, times[1:]):
            spent.setdefault(name, []).append(end - begin)
        ends.append(times[-1])
        time.sleep(0.002)
    spent["dataloader"] = spent.get("dataloader", 0.0) + loader.waited


def work():
    spent, ends = {}, []
    begin = clock()
    model(torch.zeros(64)).sum().backward()
    before = clock()
    first.step()  # it ends a step: our rows of that belong to the next one, which is timed
    spent["optimizer"] = [clock() - before]
    epoch(0, spent, ends)
    epoch(2, spent, ends)
    return {"spent": spent, "steps": len(ends) + 1, "wall": ends[-1] - begin}


# Python 3.14's own way takes seconds to start a worker: the program's time, not the loader's
multiprocessing.set_start_method("fork")
run(work)
