# SPDX-License-Identifier: Apache-2.0
"""Statements of selects within selects, by chance: they say what PostgreSQL says, and a condition
parts the rows of a select.  See grammar.py, which `scons soak` runs for long.

PROBING_TEST_FULL=1 asks for many more; PROBING_TEST_SEED=n for others.
"""
import os

from grammar import Search, with_postgres
from test_postgres import PROGRAM

SEEDS, STATEMENTS = (20, 200) if os.environ.get("PROBING_TEST_FULL") else (2, 12)


def test_selects_within_selects_have_right_answers():
    seed = int(os.environ.get("PROBING_TEST_SEED", "1"))

    def run(postgres):
        search = Search(PROGRAM, postgres)
        for at in range(seed, seed + SEEDS):
            search.some(at, STATEMENTS)
        return search

    search = with_postgres(run)
    assert not search.found, "%d of %d differ:\n%s" % (
        len(search.found),
        search.asked,
        "\n".join(search.found[:5]),
    )
    assert search.late < search.asked / 10 and search.refused < search.asked / 10


def test_names_in_subqueries_of_recursive_selects_break_nothing():
    search = Search(PROGRAM, None, free=True)
    search.some(1, STATEMENTS)
    assert not search.found, "\n".join(search.found[:5])
