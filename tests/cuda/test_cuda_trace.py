# SPDX-License-Identifier: Apache-2.0
"""What becomes of CUPTI's records, version by version; they are a stand-in's, laid out as the
headers of each version say."""
import json

import pytest
from standin import VERSIONS, Device
from world import wait_for


@pytest.mark.parametrize("version", VERSIONS)
def test_every_kind_of_record_has_its_row(world, version):
    d = Device(world, "driver", "cupti", STANDIN_CUPTI=version,
               settings=["cuda.min_call_duration=0"])
    d.wait_state("tracing")
    d.do("kernel('gemm', ns=1500000); cupti.standin_copy(1, 4096, False, 90000, 10000, 70000); "
         "cupti.standin_set(512, 1000); cupti.standin_peer(1 << 40, 0, 1, 5000); "
         "cupti.standin_memory(1, 0x7f0000001000, 1 << 33, 25000); "
         "cupti.standin_sync(0, 2000000); cupti.standin_overhead(2 << 16, 3000)")
    assert d.wait_rows("select name, duration_ns, end_ns - start_ns, device, context, stream, grid,"
                       " block, registers, shared_bytes, queued_ns, launch_ns, graph_id from "
                       "cuda.kernels") == [["gemm", 1500000, 1500000, 0, 1, 7, "10x2x1", "256x1x1",
                                            32, 1124, 20000, 5000, None]]
    copies = d.wait_rows("select kind, bytes, duration_ns, src_kind, dst_kind, src_device, "
                         "dst_device, async from cuda.memcpy order by kind", 3)
    assert copies == [["HtoD", 4096, 70000, "pageable", "device", None, None, 0],
                      ["PtoP", 1 << 40, 5000, "device", "device", 0, 1, 1],
                      ["memset", 512, 1000, None, "device", None, None, 1]]
    assert d.wait_rows("select kind, memory_kind, bytes, address, duration_ns, device, async from "
                       "cuda.memory") == [["alloc", "device", 1 << 33, 0x7f0000001000, 25000, 0, 0]]
    assert d.wait_rows("select kind, duration_ns, context, stream, event_id from cuda.sync") == [
        ["stream", 2000000, 1, 7, None]]
    assert d.wait_rows("select kind, duration_ns from cuda.overhead") == [
        ["instrumentation", 3000]]
    calls = d.wait_rows("select name, api, duration_ns, result from cuda.runtime order by ts", 4)
    assert calls == [["cudaLaunchKernel", "runtime", 5000, 0], ["cudaMemcpy", "runtime", 90000, 0],
                     ["cudaMalloc", "runtime", 25000, 0],
                     ["cudaStreamSynchronize", "runtime", 2000000, 0]]
    assert d.tracing("records > 10", "unknown", "torn", "lost", "late", "kernels",
                     "kernel_rows") == [True, 0, 0, 0, 0, 1, 1]


def test_above_the_rate_kernels_are_summed_up_and_none_is_missing(world):
    d = Device(world, "driver", "cupti", settings=["cuda.max_rows_per_second=100"])
    d.wait_state("tracing")
    d.do("for i in range(30000): kernel('short', call=1000, after=2000, ns=500 + i % 2)")
    assert wait_for(lambda: d.tracing("kernels") == [30000],
                    lambda: repr(d.rows("select * from cuda.tracing")))
    d.wait_rows("select 1 from cuda.kernel_stats having sum(count) = 30000")
    total = d.rows("select sum(count), sum(total_ns), min(min_ns), max(max_ns), sum(launch_ns), "
                   "sum(queued_ns), sum(kernel_rows) from cuda.kernel_stats where name = 'short'")
    rows = d.rows("select count(*) from cuda.kernels")[0][0]
    assert total == [[30000, 30000 * 500 + 15000, 500, 501, 30000 * 1000, 30000 * 2000, rows]]
    seconds = d.rows("select max(start_ns) / 1000000000 - min(start_ns) / 1000000000 + 1 "
                     "from cuda.kernels")[0][0]
    assert 100 <= rows <= 100 * seconds
    assert d.tracing("lost", "torn", "unplaced", "kernel_rows") == [0, 0, 0, rows]


def test_what_is_lost_torn_unknown_or_early_is_said(world):
    d = Device(world, "driver", "cupti")
    d.wait_state("tracing")
    d.do("cupti.standin_kernels_first(True); kernel('first'); cupti.standin_unknown(); "
         "kernel('second'); cupti.standin_torn(); kernel('third'); cupti.standin_drop(41)")
    rows = d.wait_rows("select name, launch_ns, thread_id from cuda.kernels order by ts", 3)
    tid = rows[0][2]
    assert rows == [["first", 5000, tid], ["second", 5000, tid], ["third", 5000, tid]] and tid
    assert d.tracing("unknown", "torn", "lost") == [1, 1, 41]
    assert d.wait_rows("select sum(lost) from cuda.device_time having sum(lost) = 41")


def test_threads_have_their_own_kernels(world):
    d = Device(world, "driver", "cupti", settings=["cuda.max_rows_per_second=100000"])
    d.wait_state("tracing")
    said = d.do("""
def work(name):
    tids[name] = threading.get_native_id()
    for i in range(500):
        kernel(name)
tids = {}
threads = [threading.Thread(target=work, args=("thread%d" % i,)) for i in range(4)]
for t in threads: t.start()
for t in threads: t.join()
import json
print(json.dumps(tids))
""")
    wait_for(lambda: d.tracing("kernels") == [2000], "2,000 kernels")
    found = d.rows("select name, thread_id, count(*) from cuda.kernels group by name, thread_id")
    tids = json.loads(said)
    assert sorted(found) == sorted([name, tid, 500] for name, tid in tids.items())


