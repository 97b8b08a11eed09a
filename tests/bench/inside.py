#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `import probing` costs the program: nanoseconds a row, a span, an event, by CPython.

usage: inside.py [--rounds N] [PYTHON...]      all that tests/pythons.py finds by default

"off": probing is not in the process; of exceptions and collections: their settings are off.  Least
of 15 rounds of 5,000, without the loop itself.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from figures import figure, remark  # noqa: E402
from pythons import PYTHONS  # noqa: E402
from world import CORE, ROOT  # noqa: E402

SOURCE = """
import dataclasses, gc, json, sys, time
sys.path.insert(0, %r)
import probing
@dataclasses.dataclass
class Row:
    step: int
    value: float
plain = probing.table("plain", {"step": int, "value": float})
texts = probing.table("texts", {"step": int, "phase": str, "value": float, "note": str})
rows, one = probing.table(Row), Row(1, 0.5)
def nothing(i): pass
def two(i): plain.append(i, 0.5)
def names(i): plain.append(step=i, value=0.5)
def four(i): texts.append(i, "warm", 0.5, "as it was")
def instance(i): rows.append(one)
def span(i):
    with probing.span("x"): pass
def attributes(i):
    with probing.span("x", step=i): pass
def event(i): probing.event("x")
def least(f):
    best = 1e9
    for _ in range(int(sys.argv[1])):
        began = time.perf_counter()
        for i in range(5000): f(i)
        best = min(best, time.perf_counter() - began)
        time.sleep(0.05)
    return best / 5000 * 1e9
def all():
    base = least(nothing)
    return [least(f) - base for f in (two, names, instance, four, span, attributes, event)]
off = all()
probing.init()
probing.table("now", {"n": int})
row = list(zip(all(), off))
def caught(i):
    try: raise ValueError("seven")
    except ValueError: pass
def collects(i):
    if i %% 10 == 0: gc.collect(0)
bootstrap = sys.modules["_frozen_importlib"]
def loads(i): bootstrap._find_and_load("sys", __import__)
for f, name, value in ((caught, "exceptions", "raised"), (collects, "gc", True),
                       (loads, "imports", True)):
    before = least(f)
    try:
        probing.config("python." + name, value)
        time.sleep(0.5)
        row.append((least(f), before))
        probing.config("python." + name, "off")
    except probing.client.Error:
        row.append(None)
print(json.dumps(row))
""" % str(ROOT / "plugins" / "python" / "package")


NAMES = ("a row of 2 cells", "a row by name", "a row of an instance",
         "a row of 4 cells with text", "a span", "a span with an attribute", "an event",
         "an exception", "a tenth of a collection", "an import")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("pythons", nargs="*", default=list(PYTHONS.values()))
    options = parser.parse_args()
    named = {path: name for name, path in PYTHONS.items()}
    for python in options.pythons:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([python, "-c", SOURCE, str(options.rounds)], check=True,
                                  stdout=subprocess.PIPE,
                                  env=dict(os.environ, PROBING_DATA_DIR=folder,
                                           PROBING_LIBRARY=str(CORE)))
        for name, pair in zip(NAMES, json.loads(done.stdout)):
            tell("%s: %s" % (named.get(python, python), name), pair)


def tell(name, pair):
    """pair: ns with us and without; None: this Python has none of it."""
    if pair is None:
        remark("%s: not with this Python" % name)
        return
    on, off = pair
    figure(name + ", off", "ns", least=off)
    figure(name, "ns", least=on, against=name + ", off", ratio=on / off if off > 0 else None)


if __name__ == "__main__":
    main()
