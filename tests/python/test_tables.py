# SPDX-License-Identifier: Apache-2.0
"""Computed tables of what lives in the interpreter: objects, modules, the collector, tensors."""
import json
import subprocess

import pytest
from pythons import PYTHONS, is_threaded
from world import CLI, DEBIAN_PYTHON, has_torch, wait_for

pytestmark = pytest.mark.some_pythons

OBJECTS = """
import gc, sys, threading, time, types
class Node:
    def __init__(self): self.x = 1
class Loud:
    def __repr__(self): print("THEIR CODE RAN", flush=True); return "loud"
    __len__ = __sizeof__ = __hash__ = __str__ = __bool__ = __repr__
    def __getattribute__(self, name): print("THEIR CODE RAN", name, flush=True); raise OSError
class LoudMeta(type):
    def __hash__(self): print("THEIR CODE RAN", flush=True); return 1
    def __repr__(self): print("THEIR CODE RAN", flush=True); return "meta"
    def __getattribute__(self, name): print("THEIR CODE RAN", name, flush=True); raise OSError
Odd = LoudMeta("Odd", (), {})
keep = [Node() for _ in range(3000)], [Loud() for _ in range(7)], [type.__call__(Odd)]
lists = [[i] for i in range(20000)]
for n in range(400):
    m = types.ModuleType("many%d" % n)
    m.__file__, m.__version__ = "/many/%d.py" % n, "1.%d" % n if n % 2 else Loud
    sys.modules[m.__name__] = m
sys.modules["stranger"] = keep[1][0]
print("ready", flush=True)
n = 0
while True:
    n += 1
    garbage = [[] for _ in range(50)]
    time.sleep(0.001)
"""


def test_objects(world, python):
    target = world.start(python, OBJECTS).inject()
    for _ in range(3):
        seen = {row[0]: row[1:] for row in target.rows(
            "select type, count, size, repr from python.objects")}
        assert seen["Node"][0] == 3000 and seen["Loud"][0] == 7, seen["Node"]
        assert seen["Odd"][0] == 1 and seen["Odd"][2] == "<Odd>"
        assert seen["list"][0] >= 20000 and seen["list"][1] > 20000 * 64
        assert seen["Node"][1] >= 3000 * 32 and seen["Node"][2] == "<Node>"
    assert "THEIR CODE" not in target.output(), target.output()
    assert target.eval("gc.isenabled()").stdout == "True\n"


SUSPENDED = """
import sys, time, types
def count(): yield
async def wait(): pass
async def agen(): yield
kept = [count() for _ in range(50)] + [wait() for _ in range(40)] + [agen() for _ in range(30)]
sizes = {kind: [len(found), sum(map(sys.getsizeof, found))] for kind in (
    "generator", "coroutine", "async_generator") for found in [
    [one for one in kept if type(one).__name__ == kind]]}
print("ready", flush=True)
time.sleep(600)
"""


def test_sizes_of_what_is_suspended(world, python):
    """A generator has an item size and no count of items: it was shown with 7 petabytes."""
    target = world.start(python, SUSPENDED).inject()
    sizes = json.loads(target.eval("import json; print(json.dumps(sizes))").stdout)
    rows = target.rows("select type, count, size from python.objects "
                       "where type in ('generator', 'coroutine', 'async_generator')")
    for kind, count, size in rows:
        n, theirs = sizes.pop(kind)
        assert count >= n and theirs / n * count / 2 < size < theirs / n * count * 2, (kind, size)
    assert not sizes


def test_objects_are_not_all_copied(world, python):
    """A list of a million takes 30 ms and more, with the GIL: they are gone through in slices."""
    if is_threaded(python):
        pytest.skip("a free-threaded build has no such lists")
    target = world.start(python, OBJECTS).inject()
    assert target.eval("import gc; gc.get_objects = None").returncode == 0
    assert target.rows("select count from python.objects where type = 'Node'") == [[3000]]


