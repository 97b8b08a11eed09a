# SPDX-License-Identifier: Apache-2.0
"""`probing cluster diff`: what is not the same in all ranks, by value; secrets, and what each has
for its own; here and on hosts that say what cannot be."""
import json
import os
import sys

from world import IDLE, remote_shell

JOB = "diff-%d" % os.getpid()


def start_ranks(world, job, n, odd=2, **more):
    targets = []
    for rank in range(n):
        env = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n),
               "TORCHELASTIC_RUN_ID": job, "SEED": "seed-%d" % rank, "NCCL_ALGO": "Ring",
               "API_TOKEN": "secret-%d" % rank, "MYSQL_PWD": "secret-%d" % rank,
               "PROBING_LAUNCH": "%d\n" % (rank % 2)}
        if rank == odd:
            env.update({"NCCL_ALGO": "Tree", "NAN\nrank 0": "\x1b[2J"}, **more)
        targets.append(world.python("import json\n" + IDLE, env=env))
    for target in targets:
        target.wait_line("ready")
    return targets


def diff(world, job, *words, env=None):
    return world.probing("cluster", "diff", "--job", job, *words, env=env)


def facts(done):
    found = json.loads(done.stdout)
    return found, {(f["kind"], f["name"]): f for f in found["facts"]}


def test_programs_differ(world):
    """Scripts of the same name in which not the same stands, of another commit."""
    job, place, ranks = JOB + "-programs", world.tmp / "place", []
    for rank in range(3):
        folder = world.tmp / ("new" if rank == 2 else "old")
        (folder / "src").mkdir(parents=True, exist_ok=True)
        (folder / ".git" / "refs").mkdir(parents=True, exist_ok=True)
        (folder / ".git" / "HEAD").write_text("ref: refs/main\n")
        (folder / ".git" / "refs" / "main").write_text("%040x\n" % (rank == 2))
        (folder / "src" / "job.py").write_text(IDLE + "#" * (rank == 2))
        place.unlink(missing_ok=True)
        place.symlink_to(folder)  # each at the same path, as on machines of their own
        ranks.append(world.start(
            "/bin/sh", "-c", 'cd -P "$1"; shift; exec "$@"', "sh", str(place), sys.executable, "-X",
            "dev", "-u", "src/job.py", "--local-rank=%d" % rank, "--lr", "%d" % (rank == 2),
            env={"RANK": str(rank), "WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": job}))
        ranks[rank].wait_line("ready")
    _, by = facts(diff(world, job, "--json"))
    assert ("program", "script") not in by  # src/job.py in all
    for name, values in (("script, as it lies there now", 2), ("git commit", 2)):
        found = by["program", name]["values"]
        assert len(found) == values and found[-1]["ranks"] in ([2], [0, 1]), found
    assert sorted(v["value"] for v in by["program", "git commit"]["values"]) == [
        "%040x" % n for n in (0, 1)]
    assert sorted(v["value"].split("dev ")[1] for v in by["process", "command line"]["values"]) == [
        "-u src/job.py --local-rank=* --lr %d" % n for n in (0, 1)]


