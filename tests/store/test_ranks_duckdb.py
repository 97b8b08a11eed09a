# SPDX-License-Identifier: Apache-2.0
"""Statements over many ranks, made by chance: DuckDB says the same of one table with all rows.

The unit program core/sql/distribute/generated_test.c has the ranks, their rows and the statements.
"""
import json
import os
import subprocess

import pytest
from readers import python_with
from world import BUILD

PROGRAM = BUILD / "tests" / "core-sql-distribute-generated_test"
TRIES = 20000 if os.environ.get("PROBING_TEST_FULL") else 500
TYPES = {"bigint": "BIGINT", "double": "DOUBLE", "text": "VARCHAR", "boolean": "BOOLEAN",
         "timestamp": "TIMESTAMP", "date": "DATE", "null": "VARCHAR"}

# Runs where duckdb is; reads the program's lines, and writes a line for each difference.
ASK = r'''
import datetime, json, math, sys, duckdb
TYPES = json.loads(sys.argv[1])
ODD = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
base = duckdb.connect()
base.execute("create schema s")
base.execute("set threads = 1")

def cell(value, kind):
    if kind == "double" and isinstance(value, str):
        return ODD[value]
    if value is not None and kind in ("timestamp", "date"):
        text = value.replace("Z", "").replace("T", " ")
        return text[:26] if kind == "timestamp" else text[:10]
    return value

def plain(value):
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ", "microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if hasattr(value, "as_tuple"):
        return float(value)
    return value

def same(a, b):
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None \
            or isinstance(a, str) or isinstance(b, str):
        return a == b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b)) or max(abs(a), abs(b)) < 1e-12

asked = differ = refused = 0
for line in sys.stdin:
    item = json.loads(line)
    answer = item["answer"]
    if item["kind"].startswith("table"):
        columns = answer["columns"]
        name = "s." + item["kind"][-1]
        base.execute("create table %s (%s)" % (name, ", ".join(
            '"%s" %s' % (c["name"], TYPES[c["type"]]) for c in columns)))
        base.executemany("insert into %s values (%s)" % (name, ", ".join("?" * len(columns))),
                         [[cell(v, c["type"]) for v, c in zip(row, columns)]
                          for row in answer["rows"]])
        continue
    asked += 1
    sql = item["sql"].replace("global.", "")
    try:
        theirs = [[plain(v) for v in row] for row in base.execute(sql).fetchall()]
    except duckdb.Error as error:
        if answer is None:
            continue
        refused += 1
        print("refused: %s\n  %s" % (sql, str(error).split("\n")[0]), file=sys.stderr)
        continue
    if answer is None:
        differ += 1
        print("%s\n  ours: %s" % (item["sql"], item["error"]))
        continue
    kinds = [c["type"] for c in answer["columns"]]
    ours = [[cell(v, k) for v, k in zip(row, kinds)] for row in answer["rows"]]
    if "corr(" in sql or "regr_" in sql:  # of one row: NULL as in PostgreSQL, NaN in DuckDB
        theirs = [[None if a is None and b != b else b for a, b in zip(*rows)]
                  for rows in zip(ours, theirs)] if len(ours) == len(theirs) else theirs
    if len(ours) != len(theirs) or not all(
            len(a) == len(b) and all(map(same, a, b)) for a, b in zip(ours, theirs)):
        differ += 1
        print("%s\n  ours:   %.1000s\n  theirs: %.1000s" % (item["sql"], ours, theirs))
print(json.dumps({"asked": asked, "differ": differ, "refused": refused}))
'''


@pytest.mark.parametrize("seed", [1, 2])
def test_duckdb_says_the_same(seed):
    if not PROGRAM.exists():
        pytest.skip("the unit programs are not built: scons unit")
    duck = python_with("duckdb")
    made = subprocess.run([str(PROGRAM), "print", str(seed), str(TRIES // 2)], capture_output=True,
                          text=True)
    assert made.returncode == 0, made.stderr
    done = subprocess.run([str(duck / "python3"), "-c", ASK, json.dumps(TYPES)], input=made.stdout,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *differences, last = done.stdout.strip().split("\n")
    found = json.loads(last)
    assert found["asked"] == TRIES // 2 and not differences, "\n".join(differences[:30])
    assert found["refused"] <= found["asked"] // 20, done.stderr
