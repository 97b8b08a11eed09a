# SPDX-License-Identifier: Apache-2.0
"""Enter and leave real programs by the thousand, and count what they notice of it.

usage: tests/soak/soak.py [--minutes N | --injections N] [--only NAME] [--jobs N] [--list]
       scons soak                            some minutes
       SOAK_INJECTIONS=10000 scons soak      until so many were made

A target is started, entered, asked, left again, and that as often as its turn says; fresh targets
meet the loader, old ones show growth.  Now and then the command, or the process in which it works,
is killed half way.  Exit code 1 when a target crashed, hung, saw EINTR or a wrong result, or kept
descriptors of ours.
"""
import argparse
import collections
import os
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("PROBING_BUILD", ROOT / "build" / "release"))
CLI = BUILD / "probing"
UNAVAILABLE = 77    # a target's exit code: this machine has not what it needs
PROGRESS_S = 20.0   # a target that makes no round in this time hangs
COMMAND_S = 60.0
SETTLED = 8         # cycles after which malloc's arenas have the size that they need
BAD = ("hung", "crashed", "eintr", "wrong")
WAYS = [(), ("--plugin", "memory")]
KILLED = 0.05       # share of injections whose command is killed half way

PYTHON_HEAD = """
import mmap, os, struct, sys, threading, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(fd, 4096)
counts = mmap.mmap(fd, 4096)
os.close(fd)
done = 0
def count():
    global done
    done += 1
    struct.pack_into("<Q", counts, 0, done)
"""
PYTHON = {
    "py bytearray": """
def churn():
    while True:
        [bytearray(n) for n in range(100, 100000, 997)]
for _ in range(2):
    threading.Thread(target=churn, daemon=True).start()
while True:
    [bytearray(n) for n in range(100, 300000, 9973)]
    count()
""",
    "py numpy": """
import numpy
def churn():
    while True:
        numpy.ones(30000) + numpy.ones(30000)
threading.Thread(target=churn, daemon=True).start()
while True:
    numpy.random.rand(200, 200) @ numpy.random.rand(200, 200)
    count()
""",
    "py ctypes": """
import ctypes, _ctypes
while True:
    library = ctypes.CDLL("libresolv.so.2")
    _ctypes.dlclose(library._handle)
    count()
""",
    "py fork": """
while True:
    pid = os.fork()
    if pid == 0:
        sys.exit(0) if done % 2 else os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    count()
""",
    "py sleep": """
while True:
    time.sleep(0.02)
    count()
""",
    "py torch": """
import torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    count()
"""}


class Kind:
    """One kind of target: how it is started, and what is constant in it."""

    def __init__(self, name, command, cycles=(1, 2, 6, 24), steady=True, env=None):
        self.name, self.command, self.cycles, self.steady = name, command, cycles, steady
        self.env = env or {}


