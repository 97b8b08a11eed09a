# SPDX-License-Identifier: Apache-2.0
"""How long is a process stopped when it is entered?  Fresh targets, so nothing is warm by luck.

usage: tests/bench/inject.py [rounds [NAME]]      needs a build
"""
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import figure, remark

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"

# The first thread's work, and what each of the others does meanwhile.
BODIES = {
    "sleeping": ("time.sleep(600)", "time.sleep(600)"),
    "spinning": ("while True: pass", "while True: pass"),
    "allocating": ("while True: [bytearray(n) for n in range(100, 100000, 999)]",
                   "while True: [bytearray(n) for n in range(100, 100000, 999)]"),
    "torch": ("while True: step()", "time.sleep(600)"),
}
TORCH = """
import torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 8))
optimizer = torch.optim.Adam(model.parameters())
def step():
    optimizer.zero_grad()
    model(torch.randn(64, 256)).square().mean().backward()
    optimizer.step()
for _ in range(20): step()
"""
PROGRAM = """
import threading, time
%s
def other():
    %s
for _ in range(%d):
    threading.Thread(target=other, daemon=True).start()
print('ready', flush=True)
%s
"""
COUNTS = (1, 16, 256)


def program(name, threads):
    first, others = BODIES[name]
    return PROGRAM % (TORCH if name == "torch" else "", others, threads - 1, first)


def enter_once(python, source, env):
    """(milliseconds stopped, milliseconds in all, milliseconds until the core answered)."""
    target = subprocess.Popen([python, "-c", source], stdout=subprocess.PIPE, env=env)
    try:
        target.stdout.readline()
        began = time.perf_counter()
        done = subprocess.run([str(BUILD / "probing"), "-t", str(target.pid), "inject"],
                              capture_output=True, text=True, env=env)
        whole = (time.perf_counter() - began) * 1e3
        found = re.search(r"stopped for ([\d.]+) ms, ([\d.]+) ms in all", done.stdout)
        if not found:
            raise SystemExit("inject failed: " + done.stdout + done.stderr)
        return float(found.group(1)), float(found.group(2)), whole
    finally:
        target.kill()
        target.wait()


def python_for(name):
    """An interpreter that has what the target needs, or None."""
    wanted = "torch" if name == "torch" else "sys"
    for python in (sys.executable, "/usr/bin/python3"):
        done = subprocess.run([python, "-c", "import " + wanted], capture_output=True)
        if done.returncode == 0:
            return python
    return None


def tell(name, values, goal=None):
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    figure(name, "ms", median=cuts[49], least=min(values), p99=cuts[98], most=max(values),
           goal=goal)


def main():
    rounds = max(2, int(sys.argv[1])) if len(sys.argv) > 1 else 20
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    with tempfile.TemporaryDirectory() as data:
        env = dict(os.environ, PROBING_DATA_DIR=data, OMP_NUM_THREADS="1")
        for name in BODIES:
            python = python_for(name)
            if python is None:
                remark("%s is left out: no interpreter has it" % name)
            for threads in COUNTS if python and only in name else ():
                source = program(name, threads)
                columns = list(zip(*(enter_once(python, source, env) for _ in range(rounds))))
                what = "%s, %d threads: " % (name, threads)
                tell(what + "stands still", columns[0], "median 1, p99 3")
                tell(what + "inject", columns[1])
                tell(what + "until it answers", columns[2])


if __name__ == "__main__":
    main()
