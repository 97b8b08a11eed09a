# SPDX-License-Identifier: Apache-2.0
"""`table.<name>.keep`: from the environment, from the start, live; and what probing.tables says."""
import pytest

from world import wait_for

SOURCE = """
import time
print('ready')
while True:
    time.sleep(1)
"""
MANY = """
local t = probing.table("%s", {{"n", "i64"}, {"text", "str"}})
for i = 1, %d do
    while not t:add{n = i * 7919 %% 1000003, text = "row " .. i %% 50} do end
end
"""
HOLDS = "select rows, keep, keep_bytes, bytes, expired from probing.tables where name = '%s'"


@pytest.fixture
def job(world):
    target = world.python(SOURCE, env={"PROBING_TABLE_SCRIPT_EARLY_KEEP": "2h|1MB"})
    target.wait_line("ready")
    target.inject("-D", "table.script.first.keep=90s", "-D", "table.second.keep=64KB")
    return target


def fill(job, name, rows):
    """A script's table of that many rows more; how it is kept."""
    path = job.world.tmp / ("fill_%d.lua" % len(list(job.world.tmp.glob("fill_*"))))
    path.write_text(MANY % (name, rows))
    done = job.probing("script", "run", str(path))
    assert done.returncode == 0, done.stderr
    wait_for(lambda: job.rows("select count(*) from probing.scripts where name = '%s' and "
                              "state = 'running'" % path.stem) == [[0]], "the script's end")
    job.rows("select count(*) from script." + name)  # nothing waits in the rings any more
    return job.rows(HOLDS % name)[0]


def test_what_is_set_before_a_table_comes(job):
    assert fill(job, "first", 10)[:3] == [10, 90 * 10**9, None]
    assert fill(job, "second", 10)[:3] == [10, None, 64 << 10]
    assert fill(job, "early", 10)[:3] == [10, 2 * 3600 * 10**9, 1 << 20]
    assert fill(job, "other", 10)[:3] == [10, None, None]


def test_what_is_set_while_rows_come(job):
    rows, _, _, size, expired = fill(job, "live", 60000)
    assert rows + expired == 60000
    done = job.probing("config", "table.script.live.keep=100KB")
    assert done.stdout == "table.script.live.keep=100KB\n", done.stderr
    rows, _, keep_bytes, smaller, expired = fill(job, "live", 10)
    assert keep_bytes == 100 << 10 and smaller < size and expired > 0 and rows + expired == 60010
    for words, said in ((["table.live.keep=1"], "2h|100MB"),
                        (["table.python.backtrace.keep=1h"], "computed"),
                        (["get", "table.script.lve.keep"], "did you mean")):
        done = job.probing("config", *words)
        assert done.returncode == 1 and said in done.stderr
    assert "no such table yet" in job.probing("config", "table.x.keep=1h").stdout
    assert job.probing("config", "table.script.live.keep").stdout == "100KB\n"
    assert fill(job, "live", 1)[2] == 100 << 10


def keeps(job):
    return dict(job.rows("select name, value from information_schema.df_settings "
                         "where name like 'table.%keep'"))


def test_a_table_has_one_setting_by_whichever_name(job):
    fill(job, "live", 10)
    assert job.probing("config", "table.live.keep=1h").returncode == 0
    assert keeps(job)["table.live.keep"] == "1h"
    assert job.probing("config", "table.script.live.keep=2h|5MB").returncode == 0
    assert "table.live.keep" not in keeps(job) and keeps(job)["table.script.live.keep"] == "2h|5MB"
    assert job.probing("config", "table.live.keep").stdout == "2h|5MB\n"
    assert fill(job, "live", 1)[1:3] == [2 * 3600 * 10**9, 5 << 20]
    script = job.world.tmp / "settles.lua"
    script.write_text('probing.config("table.live.keep", "30m")\n')
    done = job.probing("script", "run", str(script))
    assert done.returncode == 0, done.stderr
    wait_for(lambda: keeps(job)["table.script.live.keep"] == "30m", "the script's setting")
    assert fill(job, "live", 1)[1:3] == [30 * 60 * 10**9, None]
    done = job.probing("query", "set table.live.keep = '45m|6MB'")
    assert done.returncode == 0, done.stderr
    assert keeps(job)["table.script.live.keep"] == "45m|6MB"
    assert fill(job, "live", 1)[1:3] == [45 * 60 * 10**9, 6 << 20]
    assert "script.live" not in [name for name in keeps(job) if name.count(".") == 2]
