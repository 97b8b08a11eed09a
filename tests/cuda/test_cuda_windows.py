# SPDX-License-Identifier: Apache-2.0
"""cuda.window: CUDA is traced for so long of each period, and what is told is of that time only.
The driver and CUPTI are stand-ins."""
import json

import pytest
from played import Played
from standin import Device
from test_cuda_report import device_time, kernel_stats
from test_cuda_rough import BURSTS
from world import wait_for

ON = "print([k for k in range(64) if cupti.standin_enabled(k)])"
SUMS = "select window_id, sum(%s) from cuda.%s where window_id <= %d group by 1 order by 1"


@pytest.mark.parametrize("version", ["13.0.85", "13.5.25"])
def test_windows_while_four_threads_launch(world, version):
    d = Device(world, "driver", "cupti", STANDIN_CUPTI=version,
               settings=["cuda.rate=10", "cuda.window=100ms/300ms"])
    d.do(BURSTS)
    d.wait_rows("select 1 from cuda.windows", 4)
    wait_for(lambda: d.tracing("state", "reason") ==
             ["between", "it traces for 0.1 s of every 0.3 s (cuda.window)"], "a time between")
    n = d.rows("select max(window_id) from cuda.windows")[0][0]
    windows = [w for w in d.rows(SUMS % ("kernels", "windows", n)) if w[1]]
    assert len(windows) >= 2  # the first may be over before the threads have begun
    # Sums of each window are whole when it has ended, and of no other.
    assert d.rows(SUMS % ("count", "kernel_stats", n)) == windows
    assert d.rows(SUMS % ("kernels", "device_time", n)) == windows
    begun, traced = d.tracing("begun", "traced_ns")
    assert begun >= len(windows) and traced > 0
    asked = d.target.probing("cuda")
    assert asked.returncode == 0, asked.stderr
    assert " windows; of the time between nothing is known" in asked.stdout
    assert json.loads(d.target.probing("cuda", "--json").stdout)["devices"][0]["windows"] > 1
    # A user may switch it off, on, and to all the time.
    assert d.target.probing("config", "cuda.kernels=off").returncode == 0
    assert d.do(ON) == "[]" and d.tracing("state") == ["off"]
    assert d.target.probing("config", "cuda.window=always").returncode == 0
    assert d.target.probing("config", "cuda.kernels=on").returncode == 0
    d.wait_state("tracing")
    begun = d.tracing("begun")
    kernels = d.tracing("kernels")[0]
    wait_for(lambda: d.tracing("kernels")[0] > kernels + 50000, "kernels")
    assert d.tracing("begun", "torn", "unknown") == begun + [0, 0]


def test_nothing_is_on_between_and_a_change_counts_at_once(world):
    d = Device(world, "driver", "cupti", STANDIN_CUPTI="13.0.85",
               settings=["cuda.window=50ms/60m"])
    d.wait_state("between")
    assert d.do(ON) == "[]" and d.do("print(cupti.standin_chosen())") == "0"
    d.do("kernel('between')")
    asked = d.target.probing("query", "select * from cuda.kernels")
    assert "CUDA is not traced: it traces for 0.05 s of every 3600 s" in asked.stdout
    assert d.target.probing("config", "cuda.window=always").returncode == 0
    d.wait_state("tracing")
    d.do("kernel('always')")
    d.wait_rows("select 1 from cuda.kernels")
    assert d.rows("select name from cuda.kernels") == [["always"]]
    # The time between is nobody's: of each kernel's millisecond, nothing else is told.
    for value in "off", "on":
        assert d.target.probing("config", "cuda.kernels=" + value).returncode == 0
    d.wait_state("tracing")
    d.do("kernel('later')")
    assert d.target.probing("config", "cuda.kernels=off").returncode == 0
    assert d.rows("select sum(wall_ns), sum(busy_ns), sum(idle_ns) from cuda.device_time group by "
                  "window_id") == 2 * [[1000000, 1000000, 0]]
    assert d.rows("select kernels from cuda.windows order by ts desc limit 2") == 2 * [[1]]
    assert d.target.probing("config", "cuda.kernels=on").returncode == 0
    assert d.target.probing("config", "cuda.window=50ms/60m").returncode == 0
    d.wait_state("between")


@pytest.mark.parametrize("wrong", ["2s", "2s/2s", "49ms/1s", "1s/61m", "1/20", "s/1s", "1s/1s/1s",
                                   "99999999s/99999999s", "", "1s/20s ", "never"])
def test_what_is_no_window_is_refused(world, wrong):
    d = Device(world, "driver", "cupti")
    done = d.target.probing("config", "cuda.window=" + wrong)
    assert done.returncode != 0 and "cuda.window is 'always', or how long of which time" \
        in done.stderr, done.stdout + done.stderr


def test_steps_at_the_edges_of_windows_are_not_whole(world):
    played = Played(world)
    for window, steps in (1, range(1, 5)), (2, range(20, 25)):
        device_time(played, 500, 400, window_id=window)
        for step in steps:
            cut = step in (steps[0], steps[-1])
            kernel_stats(played, step, "gemm", "net", 10 if cut else 100, 1 if cut else 40,
                         window_id=window)
    played.play()
    said = played.target.probing("cuda")
    assert "device 0, 1.00 s in 2 windows; of the time between nothing is known\n" in said.stdout
    assert "kernels: 100 a step, 40.000 ms; 540 in all these windows" in said.stdout, said.stdout
    assert json.loads(played.target.probing("cuda", "--json").stdout)["steps"] == 5
