# SPDX-License-Identifier: Apache-2.0
"""`probing cuda` and `flamegraph cuda`: figures of rows that are known, and of the stand-in's
records against a reckoning of the test's own."""
import json
import random
import re

import pytest
from played import SECOND, Played
from standin import Device
from world import wait_for

MS = 1000000
GEMM = ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEENS_6detail5Array"
        "IPcLi1EEEEEviT0_T1_")


def device_time(played, wall_ms, busy_ms, host=0, sync=0, copy=0, other=0, collective=0, launch=0,
                copies=0, **more):
    played.add("device_time", device=0, wall_ns=wall_ms * MS, busy_ns=busy_ms * MS,
               kernel_ns=(busy_ms - copies) * MS, collective_ns=collective * MS,
               copy_ns=copies * MS, idle_ns=(wall_ms - busy_ms) * MS, idle_host_ns=host * MS,
               idle_sync_ns=sync * MS, idle_copy_ns=copy * MS, idle_other_ns=other * MS,
               kernels=1000, launch_ns=launch * MS, lost=more.pop("lost", 0),
               **{"window_id": 1, **more})


def kernel_stats(played, step, name, module, count, total_ms, launch_us=5, queued_us=100, **more):
    played.add("kernel_stats", step=step, name=name, module=module, device=0, count=count,
               total_ns=int(total_ms * MS), min_ns=1, max_ns=total_ms * MS,
               launch_ns=None if launch_us is None else count * launch_us * 1000,
               queued_ns=None if launch_us is None else count * queued_us * 1000,
               kernel_rows=0, **{"window_id": 1, **more})


def event(played, table, kind, count, total_ms, waited=0, **more):
    """Sums, of which not all have a row: cuda.max_rows_per_second."""
    played.add("event_stats", event=table, kind=kind, count=count, total_ns=int(total_ms * MS),
               waited=waited, event_rows=min(count, 2000), **more)


def test_one_screen(world):
    played = Played(world)
    device_time(played, 600, 450, host=30, sync=90, copy=20, other=10, collective=40, copies=50,
                launch=60)
    device_time(played, 400, 350, host=10, sync=30, copy=10, lost=7, launch=20)
    for step in range(1, 6):  # 1 and 5 may be cut: three are whole
        kernel_stats(played, step, "gemm", "net.encoder", 10, 60)
        kernel_stats(played, step, "gemm", "net.decoder", 30, 40)
        kernel_stats(played, step, GEMM, "AdamW", 60, 20)
    event(played, "memcpy", "HtoD", 1, 8, memory_kind="pageable", bytes=80 * 10**6, waited=1)
    event(played, "memcpy", "HtoD", 4000, 2, memory_kind="pageable", bytes=20 * 10**6)
    event(played, "memcpy", "memset", 1, 0.001, memory_kind="device", bytes=1000)
    event(played, "sync", "stream", 1, 100, module="net.encoder")
    event(played, "sync", "stream", 9000, 50, module="net.encoder")
    event(played, "sync", "stream wait event", 1, 500)
    event(played, "memory", "alloc", 1, 2, memory_kind="device", bytes=1 << 30)
    played.play()
    said = played.target.probing("cuda")
    assert said.returncode == 0, said.stderr
    for line in ("device 0, 1.00 s", "  busy                      80.0 %",
                 "    kernels                 75.0 %", "    collectives only         4.0 %",
                 "    copies only              5.0 %", "  idle                      20.0 %",
                 "    the host is late         4.0 %", "    it has waited for us    12.0 %",
                 "    or for a copy            3.0 %", "    not known                1.0 %",
                 "  7 records were lost: busy is a lower bound",
                 "kernels: 100 a step, 120.000 ms; 500 in all, 1200.0 us each"):
        assert line + "\n" in said.stdout, said.stdout
    assert re.search(r"launch-bound\? no: the device waits for the host 4.0 % of the time; kernels "
                     r"stand in\s+its queue for 100.0 us on average", said.stdout), said.stdout
    assert re.search(r"^  gemm +200 +500.000 +50.0 %  net.encoder and 1 more$", said.stdout, re.M)
    assert re.search(r"^  at::native::vectorized_elementwise_kernel<4, .* +300 +100.000 +10.0 %  "
                     r"AdamW$", said.stdout, re.M), said.stdout
    assert re.search(r"^  net.encoder +50 +300.000 +30.0 %$", said.stdout, re.M), said.stdout
    assert re.search(r"^  HtoD +from pageable +4001 +100.0 MB +10.000 ms +1.0 %  10.0 GB/s; "
                     r"1 waited for$", said.stdout, re.M), said.stdout
    assert re.search(r"^  stream +9001 +150.000 ms  in net.encoder$", said.stdout, re.M)
    assert "stream wait event" not in said.stdout  # a stream did, not the host
    assert re.search(r"idle 12.0 % of the time after the host has waited for it, most in\s+module "
                     r"net.encoder", said.stdout), said.stdout
    told = json.loads(played.target.probing("cuda", "--json").stdout)
    assert told["devices"][0]["busy_ns"] == 800 * MS and told["devices"][0]["lost"] == 7
    assert told["steps"] == 3 and told["kernels"] == 500
    assert [(m["name"], m["total_ns"]) for m in told["modules"]] == [
        ("net.encoder", 300 * MS), ("net.decoder", 200 * MS), ("AdamW", 100 * MS)]
    assert len(told["suspicious"]) == 1
    played.target.kill()
    dead = played.target.probing("cuda")
    assert dead.returncode == 0, dead.stderr
    assert "    kernels                 75.0 %\n" in dead.stdout