def test_threads_that_have_no_number_are_null(world):
    d = Device(world, "driver", "cupti", STANDIN_HALF_THREADS="1",
               settings=["cuda.min_call_duration=0"])
    d.wait_state("tracing")
    d.do("kernel('one'); cupti.standin_overhead(1 << 16, 10)")
    assert d.wait_rows("select thread_id, launch_ns from cuda.kernels") == [[None, 5000]]
    assert d.wait_rows("select thread_id, name from cuda.runtime") == [[None, "cudaLaunchKernel"]]
    assert d.wait_rows("select thread_id, kind from cuda.overhead") == [[None, "buffer flush"]]


def test_what_the_device_did_with_its_time(world):
    d = Device(world, "driver", "cupti")
    d.wait_state("tracing")
    # In ms of one clock: a kernel 0 to 10; a copy 5 to 20, of which 10 to 20 alone; idle 20 to 30,
    # launched late; a collective 30 to 50, beside a kernel 40 to 60; idle 60 to 70: the host waited
    # from 58 to 62 and then did something else: without the wait it had been late for 6 all the
    # same; the next was queued long before it began.
    d.do("""
ms = 1000000
base = time.time_ns()
def at(moment, call):
    cupti.standin_begin(ctypes.c_uint64(base + moment * ms))
    call()
at(0, lambda: kernel('compute', call=1000, after=0, ns=10 * ms))
at(5, lambda: cupti.standin_copy(1, 4096, True, 1000, 0, 15 * ms))
nccl = '_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE'
at(30, lambda: kernel(nccl, call=1000, after=0, ns=20 * ms))
at(31, lambda: kernel('compute', call=1000, after=9 * ms, ns=20 * ms))
at(58, lambda: cupti.standin_sync(0, 4 * ms))
at(70, lambda: kernel('compute', call=1000, after=0, ns=10 * ms))
at(71, lambda: kernel('compute', call=1000, after=19 * ms, ns=10 * ms))
""")
    columns = ["wall", "busy", "kernel", "collective", "copy", "idle", "idle_host", "idle_sync",
               "idle_copy", "idle_other", "launch"]
    d.wait_rows("select 1 from cuda.device_time having sum(kernels) = 5")
    found = d.rows("select %s from cuda.device_time" % ", ".join("sum(%s_ns)" % c for c in columns))
    in_ms = {c: round(v / 1e6) for c, v in zip(columns, found[0])}
    assert in_ms == {"wall": 100, "busy": 70, "kernel": 60, "collective": 10, "copy": 10,
                     "idle": 30, "idle_host": 16, "idle_sync": 4, "idle_copy": 0,
                     "idle_other": 10, "launch": 0}


def test_times_are_those_of_the_host(world):
    d = Device(world, "driver", "cupti")
    d.wait_state("tracing")
    before = int(d.do("print(time.monotonic_ns()); _ = kernel('now', after=0)"))
    after = int(d.do("print(time.monotonic_ns())"))
    start = d.wait_rows("select start_ns from cuda.kernels")[0][0]
    error = d.tracing("clock_error_ns")[0]
    assert before - error <= start <= after + error and error < 1000000000


@pytest.mark.parametrize("version", ["12.4.127", "12.9.79"])
def test_calls_that_only_ask_do_not_hide_those_that_launch(world, version):
    """torch asks a dozen times for each kernel: more than there is room for while a kernel waits.
    CUPTI leaves them out where it can (12.5 and newer), and looks at no call when it is over."""
    d = Device(world, "driver", "cupti", STANDIN_CUPTI=version,
               settings=["cuda.min_call_duration=0"])
    d.wait_state("tracing")
    d.do("kernel('one'); cupti.standin_ask(80000); kernel('two')")
    assert d.wait_rows("select name, launch_ns from cuda.kernels order by ts", 2) == [
        ["one", 5000], ["two", 5000]]
    assert d.tracing("unlaunched", "lost") == [0, 0]
    chooses = version != "12.4.127"
    assert (d.tracing("records")[0] < 1000) == chooses
    assert d.rows("select count(distinct name) from cuda.runtime")[0][0] == (1 if chooses else 2)
    assert d.target.probing("config", "cuda.kernels=off").returncode == 0
    if chooses:
        assert d.do("print(cupti.standin_chosen())") == "0"


def test_copies_waits_and_allocations_above_the_rate_are_summed_up(world):
    d = Device(world, "driver", "cupti", settings=["cuda.max_rows_per_second=5"])
    d.wait_state("tracing")
    d.do("""
for i in range(30):
    cupti.standin_copy(1, 100, i % 3 > 0, 1000, 2000, 3000)
    cupti.standin_sync(0, 4000)
    cupti.standin_memory(1, 4096, 50, 700)
""")
    asked = "select event, kind, memory_kind, sum(count), sum(bytes), sum(total_ns), sum(waited) " \
        "from cuda.event_stats group by 1, 2, 3 having sum(count) = 30 order by 1"
    assert d.wait_rows(asked, 3) == [
        ["memcpy", "HtoD", "pageable", 30, 3000, 90000, 10],
        ["memory", "alloc", "device", 30, 1500, 21000, 0],
        ["sync", "stream", None, 30, None, 120000, 0]]
    for table in "memcpy", "memory", "sync":
        rows = d.rows("select count(*) from cuda." + table)[0][0]
        assert d.rows("select sum(event_rows) from cuda.event_stats where event = '%s'"
                      % table) == [[rows]] and rows < 30
