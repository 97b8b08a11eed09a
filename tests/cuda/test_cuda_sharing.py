# SPDX-License-Identifier: Apache-2.0
"""CUPTI 13.2 and newer lets several trace at a time, if all of them ask for it; before, or where
somebody does not, one can.  CUPTI is a stand-in that keeps to NVIDIA's rules, the other profiler
plays Kineto by the old and by the new interface (libraries/kineto_player.c)."""
import os

import pytest
from standin import Device
from world import wait_for

SHARING = ["13.2.86", "13.3.75", "13.5.25"]
MULTIPLE = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)"
ON = "print([k for k in range(64) if cupti.standin_enabled(k)], cupti.standin_subscribers())"


def device(world, version, *settings, **env):
    if version.startswith("13.2"):  # what came after the beta is missing in it
        env["STANDIN_FILE"] = "beta/libcupti.so"
    return Device(world, "driver", "cupti", settings=settings, STANDIN_CUPTI=version, **env)


def kineto(d, name, start=True):
    """A library that traces beside us, and says how many kernels it was told of."""
    d.do("player = load('libkineto_%s.so')\n%s" % (
        name, "assert player.kineto_start(0) == 0" if start else ""))


@pytest.mark.parametrize("version", SHARING)
def test_both_get_all_records(world, version):
    d = device(world, version)
    d.wait_state("tracing")
    assert d.tracing("shared") == [1] and d.do(ON).endswith(" 1")
    d.do("kernel('alone')")
    kineto(d, "shares")
    d.do("for i in range(3): kernel('both')")
    # One that leaves takes nothing from the other, in either order.
    assert d.target.probing("config", "cuda.kernels=off").returncode == 0
    assert d.do(ON) == "[10] 1"
    d.do("kernel('theirs')")
    assert d.target.probing("config", "cuda.kernels=on").returncode == 0
    d.wait_state("tracing")
    d.do("kernel('both again'); player.kineto_stop(); kernel('ours')")
    d.wait_rows("select 1 from cuda.kernels where name = 'ours'")
    assert d.do("print(player.kineto_kernels())") == "5"
    assert d.rows("select name, count(*), count(thread_id) from cuda.kernels group by name order by"
                  " min(ts)") == [["alone", 1, 1], ["both", 3, 3], ["both again", 1, 1],
                                  ["ours", 1, 1]]
    assert d.tracing("state", "shared", "torn", "unknown", "lost") == ["tracing", 1, 0, 0, 0]


def test_one_that_was_there_before_is_joined(world):
    d = device(world, "13.5.25", "cuda.kernels=off")
    kineto(d, "shares")
    assert d.target.probing("config", "cuda.kernels=on").returncode == 0
    d.wait_state("tracing")
    d.do("cupti.standin_drop(7); kernel('both')")
    d.wait_rows("select 1 from cuda.kernels where name = 'both'")
    d.do("player.kineto_stop()")
    assert d.do("print(player.kineto_kernels())") == "1"
    assert d.tracing("shared", "lost") == [1, 7]


@pytest.mark.parametrize("version,name", [("13.0.85", True), ("13.5.25", True), ("12.9.79", False)])
def test_one_that_has_it_alone_is_named(world, version, name):
    d = device(world, version, "cuda.kernels=off")
    if name:
        d.do("player = load('libkineto_shares.so')\nassert player.kineto_start(1) == 0")
    else:
        d.do("cupti.standin_refuse(39)")
    assert d.target.probing("config", "cuda.kernels=on").returncode == 0
    d.wait_state("aside")
    reason = d.tracing("reason")[0]
    assert "another profiler has CUPTI" + ', "CUPTI for Kineto"' * name + ": " + MULTIPLE in reason
    assert d.tracing("shared") == [None]
    asked = d.target.probing("query", "select * from cuda.kernels")
    assert "CUDA is not traced: " + reason in asked.stdout + asked.stderr
    d.do("player.kineto_stop()" if name else "cupti.standin_refuse(0)")
    d.wait_state("tracing")
    d.do("kernel('after')")
    d.wait_rows("select 1 from cuda.kernels where name = 'after'")


def test_one_that_cannot_share_is_not_shut_out(world):
    """The old interface is refused to everybody while somebody shares: so where a library calls
    CUPTI by that one, it is not used."""
    d = device(world, "13.5.25", "cuda.kernels=off")
    kineto(d, "old", start=False)
    assert d.target.probing("config", "cuda.kernels=on").returncode == 0
    d.wait_state("tracing")
    assert d.tracing("shared") == [0] and d.do(ON).endswith(" 0")
    assert d.do("print(player.kineto_start())") == "0"


def test_one_that_cannot_share_and_comes_later_is_made_way_for(world):
    d = device(world, "13.5.25")
    d.wait_state("tracing")
    d.do("kernel('before')")
    assert d.tracing("shared") == [1]
    kineto(d, "old", start=False)
    wait_for(lambda: d.tracing("state", "shared") == ["tracing", 0], "the old interface")
    assert d.do(ON).endswith(" 0")
    d.do("kernel('after')")
    d.wait_rows("select 1 from cuda.kernels where name = 'after'")
    assert d.rows("select name from cuda.kernels order by ts") == [["before"], ["after"]]
    assert d.do("print(player.kineto_start())") == "0"


