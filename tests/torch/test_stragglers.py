# SPDX-License-Identifier: Apache-2.0
"""A rank that comes late is named: real jobs of gloo, in which one rank sleeps a little each step.

That nothing is said of healthy jobs, and much of played ones, is in straggler_played_test.c.
"""
import datetime
import json
import os
import signal
import socket
import threading

import pytest
from cases import HERE
from world import wait_for

pytestmark = pytest.mark.one_torch

RANKS, LATE = 4, 2
TARGET = str(HERE / "targets" / "straggler.py")
PARTS = {"sleep": "other", "before": "other", "loader": "data", "forward": "forward",
         "optimizer": "optimizer", "gc": "other"}


full = pytest.mark.skipif(os.environ.get("PROBING_TEST_FULL") != "1",
                          reason="takes minutes: set PROBING_TEST_FULL=1")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


class Job:
    def __init__(self, world, python, fault, late=LATE, steps=60):
        self.world, self.name = world, "late-%d-%s" % (os.getpid(), fault)
        common = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1",
                  "MASTER_PORT": free_port(), "TORCHELASTIC_RUN_ID": self.name,
                  "OMP_NUM_THREADS": "1"}
        self.ranks = [world.start(python, "-W", "ignore", TARGET, str(world.tmp), fault, str(late),
                                  env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank)))
                      for rank in range(RANKS)]
        for rank in self.ranks:
            rank.wait_line("ready")
        done = self.run("inject", "--plugin", "torch")  # each at another step of the loop
        assert done.returncode == 0, done.stderr
        self.wait(steps)

    def run(self, *words):
        return self.world.probing("-t", "job:" + self.name, *words)

    def wait(self, steps):
        """Until each rank has made so many steps under our eyes."""
        def counted():
            done = self.run("query", "-f", "json", "select count(*) from "
                            "global.python.torch_step_timing group by _addr")
            rows = json.loads(done.stdout)["rows"] if done.returncode == 0 else []
            return len(rows) == RANKS and min(rows)[0] >= steps
        wait_for(counted, "%d steps" % steps, 100)

    def stop(self):
        (self.world.tmp / "stop").touch()
        for rank in self.ranks:
            rank.wait_line("done")


def first(done):
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["outcome"] == "named", answer
    return answer["stragglers"][0]


def test_a_rank_that_sleeps_is_named(world, python):
    job = Job(world, python, "sleep")
    found = first(job.run("stragglers", "--json"))
    assert (found["rank"], found["kind"], found["part"]) == (LATE, "always", "other"), found
    assert found["late_sec"] > 0.015 and found["to_end"] == 1, found
    assert found["from_start"] == 1 or found["first_step"] < 60, found  # what else runs hides some
    assert found["look"].startswith("probing -t %d flamegraph" % job.ranks[LATE].pid), found
    datetime.datetime.strptime(found["first_at"], "%Y-%m-%dT%H:%M:%SZ")
    done = world.probing("cluster", "stragglers", "--job", job.name, "--last", "50")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("4 ranks, step "), done.stdout
    assert any(l.startswith("rank 2 (") and "outside of torch's parts" in l for l in lines), lines
    assert "sign: not known, as plugin system was not loaded" in done.stdout

    some = world.probing("-t", ",".join(str(r.pid) for r in job.ranks[:3]), "stragglers", "--json")
    assert first(some)["rank"] == LATE and json.loads(some.stdout)["ranks_missing"] == 1
    one = world.probing("-t", str(job.ranks[0].pid), "stragglers")
    assert "nobody to compare with" in one.stdout and "1,2,3" in one.stdout, one.stdout
    few = job.run("stragglers", "--last", "10")
    assert "too few steps" in few.stdout and "rank 2 (" not in few.stdout, few.stdout
    few = json.loads(job.run("stragglers", "--last", "10", "--json").stdout)
    assert few["outcome"] == "too few steps" and "try again later" in few["says"], few
    for words in (["--last", "0"], ["--last", "x"], ["--last", "0s"], ["now"]):
        assert job.run("stragglers", *words).returncode == 2, words

    bare = world.start("sleep", "600", env={"RANK": "4", "TORCHELASTIC_RUN_ID": job.name})
    done = job.run("stragglers", "--json")  # one more, without a core
    assert done.returncode == 1 and "4 of 5 answered" in done.stderr, done.stderr
    assert json.loads(done.stdout)["stragglers"][0]["rank"] == LATE, done.stdout
    bare.kill()

    job.stop()
    for rank in job.ranks:
        rank.process.wait()
    dead = world.probing("-t", ",".join(str(r.pid) for r in job.ranks), "stragglers", "--json")
    assert first(dead)["rank"] == LATE


