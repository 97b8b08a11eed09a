# SPDX-License-Identifier: Apache-2.0
"""Relays that merge what their members answer: the same answers as by asking one by one, who is
missing with its reason, and relays that lie about those behind them."""
import contextlib
import os
import random
import signal
import subprocess

import pytest
from ranks import four  # noqa: F401
from test_relay import far  # noqa: F401
from world import CLI, wait_for

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
    "select _rank, name, length(value) as n from global.process.envs order by n desc, _rank desc, "
    "name limit 9",
    "select * from global.process.envs where name like 'R%' order by value, _host limit 12 offset "
    "3",
    "select name from global.process.envs where name = 'RANK' limit 5",
    "select substr(name, 1, 1) as k, first(value) as f, count(*) as n from global.process.envs "
    "group by 1 order by 1 desc limit 4",
    "select _host, _rank, substr(name, 1, 1) as k, avg(length(value)) as a from "
    "global.process.envs group by 1, 2, 3 order by a desc, 3 limit 11 offset 2",
    "select length(name) % 5 as k, max(_rank) as r, count(*) filter (where _rank > 1) as n from "
    "global.process.envs group by 1 order by 1 limit 3",
    "select distinct substr(name, 1, 1) as k from global.process.envs",
    "select distinct _rank, name from global.process.envs where name in ('RANK', 'PATH')",
    "select distinct _host, substr(name, 1, 1) as k from global.process.envs where _rank < 3 and "
    "length(name) > _rank order by 1, 2",
    "with a as (select count(*) as n from global.process.envs), b as (select _rank as r, count(*) "
    "as n from global.process.envs group by 1) select r, b.n as m, a.n as n from a, b order by 1",
]
KEYS = ["_rank", "_host", "_role", "substr(name, 1, 1)", "length(name) % 4", "name > 'M'"]
VALUES = ["count(*)", "sum(length(value))", "max(name)", "avg(length(name))", "min(_rank)",
          "count(distinct substr(name, 2, 1))", "last(value)", "max(length(value) + _local_rank)",
          "count(*) filter (where _rank % 2 = 0)"]


def generated(seed):
    """A statement over all ranks: groups, rows or distinct rows, ordered as a whole or cut."""
    of = random.Random(seed)
    keys = of.sample(KEYS, of.randint(1, 3))
    kind = of.choice(["groups", "groups", "rows", "distinct"])
    shown = keys + (of.sample(VALUES, of.randint(1, 2)) if kind == "groups" else ["value"])
    sql = "select %s%s from global.process.envs" % (
        "distinct " * (kind == "distinct"),
        ", ".join("%s as c%d" % pair for pair in zip(shown, range(len(shown)))))
    sql += of.choice(["", " where length(name) < 9", " where _rank > 0 and name < 'Q'"])
    if kind == "groups":
        sql += " group by " + ", ".join(str(i + 1) for i in range(len(keys)))
    if of.random() < 0.8:  # equal ones come in the order of ranks
        order = of.sample(range(1, len(shown) + 1), of.randint(1, len(shown)))
        sql += " order by " + ", ".join("%d%s" % (i, of.choice(["", " desc"])) for i in order)
    if of.random() < 0.7:
        sql += " limit %d" % of.randint(1, 12)
    return sql + (" offset 2" if of.random() < 0.2 else "")


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


@pytest.mark.parametrize("statements", [STATEMENTS, [generated(seed) for seed in range(24)]],
                         ids=["chosen", "generated"])
def test_the_same_as_one_by_one(far, statements):  # noqa: F811
    for sql in statements:
        merged, each = (far.probing("-t", who(far), "query", "--format", "csv", sql, **more)
                        for more in (TREE, dict(TREE, PROBING_RELAY_MERGE="0")))
        assert merged.returncode == each.returncode == 0, (sql, merged.stderr, each.stderr)
        assert nearly(merged.stdout) == nearly(each.stdout), sql
        assert merged.stderr == each.stderr, sql


def rows_that_came(far, sql, **more):  # noqa: F811
    done = far.probing("-t", who(far), "query", "--format", "csv", "explain analyze " + sql,
                       **dict(TREE, **more))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" rows, ") >= 4 * HOSTS  # each with its own
    scan = next(line for line in done.stdout.splitlines() if "scan answers_1" in line)
    return int(scan.split("(held)", 1)[1].strip(' ("').split()[0])


def test_relays_send_one_answer(far):  # noqa: F811
    for n, sql in (
            (1, "select count(*) as n, avg(length(value)) as a from global.process.envs"),
            (3, "select name from global.process.envs order by length(value) desc limit 3"),
            (5, "select _rank, name from global.process.envs order by _rank limit 5"),
            (2, "select length(name), count(*) from global.process.envs group by 1 order by 1 "
                "limit 2"),
            (4, "select _addr, length(name), sum(length(value)) as s from global.process.envs "
                "group by 1, 2 order by s desc limit 4"),
            (2, "select distinct name from global.process.envs where name in ('RANK', 'PATH')")):
        assert rows_that_came(far, sql) == 2 * n, sql  # of each relay that the command has started
        assert rows_that_came(far, sql, PROBING_RELAY_MERGE="0") == 4 * HOSTS * n, sql


