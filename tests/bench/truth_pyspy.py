#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of tests/truth, which know where their time went, seen by us, by py-spy and, on a
CPython 3.15, by Tachyon (python -m profiling.sampling).

usage: tests/bench/truth_pyspy.py [--python PYTHON] [--py-spy PY_SPY] [--rounds N] [--contended]
       pip install py-spy

Each program runs once beside each of them, for four seconds: the total variation of the shares of
its functions against what the program says of that run (half the sum of all distances), and the
samples whose stack cannot be.  --contended: beside a busy process for each processor.
"""
import argparse
import contextlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "truth"), str(TESTS / "bench")]

import truth  # noqa: E402
from figures import figure, skip  # noqa: E402
import world  # noqa: E402

RATE = 100
PROGRAMS = [("cpu", "mix.py"), ("wall", "waits.py"), ("wall", "short_waits.py"),
            ("wall", "crowded.py")]


def by_us(place, mode, program, python):
    run = truth.Run(place, program, python, truth.sample(mode, RATE))
    answer = run.answer()
    return answer, truth.stacks_of(run.target, mode + "_ns")


def from_outside(place, mode, program, python, words):
    """A tool that writes folded stacks to the file that is the last of its words."""
    out = place.tmp / "folded.txt"
    started = []

    def enter(target):
        started.append(subprocess.Popen(words(target.pid) + [str(out)], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL))
    answer = truth.Run(place, program, python, enter).answer()
    started[0].wait()
    stacks = []
    for line in out.read_text().splitlines():
        frames, n = line.rsplit(" ", 1)
        own = [re.split(r" \(|:\d+$", frame)[0].rpartition(":")[2].rpartition(".")[2]
               for frame in frames.split(";")]
        own = [name for name in own if name != "wrapper"]
        if "work" in own:
            stacks.append(truth.Stack(own[own.index("work") + 1:], own[-1], samples=int(n),
                                      ns=int(n), longest=1, squares=int(n)))
    return answer, stacks


def by_py_spy(place, mode, program, python, py_spy):
    return from_outside(place, mode, program, python, lambda pid: [
        py_spy, "record", "-p", str(pid), "-d", str(truth.SECONDS + 2), "-r", str(RATE), "-f",
        "raw"] + ["--idle"] * (mode == "wall") + ["-o"])


def by_tachyon(place, mode, program, python):
    return from_outside(place, mode, program, python, lambda pid: [
        python, "-m", "profiling.sampling", "attach", str(pid), "-a", "-d",
        str(truth.SECONDS + 2), "-r", str(RATE), "--mode", mode, "--collapsed", "-o"])


def judged(answer, stacks, mode):
    """(total variation in percent, samples, impossible ones)"""
    known = {tuple(chain[:n]) for chain in answer["chains"] for n in range(len(chain) + 1)}
    samples = sum(stack.samples for stack in stacks)
    wrong = sum(stack.samples for stack in stacks if tuple(stack.own) not in known)
    whole = answer["all_" + mode]
    apart = [seen - share for _, share, seen, _ in truth.shares(stacks, answer[mode], whole)]
    apart.append(-sum(apart))  # what is in `work` itself
    return 50 * sum(map(abs, apart)), samples, wrong


def has_tachyon(python):
    return subprocess.run([python, "-c", "import profiling.sampling"],
                          stderr=subprocess.DEVNULL).returncode == 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("--python", default=world.DEBIAN_PYTHON)
    parser.add_argument("--py-spy", default=shutil.which("py-spy"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--contended", action="store_true")
    options = parser.parse_args()
    lookers = [("probing", by_us, ())]
    if options.py_spy:
        lookers.append(("py-spy", by_py_spy, (options.py_spy,)))
    if has_tachyon(options.python):
        lookers.append(("tachyon", by_tachyon, ()))
    if len(lookers) == 1:
        skip("no py-spy: pip install py-spy")
    for mode, program in PROGRAMS:
        found = {who: [] for who, _, _ in lookers}
        for _ in range(options.rounds):
            for who, look, more in lookers:
                with tempfile.TemporaryDirectory() as folder, \
                        truth.contention() if options.contended else contextlib.nullcontext():
                    for place in world.lend(world.World(Path(folder))):
                        found[who].append(judged(*look(place, mode, program, options.python,
                                                       *more), mode))
        what = "%s, %s%s: " % (mode, program, ", contended" if options.contended else "")
        for who, rows in found.items():
            far = statistics.median(row[0] for row in rows)
            compared = {}
            for other in found:
                theirs = statistics.median(row[0] for row in found[other])
                if who == "probing" and other != who and theirs:
                    compared = {"against": what + other, "ratio": far / theirs}
            figure(what + who, "% total variation", median=far, most=max(row[0] for row in rows),
                   samples=sum(row[1] for row in rows), impossible=sum(row[2] for row in rows),
                   **compared)


main()
