# SPDX-License-Identifier: Apache-2.0
"""`probing cluster hang`: who waits for whom in a real job that hangs, a healthy one, one whose
rank has gone or is stopped, and hosts that say what cannot be."""
import json
import os
import re
import signal
import socket

import pytest
from world import DEBIAN_PYTHON, IDLE, has_torch, remote_shell, wait_for

PYTHONS = [DEBIAN_PYTHON] + [p for p in os.environ.get("PROBING_TEST_TORCH", "").split(":") if p]
JOB = "hang-%d" % os.getpid()

# Ranks step until the file is there; then the last one does not come to the next operation.
GLOO = """
import os, sys, time
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])

def load(n):
    while rank == 2 and os.path.exists(sys.argv[1]):
        sum(range(1000000)) if os.path.exists(sys.argv[1] + ".work") else time.sleep(0.05)
    return torch.ones(n)

def train():
    while True:
        dist.all_reduce(load(4))
        time.sleep(0.001)

print("up", flush=True)
dist.init_process_group("gloo")
if len(sys.argv) < 3:
    train()
import asyncio, threading  # as Ray Train: the main thread does something else
threading.Thread(target=train, name=sys.argv[2], daemon=True).start()
asyncio.run(asyncio.sleep(1e6))
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def hang(world, job, *words, env=None, targets=None):
    whose = ("-t", targets, "cluster", "hang") if targets else ("cluster", "hang", "--job", job)
    done = world.probing(*whose, "--json", "--interval", "300ms", *words, env=env)
    return done, json.loads(done.stdout) if done.stdout else None


def start_job(world, python, job, ranks, world_size, *arguments, source=GLOO):
    script, port = world.tmp / "job.py", free_port()
    script.write_text(source)
    return [world.start(python, "-u", str(script), *map(str, arguments),
                        env={"RANK": str(rank), "WORLD_SIZE": str(world_size),
                             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                             "JOB_NAME": job, "OMP_NUM_THREADS": "1"}) for rank in ranks]


@pytest.mark.parametrize("python", PYTHONS)
def test_one_does_not_come(world, python):
    if not has_torch(python):
        pytest.skip("no torch for %s" % python)
    hold, job = world.tmp / "hold", JOB + "-gloo"
    thread = ["trainer"] if python != DEBIAN_PYTHON else []
    targets = start_job(world, python, job, range(3), 3, hold, *thread)
    last = {}

    def says(hangs, awaited):
        assert all(t.alive() for t in targets), "\n".join(t.output() for t in targets)
        last["done"], last["found"] = done, found = hang(world, job)
        return found["hangs"] is hangs and found["awaited"] == awaited
    wait_for(lambda: says(False, []), "a healthy job", timeout=120)
    assert last["done"].returncode == 0
    hold.touch()
    wait_for(lambda: says(True, [2]), "a hang", timeout=120)
    assert last["done"].returncode == 1
    ranks = last["found"]["ranks"]
    assert [(r["rank"], r["pid"]) for r in ranks] == [(i, t.pid) for i, t in enumerate(targets)]
    assert [(r["state"], r["operation"]) for r in ranks[:2]] == [("waits", "all_reduce")] * 2
    assert ranks[0]["woken"] < ranks[0]["looks"] == 3
    assert ranks[2]["state"] == "elsewhere" and ranks[2]["place"].startswith("load, job.py:")
    assert "a step that takes longer than" in last["found"]["caution"]
    # It computes: it may be late only, as in a job whose step is long.
    (world.tmp / "hold.work").touch()
    wait_for(lambda: says(None, [2]), "one that is at work", timeout=60)
    found = last["found"]
    assert found["caution"] is None and found["ranks"][2]["busy_s"] > 0 and found["waited_s"] > 0
    assert any("is at work" in line for line in found["says"])
    (world.tmp / "hold.work").unlink()
    wait_for(lambda: says(True, [2]), "a hang", timeout=60)
    assert last["found"]["waited_s"] > 0  # since somebody looked last, at least
    text = world.probing("cluster", "hang", "--job", job, "--interval", "300ms")
    assert "ranks 0-1 (2) wait in all_reduce: train, job.py:" in text.stdout
    assert "The others wait for rank 2.\n" in text.stdout
    assert "\n    2 ranks: 0-1\n" in text.stdout and "\n    1 rank: 2\n" in text.stdout
    targets[2].inject()  # by its core it is the same
    wait_for(lambda: says(True, [2]), "a hang", timeout=60)
    os.kill(targets[2].pid, signal.SIGSTOP)
    wait_for(lambda: says(True, [2]) and last["found"]["ranks"][2]["state"] == "stopped",
             "one that is stopped", timeout=60)
    assert "kill -CONT %d" % targets[2].pid in last["found"]["ranks"][2]["why"]


@pytest.mark.parametrize("python", PYTHONS)
def test_one_is_gone(world, python):
    """It was killed before the others met; at 127.0.0.1 it can be nowhere else."""
    if not has_torch(python):
        pytest.skip("no torch for %s" % python)
    job = JOB + "-gone"
    start_job(world, python, job, (0, 1), 3, world.tmp / "none")
    found = {}

    def waiting():
        found.update(hang(world, job)[1])
        return [r["state"] for r in found["ranks"]] == ["waits", "waits", "gone"]
    wait_for(waiting, "two that wait", timeout=120)
    assert found["awaited"] == [2] and found["hangs"] is True
    assert [r["operation"] for r in found["ranks"]] == ["init_process_group"] * 2 + [None]
    assert "127.0.0.1" in found["ranks"][2]["why"]


# A rank's work is known by what the job is called with.
CALLS = """
import os, sys, time
import torch, torch.distributed as dist
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
small, large = torch.ones(4), torch.ones(1 << 22)

