# SPDX-License-Identifier: Apache-2.0
"""torchrun starts all ranks of a job anew when one fails, or when a machine leaves or comes: whose
data count, what is said of the new ranks, and what an ended rank has left running.

Its ranks are played by processes with its variables: a restart of the real one takes seconds."""
import json
import os
import signal
import sys

from world import IDLE, wait_for

JOB = "elastic-%d" % os.getpid()


def start(world, rank, restart, world_size=2, source=IDLE, **env):
    target = world.python(source, env=dict({
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size),
        "TORCHELASTIC_RUN_ID": JOB, "TORCHELASTIC_RESTART_COUNT": str(restart),
        "TORCHELASTIC_MAX_RESTARTS": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29401"},
        **env))
    target.wait_line("ready")
    return target


def status(world, verb="status"):
    done = world.probing("cluster", verb, "--job", JOB, "--json")
    return [(r["rank"], r["state"], r["pid"]) for r in map(json.loads, done.stdout.splitlines())]


def whose(world):
    """(rank, process) of those whose rows a query over the job has."""
    done = world.probing("-t", "job:" + JOB, "query", "--format", "json",
                         "select distinct _rank, _addr from global.probing.settings order by 1")
    return [tuple(row) for row in json.loads(done.stdout)["rows"]]


def test_ranks_of_an_earlier_start_are_no_ended_ranks_of_this_one(world):
    """A rank 1 that has left data had ended with the start before, and was told as one of this."""
    first = [start(world, rank, 0) for rank in range(2)]
    for t in first:
        t.inject()
    said = world.probing("cluster", "attach", "--job", JOB).stderr
    assert "torchrun may start the ranks anew (0 of 3 restarts so far)" in said, said
    first[1].kill()
    assert status(world)[1][:2] == (1, "ended")  # of this start: it counts
    first[0].kill()
    again = start(world, 0, 1)
    assert status(world) == [(0, "not entered", again.pid)]
    said = world.probing("cluster", "status", "--job", JOB).stderr
    assert "torchrun has started the ranks anew (restart 1 of 3)" in said, said
    again.inject()
    assert whose(world) == [(0, str(again.pid))]
    again.kill()
    # An agent counts no restart where another one's rank has failed: it ended before these began.
    for data in world.data.glob("%d-*/data.mdb" % again.pid):
        seen = data.stat().st_mtime - 10
        os.utime(data, (seen, seen))
    moved = start(world, 1, 1)
    assert status(world) == [(1, "not entered", moved.pid)]


# A child that is forked, one that is started with another program, and the end of their rank.
LEAVES = """
import os, subprocess, sys, time
forked = os.fork()
if forked == 0:
    time.sleep(600)
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready", forked, other.pid, flush=True)
time.sleep(600)
"""


def test_a_python_that_a_dead_rank_has_left_is_no_rank(world):
    """A data loader that outlived its rank had that one's environment, and counted as the rank."""
    here = {"LOCAL_WORLD_SIZE": "2"}
    rank, left = start(world, 0, 0, **here), start(world, 1, 0, source=LEAVES, **here)
    assert [r[0] for r in status(world)] == [0, 1]
    children = [int(n) for n in left.wait_line(r"ready (\d+) (\d+)").groups()]
    left.kill()
    assert all(os.path.exists("/proc/%d" % n) for n in children)
    assert status(world) == [(0, "not entered", rank.pid)]
    done = world.probing("cluster", "hang", "--job", JOB, "--json", "--looks", "1")
    assert [r["state"] for r in json.loads(done.stdout)["ranks"]] == ["elsewhere", "gone"]
    rank.kill()
    # Nobody is left to compare them with, and words alone tell who is a helper.
    os.kill(children[0], signal.SIGKILL)
    wait_for(lambda: len(status(world)) == 1, "one that may be a rank without a launcher")
