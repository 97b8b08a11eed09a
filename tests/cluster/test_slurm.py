# SPDX-License-Identifier: Apache-2.0
"""`probing cluster` in a real SLURM (tests/slurm.py): what it calls jobs and starts, and what of it
is a rank."""
import json
import os
import pwd
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from slurm import Slurm
from world import CLI, CORE, DEBIAN_PYTHON, IDLE, ROOT, wait_for

RANK = "import os\nme = int(os.environ['SLURM_PROCID'])\n" + IDLE


@pytest.fixture(scope="module")
def made():
    # Not below pytest's folder, which is its user's alone: jobs are of others, too.
    tmp = Path(tempfile.mkdtemp(prefix="probing-slurm-"))
    slurm = None
    try:
        tmp.chmod(0o755)
        slurm = Slurm(tmp, 3)
        (tmp / "rank.py").write_text(RANK)
        slurm.rank = "%s -u %s" % (sys.executable, tmp / "rank.py")
        yield slurm
    finally:
        if slurm:
            slurm.end()
        shutil.rmtree(tmp)


@pytest.fixture
def slurm(made):
    made.jobs = []
    yield made
    if made.jobs:
        made.cancel(*made.jobs)


def begin(slurm, text, *words, steps=("0",), **more):
    """A job of sbatch, whose steps run with ready ranks."""
    job = slurm.batch(text, *words, **more)
    slurm.jobs.append(job)
    slurm.wait_steps(*(job + "." + step for step in steps))
    return job


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]


def status(slurm, *words, number=1, verb="status", **more):
    """(rank, host, state) of each, and how the command ended."""
    done = slurm.probing(number, "cluster", verb, *words, "--json", **more)
    return [(r["rank"], r["host"], r["state"]) for r in lines(done)], done


def steps_shell(job):
    """As docs/cluster.md has it."""
    page = (ROOT / "docs" / "cluster.md").read_text()
    found = re.search(r"`(srun .*--nodelist=\{\} sh -c)`", page)[1]
    assert "4711" in found
    return found.replace("4711", job)


@pytest.mark.parametrize("by", ["ssh", "srun"])
def test_a_job(slurm, by):
    """A script whose srun has started three ranks: the script, srun and what srun starts for us
    are none, and are not entered."""
    job = begin(slurm, "srun -n3 -N3 %s\n" % slurm.rank, "-N3", "-n3")
    more = {"PROBING_RSH": steps_shell(job), "PROBING_REMOTE": str(CLI)} if by == "srun" else {}
    everywhere = ("--job", job, "--hosts", "auto")

    def all_are(state):
        return [(n, "node%d" % (n + 1), state) for n in range(3)]
    wait_for(lambda: len(status(slurm, *everywhere, **more)[0]) == 3, "three ranks")
    found, done = status(slurm, *everywhere, **more)
    assert found == all_are("not entered"), done.stderr
    found, done = status(slurm, *everywhere, verb="attach", **more)
    assert found == all_are("entered") and done.returncode == 0, done.stderr
    text = slurm.probing(1, "cluster", "status", "--hosts", "auto", **more)
    assert "job %s.0 (slurm), world size 3" % job in text.stdout, text.stdout + text.stderr
    assert "3 of 3 ranks are entered" in text.stderr and text.stderr.count("\n") == 1, text.stderr
    nodes = lines(slurm.probing(1, "cluster", "nodes", *everywhere[:2], "--json"))
    assert [(n["host"], n["known_by"].split(", ")[-1]) for n in nodes] == [
        ("node%d" % n, "SLURM") for n in (1, 2, 3)]
    where = "ssh:node[1-3]/job:"
    for name in (job, job + ".0"):
        done = slurm.probing(1, "-t", where + name, "eval", "me", **more)
        assert done.returncode == 0 and re.findall(r"\d+$", done.stdout, re.M) == [
            "0", "1", "2"], done.stdout + done.stderr
    done = slurm.probing(1, "cluster", "hang", *everywhere, "--interval", "300ms", "--json", **more)
    assert json.loads(done.stdout)["world_size"] == 3 and done.stdout.count('"pid"') == 3
    done = slurm.probing(1, "cluster", "diff", *everywhere, **more)
    assert done.returncode == 0 and "the same in all of 3" in done.stdout, done.stdout
    found, done = status(slurm, *everywhere, verb="detach", **more)
    assert found == all_are("not entered") and done.returncode == 0, done.stderr