def ring():
    groups = [dist.new_group(sorted((i, (i + 1) % n))) for i in range(n)]
    dist.all_reduce(small, group=groups[rank])

def receive():
    dist.recv(small, src=(rank + 1) % n)

def begun():
    for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, small, (rank + 1) % n)]):
        work.wait()

def tags():
    if rank == 0: dist.send(large, 1, tag=1)
    if rank == 1: dist.recv(large, 0, tag=2)
    dist.barrier()

def another():
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    if rank < 2: dist.all_reduce(small, group=groups[rank])
    dist.barrier()

def absent():
    group = dist.new_group([1, 2])
    if rank == 1: dist.all_reduce(small, group=group)
    time.sleep(1e6)

def healthy():
    groups = [dist.new_group(sorted((i, (i + 1) % n))) for i in range(n)]
    while True:
        for i in range(n):
            if rank in (i, (i + 1) % n): dist.all_reduce(small, group=groups[i])
        if rank > 0: dist.recv(small, rank - 1, tag=rank)
        if rank < n - 1: dist.send(small, rank + 1, tag=rank + 1)
        time.sleep(0.001)

dist.barrier()
print("up", flush=True)
globals()[sys.argv[1]]()
"""
RING = ("They wait for each other in a circle: rank 0 waits in all_reduce of group 1 (ranks 0-1) "
        "for rank 1, which waits in all_reduce of group 2 (ranks 1-2) for rank 2, which waits in "
        "all_reduce of group 3 (ranks 0,2) for rank 0.")
IN_CALLS = {
    "ring": ([[0, 1, 2]], [], RING),
    "receive": ([[0, 1, 2]], [], "rank 0 waits in recv(src=1, tag=0) for rank 1, which waits in "
                "recv(src=2, tag=0) for rank 2, which waits in recv(src=0, tag=0) for rank 0."),
    "tags": ([[0, 1]], [], "rank 0 waits in send(dst=1, tag=1) for rank 1 (the tags differ)"),
    "another": ([[0, 1]], [], "rank 0 waits in all_reduce of group 1 (ranks 0-1) for rank 1, "
                "which waits in all_reduce of group 2 (ranks 0-1) for rank 0."),
    "absent": ([], [2], "rank 1 waits for rank 2."),
    "begun": ([], [], "They send to one rank or receive from it, and their stacks do not tell"),
}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("case", IN_CALLS)
def test_groups_pairs_and_tags_say_who_waits_for_whom(world, python, case):
    """An innocent rank was accused, or the network: operations were compared by their names."""
    if not has_torch(python):
        pytest.skip("no torch for %s" % python)
    job, (circles, awaited, says) = JOB + "-" + case, IN_CALLS[case]
    targets = start_job(world, python, job, range(3), 3, case, source=CALLS)
    last = {}

    def judged():
        assert all(t.alive() for t in targets), "\n".join(t.output() for t in targets)
        last["found"] = found = hang(world, job)[1]
        return found["hangs"] is True and found["circles"] == circles and \
            found["awaited"] == awaited and any(says in line for line in found["says"])
    for target in targets:
        target.wait_line("up")
    wait_for(judged, lambda: last["found"], timeout=60)
    assert not any("network" in line for line in last["found"]["says"]), last["found"]
    targets[0].inject()  # by its core it is the same
    wait_for(judged, lambda: last["found"], timeout=60)


@pytest.mark.parametrize("python", PYTHONS)
def test_a_healthy_job_of_groups_and_pairs_is_accused_of_nothing(world, python):
    if not has_torch(python):
        pytest.skip("no torch for %s" % python)
    job = JOB + "-healthy"
    targets = start_job(world, python, job, range(3), 3, "healthy", source=CALLS)
    for target in targets:
        target.wait_line("up")
    for _ in range(3):
        found = hang(world, job, "--interval", "1s")[1]
        assert found["circles"] == [] and found["awaited"] == [] and found["hangs"] is not True
    wait_for(lambda: hang(world, job)[1]["hangs"] is False, "a healthy job")


def start_rank(world, rank, job, source=IDLE, **env):
    target = world.python(source, env=dict({"RANK": str(rank), "WORLD_SIZE": "3",
                                            "TORCHELASTIC_RUN_ID": job}, **env))
    target.wait_line("ready")
    return target


DUMPS = """
import os, resource, time
os.chdir("%s")
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
memory = bytearray(b"x") * (512 << 20)
print("ready", flush=True)
time.sleep(1000)
"""


def dumps_core(pid):
    """None: it has ended."""
    try:
        with open("/proc/%d/status" % pid) as f:
            return "CoreDumping:\t1" in f.read()
    except OSError:
        return None


def test_one_that_dumps_core_is_gone(world):
    """Its sockets stay open until all is written, and its stack can be read from outside."""
    with open("/proc/sys/kernel/core_pattern") as f:
        if f.read().strip() != "core":
            pytest.skip("core dumps go elsewhere on this machine")
    job, ranks = JOB + "-dumps", []
    for rank in range(2):
        ranks.append(world.python(DUMPS % str(world.tmp), env={
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
            "TORCHELASTIC_RUN_ID": job}))
        ranks[rank].wait_line("ready")
    ranks[0].inject()
    os.kill(ranks[0].pid, signal.SIGSEGV)
    wait_for(lambda: dumps_core(ranks[0].pid) is not False, "a core dump")
    for _ in range(2):  # while it is written, and once more then or later
        done, found = hang(world, job, "--looks", "2")
        assert [r["state"] for r in found["ranks"]] == ["gone", "elsewhere"], found
    (world.tmp / "core").unlink(missing_ok=True)


WAITS_FOR_CHILD = """
import os, time
def load():
    while True: time.sleep(0.05)
