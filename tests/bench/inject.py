# SPDX-License-Identifier: Apache-2.0
"""How long is a process stopped when it is entered?  Fresh targets, so nothing is warm by luck.

usage: tests/bench/inject.py [rounds]      needs a build; prints median and largest, in milliseconds
"""
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "build" / "release"

TARGETS = {
    "sleeping": "import time\nprint('ready', flush=True)\ntime.sleep(600)",
    "spinning": "print('ready', flush=True)\nwhile True: pass",
    "allocating": "print('ready', flush=True)\n"
                  "while True: [bytearray(n) for n in range(100, 100000, 999)]",
    "16 threads": "import threading, time\n"
                  "for _ in range(15):\n"
                  "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
                  "print('ready', flush=True)\ntime.sleep(600)",
}


def enter_once(source, env):
    """(milliseconds stopped, milliseconds in all, milliseconds until the core answered)."""
    target = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, env=env)
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


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print("%-12s %6s  %-19s %-19s %s" % (
        "target", "rounds", "stopped med / max", "inject med / max", "command med / max (ms)"))
    with tempfile.TemporaryDirectory() as data:
        env = dict(os.environ, PROBING_DATA_DIR=data)
        for name, source in TARGETS.items():
            columns = list(zip(*(enter_once(source, env) for _ in range(rounds))))
            print("%-12s %6d  " % (name, rounds) +
                  " ".join("%8.2f / %-8.2f" % (statistics.median(c), max(c)) for c in columns),
                  flush=True)


if __name__ == "__main__":
    main()
