# SPDX-License-Identifier: Apache-2.0
"""`probing cluster` on a job of torchrun and gloo whose nodes are machines of their own: far from
each other, and cut off while the job steps (tests/network.py)."""
import json
import os

import pytest
from network import Job
from world import DEBIAN_PYTHON, has_torch, wait_for

PYTHONS = [DEBIAN_PYTHON] + [p for p in os.environ.get("PROBING_TEST_TORCH", "").split(":") if p]
NODES = [2]
if os.environ.get("PROBING_TEST_FULL") == "1":
    NODES = [2, 4, 8]
else:
    PYTHONS = PYTHONS[-1:]  # the newest: test_torch_store.py asks the store of each

GLOO = """
import os, sys, time
import torch, torch.distributed as dist

def train():
    for n in range(1000000000):
        dist.all_reduce(torch.ones(4))
        with open(sys.argv[1] + os.environ["RANK"], "w") as steps:
            steps.write(str(n))
        time.sleep(0.001)

dist.init_process_group("gloo")
train()
"""


def start(job, python, nodes):
    """Their store is on the first machine.  (-r and -t: without them that of torch 1.13 does not
    start in Python 3.11.)"""
    script = job.tmp / "job.py"
    script.write_text(GLOO)
    return [job.start(n, python, "-m", "torch.distributed.run", "--nnodes=%d" % nodes,
                      "--nproc_per_node=1", "-r", "0:1", "-t", "0:1", "--rdzv_backend=c10d",
                      "--rdzv_id=" + job.name, "--rdzv_endpoint=node1:29400", script,
                      job.tmp / "steps", OMP_NUM_THREADS="1") for n in range(1, nodes + 1)]


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("python", PYTHONS)
def test_torchrun_across_machines(tmp_path, python, nodes):
    if not has_torch(python):
        pytest.skip("no torch for %s" % python)
    job = Job(tmp_path, nodes, delay_ms=5, jitter_ms=2)
    try:
        run(job, start(job, python, nodes), nodes)
    finally:
        job.end()


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]


def run(job, agents, nodes):
    names = ["node%d" % (n + 1) for n in range(nodes)]

    def step():
        ended = [log.read_text() for agent, log in agents if agent.poll() is not None]
        assert not ended, ended[0]
        try:
            return int((job.tmp / "steps0").read_text() or 0)
        except FileNotFoundError:
            return 0

    def ask(*words, **more):
        done = job.probing(1, "cluster", *words, "--job", job.name, "--hosts", "auto", **more)
        return done, lines(done)
    wait_for(lambda: step() > 2, "steps")
    job.network.set(delay_ms=20, jitter_ms=2, loss=0.01)
    done = job.probing(1, "cluster", "nodes", "--job", job.name, "--json")
    found = lines(done)
    assert [(f["node_rank"], "torchrun's store" in f["known_by"]) for f in found] == [
        (n, True) for n in range(nodes)] and {f["host"] for f in found} == set(names), done.stdout
    done, found = ask("attach", "--json")
    assert done.returncode == 0 and [f["rank"] for f in found] == list(range(nodes)), done.stderr
    assert {f["host"] for f in found} == set(names)
    last = next(f["rank"] for f in found if f["host"] == names[-1])
    done = job.probing(1, "cluster", "stragglers", "--job", job.name, "--hosts", "auto")
    assert "plugin torch is loaded in none" in done.stderr and all(
        "ssh:%s/" % name in done.stderr for name in names[1:]), done.stderr
    done = job.probing(1, "cluster", "hang", "--job", job.name, "--hosts", "auto", "--json")
    assert json.loads(done.stdout)["hangs"] is False and done.returncode == 0, done.stdout
    done = job.probing(1, "cluster", "diff", "--job", job.name, "--hosts", "auto")
    assert done.returncode == 0 and "the same in all of %d" % nodes in done.stdout, done.stdout

    job.network.cut(job.network[nodes])
    near = {"PROBING_RSH": job.env["PROBING_RSH"].replace("Timeout=10", "Timeout=3")}
    words = ["hang", "--job", job.name, "--hosts", ",".join(names), "--json", "--interval", "300ms"]

    def hangs():
        done = job.probing(1, "cluster", *words, **near)
        found = json.loads(done.stdout)
        return found["hangs"] is True and (done, found)
    done, found = wait_for(hangs, "a hang")
    assert done.returncode == 1
    assert [h["host"] for h in found["not_reached"]] == [names[-1]], done.stdout
    by = {r["rank"]: r for r in found["ranks"]}
    assert by[last]["state"] == "unseen" and "no host that answered has it" in by[last]["why"]
    for rank in set(by) - {last}:
        assert (by[rank]["state"], by[rank]["operation"]) == ("waits", "all_reduce")
    assert any("not seen may be what the others wait for" in line for line in found["says"])
    done = job.probing(1, "cluster", "status", "--job", job.name, "--hosts", ",".join(names),
                       "--json", **near)
    states = {f["host"]: f["state"] for f in lines(done)}
    assert done.returncode == 1 and states.pop(names[-1]) == "not reached"
    assert set(states.values()) == {"entered"} and len(states) == nodes - 1

    before = step()
    job.network.cut()
    job.network.set()
    wait_for(lambda: step() > before, "the job to go on, as gloo waits")
    done, found = ask("detach", "--json")
    assert done.returncode == 0 and {f["state"] for f in found} == {"not entered"}, done.stderr
    after = step()
    wait_for(lambda: step() > after, "steps without us")
