# SPDX-License-Identifier: Apache-2.0
"""What the system plugin costs: CPU time a second of a process whose threads sleep.

usage: system_threads.py [--seconds N] [--threads N...]

All CPU time of the process is ours then, as its own threads wait.  "core" is without the plugin;
the plugin's own is what the workers use on top, the rest is the drain, which stores the rows, and
the control thread, which wakes the worker.  Only a machine that does nothing else gives figures to
quote; on a busy one the caches are cold at each look.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

from figures import figure

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PROBING_BUILD", os.path.join(ROOT, "build", "release"))


def times(pid):
    """{thread: (name, CPU time in us)}; and now, in seconds."""
    found, folder = {}, "/proc/%d/task" % pid
    for tid in os.listdir(folder):
        try:
            with open("%s/%s/comm" % (folder, tid)) as comm:
                name = comm.read().strip()
            with open("%s/%s/schedstat" % (folder, tid)) as stat:
                found[tid] = name, int(stat.read().split()[0]) / 1e3
        except OSError:
            continue
    return time.monotonic(), found


def measure(threads, plugin, seconds):
    """{thread name: us a second}"""
    env = dict(os.environ, PROBING_DATA_DIR=tempfile.mkdtemp())
    target = subprocess.Popen([os.path.join(BUILD, "tests", "system", "loads"),
                               "sleep=%d" % threads], stdout=subprocess.PIPE)
    try:
        target.stdout.readline()
        probing = [os.path.join(BUILD, "probing"), "-t", str(target.pid)]
        for words in (["inject"], ["plugin", "load", "system"])[:1 + plugin]:
            subprocess.run(probing + words, env=env, check=True, stdout=subprocess.DEVNULL)
        time.sleep(min(12, seconds))  # the first looks are dearer: every thread is new
        begin, before = times(target.pid)
        time.sleep(seconds)
        end, after = times(target.pid)
    finally:
        target.kill()
        target.wait()
    spent = {}
    for tid, (name, us) in after.items():
        us = (us - before.get(tid, (name, 0))[1]) / (end - begin)
        spent[name] = spent.get(name, 0) + us
    return spent


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--threads", type=int, nargs="*", default=[10, 300])
    options = parser.parse_args()
    for threads in options.threads:
        core = measure(threads, False, options.seconds)
        ours = measure(threads, True, options.seconds)
        what = "%d threads" % threads
        figure(what + ", core", "us/s", all=sum(core.values()))
        figure(what + ", with system", "us/s", all=sum(ours.values()), against=what + ", core",
               ratio=sum(ours.values()) / max(sum(core.values()), 1))
        figure(what + ", looks of system", "us/s",
               workers=ours.get("probing/work", 0) - core.get("probing/work", 0),
               goal="200 (0.02 % of a core) with 300 threads")


if __name__ == "__main__":
    sys.exit(main())
