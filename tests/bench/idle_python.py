# SPDX-License-Identifier: Apache-2.0
"""What the python and profile plugins cost a Python program while nobody asks them anything.

usage: idle_python.py [--rounds N] [PYTHON...]      (all that the tests know, if none is given)

One process runs loops as pyperformance has them: calls, attributes, floats, dicts, strings,
generators, exceptions.  It does so without us, then with the core and plugin python in it, then
with profile loaded and stopped again, then once more after eject, in turn, in as many processes as
there are rounds.  Printed is the best time of each loop against the best without us: the mean over
the loops, and the worst one.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from figures import figure

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
PROGRAM = r'''
import json, sys, time
class Point:
    def __init__(self, x): self.x = x
    def moved(self): return Point(self.x + 1)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def numbers(n):
    for i in range(n): yield i
def calls(): fib(18)
def attributes():
    p = Point(0)
    for _ in range(3000): p = p.moved()
def floats():
    x = 0.0
    for i in range(1, 20000): x += 1.0 / (i * i)
def dicts():
    d = {}
    for i in range(8000): d[i & 255] = d.get(i & 255, 0) + 1
def strings(): "".join(str(i) for i in range(5000)).replace("1", "one")
def generators(): sum(x for x in numbers(15000))
def exceptions():
    for _ in range(4000):
        try: raise ValueError
        except ValueError: pass
loops = [calls, attributes, floats, dicts, strings, generators, exceptions]
for line in sys.stdin:
    best = {}
    for _ in range(int(line)):
        for loop in loops:
            begin = time.perf_counter()
            loop()
            took = time.perf_counter() - begin
            best[loop.__name__] = min(best.get(loop.__name__, 1e9), took)
    print(json.dumps(best), flush=True)
'''
STATES = ["without", "python", "profile stopped", "ejected"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*")
    parser.add_argument("--probing", default=os.path.join(ROOT, "build/release/probing"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loops", type=int, default=60)
    options = parser.parse_args()
    from pythons import PYTHONS
    named = {path: version for version, path in PYTHONS.items()}
    pythons = {named.get(path, path): path for path in options.pythons} or PYTHONS
    os.environ["PROBING_DATA_DIR"] = tempfile.mkdtemp()
    for version, python in pythons.items():
        best = {}
        for _ in range(options.rounds):
            one_process(python, options, best)
        tell(version, best)


def tell(version, best):
    for state in STATES:
        by_loop = [best[state, name] / best["without", name] for s, name in best if s == state]
        mean = sum(by_loop) / len(by_loop)
        compared = {} if state == "without" else {"against": version + ", without", "ratio": mean}
        figure("%s, %s" % (version, state), "% of without", mean=100 * mean,
               worst_loop=100 * max(by_loop), **compared)


def one_process(python, options, best):
    target = subprocess.Popen([python, "-c", PROGRAM], text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)

    def probing(*words):
        subprocess.run([options.probing, "-t", str(target.pid), *words], check=True,
                       stdout=subprocess.DEVNULL)

    def measure(state):
        target.stdin.write("%d\n" % options.loops)
        target.stdin.flush()
        for name, took in json.loads(target.stdout.readline()).items():
            best[state, name] = min(best.get((state, name), 1e9), took)
    measure("without")  # warms up as well
    measure("without")
    probing("inject")
    probing("backtrace")
    measure("python")
    probing("plugin", "load", "profile")
    probing("plugin", "stop", "profile")
    measure("profile stopped")
    probing("eject")
    measure("ejected")
    measure("without")
    target.kill()
    target.wait()


if __name__ == "__main__":
    main()
