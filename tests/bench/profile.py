# SPDX-License-Identifier: Apache-2.0
"""What the profiler costs and how right it is, beside py-spy and austin where they can be run.

usage: profile.py [--python EXE] [--probing EXE] [--py-spy EXE] [--austin EXE] [--seconds N]
                  [--rounds N]

A target of 1 and of 50 Python threads spends 70 and 30 percent of its CPU time in two functions.
Each tool samples it at 100 and 1,000 Hz in turn.  Printed are, over the rounds: the least CPU time
that the tool itself used, in percent of a core (its process, or our thread); what a sample cost
the sampled threads (our handlers tell; tools outside stop the process instead, which py-spy does
and does not tell); loops of the target for a second of its CPU time against no tool, the best of
each; and the share of the 70 percent function, which should be 70.
"""
import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = '''
import sys, threading, time
loops = [0] * int(sys.argv[1])
def burn(n):
    total = 0
    for i in range(n):
        total += i * i
    return total
def seventy(k):
    end = time.thread_time() + 0.007
    while time.thread_time() < end:
        burn(200)
        loops[k] += 1
def thirty(k):
    end = time.thread_time() + 0.003
    while time.thread_time() < end:
        burn(200)
        loops[k] += 1
def work(k):
    while True:
        seventy(k)
        thirty(k)
for k in range(len(loops)):
    threading.Thread(target=work, args=(k,), daemon=True).start()
while not all(loops):
    time.sleep(0.01)
print("ready", flush=True)
while sys.stdin.readline():
    print(sum(loops), time.process_time(), flush=True)
'''


class Target:
    def __init__(self, python, threads):
        self.process = subprocess.Popen([python, "-c", TARGET, str(threads)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        assert self.process.stdout.readline() == "ready\n"

    def counts(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        loops, cpu = self.process.stdout.readline().split()
        return int(loops), float(cpu)

    def end(self):
        self.process.kill()
        self.process.wait()


def share(lines):
    part = {"seventy": 0, "thirty": 0}
    for line in lines:
        stack, _, value = line.rpartition(" ")
        for name in part:
            if re.search(r"\b%s\b" % name, stack) and value.isdigit():
                part[name] += int(value)
    return 100.0 * part["seventy"] / (sum(part.values()) or 1)


def own(tool, hz, target, options):
    """(CPU seconds of the tool, text about a sample, share)"""
    def run(*words):
        done = subprocess.run([options.probing, "-t", str(target.pid), *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout
    run("plugin", "load", "profile")
    run("config", "profile.rate=%d" % hz)
    time.sleep(options.seconds)
    said = run("profile")
    per_sample, percent = map(float, re.search(r"cost: ([\d.]+) us.*?([\d.]+) %", said).groups())
    stacks = run("flamegraph", "--last", "%ds" % options.seconds, "--format", "folded")
    run("plugin", "stop", "profile")
    return percent * options.seconds / 100, "%.1f us" % per_sample, share(stacks.splitlines())


def outside(command, target, options, file):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with open(file) as text:
        return cpu, "-", share(text.read().splitlines())


def py_spy(tool, hz, target, options):
    with tempfile.NamedTemporaryFile() as file:
        return outside([options.py_spy, "record", "-p", str(target.pid), "-r", str(hz), "-d",
                        str(options.seconds), "-f", "raw", "-o", file.name], target, options,
                       file.name)


def austin(tool, hz, target, options):
    with tempfile.NamedTemporaryFile() as file:
        return outside([options.austin, "-i", "%dus" % (1000000 // hz), "-x", str(options.seconds),
                        "-o", file.name, "-p", str(target.pid)], target, options, file.name)


def nothing(tool, hz, target, options):
    time.sleep(options.seconds)
    return 0.0, "-", 0.0


def runs(exe):
    try:
        return subprocess.run([exe, "--version"], capture_output=True).returncode == 0
    except OSError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--probing", default=os.path.join(ROOT, "build/release/probing"))
    parser.add_argument("--py-spy", default="py-spy")
    parser.add_argument("--austin", default="austin")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    tools = [("none", 0, nothing)]
    tools += [("probing", hz, own) for hz in (100, 1000)]
    for name, exe, function in (("py-spy", options.py_spy, py_spy),
                                ("austin", options.austin, austin)):
        if runs(exe):
            tools += [(name, hz, function) for hz in (100, 1000)]
        else:
            print("%s cannot be run here" % name)
    os.environ["PROBING_DATA_DIR"] = tempfile.mkdtemp()
    for threads in (1, 50):
        target = Target(options.python, threads)
        subprocess.run([options.probing, "-t", str(target.pid), "inject"], check=True,
                       stdout=subprocess.DEVNULL)
        found = {}
        for _ in range(options.rounds):
            for name, hz, function in tools:
                loops, cpu = target.counts()
                used, sample, part = function(name, hz, target, options)
                loops, cpu = target.counts()[0] - loops, target.counts()[1] - cpu
                found.setdefault((name, hz), []).append(
                    (100 * used / options.seconds, loops / cpu, sample, part))
        target.end()
        best = max(rate for _, rate, _, _ in found["none", 0])
        print("%d threads, load %.1f" % (threads, os.getloadavg()[0]))
        for (name, hz), rows in found.items():
            print("  %-8s %5d Hz  tool %5.2f %% of a core  a sample %-8s  loops %6.2f %%  "
                  "share %4.1f" % (name, hz, min(r[0] for r in rows),
                                   min((r[2] for r in rows), key=lambda t: float(t.split()[0])
                                       if t != "-" else 0),
                                   100 * max(r[1] for r in rows) / best,
                                   statistics.median(r[3] for r in rows)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
