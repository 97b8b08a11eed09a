# SPDX-License-Identifier: Apache-2.0
"""What probing/plugin.h says of threads and arguments is kept to, or the call fails and says why.

The plugin is tests/hostile/plugins/wrong_calls.c.
"""
import errno

import pytest

from world import BUILD, wait_for, world  # noqa: F401

PLUGIN = BUILD / "tests" / "hostile" / "plugins" / "wrong_calls.so"
THREAD, INVALID = -errno.EWOULDBLOCK, -errno.EINVAL

EXPECTED = {
    "table thread": THREAD, "command thread": THREAD, "subscribe thread": THREAD,
    "every thread": THREAD, "table every": THREAD, "command every": THREAD,
    "subscribe every": THREAD, "every every": THREAD,
    "append right": 0, "append short": 0, "append more": INVALID, "append tail": INVALID,
    "append computed": INVALID, "append nothing": INVALID,
    "append id": 0,  # seen when the row is stored: the cell is NULL then, and counted
    "intern nothing": INVALID, "intern nowhere": INVALID, "publish": INVALID, "holds": THREAD,
    "emit right": 0, "emit less": INVALID, "emit more": INVALID, "emit nothing": INVALID,
    "emit nowhere": THREAD, "emit id": INVALID, "emit thread": THREAD,
    "reply nothing": INVALID, "reply thread": THREAD,
}

# One line for each function, of the first such call.
SAID = [
    "wrong call: append() to table rows with 4 cells, and it has 2 columns; such rows are not kept",
    "wrong call: append() to table rows with a cell of a text that is no id of intern(); such "
    "cells are NULL",
    "wrong call: append() to table rows with a tail, and it has none; such rows are not kept",
    "wrong call: emit() to table texts with 1 cells, and it has 2 columns",
    "wrong call: emit() to table texts with 0x2a for the text of column name; emit() takes the "
    "address of a text, append() an id of intern()",
    "wrong call: holds() of setting any outside of configure()",
    "wrong call: intern() of 5 bytes without an address",
    "wrong call: publish() of topic wrong/1 with 4 bytes that do not begin with their number, a "
    "uint32_t",
    "wrong call: scan() of positive returned 5; on failure it returns a negative errno (-EIO, not "
    "EIO)",
]
ON_CONTROL = ("call it on the control thread: in init, configure, start, stop, or a handler of a "
              "topic")


@pytest.fixture
def answers(world):  # noqa: F811
    target = world.start("sleep", "600")
    target.inject("-D", "probing.plugins=")
    loaded = target.probing("plugin", "load", str(PLUGIN))
    assert loaded.returncode == 0, loaded.stderr

    def ask():
        out = target.probing("wrong_calls").stdout
        return out if "done 0\n" in out else None

    wait_for(ask, "the tick")
    assert target.rows("select name, n from wrong_calls.texts") == [["text", 1]]
    return target, dict(line.rsplit(" ", 1) for line in ask().splitlines())


def test_each_is_refused(answers):
    target, given = answers
    assert {what: int(rc) for what, rc in given.items() if what != "done"} == EXPECTED
    assert target.alive()


def test_rows_are_kept_without_what_was_wrong(answers):
    target, _ = answers
    kept = target.rows("select name, n from wrong_calls.rows")
    assert sorted(kept, key=str) == [["right", 1], ["right", None], [None, 1]]
    assert target.rows("select reason, rows from probing.lost where table_name = "
                       "'wrong_calls.rows' order by reason") == [["bad_row", 2], ["value", 1]]


def test_each_function_is_said_once(answers):
    target, _ = answers
    assert target.rows("select count(*) from wrong_calls.rows") == [[3]]  # they are stored now
    failed = target.probing("query", "select * from wrong_calls.positive")
    assert failed.returncode != 0 and "scan() of positive returned 5" in failed.stderr, failed
    target.probing("plugin", "stop", "wrong_calls")
    said = [row[0] for row in target.rows(
        "select text from probing.log where source = 'wrong_calls' order by text")]
    assert [line for line in SAID if said.count(line) != 1] == [], "\n".join(said)
    for function in ("table", "command", "subscribe", "every"):
        lines = [line for line in said if line.startswith("wrong call: %s() was called" % function)]
        assert len(lines) == 1 and lines[0].endswith(ON_CONTROL), said
    for function, of in (("emit", "scan"), ("reply", "run")):
        lines = [line for line in said if line.startswith("wrong call: %s() was called" % function)]
        assert len(lines) == 1 and "outside of the %s() that" % of in lines[0], said


def test_the_first_is_the_plugins_reason(answers):
    target, _ = answers
    reason, = target.rows("select reason from probing.plugins where name = 'wrong_calls'")[0]
    assert reason.startswith("wrong call: table() was called on thread "), reason


def test_check_finds_each(world):  # noqa: F811
    done = world.probing("plugin", "check", str(PLUGIN))
    assert done.returncode == 1, done.stdout + done.stderr
    found = [line.split("NOT RIGHT: ")[1] for line in done.stdout.splitlines()
             if line.startswith("calls ")]
    for line in SAID:
        assert line[len("wrong call: "):] in found, done.stdout
    for function in ("table", "command", "subscribe", "every", "emit"):
        assert any(line.startswith(function + "() was called") for line in found), done.stdout


def test_check_says_that_there_is_none(world):  # noqa: F811
    done = world.probing("plugin", "check", str(PLUGIN.parent / "well.so"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "calls      none that probing/plugin.h rules out" in done.stdout, done.stdout
