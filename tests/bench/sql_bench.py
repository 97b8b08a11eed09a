#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The questions of sql_bench.c put to SQLite and DuckDB too, over the same rows, in one run.

usage: sql_bench.py [rows] [text of a name]       10,000,000 rows by default

One thread each, CPU time of the process, the least of three. Engines that cannot be imported are
left out. The answer of the first question is compared, so that the same work is timed.
"""
import os
import subprocess
import sys
import time

from figures import figure, remark

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BENCH = os.path.join(ROOT, "build/release/tests/bench/sql_bench")
STEPS, SOME = 10000, 1000000

# Row number i as sql_bench.c makes it; ts counts ns from the first row.
TRACE = """
select i / 402 as local_step, 'layer.' || (i / 2 % 201 / 3) || case i / 2 % 201 % 3 when 0 then
'.attn' when 1 then '.mlp' else '.norm' end as module, case i % 2 when 0 then 'pre forward' else
'post forward' end as stage, (i * 7919 % 100003) * 1e-7 as duration, i * 2654435761 % 4096 * 512 as
allocated, i * 1000 as ts from n"""
SMALL = ("select i as step, (i * 31 % 1000) * 0.001 as loss, "
         "i * ({rows} / 10000) * 1000 as ts from n")

QUESTIONS = {
    "group": "select module, stage, avg(allocated), count(*) from trace where local_step > {step} "
             "group by module, stage order by 3 desc, 1, 2 limit 10",
    "full scan": "select count(duration), max(duration), min(allocated) from trace",
    "1% by time": "select count(duration), max(duration), min(allocated) from trace where "
                  "ts >= {middle} and ts < {behind}",
    "count": "select count(*) from trace",
    "top 10": "select local_step, duration, allocated from trace order by duration desc, "
              "local_step limit 10",
    "distinct": "select count(distinct module), count(distinct allocated) from trace",
    "equal text": "select count(*) from trace where module = 'layer.7.mlp'",
    "like": "select count(*) from trace where module like '%.7.%'",
    "hash join": "select count(*), sum(loss) from trace t join steps s on t.local_step = s.step "
                 "where t.local_step < {some}",
    "asof join": "select count(*), sum(s.step) from (select ts from trace where local_step < "
                 "{some}) t asof join steps s on t.ts >= s.ts",
    "lag": "select count(d), max(d) from (select allocated - lag(allocated) over (partition by "
           "module order by ts) as d from trace where local_step < {some}) x",
    "percentile": "select module, quantile_cont(duration, 0.95) from trace where local_step < "
                  "{some} group by module order by 2 desc, 1 limit 3",
    "sort": "select sum(n) from (select row_number() over (order by allocated, duration) as n "
            "from trace where local_step < {some}) x",
}


def series(engine, n):
    if engine == "DuckDB":
        return "with n as (select range as i from range(%d)) " % n
    return ("with recursive n(i) as (select 0 union all select i + 1 from n where i < %d) "
            % (n - 1))


def fill(run, engine, rows):
    run("create table trace as " + series(engine, rows) +
        (TRACE.replace(" / ", " // ") if engine == "DuckDB" else TRACE))
    small = SMALL.format(rows=rows).replace(" / ", " // " if engine == "DuckDB" else " / ")
    run("create table steps as " + series(engine, STEPS) + small)


def engines():
    import sqlite3
    lite = sqlite3.connect(":memory:")
    yield "SQLite", sqlite3.sqlite_version, lambda q: lite.execute(q).fetchall()
    try:
        import duckdb
    except ImportError:
        remark("DuckDB is left out: pip install duckdb")
        return
    duck = duckdb.connect(":memory:", config={"threads": 1})
    yield "DuckDB", duckdb.__version__, lambda q: duck.execute(q).fetchall()


def ask(run, question, numbers):
    best, answer = None, None
    for _ in range(3):
        begin = time.process_time()
        try:
            answer = run(question.format(**numbers))
        except Exception:  # not all of them know asof join and quantiles
            return None, None
        spent = 1000 * (time.process_time() - begin)
        best = spent if best is None else min(best, spent)
        if best > 5000:
            break
    return best, answer


def main(arguments):
    rows = int(arguments[0]) if arguments else 10000000
    only = arguments[1] if len(arguments) > 1 else ""
    numbers = {"step": rows // 402 // 100, "middle": rows // 2 * 1000, "some": SOME // 402,
               "behind": (rows // 2 + rows // 100) * 1000}
    out = subprocess.run([BENCH, str(rows), only], stdout=subprocess.PIPE, text=True, check=True)
    ours, answers = {}, {}
    for line in out.stdout.splitlines():
        words = line.split("\t")
        if words[0] == "# answer":
            answers[words[1]] = words[2]
            continue
        print(line, flush=True)
        if words[0] == "figure":
            ours[words[1]] = float(words[3].split("=")[1])
    for name, version, run in engines():
        remark("%s %s" % (name, version))
        fill(run, name, rows)
        for question in [q for q in QUESTIONS if q in ours]:
            best, answer = ask(run, QUESTIONS[question], numbers)
            if best is None:
                continue
            figure("%s, %s" % (question, name), "ms", least=best, against=question,
                   ratio=best / ours[question])
            if question == "group":
                compare(name, answers[question], answer[0])


def compare(engine, ours, theirs):
    """The first row of the first question, so that the same work was timed."""
    row = ours.split(";")[0].split(",")
    if row[:2] != list(theirs[:2]) or int(row[3]) != theirs[3]:
        remark("%s has another answer: %s, ours is %s" % (engine, theirs, row))


if __name__ == "__main__":
    main(sys.argv[1:])
