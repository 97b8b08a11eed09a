#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What needs a GPU: `scons gpu`; or, where nothing but Python is there, this file with what it
packed before: PROBING_BUILD=build/gpu python3 tests/cuda/real_gpu.py --out FOLDER.

usage: real_gpu.py [--out FOLDER] [--seconds N] [--limit N] [NAME ...]
       real_gpu.py --pack FOLDER

NAME: only checks whose names hold one of these texts.  FOLDER gets what was said (report.txt, whose
first line has the end of each check, and is true at any time), what real CUPTIs answered
(codes.json) and the buffers that they wrote (recorded.tar.gz; unpacked in tests/cuda/recorded,
test_cuda_recorded.py plays them).  A check that takes longer than --seconds (150) is given up; what
does not fit into --limit (540) altogether is not reached.

--pack: the stripped files of build/release, and a libcupti of each generation in build/cupti.

Checks that train need a torch that can use the GPU: PROBING_GPU_PYTHON, else the first of python3
and /usr/bin/python3 that has one; the others use CUDA's driver alone (raw_cupti.py).  Without a GPU
it says so, and ends with 0: nothing was found wrong, as nothing was looked at.  It prints what was
measured; what must hold is checked, times of other programs on a shared machine are not.
"""
import argparse
import glob
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PROBING_BUILD", ROOT / "build" / "release")).absolute()
RAW = str(ROOT / "tests" / "cuda" / "raw_cupti.py")
OUT = None  # the folder; None: nothing is kept
DEVICE = os.environ.get("PROBING_GPU_DEVICE", "/dev/nvidiactl")  # test_real_gpu.py has another one
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
    is said once, and all begin with the core."""
    closed_door = False

    def __init__(self, python, *plugins, words=None, launch=None, **env):
        self.folder = tempfile.mkdtemp(prefix="probing-gpu-")
        self.env = dict(os.environ, PROBING_DATA_DIR=self.folder,
                        PROBING_PLUGIN_PATH=str(BUILD / "plugins"), **env)
        self.process = None
        try:
            self.begin(words or [python, "-c", PROGRAM], launch)
            for plugin in plugins:
                self.probing("plugin", "load", plugin)
        except BaseException:
            self.close()
            raise

    def begin(self, words, launch):
        settings = "-D", "torch.sample_rate=1", "-D", "torch.backward=on"
        early, plugin = launch or Job.closed_door, ["--plugin", launch] if launch else []
        before = [str(BUILD / "probing"), "launch", *settings, *plugin, "--"] if early else []
        self.process = subprocess.Popen(before + words, stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, env=self.env)
        self.about = self.process.stdout.readline().strip()
        assert self.about.startswith("ready"), "it ended before it was ready: " + self.about
        if early:
            return
        try:
            self.probing("inject", *settings)
        except AssertionError as why:
            print("   NOBODY IS ENTERED here, programs begin with the core: %s" % why)
            Job.closed_door = True
            self.end()
            self.begin(words, launch)

    def tell(self, line):
        """What a program of raw_cupti.py says to it."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

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

    def close(self):
        self.end()
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


def driver_job(python, plugin):
    """A program of CUDA's driver alone, which finds one of these CUPTIs, torch's if it has one."""
    found = sorted(cuptis(python), key=lambda f: "-packages" not in f)
    return Job(None, plugin, words=[sys.executable, RAW, "loop"], LD_LIBRARY_PATH=":".join(
        [os.path.dirname(f) for f in found] + [os.environ.get("LD_LIBRARY_PATH", "")]))


def ask_raw(*words):
    """(exit code, or that it hung; what it said; its last words)"""
    try:
        done = subprocess.run([sys.executable, RAW, *words], capture_output=True, text=True,
                              check=False, timeout=40)
    except subprocess.TimeoutExpired as late:
        return "40 s passed", (late.stdout or b"").decode(errors="replace"), ""
    return done.returncode, done.stdout, done.stderr.strip()[-300:]


def check_codes(python):
    """What each CUPTI here answers, also to several subscribers."""
    said, ended = {}, []
    for path in cuptis(python):
        said[path] = []
        for what in "early_codes", "codes", "shared_codes":
            code, out, error = ask_raw(what, path)
            lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
            said[path] += lines + [{"question": what, "exit": code, "error": error}]
            for line in lines:
                print("  ", json.dumps(line))
            if code:
                ended.append("%s of %s ended with %s: %s" % (what, path, code, error))
                print("   " + ended[-1])
            if OUT:
                (OUT / "codes.json").write_text(json.dumps(said, indent=1))
    assert said, "no libcupti was found"
    assert not ended, "; ".join(ended)


def check_buffers(python):
    """Buffers of each CUPTI here, kept as test data."""
    with tempfile.TemporaryDirectory() as room:
        for path in cuptis(python):
            name = re.sub(r"[^0-9A-Za-z.]+", "-", path)[-60:].lstrip("-")
            code, out, error = ask_raw("record", path, room + "/" + name)
            print("   %s: %s %s" % (path, out.strip(), error if code else ""))
            if OUT:  # after each: it may be given up
                with tarfile.open(OUT / "recorded.tar.gz", "w:gz") as kept:
                    for file in sorted(os.listdir(room)):
                        kept.add(os.path.join(room, file), file)
        assert os.listdir(room), "nothing was recorded"


def check_driver_program(python):
    """A program of the driver's alone that is entered late: each kernel is seen, a hundred times on
    and off, through a reset of the device, and when it ends while it is traced."""
    job = driver_job(python, "cuda")
    try:
        job.tell("kernels(100)")
        job.wait_state("tracing")
        before = job.seen()
        job.tell("kernels(5000)")
        n = job.seen() - before
        print("   5000 kernels launched, %d seen" % n, job.rows("select * from cuda.tracing")[0])
        assert n == 5000, "kernels are missing, or too many"
        job.tell("all_kinds()")
        job.seen()
        for table in "kernel_stats", "memcpy", "memory", "sync", "runtime", "device_time":
            n = job.rows("select count(*) from cuda." + table)[0][0]
            print("   cuda.%s: %d rows" % (table, n))
        for _ in range(100):
            job.probing("config", "cuda.kernels=off")
            job.probing("config", "cuda.kernels=on")
        job.wait_state("tracing")
        before = job.seen()
        job.tell("reset()")
        job.tell("kernels(1000)")
        print("   after 100 times on and off and a reset: %d of 1000 seen" % (job.seen() - before))
        assert job.seen() - before == 1000, "kernels are missing after a reset"
        job.process.stdin.write("(kernels(1000), sys.exit(3))\n")
        job.process.stdin.close()
        assert job.process.wait(60) == 3, "it ended with %d" % job.process.returncode
    finally:
        job.close()


def check_rates(python):
    """10,000 and 100,000 kernels a second, on and off in turn: printed, not judged."""
    job = driver_job(python, "cuda")
    try:
        for rate in 10000, 100000:
            seconds = {"on": [], "off": []}
            for _ in range(5):
                for state in "on", "off":
                    job.probing("config", "cuda.kernels=" + state)
                    job.wait_state("tracing" if state == "on" else "off")
                    seconds[state].append(job.tell("kernels(%d, %d)" % (rate, rate)))
            on, off = (statistics.median(seconds[s]) for s in ("on", "off"))
            print("   %d a second asked: %.0f off, %.0f on: %+.1f %%"
                  % (rate, rate / off, rate / on, 100 * (on / off - 1)))
        print("   about:", job.rows("select kernels, kernel_rows, lost, refused from "
                                    "cuda.tracing")[0])
    finally:
        job.close()


def check_nvml(python):
    """gpu.devices and gpu.utilization against nvidia-smi."""
    names = ["uuid", "name", "memory.total", "memory.used", "temperature.gpu", "power.draw",
             "clocks.sm", "utilization.gpu"]
    job = driver_job(python, "gpu")
    try:
        wait_for(lambda: job.rows("select 1 from gpu.utilization"), "rows")
        if not shutil.which("nvidia-smi"):
            print(job.probing("gpu"))
            raise AssertionError("there is no nvidia-smi to compare with")
        smi = subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(names),
                              "--format=csv,noheader,nounits"], capture_output=True, text=True,
                             check=True).stdout.strip().splitlines()
        devices = job.rows("select d.uuid, d.name, d.total_bytes / 1048576.0, u.used_bytes / "
                           "1048576.0, u.temperature_c, u.power_w, u.sm_clock_mhz, u.gpu_util_pct "
                           "from gpu.devices d join (select * from gpu.utilization where ts = "
                           "(select max(ts) from gpu.utilization)) u on u.device_id = d.index "
                           "order by d.index")
        for theirs, ours in zip(smi, devices):
            print("   nvidia-smi:", theirs, "\n   ours:      ", ours)
            uuid, name, total = [w.strip() for w in theirs.split(",")][:3]
            assert [uuid, name] == ours[:2] and abs(float(total) - ours[2]) < 2, "another one"
        assert len(smi) == len(devices), "another number of devices"
        print("   this process's own bytes:", job.rows(
            "select own_bytes from gpu.utilization order by ts desc limit 1"))
        print(job.probing("gpu"))
    finally:
        job.close()


NCCL = """
import os, sys, torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29741")
print("ready", torch.cuda.nccl.version(), flush=True)
for line in sys.stdin:
    if not dist.is_initialized():
        dist.init_process_group("nccl", rank=0, world_size=1, device_id=torch.device("cuda", 0))
    x = torch.ones(1 << 20, device="cuda")
    for _ in range(10):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    print(0, flush=True)
