# SPDX-License-Identifier: Apache-2.0
"""probing doctor: what it says is so, and what is in the way has a line that mends it."""
import json
import os
import re
import subprocess
import sys

import pytest

from world import CLI, FILTERED, IDLE, LIMIT

PTRACE, READV, PERF = {"x86_64": (101, 310, 298), "aarch64": (117, 270, 241)}[os.uname().machine]


def lines(text):
    return dict(re.findall(r"^(\w+) +(.*)$", text, flags=re.M))


def test_what_it_says_is_so(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    done = world.probing("doctor")
    said = lines(done.stdout)
    assert said["probing"] in world.probing("--version").stdout
    assert said["data"].startswith(str(world.data)) and "GB left" in said["data"]
    assert os.uname().release in said["kernel"]
    assert re.search(r"\d+ process(es)? of python", done.stdout)
    entered = target.probing("inject").returncode == 0
    assert said["enter"].startswith("yes") == entered == (done.returncode == 0), done.stdout
    assert ("Nothing is in the way." in done.stdout) == entered
    assert world.probing("dr").stdout.splitlines()[0] == done.stdout.splitlines()[0]
    assert world.probing("doctor", "x").returncode == 2
    told = json.loads(world.probing("doctor", "--json").stdout)
    works = {check["check"]: check["works"] for check in told["checks"]}
    assert (told["problems"] == 0) == entered == works["enter"] and works["data"], told


@pytest.mark.parametrize("call, what, says", [
    (PTRACE, "enter", "NO: ptrace is refused"), (READV, "look", "NO: memory of a child"),
    (PERF, "perf", "no perf events")])
def test_what_is_refused(world, call, what, says):
    done = subprocess.run([sys.executable, "-c", FILTERED % call, str(CLI), "doctor"],
                          capture_output=True, text=True, env=world.env, timeout=LIMIT)
    if says.startswith("NO"):
        told = subprocess.run([sys.executable, "-c", FILTERED % call, str(CLI), "doctor", "--json"],
                              capture_output=True, text=True, env=world.env, timeout=LIMIT)
        one = next(c for c in json.loads(told.stdout)["checks"] if c["check"] == what)
        assert not one["works"] and one["to_mend"] in done.stdout and told.returncode == 1
    assert lines(done.stdout)[what].startswith(says), done.stdout + done.stderr
    assert done.returncode == (0 if what == "perf" else 1)
    assert ("to mend it: " in done.stdout) == (what != "perf")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")
def test_a_directory_that_cannot_be_written(world):
    done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                           str(CLI), "doctor"], capture_output=True, text=True, timeout=LIMIT,
                          env=dict(world.env, PROBING_DATA_DIR="/etc/probing"))
    assert done.returncode == 1 and "NO: /etc cannot be written" in done.stdout, done.stdout
    assert "PROBING_DATA_DIR=/path" in done.stdout
