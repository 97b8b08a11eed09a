# SPDX-License-Identifier: Apache-2.0
"""Waits of less than a millisecond between some work: a look from outside often meets a thread that
has waited and runs."""
import threading
import time

from account import chance, run, spin, timed


@timed
def sleeper():
    for _ in range(chance.randint(2, 6)):
        time.sleep(chance.uniform(0.00005, 0.0003))


@timed
def event():
    for _ in range(chance.randint(2, 6)):
        threading.Event().wait(chance.uniform(0.00005, 0.0003))


@timed
def worker():
    spin(chance.uniform(0.0002, 0.0006))


def work(end):
    while time.perf_counter() < end:
        sleeper()
        worker()
        event()


run(work, chains=[["sleeper"], ["worker", "spin"], ["event", "__init__"], ["event", "wait"]])