dist.destroy_process_group()
"""


def check_nccl(python):
    """One GPU and NCCL with the plugin: it is found and opened, and what it tells."""
    job = Job(None, words=[python, "-c", NCCL], launch="nccl")
    try:
        print("  ", job.about)
        job.tell("")
        time.sleep(2)  # rows are written twenty times a second
        for what in "* from nccl.profiler_state", "* from nccl.communicators", \
                "coll_func, seq, timing_source, exec_time_ns from nccl.coll_perf limit 5":
            print("   %s: %r" % (what, job.rows("select " + what)))
        print(job.probing("nccl"))
        state = job.rows("select state from nccl.profiler_state")
        assert state == [["active"]], "NCCL told nothing"
        job.process.stdin.close()
        assert job.process.wait(60) == 0, "it ended with %d" % job.process.returncode
    finally:
        job.close()


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


# In the order of what is lost if there is no time for the rest.  Whether it needs torch.
CHECKS = [(check_codes, False), (check_buffers, False), (check_driver_program, False),
          (check_late_attach_and_modules, True), (check_totals_against_torch, True),
          (check_on_and_off, True), (check_rates, False), (check_overhead, True),
          (check_torch_profiler_beside, True), (check_nvml, False), (check_nccl, True),
          (check_end_while_it_traces, True)]


def too_long(_signal, _frame):
    raise AssertionError("it took too long, and was given up")


def run(check, python, seconds):
    """Was it right?"""
    print("%s: %s" % (check.__name__[6:], check.__doc__), flush=True)
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    begin = time.monotonic()
    try:
        check(python)
    except Exception as why:  # whatever it is, the others are still asked
        print("   NOT RIGHT: %s: %s" % (type(why).__name__, why))
        return False
    finally:
        signal.alarm(0)
        print("   (%.1f s)" % (time.monotonic() - begin), flush=True)
    return True


class Report:
    """What is printed, also in a file, whose first line says how each check has ended so far."""

    def __init__(self, out, checks):
        self.out, self.text, self.stdout = out, "", sys.stdout
        self.ends = {check.__name__[6:]: "not reached" for check in checks}

    def first_line(self):
        ends = ["not right", "under way", "not reached", "skipped, no torch with a GPU", "right"]
        return " | ".join("%s: %s" % (end, ", ".join(n for n, e in self.ends.items() if e == end))
                          for end in ends if end in self.ends.values())

    def keep(self, name, end):
        self.ends[name] = end
        self.write("")

    def write(self, text):
        self.text += text
        self.stdout.write(text)
        if self.out:
            (self.out / "report.new").write_text(self.first_line() + "\n\n" + self.text)
            os.replace(self.out / "report.new", self.out / "report.txt")

    def flush(self):
        self.stdout.flush()


def pack(folder):
    """What a machine that has nothing but Python needs."""
    shutil.copytree(ROOT / "build" / "release" / "stripped", folder, dirs_exist_ok=True)
    newest = {}  # of 11, 12, 13.0 and 13.1, 13.2 and later
    for path in glob.glob(str(ROOT / "build" / "cupti" / "*" / "**" / "libcupti.so.*"),
                          recursive=True):
        version = Path(path).relative_to(ROOT / "build" / "cupti").parts[0]
        number = [int(n) for n in version.split(".")]
        newest.setdefault((number[0], number >= [13, 2]), []).append((number, version, path))
    for _, version, path in map(max, newest.values()):
        (folder / "cupti" / version).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / "cupti" / version)
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    print("%s: %.0f MB, CUPTI %s" % (folder, size / 1e6, ", ".join(
        sorted(max(v)[1] for v in newest.values())) or "none: scripts/tools/cupti_layouts.py"))


def main():
    global OUT
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--seconds", type=int, default=150)
    parser.add_argument("--limit", type=int, default=540)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.pack:
        return pack(options.pack)
    if not os.path.exists(DEVICE):
        print("SKIPPED: no GPU of NVIDIA's here (%s): nothing was looked at" % DEVICE)
        return 0
    if options.out:
        OUT = options.out
        OUT.mkdir(parents=True, exist_ok=True)
    asked = [(check, trains) for check, trains in CHECKS
             if not options.names or any(n in check.__name__ for n in options.names)]
    report = sys.stdout = Report(OUT, [check for check, _ in asked])
    pythons = [os.environ.get("PROBING_GPU_PYTHON") or "python3", "/usr/bin/python3"]
    python = next((p for p in pythons if has_gpu_torch(p)), None)
    if not python:
        print("no torch that can use the GPU (PROBING_GPU_PYTHON): what needs one is SKIPPED")
    for check, trains in asked:
        name, left = check.__name__[6:], int(options.limit - (time.monotonic() - begin))
        if trains and not python:
            report.keep(name, "skipped, no torch with a GPU")
        elif left >= 10:
            report.keep(name, "under way")
            report.keep(name, "right" if run(check, python, min(options.seconds, left))
                        else "not right")
    print(report.first_line())
    return 1 if {"not right", "not reached"} & set(report.ends.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
