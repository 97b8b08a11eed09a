# SPDX-License-Identifier: Apache-2.0
"""`torch profile`: torch's own profiler for some steps of a loop that never notices."""
import json
import os
import re
import signal
import subprocess

import pytest
import world as shared
from cases import HERE

MANY = "10000"  # steps: more than the loop does in a test
# Torch tells whether a profiler runs to the thread that started it only, so ask that thread.
RUNS = "import __main__; print(__main__.profiled)"


@pytest.fixture
def target(world, python):
    target = world.start(python, "-W", "ignore", "-u", str(HERE / "targets" / "profiled.py"),
                         str(world.tmp / "go"))
    target.wait_line("ready")
    target.inject()
    done = target.probing("plugin", "load", "torch")
    assert done.returncode == 0, done.stderr
    return target


def begin(target, *words):
    """A capture in the background, once it has begun to wait for steps."""
    client = subprocess.Popen([str(shared.CLI), "-t", str(target.pid), "torch", "profile", *words],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              env=target.world.env)
    shared.said(client.stderr, b"waiting for")
    return client


def runs(target):
    done = target.probing("eval", RUNS)
    return "True" in done.stdout


def test_a_trace_of_some_steps(target):
    trace = target.world.tmp / "trace.json"
    done = target.probing("torch", "profile", "--steps", "4", "--skip", "2", "-o", str(trace))
    assert done.returncode == 0, done.stderr
    assert re.search(r"captured_ms \| start_ms \| stop_ms \| max_gil_hold_ms", done.stdout)
    assert "aten::" in done.stdout
    made = json.loads(trace.read_text())
    events = [e for e in made["traceEvents"] if e["ph"] == "X"]
    steps = [e for e in events if e["name"] == "Optimizer.step#SGD.step"]
    assert len(steps) == 4
    assert all(e["dur"] >= 0 and e["pid"] == target.pid for e in events)
    whole = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)
    about = target.rows("select steps, events, captured_sec, stop_sec from torch.capture")
    assert about[0][:2] == [4, len(events)] and about[0][3] > 0
    assert whole / 1e6 <= about[0][2]
    sums = target.rows("select sum(calls), min(self_sec), max(self_sec - duration) from torch.ops")
    assert sums[0][0] == len(events) and sums[0][1] >= 0 and sums[0][2] <= 0
    linear = target.rows("select calls from torch.ops where name = 'aten::linear'")
    assert linear == [[8]]
    assert not runs(target)
    leftover = list(target.world.tmp.glob("trace.json.*"))
    assert not leftover


def test_the_programs_own_profiler_goes_first(target):
    go = target.world.tmp / "go"
    go.touch()
    target.wait_line("its own begins")
    done = target.probing("torch", "profile", "--steps", "1")
    assert done.returncode != 0 and "of the program's own" in done.stderr
    go.unlink()
    seen = target.wait_line(r"its own has seen (\d+) of (\d+)")
    assert seen[1] == seen[2]
    assert target.probing("torch", "profile", "--steps", "1").returncode == 0
    # and one that it starts while ours runs
    client = begin(target, "--steps", MANY)
    shared.wait_for(lambda: runs(target), "ours to begin")
    go.touch()
    said = client.communicate(timeout=60)[1].decode()
    assert client.returncode != 0 and "started a torch profiler of its own" in said, said
    go.unlink()
    lines = shared.wait_for(lambda: re.findall(r"its own has seen (\d+) of (\d+)",
                                               target.output())[1:], "its second")
    assert lines[0][0] == lines[0][1]
    assert target.alive() and not runs(target)


@pytest.mark.one_torch
def test_into_a_pipe(target):
    """A file that is no plain one is written into, and never replaced."""
    pipe = target.world.tmp / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    done = target.probing("torch", "profile", "--steps", "1", "-o", str(pipe))
    assert done.returncode == 0, done.stderr
    made = json.loads(reader.communicate(timeout=60)[0])
    assert made["traceEvents"] and pipe.is_fifo()
    done = target.probing("torch", "profile", "--steps", "1", "-o", str(target.world.tmp))
    assert done.returncode != 0 and "Is a directory" in done.stderr


