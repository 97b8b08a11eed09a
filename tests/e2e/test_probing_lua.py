# SPDX-License-Identifier: Apache-2.0
"""probing.lua: found, run before anything else, overruled by what a start is given, never fatal."""
import os

import pytest

IDLE = "import time\nprint('ready')\nwhile True: time.sleep(0.05)\n"

FILE = """
probing.config("probing.max_memory", "123MB")
probing.config("probing.retention", "2d")
probing.config("table.starts.keep", "1h")
local t = probing.table("starts", {n = "i64"})
t:add{n = 1}
probing.every("10ms", function() t:add{n = 2} end)
"""


def entered(world, *words, env=None):
    target = world.python(IDLE, env=env)
    target.wait_line("ready")
    target.inject(*words)
    return target


def said(target):
    return [row[0] for row in target.rows("select text from probing.log order by ts")]


def setting(target, name):
    return target.probing("config", "get", name).stdout.strip()


def scripts(target):
    return target.rows("select name, state from probing.scripts")


def test_it_sets_and_probes_from_the_start(world):
    path = world.data / "probing.lua"
    path.write_text(FILE)
    target = entered(world, "-D", "probing.retention=3d")
    assert setting(target, "probing.max_memory") == "123MB"
    assert setting(target, "probing.retention") == "3d"  # what this start was given wins
    assert setting(target, "table.starts.keep") == "1h"
    assert target.rows("select n from script.starts order by ts limit 1") == [[1]]
    assert scripts(target) == [["probing", "running"]]
    assert "%s has run" % path in said(target)
    assert target.probing("script", "stop", "probing").returncode == 0
    assert target.probing("eject").returncode == 0
    assert target.alive()


def test_the_one_at_home_is_found_and_an_asked_one_comes_first(world):
    home = world.tmp / "home"
    (home / ".config/probing").mkdir(parents=True)
    (home / ".config/probing/probing.lua").write_text(
        "probing.config('probing.max_offline_data', '7MB')")
    mine = world.tmp / "mine.lua"
    mine.write_text("probing.config('probing.max_offline_data', '8MB')")
    env = {"HOME": str(home)}
    assert setting(entered(world, env=env), "probing.max_offline_data") == "7MB"
    asked = entered(world, "-D", "probing.startup_script=%s" % mine, env=env)
    assert setting(asked, "probing.max_offline_data") == "8MB"
    off = entered(world, "-D", "probing.startup_script=off", env=env)
    assert setting(off, "probing.max_offline_data") == "2GB" and scripts(off) == []
    here = entered(world, env=dict(env, PROBING_STARTUP_SCRIPT=str(mine)))
    assert setting(here, "probing.max_offline_data") == "8MB"


@pytest.mark.parametrize("text,what", [
    ("probing.config('probing.max_memory', '9MB')\nnonsense(1)\n", "probing:2: "),
    ("if then", "probing:1: "),
    ("probing.config('probing.max_memroy', '9MB')", "did you mean"),
    ("while true do end", "more than 2 s without pause, so it was stopped"),
])
def test_what_is_wrong_is_said_and_never_fatal(world, text, what):
    path = world.data / "probing.lua"
    path.write_text(text)
    target = entered(world)
    lines = [line for line in said(target) if str(path) in line]
    assert len(lines) == 1 and what in lines[0], said(target)
    assert target.rows("select 1") == [[1]]
    assert target.probing("eject").returncode == 0


def test_files_that_others_may_write_are_refused(world):
    path = world.data / "probing.lua"
    path.write_text(FILE)
    path.chmod(0o666)
    target = entered(world)
    assert any("not run: others than uid" in line and "may write to %s" % path in line and
               "chmod go-w it" in line for line in said(target)), said(target)
    assert setting(target, "probing.max_memory") == "1GB" and scripts(target) == []
    if os.geteuid() == 0:
        path.chmod(0o644)
        os.chown(path, 12345, 12345)
        assert any("not run: %s belongs to uid " % path in line for line in said(entered(world)))


@pytest.mark.parametrize("asked,what", [("/no/such.lua", "/no/such.lua: No such file"),
                                        ("such.lua", "startup_script=such.lua is not an absolute"),
                                        ("/dev/null", "/dev/null is not a file")])
def test_an_asked_one_that_cannot_be_read_is_named(world, asked, what):
    target = entered(world, "-D", "probing.startup_script=" + asked)
    assert any(what in line for line in said(target)), said(target)
