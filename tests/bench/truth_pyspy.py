#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of tests/truth, which know where their time went, seen by us and by py-spy.

usage: tests/bench/truth_pyspy.py [--python PYTHON] [--py-spy PY_SPY] [--rounds N]
       pip install py-spy

Each program runs once beside each of them, for four seconds: the largest distance of a function's
share to what the program says of that run, and the samples whose stack cannot be.
"""
import argparse
import shutil
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
PROGRAMS = [("cpu", "mix.py"), ("wall", "waits.py"), ("wall", "crowded.py")]


def by_us(place, mode, program, python):
    run = truth.Run(place, program, python, truth.sample(mode, RATE))
    answer = run.answer()
    return answer, truth.stacks_of(run.target, mode + "_ns")


def by_py_spy(place, mode, program, python, py_spy):
    out = place.tmp / "py-spy.txt"
    started = []

    def enter(target):
        words = [py_spy, "record", "-p", str(target.pid), "-d", str(truth.SECONDS + 2), "-r",
                 str(RATE), "-f", "raw", "-o", str(out)] + ["--idle"] * (mode == "wall")
        started.append(subprocess.Popen(words, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL))
    answer = truth.Run(place, program, python, enter).answer()
    started[0].wait()
    stacks = []
    for line in out.read_text().splitlines():
        frames, n = line.rsplit(" ", 1)
        own = [frame.split(" (")[0].rpartition(".")[2] for frame in frames.split(";")]
        own = [name for name in own if name != "wrapper"]
        if "work" in own:
            stacks.append(truth.Stack(own[own.index("work") + 1:], own[-1], samples=int(n),
                                      ns=int(n), longest=1, squares=int(n)))
    return answer, stacks


def judged(answer, stacks):
    """(largest distance in percent, samples, impossible ones)"""
    known = {tuple(chain[:n]) for chain in answer["chains"] for n in range(len(chain) + 1)}
    samples = sum(stack.samples for stack in stacks)
    wrong = sum(stack.samples for stack in stacks if tuple(stack.own) not in known)
    far = max(abs(seen - share) for _, share, seen, _
              in truth.shares(stacks, answer[mode], answer["all_" + mode]))
    return 100 * far, samples, wrong


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("--python", default=world.DEBIAN_PYTHON)
    parser.add_argument("--py-spy", default=shutil.which("py-spy"))
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    if not options.py_spy:
        skip("no py-spy: pip install py-spy")
    for mode, program in PROGRAMS:
        found = {"py-spy": [], "probing": []}
        for _ in range(options.rounds):
            for who, look, more in (("py-spy", by_py_spy, (options.py_spy,)),
                                    ("probing", by_us, ())):
                with tempfile.TemporaryDirectory() as folder:
                    for place in world.lend(world.World(Path(folder))):
                        found[who].append(judged(*look(place, mode, program, options.python,
                                                       *more)))
        what = "%s, %s: " % (mode, program)
        for who, rows in found.items():
            far, theirs = max(row[0] for row in rows), max(row[0] for row in found["py-spy"])
            compared = {"against": what + "py-spy", "ratio": far / theirs} \
                if who == "probing" and theirs else {}
            figure(what + who, "% off", most=far, samples=sum(row[1] for row in rows),
                   impossible=sum(row[2] for row in rows), **compared)


main()
