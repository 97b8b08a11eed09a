# SPDX-License-Identifier: Apache-2.0
"""What the profiler costs and how right it is, beside py-spy and austin where they can be run.

usage: sampling.py [--python EXE] [--probing EXE] [--py-spy EXE] [--austin EXE] [--seconds N]
                  [--rounds N]

Targets: 1 and 50 Python threads that spend 70 and 30 percent of their CPU time in two functions,
and 50 that wait for a lock.  Each tool samples them at 100 and 1,000 Hz in turn, after a second to
warm up.  Printed are, over the rounds: the least CPU time of the tool, in percent of a core (its
process or, of probing, its thread); what its handlers took from the program's threads (tools
outside stop the process instead, unless they are told not to); loops of the target, for a second
of its CPU time and for a second of time, against no tool, the best of each; and the share of the
70 percent function, which should be 70.

py-spy and austin are of PyPI: `pip install py-spy austin-dist==3.7.0` (austin 4.0.0 asks for
glibc 2.38).
"""
import argparse
import glob
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from figures import figure, remark

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
lock = threading.Lock()
lock.acquire()
for k in range(len(loops)):
    if sys.argv[2] == "wait":
        threading.Thread(target=lock.acquire, daemon=True).start()
    else:
        threading.Thread(target=work, args=(k,), daemon=True).start()
while sys.argv[2] == "run" and not all(loops):
    time.sleep(0.01)
print("ready", flush=True)
while sys.stdin.readline():
    print(sum(loops), time.process_time(), flush=True)
'''


class Target:
    def __init__(self, python, threads, kind):
        self.process = subprocess.Popen([python, "-c", TARGET, str(threads), kind], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        self.kind = kind
        assert self.process.stdout.readline() == "ready\n"

    def counts(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        loops, cpu = self.process.stdout.readline().split()
        return int(loops), float(cpu)

    def watched(self):
        return Result(self)

    def end(self):
        self.process.kill()
        self.process.wait()


class Result:
    """The target's work in a `with`, and what the tool adds to it."""

    def __init__(self, target):
        self.target = target
        self.tool = self.share = 0.0
        self.handlers = None

    def __enter__(self):
        self.begun = time.monotonic()
        self.loops, self.cpu = self.target.counts()
        return self

    def __exit__(self, *error):
        loops, cpu = self.target.counts()
        self.wall = time.monotonic() - self.begun
        self.loops, self.cpu = loops - self.loops, cpu - self.cpu


def share(lines):
    part = {"seventy": 0, "thirty": 0}
    for line in lines:
        stack, _, value = line.rpartition(" ")
        for name in part:
            if re.search(r"\b%s\b" % name, stack) and value.isdigit():
                part[name] += int(value)
    return 100.0 * part["seventy"] / (sum(part.values()) or 1)


def profiler_cpu(pid):
    """CPU seconds of our profiler's thread."""
    for name in glob.glob("/proc/%d/task/*/comm" % pid):
        with open(name) as file:
            if file.read() == "probing/profile\n":
                with open(name[:-len("comm")] + "schedstat") as times:
                    return int(times.read().split()[0]) / 1e9
    raise AssertionError("no profiler in process %d" % pid)


def own(mode):
    def measure(hz, target, options):
        def run(*words):
            done = subprocess.run([options.probing, "-t", str(target.pid), *words],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert done.returncode == 0, done.stderr
            return done.stdout
        run("plugin", "load", "profile")
        run("config", "profile.rate=%d" % hz)
        run("config", "profile.mode=%s" % mode)
        time.sleep(1)
        with target.watched() as result:
            cpu, samples = profiler_cpu(target.pid), taken(run("profile"))[0]
            time.sleep(options.seconds)
            result.tool = profiler_cpu(target.pid) - cpu
            after, each_us = taken(run("profile"))
            if mode == "cpu":  # in others, samples are also taken without a handler
                result.handlers = (after - samples) * each_us / 1e6
        if target.kind == "run":
            stacks = run("flamegraph", "--last", "%ds" % options.seconds, "--format", "folded")
            result.share = share(stacks.splitlines())
        run("plugin", "stop", "profile")
        return result
    return measure


def taken(text):
    """(samples so far, microseconds of a handler)"""
    return (int(re.search(r"(\d+) samples taken", text).group(1)),
            float(re.search(r"cost: ([\d.]+) us", text).group(1)))


def outside(words):
    """A tool that is another process: words(hz, seconds, pid, file) is its command."""
    def measure(hz, target, options):
        with tempfile.NamedTemporaryFile() as file:
            command = words(options, hz, target.pid, file.name)
            with target.watched() as result:
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               check=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
            result.tool = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            with open(file.name, errors="replace") as text:
                result.share = share(text.read().splitlines())
        return result
    return measure


def py_spy(*more):
    return lambda o, hz, pid, file: [o.py_spy, "record", "-p", str(pid), "-r", str(hz), "-d",
                                     str(o.seconds), "-f", "raw", "-o", file, *more]


def austin(o, hz, pid, file):
    return [o.austin, "-i", "%dus" % (1000000 // hz), "-x", str(o.seconds), "-o", file,
            "-p", str(pid)]


def nothing(hz, target, options):
    with target.watched() as result:
        time.sleep(options.seconds)
    return result


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
    tools += [("probing", hz, own("cpu")) for hz in (100, 1000)]
    tools += [("probing, wall", 100, own("wall"))]
    for name, exe, words in (("py-spy", options.py_spy, py_spy()),
                             ("py-spy --nonblocking", options.py_spy, py_spy("--nonblocking")),
                             ("austin", options.austin, austin)):
        if runs(exe):
            tools += [(name, hz, outside(words)) for hz in (100, 1000)]
        else:
            remark("%s is left out: it cannot be run here" % name)
    os.environ["PROBING_DATA_DIR"] = tempfile.mkdtemp()
    for threads, kind in ((1, "run"), (50, "run"), (50, "wait")):
        target = Target(options.python, threads, kind)
        subprocess.run([options.probing, "-t", str(target.pid), "inject"], check=True,
                       stdout=subprocess.DEVNULL)
        found = {}
        for _ in range(options.rounds):
            for name, hz, measure in tools:
                found.setdefault((name, hz), []).append(measure(hz, target, options))
        target.end()
        show(threads, kind, found)


def show(threads, kind, found):
    def best(rows, seconds):
        return max(row.loops / (getattr(row, seconds) or 1) for row in rows) or 1
    none, target = found["none", 0], "%d threads that %s" % (threads, kind)
    remark("%s: load %.1f" % (target, os.getloadavg()[0]))
    for (name, hz), rows in found.items():
        what = "%s: %s%s" % (target, name, ", %d Hz" % hz if hz else "")
        taken_ = [100 * row.handlers / row.wall for row in rows if row.handlers is not None]
        if hz:
            figure(what, "% of a core", tool=min(100 * row.tool / row.wall for row in rows),
                   handlers=min(taken_) if taken_ else None)
        if kind != "run":
            continue
        compared = {"against": target + ": none, loops",
                    "ratio": best(rows, "cpu") / best(none, "cpu")} if hz else {}
        figure(what + ", loops", "a second", of_cpu=best(rows, "cpu"), of_time=best(rows, "wall"),
               **compared)
        if hz:
            figure(what + ", share of the 70 % function", "%",
                   median=statistics.median(row.share for row in rows), goal="70")


if __name__ == "__main__":
    main()