child = os.fork()
if child == 0:
    load()
print("ready", child, flush=True)
os.waitpid(child, 0)
"""


def test_the_child_that_a_rank_waits_for_is_named(world):
    """A data loader that stands, or was stopped: only its rank was told."""
    job = JOB + "-child"
    rank = start_rank(world, 0, job, WAITS_FOR_CHILD)
    child = int(rank.wait_line(r"ready (\d+)")[1])

    def why():
        return hang(world, job, "--looks", "2")[1]["ranks"][0]["why"] or ""
    standing = r"its child %d \(python.*\) is in load, target-0.py:4 " % child
    wait_for(lambda: re.match(standing, why()), why)
    os.kill(child, signal.SIGSTOP)
    wait_for(lambda: "is stopped; continue it with: kill -CONT %d" % child in why(), why)


def test_of_a_node_that_is_not_full_no_rank_is_gone_that_the_job_has_not(world):
    for rank in range(2):
        world.python(IDLE, env={
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "8",
            "TORCHELASTIC_RUN_ID": JOB + "-node"}).wait_line("ready")
    done, found = hang(world, JOB + "-node", "--looks", "1")
    assert [(r["rank"], r["state"]) for r in found["ranks"]][2:] == [(2, "gone")], done.stdout


# "far" is this machine; the others are not there, or say what cannot be.
SHELL = r"""#!/bin/sh
host=$1
shift
case $host in
dead) echo "ssh: connect to host dead port 22: No route to host" >&2; exit 255 ;;
noise) exec %(relay)s lines 'Welcome!' ;;
silent) exec %(relay)s silent ;;
hung*) exec sleep 1000 ;;
odd) exec %(relay)s lines '{"ranks": [{"rank": 2, "state": "flies"}]}' ;;
other) exec %(relay)s lines '{"job": "4711.1", "facts": [],
      "ranks": [{"rank": 1, "state": "moves"}]}' ;;
