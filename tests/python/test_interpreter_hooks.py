# SPDX-License-Identifier: Apache-2.0
"""python.exceptions, python.gc, python.imports, python.threads: rows while asked for, and nothing
of it left afterwards."""
import pytest
import world as shared
from pythons import minor_of
from scripts import PACKAGE
from world import CLI, wait_for

pytestmark = pytest.mark.some_pythons

LOOP = """
import gc, os, sys, threading, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
bootstrap = sys.modules["_frozen_importlib"]
def hooks():
    tools = [sys.monitoring.get_tool(n) for n in range(6)] if hasattr(sys, "monitoring") else []
    return [sys.excepthook, sys.unraisablehook, threading.excepthook, list(gc.callbacks),
            bootstrap._find_and_load, tools]
before = hooks()
class Loud(Exception):
    def __str__(self): return "loud"
    __repr__ = __str__
def deep(n):
    if n: return deep(n - 1)
    raise Loud("told", 5)  # raises
def caught(n):
    try: deep(n)
    except Loud: pass
    try: int("seven")
    except ValueError: pass
def dies(): deep(2)
class Bad:
    def __del__(self): raise OSError("in del")
def turn():
    caught(3)
    t = threading.Thread(target=dies, name="worker"); t.start(); t.join()
    Bad()
    gc.collect()
    sys.modules.pop("outer_one", None); sys.modules.pop("inner_one", None)
    import outer_one
    try: import no_such_thing
    except ImportError: pass
print("ready", flush=True)
while not os.path.exists("stop"):
    turn()
    same = all(a is b or a == b for a, b in zip(before, hooks()))
    print("same" if same else "hooked", flush=True)
    time.sleep(0.01)
raise KeyError("the end")
"""


def start(world, python):
    (world.tmp / "inner_one.py").write_text("import time; time.sleep(0.005)")
    (world.tmp / "outer_one.py").write_text("import inner_one\nimport time; time.sleep(0.002)")
    return world.start(python, LOOP).inject()


def config(target, name, value):
    done = target.probing("config", "python.%s=%s" % (name, value))
    assert done.returncode == 0, done.stderr


def turns(target, word, count=3):
    """The program has gone round some times and found its hooks so."""
    said = target.output().count("\n" + word)
    wait_for(lambda: target.output().count("\n" + word) > said + count, word)


def test_unhandled(world, python):
    target = start(world, python)
    config(target, "exceptions", "unhandled")
    turns(target, "hooked")
    rows = target.rows("select type, func, lineno, thread_name, handled, message, stack "
                       "from python.exceptions where thread_name = 'worker'")
    assert rows and rows[0][:6] == ["Loud", "deep", target.line("raises"),
                                    "worker", 0, "('told', 5)"], rows[:1]
    # the message: not by __str__, which is theirs
    assert rows[0][6].startswith("deep ") and " < dies " in rows[0][6], rows[0][6]
    assert target.rows("select count(*) > 0 from python.exceptions where type = 'OSError' "
                       "and message = 'in del'") == [[True]]
    assert target.rows("select count(*) from python.exceptions where type = 'ValueError'") == [[0]]
    assert "Exception in thread worker" in target.output(), "it is printed as it was"
    (world.tmp / "stop").write_text("")
    assert target.process.wait(60) == 1 and "KeyError: 'the end'" in target.output()
    dead = str(next(world.data.glob("%d-*" % target.pid)))
    done = world.probing("-t", dead, "query", "--format", "csv",
                         "select type, message from python.exceptions order by ts desc limit 1")
    assert "KeyError,the end" in done.stdout, done.stdout + done.stderr


TASKS = """
import asyncio, sys, time
class Three:
    def __init__(self): self.n = 0
    def __iter__(self): return self
    def __next__(self):
        self.n += 1
        if self.n > 3: raise StopIteration
        return self.n
async def fails(): raise LookupError("nobody asked")
async def main():
    task = asyncio.ensure_future(fails())
    await asyncio.sleep(0.001)
    del task
before = asyncio.base_events.BaseEventLoop.call_exception_handler
print("ready", flush=True)
while True:
    asyncio.run(main())
    try: {}["x"]
    except KeyError: pass
    for _ in Three(): pass
    list(Three())
    time.sleep(0.005)
"""


def test_tasks_and_ends_of_loops(world, python):
    """An exception of a task that nobody asked for was in no hook that we had; each end of an
    iterator of the program's was a row."""
    target = world.start(python, TASKS).inject()
    config(target, "exceptions", "unhandled")
    wait_for(lambda: target.rows("select message, func from python.exceptions where handled = 0 "
                                 "limit 1") == [["nobody asked", "fails"]], "its row")
    assert "exception was never retrieved" in target.output(), "it is logged as before"
    if minor_of(python) >= 12:
        config(target, "exceptions", "raised")
        wait_for(lambda: target.rows("select count(*) > 3 from python.exceptions "
                                     "where type = 'KeyError'") == [[True]], "rows")
        assert target.rows("select count(*) from python.exceptions "
                           "where type like 'Stop%'") == [[0]]
    config(target, "exceptions", "off")
    wait_for(lambda: target.eval("asyncio.base_events.BaseEventLoop.call_exception_handler is "
                                 "before").stdout == "True\n", "its hook to be taken out")


