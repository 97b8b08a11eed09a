# SPDX-License-Identifier: Apache-2.0
"""memory.python_allocator: small blocks are sampled, once, and Python's allocators put back."""
import json
import os
import sys

import pytest

from memory_truth import SIGMAS, UNSEEN
from pythons import PYTHONS
from world import CLI, IDLE, wait_for

PROGRAM = """
import os, sys, threading, tracemalloc
keep = []
def churn():
    while True:
        [{i: str(i) * 3} for i in range(100)]
if sys.argv[1] == 'threads':
    for _ in range(4):
        threading.Thread(target=churn, daemon=True).start()
print('ready', flush=True)
pipe = open(sys.argv[2], 'r+b', buffering=0)
while True:
    word = pipe.readline().decode().strip()
    exec(word)
    print('did', word, flush=True)
"""


class Python:
    def __init__(self, world, python, mode="alone", env=None):
        self.pipe, script = world.tmp / "orders", world.tmp / "program.py"
        os.mkfifo(self.pipe)
        script.write_text(PROGRAM)
        self.target = world.start(python, str(script), mode, str(self.pipe), env=env)
        self.target.wait_line("ready")
        self.orders = open(self.pipe, "w", buffering=1)
        self.count = 0

    def __call__(self, order):
        self.orders.write(order + "\n")
        self.count += 1
        wait_for(lambda: self.target.output().count("did ") >= self.count
                 or not self.target.alive(), order)
        assert self.target.alive(), self.target.output()[-500:]

    def set(self, name, value):
        return self.target.probing("config", "set", "memory." + name, value)

    def told(self, domain):
        """Bytes that were allocated, estimated, and how far off that may be: where our thread is
        not let run for long, samples thin out."""
        (told, variance, widest), = self.target.rows(
            "select coalesce(sum(bytes), 0), coalesce(sum(count * (count - 1) * size * size), 0), "
            "(select sample_bytes_max from memory.sampling) from memory.samples where domain = '%s'"
            % domain)
        return told, SIGMAS * variance ** 0.5 + UNSEEN * widest

    def is_within(self, domain, least, most):
        told, off = self.told(domain)
        return least - off <= told <= most + off


@pytest.fixture(params=sorted(PYTHONS))
def python(request):
    return PYTHONS[request.param]


def test_small_blocks_are_seen_once_and_large_ones_by_malloc(world, python):
    program = Python(world, python)
    program.target.inject("--wait", "--plugin", "memory", "-D", "memory.sample_bytes=4096",
                          "-D", "memory.python_allocator=on", "-D", "memory.max_overhead_pct=0")
    program("keep.append([bytes(200 + i % 2) for i in range(50000)])")   # 233 bytes and one more
    wait_for(lambda: program.is_within("python", 11.7e6, 20e6), lambda: program.told("python"))
    # of malloc() the list itself, as it grows, not the blocks; no arena: those are 12 MB
    for domain in ("malloc", "mmap"):
        assert program.is_within(domain, 0, 9e6), (domain, program.told(domain))
    before, _ = program.told("python")
    program("keep.append([bytes(5000) for i in range(4000)])")
    wait_for(lambda: program.is_within("malloc", 20e6, 29e6), lambda: program.told("malloc"))
    assert program.is_within("python", 0, before + 9e6), (before, program.told("python"))


def test_on_and_off_while_threads_allocate(world, python):
    program = Python(world, python, "threads")
    program.target.inject("--wait", "--plugin", "memory", "-D", "memory.sample_bytes=16K")
    for _ in range(30):
        assert program.set("python_allocator", "on").returncode == 0
        assert program.set("python_allocator", "off").returncode == 0
    assert program.set("python_allocator", "on").returncode == 0
    program("keep.append([object() for i in range(10000)])")
    assert program.target.probing("plugin", "stop", "memory").returncode == 0
    program("keep.clear()")
    assert program.target.probing("plugin", "load", "memory").returncode == 0
    assert program.target.probing("eject").returncode == 0
    program("keep.append([object() for i in range(10000)])")


def test_another_tool_that_stands_before_us(world):
    program = Python(world, sys.executable)
    program.target.inject("--wait", "--plugin", "memory", "-D", "memory.python_allocator=on")
    program("tracemalloc.start()")
    assert program.set("python_allocator", "off").returncode == 0
    refused = program.set("python_allocator", "on")   # it goes on calling us: twice would never end
    assert refused.returncode != 0
    assert "another tool (tracemalloc, memray)" in refused.stderr
    program("keep.append([object() for i in range(10000)])")
    program("tracemalloc.stop()")
    assert program.set("python_allocator", "on").returncode == 0
    program("keep.append([object() for i in range(10000)])")
    assert program.set("python_allocator", "off").returncode == 0


def test_where_all_is_malloc_it_is_refused(world):
    program = Python(world, sys.executable, env={"PYTHONMALLOC": "malloc"})
    program.target.inject("--wait", "--plugin", "memory")
    refused = program.set("python_allocator", "on")
    assert refused.returncode != 0
    assert "allocates all by malloc()" in refused.stderr
    bad = program.set("python_allocator", "perhaps")
    assert "memory.python_allocator is on or off, not 'perhaps'" in bad.stderr


def test_where_mimalloc_is_inside_it_is_said(world):
    """Free-threaded builds have it, and 3.13 if it is asked for."""
    newer = [path for version, path in PYTHONS.items()
             if tuple(map(int, version.rstrip("t").split(".")[:2])) >= (3, 13)]
    if not newer:
        pytest.skip("no Python of 3.13 or newer here")
    for path in newer:
        target = world.python(IDLE, python=path, env={"PYTHONMALLOC": "mimalloc"})
        target.wait_line("ready")
        target.inject("--plugin", "memory")
        words = "what Python allocates for itself, as this one has mimalloc inside"
        assert target.rows("select not_seen from memory.sampling") == [[words]], path
        assert words in " ".join(target.probing("memory").stdout.split())
        done = target.probing("config", "memory.python_allocator=on")
        assert done.returncode != 0 and "mimalloc" in done.stderr, done.stderr


def test_a_python_that_begins_later(world):
    """launch loads the plugin before there is an interpreter."""
    end = world.tmp / "end"
    target = world.start(
        str(CLI), "launch", "--plugin", "memory", "-D", "memory.python_allocator=on",
        "-D", "memory.sample_bytes=4096", "--", sys.executable, "-c",
        "import os, sys, time\nprint('pid', os.getpid(), flush=True)\nkeep = []\n"
        "while not os.path.exists(sys.argv[1]):\n"
        "    keep = [bytes(200) for _ in range(100)]\n    time.sleep(0.001)", str(end))
    pid = target.wait_line(r"pid (\d+)")[1]

    def found():
        done = world.probing("-t", pid, "query", "--format", "json",
                             "select count(*) from memory.samples where domain = 'python'")
        return done.returncode == 0 and json.loads(done.stdout)["rows"][0][0] > 0
    wait_for(found, "samples of Python's domain")
    end.touch()
    assert target.process.wait(60) == 0
