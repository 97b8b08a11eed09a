# SPDX-License-Identifier: Apache-2.0
"""When CUDA is traced and when not: waiting, on and off, aside, refused, forks and exits.  The
driver and CUPTI are stand-ins."""
import os
import shutil
import signal

import pytest
from standin import LIBRARIES, Device
from world import LIMIT, wait_for

ENABLED = "print([k for k in range(64) if cupti.standin_enabled(k)], cupti.standin_thread_type())"


def test_it_waits_until_cuda_is_used_and_loads_nothing(world):
    d = Device(world)
    wait_for(lambda: "has not loaded CUDA's driver" in d.tracing("reason")[0], "a reason")
    state, reason = d.tracing("state", "reason")
    assert state == "waiting"
    wait_for(lambda: d.rows("select state, reason from probing.plugins where name = 'cuda'") ==
             [["running", reason]], "the reason among the plugins")
    asked = d.target.probing("query", "select * from cuda.kernels")
    assert "cuda.kernels has no rows: CUDA is not traced: " + reason in asked.stdout + asked.stderr
    assert "libcu" not in open("/proc/%d/maps" % d.target.pid).read()
    d.do("driver = load('libcuda.so.1')")
    wait_for(lambda: "has not initialised" in d.tracing("reason")[0], "another reason")
    d.do("stand('cupti')")
    assert d.tracing("state", "records") == ["waiting", 0]
    d.do("driver.cuInit(0)")
    d.wait_state("tracing")
    library, version = d.tracing("library", "version")
    assert library.endswith("libraries/libcupti.so") and version == 130500
    d.do("kernel('late')")
    assert d.wait_rows("select name from cuda.kernels") == [["late"]]


def test_cupti_is_found_beside_cuda_home(world):
    os.makedirs(world.tmp / "lib64")
    os.symlink(LIBRARIES / "libcupti.so", world.tmp / "lib64" / "libcupti.so")
    d = Device(world, "driver", CUDA_HOME=str(world.tmp))
    d.wait_state("tracing")
    assert d.tracing("library") == [str(world.tmp / "lib64" / "libcupti.so")]


def test_cupti_is_not_taken_from_where_the_program_happens_to_be(world):
    """A runtime that was loaded by a relative path says nothing after a chdir()."""
    d = Device(world, "driver", plugins="")
    for folder, name, source in (("own", "libcudart.so.12", "libcuda.so.1"),
                                 ("others", "libcupti.so.12", "libcupti.so")):
        os.makedirs(world.tmp / folder)
        shutil.copy(d.libraries / source, world.tmp / folder / name)
    d.do("os.chdir(%r); ctypes.CDLL('./libcudart.so.12'); os.chdir(%r)"
         % (str(world.tmp / "own"), str(world.tmp / "others")))
    assert d.target.probing("plugin", "load", "cuda").returncode == 0
    d.wait_state("refused")  # there is none, or the machine's own, which has no driver
    assert "others/libcupti" not in open("/proc/%d/maps" % d.target.pid).read()


def test_a_cupti_that_is_newer_than_the_driver_is_not_called(world):
    """13.2 crashes in its first call where there is no driver that it knows."""
    for major in 12, 13:
        shutil.copy(LIBRARIES / "libcupti.so", world.tmp / ("libcupti.so.%d" % major))
    d = Device(world, "driver", STANDIN_DRIVER="12040", LD_LIBRARY_PATH=str(world.tmp))
    d.wait_state("tracing")
    assert d.tracing("library") == ["libcupti.so.12"]
    d = Device(world, "driver", plugins="", STANDIN_DRIVER="12040")
    d.do("ctypes.CDLL(%r)" % str(world.tmp / "libcupti.so.13"))
    assert d.target.probing("plugin", "load", "cuda").returncode == 0
    d.wait_state("refused")
    assert "libcupti.so.13 is of CUDA 13, and the driver of 12.4" in d.tracing("reason")[0]


def test_cupti_is_not_taken_from_where_everybody_may_put_one(world):
    os.makedirs(world.tmp / "home" / "lib64")
    shutil.copy(LIBRARIES / "libcupti.so", world.tmp / "home" / "lib64")
    os.chmod(world.tmp / "home/lib64", 0o777)
    d = Device(world, "driver", CUDA_HOME=str(world.tmp / "home"))
    d.wait_state("refused")
    library, reason = d.tracing("library", "reason")
    assert library or "everybody may write" in reason  # else the machine has one of its own
    assert "home/lib64" not in open("/proc/%d/maps" % d.target.pid).read()


