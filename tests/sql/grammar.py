#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Look for wrong answers with statements by chance: against PostgreSQL, and against ourselves.

usage: grammar.py [--seconds=60] [--statements=N] [--seed=1] [--program=FILE] [--free]

A statement is asked of the unit program core/sql/golden_test.c (best of one built by `scons asan`)
and of PostgreSQL, where there is one.  Against ourselves: the rows where p, where not p and where p
is null are together all rows (ternary logic partitioning), and so many are counted where p as p is
true of (NoREC).  --free: statements that PostgreSQL refuses, of which DuckDB is asked where
Python's module is there; what both answer must be the same.
"""
import argparse
import pathlib
import shutil
import sys
import tempfile
import time
from collections import Counter

from compare import Ours, compare
from nested import Nested, Plain
from postgres import Postgres, Refused, find_programs

PAIRS = 200  # statements over one pair of tables
ROWS = (("a", 10), ("b", 7))
TOO_LATE = "ran longer than"  # our own limit, or a machine at full load


class Duck:
    """DuckDB in this process; it is asked for rows alone."""

    def __init__(self):
        try:
            import duckdb
        except ImportError:
            print("# no DuckDB here (pip install duckdb): only to see that nothing breaks")
            self.connection = None
            return
        self.connection = duckdb.connect()
        self.error = duckdb.Error

    def table(self, name, select):
        if self.connection:
            self.connection.execute("create or replace table %s as %s" % (name, select))

    def ask(self, statement):
        """Rows of no order; None: it does not say."""
        try:
            rows = self.connection and self.connection.execute(statement).fetchall()
        except self.error:
            return None
        return None if rows is None else Counter(str(list(row)) for row in rows)


class Search:
    def __init__(self, program, postgres, free=False):
        self.program, self.postgres, self.free = program, postgres, free
        self.duck = Duck() if free else None
        self.found, self.asked, self.refused, self.late = [], 0, 0, 0

    def tell(self, seed, what, *lines):
        if any(TOO_LATE in str(line) for line in lines):
            self.late += 1
            return
        self.found.append("%d %s:\n%s" % (seed, what, "\n".join("  %.3000s" % (x,) for x in lines)))

    def tables(self, generator, ours):
        for name, rows in ROWS:
            select = generator.table(rows)
            ours.table(name, select)
            if self.duck:
                self.duck.table(name, select)
            if self.postgres:
                self.postgres.ask("drop table if exists %s" % name)
                self.postgres.ask("create table %s as %s" % (name, select))

    def one(self, seed, generator, ours):
        """One statement to both, or one of each kind to ourselves."""
        if self.postgres and not generator.free:
            text, ordered = generator.statement()
            self.asked += 1
            both, difference = compare(ours, self.postgres, text, ordered)
            self.refused += both
            if difference:
                self.tell(seed, difference[0], text, difference[1], difference[2])
        elif generator.free:
            text = generator.statement()[0]
            self.asked += 1
            a, b = answer(ours, text), self.duck.ask(text)
            self.refused += b is None
            if b is not None and a != b:
                self.tell(seed, "DuckDB", text, a, b)
        for what, one, other in generator.parted():
            self.asked += 2
            a, b = answer(ours, one), answer(ours, other)
            self.refused += isinstance(a, str) and isinstance(b, str) and not self.free
            if isinstance(a, str) != isinstance(b, str) or (a != b and not isinstance(a, str)):
                self.tell(seed, what, one, other, a, b)

    def some(self, seed, count, until=None):
        """Statements over tables of one seed."""
        generator, ours = (Plain if self.free else Nested)(seed), Ours(self.program)
        try:
            self.tables(generator, ours)
            for _ in range(count):
                if until and time.monotonic() > until:
                    break
                self.one(seed, generator, ours)
        except (BrokenPipeError, ValueError) as ended:
            self.tell(seed, "the program ended", ended, ours.last)
        ours.close()


def answer(ours, statement):
    """Rows of no order, or the refusal."""
    try:
        return Counter(map(str, ours.ask(statement)[1]))
    except Refused as refused:
        return str(refused)


def with_postgres(do):
    """do(a PostgreSQL of our own, or None where there is none)"""
    if not find_programs():
        print("# no PostgreSQL here: only against ourselves")
        return do(None)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pg"))
    server = None
    try:
        folder.chmod(0o755)
        server = Postgres(folder)
        return do(server)
    finally:
        if server:
            server.close()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    build = pathlib.Path(__file__).resolve().parents[2] / "build"
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--statements", type=int, default=1 << 60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--program", default=str(build / "release/tests/core-sql-golden_test"))
    parser.add_argument("--free", action="store_true")
    options = parser.parse_args()

    def run(postgres):
        search = Search(options.program, postgres, options.free)
        end, seed, told = time.monotonic() + options.seconds, options.seed, 0
        while time.monotonic() < end and search.asked < options.statements:
            search.some(seed, PAIRS, end)
            seed += 1
            for found in search.found[told:]:
                print(found, flush=True)
            told = len(search.found)
        print(
            "%d statements from seed %d on, %d of them refused by all, %d too long; %d differ"
            % (search.asked, options.seed, search.refused, search.late, len(search.found))
        )
        return len(search.found)

    return 1 if with_postgres(run) else 0


if __name__ == "__main__":
    sys.exit(main())