COUNTS = "select count(*) as n from global.process.envs where name = 'RANK'"
BY_HOST = ("select _host, count(*) as n from global.process.envs where name = 'RANK' group by 1 "
           "order by 1 limit 9")


def of_hosts(sql, gone):
    """The answer, csv, without those hosts."""
    left = sorted({"gated"} | {"n%d" % i for i in range(1, HOSTS + 1)} - gone)
    return ["n", str(4 * len(left))] if sql == COUNTS else \
        ["_host,n"] + [host + ",4" for host in left]


def who_are_missing(far, sql, timeout, harm):  # noqa: F811
    """Ask all while the relay of n3, behind n2's, stands still; lines about who has not answered.
    n1 is before n2, n3 and n4, and n2 before n3."""
    asker = far.begin("-t", "%s,ssh:gated/job:%s" % (who(far), far.job), "--timeout", timeout,
                      "query", "--format", "csv", sql, **TREE)
    still = far.relay_of("n3")
    os.kill(still, signal.SIGSTOP)
    try:
        gone = harm()
        far.open_gate()
        out, err = asker.communicate(timeout=120)
    finally:
        end(still)
    assert asker.returncode == 1 and out.split() == of_hosts(sql, gone), (out, err)
    lines = [line for line in err.splitlines() if "ssh:" in line and "same process" not in line]
    for host in gone:
        assert any("ssh:%s/" % host in line for line in lines), err
    assert not any("ssh:n%d/" % i in line or "gated" in line for line in lines
                   for i in range(1, HOSTS + 1) if "n%d" % i not in gone), err


@pytest.mark.parametrize("sql", [COUNTS, BY_HOST], ids=["counts", "by_host"])
def test_who_is_behind_a_killed_relay_is_named(far, sql):  # noqa: F811
    def harm():
        os.kill(far.relay_of("n2"), signal.SIGKILL)
        return {"n2", "n3"}
    who_are_missing(far, sql, "20s", harm)


@pytest.mark.parametrize("sql", [COUNTS, BY_HOST], ids=["counts", "by_host"])
def test_who_is_behind_a_stopped_relay_is_named(far, sql):  # noqa: F811
    """And nobody else: relays above it wait a little less long than who asks."""
    who_are_missing(far, sql, "5s", lambda: {"n3"})


@pytest.mark.parametrize("how", ["garbage", "half", "twice", "rows", "arrow", "others", "columns",
                                 "long", "steer", "none", "refuses", "silent", "whose", "nobody",
                                 "failed", "type", "name", "rowed"])
@pytest.mark.parametrize("where", ["above", "below"])
def test_a_relay_that_lies_costs_its_own(far, how, where):  # noqa: F811
    """Above all relays, or below one that merges."""
    hosts = ["fake-merge-" + how, "node"]
    done = far.probing("-t", ",".join("ssh:%s/job:%s" % (host, far.job) for host in
                                      (hosts if where == "above" else reversed(hosts))),
                       "--timeout", "2s", "query", "--format", "csv", COUNTS,
                       PROBING_RELAY_DEGREE="1000" if where == "above" else "1")
    assert done.returncode == 1, done.stderr
    assert done.stdout.split() == ["n", "4"], (done.stdout, done.stderr)
    assert "4 of 8 answered" in done.stderr and "fake-merge-" + how in done.stderr, done.stderr
    assert "\x1b" not in done.stderr and "\nprobing: rank 0" not in done.stderr


@pytest.mark.parametrize("where", ["above", "below"])
def test_a_terminal_shows_how_many_have_answered(far, where):  # noqa: F811
    """One who never answers is behind a relay that merges, or beside it."""
    ours, theirs = os.openpty()
    asker = subprocess.Popen(
        [str(CLI), "-t", "ssh:node/job:%s,ssh:fake-merge-silent/job:%s" % (far.job, far.job),
         "--timeout", "3s", "query", COUNTS], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=theirs, env=dict(far.world.env, **far.here, PROBING_RELAY_DEGREE="1000"
                                if where == "above" else "1"))
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the other end has been closed: the command has ended
        while piece := os.read(ours, 4096):
            said += piece
    os.close(ours)
    assert asker.wait(timeout=60) == 1, said
    assert b"4 of 8 have answered" in said, said


def test_nothing_of_it_stays_behind(far):  # noqa: F811
    """The client is killed while relays wait for a member that stands still."""
    asker = far.begin("-t", who(far), "query", "select count(*) from global.process.envs", **TREE)
    still = far.relay_of("n3")
    os.kill(still, signal.SIGSTOP)
    asker.kill()
    asker.communicate(timeout=60)
    wait_for(lambda: {pid for pid, _ in far.left()} <= {still},
             lambda: "the end of %r" % far.left(), timeout=60)
    end(still)
