# SPDX-License-Identifier: Apache-2.0
"""`probing cluster`: who is found, entering and leaving a whole job, and other machines by a remote
shell that stays on this one."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from world import DEBIAN_PYTHON, IDLE, has_torch, remote_shell, threads_of, wait_for

PYTHONS = [DEBIAN_PYTHON] + [p for p in os.environ.get("PROBING_TEST_TORCH", "").split(":") if p]
JOB = "job-%d" % os.getpid()

# Each rank takes part in collectives until the file named by its argument is there.
GLOO = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
n, one, end = 0, torch.ones(1), torch.zeros(1)
while True:
    total = one.clone()
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size()
    end[0] = os.path.exists(sys.argv[1])
    dist.all_reduce(end)
    n += 1
    if n == 1:
        open(sys.argv[1] + ".rank%d" % dist.get_rank(), "w").close()
    if end.item() > 0:
        break
    time.sleep(0.01)
dist.barrier()
dist.destroy_process_group()
print("whole", flush=True)
"""

# A remote shell: HOST and the text for its shell, as ssh has them.  "dead" is not there.
SHELL = """#!/bin/sh
host=$1
shift
case $host in
dead) echo "ssh: connect to host dead port 22: No route to host" >&2; exit 255 ;;
slow) exec sleep 600 ;;
forger) exec %(relay)s lines '{"job": "x", "launcher": "y\\nprobing: 9", "state": "entered"}' ;;
liar) exec %(relay)s lines '{"host": "a", "job": "x", "rank": -7, "pid": -1, "state": "entered"}' ;;
none) exec %(relay)s lines '{"host": "none", "job": "x", "rank": 1}' ;;
half) exec %(relay)s half ;;
flood) exec %(relay)s flood ;;
noise) echo 'Welcome to noise!'; exec sh -c "$*" ;;
zeros) exec cat /dev/zero ;;
bare) exec sh -c 'PATH=; '"$*" ;;
*) exec sh -c "$*" ;;
esac
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cluster(world, *words, env=None):
    return world.probing("cluster", *words, env=env)


def ranks(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def our_threads(pid):
    return [t for t in threads_of(pid) if t.startswith("probing/")]


def start_rank(world, rank, source=IDLE, **env):
    full = dict({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                 "TORCHELASTIC_RUN_ID": JOB, "GROUP_RANK": "0"}, **env)
    target = world.python(source, env=full)
    target.wait_line("ready")
    return target


@pytest.mark.parametrize("python", PYTHONS)
def test_real_job(world, python):
    """Two torchrun agents with a rank each meet by c10d; the job ends well, with us come and gone.
    """
    if not has_torch(python):
        pytest.skip("no torch for %s" % python)
    script, end, port, job = world.tmp / "gloo.py", world.tmp / "end", free_port(), "real-" + JOB
    script.write_text(GLOO)
    agents = [world.start(python, "-m", "torch.distributed.run", "--nnodes", "2",
                          "--nproc_per_node", "1", "--rdzv_backend", "c10d", "--rdzv_id", job,
                          "--rdzv_endpoint=127.0.0.1:%d" % port, str(script), str(end))
              for _ in range(2)]

    def both():
        if any("'NoneType' object has no attribute 'get'" in a.output() for a in agents):
            pytest.skip("the torchrun of torch 1.13 does not start in Python 3.11")
        assert all(a.alive() for a in agents), "\n".join(a.output() for a in agents)
        return (world.tmp / "end.rank0").exists() and (world.tmp / "end.rank1").exists()
    wait_for(both, "two ranks", timeout=240)
    done = cluster(world, "status", "--job", job, "--json")
    assert done.returncode == 1  # none of them has been entered
    found = ranks(done)
    assert [(r["rank"], r["world_size"], r["node_rank"], r["local_rank"], r["launcher"],
             r["state"]) for r in found] == [
        (i, 2, i, 0, "torchrun", "not entered") for i in range(2)], done.stderr
    done = cluster(world, "nodes", "--job", job, "--json")
    assert done.returncode == 0, done.stderr
    assert [(n["node_rank"], n["ranks"], n["entered"], n["known_by"]) for n in ranks(done)] == [
        (i, 1, 0, "this machine, torchrun's store") for i in range(2)]
    done = cluster(world, "attach", "--job", job, "--json")
    assert done.returncode == 0, done.stderr
    entered = ranks(done)
    assert [r["state"] for r in entered] == ["entered"] * 2 and entered[0]["version"]
    assert [r["pid"] for r in entered] == [r["pid"] for r in found]
    again = cluster(world, "attach", "--job", job)
    assert again.returncode == 0 and "2 of 2 ranks are entered" in again.stderr
    done = cluster(world, "detach", "--job", job, "--json")
    assert done.returncode == 0 and [r["state"] for r in ranks(done)] == ["not entered"] * 2
    assert [our_threads(r["pid"]) for r in found] == [[], []]
    end.touch()
    for agent in agents:
        wait_for(lambda a=agent: not a.alive(), "the job's end", timeout=120)
        assert agent.process.returncode == 0 and "whole" in agent.output(), agent.output()


CHILDREN = """
import os, subprocess, sys, time
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready", flush=True)
time.sleep(600)
"""

LAUNCHER = """
import os, subprocess, sys, time
env = dict(os.environ, RANK="1", LOCAL_RANK="1", WORLD_SIZE="2", TORCHELASTIC_RUN_ID=sys.argv[1])
rank = subprocess.Popen([sys.executable, "-u", sys.argv[2]], env=env)
print("rank is", rank.pid, flush=True)
time.sleep(600)
"""


def test_helpers_and_launchers_are_no_ranks(world):
    """A rank's helper, the shell around a rank, and a torchrun that srun has started."""
    rank = start_rank(world, 0, CHILDREN)
    idle, launcher = world.tmp / "idle.py", world.tmp / "launcher.py"
    idle.write_text(IDLE)
    launcher.write_text(LAUNCHER)
    slurm = {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_ID": JOB,
             "SLURM_JOB_NODELIST": "vm-[007-008],gpu3"}
    agent = world.start("/bin/sh", "-c", '"$0" -u "$@"; true', sys.executable, str(launcher), JOB,
                        str(idle), env=slurm)
    inner = int(agent.wait_line(r"rank is (\d+)")[1])
    agent.wait_line("ready")
    done = cluster(world, "status", "--job", JOB, "--json")
    assert [(r["rank"], r["pid"]) for r in ranks(done)] == [(0, rank.pid), (1, inner)], done.stderr
    nodes = ranks(cluster(world, "nodes", "--job", JOB, "--json"))
    assert "this machine" in nodes[0]["known_by"]