def test_objects_of_too_many_classes_are_counted_together(world):
    python = list(PYTHONS.values())[0]
    target = world.start(python, """
import time
many = [type("Kind%d" % n, (), {})() for n in range(6000)]
print("ready", flush=True)
while True: time.sleep(0.01)
""").inject()
    rows = target.rows("select count(*) filter (where type like 'Kind%'), count(*), "
                       "sum(count) filter (where type like '(more%') from python.objects")
    assert rows[0][1] == 5001 and rows[0][2] >= 6000 - rows[0][0] > 0, rows


def test_modules(world, python):
    target = world.start(python, OBJECTS).inject()
    rows = target.rows("select name, version, file from python.modules where name like 'many%'")
    assert len(rows) == 400
    assert ["many7", "1.7", "/many/7.py"] in rows and ["many8", None, "/many/8.py"] in rows
    assert "THEIR CODE" not in target.output()


def test_generations(world, python):
    target = world.start(python, OBJECTS).inject()
    target.eval("gc.collect(); gc.set_threshold(701, 11, 12)")
    rows = target.rows("select * from python.gc_generations order by generation")
    assert [row[:1] + row[2:3] for row in rows] == [[0, 701], [1, 11], [2, 12]]
    assert rows[2][3] >= 1 and rows[2][6] >= 0  # 3.12 sets some aside by itself
    # the walk finds its lists again, with other thresholds too
    assert target.rows("select count from python.objects where type = 'Node'") == [[3000]]


def test_it_goes_on_meanwhile(world, python):
    """Slices: the main thread takes its turns while a table is made."""
    target = world.start(python, OBJECTS.replace("range(20000)", "range(400000)")).inject()
    before = int(target.eval("n").stdout)
    assert target.rows("select count(*) > 5 from python.objects") == [[True]]
    wait_for(lambda: int(target.eval("n").stdout) > before + 10, "turns of the main thread")


def test_the_gil_is_not_to_be_had(world):
    target = world.start(list(PYTHONS.values())[0], "import ctypes\nprint('ready', flush=True)\n"
                         "ctypes.PyDLL(None).sleep(600)").inject()
    done = target.probing("query", "select * from python.modules")
    assert done.returncode != 0 and "the GIL was not available" in done.stderr, done.stderr


def test_tensors(world):
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s (Debian: python3-torch)" % DEBIAN_PYTHON)
    target = world.start(DEBIAN_PYTHON, """
import time, torch
model = torch.nn.Linear(8, 16)
model(torch.ones(4, 8)).sum().backward()
class Mine(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        print("THEIR CODE RAN", func, flush=True)
        return super().__torch_function__(func, types, args, kwargs or {})
mine = torch.zeros(3, dtype=torch.float16).as_subclass(Mine)
meta = torch.ones(2, 2, device="meta")
many = [torch.zeros(7) for _ in range(1500)]
print("ready", flush=True)
while True: time.sleep(1)
""").inject()
    rows = target.rows("select shape, dtype, device, bytes, requires_grad, class, "
                       "round(grad_norm, 3) from python.tensors")
    assert ["(16, 8)", "float32", "cpu", 512, 1, "torch.nn.parameter.Parameter", 45.255] in rows
    assert ["(3,)", "float16", "cpu", 6, 0, "Mine", None] in rows
    assert ["(2, 2)", "float32", "meta", 16, 0, "torch.Tensor", None] in rows
    assert target.rows("select refcount, count(*) from python.tensors where shape = '(7,)' "
                       "group by 1") == [[1, 1500]], "our own are not counted"
    assert "THEIR CODE" not in target.output(), target.output()


def test_leaving_while_a_query_waits_for_the_gil(world):
    """Its worker waited ten seconds for the GIL, and eject for it."""
    target = world.start(list(PYTHONS.values())[0], "import ctypes\nprint('ready', flush=True)\n"
                         "ctypes.PyDLL(None).sleep(600)\n").inject()
    client = subprocess.Popen([str(CLI), "-t", str(target.pid), "query",
                               "select count(*) from python.objects"], env=world.env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for(lambda: target.rows("select count(*) from probing.clients where requests > 0")
             == [[2]], "the client, beside who asks for it")
    assert target.probing("eject").returncode == 0  # and did not wait: the client was told so
    assert b"leaving" in client.communicate(timeout=120)[1] and target.alive()
