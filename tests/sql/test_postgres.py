# SPDX-License-Identifier: Apache-2.0
"""Statements made by chance say here what a real PostgreSQL says: values, types, order, and whether
there is an answer at all.

The unit program core/sql/golden_test.c answers for us.  PROBING_TEST_FULL=1 asks for many more;
PROBING_TEST_SEED=n for others.  docs/sql.md has the list of what differs on purpose.
"""
import os
import pathlib
import shutil
import tempfile

import pytest
from compare import Ours, compare
from postgres import Postgres, find_programs
from statements import Generator
from world import BUILD

PROGRAM = BUILD / "tests" / "core-sql-golden_test"
TABLES = 50 if os.environ.get("PROBING_TEST_FULL") else 1  # pairs of tables
STATEMENTS = 1000  # for each pair
TOLD = 10  # differences that are printed


@pytest.fixture
def postgres():
    if not find_programs():
        pytest.skip("no PostgreSQL here: initdb and postgres are not found")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pg"))
    server = None
    try:
        folder.chmod(0o755)
        server = Postgres(folder)
        yield server
    finally:
        if server:
            server.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_generated_statements_answer_as_postgresql(postgres):
    seed = int(os.environ.get("PROBING_TEST_SEED", "1"))
    found, refused = [], 0
    for at in range(seed, seed + TABLES):
        generator, ours = Generator(at), Ours(PROGRAM)
        for name, rows in (("a", 24), ("b", 16)):
            select = generator.table(rows)
            ours.table(name, select)
            postgres.ask("drop table if exists %s" % name)
            postgres.ask("create table %s as %s" % (name, select))
        for _ in range(STATEMENTS):
            text, ordered = generator.statement()
            both_refuse, difference = compare(ours, postgres, text, ordered)
            refused += both_refuse
            if difference:
                found.append(
                    "%d: %s\n  %s\n  ours:   %.300s\n  theirs: %.300s"
                    % (at, text, difference[0], difference[1], difference[2])
                )
        ours.close()
    assert not found, "%d of %d differ:\n%s" % (
        len(found),
        TABLES * STATEMENTS,
        "\n".join(found[:TOLD]),
    )
    assert refused < TABLES * STATEMENTS / 3  # most of them do have an answer
