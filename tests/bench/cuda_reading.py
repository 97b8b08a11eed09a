# SPDX-License-Identifier: Apache-2.0
"""What the cuda plugin's reading of records costs: CPU time of probing's threads while so many
short kernels a second are recorded, each with its call.

usage: cuda_reading.py [--seconds N] [--rates N...]

The records are a stand-in's (tests/cuda/libraries/standin_cupti.c): what CUPTI itself takes from a
program is not in these figures, and no GPU is needed.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from figures import figure
from system_threads import BUILD, times

PROGRAM = """
import ctypes, sys
driver = ctypes.CDLL(sys.argv[1] + "/libcuda.so.1")
driver.cuInit(0)
cupti = ctypes.CDLL(sys.argv[1] + "/libcupti.so")
cupti.standin_burst.argtypes = [ctypes.c_char_p, ctypes.c_uint32, ctypes.c_double]
print("ready", flush=True)
for line in sys.stdin:
    rate, seconds = line.split()
    cupti.standin_burst(b"void vectorized_elementwise_kernel<4>", int(rate), float(seconds))
    print("done", flush=True)
"""


def measure(target, env, rate, seconds):
    """CPU us a second of probing's threads, and {counter of cuda.tracing: how much was added}."""
    def tracing():
        asked = [os.path.join(BUILD, "probing"), "-t", str(target.pid), "query", "--format", "json",
                 "select state, kernels, lost from cuda.tracing"]
        said = subprocess.run(asked, env=env, check=True, stdout=subprocess.PIPE).stdout
        return json.loads(said)["rows"][0]

    while tracing()[0] != "tracing":
        time.sleep(0.1)
    old = tracing()
    begin, before = times(target.pid)
    target.stdin.write("%d %g\n" % (rate, seconds))
    target.stdin.flush()
    target.stdout.readline()
    new, seen = tracing(), None
    while new[1] != seen:  # until no more come
        seen = new[1]
        time.sleep(1)
        new = tracing()
    end, after = times(target.pid)
    spent = sum(us - before.get(tid, (name, 0))[1] for tid, (name, us) in after.items()
                if name.startswith("probing/"))
    return spent / seconds, new[1] - old[1], new[2] - old[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rates", type=int, nargs="*", default=[10000, 100000])
    options = parser.parse_args()
    env = dict(os.environ, PROBING_DATA_DIR=tempfile.mkdtemp())
    libraries = os.path.join(BUILD, "tests", "cuda", "libraries")
    target = subprocess.Popen([sys.executable, "-c", PROGRAM, libraries], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, env=env)
    try:
        target.stdout.readline()
        for words in ["inject", "-D", "cuda.window=always"], ["plugin", "load", "cuda"]:
            subprocess.run([os.path.join(BUILD, "probing"), "-t", str(target.pid)] + words, env=env,
                           check=True, stdout=subprocess.DEVNULL)
        for rate in options.rates:
            us, kernels, lost = measure(target, env, rate, options.seconds)
            figure("reading %d kernels a second" % rate, "us/s", cpu=us)
            figure("read of them", "kernels", read=kernels, lost=lost)
    finally:
        target.kill()
        target.wait()


if __name__ == "__main__":
    main()
