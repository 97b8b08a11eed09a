# SPDX-License-Identifier: Apache-2.0
"""`backtrace --locals`: simple values, what is cheap to know of others, no code of the user's."""
import json
import subprocess

import pytest

SIMPLE = r"""
import time
def f(a, b, *args, **kw):
    i, neg, zero, mid, big = 7, -5, 0, (1 << 59) + 3, 1 << 80
    huge, monster = -(3 ** 600), 1 << 5000
    x, y, inf, nan = 0.5, 0.1, float("-inf"), float("nan")
    s, long, wide, nothing, yes = 'gr\u00f6"\n', 'x' * 1000, '\U0001f600', None, True
    gone = 1
    del gone
    print("ready", flush=True)
    time.sleep(600)
f(1, "two", 3, k=4)
"""

CONTAINERS = r"""
import collections, time
class Model:
    def __repr__(self): raise SystemExit("never run")
class Lied(dict):
    def __len__(self): raise SystemExit("never run")
def f():
    model, raw = Model(), b'a\\b\0'
    deep = [[[[1]]], ([],)]
    many = list(range(1000))
    keys = {1: 'x', (1, 'b'): None, 'gone': 0, 2.5: [True], None: {}}
    del keys['gone']
    lied, default = Lied(x=1), collections.defaultdict(list)
    loop = []
    loop.append(loop)
    shared = 11
    def inner(): return shared
    print("ready", flush=True)
    time.sleep(600)
f()
"""


def locals_of(target):
    frames = target.threads("--locals")[target.pid]["frames"]
    return [f["locals"] for f in frames if f["func"] == "f"][0]


def test_simple_values(world, python):
    target = world.start(python, SIMPLE).inject()
    assert locals_of(target) == {
        "a": 1, "b": "two", "args": {"type": "tuple", "len": 1, "items": [3]},
        "kw": {"type": "dict", "len": 1, "items": {"k": 4}},
        "i": 7, "neg": -5, "zero": 0, "mid": (1 << 59) + 3, "big": 1 << 80, "huge": -(3 ** 600),
        "monster": {"type": "int", "bits": 5001}, "x": 0.5, "y": 0.1, "inf": "-inf", "nan": "nan",
        "s": 'gr\u00f6"\n', "long": {"type": "str", "len": 1000, "start": "x" * 96},
        "wide": "\U0001f600", "nothing": None, "yes": True}
    assert '"b":"two"' in target.probing("backtrace", "--locals").stdout
    assert target.alive()


def test_containers(world, python):
    target = world.start(python, CONTAINERS).inject()
    seen = locals_of(target)
    one = {"type": "list", "len": 1}
    expected = {
        "model": {"type": "Model"},
        "raw": {"type": "bytes", "len": 4, "start": "a\\x5cb\\x00"},
        "deep": {"type": "list", "len": 2, "items": [
            dict(one, items=[one]), {"type": "tuple", "len": 1, "items": [
                {"type": "list", "len": 0}]}]},
        "many": {"type": "list", "len": 1000, "items": [0, 1, 2, 3, 4]},
        "keys": {"type": "dict", "len": 4, "items": {
            "1": "x", '{"type":"tuple","len":2}': None, "2.5": dict(one, items=[True]),
            "null": {"type": "dict", "len": 0, "items": {}}}},
        "lied": {"type": "Lied"}, "default": {"type": "collections.defaultdict"},
        "loop": dict(one, items=[dict(one, items=[one])]),
        "inner": {"type": "function"}}
    assert {name: seen.get(name) for name in expected} == expected
    if "shared" in seen:  # before 3.11 variables that functions share lie elsewhere
        assert seen["shared"] == 11
    assert target.alive()


def test_many_and_long_variables_are_bounded(world, python):
    body = "\n".join("    v%d = ['%s' * 20, {i: 'y' * 96 for i in range(9)}]" % (i, "\\u00e9")
                     for i in range(60))
    target = world.start(python, "import time\ndef f():\n%s\n    print('ready', flush=True)\n"
                         "    time.sleep(600)\nf()\n" % body).inject()
    seen = locals_of(target)
    assert "..." in seen and 5 < len(seen) <= 25
    assert seen["v0"]["items"][0] == "\u00e9" * 20
    assert len(json.dumps(seen, ensure_ascii=False).encode()) < 16384


def test_arrays(world):
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode:
        pytest.skip("no numpy for %s (Debian: python3-numpy)" % python)
    target = world.start(python, """
import numpy, time
def f():
    a, b = numpy.zeros((3, 4), dtype="float32"), numpy.arange(5)
    c = numpy.array(1.0)
    print("ready", flush=True)
    time.sleep(600)
f()
""").inject()
    assert locals_of(target) == {
        "a": {"type": "numpy.ndarray", "shape": [3, 4], "dtype": "float32"},
        "b": {"type": "numpy.ndarray", "shape": [5], "dtype": "int64"},
        "c": {"type": "numpy.ndarray", "shape": [], "dtype": "float64"}}