@pytest.mark.parametrize("version,shared", [("13.1.115", 0), ("13.5.25", 1)])
def test_on_and_off_a_hundred_times(world, version, shared):
    d = Device(world, "driver", "cupti", STANDIN_CUPTI=version)
    d.wait_state("tracing")
    assert d.tracing("shared") == [shared]
    enabled = d.do(ENABLED)
    assert " 10," in enabled and enabled.endswith("01"[not shared])  # a subscriber has its own
    for i in range(100):
        assert d.target.probing("config", "cuda.kernels=off").returncode == 0
        assert d.target.probing("config", "cuda.kernels=on").returncode == 0
        if i % 20 == 0:
            d.wait_state("tracing")
            d.do("kernel('number%d')" % i)
    assert d.target.probing("config", "cuda.kernels=off").returncode == 0
    assert d.do(ENABLED) == "[] 0"  # nothing is left behind, nor are threads numbered otherwise
    assert d.tracing("state", "reason", "buffers_taken") == ["off", None, 0]
    names = d.rows("select name from cuda.kernels order by ts")
    assert names == [["number%d" % i] for i in range(0, 100, 20)]
    d.do("kernel('unseen')")
    assert d.target.probing("config", "cuda.kernels=on").returncode == 0
    d.wait_state("tracing")
    d.do("kernel('seen')")
    d.wait_rows("select 1 from cuda.kernels where name = 'seen'")
    assert d.rows("select 1 from cuda.kernels where name = 'unseen'") == []
    wrong = d.target.probing("config", "cuda.kernels=maybe")
    assert wrong.returncode != 0 and "cuda.kernels is on or off, not 'maybe'" in wrong.stderr


def test_stopped_and_loaded_again(world):
    d = Device(world, "driver", "cupti")
    d.wait_state("tracing")
    d.do("kernel('first')")
    assert d.target.probing("plugin", "stop", "cuda").returncode == 0
    assert d.rows("select name from cuda.kernels") == [["first"]]  # what was done is told
    assert d.do(ENABLED) == "[] 0"
    d.do("kernel('between')")
    assert d.target.probing("plugin", "load", "cuda").returncode == 0
    d.wait_state("tracing")
    d.do("kernel('second')")
    d.wait_rows("select 1 from cuda.kernels where name = 'second'")
    assert d.rows("select name from cuda.kernels order by ts") == [["first"], ["second"]]


def test_buffers_that_come_late_are_counted_and_not_read(world):
    d = Device(world, "driver", "cupti")
    d.wait_state("tracing")
    d.do("cupti.standin_hold(True); kernel('held')")
    assert d.target.probing("config", "cuda.kernels=off").returncode == 0
    assert d.tracing("buffers_taken") == [1]
    d.do("cupti.standin_release(); cupti.standin_release(); cupti.standin_hold(False)")
    assert d.tracing("buffers_taken", "buffers_full") == [0, 1]
    assert d.target.probing("config", "cuda.kernels=on").returncode == 0
    d.wait_state("tracing")
    assert d.tracing("late", "buffers_full") == [1, 0]
    d.do("kernel('after')")
    d.wait_rows("select 1 from cuda.kernels")
    assert d.rows("select name from cuda.kernels") == [["after"]]


def test_refusals_say_what_cupti_says_and_are_tried_again(world):
    d = Device(world, "driver", plugins="")
    d.do("stand('cupti')")
    d.do("cupti.standin_refuse(15)")
    assert d.target.probing("plugin", "load", "cuda").returncode == 0
    d.wait_state("refused")
    assert d.tracing("reason")[0].endswith(
        "it does not trace here: CUPTI_ERROR_NOT_INITIALIZED (15)")
    assert d.do(ENABLED) == "[] 0"
    asked = d.target.probing("query", "select * from cuda.kernels")
    assert "(15); meanwhile config torch.device_times=on times modules" in asked.stdout
    asked = d.target.probing("cuda")
    assert asked.returncode != 0 and "; meanwhile config torch.device_times=on" in asked.stderr
    d.do("cupti.standin_refuse(39)")
    d.wait_state("aside")
    assert "another profiler has CUPTI" in d.tracing("reason")[0]
    d.do("os.environ['STANDIN_MUTE'] = '1'; cupti.standin_refuse(999)")
    wait_for(lambda: (d.tracing("reason")[0] or "").endswith("error 999"), "the number alone")
    d.do("cupti.standin_refuse(0)")
    d.wait_state("tracing")


def test_a_fork_leaves_it_off_in_the_child(world):
    d = Device(world, "driver", "cupti")
    d.wait_state("tracing")
    out = d.do("""
pid = os.fork()
if pid == 0:
    kernel('of the child')
    cupti.cuptiActivityFlushAll(1)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
pid = os.fork()
if pid == 0:
    sys.exit(8)
""")
    assert out.startswith("7")
    d.do("kernel('of the parent')")
    d.wait_rows("select 1 from cuda.kernels where name = 'of the parent'")
    assert d.rows("select name from cuda.kernels") == [["of the parent"]]


def test_an_exit_while_it_traces_keeps_the_last_kernels(world):
    d = Device(world, "driver", "cupti")
    d.wait_state("tracing")
    code = "import ctypes\nkernel('last')\nctypes.CDLL(None).exit(3)"
    d.target.probing("eval", code)
    assert d.target.process.wait(LIMIT) == 3
    done = d.target.probing("query", "--format", "json", "select name from cuda.kernels")
    assert '"last"' in done.stdout, done.stdout + done.stderr


def test_killed_while_it_traces(world):
    d = Device(world, "driver", "cupti")
    d.wait_state("tracing")
    d.do("kernel('seen')")
    d.wait_rows("select 1 from cuda.kernels")
    os.kill(d.target.pid, signal.SIGTERM)
    assert d.target.process.wait(LIMIT) == -signal.SIGTERM


