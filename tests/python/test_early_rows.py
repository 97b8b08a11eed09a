# SPDX-License-Identifier: Apache-2.0
"""Rows, spans and events that a program makes before somebody is there who could keep them: are
they lost, and is that said?"""
import subprocess

import pytest

from test_user_tables import HEAD, lost, said
from world import CORE, DEBIAN_PYTHON, wait_for

pytestmark = pytest.mark.some_pythons

BEFORE = HEAD + """
early, other = probing.table("early", {"n": int}), probing.table("other", {"n": int})
for n in range(7): early.append(n)
print("ready", flush=True)
while True: time.sleep(0.005)
"""


def test_rows_from_before_probing_came_are_told(world, python):
    """They are not lost: nobody was there who could have kept them."""
    target = world.start(python, BEFORE)
    target.wait_line("ready")
    target.inject()
    assert target.probing("eval", "early.append(7)").returncode == 0
    assert wait_for(lambda: said(target), "a line of the log") == [
        "python.early: 7 rows were appended before probing came, and are not kept"]
    assert lost(target) == [] and target.rows("select n from python.early") == [[7]]


def test_rows_from_before_the_plugin_came_are_lost_where_the_core_was_there(world):
    """As with `launch` on a machine that is short of processors: the library is in the program from
    its first instruction on, and all that is behind it comes after the rows."""
    done = from_the_first(world, """
early = probing.table("early", {"n": int})
for n in range(7): early.append(n)
probing.init()
early.append(7)
print(probing.query("select n from python.early"))
print(probing.query("select reason, rows from probing.lost"))
print(probing.query("select text from probing.log where text like 'python.early:%'"))
""")
    assert done.stdout.split("\n") == [
        "[(7,)]", "[('no_table', 7)]",
        "[('python.early: 7 rows were appended before its table was there, and are not kept; they "
        "are counted in probing.lost',)]", ""], done.stdout


def from_the_first(world, program):
    return subprocess.run([DEBIAN_PYTHON, "-c", HEAD + program], env=dict(
        world.env, LD_PRELOAD=str(CORE), PROBING="0", PROBING_LIBRARY=str(CORE)),
        stdout=subprocess.PIPE, timeout=100, universal_newlines=True)


def test_spans_from_before_the_plugin_came_are_lost_where_the_core_was_there(world):
    """Nothing was said about them."""
    done = from_the_first(world, """
@probing.span
def items(): yield 1
for n in range(3):
    with probing.span("early"): probing.event("also")
list(items())
probing.init()
with probing.span("kept"): probing.event("too")
print(probing.query("select count(*) from python.trace_event"))
print(probing.query("select reason, rows from probing.lost"))
print(probing.query("select text from probing.log where text like 'python.trace_event:%'"))
""")
    assert done.stdout.split("\n") == [
        "[(3,)]", "[('no_table', 11)]",
        "[('python.trace_event: 11 rows were appended before its table was there, and are not "
        "kept; they are counted in probing.lost',)]", ""], done.stdout


def test_spans_from_before_probing_came_are_not_lost(world):
    """Nobody was there who could have kept them; and after it has left nobody is, either."""
    target = world.start(DEBIAN_PYTHON, HEAD + """
def more():
    with probing.span("x"): pass
more()
print("ready", flush=True)
while True:
    more()
    time.sleep(0.005)
""")
    target.wait_line("ready")
    for _ in range(2):
        assert target.probing("inject", "--plugin", "python").returncode == 0
        wait_for(lambda: target.rows("select count(*) from python.trace_event")[0][0] > 3, "spans")
        assert lost(target) == []
        assert target.probing("eject").returncode == 0


FAILS = HEAD + """
attach = probing._attach
def fails(given):  # as where the stack is full, memory is, or a handler of a signal raises
    probing._attach = attach
    raise %s("once")
probing._attach = fails
table = probing.table("steps", {"n": int})
print("ready", flush=True)
n, caught = 0, False
while True:
    try:
        time.sleep(0.005)
        n += 1
        table.append(n)
    except KeyboardInterrupt:
        print("caught", flush=True)
"""


@pytest.mark.parametrize("error", ["RecursionError", "KeyboardInterrupt"])
def test_what_could_not_be_handed_over_comes_later(world, python, error):
    """It was tried once in a process's life: from then on all rows of the program were lost."""
    target = world.start(python, FAILS % error)
    target.wait_line("ready")
    target.inject()
    wait_for(lambda: target.rows("select 1 from probing.tables where name = 'steps'"),
             "the table", timeout=20)
    wait_for(lambda: target.rows("select 1 from python.steps limit 1"), "rows")
    assert ("caught" in target.output()) == (error == "KeyboardInterrupt")