@pytest.mark.skipif(os.environ.get("PROBING_TEST_FULL") != "1", reason="takes 30 s: "
                    "PROBING_TEST_FULL=1")
def test_srun_that_waits_for_whole_lines(slurm):
    """Without -u it does: why nothing came is said."""
    job = begin(slurm, "srun -n2 -N2 %s\n" % slurm.rank, "-N2", "-n2")
    rsh = steps_shell(job).replace(" -u", "")
    assert rsh != steps_shell(job)
    done = slurm.probing(1, "cluster", "status", "--job", job, "--hosts", "node2", PROBING_RSH=rsh,
                         PROBING_REMOTE=str(CLI))
    assert done.returncode == 1 and "more than its first line (srun: -u)" in done.stdout


def test_two_steps_at_once(slurm):
    """Each has a rank 0: they are not taken together, and the job's name means both."""
    job = begin(slurm, "srun -n1 -N1 --overlap %s &\nsrun -n2 -N2 --overlap %s &\nwait\n" % (
        slurm.rank, slurm.rank), "-N2", "-n2", steps=("0", "1"))
    wait_for(lambda: len(status(slurm, "--job", job, "--hosts", "auto")[0]) == 3, "three ranks")
    jobs = {r["job"]: r["world_size"] for r in lines(slurm.probing(
        1, "cluster", "status", "--job", job, "--json"))}
    assert sorted(jobs.values()) == [1, 2] and set(jobs) == {job + ".0", job + ".1"}
    two = next(name for name in jobs if jobs[name] == 2)
    done = slurm.probing(1, "cluster", "hang", "--job", job)
    assert done.returncode == 1 and all("'%s'" % name in done.stderr for name in jobs), done.stderr
    found, done = status(slurm, "--job", two, "--hosts", "auto", verb="attach")
    assert found == [(0, "node1", "entered"), (1, "node2", "entered")], done.stderr
    found, done = status(slurm, "--job", job)
    assert sorted(state for _, _, state in found) == ["entered", "not entered"]


def test_a_task_of_an_array(slurm):
    """It has a number that nobody has been told; squeue says 12_3."""
    array = slurm.batch("srun -n1 %s\n" % slurm.rank, "-N1", "-n1", "--array=3-4", "-w", "node1")
    slurm.jobs.append(array)
    names = [array + "_3", array + "_4"]
    for name in names:
        wait_for(lambda n=name: status(slurm, "--job", n)[0] == [(0, "node1", "not entered")], name)
        found = lines(slurm.probing(1, "cluster", "status", "--job", name + ".0", "--json"))
        assert [r["job"] for r in found] == [name + ".0"]
    done = slurm.probing(1, "cluster", "status", "--job", array, "--json")
    assert sorted(r["job"] for r in lines(done)) == [name + ".0" for name in names]
    found, done = status(slurm, "--job", names[1], verb="attach")
    assert found == [(0, "node1", "entered")]
    assert status(slurm, "--job", names[0])[0] == [(0, "node1", "not entered")]


def test_a_heterogeneous_job(slurm):
    """Two parts with one numbering, known by the number of the first."""
    job = begin(slurm, "srun --het-group=0,1 %s\n" % slurm.rank, "-n1", "-w", "node1", ":", "-n2",
                "-N2", "-w", "node[2-3]")
    wait_for(lambda: len(status(slurm, "--job", job, "--hosts", "auto")[0]) == 3, "three ranks")
    found, done = status(slurm, "--job", job, "--hosts", "auto", verb="attach")
    assert found == [(n, "node%d" % (n + 1), "entered") for n in range(3)], done.stderr


def test_what_is_no_rank(slurm):
    """Somebody's shell in the job; and a rank by sbatch alone is one, its shell is not."""
    other = "srun -n1 --overlap sh -c 'while :; do sleep 600; done' &\n"
    job = begin(slurm, other + slurm.rank, "-N1", "-n1", "-w", "node1")
    slurm.start(1, "sh", "-c", "sleep 1000 | script -qc 'srun --jobid %s --overlap --pty bash' "
                "/dev/null" % job)
    slurm.wait_steps(job + ".1")
    found, done = status(slurm, "--job", job + ".1")
    assert found == [] and done.returncode == 1, done.stdout
    found = lines(slurm.probing(1, "cluster", "attach", "--job", job, "--json"))
    alone = [r for r in found if r["job"] == job]
    assert [r["state"] for r in alone] == ["entered"], found
    words = slurm.shell(1, "tr '\\0' ' ' < /proc/%d/cmdline" % alone[0]["pid"]).stdout
    assert words.strip() == slurm.rank


