# SPDX-License-Identifier: Apache-2.0
"""Machines far from each other: ssh and relays over a network that delays, loses, is slow, has one
way longer than the other, and is cut in the middle of it all (tests/network.py)."""
import json
import re
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest
from network import Job
from ranks import rows
from test_clocks import OTHER, S
from world import IDLE, ROOT, wait_for

ALL = "ssh:node[1-4]/job:"
COUNT = ("select _host, _rank, count(*) > 9 as some from global.process.envs group by 1, 2 "
         "order by 2")
EACH = [{"_host": "node%d" % (i + 1), "_rank": i, "some": True} for i in range(4)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A job of four machines with a rank each, and a token for relays that listen."""
    job = Job(tmp_path_factory.mktemp("net"), 4)
    try:
        script, token = job.tmp / "rank.py", job.tmp / "token"
        script.write_text("import os\nme = int(os.environ['RANK'])\n" + IDLE)
        token.write_text("0123456789abcdef0123\n")
        token.chmod(0o600)
        job.env["PROBING_TOKEN_FILE"] = str(token)
        cli = job.env["PROBING_REMOTE"]
        for rank in range(4):
            job.start(rank + 1, cli, "launch", "--", sys.executable, "-u", script, RANK=str(rank),
                      LOCAL_RANK="0", WORLD_SIZE="4", TORCHELASTIC_RUN_ID=job.name,
                      MASTER_ADDR="node1", MASTER_PORT="29500")
            job.start(rank + 1, cli, "relay", "--listen", "0.0.0.0:9923")
        for rank in range(4):
            wait_for(lambda n=rank + 1: job.probing(
                n, "-t", "job:" + job.name, "eval", "me").returncode == 0, "a core")
            job.wait_port(rank + 1, 9923)
        yield job
    finally:
        job.end()


@pytest.fixture
def job(made):
    """All cables as they were."""
    made.network.cut()
    made.network.set()
    yield made
    made.network.cut()
    made.network.set()


def ask(job, where, sql, *words, **more):
    done = job.probing(1, "-t", where, *words, "query", "--format", "json", sql, **more)
    return done, rows(done) if done.stdout else None


def relays(job, number):
    """How many relays run there that were started by ssh."""
    words = job.network[number].words("ps", "-eo", "args")
    return subprocess.check_output(words, text=True).count("/probing relay --stdio")


@pytest.mark.parametrize("kind", ["ssh:node[1-4]/job:%s", "relay:node1:9923/job:%s,"
                                  "relay:node2:9923/job:%s,relay:node3:9923/job:%s,"
                                  "relay:node4:9923/job:%s"])
def test_far_away_with_losses(job, kind):
    """100 ms there and back, each twenty-fifth packet lost: slower, and no other answer."""
    job.network.set(delay_ms=50, jitter_ms=5, loss=0.04)
    who = kind.replace("%s", job.name)
    done, found = ask(job, who, COUNT)
    assert done.returncode == 0 and [dict(r, _host="node%d" % (r["_rank"] + 1)) for r in found] \
        == EACH, done.stderr
    done, found = ask(job, who, "select repeat('x', 1000) as x from range(100)")
    assert done.returncode == 0 and len(found) == 400, done.stderr
    assert all(row["x"] == "x" * 1000 for row in found)


def test_one_is_cut_off(job):
    """It is named within the time limit, the answers of the others are whole, and when it is back
    it answers as before."""
    job.network.cut(job.network[3])
    rsh = job.env["PROBING_RSH"].replace("ConnectTimeout=10", "ConnectTimeout=3")
    done, found = ask(job, ALL + job.name, COUNT, PROBING_RSH=rsh)
    assert done.returncode == 1 and found == [r for r in EACH if r["_rank"] != 2], done.stderr
    assert "3 of 4 answered" in done.stderr and "node3 port 22: Connection timed" in done.stderr
    # A relay has 30 s to say that it is one.  A statement over all ranks waited for that, too.
    who = "job:%s,relay:node3:9923/job:%s,relay:node2:9923/job:%s" % ((job.name,) * 3)
    done, found = ask(job, who, COUNT, "--timeout", "5s", timeout=25)
    assert done.returncode == 1 and [r["_rank"] for r in found] == [0, 1], done.stderr
    assert "relay:node3:9923" in done.stderr and "no answer within 5s" in done.stderr
    job.network.cut()
    done, found = ask(job, ALL + job.name, COUNT)
    assert done.returncode == 0 and found == EACH, done.stderr


def test_cut_off_in_the_middle(job):
    """The others' output goes on, Ctrl-C ends it at once, and no relay is left on them."""
    watch = job.begin(1, "-t", ALL + job.name, "watch", "select 1 as one", "--interval", "50ms",
                      "--format", "jsonl")
    got = set()
    while len(got) < 4:
        got.add(json.loads(watch.stdout.readline())["rank"])
    job.network.cut(job.network[3])
    lines = [json.loads(watch.stdout.readline())["rank"] for _ in range(200)]
    assert {0, 1, 3} == set(lines[-60:])
    job.kill(watch, signal.SIGINT)
    watch.communicate(timeout=60)
    assert watch.returncode == 130
    wait_for(lambda: not any(relays(job, n) for n in (1, 2, 4)), "the relays' end")
    slow = job.begin(1, "-t", ALL + job.name, "--timeout", "4s", "eval",
                     "import time; time.sleep(3) or me")
    out, err = slow.communicate(timeout=60)
    assert slow.returncode == 1 and "3 of 4 answered" in err and "node3" in err, err


def test_a_slow_cable(job):
    """Rows of 400 kB over 1 Mbit/s come whole; what the limit does not allow is refused by name."""
    job.network.set(job.network[2], job.network[1], delay_ms=5, rate_kbit=1000)
    who = "relay:node2:9923/job:" + job.name
    sql = "select lpad(i::text, 32, '0') as x from range(%d) as t(i)"
    done, found = ask(job, who, sql % 10000)
    assert done.returncode == 0 and len({row["x"] for row in found}) == 10000, done.stderr
    done = job.probing(1, "-t", who, "--timeout", "2s", "query", sql % 200000)
    assert done.returncode == 1 and "not whole within 2s" in done.stderr, done.stderr
    done = job.probing(1, "-t", who, "eval", "me")
    assert done.stdout.strip().endswith("1"), done.stderr


def test_a_name_with_several_addresses(job):
    """The first one refuses, the second says nothing, and the relay listens at the third."""
    with open(job.tmp / "hosts", "a") as hosts:
        hosts.write("::1 many\n10.89.0.3 many\n10.89.0.2 many\n")
    job.network.cut(job.network[3])
    done = job.probing(1, "-t", "relay:many:9923/job:" + job.name, "eval", "me")
    assert done.returncode == 0 and done.stdout.strip().endswith("1"), done.stderr
    done = job.probing(1, "-t", "relay:many:9924/job:" + job.name, "eval", "me")
    assert done.returncode == 1 and "no relay listens there" in done.stderr


def test_one_way_is_longer(job):
    """The middle of a round trip is not when the other clock was read: the truth is within the
    error that is said, of clocks that are apart, too."""
    job.network.set(job.network[1], job.network[2], delay_ms=70)
    job.network.set(job.network[3], job.network[1], delay_ms=70)
    more = "export LD_PRELOAD=%s OTHER_CLOCK_NS=%d\n" % (OTHER, 5 * S)
    (job.tmp / "more-node3").write_text(more)
    try:
        done = job.probing(1, "cluster", "status", "--job", job.name, "--hosts", "node[2-3]",
                           "--json")
    finally:
        (job.tmp / "more-node3").unlink()
    said = {r["host"]: (r["clock_offset_ns"], r["clock_error_ns"]) for r in map(
        json.loads, done.stdout.splitlines())}
    for host, truth in (("node2", 0), ("node3", 5 * S)):
        offset, error = said[host]
        assert S // 50 < abs(offset - truth) <= error < S, (host, said)


@pytest.mark.parametrize("degree", ["1", "32"])
def test_one_way_is_longer_in_a_tree(job, degree):
    """100 ms there and 1 ms back, by relays one behind the other: each row says how far its clock
    is from the asker's, and the truth (all have one clock) is within the error that it says."""
    job.network.set(delay_ms=1)
    for n in (2, 3, 4):
        job.network.set(job.network[1], job.network[n], delay_ms=100)
    sql = ("select _rank, _clock_offset_ns as o, _clock_error_ns as e from global.process.envs "
           "group by 1, 2, 3 order by 1")
    done, found = ask(job, "ssh:node[2-4]/job:" + job.name, sql, PROBING_RELAY_DEGREE=degree)
    assert done.returncode == 0 and [r["_rank"] for r in found] == [1, 2, 3], done.stderr
    for row in found:
        # (50 ms are what the middle of a round trip is wrong by.)
        assert abs(row["o"]) <= row["e"] and S // 20 < row["e"] < S, found


@pytest.mark.parametrize("loss", [0.02, 0.1])
def test_200_ms_and_losses(job, loss):
    """The answer is the same, or says who is missing; nothing hangs."""
    job.network.set(delay_ms=100, jitter_ms=20, loss=loss)
    done, found = ask(job, ALL + job.name, COUNT, timeout=200)
    missing = [r for r in EACH if r not in found]
    assert found == [r for r in EACH if r not in missing], found
    assert done.returncode == (1 if missing else 0), done.stderr
    assert all(row["_host"] in done.stderr for row in missing), done.stderr


def test_one_way_is_cut(job):
    """Nothing comes from it, while it hears all of ours: named in time, and back after it."""
    job.network.set(job.network[3], job.network[1], loss=1)
    who = "job:%s,relay:node3:9923/job:%s,relay:node2:9923/job:%s" % ((job.name,) * 3)
    done, found = ask(job, who, COUNT, "--timeout", "5s", timeout=60)
    assert done.returncode == 1 and [r["_rank"] for r in found] == [0, 1], done.stderr
    assert "relay:node3:9923" in done.stderr, done.stderr
    job.network.set()
    done, found = ask(job, who, COUNT, timeout=60)
    assert done.returncode == 0 and [r["_rank"] for r in found] == [0, 1, 2], done.stderr


def blocks(name, heading):
    """Pieces that are indented below a heading of a page: one text for each."""
    page = (ROOT / "docs" / name).read_text().split(heading + "\n", 1)[1].split("\n## ")[0]
    return [textwrap.dedent(b) for b in re.findall(r"(?:^ {4}.*\n)+", page, flags=re.M)]


def test_mutual_tls_as_the_page_says(job):
    """docs/cluster.md, word for word: who has a certificate comes through, and nobody else."""
    if not shutil.which("stunnel") or not shutil.which("openssl"):
        pytest.skip("no stunnel and openssl here (Debian: stunnel4, openssl)")
    here = job.tmp / "tls"
    here.mkdir()
    openssl, relay, asker = blocks("cluster.md", "### Mutual TLS before a relay")
    assert "accept = 127.0.0.1:9925\nconnect = node9:" in asker and "verifyChain" in relay
    asker = asker.replace("node9", "node2")
    stranger = asker.replace("9925", "9926").replace("asker.", "stranger.")
    for name, text in (("relay", relay), ("asker", asker), ("stranger", stranger)):
        (here / (name + ".conf")).write_text(text)
    # A stranger has a certificate of an authority of its own.
    other = openssl.splitlines()[0].replace("ca.key", "stranger.key").replace("ca.pem",
                                                                              "stranger.pem")
    subprocess.run(["sh", "-ec", openssl + other], cwd=here, check=True, capture_output=True)
    for number, name, port in ((2, "relay", 9924), (1, "asker", 9925), (1, "stranger", 9926)):
        job.start(number, "sh", "-c", "cd %s && exec stunnel %s.conf" % (here, name))
        job.wait_port(number, port)
    job.network.set(delay_ms=20, loss=0.02)
    done, found = ask(job, "relay:127.0.0.1:9925/job:" + job.name, "select repeat('x', 1000) as x "
                      "from range(100)")
    assert done.returncode == 0 and len(found) == 100, done.stderr
    for who in ("127.0.0.1:9926", "node2:9924"):
        done = job.probing(1, "-t", "relay:%s/job:%s" % (who, job.name), "eval", "me")
        assert done.returncode == 1 and "0 of 1 answered" in done.stderr, done.stderr
