# SPDX-License-Identifier: Apache-2.0
"""A plugin's function that crashes on a thread of the core: the process dies as it would, and its
report has all threads and names the thread, the plugin and the function.

The plugin is tests/hostile/plugins/crashes.c.
"""
import os
import signal

import pytest

from world import BUILD, LIMIT, world  # noqa: F401

PLUGIN = BUILD / "tests" / "hostile" / "plugins" / "crashes.so"
X86 = os.uname().machine == "x86_64"
HOW = {"overflow": signal.SIGSEGV, "null": signal.SIGSEGV, "abort": signal.SIGABRT,
       "divide": signal.SIGFPE, "bus": signal.SIGBUS}
LUA = 'for r in probing.query("select * from crashes.rows") do print(r.n) end\n'

# The function; its thread; what the report calls it; what makes the core call it once it is loaded.
WHERE = {
    "constructor": ("probing/control", "a constructor of its file", None),
    # In init() and start() the control thread has a name that threads of the plugin inherit.
    "init": ("plugin crashes", "init()", None),
    "configure": ("probing/control", "configure() of setting any", None),
    "start": ("plugin crashes", "start()", None),
    "handler": ("probing/control", "handler of topic crashes/1", None),
    "stop": ("probing/control", "stop()", ["plugin", "stop", "crashes"]),
    "destroy": ("probing/control", "destroy()", ["plugin", "stop", "crashes"]),
    "every": ("probing/work", "every()", None),
    "command": ("probing/", "command crash now", ["crash", "now"]),
    "scan": ("probing/", "scan() of table crashes.rows", ["query", "select * from crashes.rows"]),
    "extension": ("probing/", "cost()",
                  ["query", "select * from probing.overhead"]),
}


def crash(world, function, how, ask, options=("-c",)):
    if how == "divide" and not X86:
        pytest.skip("this machine does not fault there")
    target = world.start("sleep", "600", env={"CRASHES": "%s %s" % (function, how)})
    target.inject(*options, "-D", "probing.plugins=")
    loaded = target.probing("plugin", "load", str(PLUGIN))
    if ask:
        assert loaded.returncode == 0, loaded.stderr
        target.probing(*ask)
    assert target.process.wait(LIMIT) == -HOW[how]
    return target


def report(target):
    rows = target.rows("select signal, plugin, plugin_function, thread_name, message, note "
                       "from crash.reports")
    assert len(rows) == 1, rows
    return rows[0]


@pytest.mark.parametrize("function, how", [(function, "overflow") for function in WHERE] +
                         [(function, how) for function in ("every", "scan", "handler")
                          for how in HOW if how != "overflow"])
def test_a_crash_names_the_function_of_the_plugin(world, function, how):  # noqa: F811
    thread, words, ask = WHERE[function]
    target = crash(world, function, how, ask)
    name, plugin, said, thread_name, message, note = report(target)
    assert [name, plugin, said, note] == [HOW[how].name, "crashes", words, None]
    assert thread_name.startswith(thread), thread_name
    assert ("the stack of the thread is full" in message) == (how == "overflow"), message
    assert message.endswith("; plugin crashes: " + words), message
    # The program's own thread is in it, too.
    assert target.rows("select count(distinct tid) from crash.frames where thread_name = 'sleep' "
                       "and state = 'waiting'") == [[1]]
    done = target.probing("backtrace")
    assert done.returncode == 0 and "; plugin crashes: " + words in done.stdout, done.stdout


def test_a_thread_that_the_plugin_started(world):  # noqa: F811
    target = crash(world, "thread", "null", None)
    assert report(target)[:3] == ["SIGSEGV", "crashes", "a thread of its own"]


def test_a_script_runs_into_it(world):  # noqa: F811
    script = world.tmp / "reads.lua"
    script.write_text(LUA)
    target = crash(world, "scan", "overflow", ["script", "run", str(script)])
    assert report(target)[:3] == ["SIGSEGV", "crashes", "scan() of table crashes.rows"]
    assert report(target)[3].startswith("probing/")


def test_without_a_handler_it_dies_as_it_would(world):  # noqa: F811
    target = crash(world, "every", "overflow", None, options=())
    done = target.probing("backtrace")
    assert done.returncode == 1 and "left no stacks" in done.stderr, done
    assert not list(world.data.glob("*/crash"))


def test_a_plugin_that_the_core_begins_with(world):  # noqa: F811
    """Its file is mapped by the thread that loads plugins, or by the control thread for it."""
    target = world.start("sleep", "600", env={
        "LD_PRELOAD": str(BUILD / "libprobing.so"), "PROBING_CRASH": "1",
        "PROBING_PLUGINS": "crashes", "PROBING_PLUGIN_PATH": str(PLUGIN.parent),
        "CRASHES": "constructor overflow"})
    assert target.process.wait(LIMIT) == -signal.SIGSEGV
    assert report(target)[:3] == ["SIGSEGV", "crashes", "a constructor of its file"]