class Tally:
    """Counts of one kind of target.  Shared by all workers: `lock`."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.refusals = collections.Counter()
        self.trouble = []
        self.stopped_ms = []
        self.growth_kb = []
        self.files = 0

    def add(self, what, n=1):
        with self.lock:
            self.counts[what] += n

    def note(self, what, text):
        with self.lock:
            self.counts[what] += 1
            self.trouble.append("%s: %s" % (what, text.strip()))

    def refuse(self, text):
        reason = re.sub(r"\d+", "N", text.strip().splitlines()[-1] if text.strip() else "no words")
        with self.lock:
            self.counts["refused"] += 1
            self.refusals[reason] += 1

    def bad(self):
        return any(self.counts[w] for w in BAD) or self.files > 0


class Gone(Exception):
    """The target ended, and should not have."""


def children_of(pid):
    try:
        return [int(p) for p in Path("/proc/%d/task/%d/children" % (pid, pid)).read_text().split()]
    except OSError:
        return []


class Target:
    def __init__(self, kind, place, env):
        self.counts_file = place / ("counts-%d" % random.getrandbits(48))
        self.log = open(str(self.counts_file) + ".log", "w+b")
        self.process = subprocess.Popen(
            [str(self.counts_file) if a == "@" else a for a in kind.command],
            env=dict(env, **kind.env),
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.pid = self.process.pid
        self.spared = 0  # injections whose worker was killed: what it had made may be left

    def counts(self):
        try:
            data = self.counts_file.read_bytes()[:24]
        except OSError:
            return 0, 0, 0
        return struct.unpack("<QQQ", data) if len(data) == 24 else (0, 0, 0)

    def moves(self):
        """Wait until it makes a round that began after now; False: it hangs."""
        goal = self.counts()[0] + 2
        deadline = time.monotonic() + PROGRESS_S
        while self.counts()[0] < goal:
            if self.process.poll() is not None:
                raise Gone
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def files(self):
        """The least of some looks: its own calls open and close some too."""
        least = sys.maxsize
        for _ in range(20):
            least = min(least, len(os.listdir("/proc/%d/fd" % self.pid)))
            time.sleep(0.002)  # it may stand still with one open
        return least

    def memory_kb(self):
        text = Path("/proc/%d/status" % self.pid).read_text()
        return int(re.search(r"RssAnon:\s+(\d+)", text).group(1))

    def threads_of_ours(self):
        names = []
        for path in Path("/proc/%d/task" % self.pid).glob("*/comm"):
            try:
                names.append(path.read_text())
            except OSError:  # that thread has just ended
                pass
        return [n for n in names if n.startswith("probing/")]

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-300:]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        for path in (self.counts_file, Path(str(self.counts_file) + ".log")):
            path.unlink(missing_ok=True)


class Soak:
    def __init__(self, place, injections):
        self.place, self.injections = place, injections
        self.made = 0  # under no lock: one more or less does not matter
        self.data = place / "data"
        self.data.mkdir(mode=0o700)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("PROBING", "LD_PRE"))}
        self.env.update(PROBING_DATA_DIR=str(self.data), OMP_NUM_THREADS="1")
        self.tallies = collections.defaultdict(Tally)

    def command(self, target, *words):
        return subprocess.run([str(CLI), "-t", str(target.pid), *words], env=self.env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=COMMAND_S)

    def kill_command(self, target, tally):
        """Begin an injection and kill the command at any moment of it."""
        command = subprocess.Popen([str(CLI), "-t", str(target.pid), "inject"], env=self.env,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.0005, 0.012))
        worker = children_of(command.pid)
        if worker and random.random() < 0.5:
            target.spared += 1
            try:
                os.kill(worker[0], signal.SIGKILL)
            except ProcessLookupError:
                pass
        else:
            command.send_signal(random.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
        command.wait()
        tally.add("killed")
        if not target.moves():
            tally.note("hung", "after the command was killed")

    def enter(self, target, tally, first):
        """True when a core answers in it."""
        self.made += 1
        done = self.command(target, "inject", *random.choice(WAYS))
        if " already\n" in done.stdout:  # an injection went on without its command
            tally.add("there")
            return True
        if done.returncode != 0:
            if target.process.poll() is not None:
                raise Gone
            tally.refuse(done.stderr)
            return False
        tally.add("entered")
        stopped = re.search(r"stopped for ([\d.]+) ms", done.stdout)
        if stopped and first:  # later ones find the library mapped, and are shorter
            with tally.lock:
                tally.stopped_ms.append(float(stopped.group(1)))
        if random.random() < 0.3:
            asked = self.command(target, "query", "select count(*) from probing.plugins")
            if asked.returncode != 0:
                if target.process.poll() is not None:
                    raise Gone
                tally.note("wrong", "query: " + asked.stderr)
        return True

    def leave(self, target, tally):
        done = self.command(target, "eject")
        if done.returncode != 0:
            if target.process.poll() is not None:
                raise Gone
            tally.note("wrong", "eject: " + done.stderr)
            return
        tally.add("ejected")
        ours = target.threads_of_ours()
        if ours:
            tally.note("wrong", "threads left: %r" % ours)

    def cycles(self, kind, target, tally, until):
        before = None
        for cycle in range(random.choice(kind.cycles)):
            if random.random() < KILLED:
                self.kill_command(target, tally)
            entered = self.enter(target, tally, cycle == 0)
            if not target.moves():
                return tally.note("hung", "entered: " + target.output())
            if entered:
                self.leave(target, tally)
            if not target.moves():
                return tally.note("hung", "left: " + target.output())
            if cycle == SETTLED:
                before = target.files() - target.spared, target.memory_kb()
            if self.over(until):
                break
        if kind.steady and before and cycle > SETTLED:
            with tally.lock:
                tally.files = max(tally.files, target.files() - target.spared - before[0])
                tally.growth_kb.append((target.memory_kb() - before[1]) / (cycle - SETTLED))
        return None

    def life(self, kind, until):
        """One target from start to end."""
        tally = self.tallies[kind.name]
        target = Target(kind, self.place, self.env)
        try:
            if random.random() < 0.7:  # the others are entered while they are loaded
                deadline = time.monotonic() + 60
                while target.counts()[0] < 2 and target.process.poll() is None:
                    if time.monotonic() > deadline:
                        raise Gone
                    time.sleep(0.005)
            tally.add("targets")
            self.cycles(kind, target, tally, until)
            _, interrupted, wrong = target.counts()
            if interrupted:  # a killed worker cannot undo what its own stop did
                tally.add("spared" if target.spared else "eintr", interrupted)
            if wrong:
                tally.note("wrong", "%d wrong results" % wrong)
        except Gone:
            code = target.process.poll()
            if code == UNAVAILABLE:
                tally.add("unavailable")
            else:
                tally.note("crashed", "exit code %s: %s" % (code, target.output()))
        except subprocess.TimeoutExpired as error:
            tally.note("hung", str(error))
        finally:
            target.end()
            for path in self.data.glob("%d-*" % target.pid):
                shutil.rmtree(path, ignore_errors=True)

    def over(self, until):
        return time.monotonic() > until or (self.injections and self.made >= self.injections)

    def tell(self, until):
        """A line a minute, for those who wait for hours."""
        began = time.monotonic()
        while not self.over(until):
            time.sleep(1)
            minutes, second = divmod(time.monotonic() - began, 60)
            if second < 1:
                total = sum((t.counts for t in self.tallies.values()), collections.Counter())
                print("%4d min: %s" % (minutes, ", ".join(
                    "%d %s" % (total[w], w) for w in ("entered", "killed", "refused")
                    + BAD)), file=sys.stderr, flush=True)

    def run(self, kinds, minutes, jobs):
        until = time.monotonic() + minutes * 60
        turns = iter(lambda: None, 1)  # for ever

        def worker(number):
            order = kinds[:]
            random.Random(number).shuffle(order)
            for _ in turns:
                for kind in order:
                    if self.over(until):
                        return
                    if not self.tallies[kind.name].counts["unavailable"]:
                        self.life(kind, until)

        for kind in kinds:
            self.tallies[kind.name].add("targets", 0)
        threading.Thread(target=self.tell, args=(until,), daemon=True).start()
        with ThreadPoolExecutor(jobs) as pool:
            for future in [pool.submit(worker, n) for n in range(jobs)]:
                future.result()
        subprocess.run([str(CLI), "gc"], env=self.env, capture_output=True)

    def report(self):
        columns = "targets entered there ejected killed refused hung crashed eintr wrong".split()
        print(("%-15s" + "%9s" * len(columns) + " %6s %9s  %s") % (
            "target", *columns, "files+", "KB/cycle", "stopped median / p99 / max ms"))
        total = collections.Counter()
        stopped = []
        for name, tally in self.tallies.items():
            total.update(tally.counts)
            stopped += tally.stopped_ms
            print(("%-15s" + "%9d" * len(columns) + " %6d %9s  %s") % (
                name, *(tally.counts[c] for c in columns), tally.files,
                "%.1f" % statistics.median(tally.growth_kb) if tally.growth_kb else "-",
                "not on this machine" if tally.counts["unavailable"] else
                times(tally.stopped_ms)))
        print(("%-15s" + "%9d" * len(columns) + " %6s %9s  %s") % (
            "all", *(total[c] for c in columns), "", "", times(stopped)))
        tried = total["entered"] + total["killed"] + total["refused"]
        print("%d injections, %d of them killed half way, %d refused; %d ejections: "
              "%d hung, %d crashed, %d saw EINTR, %d wrong" % (
                  tried, total["killed"], total["refused"], total["ejected"],
                  *(total[w] for w in BAD)))
        for name, tally in self.tallies.items():
            if tally.counts["spared"]:
                print("EINTR after kill -9 of the process at work: %s %d" % (
                    name, tally.counts["spared"]))
        for name, tally in self.tallies.items():
            for reason, n in tally.refusals.most_common(4):
                print("refused %5d  %s: %s" % (n, name, reason))
            for text in tally.trouble[:5]:
                print("trouble        %s: %s" % (name, text))
        return any(t.bad() for t in self.tallies.values())


def times(values):
    if len(values) < 2:
        return "-"
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return "%.2f / %.2f / %.2f" % (cuts[49], cuts[98], max(values))


def has(python, module):
    return subprocess.run([python, "-c", "import " + module], capture_output=True).returncode == 0


def compiled(place):
    """Paths of the C and the C++ program; None where there is no compiler."""
    made = []
    for compiler, source in (("cc", "busy.c"), ("c++", "throw.cc")):
        program = place / source.split(".")[0]
        done = shutil.which(compiler) and subprocess.run(
            [compiler, "-O2", str(HERE / "targets" / source), "-o", str(program), "-pthread",
             "-ldl"])
        made.append(str(program) if done and done.returncode == 0 else None)
    return made


def kinds_here(place):
    kinds = []
    busy, throw = compiled(place)
    for name in ("malloc dlopen fork spawn threads signals vectors read nanosleep futex epoll_wait "
                 "select poll accept sigtimedwait recv io_uring_enter").split() if busy else []:
        steady = name not in ("malloc", "fork", "signals")
        kinds.append(Kind(name, [busy, name, "@"], steady=steady))
    for name in ("jemalloc", "tcmalloc_minimal", "mimalloc") if busy else ():
        found = sorted(Path("/usr/lib").glob("*/lib%s.so*" % name))
        if found:
            kinds.append(Kind("malloc " + name.split("_")[0], [busy, "malloc", "@", "2"],
                              steady=False, env={"LD_PRELOAD": str(found[0])}))
        else:
            print("left out: malloc by %s (no lib%s.so here)" % (name, name))
    for name, count in (("malloc", 4), ("dlopen", 3), ("fork", 16), ("read", 16),
                        ("epoll_wait", 64), ("nanosleep", 256)) if busy else ():
        kinds.append(Kind("%s x%d" % (name, count), [busy, name, "@", str(count)],
                          steady=name not in ("malloc", "fork")))
    if throw:
        kinds.append(Kind("c++ throw", [throw, "throw", "@"]))
    for name, source in PYTHON.items():
        needs = name.split()[1] if name.split()[1] in ("numpy", "torch") else "sys"
        python = next((p for p in (sys.executable, "/usr/bin/python3") if has(p, needs)), None)
        if python is None:
            print("left out: %s (no %s here)" % (name, needs))
            continue
        cycles = (2, 12) if needs == "torch" else (1, 4)  # torch takes seconds to begin
        kinds.append(Kind(name, [python, "-c", PYTHON_HEAD + source, "@"], cycles,
                          steady=name == "py sleep"))
    return kinds


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    wanted = int(os.environ.get("SOAK_INJECTIONS") or 0)
    options.add_argument("--injections", type=int, default=wanted, help="until so many were made")
    options.add_argument("--minutes", type=float, help="4 unless --injections says otherwise")
    options.add_argument("--only", default="", help="only targets whose name holds this")
    options.add_argument("--jobs", type=int, default=min(4, 2 * (os.cpu_count() or 1)))
    options.add_argument("--list", action="store_true")
    given = options.parse_args()
    if not CLI.exists():
        raise SystemExit("%s is not built: run scons" % CLI)
    with tempfile.TemporaryDirectory(prefix="probing-soak-") as place:
        kinds = [k for k in kinds_here(Path(place)) if given.only in k.name]
        if given.list or not kinds:
            print("\n".join(k.name for k in kinds) or "no target has such a name")
            return 0 if kinds else 2
        soak = Soak(Path(place), given.injections)
        soak.run(kinds, given.minutes or (1e6 if given.injections else 4), given.jobs)
        return 1 if soak.report() else 0


if __name__ == "__main__":
    sys.exit(main())