def test_what_a_dead_rank_has_left_running_is_no_rank(world):
    """Its logger has its environment: it was rank 1, which is gone, and was entered as such."""
    rank = start_rank(world, 0, IDLE, LOCAL_RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    env = dict(world.env, RANK="1", LOCAL_RANK="1", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
               TORCHELASTIC_RUN_ID=JOB)
    left = subprocess.run(["/bin/sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"], env=env,
                          start_new_session=True, stdout=subprocess.PIPE, text=True).stdout
    try:
        done = cluster(world, "status", "--job", JOB, "--json")
        assert [(r["rank"], r["pid"]) for r in ranks(done)] == [(0, rank.pid)], done.stdout
        done = cluster(world, "hang", "--job", JOB, "--json", "--looks", "1")
        assert [r["state"] for r in json.loads(done.stdout)["ranks"]] == ["elsewhere", "gone"]
    finally:
        os.kill(int(left), signal.SIGKILL)


def test_an_agent_that_has_taken_a_free_port_is_alone(world):
    """torchrun --rdzv-endpoint 127.0.0.1:0: the 0 was found fault with, as if we were given it."""
    launcher, script, job = world.tmp / "launcher.py", world.tmp / "rank.py", "alone-" + JOB
    launcher.write_text(LAUNCHER)
    script.write_text(IDLE)
    agent = world.start(sys.executable, "-u", str(launcher), job, str(script), "--rdzv-backend",
                        "c10d", "--rdzv-endpoint", "127.0.0.1:0")
    agent.wait_line("ready")
    done = cluster(world, "nodes", "--job", job)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "this machine" in done.stdout


def test_scheduler_names_nodes(world):
    start_rank(world, 0, TORCHELASTIC_RUN_ID="", WORLD_SIZE="", SLURM_JOB_ID=JOB + "-slurm",
               SLURM_PROCID="0", SLURM_NTASKS="24", SLURM_NODEID="0", RANK="", GROUP_RANK="",
               SLURM_STEP_NODELIST="n[008-010],gpu3")
    done = cluster(world, "nodes", "--job", JOB + "-slurm", "--json")
    assert [(n["host"], n["known_by"]) for n in ranks(done)][1:] == [
        (name, "SLURM") for name in ("n008", "n009", "n010", "gpu3")], done.stderr
    done = cluster(world, "status", "--job", JOB + "-slurm")
    assert "(slurm), world size 24" in done.stdout
    assert "the other 23 have ended without data, or are on other machines" in done.stderr


def test_what_fails_is_said(world):
    """One is stopped, one is another user's or gone: the rest are entered all the same."""
    good, stopped = start_rank(world, 0), start_rank(world, 1)
    stopped.inject()
    os.kill(stopped.pid, 19)
    wait_for(lambda: open("/proc/%d/stat" % stopped.pid).read().rsplit(")")[1].split()[0] == "T",
             "a stop")
    done = cluster(world, "attach", "--job", JOB)
    os.kill(stopped.pid, 18)
    assert done.returncode == 1 and "1 of 2 ranks are entered" in done.stderr
    assert "kill -CONT" in done.stdout and "%8d  entered" % good.pid in done.stdout
    done = cluster(world, "attach", "--job", JOB, "--plugin", "no_such")
    assert done.returncode == 0  # they have been entered: nothing is to be done
    assert cluster(world, "detach", "--job", JOB).returncode == 0
    done = cluster(world, "attach", "--job", JOB, "--plugin", "no_such")
    assert "no_such" in done.stdout


def test_several_jobs(world):
    first, other = start_rank(world, 0), start_rank(world, 0, TORCHELASTIC_RUN_ID=JOB + "-b")
    for verb in ("attach", "detach", "nodes"):
        done = cluster(world, verb)
        assert done.returncode == 1 and "name one with --job" in done.stderr
    done = cluster(world, "status", "--json")
    pids = [r["pid"] for r in ranks(done)]
    assert first.pid in pids and other.pid in pids


def test_a_job_that_does_not_run_is_answered_with_those_that_do(world):
    """As `-t job:NAME` does: who has misread a name had to look for it elsewhere."""
    start_rank(world, 0)
    for verb in ("status", "attach", "detach", "nodes", "hang", "diff"):
        done = cluster(world, verb, "--job", JOB + "x")
        assert done.returncode == 1 and "there is " in done.stderr, (verb, done.stderr)
        assert JOB in done.stderr.replace(JOB + "x", "") or " more" in done.stderr, done.stderr


def test_wrong_words(world):
    for words, said in (((), "needs one of"), (("fly",), "not 'fly'"),
                        (("status", "attach"), "not 'attach'"),
                        (("status", "--plugin", "torch"), "is for `cluster attach`"),
                        (("attach", "--store", "a:1"), "--store is for"),
                        (("status", "--at-once", "0"), "from 1 to"),
                        (("status", "--timeout", "0"), "more than 0")):
        done = cluster(world, *words)
        assert done.returncode == 2 and said in done.stderr, (words, done.stderr)
    for hosts, said in (("a,,b", "is not a list of hosts"), ("n[3-1]", "is not a list of hosts"),
                        ("-oProxyCommand=x", "no name of a host"), ("a b", "no name of a host"),
                        ("a;reboot", "no name of a host"), ("n[1-99999]", "names more than"),
                        ("/dev/null", "names no host"), ("/no/such", "No such file")):
        done = cluster(world, "status", "--hosts", hosts)
        wrong = 1 if hosts[0] == "/" else 2  # what a file has is no word
        assert done.returncode == wrong and said in done.stderr, (hosts, done.stderr)


def test_a_file_of_too_many_hosts_is_refused_at_once(world):
    """Each line had a limit, the file had none, and each host was compared with all before it."""
    hosts = world.tmp / "hosts"
    for text, said in (("n[1-9999]\nm[1-9999]\n", "hosts:2: names more than 10000 hosts"),
                       ("n[1-9999]\n" * 200000, "hosts:17: names hosts more than 160000 times"),
                       ("good\nsch\u00f6n\n", "hosts:2: 'sch\u00f6n' is no name of a host"),
                       ("x" * 600, "hosts:1: '" + "x" * 60 + "...' is too long for the name")):
        hosts.write_text(text, encoding="utf-8")
        done = cluster(world, "status", "--hosts", str(hosts), "--rsh", "/bin/false")
        assert done.returncode == 1 and said in done.stderr, done.stderr
    hosts.write_text("".join("n%d slots=1\n" % (i // 8) for i in range(800)))  # one a rank
    done = cluster(world, "status", "--hosts", str(hosts), "--rsh", "/bin/false", "--json")
    assert [r["host"] for r in ranks(done)] == sorted("n%d" % i for i in range(100)), done.stderr


# ---- other machines ----

def test_a_file_of_a_hosts_name_is_not_believed(world, monkeypatch):
    """A user who may write into the folder where it is called does not choose where it goes."""
    env = remote_shell(world, SHELL)
    (world.tmp / "far").write_text("elsewhere1\nelsewhere2\n")
    monkeypatch.chdir(world.tmp)
    target = start_rank(world, 0)
    target.inject()
    done = cluster(world, "status", "--job", JOB, "--json", "--hosts", "far", env=env)
    assert [(r["host"], r["pid"]) for r in ranks(done)] == [("far", target.pid)], done.stderr
    done = cluster(world, "status", "--job", JOB, "--json", "--hosts", "./far", env=env)
    assert [r["host"] for r in ranks(done)] == ["elsewhere1", "elsewhere2"], done.stderr


def test_hosts_by_a_remote_shell(world):
    """Each answers for itself: those that are not there, late, half or lie are named, with why."""
    env = remote_shell(world, SHELL)
    target = start_rank(world, 0)
    hosts = world.tmp / "hosts"
    hosts.write_text("# the job's\nfar[1-2] slots=8\n\nfar2:8  # again\n")
    done = cluster(world, "attach", "--job", JOB, "--hosts", str(hosts), "--json", env=env)
    assert done.returncode == 0, done.stderr
    assert [(r["host"], r["pid"], r["state"]) for r in ranks(done)] == [
        ("far1", target.pid, "entered"), ("far2", target.pid, "entered")]
    done = cluster(world, "status", "--job", JOB, "--json", "--timeout", "2s", "--hosts",
                   "far1,dead,slow,liar,none,noise,half,flood,zeros,bare", env=env)
    assert done.returncode == 1
    by = {r["host"]: r for r in ranks(done)}
    assert by["far1"]["state"] == by["noise"]["state"] == "entered"
    assert 0 <= by["far1"]["clock_error_ns"] < 10**10
    assert abs(by["far1"]["clock_offset_ns"]) <= by["far1"]["clock_error_ns"]  # one clock
    # It lies about itself only: the host is the one that was asked, numbers that are none are null.
    assert by["liar"]["rank"] is None and by["liar"]["pid"] is None and "a" not in by
    for host, said in (("dead", "No route to host"), ("slow", "no answer within 6s"),
                       ("none", "not one of probing"), ("half", "relay has ended"),
                       ("flood", "more than"), ("zeros", "no relay")):
        assert by[host]["state"] == "not reached" and said in by[host]["why"], by[host]
    done = cluster(world, "status", "--hosts", "forger", env=env)
    assert "(y\\nprobing: 9)" in done.stdout, done.stdout  # and no line of its own
    for job, state in ((JOB, "entered"), (JOB + "-over", "no rank")):
        done = cluster(world, "status", "--job", job, "--json",
                       "--hosts", "far1", env=env)
        assert [r["state"] for r in ranks(done)] == [state], done.stdout
        assert (done.returncode == 0) is (job == JOB), done.stderr
    done = cluster(world, "nodes", "--job", JOB, "--json", "--hosts", "far1,dead", env=env)
    by = {n["host"]: n for n in ranks(done)}
    assert (by["far1"]["ranks"], by["far1"]["entered"]) == (1, 1)
    assert by["dead"]["ranks"] is None and "No route" in by["dead"]["why"]
    done = cluster(world, "detach", "--job", JOB, "--hosts", "far1", env=env)
    assert done.returncode == 0 and our_threads(target.pid) == [], done.stderr


def test_words_stay_words(world):
    """A job's name is no shell's, here nor there; a remote shell may have words of its own."""
    mark = world.tmp / "mark"
    job = "a'b;$(touch %s) \"" % mark
    env = remote_shell(world, SHELL)
    target = start_rank(world, 0, TORCHELASTIC_RUN_ID=job)
    env["PROBING_RSH"] = "env  WORD=1 " + env["PROBING_RSH"]
    done = cluster(world, "status", "--job", job, "--hosts", "far1", "--json", env=env)
    assert [r["pid"] for r in ranks(done)] == [target.pid], done.stderr
    assert ranks(done)[0]["job"] == job and not mark.exists()
    done = cluster(world, "status", "--rsh", str(world.tmp / "none"), "--hosts", "far1", env=env)
    assert done.returncode == 1 and "cannot run" in done.stdout


def test_this_machine_needs_no_shell(world):
    target = start_rank(world, 0)
    done = cluster(world, "status", "--job", JOB, "--hosts", "localhost,%s" % socket.gethostname(),
                   "--rsh", "/bin/false", "--json")
    assert [r["pid"] for r in ranks(done)] == [target.pid], done.stderr


def test_ranks_that_have_ended_are_told_with_when_and_of_what(world):
    """Rank 1 crashes, rank 2 is killed; an earlier start of the same job is not this one."""
    def start(rank, port):
        return start_rank(world, rank, WORLD_SIZE="3", TORCHELASTIC_RUN_ID="dead-" + JOB,
                          MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    old, new = free_port(), free_port()
    before = start(1, old)
    all_ranks = [start(rank, new) for rank in range(3)]
    for target in [before] + all_ranks:
        target.inject("--crash")
    began = time.time_ns()
    for target, number in ((before, signal.SIGKILL), (all_ranks[1], signal.SIGSEGV),
                           (all_ranks[2], signal.SIGKILL)):
        os.kill(target.pid, number)
        target.process.wait()
    done = cluster(world, "status", "--job", "dead-" + JOB, "--json")
    assert done.returncode == 1, done.stderr
    by = {r["rank"]: r for r in ranks(done)}
    assert [(r["pid"], r["state"]) for _, r in sorted(by.items())] == [
        (all_ranks[0].pid, "entered"), (all_ranks[1].pid, "ended"), (all_ranks[2].pid, "ended")]
    assert by[1]["why"].startswith("crashed: SIGSEGV, ") and by[0]["last_ns"] is None
    assert began <= by[1]["last_ns"] <= time.time_ns() >= by[2]["last_ns"]
    assert by[2]["why"].startswith("left by itself, or was killed; last wrote data "), by[2]
    far = cluster(world, "status", "--job", "dead-" + JOB, "--hosts", "far1", "--json",
                  env=remote_shell(world, SHELL))
    assert [(r["rank"], r["state"], r["why"], r["last_ns"]) for r in ranks(far)] == [
        (r["rank"], r["state"], r["why"], r["last_ns"]) for _, r in sorted(by.items())], far.stderr
    done = cluster(world, "status", "--job", "dead-" + JOB)
    assert "1 of 3 ranks are entered, 2 have ended" in done.stderr, done.stderr
    assert "ended        crashed: SIGSEGV, 2" in done.stdout, done.stdout
    assert "other machines" not in done.stderr
    all_ranks[0].kill()
    done = cluster(world, "status", "--job", "dead-" + JOB, "--json")
    assert done.returncode == 1 and [r["state"] for r in ranks(done)] == ["ended"] * 3
    done = cluster(world, "status", "--job", "dead")  # whose name is not known can be looked up
    left = re.search("; data are left of (.*)", done.stderr)
    assert left and "job:dead-%s (3 ranks)" % JOB in left[1], done.stderr