def test_one_that_cannot_share_is_there_and_others_do(world):
    """torch's profiler is linked, and another one shares: so do we."""
    d = device(world, "13.5.25", "cuda.kernels=off")
    kineto(d, "old", start=False)
    kineto(d, "shares")
    assert d.target.probing("config", "cuda.kernels=on").returncode == 0
    d.wait_state("tracing")
    d.do("kernel('both'); player.kineto_stop()")
    d.wait_rows("select 1 from cuda.kernels")
    assert d.do("print(player.kineto_kernels())") == "1" and d.tracing("shared") == [1]


def test_a_driver_that_is_too_old_to_share_is_traced_alone(world):
    d = device(world, "13.5.25", STANDIN_OLD_DRIVER="1")
    d.wait_state("tracing")
    d.do("kernel('alone')")
    d.wait_rows("select 1 from cuda.kernels")
    assert d.tracing("shared") == [0]


@pytest.mark.parametrize("version,name", [("11.8.87", "old"), ("13.0.85", "lazy"),
                                          ("13.5.25", "old")])
def test_one_that_begins_while_we_trace_has_it_at_once(world, version, name):
    """As torch's profiler: ours is off before it begins, and our buffers are back."""
    d = device(world, version, plugins="")
    kineto(d, name, start=False)
    assert d.target.probing("plugin", "load", "cuda").returncode == 0
    d.wait_state("tracing")
    d.do("kernel('ours')")
    for turn in range(1, 4):
        d.do("kernel('half a buffer')\nassert player.kineto_start() == 0\nkernel('theirs')")
        state, reason = d.tracing("state", "reason")
        assert state == "aside" and "libkineto_%s.so traces by CUPTI" % name in reason
        assert d.do(ON).startswith("[10] ")
        d.do("kernel('theirs, too')")
        assert d.target.probing("config", "cuda.kernels=off").returncode == 0
        assert d.target.probing("config", "cuda.kernels=on").returncode == 0
        assert d.do(ON).startswith("[10] ")
        d.do("player.kineto_stop()")
        assert d.do("print(player.kineto_kernels(), player.kineto_unknown())") == "%d 0" % (
            2 * turn)
        d.wait_state("tracing")
    d.do("kernel('ours again')")
    d.wait_rows("select 1 from cuda.kernels where name = 'ours again'")
    assert d.rows("select name, count(*) from cuda.kernels group by 1 order by min(ts)") == [
        ["ours", 1], ["half a buffer", 3], ["ours again", 1]]
    assert d.tracing("late", "lost", "torn", "buffers_taken") == [0, 0, 0, 0]
    # Nothing of ours is left in its slots.
    assert d.target.probing("plugin", "stop", "cuda").returncode == 0
    d.do("assert player.kineto_start() == 0\nkernel('theirs')\nplayer.kineto_stop()")
    assert d.do("print(player.kineto_kernels(), player.kineto_unknown())") == "7 0"


@pytest.mark.skipif(not os.environ.get("PROBING_TEST_FULL"), reason="30 s: full tier")
def test_one_that_comes_unseen_is_said_when_it_has_the_buffers(world):
    """By dlsym(), as ctypes does it: nobody hears of it, and CUPTI gives it what was ours."""
    d = device(world, "13.0.85")
    d.wait_state("tracing")
    d.do("kernel('first')")
    d.wait_rows("select 1 from cuda.kernels")
    d.do("""
Asked = ctypes.CFUNCTYPE(None, *3 * [ctypes.POINTER(ctypes.c_size_t)])
Done = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t,
                        ctypes.c_size_t)
rooms, done = [], []
def ask(buffer, size, most):
    rooms.append(ctypes.create_string_buffer(1 << 16))
    buffer[0], size[0], most[0] = ctypes.addressof(rooms[-1]), 1 << 16, 0
asked, told = Asked(ask), Done(lambda *a: done.append(a[4]))
cupti.standin_hold(True)
kernel('in a buffer of ours')
assert cupti.cuptiActivityRegisterCallbacks(asked, told) == 0
cupti.standin_hold(False)
cupti.standin_release()
kernel('in one of theirs')
""")
    d.wait_state("aside")
    assert "another profiler, which was not seen to begin, has taken CUPTI's buffers" in \
        d.tracing("reason")[0]
    d.do("kernel('theirs')\ncupti.cuptiActivityFlushAll(0)\nassert len(done) >= 2, done")
    assert d.rows("select name from cuda.kernels") == [["first"]]
    for value in "off", "on":
        assert d.target.probing("config", "cuda.kernels=" + value).returncode == 0
    d.wait_state("tracing")
    d.do("kernel('ours again')")
    d.wait_rows("select 1 from cuda.kernels where name = 'ours again'")


def test_one_that_begins_and_ends_while_threads_launch(world):
    d = device(world, "13.0.85", "cuda.max_rows_per_second=10", plugins="")
    kineto(d, "old", start=False)
    assert d.target.probing("plugin", "load", "cuda").returncode == 0
    d.wait_state("tracing")
    d.do("""
cupti.standin_burst.argtypes = [ctypes.c_char_p, ctypes.c_uint32, ctypes.c_double]
for i in range(3):
    threading.Thread(target=cupti.standin_burst, args=(b'burst', 20000, 600), daemon=True).start()
""")
    for _ in range(3):
        d.do("assert player.kineto_start() == 0\ntime.sleep(0.1)\nplayer.kineto_stop()")
        d.wait_state("tracing")
    # A thread that was held up with a buffer of ours in its hand brings it to the other.
    assert d.do("print(player.kineto_kernels() > 0)") == "True"
    assert d.tracing("torn", "unknown") == [0, 0]
