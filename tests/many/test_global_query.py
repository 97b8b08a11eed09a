# SPDX-License-Identifier: Apache-2.0
"""One statement over the tables of all ranks: global.SCHEMA.TABLE, of the living and the dead."""
import json
import os
import signal

import pytest
from ranks import four, named, rows, start_ranks  # noqa: F401
from world import ROOT, wait_for

FILL = ("import sys\nsys.path.append(%r)\nimport probing\n"
        "t = probing.table('part', {'k': int, 'x': float, 'name': str})\n"
        "for i in range(20): t.append(i %% 3, me + i / 4, 'r%%d' %% me)"
        % str(ROOT / "plugins" / "python" / "package"))


def ask(world, targets, sql, *more):
    return world.probing("-t", targets, "query", sql, "--format", "json", *more)


def plan(done):
    return "\n".join(r["plan"] for r in rows(done))


def test_groups_are_made_by_ranks_and_merged(four):
    for sql, want in (
            ("select count(*) n, count(distinct _rank) r from global.process.envs "
             "where name = 'RANK'", [{"n": 4, "r": 4}]),
            ("select _rank, sum(value::bigint) v, avg(value::bigint) a from global.process.envs "
             "where name = 'RANK' group by 1 order by 1 desc limit 2",
             [{"_rank": 3, "v": 3, "a": 3}, {"_rank": 2, "v": 2, "a": 2}]),
            ("select _rank % 2 k, grouping(_rank % 2) g, sum(value::bigint) v from "
             "global.process.envs where name = 'RANK' group by rollup (_rank % 2) order by g, k",
             [{"k": 0, "g": 0, "v": 2}, {"k": 1, "g": 0, "v": 4}, {"k": None, "g": 1, "v": 6}]),
            ("select stddev_pop(value::bigint) s, max(_addr) > '' t from global.process.envs "
             "where name = 'RANK'", [{"s": pytest.approx(1.25 ** 0.5), "t": True}])):
        done = ask(four, "job:" + four.job, sql)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert rows(done) == want
    done = ask(four, "job:" + four.job, "explain analyze select avg(value::bigint) from "
               "global.process.envs where name = 'RANK' and _rank in (1, 2)")
    text = plan(done)
    assert "avg_state(" in text and "2 of 4 are asked" in text and "rank 1: 1 rows" in text
    assert "rank 0: 1 rows" not in text and "avg_merge(" in text


def test_intervals_with_months(four):
    """They are text on the way, and intervals again in the answer."""
    done = ask(four, "job:" + four.job, "select interval '1 month' * (value::bigint % 2) as i, "
               "count(*) as n, max(interval '1 month 3 s' * value::bigint) as m from "
               "global.process.envs where name = 'RANK' group by 1 order by 1 desc")
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(done) == [{"i": "1 mon", "n": 2, "m": "3 mons 00:00:09"},
                          {"i": "00:00:00", "n": 2, "m": "2 mons 00:00:06"}]


def test_joins_and_windows_of_all_ranks(four):
    done = ask(four, named(*four.ranks),
               "with e as (select _rank r, value::bigint v from global.process.envs where name = "
               "'RANK') select a.r, sum(b.v) s, rank() over (order by a.r desc) p from e a join e "
               "b on a.r <= b.r group by 1 order by 1")
    assert rows(done) == [{"r": r, "s": sum(range(r, 4)), "p": 4 - r} for r in range(4)]


def test_the_dead_and_those_without_the_table(world):
    job = "global-%d" % os.getpid()
    ranks = start_ranks(world, 3, TORCHELASTIC_RUN_ID=job)
    for rank in ranks[:2]:
        assert rank.probing("eval", FILL).returncode == 0
        wait_for(lambda r=rank: r.rows("select count(*) from python.part") == [[20]],
                 "rows that are stored")
    sql = "select count(*) n, sum(x) s, min(name) a, max(name) b from global.python.part"
    want = {"n": 40, "s": sum(me + i / 4 for me in (0, 1) for i in range(20)), "a": "r0", "b": "r1"}
    done = ask(world, "job:" + job, sql)
    assert rows(done) == [want] and done.returncode == 1
    assert "2 of 3 answered" in done.stderr and "rank 2" in done.stderr, done.stderr
    done = ask(world, "job:" + job, sql, "--strict")
    assert done.returncode == 1 and not done.stdout and "--strict" in done.stderr, done.stderr
    done = ask(world, "job:" + job, sql + " where _rank < 2", "--strict")
    assert rows(done) == [want] and done.returncode == 0, done.stderr
    ranks[1].kill()
    done = ask(world, named(*ranks[:2]), sql, "--strict")
    assert rows(done) == [want] and done.returncode == 0, done.stderr


