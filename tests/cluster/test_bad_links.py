# SPDX-License-Identifier: Apache-2.0
"""`probing cluster stragglers` on jobs of gloo whose ranks are on machines of their own, one of
them, or what lies between two of them, behind a bad cable (tests/network.py)."""
import json
import os
import subprocess
import sys

import pytest
from network import Job, Network
from world import BUILD, CLI, DEBIAN_PYTHON, LIMIT, ROOT, World, has_torch, wait_for

RANKS, BAD = 4, 2
TARGET = ROOT / "tests" / "torch" / "targets" / "straggler.py"
FAULTS = {"none": [], "far": [{"here": BAD, "delay_ms": 20, "jitter_ms": 3}],
          "near": [{"here": BAD, "delay_ms": 2}],
          "lossy": [{"here": BAD, "loss": 0.03}, {"there": BAD, "loss": 0.03}],
          "narrow": [{"here": BAD, "rate_kbit": 1000}, {"there": BAD, "rate_kbit": 1000}],
          "one link": [{"here": 1, "there": BAD, "delay_ms": 20},
                       {"here": BAD, "there": 1, "delay_ms": 1}],
          "two sites": [{"here": a, "there": b, "delay_ms": 15} for a in (0, 1) for b in (2, 3)]}


def put(network, fault):
    """`here` and `there` are ranks: those of the machines of these numbers and one."""
    for way in FAULTS[fault]:
        ends = {end: network[way[end] + 1] for end in ("here", "there") if end in way}
        network.set(**{**way, **ends})


def start(job, python):
    """One rank a machine; all of them step."""
    ranks = [job.start(rank + 1, python, "-W", "ignore", TARGET, job.tmp, "none", "0",
                       RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(RANKS),
                       MASTER_ADDR="node1", MASTER_PORT="29500", GLOO_SOCKET_IFNAME="cable",
                       TORCHELASTIC_RUN_ID=job.name, OMP_NUM_THREADS="1",
                       PROBING_SYSTEM_INTERVAL="100ms") for rank in range(RANKS)]
    for rank, log in ranks:
        wait_for(lambda: "ready" in log.read_text() or rank.poll() is not None, "rank to step")
        assert rank.poll() is None, log.read_text()


@pytest.mark.skipif(os.environ.get("PROBING_TEST_FULL") != "1",
                    reason="half a minute each: set PROBING_TEST_FULL=1")
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_who_is_behind_a_bad_cable(tmp_path, fault):
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s" % DEBIAN_PYTHON)
    job = Job(tmp_path, RANKS)
    try:
        if fault == "near":  # that is seen by the shortest round trip of five minutes only
            put(job.network, fault)
        start(job, DEBIAN_PYTHON)
        put(job.network, fault)
        where = ["--job", job.name, "--hosts", ",".join(m.name for m in job.network.machines)]
        done = job.probing(1, "cluster", "attach", *where, "--plugin", "torch", "--plugin",
                           "system")
        assert done.returncode == 0, done.stderr

        def ask():
            done = job.probing(1, "cluster", "stragglers", "--json", *where)
            found = json.loads(done.stdout)
            ready = found["ranks_judged"] == RANKS and found["outcome"] != "too few steps"
            return found if ready else {}
        if fault in ("none", "two sites"):
            wait_for(ask, "steps")
            for _ in range(3):
                assert ask()["outcome"] == "silent"
        else:
            found = wait_for(lambda: ask().get("stragglers"), "a rank to be named")[0]
            print(json.dumps(found))
            ends = [found["rank"], found["link"]["peer"]["rank"]]
            assert found["kind"] == "link" and (ends == [1, 2] if fault == "one link" else
                                                ends[0] == BAD), found
            assert found["link"]["only_this_one"] == (fault == "one link"), found
            assert found["link"]["lossy" if fault == "lossy" else "slow"] == 1, found
        (tmp_path / "stop").touch()
    finally:
        job.end()


PAIR = """
import socket, sys
number, address = int(sys.argv[1]), ("10.89.0.1", 7000)
server = socket.create_server(address) if number == 1 else None
print("listens", flush=True)
s = server.accept()[0] if server else socket.create_connection(address)
while True:
    if not server:
        s.sendall(b"x" * 20000)
    left = 20000
    while left:
        left -= len(s.recv(left))
    if server:
        s.sendall(b"x" * 20000)
"""


def test_round_trips_of_a_far_machine(tmp_path):
    """The kernel at each end has measured what the cable does."""
    network, started = Network(2, tmp_path / "hosts", delay_ms=10), []
    common = World(tmp_path).env
    try:
        for machine in network.machines:
            (tmp_path / machine.name).mkdir(mode=0o700)
            env = dict(common, PROBING_DATA_DIR=str(tmp_path / machine.name))
            started.append(subprocess.Popen(
                machine.words("env", "LD_PRELOAD=%s" % (BUILD / "libprobing.so"), sys.executable,
                              "-c", PAIR, machine.number), stdout=subprocess.PIPE,
                env=dict(env, PROBING_SYSTEM_INTERVAL="100ms")))
            assert started[-1].stdout.readline() == b"listens\n"
            machine.env = env
        for machine, other in zip(network.machines, reversed(network.machines)):
            def rows(sql):
                done = subprocess.run(
                    machine.words(CLI, "-t", "all", "query", "-f", "json", sql), env=machine.env,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
                return done.returncode == 0 and json.loads(done.stdout)["rows"]
            now = "select local_address, peer_address, min_rtt_ns, rtt_ns from net.connections " \
                "where state = 'estab'"
            here, there, shortest, smoothed = wait_for(lambda: rows(now), "a connection")[0][-4:]
            assert [here, there] == [machine.address, other.address]
            assert 20e6 <= shortest <= smoothed, (shortest, smoothed)
            found = wait_for(lambda: rows(
                "select local_address, peer_address, min_rtt_ns, rtt_ns, delta_rx_bytes from "
                "net.peers where delta_tx_bytes > 0"), "bytes between two looks")[0][-5:]
            assert found[:2] == [here, there] and 20e6 <= found[2] <= found[3], found
    finally:
        network.end()
        for process in started:
            process.wait()
            process.stdout.close()
