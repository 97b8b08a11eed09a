# SPDX-License-Identifier: Apache-2.0
"""`probing ship` of ranks on other machines, over a network that is slow and is cut in the middle
(tests/network.py): it goes on where it stopped, and each row comes once."""
import json
import os
import signal
import sys

import pytest
from network import Job
from shipping import PROGRAM, folder
from world import ROOT, wait_for


@pytest.fixture
def job(tmp_path):
    """Three machines with a rank each."""
    job = Job(tmp_path, 3)
    try:
        script = tmp_path / "rank.py"
        script.write_text(PROGRAM)
        (tmp_path / "state").mkdir(mode=0o700)
        for rank in range(3):
            job.start(rank + 1, job.env["PROBING_REMOTE"], "launch", "--plugin", "python", "--",
                      sys.executable, "-u", script, RANK=str(rank), LOCAL_RANK="0",
                      WORLD_SIZE="3", TORCHELASTIC_RUN_ID=job.name,
                      PYTHONPATH=str(ROOT / "plugins" / "python" / "package"))
        for rank in range(3):
            wait_for(lambda n=rank + 1: job.probing(
                n, "-t", "job:" + job.name, "eval", "made").returncode == 0, "a core")
        yield job
    finally:
        job.end()


def add(job, number, n):
    done = job.probing(number, "-t", "job:" + job.name, "eval", "add(%d)" % n)
    assert done.returncode == 0, done.stderr


def words(job, *more):
    return ("-t", "ssh:node[1-3]/job:" + job.name, "ship", "--to", "parquet:%s" % (job.tmp / "out"),
            "--tables", "python.loss", "--state", job.tmp / "state" / "ship.json", *more)


def table(job, number):
    """The state file's numbers for that machine: rows sent, and whether more are under way."""
    try:
        lines = (job.tmp / "state" / "ship.json").read_text().splitlines()[1:]
    except OSError:
        return 0, False
    for source in map(json.loads, lines):
        for t in source["tables"]:
            if source["host"] == "node%d" % number and t[2] == "loss":
                return t[5], t[4] > t[3]
    return 0, False


@pytest.mark.skipif(not os.environ.get("PROBING_TEST_FULL"), reason="a minute and a half, of which "
                    "one waits for who is cut off: PROBING_TEST_FULL=1")
def test_a_cut_in_the_middle(job):
    one, two = job.network[1], job.network[2]
    job.network.set(two, one, rate_kbit=2000)
    for number, n in ((1, 100), (2, 20000), (3, 100)):
        add(job, number, n)
    ship = job.begin(1, *words(job, "--interval", "100ms"))
    wait_for(lambda: table(job, 2)[1], "rows of the second under way")
    job.network.cut(two)
    add(job, 3, 50)
    wait_for(lambda: table(job, 3)[0] == 150, "rows of the others meanwhile", timeout=50)
    assert table(job, 2)[0] < 20000
    job.network.cut()
    wait_for(lambda: table(job, 2)[0] == 20000, "rows from behind the cut", timeout=120)
    # And who ships is killed while one is cut off.
    add(job, 2, 17000)
    wait_for(lambda: table(job, 2)[1], "more rows under way")
    job.network.cut(two)
    job.kill(ship, signal.SIGKILL)
    ship.communicate()
    job.network.cut()
    done = job.probing(1, *words(job, "--once"), timeout=120)
    assert done.returncode == 0 and "lost 0" in done.stderr, done.stderr
    found = {}
    for row in folder(job.tmp / "out"):
        found.setdefault((row["_host"], row["_rank"]), []).append(row["step"])
    assert {who: len(steps) for who, steps in found.items()} == {
        ("node1", 0): 100, ("node2", 1): 37000, ("node3", 2): 150}
    assert all(sorted(steps) == list(range(len(steps))) for steps in found.values())
