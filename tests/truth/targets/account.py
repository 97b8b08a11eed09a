# SPDX-License-Identifier: Apache-2.0
"""What the programs share: an account of their own time by function, kept by their own clocks.

usage of each: PROGRAM GO ANSWER SECONDS
A program says "ready", waits for the file GO, works for so long, writes what it has measured to
ANSWER and says "done".  Its work is done in a function `work`: what belongs to the account has that
in its stack.
"""
import functools
import json
import os
import random
import sys
import time

wall, cpu = {}, {}  # seconds by function
chance = random.Random(7)  # periods of no two runs of a sampler are the same


def timed(function):
    """Its time is its own; they do not call each other."""
    name = function.__name__

    @functools.wraps(function)
    def wrapper(*args):
        used, begun = time.thread_time(), time.perf_counter()
        function(*args)
        wall[name] = wall.get(name, 0.0) + time.perf_counter() - begun
        cpu[name] = cpu.get(name, 0.0) + time.thread_time() - used
    return wrapper


def spin(seconds):
    """That much of a processor."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(200))


def run(work, **more):
    print("ready", flush=True)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    used, begun = time.thread_time(), time.perf_counter()
    work(begun + float(sys.argv[3]))
    answer = dict(more, wall=wall, cpu=cpu, all_wall=time.perf_counter() - begun,
                  all_cpu=time.thread_time() - used)
    with open(sys.argv[2], "w") as out:
        json.dump(answer, out)
    print("done", flush=True)
    while True:
        time.sleep(0.05)
