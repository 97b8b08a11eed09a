# SPDX-License-Identifier: Apache-2.0
"""After a program's end: what it had is shown, though it freed all of it on its way out; and the
peak is never below what is alive, of the living and of the dead."""
import json
import re

import world as shared

MB = 1 << 20

# It keeps 40 MB until it ends, and its end takes so long that our thread sees it free them.
ENDING = ("import os, time\n"
          "keep = []\n"
          "def grow(): keep.append(bytearray(1 << 20))\n"
          "print('ready', flush=True)\n"
          "while not os.path.exists(%r): time.sleep(0.01)\n"
          "for i in range(40):\n"
          "    grow()\n"
          "    time.sleep(0.03)\n"
          "print('full', flush=True)\n"
          "while not os.path.exists(%r): time.sleep(0.01)\n"
          "keep.clear()\n"
          "time.sleep(2)\n")


def grown(world, *options):
    """40 times 1 MiB, with a sample of each."""
    go, end = world.tmp / "go", world.tmp / "end"
    target = world.python(ENDING % (str(go), str(end)))
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "memory", "-D", "memory.sample_bytes=32KB",
                  "-D", "memory.max_overhead_pct=0", *options)
    go.touch()
    target.wait_line("^full", timeout=300)
    return target, end


def folded(target, mode):
    """The picture's bytes by its innermost function, and what was said of it."""
    done = target.probing("flamegraph", mode, "-f", "folded")
    assert done.returncode == 0, done.stderr
    return sum(int(line.rpartition(" ")[2]) for line in done.stdout.splitlines()
               if "grow (" in line), done.stderr


def test_what_was_freed_at_the_end_is_shown(world):
    target, end = grown(world)
    for name in ("one", "two"):  # for a growth there are two at least
        assert target.probing("memory", "--mark", name).returncode == 0
    end.touch()
    assert target.process.wait(timeout=shared.LIMIT) == 0
    (alive,), = target.rows("select heard_bytes from memory.ended")
    assert alive < 4 * MB, "the program freed what it had, and we saw it"
    truth = 40 * MB
    for mode in ("memory", "memory_peak"):
        bytes, said = folded(target, mode)
        assert abs(bytes - truth) < 2 * MB, (mode, bytes)
        assert ("before it freed most of it" in said) == (mode == "memory"), (mode, said)
    said = target.probing("memory").stdout
    assert re.search(r"^alive \d+\.\d s before it was last heard of, when it had freed most, .*\n"
                     r"  grow .* (39|4[0-2])\.\d MB", said, flags=re.M), said
    report = json.loads(target.probing("memory", "--leaks", "--json").stdout)
    assert report["freed_before_end_sec"] >= 0, report
    leak, = report["leaks"]
    assert leak["function_name"] == "grow" and abs(leak["alive_bytes"] - truth) < 2 * MB, leak
    assert 38 <= leak["count"] <= 42, leak
    said = target.probing("memory", "--leaks").stdout
    assert said.startswith("the process has ended, and freed most of what it had"), said
    peak = json.loads(target.probing("memory", "--peak", "--json").stdout)
    assert abs(peak["total_bytes"] - truth) < 4 * MB, peak
    assert peak["alive"][0]["function_name"] == "grow", peak


def test_what_was_not_freed_is_what_is_shown(world):
    target, _ = grown(world)
    shared.wait_for(lambda: folded(target, "memory")[0] > 38 * MB, "all samples")
    target.kill()
    bytes, said = folded(target, "memory")
    assert abs(bytes - 40 * MB) < 2 * MB and "before it freed" not in said, (bytes, said)
    assert folded(target, "memory_peak")[0] >= bytes
    assert target.rows("select ts = heard_ts from memory.ended") == [[True]]


UP_AND_DOWN = ("import time\n"
               "def grow(): return bytearray(300000)\n"
               "print('ready', flush=True)\n"
               "while True:\n"
               "    keep = []\n"
               "    for i in range(150):\n"
               "        keep.append(grow())\n"
               "        time.sleep(0.01)\n"
               "    time.sleep(0.5)\n")


def test_the_peak_is_never_below_what_is_alive(world):
    target = world.python(UP_AND_DOWN)
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "memory", "-D", "memory.sample_bytes=32KB",
                  "-D", "memory.max_overhead_pct=0")
    total = "select coalesce(sum(bytes), 0) from memory.%s"
    most = seen = 0
    while most < 40e6:
        (alive,), = target.rows(total % "live")
        (peak,), = target.rows(total % "peak")
        most, seen = max(most, alive), seen + 1
        assert peak >= most, (seen, peak, most)
    target.kill()
    (alive,), = target.rows(total % "live")
    (peak,), = target.rows(total % "peak")
    assert peak >= max(most, alive), (peak, most, alive)
