# SPDX-License-Identifier: Apache-2.0
"""cuda.window: CUDA is traced for so long of each period, and what is told is of that time only.
The driver and CUPTI are stand-ins."""
import json
import re

import pytest
from played import SECOND, Played
from standin import Device
from test_cuda_report import device_time, kernel_stats
from test_cuda_rough import BURSTS
from world import wait_for

ON = "print([k for k in range(64) if cupti.standin_enabled(k)])"
SUMS = "select window_id, sum(%s) from cuda.%s where window_id <= %d group by 1 order by 1"


@pytest.mark.parametrize("version", ["13.0.85", "13.5.25"])
def test_windows_while_four_threads_launch(world, version):
    d = Device(world, "driver", "cupti", STANDIN_CUPTI=version,
               settings=["cuda.max_rows_per_second=10", "cuda.window=100ms/300ms"])
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


WRONG = ["2s", "2s/2s", "49ms/1s", "1s/61m", "1/20", "s/1s", "1s/1s/1s", "99999999s/99999999s", "",
         "1s/20s ", "never", "2", "%", "2 %", "0.09%", "51%", "100%", "2%%", "1.%", ".5%", "-1%",
         "1e1%", "0.00000000000000000001%"]


def test_what_is_no_window_is_refused(world):
    d = Device(world, "driver", "cupti")
    for wrong in WRONG:
        done = d.target.probing("config", "cuda.window=" + wrong)
        assert done.returncode != 0 and "cuda.window is the share of the program's time that " \
            "tracing may cost, as '2%'" in done.stderr, (wrong, done.stdout + done.stderr)
    for right in "0.1%", "50%", "2.000000%", "50ms/100ms", "always":
        assert d.target.probing("config", "cuda.window=" + right).returncode == 0, right


def launch(d, a_second, seconds, queued_ns=2000, ns=3000):
    d.do("threading.Thread(target=cupti.standin_load, args=(b'kernel', %d, %g, %d, %d), "
         "daemon=True).start()" % (a_second, seconds, queued_ns, ns))


def test_tracing_that_costs_too_much_is_in_windows_and_says_why(world):
    d = Device(world, "driver", "cupti", always=False)
    assert "2%" in d.target.probing("config", "cuda.window").stdout
    d.wait_state("tracing")
    assert d.tracing("reason", "calls_per_second", "max_cost_pct") == [None, 0, 0]
    launch(d, 100000, 600)
    d.wait_state("between")
    state, reason, calls, cost = d.tracing("state", "reason", "calls_per_second", "max_cost_pct")
    words = (r"it traces for [0-9.]+ s of every [0-9.]+ s: [0-9,]+,000 calls a second would cost "
             r"up to \d+ % of the time \(cuda.window=2%\); cuda.window=always traces all the time$")
    assert state == "between" and re.match(words, reason), (state, reason)
    assert calls > 4000 and 2 < cost <= 100
    assert d.do(ON) == "[]"
    wait_for(lambda: re.match(words, d.rows("select reason from probing.plugins where name = 'cuda'"
                                            )[0][0] or ""), "the reason beside the plugin")
    wait_for(lambda: d.rows("select 1 from probing.log where text like '%it traces for%'"),
             "the reason in the log")
    said = d.target.probing("cuda").stdout
    assert re.match("tracing is between: it traces for", said), said
    # A window that is asked for begins at once, and counts more than the share.
    assert d.target.probing("config", "cuda.window=always").returncode == 0
    d.wait_state("tracing")
    kernels = d.tracing("kernels")[0]
    wait_for(lambda: d.tracing("kernels")[0] > kernels + 100000, "a second's worth and more")
    assert d.tracing("state", "reason") == ["tracing", None]


def test_windows_end_when_the_program_is_quiet_again(world):
    d = Device(world, "driver", "cupti", always=False, settings=["cuda.window=20%"])
    d.wait_state("tracing")
    launch(d, 200000, 1)
    d.wait_state("between")
    wait_for(lambda: d.tracing("state", "reason") == ["tracing", None], "all the time")
    assert d.rows("select count(*) > 0, max(duration_ns) < 2e9 from cuda.windows") == [[1, 1]]


def test_a_program_that_waits_for_its_device_is_traced_all_the_time(world):
    """40 % of the time for 50,000 calls a second, but for the device that is busy meanwhile."""
    d = Device(world, "driver", "cupti", always=False, settings=["cuda.window=10%"])
    d.wait_state("tracing")
    launch(d, 50000, 600, queued_ns=5000000, ns=20000)
    wait_for(lambda: (lambda calls, cost, state, reason: calls > 20000 and cost < 5 and
                      state == "tracing" and not reason)(
        *d.tracing("calls_per_second", "max_cost_pct", "state", "reason")),
        lambda: "calls that cost nothing: %r" % d.tracing("calls_per_second", "max_cost_pct",
                                                          "state", "reason"))


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


def test_what_tracing_costs_by_the_steps_of_torch(world):
    played = Played(world)
    device_time(played, 500, 400)
    for begun in 400, 300, 200:  # s ago, for 10 s each; of the last one the next is not known
        played.add("windows", begun * SECOND, window_id=1, end_ns=1, duration_ns=10 * SECOND,
                   kernels=1, lost=0)

    def steps(ended, seconds, n):
        for i in range(n):
            played.add("torch_step_timing", int((ended - i) * SECOND), step_duration_sec=seconds)
    steps(395, 0.25, 4)
    steps(350, 0.5, 40)
    steps(389.9, 0.75, 1)   # half in a window
    steps(299.9, 60.5, 1)
    steps(500, 0.125, 40)   # before anything is known
    steps(150, 0.125, 40)   # since the last that has ended: it may be traced again
    played.play()
    said = played.target.probing("cuda").stdout
    assert "while it traced" not in said, said
    told = json.loads(played.target.probing("cuda", "--json").stdout)
    assert told["step_ms_traced"] is None and told["step_ms_between"] is None
    steps(295, 0.25, 1)
    played.play()
    said = played.target.probing("cuda").stdout
    assert ("\nsteps took 250 ms while it traced, 500 ms between (medians of 5 and 40 steps)\n"
            in said), said
    told = json.loads(played.target.probing("cuda", "--json").stdout)
    assert [told["step_ms_traced"], told["step_ms_between"]] == [250, 500]
