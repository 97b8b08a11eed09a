# SPDX-License-Identifier: Apache-2.0
"""A dead process's directory: listed, asked, copied, damaged, and taken away."""
import json
import shutil

import pytest

from world import wait_for

SCRIPT = """
local t = probing.table("kept", {{"n", "i64"}})
for i = 1, 5000 do while not t:add{n = i} do end end
"""


@pytest.fixture
def dead(world):
    target = world.start("/usr/bin/python3", "-u", "-c",
                         "import time\nprint('ready')\nwhile True: time.sleep(1)")
    target.wait_line("ready")
    target.inject()
    (world.tmp / "kept.lua").write_text(SCRIPT)
    assert target.probing("script", "run", str(world.tmp / "kept.lua")).returncode == 0
    wait_for(lambda: target.rows("select count(*) from probing.scripts where state = 'ended'") ==
             [[1]], "the script's end")
    target.kill()
    return target


def test_is_listed_and_asked(dead):
    listed = dead.world.probing("list", "--dead").stdout
    assert str(dead.pid) in listed and str(dead.world.data) in listed
    assert dead.rows("select count(*), sum(n) from script.kept") == [[5000, 12502500]]
    assert dead.rows("select rows, waiting, lost from probing.tables where name = 'kept'") == \
        [[5000, 0, 0]]
    assert dead.rows("select * from probing.lost") == []


def test_a_copy_elsewhere_opens_and_damage_is_told(dead, tmp_path):
    source = next(d for d in dead.world.data.iterdir() if d.name.startswith("%d-" % dead.pid))
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("sock", "door"))
    query = ["-t", str(copy), "query", "--format", "json", "select count(*) from script.kept"]
    done = dead.world.probing(*query)
    assert json.loads(done.stdout)["rows"] == [[5000]] and "not whole" not in done.stderr
    (copy / "rings").unlink()
    (copy / "strings").write_bytes(b"rubbish")
    done = dead.world.probing(*query)
    assert "rings" in done.stderr and "names are missing" in done.stderr, done.stderr


def test_gc_takes_it_away(dead):
    assert "1 data directories removed" in dead.world.probing("gc").stdout
    assert str(dead.pid) not in dead.world.probing("list", "--dead").stdout
    assert dead.probing("query", "select 1").returncode == 1
