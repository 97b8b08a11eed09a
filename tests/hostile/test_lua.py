# SPDX-License-Identifier: Apache-2.0
"""Scripts that do not want to end: each ends when it is told to, and none outlives eject.

tests/hostile/lua/ holds one kind each.  PROBING_HOSTILE_SCRIPTS=10000 makes so many of them, by
chance but always the same, and prints how long they took to end.
"""
import os
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from world import BUILD, threads_of, wait_for

KINDS = sorted((Path(__file__).parent / "lua").glob("*.lua"))
STORM = BUILD / "tests" / "hostile" / "lua_storm"
N_SCRIPTS = int(os.environ.get("PROBING_HOSTILE_SCRIPTS", "300"))
IDLE = "import time\nprint('ready')\nwhile True: time.sleep(0.05)\n"

# Places that a piece may stand in; {} is the piece, as statements.
AROUND = """
do {} end
while true do pcall(function() {} end) end
while true do xpcall(function() {} end, function() {} end) end
xpcall(error, function() {} end)
coroutine.wrap(function() {} end)()
while true do local c = coroutine.create(function() {} end) coroutine.resume(c) end
local c = coroutine.create(function() local x <close> = setmetatable({{}}, {{__close = \
function() {} end}}) coroutine.yield() end) coroutine.resume(c) coroutine.close(c)
setmetatable({{}}, {{__gc = function() {} end}}) collectgarbage()
KEPT = setmetatable({{}}, {{__gc = function() {} end}})
local x <close> = setmetatable({{}}, {{__close = function() {} end}}) error("out")
local x = #setmetatable({{}}, {{__len = function() {} end}})
local x = setmetatable({{}}, {{__index = function() {} end}}).x
tostring(setmetatable({{}}, {{__tostring = function() {} end}}))
error(setmetatable({{}}, {{__tostring = function() {} end}}))
table.sort({{3, 2, 1, 4}}, function(a, b) {} end)
string.gsub("xyz", ".", function() {} end)
assert(load(function_text))() -- {}
probing.every("10ms", function() {} end)
for _ = 1, 3 do pcall(function() {} end) end
"""


def around(piece, chance):
    """The piece inside something else."""
    shape = chance.choice(AROUND.strip().split("\n"))
    if shape.startswith("assert(load"):
        text = "do local load = load " + piece + " end"
        level = "=" * (piece.count("]=") + 3)
        return "assert(load([%s[\n%s\n]%s]))()" % (level, text, level)
    return shape.replace("{}", "\n" + piece + "\n").replace("{{", "{").replace("}}", "}")


def one(chance):
    text = chance.choice(KINDS).read_text()
    if chance.random() < 0.2:  # two, by turns
        other = chance.choice(KINDS).read_text()
        text = "pcall(function()\n%s\nend)\n%s" % (other, text)
    for _ in range(chance.choice((0, 0, 1, 1, 1, 2, 3))):
        text = around("do\n%s\nend" % text, chance)
    return text


def scripts(n):
    """So many hostile scripts, each with how long it may run in microseconds."""
    chance = random.Random(5)
    for _ in range(n):
        delay = chance.choice((0.0002, 0.002, 0.01, 0.03, 0.1)) * (0.5 + chance.random())
        if chance.random() < 0.02:  # until it has used up what it may use at once
            delay += 0.4
        yield int(delay * 1e6), one(chance).encode()


def test_hostile_scripts_end_when_they_are_told_to(tmp_path):
    made = list(scripts(N_SCRIPTS))
    text = b"".join(b"%d %d\n%s" % (delay, len(source), source) for delay, source in made)
    done = subprocess.run([str(STORM)], input=text, capture_output=True,
                          timeout=60 + 2 * N_SCRIPTS)
    lines = done.stdout.decode(errors="replace").splitlines()
    ended = [line.split(" ", 1) for line in lines if line[:1].isdigit()]
    bad = made[len(ended)][1].decode() if len(ended) < len(made) else ""
    assert done.returncode == 0, (done.stderr, lines[-1:], bad)
    words = [line.split() for line in lines[len(ended):]]
    assert words[1] == ["threads", "0"]
    before, after = int(words[0][1]), int(words[0][2])
    took = sorted(int(line[0]) / 1e3 for line in ended)
    stopped = sum(line[1] == "stopped" for line in ended)
    # A third at least has to be in the middle of it, or this shows nothing.
    assert stopped > len(ended) / 3, ended[:20]
    print("%d scripts, %d stopped in the middle; ms from stop to end: median %.2f, p99 %.2f, "
          "p99.9 %.2f, most %.2f; rss %d to %d KiB"
          % (len(took), stopped, took[len(took) // 2], took[len(took) * 99 // 100],
             took[len(took) * 999 // 1000], took[-1], before, after))
    # What a script had goes back to the kernel.  What stays is bounded: tables, texts, settings.
    assert after - before < 160 * 1024, words


def lua_threads(target):
    return threads_of(target.pid).count("probing/lua")


@pytest.mark.parametrize("first", range(0, len(KINDS), 16))
def test_none_outlives_eject(world, first):
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    with ThreadPoolExecutor(16) as pool:  # each is waited for until it is clear that it runs on
        codes = list(pool.map(lambda path: world.probing(
            "-t", str(target.pid), "script", "run", str(path)).returncode, KINDS[first:first + 16]))
    assert set(codes) <= {0, 1} and lua_threads(target) > 0
    done = target.probing("eject")
    assert done.returncode == 0, done.stderr
    wait_for(lambda: not any(n.startswith("probing/") for n in threads_of(target.pid)),
             "the end of our threads")
    assert target.alive()


def test_stop_ends_what_could_not_be_stopped(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    for name in ("gc", "close", "handler", "rep_nothing", "move", "pattern_find"):
        path = Path(__file__).parent / "lua" / (name + ".lua")
        world.probing("-t", str(target.pid), "script", "run", str(path))
        done = target.probing("script", "stop", name)
        assert done.returncode == 0, (name, done.stderr)
    wait_for(lambda: lua_threads(target) == 0, "the end of the scripts' threads")


def test_ended_scripts_do_not_block_new_ones(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    path = world.tmp / "short.lua"
    for i in range(70):
        path = world.tmp / ("short%d.lua" % i)
        path.write_text("print(%d)" % i)
        done = world.probing("-t", str(target.pid), "script", "run", str(path))
        assert done.returncode == 0, (i, done.stderr)
    names = [row[0] for row in target.rows("select name from probing.scripts")]
    assert "short69" in names and "short0" not in names and len(names) <= 64
    # 32 that live are the limit, and it is said.
    for i in range(33):
        path = world.tmp / ("long%d.lua" % i)
        path.write_text("probing.every('1h', function() end)")
        done = world.probing("-t", str(target.pid), "script", "run", str(path))
    assert done.returncode != 0 and "32 scripts run already" in done.stderr


@pytest.mark.parametrize("name", ["gc", "rep_nothing", "handler"])
def test_a_probing_lua_that_never_ends_holds_nothing_up(world, name):
    source = (Path(__file__).parent / "lua" / (name + ".lua")).read_text()
    (world.data / "probing.lua").write_text(source)
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    said = [row[0] for row in target.rows("select text from probing.log")]
    assert any("more than 2 s without pause, so it was stopped" in line for line in said), said
    wait_for(lambda: lua_threads(target) == 0, "the end of the scripts' threads")
    assert target.probing("eject").returncode == 0
