# SPDX-License-Identifier: Apache-2.0
"""Sums of samples, for the profiler's tests."""
import math
import re
import signal

import pytest
from world import BUILD

SIGMAS = 6    # of chance: a share is further off once in 500 million times
BIAS = 0.015  # what it may be wrong by beside that

HELPERS = BUILD / "tests" / "profile"


def helper(name):
    path = HELPERS / name
    if not path.exists():
        pytest.fail("%s is not built: run scons unit" % path)
    return str(path)


def folded(text):
    """[(frames outermost first, ns)] of folded stacks."""
    found = []
    for line in text.splitlines():
        stack, _, value = line.rpartition(" ")
        found.append((stack.split(";"), int(value)))
    return found


def name(frame):
    """A frame's function without its file: "Thread.run (threading.py)" is run."""
    return re.sub(r" \([^()]*\)$", "", frame).rpartition(".")[2]


def share(stacks, function):
    """Which part of all time has this function in its stack."""
    total = sum(value for _, value in stacks)
    return sum(v for s, v in stacks if function in map(name, s)) / total


def by_chance(target, part):
    """How far a share of CPU time that is `part` may be told from it: the samples decide, which are
    fewer, and of different weights, where the machine has little time for them."""
    total, squares = target.rows("select sum(cpu_ns)::double, sum(cpu_ns::double * cpu_ns) "
                                 "from python.samples")[0]
    return SIGMAS * math.sqrt(part * (1 - part) * squares) / total + BIAS


def handled_signals(pid):
    """Numbers of the signals that the process has handlers for."""
    with open("/proc/%d/status" % pid) as status:
        mask = int(re.search(r"^SigCgt:\s*(\w+)", status.read(), flags=re.M)[1], 16)
    return {n for n in range(1, signal.NSIG) if mask >> (n - 1) & 1}
