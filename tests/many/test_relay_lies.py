# SPDX-License-Identifier: Apache-2.0
"""A relay that lies in whatever frame and byte (tests/many/lying_shell.py): it moves what is said
of its own ranks, and nothing else; nothing hangs or crashes.  Thousands of lies with
PROBING_TEST_FULL; under sanitizers with PROBING_BUILD=build/asan."""
import json
import os
import random
import sys
from pathlib import Path

import pytest
from ranks import four  # noqa: F401
from world import CLI

SHELL = Path(__file__).with_name("lying_shell.py")
ROUNDS = 3000 if os.environ.get("PROBING_TEST_FULL") else 20
TABLE = "global.probing.settings"
QUESTIONS = [
    "select _host, count(*) as n, sum(length(name)) as s, avg(length(name)) as a, min(name) as f, "
    "max(name) as l from %s group by 1 order by 1" % TABLE,
    "select _host, approx_quantile(length(name), 0.5) as q, stddev(length(name)) as s, "
    "count(distinct value) as d from %s group by 1 order by 1" % TABLE,
    "select _host, name, value from %s where name like 'probing.%%' order by 1 desc, 2 limit 5"
    % TABLE,
    "select _host, first(name) as f, bool_and(length(name) > 1) as b, corr(length(name), "
    "length(value)) as c, string_agg(name, ',') as g from %s group by 1 order by 1" % TABLE]


def ask(world, seed, target, sql):
    return world.probing("-t", target, "--timeout", "5s", "query", "--format", "json", sql, env={
        "PROBING_RSH": "%s %s %d" % (sys.executable, SHELL, seed), "PROBING_REMOTE": str(CLI)},
        timeout=120)


def rows_of(done, host):
    return [row for row in json.loads(done.stdout)["rows"] if row[0] == host]


@pytest.mark.parametrize("sql", QUESTIONS, ids=["groups", "sketches", "rows", "states"])
def test_a_lie_moves_only_the_liar(four, sql):  # noqa: F811
    one, two = ("ssh:%s/%d" % pair for pair in
                (("true", four.ranks[0].pid), ("liar", four.ranks[1].pid)))
    true = rows_of(ask(four, 0, one, sql), "true")
    assert true
    for seed in random.Random(sql).sample(range(1 << 20), ROUNDS // len(QUESTIONS)):
        done = ask(four, seed, one + "," + two, sql)
        assert done.returncode in (0, 1), (seed, done)
        if done.stdout:
            assert rows_of(done, "true") == true, (seed, done)
        else:
            assert done.returncode == 1 and done.stderr, (seed, done)
        assert "AddressSanitizer" not in done.stderr and "runtime error" not in done.stderr, seed
