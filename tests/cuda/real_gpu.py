#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What needs a GPU and a torch that can use it: `scons gpu`.

usage: real_gpu.py [NAME ...]       checks whose names hold one of these texts; all without

The Python with that torch: PROBING_GPU_PYTHON, else the first of python3 and /usr/bin/python3 that
has one.  Without a GPU or such a torch it says so, and ends with 0: nothing was found wrong, as
nothing was looked at.  It prints what was measured; what must hold is checked, times of other
programs on a shared machine are not.
"""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PROBING_BUILD", ROOT / "build" / "release"))
PROGRAM = """
import json, sys, threading, time, torch
torch.manual_seed(0)
class Block(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b = torch.nn.Linear(n, n), torch.nn.Linear(n, n)
    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))
model = torch.nn.Sequential(*[Block(512) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(256, 512, device="cuda")
def steps(n):
    for _ in range(n):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
def timed(n):
    begin = time.perf_counter()
    steps(n)
    return (time.perf_counter() - begin) / n
def small(n):  # as many kernels a second as the host can launch
    y = torch.zeros(16, device="cuda")
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(n):
        y.add_(1)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / n
def profiled(n):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA,
                                            torch.profiler.ProfilerActivity.CPU]) as p:
        steps(n)
    kernels = [e for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA
               and not e.name.startswith(("Memcpy", "Memset"))]
    return {"n": len(kernels), "us": sum(e.time_range.end - e.time_range.start for e in kernels)}
steps(3)
print("ready", torch.__version__, torch.version.cuda, torch.cuda.get_device_name(), flush=True)
over = []
while not over:
    time.sleep(0.01)