@pytest.mark.one_torch
def test_begun_by_a_thread_that_ends_no_more_steps(world, python):
    """It ends all the same, at that thread's next call: nothing runs on for ever."""
    target = world.start(python, "-W", "ignore", "-u", str(HERE / "targets" / "handover.py"),
                         str(world.tmp / "go"))
    target.wait_line("ready")
    target.inject()
    assert target.probing("plugin", "load", "torch").returncode == 0
    client = begin(target, "--steps", "1000")
    shared.wait_for(lambda: runs(target), "the profiler to run")
    (world.tmp / "go").touch()
    client.communicate(timeout=120)
    assert client.returncode == 0 and not runs(target)


def loop_that(world, python, what):
    target = world.start(python, "-W", "ignore", "-u", str(HERE / "targets" / "ends.py"),
                         str(world.tmp / "go"), what)
    target.wait_line("ready")
    target.inject()
    assert target.probing("plugin", "load", "torch").returncode == 0
    return target


@pytest.mark.one_torch
def test_steps_that_do_not_end_in_time(world, python):
    target = loop_that(world, python, "stands")
    path = world.tmp / "trace.json"
    ask = ("torch", "profile", "--steps", MANY, "--skip", "1", "--timeout", "1s", "-o", str(path))
    done = target.probing(*ask)
    assert done.returncode != 0 and "no step to begin with has ended in 1 s" in done.stderr
    assert "1 of 1 to leave out" in done.stderr and not path.exists()
    (world.tmp / "go").touch()
    for seconds in (1, 4, 16, 64):  # until it has had a processor for two steps
        done = target.probing(*ask[:-4], "--timeout", "%ds" % seconds, *ask[-2:])
        rows = target.rows("select note, steps, events from torch.capture")
        if done.returncode == 0 and rows[0][1] > 1:
            break
    assert done.returncode == 0, done.stderr
    assert rows[0][0] == "%d of %s steps ended in %d s" % (rows[0][1], MANY, seconds)
    assert rows[0][0] in done.stdout
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert len(events) == rows[0][2]
    done = target.probing("torch", "profile", "--steps", "2")
    assert done.returncode == 0 and target.rows("select note from torch.capture") == [[None]]


@pytest.mark.one_torch
def test_memory_that_grows_meanwhile(world, python):
    target = loop_that(world, python, "grows")
    client = begin(target, "--steps", MANY, "--timeout", "1m")
    (world.tmp / "go").touch()
    client.communicate(timeout=60)
    note, steps = target.rows("select note, steps from torch.capture")[0]
    assert client.returncode == 0 and steps < 12, note
    found = re.fullmatch(r"%d of %s steps: the process needed (\d+) MB more meanwhile"
                         % (steps, MANY), note)
    assert found and int(found[1]) >= 256, note


@pytest.mark.one_torch
@pytest.mark.parametrize("loop", ["main", "thread"])
def test_a_program_that_ends_meanwhile(world, python, loop):
    """torch's profiler is ended before: torch 2.13 crashes at the end of a process otherwise."""
    target = loop_that(world, python, loop)
    client = begin(target, "--steps", MANY, "-o", str(world.tmp / "never.json"))
    shared.wait_for(lambda: runs(target), "the profiler to run")
    second = target.probing("torch", "profile", "--steps", "1")
    assert second.returncode != 0 and "another capture is under way" in second.stderr
    (world.tmp / "go").touch()
    said = client.communicate(timeout=60)[1].decode()
    assert target.process.wait(timeout=60) == 0 and "done" in target.output()
    assert client.returncode != 0 and "has ended meanwhile" in said, said
    assert not list(world.tmp.glob("never*"))


@pytest.mark.one_torch
def test_one_that_is_given_up(target):
    client = begin(target, "--steps", MANY, "-o", str(target.world.tmp / "never.json"))
    client.send_signal(signal.SIGINT)
    client.communicate(timeout=60)
    assert client.returncode != 0 and not list(target.world.tmp.glob("never*"))

    def again():
        return target.probing("torch", "profile", "--steps", "1").returncode == 0
    shared.wait_for(again, "the profiler to be free again")
    client = begin(target, "--steps", MANY)
    done = target.probing("plugin", "stop", "torch")
    assert done.returncode == 0, done.stderr
    client.communicate(timeout=60)
    shared.wait_for(lambda: not runs(target), "a step without it")
    done = target.probing("plugin", "load", "torch")
    assert done.returncode == 0, done.stderr
    assert again()