def test_one_is_different(world):
    job = JOB + "-one"
    targets = start_ranks(world, job, 4, ONLY_HERE="1")
    done = diff(world, job)
    assert done.returncode == 1 and "ranks 0-3 (4): settings, plugins and" in done.stderr
    assert "  NCCL_ALGO\n    ranks 0-1,3 (3): Ring\n    rank 2: Tree\n" in done.stdout
    assert "  ONLY_HERE\n    rank 2: 1\n    ranks 0-1,3 (3): (not there)\n" in done.stdout
    assert "secret-" not in done.stdout and "seed-" not in done.stdout
    assert "LOCAL_RANK, PROBING_LAUNCH, RANK, SEED" in done.stdout
    assert "2 secrets, not compared" in done.stdout
    assert "  NAN\\nrank 0\n    rank 2: \\x1b[2J\n" in done.stdout
    for target in targets:
        target.inject()
    assert targets[1].probing("config", "set", "probing.retention", "3d").returncode == 0
    done = diff(world, job, "--json")
    assert done.returncode == 0, done.stderr
    found, by = facts(done)
    assert [r["pid"] for r in found["ranks"]] == [t.pid for t in targets]
    assert by["environment", "NCCL_ALGO"]["values"] == [
        {"value": "Ring", "ranks": [0, 1, 3]}, {"value": "Tree", "ranks": [2]}]
    assert by["environment", "ONLY_HERE"]["values"][1] == {"value": None, "ranks": [0, 1, 3]}
    assert by["settings", "probing.retention"]["values"] == [
        {"value": "3d", "ranks": [1]}, {"value": "7d", "ranks": [0, 2, 3]}]
    assert found["same"] > 30 and {f["is"] for f in found["facts"]} == {"differs"}
    found, by = facts(diff(world, job, "--json", "--all"))
    assert by["environment", "API_TOKEN"]["is"] == "hidden"
    assert by["environment", "RANK"]["is"] == by["environment", "SEED"]["is"] == "own"
    assert by["limits", "open files"]["is"] == "same"
    assert by["plugins", "python"]["values"][0]["ranks"] == [0, 1, 2, 3]
    assert by["python", "json"]["is"] == "same"  # a package's version: the plugin's own facts


def test_targets_in_place_of_a_job(world):
    targets = start_ranks(world, JOB + "-targets", 2, odd=1)
    targets[0].inject()
    named = ",".join(str(t.pid) for t in targets)
    found, by = facts(world.probing("-t", named, "cluster", "diff", "--json"))
    assert by["environment", "NCCL_ALGO"]["values"] == [
        {"value": "Ring", "ranks": [0]}, {"value": "Tree", "ranks": [1]}]
    assert found["ranks"][0]["why"] is None and "has not been entered" in found["ranks"][1]["why"]


SHELL = r"""#!/bin/sh
host=$1
shift
case $host in
dead) echo "ssh: connect to host dead port 22: No route to host" >&2; exit 255 ;;
odd) exec %(relay)s lines '{"ranks": [1], "facts": []}' ;;
liar) exec %(relay)s lines '{"ranks": [{"rank": 5, "host": "far", "why": "\n"}], "facts": [
      {"kind": "environment", "name": "NCCL_ALGO", "values": [{"value": "a\nb",
      "ranks": [0, 5, 5, -1, 1e99, "x"]}]}]}' ;;
*) exec sh -c "$*" ;;
esac
"""


def test_hosts(world):
    """A host can lie about its own ranks only."""
    job = JOB + "-hosts"
    env = remote_shell(world, SHELL)
    start_ranks(world, job, 2)
    found, by = facts(diff(world, job, "--hosts", "far,dead,odd,liar", "--json", env=env))
    assert [(r["host"], r["rank"]) for r in found["ranks"]] == [
        ("far", 0), ("far", 1), ("liar", 5)]
    assert by["environment", "NCCL_ALGO"]["values"] == [
        {"value": "Ring", "ranks": [0, 1]}, {"value": "a\nb", "ranks": [5]}]
    why = {h["host"]: h["why"] for h in found["not_reached"]}
    assert "No route" in why["dead"] and "not one of probing" in why["odd"]
    assert found["no_rank"] == []


def test_a_host_without_a_rank_was_asked(world):
    """`status` and `hang` counted it as one without a rank, this as one that could not be asked."""
    env = remote_shell(world, SHELL)
    words = ["diff", "--job", JOB + "-nowhere", "--hosts"]
    done = world.probing("cluster", *words, "far,dead", env=env)
    assert done.returncode == 1 and "host far has no rank of the job\n" in done.stderr, done
    assert "host dead could not be asked: ssh: connect to" in done.stderr, done.stderr
    found = json.loads(world.probing("cluster", *words, "far,dead", "--json", env=env).stdout)
    assert found["no_rank"] == ["far"] and [h["host"] for h in found["not_reached"]] == ["dead"]


def test_wrong_words(world):
    done = world.probing("cluster", "status", "--all")
    assert done.returncode == 2 and "is for `cluster diff`" in done.stderr
    done = diff(world, "no-such-job")
    assert done.returncode == 1 and "no rank of job 'no-such-job' runs" in done.stderr