sys.exit(over[0])
"""


def has_gpu_torch(python):
    code = "import torch; assert torch.cuda.is_available()"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "waited %d s for %s" % (seconds, what)
        time.sleep(0.05)


class Job:
    """The program, which does what it is told by `eval`."""

    def __init__(self, python, *plugins):
        self.folder = tempfile.mkdtemp(prefix="probing-gpu-")
        self.env = dict(os.environ, PROBING_DATA_DIR=self.folder,
                        PROBING_PLUGIN_PATH=str(BUILD / "plugins"))
        self.process = subprocess.Popen([python, "-c", PROGRAM], stdout=subprocess.PIPE, text=True,
                                        env=self.env)
        self.about = self.process.stdout.readline().strip()
        assert self.about.startswith("ready"), self.about
        self.probing("inject", "-D", "torch.sample_rate=1", "-D", "torch.backward=on")
        for plugin in plugins:
            self.probing("plugin", "load", plugin)

    def probing(self, *words):
        done = subprocess.run([str(BUILD / "probing"), "-t", str(self.process.pid), *words],
                              capture_output=True, text=True, env=self.env, check=False)
        assert done.returncode == 0, " ".join(words) + ": " + done.stdout + done.stderr
        return done.stdout

    def do(self, code):
        return self.probing("eval", code).strip()

    def ask(self, code):
        return json.loads(self.do("import json\nprint(json.dumps(%s))" % code).splitlines()[-1])

    def rows(self, sql):
        return json.loads(self.probing("query", "--format", "json", sql))["rows"]

    def wait_state(self, state):
        return wait_for(lambda: self.rows("select state from cuda.tracing") == [[state]],
                        "state %s: %r" % (state, self.rows("select * from cuda.tracing")))

    def seen(self):
        """Kernels that were seen, when no more come."""
        before = -1
        while True:
            now = self.rows("select kernels from cuda.tracing")[0][0]
            if now == before:
                return now
            before = now
            time.sleep(1.5)  # longer than buffers, sums and their rows need

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def check_late_attach_and_modules(python):
    """Entered while it runs: kernels have modules, steps and threads."""
    job = Job(python, "torch", "cuda")
    try:
        job.wait_state("tracing")
        print("  ", job.about, "|", job.rows("select library, version from cuda.tracing")[0])
        job.do("steps(30)")
        job.seen()
        by = job.rows("select count(*), count(module), count(step), count(thread_id) from "
                      "cuda.kernels where step is null or step > 2")[0]
        print("   kernels with a row %d, module %d, step %d, thread %d" % tuple(by))
        assert by[0] > 0 and by[3] == by[0], "kernels whose launch was not seen"
        assert by[2] > 0.99 * by[0], "kernels without a step"
        assert by[1] > 0.8 * by[0], "kernels without a module"
        print("   about:", job.rows("select * from cuda.tracing")[0])
    finally:
        job.close()


def check_totals_against_torch(python):
    """As many kernels as torch.profiler counts, and their time within 2 %."""
    job = Job(python, "cuda")
    try:
        job.wait_state("tracing")
        before = job.seen()
        job.do("steps(50)")
        n = job.seen() - before
        ours = job.rows("select sum(count), sum(total_ns) / 1000.0 from cuda.kernel_stats")[0]
        job.probing("config", "cuda.kernels=off")
        theirs = job.ask("profiled(50)")
        print("   ours: %d kernels, %.0f us in all; torch.profiler: %d, %.0f us"
              % (n, ours[1], theirs["n"], theirs["us"]))
        assert n == theirs["n"], "another number of kernels"
        assert abs(ours[1] / ours[0] / (theirs["us"] / theirs["n"]) - 1) < 0.02, "another time"
        assert job.rows("select lost, torn, unknown from cuda.tracing") == [[0, 0, 0]]
    finally:
        job.close()


def check_on_and_off(python):
    """A hundred times, while it trains."""
    job = Job(python, "cuda")
    try:
        job.do("import threading\nthread = threading.Thread(target=steps, args=(20000,), "
               "daemon=True)\nthread.start()")
        for _ in range(100):
            job.probing("config", "cuda.kernels=off")
            job.probing("config", "cuda.kernels=on")
        job.wait_state("tracing")
        before = job.rows("select kernels from cuda.tracing")[0][0]
        wait_for(lambda: job.rows("select kernels from cuda.tracing")[0][0] > before, "kernels")
        print("   about:", job.rows("select begun, lost, late, refused, torn from cuda.tracing")[0])
        assert job.process.poll() is None
    finally:
        job.close()


def check_torch_profiler_beside(python):
    """Its trace is whole enough, and ours goes on after it."""
    job = Job(python, "cuda")
    try:
        job.wait_state("tracing")
        alone = job.ask("profiled(50)")
        job.wait_state("tracing")
        job.do("steps(10)")
        assert job.seen() > 0
        job.probing("config", "cuda.kernels=off")
        without = job.ask("profiled(50)")
        print("   torch.profiler: %d kernels while we trace, %d while we do not"
              % (alone["n"], without["n"]))
    finally:
        job.close()


def check_overhead(python):
    """Steps and single launches, on and off in turn: printed, not judged."""
    job = Job(python, "cuda")
    try:
        for what in "timed(200)", "small(100000)":
            seconds = {"on": [], "off": []}
            for _ in range(7):
                for state in "on", "off":
                    job.probing("config", "cuda.kernels=" + state)
                    job.wait_state("tracing" if state == "on" else "off")
                    seconds[state].append(job.ask(what))
            on, off = (statistics.median(seconds[s]) for s in ("on", "off"))
            print("   %s: %.2f us off, %.2f us on: %+.1f %%; best of each %+.1f %%"
                  % (what, off * 1e6, on * 1e6, 100 * (on / off - 1),
                     100 * (min(seconds["on"]) / min(seconds["off"]) - 1)))
        print("   about:", job.rows("select kernels, kernel_rows, lost, refused from "
                                    "cuda.tracing")[0])
    finally:
        job.close()


def check_end_while_it_traces(python):
    """The program's end, also after a fork, while it is traced: no crash."""
    for code in ("steps(5)\nover.append(3)",
                 "import os\npid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)\n"
                 "steps(5)\nover.append(3)"):
        job = Job(python, "cuda")
        try:
            job.wait_state("tracing")
            job.do("steps(5)")
            subprocess.run([str(BUILD / "probing"), "-t", str(job.process.pid), "eval", code],
                           capture_output=True, env=job.env, check=False)
            assert job.process.wait(60) == 3, job.process.returncode
        finally:
            job.close()


def main(words):
    if not os.path.exists("/dev/nvidiactl"):
        print("SKIPPED: no GPU of NVIDIA's here (/dev/nvidiactl): nothing was looked at")
        return 0
    pythons = [os.environ.get("PROBING_GPU_PYTHON") or "python3", "/usr/bin/python3"]
    python = next((p for p in pythons if has_gpu_torch(p)), None)
    if not python:
        print("SKIPPED: no torch that can use the GPU (PROBING_GPU_PYTHON): nothing was looked at")
        return 0
    wrong = 0
    for name, check in sorted(globals().items()):
        if not re.match("check_", name) or (words and not any(w in name for w in words)):
            continue
        print("%s: %s" % (name[6:], check.__doc__), flush=True)
        try:
            check(python)
        except AssertionError as why:
            print("   NOT RIGHT: %s" % why)
            wrong += 1
    print("%d checks were not right" % wrong if wrong else "all right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
