# SPDX-License-Identifier: Apache-2.0
"""On one processor beside another process that never sleeps: most of the time is waited for it."""
import os
import time

from account import chance, run, timed

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        sum(range(10000))
    os._exit(0)


@timed
def worker():
    end = time.perf_counter() + chance.uniform(0.001, 0.003)
    while time.perf_counter() < end:
        sum(range(1000))


@timed
def yielder():
    for _ in range(chance.randint(5, 15)):
        os.sched_yield()


def work(end):
    while time.perf_counter() < end:
        worker()
        yielder()


run(work, chains=[["worker"], ["yielder"]])
