# SPDX-License-Identifier: Apache-2.0
"""`backtrace --locals`: simple values, what is cheap to know of others, no code of the user's."""
import json
import os
import subprocess

import pytest
from world import ROOT, has_torch

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
    one, empty = {"type": "list", "len": 1}, {"len": 0, "items": {}}
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
        "lied": {"type": "Lied", "len": 1, "items": {"x": 1}},
        "default": dict(empty, type="collections.defaultdict"),
        "loop": dict(one, items=[dict(one, items=[one])]),
        "inner": {"type": "function", "name": "f.<locals>.inner"}, "shared": 11}
    assert {name: seen.get(name) for name in expected} == expected
    assert target.alive()


DERIVED = r"""
import collections, enum, sys, time
class Int(int): pass
class Str(str): pass
class Float(float): pass
class Point(collections.namedtuple("Point", "x y")): pass
class cell:
    def __init__(self): self.contents = 1
class Model:
    def __init__(self):
        self.step, self.loss, self.rates = 7, 2.0, [0.5]
    def fit(self): pass
class Wide:
    def __init__(self): self.__dict__.update(("a%d" % i, i) for i in range(40))
class Slots: __slots__ = ("a",)
class Color(enum.IntEnum): RED = 3
def f():
    i, s, wide, real, point = Int(-5), Str("abc"), Str("\u20ac" * 200), Float(2.5), Point(1, "y")
    own, model, many, slots, color = cell(), Model(), Wide(), Slots(), Color.RED
    few, gone, frozen, raw, comp = {1, 2}, {1}, frozenset(["a"]), bytearray(b"abc"), 1 + 2j
    gone.discard(1)
    error, method, kind, module = ValueError("bad", 3), model.fit, Model, sys
    zero, nul, whole, tiny = -0.0, "a\0b\x7f", 3.0, 1e-300
    print("ready", flush=True)
    time.sleep(600)
f()
"""


def test_what_derives_from_simple_types_and_instances(world, python):
    seen = locals_of(world.start(python, DERIVED).inject())
    many = seen.pop("many")
    assert many["type"] == "Wide" and list(many["attributes"]) == [
        "a%d" % i for i in range(8)] + ["..."]
    assert str(seen.pop("zero")) == "-0.0" and repr(seen["whole"]) == "3.0"
    assert seen == {
        "i": {"type": "Int", "value": -5}, "s": {"type": "Str", "len": 3, "value": "abc"},
        "wide": {"type": "Str", "len": 200, "start": "\u20ac" * 96},
        "real": {"type": "Float", "value": 2.5},
        "point": {"type": "Point", "len": 2, "items": [1, "y"]},
        "own": {"type": "cell", "attributes": {"contents": 1}},
        "model": {"type": "Model", "attributes": {
            "step": 7, "loss": 2.0, "rates": {"type": "list", "len": 1, "items": [0.5]}}},
        "slots": {"type": "Slots"}, "color": {"type": "Color", "value": 3},
        "few": {"type": "set", "len": 2, "items": [1, 2]},
        "gone": {"type": "set", "len": 0, "items": []},
        "frozen": {"type": "frozenset", "len": 1, "items": ["a"]},
        "raw": {"type": "bytearray", "len": 3},
        "comp": {"type": "complex", "real": 1.0, "imag": 2.0},
        "error": {"type": "ValueError", "items": ["bad", 3]},
        "method": {"type": "method", "name": "Model.fit"},
        "kind": {"type": "type", "name": "Model"}, "module": {"type": "module", "name": "sys"},
        "nul": "a\0b\x7f", "whole": 3.0, "tiny": 1e-300}


ELSEWHERE = r"""
import time
from math import floor
step, __hidden = 12, 1
class Config: pass
config = Config()
config.rate = 0.5
def outer(taken, own):
    late = [1]
    def inner():
        def innermost(): return taken, late, unset
        class Body:
            field = 5
            print("ready", flush=True)
            [time.sleep(600) for turn in [8]]
        unset = 1
    inner()
outer("t", "o")
"""


def test_variables_that_are_not_in_the_frame(world, python):
    """Cells of this and of outer functions, a class body's, a module's, a comprehension's."""
    target = world.start(python, ELSEWHERE).inject()
    frames = target.threads("--locals", "--python")[target.pid]["frames"]
    seen = {f["func"].split(".")[-1]: f["locals"] for f in frames}
    one = {"type": "list", "len": 1, "items": [1]}
    assert seen["outer"] == {"own": "o", "taken": "t", "late": one, "inner": {
        "type": "function", "name": "outer.<locals>.inner"}}
    assert seen["inner"] == {"taken": "t", "late": one, "innermost": {
        "type": "function", "name": "outer.<locals>.inner.<locals>.innermost"}}
    assert seen["<module>"] == {
        "step": 12, "config": {"type": "Config", "attributes": {"rate": 0.5}}}
    assert seen["Body"]["field"] == 5
    assert dict(seen["Body"], **seen.get("<listcomp>", {}))["turn"] == 8


