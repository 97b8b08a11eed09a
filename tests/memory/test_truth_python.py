# SPDX-License-Identifier: Apache-2.0
"""The memory plugin's live blocks are those that a program in Python knows it keeps."""
import re

import pytest
from memory_truth import SIGMAS, UNSEEN, compare, let_it_run, told, widest
from pythons import PYTHONS, some
from world import DEBIAN_PYTHON, wait_for

PROGRAM = """
import gc, sys, threading, time
kept, cache = [], {}
def leak_bytes():
    for i in range(2000):
        kept.append(bytearray(50000))
def leak_cycles():
    class Node: pass
    for i in range(1500):
        a, b = Node(), Node()
        a.other, b.other, a.payload = b, a, bytearray(20000)
def leak_in_thread():
    for i in range(1000):
        kept.append(bytearray(30000))
def leak_objects():
    kept.append([object() for i in range(2000000)])
def leak_comprehension():
    kept.append([bytearray(40000) for i in range(1000)])
def fill_cache(rounds):
    for i in range(rounds):
        cache[i % 500] = bytearray(60000)
def churn():
    for i in range(2000):
        [bytearray(n) for n in range(1000, 50000, 1000)]
def wait_for(path):
    while True:
        try:
            return open(path)
        except OSError:
            time.sleep(0.001)
def alive(function, bytes, count):
    print("alive", function, bytes, count, flush=True)
gc.disable()
print("ready", flush=True)
wait_for(sys.argv[1])
churn()
alive("churn", 0, 0)
wait_for(sys.argv[2])
leak_bytes()
alive("leak_bytes", 2000 * 50000, 2000)
leak_cycles()
alive("leak_cycles", 1500 * 20000, 1500)
threads = [threading.Thread(target=leak_in_thread, name="leaker %d" % i) for i in range(3)]
for t in threads: t.start()
for t in threads: t.join()
alive("leak_in_thread", 3 * 1000 * 30000, 3000)
leak_objects()
leak_comprehension()
alive("leak_comprehension", 1000 * 40000, 1000)
fill_cache(3000)
alive("fill_cache", 500 * 60000, 500)
churn()
alive("churn", 0, 0)
print("done", flush=True)
while True:
    time.sleep(0.01)
"""


def enter(world, python, *settings):
    go, then = world.tmp / "go", world.tmp / "then"
    script = world.tmp / "leaks.py"
    script.write_text(PROGRAM)
    target = world.start(python, "-u", str(script), str(go), str(then))
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "memory")
    return target, let_it_run(target, go, then, *settings), str(script)


@pytest.mark.parametrize("version", sorted(some("test_leaks_are_found_by_name")))
def test_leaks_are_found_by_name(world, version):
    target, truth, script = enter(world, PYTHONS[version])
    found = told(target, "memory.live where domain = 'malloc'")
    # other small things are of the same functions: growing lists, code, threads' stacks
    compare(found, truth, widest(target), slack=2 << 20)
    assert found["leak_bytes"][-1] == script
    names = {row[0] for row in target.rows(
        "select distinct thread_name from memory.allocations where function_name = "
        "'leak_in_thread' and size > 20000")}
    # a thread that has ended by then is called as the kernel called it
    assert names and all(re.match("leaker [0-2]$|python", name) for name in names), names


def test_small_objects_are_seen_by_their_arenas(world):
    """pymalloc asks for arenas by mmap(): who asked for one is whose objects fill it."""
    target, _, _ = enter(world, DEBIAN_PYTHON, "memory.max_overhead_pct=0")
    found = told(target, "memory.live where domain = 'mmap'")
    compare(found, {"leak_objects": (32000000, 0)}, widest(target), slack=4 << 20)
    assert found["leak_objects"][0] > 0


HEALTHY = """
import time
def load():
    return [bytearray(300000) for i in range(100)]
def step(state):
    work = [bytearray(n) for n in range(10000, 200000, 1000)]
    state[len(work) % 7] = work[-1]
state, n = load(), 0
print("ready", flush=True)
while True:
    step(state)
    n += 1
    if n % 100 == 0:
        print("steps", n, flush=True)
"""


def test_a_healthy_loop_does_not_grow(world):
    target = world.python(HEALTHY, DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "memory")
    target.wait_line("^steps 200$", timeout=300)
    assert target.probing("mark", "early").returncode == 0
    steps = int(re.findall(r"^steps (\d+)", target.output(), flags=re.M)[-1])
    target.wait_line("^steps %d$" % (steps + 1500), timeout=300)
    assert target.probing("mark", "late").returncode == 0
    rows = dict((row[0], row[1:]) for row in target.rows(
        "select name, max(total_bytes), sqrt(sum(bytes_error::double * bytes_error)) from "
        "memory.snapshots where kind = 'mark' group by name"))
    (most,), = target.rows("select sample_bytes_max from memory.sampling")
    error = (rows["early"][1] ** 2 + rows["late"][1] ** 2) ** 0.5
    print(rows)
    # one step's own blocks come and go between the two
    assert rows["late"][0] - rows["early"][0] <= SIGMAS * error + UNSEEN * most + 20e6
    (allocated,), = target.rows("select sum(bytes) from memory.allocations")
    assert allocated > 20 * (rows["late"][0] + 1e6)
    assert wait_for(lambda: target.rows("select count(*) from memory.frees")[0][0] > 100, "ends")
