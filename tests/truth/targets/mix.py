# SPDX-License-Identifier: Apache-2.0
"""Processor time in Python, in C and in Python that C calls, in parts of known size."""
import hashlib
import time

from account import chance, run, spin, timed

BLOCK = b"x" * 100000
NUMBERS = [chance.random() for _ in range(3000)]


@timed
def half():
    spin(chance.uniform(0.001, 0.009))


@timed
def deep():
    deeper(12, chance.uniform(0.0005, 0.004))


def deeper(n, seconds):
    if n:
        deeper(n - 1, seconds)
    else:
        spin(seconds)


@timed
def hashes():
    for _ in range(chance.randint(1, 8)):
        hashlib.sha256(BLOCK).digest()


@timed
def sorts():
    sorted(NUMBERS, key=key)


def key(number):
    return -number


def work(end):
    while time.perf_counter() < end:
        for part in (half, deep, hashes, sorts):
            part()


run(work, chains=[["half", "spin"], ["deep"] + ["deeper"] * 13 + ["spin"], ["hashes"],
                  ["sorts", "key"]])
