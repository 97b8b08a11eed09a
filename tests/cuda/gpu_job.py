# SPDX-License-Identifier: Apache-2.0
"""For checks that need a GPU (real_gpu.py): programs that use one and do what they are told."""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PROBING_BUILD", ROOT / "build" / "release")).absolute()
RAW = str(ROOT / "tests" / "cuda" / "raw_cupti.py")
KEPT = []  # the folder in which what is found out is kept, if any
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
def during(seconds):  # ms a step on average
    n, begin = 0, time.perf_counter()
    while time.perf_counter() < begin + seconds:
        steps(10)
        n += 10
    return (time.perf_counter() - begin) / n * 1e3
def small(n):  # as many kernels a second as the host can launch
    y = torch.zeros(16, device="cuda")
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(n):
        y.add_(1)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / n
def until(seconds, what):  # between when it was, in seconds of time.time()
    torch.cuda.synchronize()
    begin = time.time()
    while time.time() < begin + seconds:
        what()
    torch.cuda.synchronize()
    return [begin, time.time()]
big, host = torch.randn(4096, 4096, device="cuda"), torch.randn(1 << 22)
def busy():
    for _ in range(20):
        big @ big
    torch.cuda.synchronize()
def late():
    big @ big
    torch.cuda.synchronize()
    time.sleep(0.01)
def waits():
    for _ in range(50):
        (x * 2).sum().item()
def copies():
    host.cuda()
def captured(n):
    y, side = torch.zeros(1 << 16, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(side):
        y.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n):
            y.add_(1)
    return graph, y
def replay(graph, n):
    for _ in range(n):
        graph[0].replay()
    torch.cuda.synchronize()
def streams(n, threads):
    def one():
        with torch.cuda.stream(torch.cuda.Stream()):
            y = torch.zeros(1 << 12, device="cuda")
            for _ in range(n):
                y.add_(1)
            torch.cuda.current_stream().synchronize()
    all = [threading.Thread(target=one) for _ in range(threads)]
    [t.start() for t in all]
    [t.join() for t in all]
def background(n):
    thread = threading.Thread(target=steps, args=(n,), daemon=True)
    thread.start()
def profiled(n):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA,
                                            torch.profiler.ProfilerActivity.CPU]) as p:
        steps(n)
    kernels = [e for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA
               and not e.name.startswith(("Memcpy", "Memset", "Optimizer."))]
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
    try:
        return subprocess.run([python, "-c", code], capture_output=True, check=False,
                              timeout=90).returncode == 0
    except (OSError, subprocess.TimeoutExpired) as why:
        print("no torch of %s: %s" % (python, why))
        return False


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "waited %d s for %s" % (
            seconds, what() if callable(what) else what)
        time.sleep(0.05)


class Job:
    """The program, which does what it is told by `eval`.  words: another one; launch: its plugin,
    there from the beginning.  Where nobody may enter a program (a container without ptrace), that
    is said once, and all begin with the core.  always: cuda.window, else as it is usual."""
    closed_door = False

    def __init__(self, python, *plugins, words=None, launch=None, bare=False, waits=True,
                 always=True, **env):
        self.folder = tempfile.mkdtemp(prefix="probing-gpu-")
        self.env = dict(os.environ, PROBING_DATA_DIR=self.folder,
                        PROBING_PLUGIN_PATH=str(BUILD / "plugins"), **env)
        self.process = None
        try:
            self.begin(words or [python, "-c", PROGRAM], launch, bare, waits, always)
            for plugin in plugins:
                self.probing("plugin", "load", plugin)
        except BaseException:
            self.close()
            raise

    def begin(self, words, launch, bare=False, waits=True, always=True):
        settings = ["-D", "torch.sample_rate=1", "-D", "torch.backward=on"]
        settings += ["-D", "cuda.window=always"] if always else []
        early, plugin = launch or Job.closed_door, ["--plugin", launch] if launch else []
        before = [str(BUILD / "probing"), "launch", *settings, *plugin, "--"] if early else []
        with open(Path(self.folder, "stderr"), "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(before + words, stdin=subprocess.PIPE, text=True,
                                            stdout=subprocess.PIPE, stderr=errors, env=self.env)
        if waits:
            self.wait_ready()
        if early or bare:
            return
        try:
            self.probing("inject", *settings)
        except AssertionError as why:
            print("   NOBODY IS ENTERED here, programs begin with the core: %s" % why)
            Job.closed_door = True
            self.end()
            self.begin(words, launch, always=always)

    def wait_ready(self):
        self.about = self.process.stdout.readline().strip()
        while self.about.startswith(("=", "NCCL version")):  # what tools and libraries print
            self.about = self.process.stdout.readline().strip()
        assert self.about.startswith("ready"), "it ended before it was ready: " + self.about

    def tell(self, line):
        """The answer of a program of raw_cupti.py."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def probing(self, *words, pid=None):
        done = subprocess.run([str(BUILD / "probing"), "-t", pid or str(self.process.pid), *words],
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
                        lambda: "state %s: %r" % (state,
                                                  self.rows("select * from cuda.tracing")))

    def seen(self):
        """Kernels that were seen, when no more come."""
        before = -1
        while True:
            now = self.rows("select kernels from cuda.tracing")[0][0]
            if now == before:
                return now
            before = now
            time.sleep(1.5)  # longer than buffers, sums and their rows need

    def end(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def errors(self):
        """The program's text on its standard error."""
        file = Path(self.folder, "stderr")
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def close(self):
        self.end()
        for line in self.errors().splitlines()[-12:]:
            print("   its stderr: " + line[:200])
        shutil.rmtree(self.folder, ignore_errors=True)


def cuptis(python):
    """Files of CUPTI: torch's, the toolkit's, and those that were fetched or carried along."""
    packed = BUILD / "cupti" if (BUILD / "cupti").is_dir() else ROOT / "build" / "cupti"
    found = glob.glob(str(packed / "**" / "libcupti.so.*"), recursive=True)
    for place in "/usr/local/cuda*/extras/CUPTI/lib64", "/usr/local/cuda*/lib64":
        found += glob.glob(place + "/libcupti.so.1[1-9]")
    if python:
        code = ("import importlib.util as u, os\nfor n in 'nvidia', :\n"
                "    print(*(u.find_spec(n).submodule_search_locations if u.find_spec(n) else ()))")
        said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        for place in said.stdout.split():
            found += glob.glob(place + "/**/libcupti.so.*", recursive=True)
    return sorted({os.path.realpath(f) for f in found})


def driver_job(python, plugin, cupti=None):
    """A program of CUDA's driver alone, which finds one of these CUPTIs, torch's if it has one."""
    found = [cupti] if cupti else sorted(cuptis(python), key=lambda f: "-packages" not in f)
    return Job(None, plugin, words=[sys.executable, RAW, "loop"], LD_LIBRARY_PATH=":".join(
        [os.path.dirname(f) for f in found] + [os.environ.get("LD_LIBRARY_PATH", "")]))


def counted(job, code):
    """Kernels that `code` has launched."""
    before = job.seen()
    job.do(code)
    return job.seen() - before
