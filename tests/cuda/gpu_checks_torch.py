# SPDX-License-Identifier: Apache-2.0
"""Checks of real_gpu.py that need a GPU and a torch that can use it."""
import os
import re
import statistics
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

from gpu_job import BUILD, KEPT, Job, counted, wait_for

NCCL = """
import os, sys, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(0)
dist.init_process_group("nccl", rank=rank, world_size=2)
x = torch.ones(1 << 18, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
print("ready", torch.cuda.nccl.version(), flush=True)
for line in sys.stdin:
    for i in range(int(line)):
        time.sleep(0.02 * rank)
        dist.all_reduce(x)
        if i % 3 == 0:
            dist.broadcast(x, 0)
        torch.cuda.synchronize()
    print(0, flush=True)
    if line == "61\\n" and rank == 1:
        time.sleep(1000)
"""


def check_nccl(python):
    """Two ranks on one GPU, as if on two hosts (NCCL takes no GPU twice on one): the late one is
    named, and what is in flight when it does not come."""
    one_gpu = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29741", "WORLD_SIZE": "2",
               "TORCHELASTIC_RUN_ID": "gpu", "NCCL_SOCKET_IFNAME": "lo", "NCCL_P2P_DISABLE": "1",
               "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
    jobs = []
    try:
        for rank in 0, 1:
            jobs.append(Job(None, words=[python, "-c", NCCL], launch="nccl", waits=False,
                            RANK=str(rank), LOCAL_RANK=str(rank), NCCL_HOSTID="host%d" % rank,
                            **one_gpu))
        for job in jobs:
            job.wait_ready()
            job.process.stdin.write("61\n")
            job.process.stdin.flush()
        for job in jobs:
            print("  ", job.about, job.process.stdout.readline().strip())
        wait_for(lambda: jobs[0].rows("select count(*) from nccl.coll_perf") >= [[83]], "rows")
        said = jobs[0].probing("nccl")
        print(said)
        for what in "* from nccl.profiler_state", "* from nccl.communicators", \
                "coll_func, seq, timing_source, exec_time_ns, msg_size_bytes from nccl.coll_perf " \
                "limit 3", "* from nccl.proxy_ops limit 3":
            print("   %s: %r" % (what, jobs[0].rows("select " + what)))
        assert "who is waited for" in said, "nobody was named"
        jobs[0].process.stdin.write("1\n")  # the other one sleeps
        jobs[0].process.stdin.flush()
        wait_for(lambda: jobs[0].rows("select 1 from nccl.inflight_ops where age_ns > 2e9"),
                 "an operation in flight")
        said = jobs[0].probing("nccl")
        print(said[said.index("in flight"):])
        assert "waits for rank 1 of it" in said
    finally:
        for job in jobs:
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
        job.do("steps(1500)")
        job.seen()
        kernels, unlaunched, unplaced = job.rows(
            "select kernels, unlaunched, unplaced from cuda.tracing")[0]
        with_module = job.rows("select sum(count) from cuda.kernel_stats where module is not null")
        print("   after 1,500 steps more: %d kernels, with module %s; call not seen %d, no room %d"
              % (kernels, with_module[0][0], unlaunched, unplaced))
        print("   about:", job.rows("select * from cuda.tracing")[0])
        assert unlaunched < 0.01 * kernels, "calls that launched were not seen"
        assert with_module[0][0] > 0.8 * kernels, "kernels without a module"
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


def share(job, span):
    """The device's work in that time: {column: share of it}."""
    names = ["busy_ns", "kernel_ns", "collective_ns", "copy_ns", "idle_ns", "idle_host_ns",
             "idle_sync_ns", "idle_copy_ns", "idle_other_ns"]
    sums = job.rows("select count(*), %s from cuda.device_time where ts between to_timestamp(%f) "
                    "and to_timestamp(%f)" % (", ".join("sum(%s)" % n for n in names),
                                              span[0] + 1, span[1]))[0]
    assert sums[0], "no rows of cuda.device_time in that time"
    whole = (sums[1 + names.index("busy_ns")] + sums[1 + names.index("idle_ns")]) or 1
    return {n: round(v / whole, 3) for n, v in zip(names, sums[1:])}


