# SPDX-License-Identifier: Apache-2.0
"""`probing cluster` and `job:NAME` with the launchers of Open MPI and MPICH, on one machine and on
several: who is a rank, and what a job is called that nobody has named."""
import json
import os
import re
import shutil
import signal
import sys

import pytest
from network import Job
from world import IDLE, wait_for

# Open MPI 5 has another launcher, which says the same to its ranks.
OPENMPI = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"]
LAUNCHERS = {"openmpi": OPENMPI, "mpich": ["mpirun.mpich"]}
HELPER = """
import os, subprocess, sys, time
os.environ["RANK"] = os.environ["%s"]
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("pid %%d\\n" %% os.getpid(), end="", flush=True)
"""
RANKS = {"openmpi": "OMPI_COMM_WORLD_RANK", "mpich": "PMI_RANK"}


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]


def need(kind):
    if not shutil.which(LAUNCHERS[kind][0]):
        pytest.skip("no %s here (Debian: openmpi-bin, mpich)" % LAUNCHERS[kind][0])


@pytest.mark.parametrize("kind", sorted(LAUNCHERS))
def test_a_job_that_nobody_has_named(world, kind):
    """Each rank has a helper, to which it has said RANK, as programs do for torch.distributed."""
    need(kind)
    script = world.tmp / "rank.py"
    script.write_text(HELPER % RANKS[kind] + IDLE)
    launched = world.start(*LAUNCHERS[kind], "-n", "3", sys.executable, "-u", str(script))
    try:
        own = set(map(int, wait_for(lambda: len(
            re.findall(r"pid (\d+)\n", launched.output())) == 3 and re.findall(
                r"pid (\d+)\n", launched.output()), launched.output)))
        names = wait_for(lambda: {r["job"] for r in lines(world.probing(
            "cluster", "status", "--json")) if r["pid"] in own} or None, "its name")
        assert len(names) == 1 and "" not in names
        job = names.pop()

        def status(*words):
            done = world.probing("cluster", *words, "--job", job, "--json")
            return [(r["rank"], r["local_rank"], r["world_size"], r["launcher"], r["state"])
                    for r in lines(done)], {r["pid"] for r in lines(done)}
        found, pids = wait_for(lambda: len((s := status("status"))[0]) == 3 and s, "three ranks")
        assert pids == own
        assert found == [(n, n, 3, kind, "not entered") for n in range(3)]
        assert [state for *_, state in status("attach")[0]] == ["entered"] * 3
        done = world.probing("-t", "job:" + job, "eval", "__import__('os').environ['RANK']")
        assert re.findall(r"'(\d)'", done.stdout) == ["0", "1", "2"], done.stdout + done.stderr
        assert [state for *_, state in status("detach")[0]] == ["not entered"] * 3
        assert "job:%s (3 ranks)" % job.replace("\\", "") in world.probing(
            "-t", "job:no-such-job-%d" % os.getpid(), "eval", "1").stderr.replace("\\", "")
    finally:
        launched.process.send_signal(signal.SIGTERM)
        launched.process.wait()


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    job = Job(tmp_path_factory.mktemp("mpi"), 3, delay_ms=5)
    try:
        (job.tmp / "rank.py").write_text(IDLE)
        yield job
    finally:
        job.end()


@pytest.mark.parametrize("kind", sorted(LAUNCHERS))
def test_on_several_machines(three, kind):
    """By ssh, as a hosts file says; the same file tells us."""
    need(kind)
    hosts, rsh = three.tmp / ("hosts-" + kind), three.tmp / "rsh"
    rsh.write_text("#!/bin/sh\nexec %s \"$@\"\n" % three.env["PROBING_RSH"])
    rsh.chmod(0o755)
    hosts.write_text("".join("node%d%s\n" % (n, " slots=2" if kind == "openmpi" else ":2")
                             for n in (1, 2, 3)))
    words = {"openmpi": ["--hostfile", hosts, "--mca", "plm_rsh_agent", rsh, "--mca",
                         "orte_keep_fqdn_hostnames", "1"],
             "mpich": ["-f", hosts, "-launcher", "ssh", "-launcher-exec", rsh, "-iface", "cable"]}
    launched, log = three.start(1, *LAUNCHERS[kind], "-n", "6", *words[kind], sys.executable, "-u",
                                three.tmp / "rank.py")

    def status(*more):
        assert launched.poll() is None, log.read_text()
        return lines(three.probing(1, "cluster", *more, "--hosts", str(hosts), "--json"))
    names = {}

    def all_are_there():
        names["found"] = found = [r for r in status("status") if r["launcher"] == kind]
        return len(found) == 6
    try:
        wait_for(all_are_there, lambda: str(names) + log.read_text())
        assert len({r["job"] for r in names["found"]}) == 1  # the same on all machines
        assert sorted((r["rank"], r["host"], r["local_rank"]) for r in names["found"]) == [
            (n, "node%d" % (n // 2 + 1), n % 2) for n in range(6)]
        job = names["found"][0]["job"]
        assert [r["state"] for r in status("attach", "--job", job)] == ["entered"] * 6
        done = three.probing(1, "-t", "ssh:node[1-3]/job:" + job, "query", "--format", "json",
                             "select _rank from global.process.envs group by 1 order by 1")
        assert json.loads(done.stdout)["rows"] == [[n] for n in range(6)], done.stderr
        assert [r["state"] for r in status("detach", "--job", job)] == ["not entered"] * 6
    finally:
        three.kill(launched, signal.SIGTERM)
        launched.wait()
