# SPDX-License-Identifier: Apache-2.0
"""Times of ranks whose machines have other clocks: rows of `global.*` are by the asker's.

A clock that goes wrong is played in real processes, by a library that moves CLOCK_REALTIME."""
import json
import sys
import time

import pytest
from ranks import named, rows, start_ranks
from world import BUILD, ROOT, remote_shell, wait_for

OTHER = BUILD / "tests" / "many" / "other_clock.so"
S = 10**9
GAP = 0.05  # s: between two marks, many times what a round trip on one machine takes
# HOST is how far its clock goes wrong, in ns; behind "/" what its relay makes of PONGs.
SHELL = """#!/bin/sh
host=$1
shift
export OTHER_CLOCK_NS=${host%%%%.*}
export LD_PRELOAD="%s"
case $host in
*.liar*) exec env -u LD_PRELOAD %s %s ${host##*.liar} "$*" ;;
esac
exec sh -c "$*"
"""
# Between: what a relay says of its clock is moved by as much as it likes.
LIAR = """import os, struct, subprocess, sys, threading
there = subprocess.Popen(["sh", "-c", sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def down():
    while piece := os.read(0, 65536):
        os.write(there.stdin.fileno(), piece)
    os.close(there.stdin.fileno())
threading.Thread(target=down, daemon=True).start()
sys.stdout.buffer.write(there.stdout.read(17))
while head := there.stdout.read(16):
    data = there.stdout.read(struct.unpack("<I", head[:4])[0])
    if head[4] == 11:
        (said,) = struct.unpack("<Q", data[8:])
        data = data[:8] + struct.pack("<Q", (said + int(sys.argv[1])) % 2**64)
    sys.stdout.buffer.write(head + data)
    sys.stdout.buffer.flush()
"""


def preloaded(world, ahead):
    before = world.env.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": (before + " " + str(OTHER)).strip(), "OTHER_CLOCK_NS": str(ahead)}


def mark(target, n):
    done = target.probing("eval", "t.append(n=%d)" % n)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def pair(world):
    """Rank 0 has a clock 5 s ahead; the marks 0 to 5 are put down in turn by the two."""
    package = str(ROOT / "plugins" / "python" / "package")
    made = [start_ranks(world, 1, RANK="0", PYTHONPATH=package, **preloaded(world, 5 * S))[0],
            start_ranks(world, 1, RANK="1", PYTHONPATH=package)[0]]
    for target in made:
        done = target.probing("eval", "import probing; t = probing.table('marks', {'n': int})")
        assert done.returncode == 0, done.stderr
    for n in range(6):
        mark(made[n % 2], n)
        time.sleep(GAP)
    return made


def ask(world, targets, sql, **more):
    done = world.probing("-t", targets, "query", "--format", "json", sql, **more)
    assert done.returncode == 0, done.stderr
    return rows(done)


ALL = "global.python.marks"


def check_order(world, targets, **more):
    """However they are asked, the marks are in the order in which they were put down."""
    in_turn = [0, 1, 2, 3, 4, 5]
    assert [r["n"] for r in ask(world, targets, "select n from %s order by ts" % ALL,
                                **more)] == in_turn
    assert [r["n"] for r in ask(world, targets, "select n from %s order by ts desc limit 3" % ALL,
                                **more)] == [5, 4, 3]
    assert [r["n"] for r in ask(
        world, targets, "select n, lag(n) over (order by ts) as b from %s order by ts" % ALL,
        **more)] == in_turn
    # Ranges: a moment that the query names is the asker's, pushed down or not.
    moments = [r["ts"] for r in ask(world, targets, "select ts from %s order by n" % ALL, **more)]
    # (The offset is measured for each command: a moment is one of another's within the error.)
    between = ask(world, targets, "select count(*) as c, min(n) as lo, max(n) as hi from %s where "
                  "ts > timestamp '%s' + (timestamp '%s' - timestamp '%s') / 2 and ts < timestamp "
                  "'%s' + (timestamp '%s' - timestamp '%s') / 2"
                  % (ALL, moments[1], moments[2], moments[1], moments[4], moments[5], moments[4]),
                  **more)
    assert between == [{"c": 3, "lo": 2, "hi": 4}]
    groups = ask(world, targets, "select ts - ts as zero, arg_max(n, ts) as last, max(ts) - "
                 "min(ts) < interval '4 s' as near from %s group by 1" % ALL, **more)
    assert [(g["last"], g["near"]) for g in groups] == [(5, True)]