def check_why_it_is_idle(python):
    """A device that is kept busy, one whose host sleeps, one whose host waits, one that copies."""
    job, wrong = Job(python, "cuda"), []
    try:
        job.wait_state("tracing")
        for what, column, least in [("busy", "busy_ns", 0.8), ("late", "idle_host_ns", 0.5),
                                    ("waits", "idle_sync_ns", 0.02), ("copies", "copy_ns", 0.2)]:
            span = job.ask("until(4, %s)" % what)
            job.seen()
            got = share(job, span)
            print("   %s: %s" % (what, got))
            if got[column] < least or got["idle_other_ns"] > 0.1:
                wrong.append("%s: %s" % (what, got))
        print(job.probing("cuda"))
        assert not wrong, "; ".join(wrong)
    finally:
        job.close()


REPORTS = [["cuda"], ["cuda", "--json"], ["gpu"], ["gpu", "--json"], ["torch"], ["memory"],
           ["backtrace"], ["plugin", "list"], ["tables"], ["top", "--once"],
           ["flamegraph", "cuda", "-f", "folded"], ["flamegraph", "torch", "-f", "folded"],
           ["export", "--format", "chrome", "--last", "1s"],
           ["query", "select * from probing.overhead"], ["query", "select * from cuda.tracing"],
           ["query", "select name, count, total_ns, module from cuda.kernel_stats limit 20"],
           ["query", "select * from cuda.kernels limit 3"],
           ["query", "select * from cuda.memory limit 20"],
           ["query", "select * from cuda.memcpy limit 20"],
           ["query", "select * from cuda.runtime order by duration_ns desc limit 20"],
           ["query", "select * from cuda.sync limit 10"],
           ["query", "select * from cuda.overhead limit 10"],
           ["query", "select * from gpu.devices"], ["query", "select * from gpu.processes"],
           ["query", "select * from gpu.utilization order by ts desc limit 5"],
           ["query", "select * from python.torch_trace order by ts desc limit 30"],
           ["query", "select * from python.torch_device_time limit 10"],
           ["query", "select * from gpu_metrics limit 3"]]


def check_reports(python):
    """The answers of commands about a job that trains, kept to be read by people."""
    job, failed = Job(python, "torch", "cuda", "gpu", "memory", "system", "profile"), []
    try:
        job.wait_state("tracing")
        job.do("background(1000000)")
        time.sleep(8)  # so that there is something to be said
        with tempfile.TemporaryDirectory() as room:
            for words in REPORTS:
                begin = time.monotonic()
                done = subprocess.run([str(BUILD / "probing"), "-t", str(job.process.pid), *words],
                                      capture_output=True, text=True, env=job.env, check=False,
                                      timeout=30)
                if done.returncode:
                    failed.append(" ".join(words))
                name = re.sub("[^a-z0-9]+", "-", " ".join(words).lower())[:60]
                Path(room, name + ".txt").write_text(
                    "%s: %d, %.2f s\n%s\n%s" % (words, done.returncode, time.monotonic() - begin,
                                               done.stdout, done.stderr))
            for out in KEPT:
                with tarfile.open(out / "reports.tar.gz", "w:gz") as kept:
                    for file in sorted(os.listdir(room)):
                        kept.add(os.path.join(room, file), file)
        job.process.kill()
        job.process.wait()
        data = next(Path(job.folder).glob("%d-*" % job.process.pid))
        dead = subprocess.run([str(BUILD / "probing"), "-t", str(data), "cuda"], check=False,
                              capture_output=True, text=True, env=job.env)
        print("   after kill -9:", dead.returncode, dead.stdout[:400], dead.stderr[:300])
        assert not failed and dead.returncode == 0, "failed: " + "; ".join(failed)
    finally:
        job.close()


def check_graphs(python):
    """Kernels of graphs that were captured before and while it traces; on and off meanwhile."""
    job = Job(python)
    try:
        job.do("early = captured(10)")
        job.probing("plugin", "load", "cuda")
        job.wait_state("tracing")
        job.do("now = captured(10)")
        early, now = counted(job, "replay(early, 20)"), counted(job, "replay(now, 20)")
        print("   200 kernels in graphs: %d seen of one captured before, %d of one captured while "
              "it traces" % (early, now))
        job.do("thread = threading.Thread(target=replay, args=(now, 200000), daemon=True)\n"
               "thread.start()")
        for _ in range(30):
            job.probing("config", "cuda.kernels=off")
            job.probing("config", "cuda.kernels=on")
        assert job.process.poll() is None
        assert early == now == 200, "kernels of a graph are missing"
    finally:
        job.close()