@pytest.mark.parametrize("figures, stats, words, suspicion", [
    (dict(host=500, launch=400), dict(launch_us=8), "yes: the device waits for the host 50.0 %",
     "CUDA graphs"),
    (dict(host=500, launch=100), dict(launch_us=8), "no, but host-bound", "the host is late"),
    (dict(sync=500), {}, "no: the device waits for the host 0.0 %", ".item()"),
    (dict(copy=500), {}, "no: the device waits for the host 0.0 %", "non_blocking"),
    (dict(other=500, collective=300), {}, "no: the device", "30.0 % of the time only collectives"),
    (dict(other=500), dict(launch_us=None), "not known: no call", None)],
    ids=["launches", "host", "sync", "copies", "collectives", "unknown"])
def test_why_the_device_is_idle(world, figures, stats, words, suspicion):
    played = Played(world)
    device_time(played, 1000, 500, **figures)
    kernel_stats(played, None, "small", None, 50000, 300, **stats)
    played.play()
    told = json.loads(played.target.probing("cuda", "--json").stdout)
    assert told["launch_bound"].startswith(words), told
    assert len(told["suspicious"]) == (suspicion is not None), told
    assert suspicion is None or suspicion in told["suspicious"][0]
    assert played.target.probing("cuda").returncode == 0


def test_the_newest_time_only(world):
    played = Played(world)
    device_time(played, 1000, 500)
    played.add("device_time", 600 * SECOND, device=3, wall_ns=1, busy_ns=1)
    played.play()
    assert "device 3" not in played.target.probing("cuda").stdout
    assert "device 3" in played.target.probing("cuda", "--last", "1h").stdout


def test_where_nothing_was_seen(world):
    played = Played(world)
    said = played.target.probing("cuda")
    assert said.returncode != 0 and "no kernel and no copy was seen" in said.stderr
    assert "plugin load cuda" in played.target.probing("flamegraph", "cuda", "-o", "x.html").stderr
    other = world.start("sleep", "600")
    other.inject("-D", "probing.plugins=")
    said = other.probing("cuda")
    assert said.returncode != 0 and "plugin load cuda" in said.stderr


def test_flamegraph_has_modules_and_their_kernels(world):
    played = Played(world)
    for step in (1, 2):
        kernel_stats(played, step, "gemm<a;b>", "net.encoder.0", 10, 60)
        kernel_stats(played, step, "relu", "net.encoder", 10, 30)
        kernel_stats(played, step, "copy", None, 10, 10)
    kernel_stats(played, 2, "_Z4fillILi4EEvi", "net.head", 10, 5)
    played.play()
    out = world.tmp / "flame.folded"
    done = played.target.probing("flamegraph", "cuda", "--format", "folded", "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert set(out.read_text().splitlines()) == {
        "net;encoder;0;gemm<a:b> 120000000", "net;encoder;relu 60000000",
        "(no module);copy 20000000", "net;head;void fill<4>(int) 5000000"}


# ---- against a reckoning of the test's own ----

PLAYED = r"""
import random
random.seed(%d)
for i in range(150):
    what = random.random()
    if what < 0.6:
        kernel(random.choice(["gemm", "relu", "ncclDevKernel_AllReduce_Sum_f32"]),
               call=random.choice([2000, 30000]), after=random.choice([3000, 200000, 2000000]),
               ns=random.choice([1000, 100000, 3000000]))
    elif what < 0.8:
        cupti.standin_copy(1, 1 << 20, random.random() < 0.5, 40000, 10000,
                           random.choice([5000, 200000]))
    elif what < 0.9:
        cupti.standin_sync(0, random.choice([100000, 2000000]))
    else:
        time.sleep(random.choice([0, 0.002, 0.005]))
"""


