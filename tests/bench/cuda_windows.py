# SPDX-License-Identifier: Apache-2.0
"""How much of the time CUDA is traced with cuda.window as it is usual, while a program makes so
many calls a second; and which share of its time they cost, by the figure that the plugin reckons
with.  Measured from the begin of the first window to that of a later one.

usage: cuda_windows.py [--seconds N] [--rates N...]

The calls are a stand-in's (tests/cuda/libraries/standin_cupti.c), and the device waits for each of
them: what CUPTI itself takes from a program is not in these figures, and no GPU is needed.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from cuda_reading import PROGRAM
from figures import figure, remark
from system_threads import BUILD


def begin(env):
    libraries = os.path.join(BUILD, "tests", "cuda", "libraries")
    target = subprocess.Popen([sys.executable, "-c", PROGRAM, libraries], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, env=env)
    target.stdout.readline()
    for words in ["inject"], ["plugin", "load", "cuda"]:
        subprocess.run([os.path.join(BUILD, "probing"), "-t", str(target.pid)] + words, env=env,
                       check=True, stdout=subprocess.DEVNULL)
    return target


def measure(rate, seconds):
    """The share of the time that is traced, the most that it costs, and why it is no more."""
    env = dict(os.environ, PROBING_DATA_DIR=tempfile.mkdtemp())
    target = begin(env)

    def tracing():
        asked = [os.path.join(BUILD, "probing"), "-t", str(target.pid), "query", "--format", "json",
                 "select state, traced_ns, records, reason, begun from cuda.tracing"]
        said = subprocess.run(asked, env=env, check=True, stdout=subprocess.PIPE).stdout
        return json.loads(said)["rows"][0]
    try:
        while tracing()[0] != "tracing":
            time.sleep(0.1)
        before, begun = tracing(), time.monotonic()
        target.stdin.write("%d %g\n" % (rate, 100 * seconds))
        target.stdin.flush()
        last = after = before
        while time.monotonic() < begun + seconds or (after[3] and after[4] == last[4]):
            time.sleep(0.1)  # and until a window begins: then the last one is paid for
            last, after = after, tracing()
        elapsed = time.monotonic() - begun
        calls = (after[2] - before[2]) / 2  # a record of each, and one of its kernel
        return (after[1] - before[1]) / 1e9 / elapsed, calls * 8e-6 / elapsed, after[3]
    finally:
        target.kill()
        target.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rates", type=int, nargs="*", default=[1000, 10000, 100000])
    options = parser.parse_args()
    for rate in options.rates:
        traced, cost, reason = measure(rate, options.seconds)
        figure("traced of %d calls a second" % rate, "%", share=100 * traced)
        figure("cost of it at 8 us each", "%", most=100 * cost, goal="<= 2")
        remark(reason or "it traces all the time")


if __name__ == "__main__":
    main()