def test_without_steps(world):
    target = world.start("sleep", "600")
    target.inject()
    done = target.probing("stragglers")
    assert done.returncode == 1 and "plugin load torch" in done.stderr, done.stderr


@full
@pytest.mark.parametrize("fault", sorted(PARTS))
def test_each_fault_is_named_with_its_part(world, python, fault):
    job = Job(world, python, fault, steps=150)
    found = first(job.run("stragglers", "--json"))
    assert (found["rank"], found["part"]) == (LATE, PARTS[fault]), found
    job.stop()


@pytest.mark.parametrize("fault", ["backward"] + [
    pytest.param(fault, marks=full) for fault in ("sleep", "loader", "optimizer")])
def test_where_ddp_waits_in_its_backward(world, python, fault):
    job = Job(world, python, "ddp_" + fault, steps=60 if fault == "backward" else 150)
    done = job.run("stragglers", "--json")
    found = first(done)
    assert found["rank"] == LATE, found
    assert found["part"] == PARTS.get(fault, fault), found
    assert found["sampled"] == 0 and found["of_steps"] >= 30, found  # each backward, and no few
    assert json.loads(done.stdout)["blind"] == "", done.stdout
    job.stop()


def test_a_wait_that_is_not_seen_is_told(world, python):
    """Ranks that meet outside of what torch has: which of them is slow there cannot be known."""
    job = Job(world, python, "unseen", steps=40)
    answer = json.loads(job.run("stragglers", "--json").stdout)
    assert answer["blind"].startswith("blind: these steps do not show where"), answer
    assert "blind: these steps" in job.run("stragglers").stdout


@full
def test_evaluations_of_one_rank(world, python):
    job = Job(world, python, "ddp_evaluation", steps=400)
    found = first(job.run("stragglers", "--json"))
    assert (found["rank"], found["kind"], found["part"]) == (LATE, "sometimes", "evaluation"), found
    assert found["every_steps"] == 40, found
    job.stop()


@full
@pytest.mark.parametrize("loop", ["ddp_", ""])
def test_a_rank_that_makes_more_steps(world, python, loop):
    job = Job(world, python, loop + "steps", steps=150)
    found = first(job.run("stragglers", "--json"))
    assert (found["rank"], found["part"]) == (LATE, "optimizer"), found
    assert "rank 2 makes 10 steps while the others make one" in " ".join(
        job.run("stragglers").stdout.split()), found
    job.stop()


@full
def test_a_rank_that_is_stopped_again_and_again(world, python):
    """For a third of the time, in the middle of whatever it does."""
    job = Job(world, python, "ddp_none", steps=10)
    for rank in job.ranks:
        assert rank.probing("plugin", "load", "system").returncode == 0
    over = threading.Event()

    def stop():
        while not over.wait(0.6):
            job.ranks[LATE].process.send_signal(signal.SIGSTOP)
            over.wait(0.3)
            job.ranks[LATE].process.send_signal(signal.SIGCONT)
    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        for rank in job.ranks:
            wait_for(lambda rank=rank: rank.rows(
                "select coalesce(sum(wall_ns), 0) > 40 * 1000000000 from cpu.utilization where "
                "scope = 'process'") == [[True]], "looks at it", 150)
    finally:
        over.set()
        stopper.join()
    found = first(job.run("stragglers", "--json"))
    assert found["rank"] == LATE and "stopped" in found["signs"], found
    assert 0.15 < found["signs"]["stopped"]["own"] < 0.6, found
    job.stop()


@full
def test_now_and_then(world, python):
    job = Job(world, python, "sometimes", steps=400)
    found = first(job.run("stragglers", "--json"))
    assert (found["rank"], found["kind"]) == (LATE, "sometimes"), found
    assert 5 <= found["late_steps"] <= found["of_steps"] / 20, found
    job.stop()


@full
def test_nobody_is_late(world, python):
    job = Job(world, python, "none", steps=400)
    answer = json.loads(job.run("stragglers", "--json").stdout)
    assert answer["outcome"] == "silent", answer["stragglers"]
    job.stop()