def test_raised(world, python):
    target = start(world, python)
    done = target.probing("config", "python.exceptions=raised")
    if minor_of(python) < 12:
        assert done.returncode != 0 and "from CPython 3.12 on" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    wait_for(lambda: target.rows("select count(*) > 5 from python.exceptions "
                                 "where type = 'ValueError' and handled is null") == [[True]],
             "rows")
    rows = target.rows("select func, message, thread_name from python.exceptions "
                       "where type = 'ValueError' and handled is null limit 1")
    assert rows == [["caught", "invalid literal for int() with base 10: 'seven'", "MainThread"]]
    # once each, not again in every frame on its way out
    turns(target, "hooked")
    config(target, "exceptions", "off")
    turns(target, "same")
    (main,) = target.rows("select count(*) filter (where type = 'Loud'), "
                          "count(*) filter (where type = 'ValueError') from python.exceptions "
                          "where thread_name = 'MainThread'")
    assert abs(main[0] - main[1]) <= 1, main


def test_collections_and_imports(world, python):
    target = start(world, python)
    config(target, "gc", "on")
    config(target, "imports", "on")
    turns(target, "hooked")
    assert target.rows("select min(duration_ns) > 0, max(generation) from python.gc") == [[True, 2]]
    rows = target.rows("select name, parent, duration_ns, self_ns, failed from python.imports "
                       "where name in ('outer_one', 'inner_one', 'no_such_thing') order by ts")
    by_name = {row[0]: row for row in rows}
    # of one turn: the inner one ends, and is told, before the outer one
    names = [row[0] for row in rows]
    last = max(i for i, name in enumerate(names) if name == "outer_one")
    outer = rows[last]
    inner = [row for row in rows[:last] if row[0] == "inner_one"][-1]
    assert inner[1] == "outer_one" and outer[1] is None and outer[4] == inner[4] == 0
    assert inner[2] >= 5_000_000 and inner[3] == inner[2]
    assert outer[2] >= inner[2] and 2_000_000 <= outer[3] < outer[2]
    assert by_name["no_such_thing"][4] == 1
    config(target, "gc", "off")
    config(target, "imports", "off")
    turns(target, "same")
    said = target.rows("select count(*) from python.gc")
    turns(target, "same")
    assert target.rows("select count(*) from python.gc") == said


@pytest.mark.parametrize("how", ["off", "eject"])
def test_nothing_is_left(world, python, how):
    target = start(world, python)
    for name, value in (("exceptions", "raised" if minor_of(python) >= 12 else "unhandled"),
                        ("gc", "on"), ("imports", "on")):
        config(target, name, value)
    turns(target, "hooked")
    if how == "eject":
        assert target.probing("eject").returncode == 0
    else:
        for name in ("exceptions", "gc", "imports"):
            config(target, name, "off")
    turns(target, "same")
    said = target.output().count("\nhooked")
    turns(target, "same")
    assert target.output().count("\nhooked") == said
    assert target.alive()


def test_threads(world, python):
    target = world.start(python, """
import threading, time
def waits(): time.sleep(600)
threading.Thread(target=waits, name="a worker", daemon=True).start()
print("ready", threading.get_ident(), flush=True)
while True: time.sleep(0.01)
""").inject()
    rows = {row[2]: row for row in target.rows(
        "select ident, native_id, name, daemon, alive, func from python.threads")}
    assert set(rows) == {"MainThread", "a worker"}, rows
    assert rows["MainThread"][1] == target.pid and rows["MainThread"][3] == 0
    assert rows["a worker"][3:] == [1, 1, "waits"]
    assert str(rows["MainThread"][0]) in target.output()


def test_from_the_start(world, python):
    """launch: the core is there before the interpreter is; settings and tables come to life."""
    (world.tmp / "late_one.py").write_text("")
    script = world.tmp / "job.py"
    script.write_text("""
import os, sys, time
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), %r]
import probing
rows = probing.table("early", {"n": int})
while True:
    time.sleep(0.02)
    rows.append(1)
    sys.modules.pop("late_one", None)
    import late_one
""" % str(PACKAGE))
    target = shared.Target(world, [str(CLI), "launch", "-D", "python.imports=on", "--", python,
                                  str(script)])
    world.targets.append(target)
    for sql in ("select count(*) > 3 from python.imports where name = 'late_one'",
                "select count(*) > 3 from python.early"):
        def seen():
            done = target.probing("query", "--format", "csv", sql)
            return "true" in done.stdout
        wait_for(seen, sql)
    assert target.alive()
