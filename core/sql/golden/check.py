#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ask other engines the statements of the golden files and compare their answers with ours.

usage: check.py FILE.sql...

The first line of a file names its engine (`-- Checked with DuckDB`, `PostgreSQL`); the version
that was asked is written behind the name.  DuckDB is Python's module duckdb; PostgreSQL is reached
by psql with the caller's own PGHOST, PGUSER ...  A file without such a line shows what is ours
alone (other syntax, limits): it is left out.  Errors are compared as errors, whatever their
text.  By hand, when a file changes: no test needs the other engines.
"""
import csv
import io
import re
import subprocess
import sys


def blocks(text):
    """(statement, answer) of each block of a golden file."""
    for block in re.split(r"\n\n", text.strip("\n")):
        head, _, answer = block.partition("\n----")
        statement = re.sub(r"^(--[^\n]*\n?)+", "", head)
        if statement.strip():
            yield statement, answer.lstrip("\n")


def ask_duckdb(statement):
    import duckdb
    try:
        found = duckdb.sql(statement).fetchall()
    except duckdb.Error as error:
        return "error: " + str(error).split("\n")[0]
    return [[None if v is None else str(v) for v in row] for row in found]


def ask_postgres(statement):
    run = subprocess.run(["psql", "-X", "-q", "--csv", "-t", "-P", "null=\\N", "-v",
                          "ON_ERROR_STOP=1", "-c", "set timezone = 'UTC'", "-c", statement],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        return "error: " + run.stderr.strip().split("\n")[0]
    return [[None if v == "\\N" else v for v in row] for row in csv.reader(io.StringIO(run.stdout))]


def version(engine):
    if engine == "DuckDB":
        import duckdb
        return duckdb.__version__
    out = subprocess.run(["psql", "-X", "-t", "-A", "-c", "show server_version"],
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    return out.split()[0]


def plain(value):
    """One spelling for what engines write differently."""
    if value in (None, "", "(null)"):
        return ""
    low = {"t": "true", "f": "false", "True": "true", "False": "false"}.get(value, value)
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|\+00)?", low)
    if match:
        fraction = (match[3] or "").rstrip("0")
        return "%s %s%s" % (match[1], match[2], "." + fraction if fraction else "")
    try:
        return "%.9g" % float(low)
    except ValueError:
        return low


def rows_of(answer):
    return [[plain(v) for v in row] for row in csv.reader(io.StringIO(answer))]


def check(path):
    with open(path, encoding="utf-8") as source:
        text = source.read()
    head = re.match(r"-- Checked with (\w+)", text)
    if not head:
        print("%s: ours alone" % path)
        return 0
    engine = head[1]
    ask = {"DuckDB": ask_duckdb, "PostgreSQL": ask_postgres}[engine]
    count = differ = 0
    for statement, ours in blocks(text):
        theirs = ask(statement)
        count += 1
        if isinstance(theirs, str) or ours.startswith("error:"):
            same = isinstance(theirs, str) and ours.startswith("error:")
        else:
            same = rows_of(ours) == [[plain(v) for v in row] for row in theirs]
        if not same:
            differ += 1
            print("%s: %s\n  ours:   %s\n  theirs: %s\n" % (path, statement, ours.strip(), theirs))
    text = re.sub(r"(-- Checked with %s)( [\d.]+\d)?" % engine,
                  r"\1 " + version(engine), text, count=1)
    with open(path, "w", encoding="utf-8") as target:
        target.write(text)
    print("%s: %d statements, %d differ from %s" % (path, count, differ, engine))
    return differ


if __name__ == "__main__":
    sys.exit(1 if sum(map(check, sys.argv[1:])) else 0)
