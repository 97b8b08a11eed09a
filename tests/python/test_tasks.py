# SPDX-License-Identifier: Apache-2.0
"""`backtrace --tasks` and `--locals=repr`: what only Python code in the process can tell."""
import asyncio
import glob
import json
import os
import re
import subprocess
import time

import pytest
from pythons import PYENV, minor_of
from scripts import python_frames
from world import DEBIAN_PYTHON, ROOT, wait_for

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
    assert target.probing("backtrace", "--tasks").stdout.startswith("no task of asyncio or trio")


CROWD = """
import asyncio
async def leaf(n):
    await asyncio.sleep(600)  # sleeps
async def main():
    tasks = [asyncio.ensure_future(leaf(n)) for n in range(3000)]
    for n, task in enumerate(tasks):
        task.set_name("t%d" % n)
    await asyncio.sleep(0.1)
    print("ready", flush=True)
    await asyncio.gather(*tasks)  # gathers
asyncio.run(main())
"""


def test_equal_tasks_are_one_entry(world, python):
    target = world.start(python, CROWD).inject()
    wait_for(lambda: tasks_of(target)["t7"]["state"] == "waiting", "all tasks to wait")
    text = target.probing("backtrace", "--tasks").stdout
    assert re.match(r'Event loop of asyncio\S+ in thread %d "MainThread": 3001 ' % target.pid,
                    text), text
    assert "(waiting for t0, t1, t2, t3, t4, 2995 more)\n  0 main " in text, text
    assert '\n3000 tasks "t0", "t1", "t2", "t3", "t4", ... (waiting for Future)\n  0 ' in text
    assert len(text.splitlines()) == 8 and text.index(" main ") < text.index(" leaf "), text
    tasks = tasks_of(target)
    assert len(tasks) == 3001 and {t["thread"] for t in tasks.values()} == {target.pid}


# Each waits for another one; a loop of a second thread has a task at the same place.
GROUPS = """
import asyncio, threading
async def leaf(): await asyncio.sleep(600)
async def child(): await leaf()
async def grouped():
    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(child(), name=name)
async def waits(): await asyncio.wait([asyncio.ensure_future(child()) for _ in range(2)])
async def limited(): await asyncio.wait_for(child(), 600)
async def main():
    kinds = [waits(), limited()] + ([grouped()] if hasattr(asyncio, "TaskGroup") else [])
    tasks = [asyncio.ensure_future(kind) for kind in kinds]
    for task, kind in zip(tasks, kinds): task.set_name(kind.__name__)
    await asyncio.sleep(0.1)
    threading.Thread(target=asyncio.run, args=(child(),), name="second", daemon=True).start()
    print("ready", flush=True)
    await asyncio.gather(*tasks)
asyncio.run(main())
"""


def test_groups_wait_for_their_tasks_and_loops_have_threads(world, python):
    target = world.start(python, GROUPS).inject()

    def all_wait():
        tasks = json.loads(target.probing("backtrace", "--tasks", "--json").stdout)["tasks"]
        return tasks if {t["state"] for t in tasks} == {"waiting"} and \
            len({t["loop"] for t in tasks}) == 2 else None
    tasks = wait_for(all_wait, "all tasks of both loops to wait")
    other, = [t for t in tasks if t["thread"] != target.pid]
    assert str(other["thread"]) in os.listdir("/proc/%d/task" % target.pid)
    named = {t["name"]: t for t in tasks if t is not other}
    assert len(named["waits"]["waits_for"]) == 2
    assert {named[name]["frames"][-1]["func"] for name in named["waits"]["waits_for"]} == {"child"}
    if minor_of(python) < 12:  # there wait_for() awaits in its own task
        assert [named[n]["frames"][-1]["func"] for n in named["limited"]["waits_for"]] == ["child"]
    if minor_of(python) >= 11:
        assert sorted(named["grouped"]["waits_for"]) == ["a", "b", "c"]
    text = target.probing("backtrace", "--tasks").stdout
    assert 'in thread %d "second": 1 task\n' % other["thread"] in text, text
    only = target.probing("backtrace", "--tasks", "--thread", str(other["thread"])).stdout
    assert only.startswith("Event loop of ") and only.count("Event loop") == 1, only


TRIO = """
import trio
async def leaf(): await trio.sleep(600)  # sleeps
async def main():
    async with trio.open_nursery() as nursery:
        for n in range(3): nursery.start_soon(leaf, name="child %d" % n)
        print("ready", flush=True)
trio.run(main)
"""


def test_trio(world):
    trio = [p for p in [DEBIAN_PYTHON, *glob.glob(PYENV + "/*/bin/python3")]
            if not subprocess.run([p, "-c", "import trio"], capture_output=True).returncode]
    if not trio:
        pytest.skip("no Python here has trio")
    target = world.start(trio[0], TRIO).inject()
    wait_for(lambda: {t["state"] for n, t in tasks_of(target).items() if "child" in n} ==
             {"waiting"}, "the tasks to wait")
    tasks = tasks_of(target)
    main, = [t for name, t in tasks.items() if name.endswith("main")]
    assert sorted(main["waits_for"]) == ["child 0", "child 1", "child 2"] and main["thread"] == \
        target.pid
    assert tasks["child 1"]["frames"][-1]["line"] == target.line("sleeps")
    text = target.probing("backtrace", "--tasks").stdout
    assert '3 tasks "child 0", "child 1", "child 2" (waiting)\n' in text, text
    assert text.startswith('Event loop of trio in thread %d "MainThread"' % target.pid), text


def test_tasks_that_are_not_reached_are_counted():
    """The tool itself, which is Python, with no time at all."""
    tools = {}

    def tool(name):
        if name not in tools:
            folder = "exec" if name == "safe" else "commands"
            source = ROOT / "plugins" / "python" / folder / (name + ".py")
            tools[name] = {"tool": tool}
            exec(compile(source.read_text(), name, "exec"), tools[name])
        return tools[name]

    class Out:
        text = ""

        def write(self, text):
            self.text += text

    async def main():
        never = asyncio.Event()
        others = [asyncio.ensure_future(never.wait()) for _ in range(4)]
        out = Out()
        tool("tasks")["main"](["--seconds", "0"], out)
        for other in others:
            other.cancel()
        return out.text
    assert asyncio.run(main()) == \
        "(5 of 5 tasks are not shown: they were not reached in 0 s)\n"


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
    assert done.returncode != 0, done.stdout
    assert "it did not end in 3 s and was interrupted" in done.stderr, done.stderr
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
    assert re.search(r'\nTask "greenlet 0x\w+" \(waiting\)\n +0 goes_back ', text), text
