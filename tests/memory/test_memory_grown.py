# SPDX-License-Identifier: Apache-2.0
"""A block that grows is growth, `memory` and its --leaks tell the same, and what has no stack is
told."""
import json
import re
import time

import pytest
import world as shared

MB = 1 << 20
FAST = ("-D", "memory.snapshot_interval=1s")

# One block is kept, and grows: in place or moved by realloc(), or as a longer copy.
BLOCKS = {
    "extend": ("b = bytearray()\n"
               "def extend(): b.extend(b'x' * 500000)\n", "len(b)"),
    "append": ("class a: b = bytearray()\n"
               "def append(): a.b = a.b + bytearray(500000)\n", "len(a.b)"),
    "listed": ("b = []\n"
               "def listed(): b.extend([None] * 62500)\n", "8 * len(b)")}
LOOP = ("import time\n"
        "%s"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    %s()\n"
        "    if %s >= %d << 20: break\n"
        "    time.sleep(0.03)\n"
        "print('full', %s, flush=True)\n"
        "while True: time.sleep(0.01)\n")


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_a_block_that_grows_is_a_leak(world, name):
    code, length = BLOCKS[name]
    target = world.python(LOOP % (code, name, length, 120, length))
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "memory", *FAST)
    target.wait_line("^full", timeout=300)
    full = time.time()
    # The kernel's count amid the last copy has the block twice, and the report ends a second ago.
    shared.wait_for(lambda: target.rows("select extract(epoch from now() - min(ts)) > 1 from "
                                        "memory.usage where ts > to_timestamp(%.6f)" % full)[0][0],
                    "a count of the full block, in the time that is reported")
    assert target.rows("select count(distinct snapshot_id) > 1 from memory.snapshots")[0][0]
    said = target.probing("memory").stdout
    grown, = re.findall(r"^grown the most in the last \d+ s\n  (\w+) ", said, flags=re.M)
    assert grown == name, said
    report = json.loads(target.probing("memory", "--leaks", "--json").stdout)
    leak, = report["leaks"]
    truth = int(re.search(r"^full (\d+)", target.output(), flags=re.M).group(1))
    assert leak["function_name"] == name and leak["count"] < 4, report
    # of a list up to an eighth more than it has, or a copy and its original
    most = (2 if name == "append" else 1.2) * truth
    assert 0.5 * truth < leak["grown_bytes"] < most + 6 * leak["grown_bytes_error"], report
    assert report["without_stack_bytes"] < 0.3 * truth, report
    said = target.probing("memory", "--leaks").stdout
    assert re.search(r"^  %s  target-\d+\.py:\d+ +[\d.]+ MB \+- " % name, said, flags=re.M), said


def test_what_has_grown_and_is_no_leak_is_told_with_the_reason(world):
    """A cache that was filled: `memory` shows it as grown most, so --leaks may not be silent."""
    target = world.python("import time\n"
                          "kept = []\n"
                          "def fill(): kept.append(bytearray(1 << 20))\n"
                          "print('ready', flush=True)\n"
                          "for i in range(60):\n"
                          "    fill()\n"
                          "    time.sleep(0.01)\n"
                          "print('full', flush=True)\n"
                          "while True: time.sleep(0.01)\n")
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "memory", *FAST)
    target.wait_line("^full", timeout=300)
    shared.wait_for(lambda: target.rows("select extract(epoch from now() - since) > 8 from "
                                        "memory.sampling")[0][0], "a time in which nothing came")
    target.probing("memory", "--mark", "one")
    target.probing("memory", "--mark", "two")
    report = json.loads(target.probing("memory", "--leaks", "--json").stdout)
    assert report["leaks"] == [], report
    other, = report["no_leaks"]
    assert other["function_name"] == "fill" and other["grown_bytes"] > 20 * MB, report
    assert "every part of the time" in other["why_no_leak"], report
    said = target.probing("memory", "--leaks").stdout
    assert said.startswith("nothing grows and stays"), said
    assert re.search(r"^has grown, but not as a leak does .*\n\n  fill .*\n +it did not grow in "
                     "every part", said, flags=re.M), said
    assert "  fill " in target.probing("memory").stdout.partition("grown the most")[2]


def test_growth_without_a_stack_is_told(world):
    """malloc() by the address that dlsym() has given: no call of it is seen."""
    go = world.tmp / "go"
    target = world.python("import ctypes, os, time\n"
                          "libc = ctypes.CDLL('libc.so.6')\n"
                          "libc.malloc.restype = ctypes.c_void_p\n"
                          "kept = []\n"
                          "def seen(): kept.append(bytearray(b'x' * 500000))\n"
                          "def unseen(): ctypes.memset(libc.malloc(1000000), 1, 1000000)\n"
                          "print('ready', flush=True)\n"
                          "while not os.path.exists(%r): time.sleep(0.01)\n"
                          "for i in range(100):\n"
                          "    seen()\n"
                          "    unseen()\n"
                          "    time.sleep(0.05)\n"
                          "print('full', flush=True)\n"
                          "while True: time.sleep(0.01)\n" % str(go))
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "memory", *FAST)
    shared.wait_for(lambda: target.rows("select count(*) > 1 from memory.usage")[0][0], "a look")
    go.touch()
    target.wait_line("^full", timeout=300)

    def told():
        report = json.loads(target.probing("memory", "--leaks", "--json").stdout)
        return report if report["program_grown_bytes"] > 140e6 else None
    report = shared.wait_for(told, "the kernel's count of it")
    assert 70e6 < report["without_stack_bytes"] < 140e6, report
    assert "seen" in [leak["function_name"] for leak in report["leaks"]], report
    said = " ".join(target.probing("memory", "--leaks").stdout.split())
    assert re.search(r"has grown by 1\d\d MB in this time; \d+(\.\d)? MB of that have no stack",
                     said), said


def test_a_copy_is_not_growth_without_a_stack(world):
    """One block of 60 MB, half of the time with its copy: the kernel counts it at some moments, and
    its stacks are added up at the same."""
    go = world.tmp / "go"
    target = world.python("import os, time\n"
                          "def copy(b):\n"
                          "    c = bytearray(b)\n"
                          "    time.sleep(0.15)\n"
                          "    return c\n"
                          "print('ready', flush=True)\n"
                          "while not os.path.exists(%r): time.sleep(0.01)\n"
                          "b = bytearray(60 << 20)\n"
                          "while True:\n"
                          "    b = copy(b)\n"
                          "    time.sleep(0.15)\n" % str(go))
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "memory", *FAST)
    counts = "select count(*) from memory.usage"
    shared.wait_for(lambda: target.rows(counts)[0][0] > 1, "a look")
    go.touch()
    shared.wait_for(lambda: target.rows("select count(distinct snapshot_id) > 1 from "
                                        "memory.snapshots where ts < now() - interval '2 s'")[0][0],
                    "two snapshots in the time that is reported")
    for _ in range(12):
        (last,), = target.rows(counts)
        shared.wait_for(lambda: target.rows(counts)[0][0] > last, "another count")
        report = json.loads(target.probing("memory", "--leaks", "--json").stdout)
        assert report["leaks"] == [] and report["without_stack_bytes"] == 0, report
