# SPDX-License-Identifier: Apache-2.0
"""What NCCL's threads pay for the nccl plugin: ns for a begin and end of an event.

usage: nccl_pairs.py [--rounds N]

tests/nccl/nccl_driver.c makes the calls as NCCL does, on one thread.  "no profiler" is NCCL's own
look at its mask; "without a core" is the plugin that NCCL has opened and nobody uses; "with" takes
the events.  A step is one transfer, a proxy operation has 4 to 64 of them, and a collective here
is with the kernel of its one channel: two pairs.
"""
import argparse
import os
import statistics
import subprocess
import tempfile

from figures import figure

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PROBING_BUILD", os.path.join(ROOT, "build", "release"))
PLUGIN = os.path.join(BUILD, "plugins", "nccl.so")
WAYS = {"no profiler": "none", "without a core": PLUGIN, "with": PLUGIN}


def measure(way, rounds):
    """{event: [ns of each round]}"""
    env = dict(os.environ, PROBING_DATA_DIR=tempfile.mkdtemp(), NCCL_PROFILER_PLUGIN=WAYS[way])
    driver = subprocess.Popen([os.path.join(BUILD, "tests", "nccl", "nccl_driver")], env=env,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        driver.stdout.readline()
        probing = [os.path.join(BUILD, "probing"), "-t", str(driver.pid)]
        for words in (["inject"], ["plugin", "load", "nccl"]) if way == "with" else ():
            subprocess.run(probing + words, env=env, check=True, stdout=subprocess.DEVNULL)
        found, _ = driver.communicate("comm 0 0xabc world 2 4 1\npairs %d\n" % rounds)
    finally:
        driver.kill()
        driver.wait()
    ns = {}
    for line in found.split("\n"):
        words = line.split()
        if words[:1] == ["pair"]:
            for name, value in zip(words[1::2], words[2::2]):
                ns.setdefault(name, []).append(float(value))
    return ns


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    for way in WAYS:
        for event, values in measure(way, options.rounds).items():
            figure("%s, %s" % (event, way), "ns", best=min(values),
                   median=statistics.median(values))


main()
