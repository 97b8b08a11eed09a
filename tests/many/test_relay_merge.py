# SPDX-License-Identifier: Apache-2.0
"""Relays that merge what their members answer: the same answers as by asking one by one, who is
missing with its reason, and relays that lie about those behind them."""
import contextlib
import os
import signal

import pytest
from ranks import four  # noqa: F401
from test_relay import far  # noqa: F401
from world import wait_for

HOSTS = 7
TREE = {"PROBING_RELAY_DEGREE": "2"}  # three relays deep
STATEMENTS = [
    "select count(*) as n, avg(length(value)) as a, min(name) as least, max(name) as most, "
    "stddev(length(value)) as s, count(distinct name) as d from global.process.envs",
    "select length(name) % 7 as k, sum(length(value)) as s, var_pop(length(value)) as v, "
    "arg_max(name, length(name)) as m from global.process.envs group by 1 order by 1",
    "select substr(name, 1, 2) as k, count(*) as n, approx_median(length(value)) as m from "
    "global.process.envs where length(name) > 5 group by 1 having count(*) > 7 order by 2 desc, 1 "
    "limit 5",
    "select _host, _rank, count(*) as n from global.process.envs group by 1, 2 order by 1, 2",
    "select first(_rank) as f, any_value(1) as one, corr(length(name), length(value)) as c from "
    "global.process.envs where name = 'RANK'",
    "select count(*) as n, sum(length(name)) as s from global.process.envs where name = 'nobody'",
    "select name, value from global.process.envs where name = 'RANK' order by 2 limit 3",
    "select count(*) as n, min(a.k) as k from (select length(name) as k, count(*) as c from "
    "global.process.envs group by 1) a join (select length(value) as k, count(*) as c from "
    "global.process.envs group by 1) b on a.k = b.k",
]


def who(far):  # noqa: F811
    return "ssh:n[1-%d]/job:%s" % (HOSTS, far.job)


def nearly(text):
    """Cells of csv; the last digits of doubles hang on the order of additions."""
    def cell(c):
        try:
            return "%.9g" % float(c)
        except ValueError:
            return c
    return [[cell(c) for c in line.split(",")] for line in text.splitlines()]


def end(pid):
    with contextlib.suppress(ProcessLookupError):  # who was above it may have ended it
        os.kill(pid, signal.SIGKILL)


def test_the_same_as_one_by_one(far):  # noqa: F811
    for sql in STATEMENTS:
        merged, each = (far.probing("-t", who(far), "query", "--format", "csv", sql, **more)
                        for more in (TREE, dict(TREE, PROBING_RELAY_MERGE="0")))
        assert merged.returncode == each.returncode == 0, (sql, merged.stderr, each.stderr)
        assert nearly(merged.stdout) == nearly(each.stdout), sql
        assert merged.stderr == each.stderr, sql


def rows_that_came(far, **more):  # noqa: F811
    done = far.probing("-t", who(far), "query", "--format", "csv",
                       "explain analyze select count(*) as n, avg(length(value)) as a from "
                       "global.process.envs", **dict(TREE, **more))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" rows, ") >= 4 * HOSTS  # each with its own
    scan = next(line for line in done.stdout.splitlines() if "scan answers_1" in line)
    return int(scan.split("(held)", 1)[1].strip(' ("').split()[0])


def test_relays_send_one_answer(far):  # noqa: F811
    assert rows_that_came(far) == 2  # of 28: one of each relay that the command has started
    assert rows_that_came(far, PROBING_RELAY_MERGE="0") == 4 * HOSTS


def test_who_is_behind_a_killed_relay_is_named(far):  # noqa: F811
    """n1 is before n2, n3 and n4, and n2 before n3: which stands still, so that nothing is done."""
    asker = far.begin("-t", who(far), "--timeout", "20s", "query", "--format", "csv",
                      "select count(*) as n from global.process.envs where name = 'RANK'", **TREE)
    last = far.relay_of("n3")
    os.kill(last, signal.SIGSTOP)
    try:
        os.kill(far.relay_of("n2"), signal.SIGKILL)
        out, err = asker.communicate(timeout=60)
    finally:
        end(last)
    assert asker.returncode == 1, (out, err)
    assert out.split() == ["n", str(4 * (HOSTS - 2))], (out, err)
    lines = [line for line in err.splitlines() if "ssh:n" in line and "same process" not in line]
    assert any("ssh:n2/" in line for line in lines), err
    assert any("ssh:n3/" in line for line in lines), err
    assert not any("ssh:n%d/" % i in line for i in (1, 4, 5, 6, 7) for line in lines), err


@pytest.mark.parametrize("how", ["garbage", "half", "twice", "rows", "arrow", "others", "columns",
                                 "long", "steer", "none", "refuses", "silent"])
def test_a_relay_that_lies_costs_its_own(far, how):  # noqa: F811
    sql = "select count(*) as n from global.process.envs where name = 'RANK'"
    liar = "ssh:fake-merge-%s/job:%s" % (how, far.job)
    done = far.probing("-t", "%s,ssh:node/job:%s" % (liar, far.job), "--timeout", "2s", "query",
                       "--format", "csv", sql)
    assert done.returncode == 1, done.stderr
    assert done.stdout.split() == ["n", "4"], (done.stdout, done.stderr)
    assert "4 of 8 answered" in done.stderr and "fake-merge-" + how in done.stderr, done.stderr
    assert "\x1b" not in done.stderr and "\nprobing: rank 0" not in done.stderr


def test_nothing_of_it_stays_behind(far):  # noqa: F811
    """Who asks is killed while relays wait for one that stands still."""
    asker = far.begin("-t", who(far), "query", "select count(*) from global.process.envs", **TREE)
    still = far.relay_of("n3")
    os.kill(still, signal.SIGSTOP)
    asker.kill()
    asker.communicate(timeout=60)
    wait_for(lambda: {pid for pid, _ in far.left()} <= {still},
             lambda: "the end of %r" % far.left(), timeout=60)
    end(still)