def check_default_cost(python):
    """cuda.window as it is usual, beside a program that is bound by its launches: before the plugin
    was there, with it, and switched off; what steps took in and between windows.  That it goes over
    to windows is judged, times are not."""
    job, took = Job(python, "torch", always=False), []
    try:
        job.ask("during(3)")
        took.append(("before", job.ask("during(10)")))
        job.probing("plugin", "load", "cuda")
        begin = time.monotonic()
        took.append(("with it", job.ask("during(50)")))
        elapsed = time.monotonic() - begin
        about = job.rows("select state, reason, calls_per_second, max_cost_pct, traced_ns / 1e9, "
                         "begun from cuda.tracing")[0]
        said = job.probing("cuda")
        job.probing("config", "cuda.kernels=off")
        took.append(("off", job.ask("during(10)")))
        for state, ms in took:
            print("   %-8s a step takes %.3f ms: %+.1f %%" % (state, ms,
                                                             100 * (ms / took[0][1] - 1)))
        print("   traced for %.1f s of %.1f; about: %r" % (about[4], elapsed, about))
        print("\n".join(line for line in said.splitlines()
                        if "while it traced" in line or "launch-bound" in line))
        assert about[2] > 0, "no calls were counted"
        assert about[4] < 0.6 * elapsed or about[3] < 4, "it was traced all the time"
    finally:
        job.close()


def check_overhead(python):
    """Steps and single launches: before the plugin was there, while it traces, and switched off
    again: printed, not judged."""
    job, took = Job(python), {}
    try:
        for state in "before", "on", "off", "on again", "off again", "window":
            if state == "on":
                job.probing("plugin", "load", "cuda")
            elif state == "window":
                job.probing("config", "cuda.window=100ms/1s")
                job.probing("config", "cuda.kernels=on")
            elif state != "before":
                job.probing("config", "cuda.kernels=" + state.split()[0])
            if state not in ("before", "window"):
                job.wait_state("tracing" if state.startswith("on") else "off")
            took[state] = [statistics.median(job.ask(what) * 1e6 for _ in range(5))
                           for what in ("timed(50)", "small(10000)")]
            print("   %-10s a step %.1f us, a small kernel %.2f us; %+.1f %%, %+.1f %%" % (
                state, *took[state], *(100 * (now / was - 1) for now, was in zip(
                    took[state], took["before"]))))
        print("   about:", job.rows("select kernels, records, kernel_rows, lost, refused, "
                                    "unlaunched from cuda.tracing")[0])
    finally:
        job.close()


def check_torch_profiler_beside(python):
    """Begun while we trace, and after we were switched off: its trace is as whole as without us, it
    has nothing to complain of, and ours goes on after it."""
    job = Job(python)
    try:
        without = job.ask("profiled(50)")["n"]
        job.probing("plugin", "load", "cuda")
        job.wait_state("tracing")
        got = []
        for _ in range(2):
            got.append(job.ask("profiled(50)")["n"])
            print("   then: ", job.rows("select state, reason, late, lost from cuda.tracing")[0])
            job.wait_state("tracing")
            job.do("steps(10)")
            assert job.seen() > 0
        job.probing("config", "cuda.kernels=off")
        off = job.ask("profiled(50)")["n"]
        print("   torch.profiler: %d kernels without us, %r while we trace, %d when we are off"
              % (without, got, off))
        assert got == [without] * 2, "kernels are missing in its trace"
        assert off == without, "kernels are missing after we were switched off"
        assert "unknown buffer" not in job.errors(), "it was given buffers of ours"
    finally:
        job.close()


