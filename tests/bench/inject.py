# SPDX-License-Identifier: Apache-2.0
"""How long is a process stopped when it is entered?  Fresh targets, so nothing is warm by luck.

usage: tests/bench/inject.py [rounds]      needs a build; prints milliseconds
"""
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"

THREADS = ("import threading, time\n"
           "for _ in range(%d):\n"
           "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
           "print('ready', flush=True)\ntime.sleep(600)")
TARGETS = {
    "sleeping": "import time\nprint('ready', flush=True)\ntime.sleep(600)",
    "spinning": "print('ready', flush=True)\nwhile True: pass",
    "allocating": "print('ready', flush=True)\n"
                  "while True: [bytearray(n) for n in range(100, 100000, 999)]",
    "16 threads": THREADS % 15,
    "256 threads": THREADS % 255,
    "torch": "import torch\n"
             "torch.set_num_threads(1)\n"
             "model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 8))\n"
             "optimizer = torch.optim.Adam(model.parameters())\n"
             "step = 0\n"
             "while True:\n"
             "    optimizer.zero_grad()\n"
             "    model(torch.randn(64, 256)).square().mean().backward()\n"
             "    optimizer.step()\n"
             "    step += 1\n"
             "    if step == 20: print('ready', flush=True)\n",
}


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


def column(values):
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return "%6.2f %6.2f %6.2f" % (cuts[49], cuts[98], max(values))


def main():
    rounds = max(2, int(sys.argv[1])) if len(sys.argv) > 1 else 20
    print("%-12s %6s   %-22s  %-22s  %s" % ("", "", "stopped", "inject", "command"))
    print("%-12s %6s" % ("target", "rounds") + "   median    p99    max" * 3)
    with tempfile.TemporaryDirectory() as data:
        env = dict(os.environ, PROBING_DATA_DIR=data, OMP_NUM_THREADS="1")
        for name, source in TARGETS.items():
            python = python_for(name)
            if python is None:
                print("%-12s left out: no %s here" % (name, name))
                continue
            columns = list(zip(*(enter_once(python, source, env) for _ in range(rounds))))
            print("%-12s %6d   " % (name, rounds) + "   ".join(column(c) for c in columns),
                  flush=True)


if __name__ == "__main__":
    main()