def test_from_the_shell_of_salloc(slurm):
    """No rank runs here; SLURM has told its shell what the nodes are."""
    text = ("srun -n2 -N2 %s & until squeue -s -h -j $SLURM_JOB_ID -o %%i | grep -q '\\.0'; do "
            "sleep 0.1; done; until %s cluster attach --job $SLURM_JOB_ID --hosts auto; do "
            "sleep 0.2; done; %s cluster nodes --json; kill %%1; wait" % (slurm.rank, CLI, CLI))
    script = slurm.tmp / "allocated"
    script.write_text("#!/bin/bash\n" + text + "\n")
    script.chmod(0o755)
    done = slurm.shell(3, "timeout 120 salloc -N2 -n2 -w node1,node2 %s" % script)
    assert "job %s.0" % re.search(r"allocation (\d+)", done.stderr)[1] in done.stdout, done.stderr
    assert "2 of 2 ranks are entered" in done.stderr, done.stdout + done.stderr
    nodes = [n for n in map(json.loads, re.findall(r"^\{.*\}$", done.stdout, re.M))]
    assert [(n["host"], n["known_by"]) for n in nodes] == [("node1", "SLURM"), ("node2", "SLURM")]


def test_who_is_not_root(slurm):
    """All of it by srun, as somebody who cannot log in anywhere; with an environment of its own."""
    user = pwd.getpwnam("nobody")
    copy, own = slurm.tmp / "copy", slurm.tmp / "own"  # where that one may read, and write
    copy.mkdir()
    own.mkdir()
    for file in (CLI, CORE):
        shutil.copy(file, copy)
    os.chown(own, user.pw_uid, user.pw_gid)
    become = "setpriv --reuid=%d --regid=%d --clear-groups env -u PROBING_DATA_DIR HOME=%s " % (
        user.pw_uid, user.pw_gid, own)
    rank = "srun --export=NONE -n2 -N2 %s -u %s/rank.py\n" % (DEBIAN_PYTHON, slurm.tmp)
    job = begin(slurm, rank, "-N2", "-n2", "-o", own / "out", user=become)
    ask = become + "PROBING_REMOTE=%s/probing PROBING_RSH='%s' %s/probing " % (
        copy, steps_shell(job), copy)
    words = ask + "cluster %s --job " + job + " --hosts auto"
    slurm.shell(1, ask + "gc")  # an earlier run's job had this number, too, and its data are here
    wait_for(lambda: "0 of 2 ranks" in slurm.shell(1, words % "status").stderr,
             lambda: str(slurm.shell(1, words % "status")))
    done = slurm.shell(1, words % "attach")
    assert "2 of 2 ranks are entered" in done.stderr, done.stdout + done.stderr
    done = slurm.shell(1, ask + "-t 'ssh:node[1-2]/job:%s' query --format json "
                       "\"select _rank, value from global.process.envs where name = "
                       "'SLURM_JOB_USER'\"" % job)
    assert json.loads(done.stdout)["rows"] == [[0, "nobody"], [1, "nobody"]], done.stderr
    done = slurm.shell(1, words % "detach")
    assert "2 of 2 ranks are left alone" in done.stderr, done.stdout + done.stderr


def test_several_ranks_of_a_node(slurm):
    """SLURM puts all of a step's ranks on a node into the process group of the first: of these one
    whose parent is in another group has not outlived it."""
    job = begin(slurm, "srun -N1 -n3 --overcommit %s\n" % slurm.rank, "-N1", "-n3", "--overcommit")
    here = ("--job", job, "--hosts", "auto")
    wait_for(lambda: len(status(slurm, *here)[0]) == 3, lambda: status(slurm, *here)[1].stdout)
    found, done = status(slurm, *here, verb="attach")
    assert [(rank, state) for rank, _, state in found] == [(n, "entered") for n in range(3)], \
        done.stdout
