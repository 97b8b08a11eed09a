# SPDX-License-Identifier: Apache-2.0
"""A relay in another network, by namespaces: far away, with losses, and cut off in the middle."""
import os
import re
import shutil
import subprocess

import pytest
from ranks import four  # noqa: F401
from world import CLI, wait_for


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("no network of our own here: %s: %s" % (" ".join(words), done.stderr.strip()))


@pytest.fixture
def distance():
    """Two networks with a cable between: 10.89.0.1 here and .2 there."""
    if os.environ.get("PROBING_TEST_FULL") != "1":
        pytest.skip("takes networks of its own: PROBING_TEST_FULL=1")
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("needs root, ip and tc (Debian: iproute2)")
    here, there = "rl%d-a" % os.getpid(), "rl%d-b" % os.getpid()
    try:
        run("ip", "netns", "add", here)
        run("ip", "netns", "add", there)
        run("ip", "link", "add", "veth0", "netns", here, "type", "veth", "peer", "name", "veth0",
            "netns", there)
        for name, address in ((here, "10.89.0.1/24"), (there, "10.89.0.2/24")):
            run("ip", "-n", name, "address", "add", address, "dev", "veth0")
            run("ip", "-n", name, "link", "set", "veth0", "up")
        yield here, there
    finally:
        for name in (here, there):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def test_far_away_and_cut_off(four, distance, tmp_path):  # noqa: F811
    here, there = distance
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123\n")
    token.chmod(0o600)
    env = dict(four.env, PROBING_TOKEN_FILE=str(token))
    begin = lambda where, *words: subprocess.Popen(  # noqa: E731
        ["ip", "netns", "exec", where, str(CLI), *words], env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for name in distance:  # where the kernel has sch_netem; a cut cable needs none
        subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "veth0", "root", "netem", "delay",
                        "40ms", "loss", "2%"], capture_output=True)
    relay = begin(there, "relay", "--listen", "10.89.0.2:9923")
    try:
        assert re.search("listens at 10.89.0.2:9923", relay.stderr.readline())
        who = "relay:10.89.0.2:9923/job:" + four.job
        asker = begin(here, "-t", who, "query", "select repeat('x', 1000) as x from range(300)",
                      "--format", "csv")
        out, err = asker.communicate(timeout=120)
        assert asker.returncode == 0 and out.count("x" * 1000) == 4 * 300, err
        asker = begin(here, "-t", who, "--timeout", "5s", "query",
                      "select count(*) as n from range(1000000000000)")
        connected = ["ip", "netns", "exec", here, "cat", "/proc/net/tcp"]
        wait_for(lambda: ":26C3 01" in subprocess.check_output(connected, text=True),
                 "a connection")
        run("ip", "-n", there, "link", "set", "veth0", "down")
        out, err = asker.communicate(timeout=120)
        assert asker.returncode == 1 and "5s" in err, err  # within its limit, and named
    finally:
        relay.terminate()
        relay.communicate()
