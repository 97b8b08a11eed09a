# SPDX-License-Identifier: Apache-2.0
"""What is measured of a GPU, with a stand-in for one: it cannot show that CUDA is as we think, but
that each row says what the driver and torch's allocator have said, and that nobody waits."""
import pytest
from cases import Case


def test_times_and_memory_of_a_device(world, python, library):
    case = Case(world, "device.py", python, library)
    done = case.target.probing("config", "torch.profiling=on,memory=on,device_times=on")
    assert done.returncode == 0, done.stderr
    seen = case.run()
    assert seen["refused"] == 0 and seen["living"] > 0
    steps = [n for n in range(seen["steps"]) if n not in (4, 5)]  # then something was captured
    rows = case.target.rows("select module, local_step, duration * 1000, device from "
                            "python.torch_device_time where stage = 'post forward' "
                            "order by local_step, seq")
    names = {"Sequential": 9.0, "0": 2.0, "1": 7.0, "1.0": 3.0, "1.1": 4.0}
    assert [row[:2] for row in rows] == [[name, n] for n in steps for name in names]
    assert all(ms == pytest.approx(names[name], rel=1e-3) for name, _, ms, _ in rows)
    assert {row[3] for row in rows} == {"cuda:0"}
    joined = case.target.rows("select count(*) from python.torch_device_time d join "
                              "python.torch_trace t on d.local_step = t.local_step and "
                              "d.seq = t.seq and d.module = t.module and d.stage = t.stage")
    total = case.target.rows("select count(*) from python.torch_device_time")
    assert joined == total
    rows = case.target.rows("select module, allocated, allocated_delta, max_allocated, "
                            "max_allocated_delta, cached, max_cached from python.torch_trace "
                            "where stage = 'post forward' and local_step = 1 order by seq")
    assert rows == [["Sequential", 16, 6, 16, 0, 64, 64], ["0", 15, 5, 16, 0, 64, 64],
                    ["1", 16, 1, 16, 0, 64, 64], ["1.0", 16, 1, 16, 0, 64, 64],
                    ["1.1", 16, 0, 16, 0, 64, 64]]
    first = case.target.rows("select max_allocated_delta from python.torch_trace "
                             "where module = 'Sequential' and local_step = 0")
    assert first == [[6]]
    step = case.target.rows("select allocated, allocated_delta, max_cached from "
                            "python.torch_trace where stage = 'post step' and local_step = 1")
    assert step == [[16, None, 64]]
    assert case.target.rows("select device, allocated_bytes, peak_allocated_bytes, reserved_bytes, "
                            "ooms, retries, note from memory.torch_allocator where device <> "
                            "'cpu'") == [["cuda:0", 16 << 20, 21 << 20, 64 << 20, 2, None, None]]
    assert case.target.rows("select device, pool, state, function_name, file, lineno, blocks, "
                            "bytes, requested_bytes from memory.torch_blocks order by state") == [
        ["cuda:0", "large", "active_allocated", "forward", "/home/me/model.py", 30, 3, 12 << 20,
         (12 << 20) - 300],
        ["cuda:0", "large", "inactive", None, None, None, 1, 8 << 20, 0]]
    screen = case.target.probing("torch")
    assert "device memory" in screen.stdout, screen.stdout
    folded = case.target.probing("flamegraph", "torch", "--memory", "--format", "folded")
    assert folded.returncode == 0, folded.stderr
    assert sorted(folded.stdout.split("\n")[:-1]) == [
        "forward;Sequential;0 %d" % (5 << 20), "forward;Sequential;1;1.0 %d" % (1 << 20)]
    picture = case.target.probing("flamegraph", "torch", "--memory", "--format", "svg")
    assert "Sequential - 6.00 MB, 100.00 %" in picture.stdout, picture.stderr
    case.stop()
    left = case.target.probing("eval", "import __main__; print(__main__.cuda.stand_in_living())")
    assert left.stdout.split() == ["0"], left.stdout + left.stderr


def test_more_calls_than_are_read_at_a_time(world, python, library):
    case = Case(world, "device.py", python, library, "wide")
    done = case.target.probing("config", "torch.profiling=on,device_times=on,baseline=0")
    assert done.returncode == 0, done.stderr
    seen = case.run()
    rows = case.target.rows("select count(*) from python.torch_device_time where "
                            "stage = 'post forward' and module <> 'Sequential'")
    lost = case.target.rows("select coalesce(sum(rows), 0) from probing.lost")  # a busy machine
    assert rows[0][0] + lost[0][0] >= seen["wide"], (rows, lost)


def test_without_a_device_there_are_no_numbers(world, python):
    case = Case(world, "steps.py", python)
    done = case.target.probing("config", "torch.profiling=on,memory=on,device_times=on")
    assert done.returncode == 0, done.stderr
    case.run()
    rows = case.target.rows("select count(allocated), count(max_cached), count(allocated_delta), "
                            "count(*) > 0 from python.torch_trace")
    assert rows == [[0, 0, 0, True]]
    done = case.target.probing("flamegraph", "torch", "--memory", "--format", "folded")
    assert done.returncode != 0 and "torch.memory=on" in done.stderr, done.stdout
    assert case.target.rows("select count(*) from python.torch_device_time") == [[0]]


def test_an_error_of_the_driver_ends_it(world, python, library):
    case = Case(world, "device.py", python, library)
    done = case.target.probing("config", "torch.profiling=on,device_times=on")
    assert done.returncode == 0, done.stderr
    done = case.target.probing("eval", "import __main__; __main__.cuda.stand_in_fail(719)")
    assert done.returncode == 0, done.stderr
    assert case.run()["refused"] == 0
    assert case.target.rows("select count(*) from python.torch_device_time") == [[0]]
    told = case.target.rows("select count(*) from probing.log where text like '%error 719%'")
    assert told == [[1]]