def test_a_clock_that_was_set_after_a_rank_began(world, pair):
    """On one machine: the rank's core counts on from what the clock was when it began."""
    both = named(*pair)
    check_order(world, both)
    said = ask(world, both, "select distinct _rank, _clock_offset_ns as o, _clock_error_ns as e "
               "from %s order by 1" % ALL)
    assert abs(said[0]["o"] - 5 * S) <= said[0]["e"] <= S // 1000
    assert (said[1]["o"], said[1]["e"]) == (0, 0)
    # A column that is asked for by name only is not part of *, and conditions on it choose members.
    assert not {"_clock_offset_ns", "_clock_error_ns"} & set(
        ask(world, both, "select * from %s limit 1" % ALL)[0])
    assert [r["_rank"] for r in ask(
        world, both, "select distinct _rank from %s where _clock_offset_ns = 0" % ALL)] == [1]
    # Each by its own clock, as one process is asked: untouched.
    plain = ask(world, both, "select n, epoch_ns(ts) as t from python.marks")
    assert max(r["t"] for r in plain if r["n"] % 2 == 0) > max(
        r["t"] for r in plain if r["n"] % 2) + 3 * S


def clock_columns(world, targets, **more):
    return ask(world, targets, "select _rank, _clock_offset_ns as o, _clock_error_ns as e from %s "
               "group by 1, 2, 3 order by 1" % ALL, **more)


def machines(world):
    """The environment in which a host is this machine with another clock."""
    liar = world.tmp / "liar.py"
    liar.write_text(LIAR)
    return remote_shell(world, SHELL % (preloaded(world, 0)["LD_PRELOAD"], sys.executable, liar))


def test_machines_with_other_clocks(world, pair):
    env = machines(world)
    both = "ssh:%d/%d,ssh:0/%d" % (5 * S, pair[0].pid, pair[1].pid)
    check_order(world, both, env=env)
    said = clock_columns(world, both, env=env)
    assert abs(said[0]["o"] - 5 * S) <= said[0]["e"] < 10 * S
    assert said[1]["o"] == 0 and said[1]["e"] < 10 * S  # its clock is ours: within the error
    # The machine's clock has been set back by 3 s since the rank began.
    both = "ssh:%d/%d,ssh:0/%d" % (2 * S, pair[0].pid, pair[1].pid)
    check_order(world, both, env=env)
    said = clock_columns(world, both, env=env)
    assert abs(said[0]["o"] - 5 * S) <= said[0]["e"]
    # A relay that lies moves its own rows; what can be no clock's is not believed.
    plain = ask(world, str(pair[1].pid), "select epoch_ns(ts) as t from python.marks order by n")
    year = 365 * 86400 * S
    for by, moved in ((-10 * year, 10 * year), (2**62, 5 * S), (7 * 10**18, 5 * S), (-1, 0)):
        lies = "ssh:%d.liar%d/%d,ssh:0/%d" % (5 * S, by, pair[0].pid, pair[1].pid)
        marks = ask(world, lies, "select n, epoch_ns(ts) as t, _clock_offset_ns as o from %s order "
                    "by n" % ALL, env=env)
        assert [m["n"] for m in marks] == [0, 1, 2, 3, 4, 5]
        assert all(abs(a["t"] - b["t"]) < S for a, b in zip(marks[1::2], plain))
        assert all(abs(a["t"] - b["t"] - moved) < S for a, b in zip(marks[::2], plain)), by
        assert (marks[0]["o"] is None) == (moved == 5 * S)


def test_by_tcp_without_a_relay(world, pair):
    """It is asked what time it is; the answer was made while we waited for it."""
    doors = [t.probing("config", "server.listen=127.0.0.1:0").stdout for t in pair]
    both = ",".join(door.strip().split("=")[1] for door in doors)
    said = clock_columns(world, both)
    assert abs(said[0]["o"] - 5 * S) <= said[0]["e"] < 10 * S
    assert said[1]["o"] == 0 and said[1]["e"] < 10 * S
    marks = ask(world, both, "select n, ts, _clock_error_ns as e from %s order by ts" % ALL)
    if max(m["e"] for m in marks) < GAP / 2 * S:
        assert [m["n"] for m in marks] == [0, 1, 2, 3, 4, 5]


def test_the_dead(world, pair):
    """Its files say what its clock was; the machine has not been started anew since."""
    pids = [t.pid for t in pair]
    for target in pair:
        target.kill()
    both = ",".join(map(str, pids))
    wait_for(lambda: world.probing("-t", both, "query", "select 1").returncode == 0, "files")
    check_order(world, both)


def test_what_cluster_diff_says(world, pair):
    env = machines(world)

    def clocks(first):
        done = world.probing("-t", "ssh:%d/%d,ssh:0/%d" % (first, pair[0].pid, pair[1].pid),
                             "cluster", "diff", "--all", "--json", env=env)
        assert done.returncode == 0, done.stderr
        return {f["kind"]: {r: v["value"] for v in f["values"] for r in v["ranks"]}
                for f in json.loads(done.stdout)["facts"] if f["name"] == "clock"}

    said = clocks(5 * S)
    assert said["machine"][1] == "as the asker's"
    assert abs(float(said["machine"][0].split("s ahead of the asker's (to ")[0]) - 5) < 0.5
    assert said["core"] == {0: "as its machine's", 1: "as its machine's"}
    said = clocks(2 * S)
    assert abs(float(said["machine"][0].split("s ahead of the asker's (to ")[0]) - 2) < 0.5
    assert said["core"] == {0: "3s ahead of its machine's (to 1ms)", 1: "as its machine's"}