def test_a_stopped_rank_is_said_and_a_table_that_nobody_has(world):
    job = "global-stopped-%d" % os.getpid()
    ranks = start_ranks(world, 2, TORCHELASTIC_RUN_ID=job)
    for rank in ranks:
        assert rank.probing("eval", FILL).returncode == 0
        wait_for(lambda r=rank: r.rows("select count(*) from python.part") == [[20]],
                 "rows that are stored")
    os.kill(ranks[1].pid, signal.SIGSTOP)
    try:
        wait_for(lambda: stopped(ranks[1].pid), "the stopped process")
        done = ask(world, "job:" + job, "select count(*) n from global.python.part")
        assert rows(done) == [{"n": 40}] and done.returncode == 0
        assert "is stopped; this is read from its files" in done.stderr, done.stderr
        done = ask(world, "job:" + job, "select count(*) n from global.python.part where _rank < 1")
        assert (rows(done), done.stderr) == ([{"n": 20}], "")
    finally:
        os.kill(ranks[1].pid, signal.SIGCONT)
    done = ask(world, "job:" + job, "select 1, 2, 3 from global.python.nothing")
    assert "unknown table 'python.nothing'" in done.stderr, done.stderr
    assert "column" not in done.stderr, done.stderr  # it would be of a statement of ours


def stopped(pid):
    with open("/proc/%d/stat" % pid) as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "T"


def test_what_is_too_much_is_refused_in_words(four):
    every = "job:" + four.job
    done = ask(four, every, "select name, value from global.process.envs", "--max-bytes", "1K")
    assert done.returncode == 1 and not done.stdout
    assert "more than 1024 bytes" in done.stderr and "--max-bytes" in done.stderr
    few = "select median(length(doc)) m, count(*) n from global.information_schema.columns"
    exact = rows(ask(four, every, few))[0]
    close = ask(four, every, few, "--max-bytes", "16K")
    assert "within 1 %" in close.stderr, close.stderr
    assert rows(close)[0] == {"n": exact["n"], "m": pytest.approx(exact["m"], rel=0.05)}


def test_errors_have_their_place(four):
    every = "job:" + four.job
    for sql, words in (
            ("select zz from global.process.envs", "line 1, column 8: unknown column 'zz'"),
            ("select 1 from global.process.envs join process.memory m on true",
             "it is written global.process.memory"),
            ("select 1 from global.process.no_such", "no_such")):
        done = ask(four, every, sql)
        assert done.returncode == 1 and words in " ".join(done.stderr.split()), done.stderr
    # A core does not know of the others: who asks does.
    done = four.ranks[0].probing("watch", "select 1 from global.process.envs")
    assert done.returncode == 1 and "-t job:NAME" in done.stderr


def test_one_process_is_a_job_of_one(four):
    """Also with `-t PID`, and if the statement asks for no rank by name."""
    one = str(four.ranks[2].pid)
    sql = "select _rank, value from global.process.envs where name = 'RANK'"
    done = ask(four, one, sql)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert rows(done) == [{"_rank": 2, "value": "2"}]
    done = four.probing("-t", one, "export", "--format", "csv", sql)
    assert done.returncode == 0 and done.stdout.split() == ["_rank,value", "2,2"], done
    done = four.probing("-t", one, "export", "--format", "csv", "global.process.envs")
    assert done.returncode == 0, done.stderr
    assert any(",RANK,2" in line for line in done.stdout.splitlines()), done.stdout
    done = four.probing("-t", one, "describe", "global.process.envs")
    assert done.returncode == 0 and "_host" in done.stdout, done.stderr
    done = four.probing("-t", one, "query", "select 1 from global.process.no_such")
    assert done.returncode == 1 and "no_such" in done.stderr


def test_every_format(four):
    sql = ("select _rank, value, null as nothing from global.process.envs where name = 'RANK' "
           "order by 1")
    text = four.probing("-t", "job:" + four.job, "query", sql, "--format", "csv")
    assert text.stdout.split() == ["_rank,value,nothing"] + ["%d,%d," % (i, i) for i in range(4)]
    text = four.probing("-t", "job:" + four.job, "query", sql, "--format", "jsonl", "--limit", "2")
    assert [json.loads(line)["_rank"] for line in text.stdout.splitlines()] == [0, 1]
