# SPDX-License-Identifier: Apache-2.0
"""Sleeps, a lock that somebody else holds, a pipe that somebody else fills, and some work."""
import os
import threading
import time

from account import chance, run, spin, timed

lock = threading.Lock()
held, free = threading.Semaphore(0), threading.Semaphore(0)
reads, writes = os.pipe()


def holder():
    while True:
        free.acquire()
        with lock:
            held.release()
            time.sleep(chance.uniform(0.005, 0.03))


def writer():
    while True:
        free_pipe.acquire()
        time.sleep(chance.uniform(0.002, 0.02))
        os.write(writes, b"x")


@timed
def sleeper():
    time.sleep(chance.uniform(0.005, 0.04))


@timed
def locked():
    with lock:
        pass


@timed
def reader():
    os.read(reads, 1)


@timed
def worker():
    spin(chance.uniform(0.002, 0.015))


def work(end):
    while time.perf_counter() < end:
        sleeper()
        free.release()
        held.acquire()
        locked()
        free_pipe.release()
        reader()
        worker()


free_pipe = threading.Semaphore(0)
for loop in (holder, writer):
    threading.Thread(target=loop, daemon=True).start()
run(work, chains=[["sleeper"], ["locked"], ["reader"], ["worker", "spin"]])
