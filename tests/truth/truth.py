# SPDX-License-Identifier: Apache-2.0
"""For the tests of truth: programs that know their own numbers, and what we say of the same time.

Both are of the same run, so what a busy machine does to a program is in both.  How far they may be
apart follows from how many samples there are, never from how long something took.
"""
import contextlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

from pythons import PYTHONS
from world import DEBIAN_PYTHON

HERE = Path(__file__).resolve().parent
LONG = bool(os.environ.get("PROBING_TEST_TRUTH"))
SECONDS = 20 if LONG else 4
RATE = 250          # samples a second: as often as a kernel's tick comes in most kernels
SIGMAS = 5          # a share is wrong by chance once in 1.7 million
BIAS = 0.015        # of all time: what a share may be wrong by beside that


def some_pythons():
    """All, or for the short form the system's and the newest."""
    paths = list(dict.fromkeys([DEBIAN_PYTHON, *PYTHONS.values()]))
    names = {path: name for name, path in PYTHONS.items()}
    found = [path for path in paths if path in names]
    newest = max(found, key=lambda path: tuple(int(n) for n in names[path].rstrip("t").split(".")))
    return {names[path]: path for path in found if LONG or path in (found[0], newest)}


@contextlib.contextmanager
def contention():
    """As many processes as there are processors, all of them busy."""
    code = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10000))"
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


class Run:
    """A program of targets/ that has worked under our eyes: `answer` is what it says of itself."""

    def __init__(self, world, name, python, enter, tag=""):
        self.go, self.file = world.tmp / (name + tag + ".go"), world.tmp / (name + tag + ".json")
        self.target = world.start(python, "-W", "ignore", "-u", str(HERE / "targets" / name),
                                  str(self.go), str(self.file), str(SECONDS))
        self.target.wait_line("ready")
        enter(self.target)
        self.go.touch()

    def answer(self):
        self.target.wait_line("done")
        return json.loads(self.file.read_text())


def sample(mode, rate=RATE):
    """The task of a Run with its program: take samples of it."""
    def enter(target):
        target.inject()
        for words in (("plugin", "load", "profile"), ("config", "profile.mode=" + mode),
                      ("config", "profile.rate=%d" % rate)):
            done = target.probing(*words)
            assert done.returncode == 0, done.stdout + done.stderr
    return enter


class Stack:
    """Of python.stacks: the program's own functions from `work` on, what the rest stands for, and
    its samples: how many, the sum of their times, the longest one's, the sum of their squares."""

    def __init__(self, own, leaf, samples, ns, longest, squares):
        self.own, self.leaf, self.samples, self.ns = own, leaf, samples, ns
        self.longest, self.squares = longest, squares

    def __repr__(self):
        return "%s %s: %d ns in %d samples, one of %d" % (self.own, self.leaf, self.ns,
                                                          self.samples, self.longest)


def stacks_of(target, value):
    """All [Stack] below `work`.  The profiler is stopped: a sample that it took is in the tables
    then, and none comes between the two queries."""
    done = target.probing("plugin", "stop", "profile")
    assert done.returncode == 0, done.stdout + done.stderr
    frames = {}
    for stack, kind, func, file in target.rows("select stack_id, frame_type, func, file from "
                                               "python.stacks order by stack_id, depth desc"):
        frames.setdefault(stack, []).append((kind, func, file or ""))
    found = []
    samples = ("select stack_id, count(*), sum({0}), max({0}), sum({0}::double * {0}) "
               "from python.samples where {0} > 0 group by 1").format(value)
    for stack, *numbers in target.rows(samples):
        own = [func.rpartition(".")[2] for kind, func, file in frames[stack]
               if kind == "python" and "/truth/targets/" in file]
        own = [func for func in own if func != "wrapper"]  # what keeps the account
        if "work" in own:
            found.append(Stack(own[own.index("work") + 1:], frames[stack][-1][1], *numbers))
    return found


def shares(stacks, truth, whole):
    """Of each function: its name, its share as the program says it (seconds of `truth` in `whole`),
    as we say it, and how far they may be apart by chance: samples are fewer, and of different
    weights, where the machine has little time for them."""
    all_ns = sum(stack.ns for stack in stacks)
    n = all_ns ** 2 / sum(stack.squares for stack in stacks)  # so many samples of one weight
    for name, seconds in truth.items():
        share = seconds / whole
        seen = sum(stack.ns for stack in stacks if stack.own[:1] == [name]) / all_ns
        yield name, share, seen, SIGMAS * math.sqrt(share * (1 - share) / n) + BIAS