same) exec %(relay)s lines '{"job": "'$JOB'", "meets": "n2:1", "facts": [],
      "ranks": [{"rank": 0, "state": "moves"}]}' ;;
crowd) exec %(relay)s lines '{"job": "'$JOB'", "meets": "n1:1", "world_size": 2147483647,
      "facts": [], "ranks": [{"rank": 1, "state": "moves"}]}' ;;
liar) exec %(relay)s lines '{"job": "x", "ranks": [{"rank": 1, "state": "moves"}]}' ;;
steer) exec %(relay)s lines '{"ranks": [{"rank": 1, "pid": 1e99, "host": "far",
      "state": "waits", "operation": "x\nrank 0 is gone", "looks": -3,
      "stacks": [7, {"frames": [[1], "f"]}]}]}' ;;
*) exec sh -c "$*" ;;
esac
"""


def test_hosts(world):
    """They can lie about themselves only, and those that are not there are named, with why."""
    job = JOB + "-hosts"
    env = remote_shell(world, SHELL)
    target = start_rank(world, 0, job)
    done, found = hang(world, job, "--hosts", "far,steer", env=env)
    by = {r["rank"]: r for r in found["ranks"]}
    assert by[1]["host"] == "steer" and by[1]["pid"] is None and "\n" in by[1]["operation"]
    assert any(by[1]["operation"].replace("\n", "\\n") in line for line in found["says"]), found
    done, found = hang(world, job, "--hosts", "far,dead,noise,odd,liar", env=env)
    assert done.returncode == 1, done.stderr
    by = {r["rank"]: r for r in found["ranks"]}
    assert (by[0]["pid"], by[0]["host"], by[0]["looks"]) == (target.pid, "far", 3)
    assert by[0]["stacks"][0]["frames"]
    assert by[1]["state"] == "unseen"  # of another job than it was asked for
    assert by[2]["state"] == "unseen" and "no host that answered has it" in by[2]["why"]
    why = {h["host"]: h["why"] for h in found["not_reached"]}
    assert "No route to host" in why["dead"] and len(why) == 4
    assert "it says that they are of job 'x'" in why["liar"]
    assert all("not one of probing" in why[h] for h in ("noise", "odd")) and not found["no_rank"]
    text = world.probing("cluster", "hang", "--job", job, "--looks", "1", "--hosts", "far,dead",
                         env=env)
    assert "host dead could not be asked" in text.stderr
    ended = JOB + "-over"
    done, found = hang(world, ended, "--hosts", "far,dead", "--looks", "1", env=env)
    assert found["no_rank"] == ["far"] and [h["host"] for h in found["not_reached"]] == ["dead"]
    done, found = hang(world, None, "--looks", "1", env=env, targets="ssh:far/job:" + ended)
    assert found["no_rank"] == ["far"] and found["not_reached"] == [], done.stdout
    text = world.probing("cluster", "hang", "--job", ended, "--looks", "1", "--hosts", "far",
                         env=env)
    assert "host far has no rank of the job" in text.stderr, text.stderr
    assert "\nrank 0 is gone" not in text.stdout


def test_hosts_that_name_another_job(world):
    """Two steps of a SLURM job were taken as one, with the ranks of both; then one host that named
    another job had the question refused for all."""
    job = JOB + "-two"
    env = dict(remote_shell(world, SHELL), JOB=job)
    target = start_rank(world, 0, job, MASTER_ADDR="n1", MASTER_PORT="1")
    for verb in ("hang", "diff"):
        words = ("cluster", verb, "--job", job, "--json", "--hosts")
        done = world.probing(*words, "other,crowd,far", env=env)
        assert done.returncode == 1 and done.stdout, done.stderr
        found = json.loads(done.stdout)
        by = {r["rank"]: r for r in found["ranks"]}
        assert by[0]["host"] == "far" and by[0]["pid"] == target.pid
        assert found["job"] == job and found["meets"] == "n1:1"
        assert found["world_size"] == 3  # the least that is said
        assert [h["host"] for h in found["not_reached"]] == ["other"], found["not_reached"]
        assert "its ranks are left out: it says that they are of job '4711.1', the others that " \
            "theirs are of '%s'" % job in found["not_reached"][0]["why"]
        text = world.probing(*words[:-2], "--hosts", "other,far", env=env)
        assert "host other: its ranks are left out" in text.stderr, text.stderr
        done = world.probing("cluster", verb, "--json", "--hosts", "other,same", env=env)
        assert done.returncode == 1 and "several jobs, '4711.1' on other" in done.stderr
        done = world.probing(*words, "far,same", env=env)
        said = "on far meet at n1:1, those on same at n2:1"
        assert done.returncode == 1 and said in done.stderr, done.stderr


def test_a_host_has_three_times_the_time_of_a_rank_and_that_of_the_looks_for_all(world):
    done = world.probing("-t", "ssh:silent/job:x,ssh:dead/job:x", "cluster", "hang", "--timeout",
                         "500ms", "--interval", "100ms", env=remote_shell(world, SHELL))
    assert done.returncode == 1 and "host silent could not be asked: no answer within 1800ms" in \
        done.stderr, done.stderr
    done = world.probing("-t", "ssh:far/ssh:other/job:x", "cluster", "hang",
                         env=remote_shell(world, SHELL))
    assert done.returncode == 2 and "a relay speaks for its own machine" in done.stderr


def test_one_that_is_not_there_keeps_no_other_waiting(world):
    """Behind one that says nothing, and with more of those than may be asked at once."""
    job = JOB + "-beside"
    env = dict(remote_shell(world, SHELL), PROBING_RELAY_DEGREE="2")
    target = start_rank(world, 0, job)
    hosts = ",".join(["ssh:far/%d" % target.pid] + ["ssh:hung%d/job:%s" % (i, job)
                                                    for i in range(4)] + ["ssh:near/job:" + job])
    done = world.probing("-t", hosts, "cluster", "hang", "--json", "--looks", "1", "--timeout",
                         "5s", env=env)
    found = json.loads(done.stdout)
    assert sorted(r["host"] for r in found["ranks"] if r["pid"]) == ["far", "near"], done.stdout
    assert [h["host"] for h in found["not_reached"]] == ["hung%d" % i for i in range(4)]
    assert all("no answer within" in h["why"] for h in found["not_reached"])


def test_no_torch_and_no_job(world):
    job = JOB + "-plain"
    targets = [start_rank(world, i, job) for i in range(2)]
    targets[0].inject()
    done, found = hang(world, job)
    assert [r["state"] for r in found["ranks"]] == ["elsewhere", "elsewhere", "unseen"]
    assert found["awaited"] == [] and found["hangs"] is not True
    assert done.returncode == 1 and "another machine" in found["ranks"][2]["why"]
    named = ",".join(str(t.pid) for t in targets)
    done = world.probing("-t", named, "cluster", "hang", "--json", "--looks", "2")
    assert [(r["rank"], r["looks"]) for r in json.loads(done.stdout)["ranks"]] == [(0, 2), (1, 2)]
    done = world.probing("-t", str(targets[1].pid), "cluster", "hang", "--looks", "1")
    assert done.stdout.startswith("1 rank; 1 look in 0.0 s\n"), done.stdout
    for words in (("status",), ("hang", "--job", job), ("hang", "--hosts", "a")):
        done = world.probing("-t", named, "cluster", *words)
        assert done.returncode == 2 and "takes" in done.stderr, done.stderr
    done = world.probing("cluster", "hang", "--job", "no-such-job")
    assert done.returncode == 1 and "no rank of job 'no-such-job' runs" in done.stderr
    for words, said in ((("hang", "--looks", "0"), "--looks must be a number from 1"),
                        (("hang", "--interval", "0"), "more than 0"),
                        (("status", "--looks", "2"), "are for `cluster hang`")):
        done = world.probing("cluster", *words)
        assert done.returncode == 2 and said in done.stderr, (words, done.stderr)
