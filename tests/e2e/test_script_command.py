# SPDX-License-Identifier: Apache-2.0
"""`probing script`: parameters, a reload that keeps the state, help, check and one-liners."""
import re
import signal

import pytest

from world import CLI, LIMIT, ROOT, wait_for

IDLE = "import time\nprint('ready')\nwhile True: time.sleep(0.05)\n"
COUNTS = """-- Counts what it is told to.
-- Until it is stopped.
local args = probing.args{
    step = {default = 1, min = 1, doc = "how much is added at a time"},
    period = {type = "duration", default = "20ms"},
}
local t = probing.table("counts", {n = "i64"})
probing.state.n = probing.state.n or 0
probing.every(args.period, function()
    probing.state.n = probing.state.n + args.step
    t:add{n = probing.state.n}
end)
probing.on("script.counts", "n % 2 = 0", function(r) print("even " .. r.n) end)
probing.at_stop(function() print("ended") end)
"""


@pytest.fixture
def target(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    return target


@pytest.fixture
def counts(world):
    path = world.tmp / "counts.lua"
    path.write_text(COUNTS)
    return str(path)


def newest(target):
    return target.rows("select max(n) from script.counts")[0][0] or 0


def test_a_script_takes_parameters_and_keeps_its_state_over_a_reload(target, counts):
    done = target.probing("script", "run", counts, "step=2")
    assert done.returncode == 0, done.stderr
    wait_for(lambda: "even 6" in target.probing("script", "log", "counts").stdout, "three counts")
    assert target.rows("select count(*) from script.counts where n % 2 = 1") == [[0]]
    done = target.probing("script", "reload", counts, "step=1000000")
    assert done.returncode == 0, done.stderr
    wait_for(lambda: newest(target) > 1000000, "a count of the new one")
    assert target.rows("select count(*) from script.counts where n = 1000000") == [[0]]
    assert target.probing("script", "reload", "counts").returncode == 0
    assert target.probing("script", "stop", "counts").returncode == 0
    log = target.probing("script", "log", "counts").stdout
    assert log.count("ended") == 3 and "even " in log, log


@pytest.mark.parametrize("word,what", [
    ("stpe=1", "no parameter 'stpe'; this script has period, step"),
    ("step=x", "step=x must be a whole number"),
    ("step=0", "step=0 must be at least 1"),
    ("period=soon", "period=soon must be a time"),
    ("step", "unexpected argument 'step'"),
])
def test_a_wrong_parameter_is_named(target, counts, word, what):
    done = target.probing("script", "run", counts, word)
    assert done.returncode != 0 and what in done.stderr, done.stderr


def test_help_and_check_run_nothing(target, counts, world):
    done = target.probing("script", "help", counts)
    assert done.returncode == 0 and "Counts what it is told to.\nUntil" in done.stdout
    assert "step=1" in done.stdout and "at least 1; how much" in done.stdout
    done = target.probing("script", "check", counts)
    assert done.returncode == 0 and "nothing found" in done.stdout, done.stderr
    wrong = world.tmp / "wrong.lua"
    wrong.write_text("local t = probing.tabel('x', {})\nprobing.every('5 foo', print)\n"
                     "probing.query('select from where')\nprnt(t)\n")
    done = target.probing("script", "check", str(wrong))
    assert done.returncode == 1, done.stdout
    for line in ("wrong:1: probing has no 'tabel'; did you mean 'table'?", "wrong:2: probing.every",
                 "wrong:3: the statement: line 1, column 8", "wrong:4: unknown name 'prnt'"):
        assert line in done.stderr, done.stderr
    assert target.rows("select name from probing.scripts") == []
    assert target.rows("select table_name from information_schema.tables "
                       "where table_schema = 'script'") == []


def test_a_file_that_is_not_there_is_named(target, world):
    done = target.probing("script", "run", "nosuch.lua")
    assert done.returncode == 1 and "no file 'nosuch.lua' here, and no script of that name ships" \
        in done.stderr, done.stderr
    empty = world.tmp / "empty.lua"
    empty.write_text("")
    for verb, said in (("check", "nothing found"), ("help", "no parameters"), ("run", "runs")):
        done = target.probing("script", verb, str(empty))
        assert done.returncode == 0 and said in done.stdout, (verb, done.stdout, done.stderr)


def test_a_one_liner_ends_with_its_command(target):
    line = "probing.every('20ms', function() print('tick') end)"
    asking = target.world.start(str(CLI), "-t", str(target.pid), "script", "-e", line)
    asking.wait_line("^tick$")
    asking.process.send_signal(signal.SIGINT)
    asking.process.wait(timeout=LIMIT)
    assert target.rows("select state from probing.scripts") == [["stopped"]]
    done = target.probing("script", "-e", "print(1 + 1)")
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr
    done = target.probing("script", "-e", "error('bang')")
    assert done.returncode == 1 and "bang" in done.stderr


def test_points_lists_what_can_be_hooked(target, counts):
    target.probing("script", "run", counts)
    done = target.probing("script", "points", "counts")
    assert "script.counts" in done.stdout and "n bigint" in done.stdout, done.stdout
    done = target.probing("script", "-e", "probing.on('probing.log', print)")
    assert done.returncode == 1 and "computed when it is asked" in done.stderr
    done = target.probing("script", "-e", "probing.on('script.nothing', print)")
    assert done.returncode == 1 and "unknown table 'script.nothing'" in done.stderr


def test_the_stubs_for_editors_name_what_there_is(target):
    """sdk/probing.lua, against the table that a script sees."""
    there = "for k in pairs(probing) do print(k) end"
    done = target.probing("script", "-e", there)
    stubs = (ROOT / "sdk" / "probing.lua").read_text()
    named = set(re.findall(r"^function probing\.(\w+)", stubs, flags=re.M))
    named |= set(re.findall(r"^---@field (\w+)", stubs.split("probing = {}")[0], flags=re.M))
    assert set(done.stdout.split()) == named
    methods = "for k in pairs(getmetatable(probing.window('a.b', '1s'))) do print(k) end"
    done = target.probing("script", "-e", methods)
    there = set(done.stdout.split()) - {"__index"}
    assert there == set(re.findall(r"^function window:(\w+)", stubs, flags=re.M))
