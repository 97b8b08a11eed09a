# SPDX-License-Identifier: Apache-2.0
"""What programs do to CUDA beside their work: threads that launch while tracing goes on and off or
the program ends, modules that are gone when their kernels are told, several devices and streams, a
device that is reset, two processes.  The driver and CUPTI are stand-ins: nothing here says what a
real CUPTI does then (scons gpu)."""
import os
import signal

import pytest
from standin import Device
from world import LIMIT, wait_for

BURSTS = """
for i in range(4):
    threading.Thread(target=cupti.standin_burst, args=(b'of thread %d' % i, 20000, 600),
                     daemon=True).start()
"""


@pytest.mark.parametrize("version", ["12.9.79", "13.5.25"])
def test_on_and_off_while_four_threads_launch(world, version):
    d = Device(world, "driver", "cupti", STANDIN_CUPTI=version,
               settings=["cuda.max_rows_per_second=10"])
    d.wait_state("tracing")
    d.do(BURSTS)
    for _ in range(20):
        assert d.target.probing("config", "cuda.kernels=off").returncode == 0
        assert d.target.probing("config", "cuda.kernels=on").returncode == 0
    d.wait_state("tracing")
    before = d.tracing("kernels")[0]
    wait_for(lambda: d.tracing("kernels")[0] > before + 1000, "kernels")
    assert d.tracing("torn", "unknown") == [0, 0]
    names = d.rows("select distinct name from cuda.kernel_stats where name like 'of thread%'")
    assert len(names) == 4


@pytest.mark.parametrize("end,status", [("ctypes.CDLL(None).exit(3)", 3), ("os._exit(4)", 4),
                                        ("os.kill(os.getpid(), 9)", -signal.SIGKILL)])
def test_an_end_while_four_threads_launch(world, end, status):
    d = Device(world, "driver", "cupti", settings=["cuda.max_rows_per_second=10"])
    d.wait_state("tracing")
    d.do(BURSTS)
    d.wait_rows("select 1 from cuda.kernel_stats")  # sums are written once a second
    d.target.probing("eval", end)
    assert d.target.process.wait(LIMIT) == status
    assert d.rows("select sum(count) > 0 from cuda.kernel_stats") == [[1]]


def test_names_that_are_gone_are_null(world):
    """A module is unloaded, a context destroyed: its texts may be, too, before they are read."""
    d = Device(world, "driver", "cupti")
    d.wait_state("tracing")
    d.do("""
import mmap
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
place = libc.mmap(None, ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_long(0))
ctypes.memmove(place, b'of a module', 12)
cupti.standin_hold(True)
cupti.standin_kernel.argtypes = [ctypes.c_void_p] + cupti.standin_kernel.argtypes[1:]
cupti.standin_kernel(place, 0, 7, 1, 1000, 2000, 5000)
cupti.cuptiActivityFlushAll(0)
assert libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(4096)) == 0
cupti.standin_hold(False)
cupti.standin_release()
""")
    assert d.wait_rows("select name, duration_ns from cuda.kernels") == [[None, 5000]]
    d.do("cupti.standin_kernel(names.append(b'later') or names[-1], 0, 7, 1, 1, 2, 3)")
    d.wait_rows("select 1 from cuda.kernels where name = 'later'")


def test_devices_and_streams_are_told_apart(world):
    d = Device(world, "driver", "cupti", settings=["cuda.max_rows_per_second=100000"])
    d.wait_state("tracing")
    d.do("for i in range(60): kernel('k%d' % (i % 2), device=i % 2, stream=7 + i % 3, ns=1000000)")
    d.wait_rows("select 1 from cuda.kernels", 60)
    assert d.rows("select device, stream, count(*) from cuda.kernels group by 1, 2 order by 1, 2"
                  ) == [[device, stream, 10] for device in (0, 1) for stream in (7, 8, 9)]
    d.wait_rows("select 1 from cuda.device_time group by device having sum(kernels) = 30", 2)
    assert d.rows("select device, name, sum(count) from cuda.kernel_stats group by 1, 2 order by 1"
                  ) == [[0, "k0", 30], [1, "k1", 30]]


def test_two_processes_have_their_own_kernels(world):
    both = [Device(world, "driver", "cupti", STANDIN_CUPTI=v) for v in ("12.9.79", "13.5.25")]
    for n, d in enumerate(both):
        d.wait_state("tracing")
        d.do("kernel('of %d')" % n)
    for n, d in enumerate(both):
        assert d.wait_rows("select name from cuda.kernels") == [["of %d" % n]]


def test_a_fork_while_four_threads_launch(world):
    """CUDA does not work in a child, and nothing of ours may hold it up there."""
    d = Device(world, "driver", "cupti", settings=["cuda.max_rows_per_second=10"])
    d.wait_state("tracing")
    d.do(BURSTS)
    for _ in range(5):
        assert d.do("pid = os.fork()\nif pid == 0: os._exit(5)\n"
                    "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))") == "5"
    before = d.tracing("kernels")[0]
    wait_for(lambda: d.tracing("kernels")[0] > before, "kernels of the parent")
    os.kill(d.target.pid, signal.SIGTERM)
    assert d.target.process.wait(LIMIT) == -signal.SIGTERM