def check_windows(python):
    """cuda.window while it trains: sums of each window are whole, and steps are as quick between as
    without us; the last is printed, not judged."""
    job = Job(python, "torch")
    try:
        before = job.ask("timed(200)")
        job.probing("plugin", "load", "cuda")
        job.probing("config", "cuda.window=500ms/2s")
        job.do("background(1000000)")
        wait_for(lambda: job.rows("select count(*) from cuda.windows")[0][0] >= 4, "windows")
        last = job.rows("select max(window_id) from cuda.windows")[0][0]
        sums = "select window_id, sum(%%s) from cuda.%%s where window_id <= %d group by 1" % last
        seen = {w: n for w, n in job.rows(sums % ("kernels", "windows")) if n}
        rows = dict(job.rows(sums % ("count", "kernel_stats")))
        print("   kernels of windows: %r; durations, ms: %r" % (seen, job.rows(
            "select duration_ns / 1000000 from cuda.windows order by 1")))
        print("\n".join(job.probing("cuda").splitlines()[:12]))
        print("   unlaunched:", job.rows("select kernels, unlaunched, late from cuda.tracing")[0])
        print("   a step %.1f us without us" % (before * 1e6))
        assert seen == rows, "sums differ: %r" % rows
    finally:
        job.close()


def check_streams_and_threads(python):
    """Each kernel of eight threads with streams of their own; two processes on one device."""
    job = Job(python, "cuda")
    other = Job(python, "cuda")
    try:
        for one in job, other:
            one.wait_state("tracing")
        other.do("background(100000)")
        n = counted(job, "streams(2000, 8)")
        print("   8 * 2000 kernels (and 8 fills): %d seen; streams, threads: %s" % (n, job.rows(
            "select count(distinct stream), count(distinct thread_id) from cuda.kernels")))
        for _ in range(20):
            for one in job, other:
                one.probing("config", "cuda.kernels=off")
                one.probing("config", "cuda.kernels=on")
        assert n == 8 * 2000 + 8, "kernels are missing"
    finally:
        job.close()
        other.close()


LOADER = """
import torch.utils.data as d
class Set(d.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.ones(8) * i
print(sum(float(b.cuda().sum()) for b in d.DataLoader(Set(), batch_size=8, num_workers=2,
                                                      multiprocessing_context="fork")))
"""


def check_fork_eject_and_memory(python):
    """Loaders that fork, torch's own memory history, leaving and coming again while it trains."""
    job = Job(python, "torch", "cuda", "memory")
    try:
        job.wait_state("tracing")
        job.do("background(1000000)")
        print("   loader:", job.do(LOADER))
        print("   memory:", job.do(
            "torch.cuda.memory._record_memory_history(max_entries=10000)\n"
            "z = [torch.empty(1 << 20, device='cuda') for _ in range(10)]\n"
            "s = torch.cuda.memory._snapshot()\nprint(len(s['segments']))\n"
            "torch.cuda.memory._record_memory_history(enabled=None)\ntorch.cuda.empty_cache()"))
        for _ in range(5):
            job.probing("eject")
            job.probing("inject", "--plugin", "cuda")
            job.wait_state("tracing")
        before = job.rows("select kernels from cuda.tracing")[0][0]
        wait_for(lambda: job.rows("select kernels from cuda.tracing")[0][0] > before, "kernels")
        print("   after five times out and in:", job.rows("select * from cuda.tracing")[0])
        assert job.process.poll() is None
    finally:
        job.close()


OTHERS = {"cupy": """
import sys, cupy
x = cupy.ones((512, 512), dtype="float32")
print("ready", cupy.__version__, flush=True)
for line in sys.stdin:
    for _ in range(100):
        x = x * 1.0001
    cupy.cuda.Device().synchronize()
    print(0, flush=True)
""", "jax": """
import os, sys
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax, jax.numpy as jnp
f = jax.jit(lambda x: x * 1.0001 + 1)
x = f(jnp.ones((512, 512)))
print("ready", jax.__version__, jax.devices(), flush=True)
for line in sys.stdin:
    for _ in range(100):
        x = f(x)
    x.block_until_ready()
    print(0, flush=True)
"""}


def check_other_frameworks(python):
    """A hundred kernels of CuPy and of JAX, entered late."""
    wrong = []
    for name, program in OTHERS.items():
        job = Job(None, "cuda", words=[python, "-c", program])
        try:
            job.tell("")
            job.wait_state("tracing")
            before = job.seen()
            job.tell("")
            n = job.seen() - before
            print("   %s: %d seen," % (job.about, n),
                  job.rows("select name, count from cuda.kernel_stats limit 3"))
            if n < 100:
                wrong.append("%s: %d of 100" % (name, n))
        except AssertionError as why:
            print("   %s: %s" % (name, why))
            wrong.append(name)
        finally:
            job.close()
    assert not wrong, "; ".join(wrong)


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
