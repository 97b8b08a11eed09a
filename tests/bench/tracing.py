#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a watched function's calls cost: nanoseconds a call, by CPython, least of several rounds.

usage: tracing.py [--rounds N] [PYTHON...]     all that tests/pythons.py finds by default

Each figure is the time of a loop of calls of an empty function, per call: before, while `trace`
watches it (nobody reads along), with --args, with one variable watched (3.12 on), and afterwards.
"idle" is a loop of another function's calls while the first is watched: what others pay.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from figures import figure, remark  # noqa: E402
from pythons import PYTHONS  # noqa: E402
from world import CLI  # noqa: E402

SOURCE = """
import sys, time
def work(x): return x
def other(x): return x
def measure(f, n=20000, rounds=int(sys.argv[1])):
    best = 1e9
    for _ in range(rounds):
        began = time.perf_counter()
        for i in range(n): f(i)
        best = min(best, time.perf_counter() - began)
    return int(best / n * 1e9)
answers = {}
asked = None
print("ready", flush=True)
while True:
    if asked:
        name, asked = asked, None
        answers[name] = measure(globals()[name.split()[0]])
    time.sleep(0.005)
"""


def probing(env, pid, *words):
    done = subprocess.run([str(CLI), "-t", str(pid), *words], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True)
    return done.stdout if done.returncode == 0 else "failed: " + done.stderr


def measured(env, pid, name):
    probing(env, pid, "eval", "import __main__; __main__.asked = %r" % name)
    while True:
        answer = probing(env, pid, "eval", "answers.pop(%r, '')" % name).strip()
        if re.fullmatch(r"\d+", answer):
            return int(answer)
        time.sleep(0.05)


def bench(python, rounds):
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, PROBING_DATA_DIR=folder)
        path = os.path.join(folder, "work.py")
        with open(path, "w") as file:
            file.write(SOURCE)
        target = subprocess.Popen([python, "-u", path, str(rounds)], env=env,
                                  stdout=subprocess.PIPE)
        target.stdout.readline()
        try:
            probing(env, target.pid, "inject")
            row = [measured(env, target.pid, "work")]
            for words in (["work"], ["--args", "work"], ["--watch", "x", "work"]):
                said = probing(env, target.pid, "trace", "--keep", *words)
                row.append(None if said.startswith("failed") else
                           measured(env, target.pid, "work"))
                if words == ["work"]:
                    row.append(measured(env, target.pid, "other"))
                probing(env, target.pid, "trace", "--stop")
            row.append(measured(env, target.pid, "work"))
        finally:
            target.kill()
            target.wait()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("pythons", nargs="*", default=list(PYTHONS.values()))
    options = parser.parse_args()
    named = {path: name for name, path in PYTHONS.items()}
    for python in options.pythons:
        tell(named.get(python, python), bench(python, options.rounds))


def tell(python, row):
    before = row[0]
    base = python + ": before"
    figure(base, "ns a call", least=before)
    for name, ns in zip(("watched", "idle", "--args", "--watch", "after"), row[1:]):
        if ns is None:
            remark("%s: %s: not with this Python" % (python, name))
        else:
            figure("%s: %s" % (python, name), "ns a call", least=ns, against=base,
                   ratio=ns / before)


if __name__ == "__main__":
    main()
