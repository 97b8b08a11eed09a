# SPDX-License-Identifier: Apache-2.0
"""A process in state D, whose memory is held by a driver that hangs, beside those that are asked:
whoever goes through all processes gives it up in time and says so.  It keeps every program that
reads words of processes waiting, `ps` too: with PROBING_TEST_FULL, where nothing runs beside."""
import os
import signal
import subprocess
from pathlib import Path

import pytest
from ranks import start_ranks
from world import CLI, DEBIAN_PYTHON, has_torch, wait_for

HUNG = Path(__file__).with_name("hung_target.py")
pytestmark = [
    pytest.mark.skipif("PROBING_TEST_FULL" not in os.environ, reason="others' `ps` would wait"),
    pytest.mark.skipif(os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK),
                       reason="needs root and /dev/fuse")]


@pytest.fixture
def hung(world):
    """(two ranks, the pid of what would be the third)"""
    job = "hung-%d" % os.getpid()
    ranks = start_ranks(world, 2, TORCHELASTIC_RUN_ID=job)
    (world.tmp / "over").touch()
    target = world.start("unshare", "--mount", DEBIAN_PYTHON, str(HUNG), str(world.tmp / "over"),
                         "TORCHELASTIC_RUN_ID=" + job, "RANK=2", "WORLD_SIZE=3")
    words = target.wait_line("ready \\d+|refused").group().split()
    if words == ["refused"]:
        pytest.skip("FUSE may not be mounted here")
    world.job = job
    wait_for(lambda: open("/proc/%s/stat" % words[1]).read().split()[2] == "D", "state D")
    return ranks, words[1]


def test_all_go_on_without_it(world, hung):
    ranks, pid = hung
    for words in (["-t", "job:" + world.job, "query", "select 1"], ["list"],
                  ["cluster", "status", "--job", world.job],
                  ["cluster", "nodes", "--job", world.job],
                  ["cluster", "diff", "--job", world.job], ["-t", "all", "query", "select 1"]):
        done = world.probing(*words, timeout=60)
        assert done.returncode == 0, (words, done)
        assert done.stderr.count("process %s could not be inspected" % pid) == 1, (words, done)
        if words == ["list"]:
            assert all(str(rank.pid) in done.stdout for rank in ranks), (words, done)
    done = world.probing("-t", pid, "query", "select 1", timeout=60)
    assert done.returncode == 1 and "could not be inspected" in done.stderr, done
    done = world.probing("-t", pid + " 1", "query", "select 1", timeout=60)
    assert done.returncode == 2 and "2 targets" in done.stderr, done


TRAINING = """
import time, torch
model = torch.nn.Linear(2, 2)
print("ready", flush=True)
while True:
    model(torch.ones(2))
    time.sleep(0.01)
"""


def test_the_report_of_torch_goes_on_without_it(world, hung):
    """It looks at every process of the machine for the ranks that have not come."""
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s" % DEBIAN_PYTHON)
    env = dict(RANK="0", WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    target = world.python(TRAINING, python=DEBIAN_PYTHON, env=env)
    target.wait_line("^ready")
    target.inject("--plugin", "torch")
    wait_for(lambda: target.rows("select 1 from python.torch_trace limit 1"), "calls")
    done = world.probing("-t", str(target.pid), "torch", timeout=60)
    assert done.returncode == 0, done
    assert done.stderr.count("process %s could not be inspected" % hung[1]) == 1, done


def test_ctrl_c_meanwhile(world, hung):
    asking = subprocess.Popen([str(CLI), "-t", "job:" + world.job, "query", "select 1"],
                              env=world.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: len(os.listdir("/proc/%d/task" % asking.pid)) > 1, "a look")
    asking.send_signal(signal.SIGINT)
    asking.communicate(timeout=60)
    assert asking.returncode == 130
