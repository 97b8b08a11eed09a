#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How late a thread that beats every 2 ms is while python.objects goes through many lists.

usage: objects.py [--lists N] [PYTHON...]     a million, and all that tests/pythons.py finds
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from figures import figure  # noqa: E402
from pythons import PYTHONS  # noqa: E402
from world import CLI  # noqa: E402

SOURCE = """
import sys, time
keep, worst, last = [[i] for i in range(int(sys.argv[1]))], 0.0, None
print("ready", flush=True)
while True:
    time.sleep(0.002)
    now = time.perf_counter()
    worst, last = max(worst, now - (last or now)), now
"""


def probing(env, pid, *words):
    return subprocess.run([str(CLI), "-t", str(pid), *words], env=env, stdout=subprocess.PIPE,
                          check=True).stdout.decode()


def worst_of(env, pid, work):
    """ms"""
    probing(env, pid, "eval", "import __main__; __main__.worst = 0.0")
    work()
    return 1000 * float(probing(env, pid, "eval", "__main__.worst"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lists", type=int, default=1000000)
    parser.add_argument("pythons", nargs="*", default=list(PYTHONS.values()))
    options = parser.parse_args()
    named = {path: name for name, path in PYTHONS.items()}
    for python in options.pythons:
        with tempfile.TemporaryDirectory() as folder:
            env = dict(os.environ, PROBING_DATA_DIR=folder)
            target = subprocess.Popen([python, "-u", "-c", SOURCE, str(options.lists)], env=env,
                                      stdout=subprocess.PIPE)
            target.stdout.readline()
            try:
                probing(env, target.pid, "inject")

                def query():
                    probing(env, target.pid, "query", "select count(*) from python.objects")
                query()
                idle = worst_of(env, target.pid, lambda: time.sleep(0.5))
                late = sorted(worst_of(env, target.pid, query) for _ in range(7))
            finally:
                target.kill()
                target.wait()
        name = named.get(python, python)
        figure("%s: late while idle" % name, "ms", most=idle)
        figure("%s: late while asked" % name, "ms", median=late[3], least=late[0], most=late[-1],
               against="%s: late while idle" % name, ratio=late[3] / idle if idle else None)


if __name__ == "__main__":
    main()