def union(spans):
    """The length of what any of [begin, end) covers."""
    total, until = 0, 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


def test_the_time_of_the_device_adds_up(world):
    """Busy, kernels, copies and idle of random work, whose pieces overlap, from its single rows."""
    d = Device(world, "driver", "cupti", STANDIN_CUPTI="12.9.79", settings=[
        "cuda.max_rows_per_second=10000000", "cuda.min_call_duration=0"])
    d.wait_state("tracing")
    random.seed(5)
    for seed in range(4):
        d.do(PLAYED % seed)

    def seen():
        """Rows of single things, and sums, when all that was seen is in both."""
        kernels = d.rows("select start_ns, end_ns, name from cuda.kernels")
        copies = d.rows("select start_ns, end_ns from cuda.memcpy")
        sums = d.rows("select sum(kernels) from cuda.device_time")[0][0]
        return (kernels, copies) if sums == len(kernels) else None

    count = int(d.do("print(len(names))"))
    wait_for(lambda: d.rows("select count(*) from cuda.kernels") == [[count]],
             lambda: str(d.rows("select * from cuda.tracing")))
    kernels, copies = wait_for(seen, "sums of all")
    both = [(a, b) for a, b, _ in kernels] + [(a, b) for a, b in copies]
    alone = [(a, b) for a, b, n in kernels if "nccl" not in n] + [(a, b) for a, b in copies]
    wall = max(b for _, b in both) - min(a for a, _ in both)
    told = json.loads(d.target.probing("cuda", "--json", "--last", "10m").stdout)["devices"][0]
    assert told["busy_ns"] == union(both)
    assert told["kernel_ns"] == union([(a, b) for a, b, _ in kernels])
    assert told["copy_only_ns"] == union(both) - told["kernel_ns"]
    assert told["collective_only_ns"] == union(both) - union(alone)
    assert told["wall_ns"] == wall and told["idle_ns"] == wall - union(both)
    assert (told["idle_host_ns"] + told["idle_sync_ns"] + told["idle_copy_ns"]
            + told["idle_other_ns"]) == told["idle_ns"]


# ---- on the time line of traces ----


def test_kernels_copies_and_calls_in_a_trace(world):
    played = Played(world)
    begun = 5 * SECOND
    for i, (name, stream) in enumerate((("gemm", 7), ("ncclDevKernel_AllReduce", 9),
                                      ("_Z4fillILi4EEvi", 7))):
        played.add("kernels", begun - i * MS, name=name, duration_ns=2 * MS if stream == 9 else MS,
                   device=0, stream=stream, module="net.a", step=3, thread_id=4242, grid="1x1x1")
    played.add("memcpy", begun - 3 * MS, kind="HtoD", bytes=4096, duration_ns=MS // 2, device=0,
               stream=7)
    played.add("runtime", begun, name="cudaLaunchKernel", api="runtime", duration_ns=MS // 4,
               thread_id=4242)
    played.play()
    path = world.tmp / "trace.json"
    done = played.target.probing("export", "--format", "chrome", "-o", str(path))
    assert done.returncode == 0, done.stderr
    events = json.loads(path.read_text())["traceEvents"]
    lines = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    shown = [e for e in events if e["ph"] == "X"]
    first = min(e["ts"] for e in shown)
    told = sorted((lines.get(e["tid"], e["tid"]), e["cat"], e["name"], round(e["ts"] - first),
                   e["dur"]) for e in shown if lines.get(e["tid"]))
    assert told == [("GPU 0, stream 7", "copy", "HtoD", 3000, 500),
                    ("GPU 0, stream 7", "kernel", "gemm", 0, 1000),
                    ("GPU 0, stream 7", "kernel", "void fill<4>(int)", 2000, 1000),
                    ("GPU 0, stream 9", "collective", "ncclDevKernel_AllReduce", 1000, 2000)]
    assert [(e["tid"], e["cat"], e["dur"]) for e in shown if e["name"] == "cudaLaunchKernel"] == [
        (4242, "runtime", 250)]
    gemm = next(e for e in shown if e["name"] == "gemm")
    assert gemm["args"]["in_module"] == "net.a" and gemm["args"]["step"] == 3
    done = played.target.probing("export", "--format", "perfetto", "--tracks", "kernels", "-o",
                                 str(world.tmp / "trace.pftrace"))
    assert done.returncode == 0, done.stderr
    data = (world.tmp / "trace.pftrace").read_bytes()
    assert b"gemm" in data and b"void fill<4>(int)" in data and b"GPU 0, stream 9" in data
    assert b"HtoD" not in data
