# SPDX-License-Identifier: Apache-2.0
"""Continuous aggregation: watch with buckets of time tells each bucket once, when it is over."""
import json
import subprocess

import pytest

from world import CLI, DEBIAN_PYTHON, IDLE

# n counts up for as long as the script runs, so that a row left out or told twice is seen.
ROWS = """local t = probing.table("rows", {n = "i64"})
local n = 0
probing.every("10ms", function() n = n + 1; t:add{n = n} end)
"""
BUCKETS = ("select time_bucket('100ms', ts) as t, count(*) as rows, min(n) as first, "
           "max(n) as last from script.rows where n > 0 group by 1 order by 1")


@pytest.fixture
def target(world, tmp_path):
    script = tmp_path / "rows.lua"
    script.write_text(ROWS)
    made = world.python(IDLE, python=DEBIAN_PYTHON)
    made.wait_line("ready")
    made.inject()
    assert made.probing("config", "query.watermark_delay=50ms").returncode == 0
    done = made.probing("script", "run", str(script))
    assert done.returncode == 0, done.stderr
    return made


def watch(target, *words):
    made = subprocess.Popen([str(CLI), "-t", str(target.pid), "watch", *words],
                            env=target.world.env, stdout=subprocess.PIPE, text=True)
    target.world.clients = getattr(target.world, "clients", []) + [made]
    return made


def buckets(stream, n):
    return [json.loads(stream.stdout.readline()) for _ in range(n)]


def check(told):
    for before, after in zip(told, told[1:]):
        assert before["t"] < after["t"]
        assert after["first"] == before["last"] + 1
    assert all(b["rows"] == b["last"] - b["first"] + 1 for b in told)


def test_each_bucket_is_told_once_and_whole(target):
    stream = watch(target, "-f", "jsonl", "--interval", "30ms", BUCKETS)
    told = buckets(stream, 15)
    check(told)
    # The buckets that were told equal a later query's: nothing was cut off.
    asked = target.rows("select count(*) from script.rows where n between %d and %d"
                        % (told[0]["first"], told[-1]["last"]))
    assert asked == [[sum(b["rows"] for b in told)]]


def test_earlier_buckets_on_request(target):
    first = buckets(watch(target, "-f", "jsonl", "--interval", "30ms", BUCKETS), 4)
    told = buckets(watch(target, "-f", "jsonl", "--interval", "30ms", "--last", "4", BUCKETS), 8)
    check(told)
    assert told[0]["t"] <= first[-1]["t"]


def test_a_bucket_that_a_condition_empties_is_not_told(target):
    stream = watch(target, "-f", "jsonl", "--interval", "30ms",
                   BUCKETS.replace("n > 0", "n % 2 = 1").replace(" order", " having count(*) > 0"
                                                                           " order"))
    told = buckets(stream, 6)
    assert all(b["first"] % 2 == 1 and b["last"] % 2 == 1 for b in told)
    assert all(a["t"] < b["t"] for a, b in zip(told, told[1:]))


def test_a_limit_is_no_stream(target):
    """With limit the statement is asked afresh each time, as any other: an answer each tick."""
    stream = watch(target, "-f", "jsonl", "--interval", "30ms",
                   BUCKETS.replace("order by 1", "order by 1 limit 1"))
    told = buckets(stream, 3)
    assert len({b["t"] for b in told}) == 1
