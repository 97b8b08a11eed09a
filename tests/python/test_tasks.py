# SPDX-License-Identifier: Apache-2.0
"""`backtrace --tasks` and `--locals=repr`: what only Python code in the process can tell."""
import json
import os
import re
import subprocess
import time

import pytest
from scripts import python_frames
from world import DEBIAN_PYTHON, wait_for

pytestmark = pytest.mark.some_pythons

TASKS = """
import asyncio
class Nasty:
    def __repr__(self): raise ValueError("no")
async def leaf(n):
    await asyncio.sleep(600)  # sleeps
async def letters():
    await leaf(3)
    yield 1
async def middle():
    async for x in letters():
        pass
async def waiter(task):
    await task  # waits
async def main():
    a = asyncio.ensure_future(middle())
    b = asyncio.ensure_future(waiter(a))
    c = asyncio.ensure_future(leaf(5))
    d = asyncio.ensure_future(asyncio.sleep(0))
    for name, task in zip("abc", (a, b, c)):
        task.set_name(name)
    nasty, long = Nasty(), ["x" * 50] * 50
    await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.gather(a, b, c)  # gathers
asyncio.run(main())
"""

SLOW = """
import time
class Slow:
    def __repr__(self):
        while True: pass
def f():
    first, slow, last = 1, Slow(), 2
    print("ready", flush=True)
    time.sleep(600)
f()
"""


def tasks_of(target):
    done = target.probing("backtrace", "--tasks", "--json")
    assert done.returncode == 0, done.stderr
    return {t["name"]: t for t in json.loads(done.stdout)["tasks"]}


def test_what_tasks_await(world, python):
    target = world.start(python, TASKS).inject()
    wait_for(lambda: [t["state"] for t in tasks_of(target).values()] == ["waiting"] * 4,
             "all tasks to wait")
    tasks = tasks_of(target)
    main, = [t for name, t in tasks.items() if name not in ("a", "b", "c")]
    assert sorted(main["waits_for"]) == ["a", "b", "c"]
    assert [(f["func"], f["line"]) for f in main["frames"]] == [("main", target.line("gathers"))]
    assert [f["func"] for f in tasks["a"]["frames"]] == ["sleep", "leaf", "letters", "middle"]
    assert tasks["a"]["frames"][1]["line"] == target.line("sleeps")
    assert tasks["b"]["waits_for"] == ["a"]
    assert tasks["b"]["frames"][0]["line"] == target.line("waits")
    assert tasks["c"]["waits_for"] == ["Future"]
    text = target.probing("backtrace", "--tasks").stdout
    assert 'Task "b" (waiting for a)\n  0 waiter  ' in text, text
    assert target.alive()


def test_no_asyncio(world, python):
    target = world.start(python, "import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    target.inject()
    assert "no asyncio task and no greenlet" in target.probing("backtrace", "--tasks").stdout


def test_repr_of_variables(world, python):
    target = world.start(python, TASKS.replace("asyncio.run(main())", """
def plain():
    nasty, long, number = Nasty(), ["x" * 50] * 50, 7
    print("ready", flush=True)
    import time
    time.sleep(600)
plain()
""")).inject()
    done = target.probing("backtrace", "--locals=repr", "--json")
    assert done.returncode == 0, done.stderr
    thread = json.loads(done.stdout)["threads"][0]
    seen = [f for f in thread["frames"] if f["func"] == "plain"][0]["locals"]
    assert seen["nasty"] == "<repr of Nasty raised ValueError>"
    assert seen["number"] == "7" and len(seen["long"]) == 203 and seen["long"].endswith("...")
    text = target.probing("backtrace", "--locals=repr", "--thread", str(thread["tid"])).stdout
    assert "      number = 7\n" in text, text
    assert target.alive()


def test_repr_without_threading(world, python):
    """Threads have their ids all the same; variables of a module and a class body are there."""
    target = world.start(python, """
import _thread, time
rate, hidden = 0.5, time
def waits(turn):
    class Body:
        field = turn
        print("ready", flush=True)
        time.sleep(600)
_thread.start_new_thread(waits, (1,))
time.sleep(600)
""").inject()
    threads = {t["tid"]: t for t in json.loads(
        target.probing("backtrace", "--locals=repr", "--json").stdout)["threads"]}
    other, = set(threads) - {target.pid}
    assert str(other) in os.listdir("/proc/%d/task" % target.pid)
    assert [f["locals"] for f in threads[target.pid]["frames"]] == [{"rate": "0.5"}]
    assert [f["locals"] for f in threads[other]["frames"]] == [{"field": "1"}, {"turn": "1"}]
    assert threads[other]["name"].startswith("python")
    text = target.probing("backtrace", "--locals=repr", "--thread", str(other)).stdout
    assert text.startswith("Thread %d " % other) and "rate" not in text


def test_repr_that_never_ends(world, python):
    target = world.start(python, SLOW).inject()
    begun = time.monotonic()
    done = target.probing("backtrace", "--locals=repr")
    assert done.returncode != 0 and "interrupted" in done.stderr, done.stderr
    assert time.monotonic() - begun < 40
    assert target.probing("eval", "6 * 7").stdout == "42\n"
    assert target.alive()


def test_not_from_outside(world, python):
    target = world.start(python, SLOW)
    target.wait_line("^ready")
    for word in "--tasks", "--locals=repr":
        done = target.probing("backtrace", "--external", word)
        assert done.returncode != 0 and "run code in the process" in done.stderr, done.stderr


GREENLETS = """
import greenlet, time
def inner():
    main.switch()
    print("ready", flush=True)
    time.sleep(600)
def job():
    inner()
main = greenlet.getcurrent()
other = greenlet.greenlet(job)
other.switch()
def goes_back():
    other.switch()
goes_back()
"""


def test_greenlets(world):
    """A greenlet lies below another one's stack, which is not its caller; --tasks shows that."""
    if subprocess.run([DEBIAN_PYTHON, "-c", "import greenlet"], capture_output=True).returncode:
        pytest.skip("no greenlet in %s (python3-greenlet)" % DEBIAN_PYTHON)
    target = world.start(DEBIAN_PYTHON, GREENLETS).inject()
    main = target.threads()[target.pid]
    assert [name for name, _ in python_frames(main)] == ["inner", "job"], main
    assert main["frames"][0]["type"] == "native" and not main.get("notes"), main
    text = target.probing("backtrace", "--tasks").stdout
    assert re.search(r'^Task "greenlet 0x\w+" \(waiting\)\n +0 goes_back ', text), text