def test_many_and_long_variables_are_bounded(world, python):
    body = "\n".join("    v%d = ['%s' * 20, {i: 'y' * 96 for i in range(9)}]" % (i, "\\u00e9")
                     for i in range(60))
    target = world.start(python, "import time\ndef f():\n%s\n    print('ready', flush=True)\n"
                         "    time.sleep(600)\nf()\n" % body).inject()
    seen = locals_of(target)
    assert "..." in seen and 5 < len(seen) <= 65
    assert seen["v0"]["items"][0] == "\u00e9" * 20
    assert len(json.dumps(seen, ensure_ascii=False).encode()) < 20000


def test_arrays(world):
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode:
        pytest.skip("no numpy for %s (Debian: python3-numpy)" % python)
    target = world.start(python, """
import numpy, time
def f():
    a, b = numpy.zeros((3, 4), dtype="float32"), numpy.arange(5)
    c, d, e = numpy.array(1.0), numpy.int16(-3), numpy.float32(0.1)
    g, h = numpy.float64(2), numpy.bool_(True)
    print("ready", flush=True)
    time.sleep(600)
f()
""").inject()
    assert locals_of(target) == {
        "a": {"type": "numpy.ndarray", "shape": [3, 4], "dtype": "float32"},
        "b": {"type": "numpy.ndarray", "shape": [5], "dtype": "int64"},
        "c": {"type": "numpy.ndarray", "shape": [], "dtype": "float64"},
        "d": {"type": "numpy.int16", "value": -3}, "e": {"type": "numpy.float32", "value": 0.1},
        "g": {"type": "numpy.float64", "value": 2.0}, "h": {"type": "numpy.bool_", "value": True}}


def test_tensors(world):
    """Each torch that is here: its layout is no promise."""
    tried = 0
    for python in ["/usr/bin/python3", str(ROOT / "build" / "torch" / "bin" / "python")]:
        if not os.path.exists(python) or not has_torch(python):
            continue
        tried += 1
        target = world.start(python, """
import time, torch
class Mine(torch.Tensor): pass
def f():
    a, b = torch.zeros(3, 5, 7), torch.nn.Parameter(torch.zeros(2, dtype=torch.float16))
    c, d = torch.tensor(1.0), torch.zeros(1, 2, 3, 1, 2, 2, dtype=torch.int64)[:, :1]
    e, g = torch.zeros(0, 4, dtype=torch.bool), torch.zeros(6).as_subclass(Mine)
    h, i = [torch.zeros(9)], torch.tensor([[-7]], dtype=torch.int16)
    j, k, part = torch.tensor(True), torch.tensor(250, dtype=torch.uint8), torch.arange(9.)[4]
    negative, meta = torch.tensor(1 + 2j).conj().imag, torch.zeros((), device="meta")
    half, lost = torch.tensor(1.5).half(), torch.tensor(float("nan"), dtype=torch.float64)
    print("ready", flush=True)
    time.sleep(600)
f()
""").inject()

        def tensor(name, dtype, *shape):
            return {"type": name, "shape": list(shape), "dtype": dtype, "device": "cpu"}
        assert locals_of(target) == {
            "a": tensor("Tensor", "float32", 3, 5, 7), "b": tensor("Parameter", "float16", 2),
            "c": dict(tensor("Tensor", "float32"), value=1.0),
            "d": tensor("Tensor", "int64", 1, 1, 3, 1, 2, 2),
            "e": tensor("Tensor", "bool", 0, 4), "g": tensor("Mine", "float32", 6),
            "h": {"type": "list", "len": 1, "items": [tensor("Tensor", "float32", 9)]},
            "i": dict(tensor("Tensor", "int16", 1, 1), value=-7),
            "j": dict(tensor("Tensor", "bool"), value=True),
            "k": dict(tensor("Tensor", "uint8"), value=250),
            "part": tensor("Tensor", "float32"), "negative": tensor("Tensor", "float32"),
            "meta": {"type": "Tensor", "shape": [], "dtype": "float32"},
            "half": tensor("Tensor", "float16"),
            "lost": dict(tensor("Tensor", "float64"), value="nan")}
    if not tried:
        pytest.skip("no torch (Debian: python3-torch; or build/torch)")


RUNNING = r"""
def leaf(number, text):
    total = number + len(text)
    return total
def work(steps):
    for step in range(1 << 60):
        value = leaf(step, "abc")
def main():
    name = "it runs"
    print("ready", flush=True)
    work(1)
main()
"""


@pytest.mark.some_pythons
def test_variables_of_frames_that_come_and_go(world, python):
    """The frame had gone before its variables were read: they were missing, and nothing said so."""
    target = world.start(python, RUNNING).inject()
    expected = {"leaf": {"number", "text"}, "work": {"steps", "step"}, "main": {"name"}}
    leaves = whole = noted = 0
    for _ in range(150):
        for frame in target.threads("--locals")[target.pid]["frames"]:
            if frame["func"] not in expected:
                continue
            if frame["locals"] is None:
                assert frame["note"] == "locals could not be read: the frame was running"
                noted += 1
                continue
            assert expected[frame["func"]] <= set(frame["locals"]), frame
            whole += 1
            leaves += frame["func"] == "leaf"
    assert leaves and whole > noted, (whole, noted, leaves)
    text = target.probing("backtrace", "--locals").stdout
    assert '"steps":1' in text
    for _ in range(20):  # nothing holds the thread here: what is missing is said
        for frame in target.threads("--locals", "--python")[target.pid]["frames"]:
            assert frame["locals"] is not None or "note" in frame
    assert target.alive()
