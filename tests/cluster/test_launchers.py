# SPDX-License-Identifier: Apache-2.0
"""Launchers that are Pythons: which of their processes are the ranks, whoever has set RANK.

torch's mp.spawn, Lightning and Ray Train set it in ranks that run already, so that it stands in
the environment with which data loaders begin, and not in the rank's own: those counted as ranks.
They are played by multiprocessing, which all of them use; torch itself takes seconds to import."""
import json
import os
import signal

import pytest
from world import wait_for

HELPERS = """
import multiprocessing, os, subprocess, sys, time
def begin(how, *words):
    if how == "exec":
        subprocess.Popen([sys.executable, "-u", __file__, PORT, *words])
    else:
        multiprocessing.get_context(how).Process(target=main, args=words).start()
def work():  # as a rank's data loaders
    for how in ("spawn", "fork"):
        multiprocessing.get_context(how).Process(target=time.sleep, args=(600,)).start()
    print("rank %s is %d" % (os.environ["LOCAL_RANK"], os.getpid()), flush=True)
    time.sleep(600)
def take(rank, **more):
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT, "WORLD_SIZE": "3",
                       "LOCAL_RANK": str(rank), "RANK": str(rank)}, **more)
def main(*words):
    BODY
PORT = sys.argv[1]
if __name__ == "__main__":
    main(*sys.argv[2:])
    time.sleep(600)
"""
# Ranks that set their place themselves; a launcher that sets it for each before it begins it; and
# Lightning: its rank 0 begins the others, and none has a RANK.
SELVES = """
    if words:
        take(words[0])
        work()
    for rank in range(3):
        begin(%r, str(rank))
"""
ITS = """
    if words:
        work()
    for rank in range(3):
        take(rank)
        begin(%r, "rank")
"""
LIGHTNING = """
    if not words:
        take(0, NODE_RANK="0")
        del os.environ["RANK"]
        for rank in (1, 2):
            os.environ["LOCAL_RANK"] = str(rank)
            begin("exec", "rank")
        os.environ["LOCAL_RANK"] = "0"
    work()
"""
CASES = {"selves-spawn": SELVES % "spawn", "selves-fork": SELVES % "fork",
         "selves-forkserver": SELVES % "forkserver", "its-exec": ITS % "exec",
         "its-spawn": ITS % "spawn", "its-fork": ITS % "fork", "lightning": LIGHTNING}


@pytest.mark.parametrize("case", CASES if os.environ.get("PROBING_TEST_FULL") else (
    "selves-spawn", "its-fork", "lightning"))
def test_each_rank_is_there_once(world, case):
    port = str(20000 + (os.getpid() * 7 + list(CASES).index(case)) % 40000)
    job, script = "127.0.0.1:" + port, world.tmp / "launch.py"
    script.write_text(HELPERS.replace("BODY", CASES[case].strip()))
    launcher = world.start("/usr/bin/python3", "-u", str(script), port)

    def status(verb="status"):
        done = world.probing("cluster", verb, "--job", job, "--json")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return [(r["rank"], r["state"], r["pid"]) for r in rows]
    try:
        ranks = [int(launcher.wait_line(r"rank %d is (\d+)" % n).group(1)) for n in range(3)]
        assert status() == [(n, "not entered", ranks[n]) for n in range(3)]
        assert status("attach") == [(n, "entered", ranks[n]) for n in range(3)]
        done = world.probing("-t", "job:" + job, "query", "--format", "json",
                             "select distinct _rank, _addr from global.probing.settings order by 1")
        assert json.loads(done.stdout)["rows"] == [[n, str(ranks[n])] for n in range(3)]
        # Its data loaders run on: they are no rank 2, and its data say that it was.
        os.kill(ranks[2], signal.SIGKILL)
        states = ["entered", "entered", "ended"]
        wait_for(lambda: status() == list(zip(range(3), states, ranks)), "the end of rank 2")
        done = world.probing("cluster", "detach", "--job", job)
        assert "2 of 2 ranks are left alone" in done.stderr, done.stderr
    finally:
        os.killpg(launcher.pid, signal.SIGKILL)