def test_a_call_of_cupti_that_hangs_holds_up_nobody(world):
    """A driver that hangs is when people ask.  What needs CUPTI refuses, all else answers."""
    d = Device(world, "driver", "cupti")
    d.wait_state("tracing")
    d.do("kernel('first')")
    d.wait_rows("select 1 from cuda.kernels")
    d.do("""
def hang():
    cupti.standin_hang(True)
    while not over:
        time.sleep(0.01)
    cupti.standin_hang(False)
over = []
threading.Thread(target=hang, daemon=True).start()
""")
    wait_for(lambda: "CUPTI has not answered for" in (d.tracing("reason")[0] or ""), "a word of it")
    done = d.target.probing("config", "cuda.kernels=off")
    assert done.returncode != 0 and "CUPTI does not answer" in done.stderr
    said = d.target.probing("cuda")
    assert "CUPTI has not answered" in said.stdout + said.stderr
    assert d.rows("select name from cuda.kernels") == [["first"]]
    d.do("over.append(1)")
    wait_for(lambda: not d.tracing("reason")[0], "CUPTI to answer again")
    d.do("kernel('second')")
    d.wait_rows("select 1 from cuda.kernels where name = 'second'")
    assert d.target.probing("config", "cuda.kernels=off").returncode == 0
    assert d.tracing("state") == ["off"]


# Called when tracing begins, while it goes on, and when it ends; all of them in a full run.
HANGS = ["cuptiActivityEnable", "cuptiActivityFlushAll", "cuptiActivityDisable"]
SHARED_HANGS = ["cuptiActivityEnable_v2"]  # where CUPTI is shared (13.2 and newer)
if os.environ.get("PROBING_TEST_FULL"):
    HANGS += ["cuptiGetVersion", "cuptiGetTimestamp", "cuptiGetCallbackName",
              "cuptiActivityRegisterCallbacks", "cuptiActivityEnableAndDump",
              "cuptiActivityEnableRuntimeApi",
              "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords",
              "cuptiSetThreadIdType", "cuptiGetThreadIdType"]
    SHARED_HANGS += ["cuptiSubscribe_v2", "cuptiUnsubscribe"] + ["cuptiActivity%s_v2" % f for f in (
        "RegisterCallbacks", "EnableAndDump", "Disable", "SetAttribute", "GetNextRecord",
        "GetNumDroppedRecords")]


def comms(pid):
    """Names of a process's threads."""
    names = []
    for tid in os.listdir("/proc/%d/task" % pid):
        try:
            names.append(open("/proc/%d/task/%s/comm" % (pid, tid)).read().strip())
        except OSError:
            pass  # it has just ended
    return names


def plugin(d, *words):
    done = d.target.probing("plugin", *words)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("out,version,functions", [
    ("stop", "13.0.85", HANGS), ("stop", "13.5.25", SHARED_HANGS),
    ("eject", "13.0.85", HANGS[1:2])],
    ids=["stop", "shared", "eject"])
def test_a_call_of_cupti_that_hangs_costs_one_thread(world, out, version, functions):
    """The plugin stops, and comes again when the call has returned; until then it says which."""
    d = Device(world, "driver", "cupti", STANDIN_CUPTI=version)
    d.do("cupti.standin_hang_in.argtypes = [ctypes.c_char_p]")
    for function in functions:
        plugin(d, "stop", "cuda")
        d.do("cupti.standin_hang_in(%r)" % function.encode())
        plugin(d, "load", "cuda")
        wait_for(lambda: d.tracing("state") == ["tracing"]
                 or d.do("print(cupti.standin_hanging())") == "1", "a begin")
        d.do("kernel('of before')")
        if out == "stop":
            plugin(d, "stop", "cuda")
        else:
            assert d.target.probing("eject").returncode == 0
            d.target.inject()
        assert d.do("print(cupti.standin_hanging())") == "1"
        plugin(d, "load", "cuda")
        words = function + ", which was called before this plugin was loaded, has not returned"
        wait_for(lambda: words in (d.tracing("reason")[0] or ""),
                 lambda: "%s, but %r" % (words, d.tracing("state", "reason")))
        assert d.tracing("state") == ["waiting"]
        d.do("cupti.standin_hang_in(None)")
        d.wait_state("tracing")
        d.do("kernel('after %s')" % function)
        d.wait_rows("select 1 from cuda.kernels where name = 'after %s'" % function)
        wait_for(lambda: [n for n in comms(d.target.pid) if "cuda" in n] == ["probing/cuda"],
                 lambda: "one thread of ours: %r" % comms(d.target.pid))


def test_an_exit_while_cupti_hangs(world):
    d = Device(world, "driver", "cupti", STANDIN_CUPTI="13.0.85")
    d.wait_state("tracing")
    d.do("cupti.standin_hang_in.argtypes = [ctypes.c_char_p]\n"
         "cupti.standin_hang_in(b'cuptiActivityFlushAll')")
    wait_for(lambda: d.do("print(cupti.standin_hanging())") == "1", "a call that hangs")
    d.target.probing("eval", "import ctypes\nctypes.CDLL(None).exit(3)")
    assert d.target.process.wait(LIMIT) == 3
