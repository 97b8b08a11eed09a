# SPDX-License-Identifier: Apache-2.0
"""A dead process's directory: listed, asked, copied, damaged, and taken away."""
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from world import CLI, wait_for

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
    assert dead.rows("select rows, buffered, lost from probing.tables where name = 'kept'") == \
        [[5000, 0, 0]]
    assert dead.rows("select * from probing.lost") == []


def test_a_copy_elsewhere_opens_and_damage_is_told(dead, tmp_path):
    source = next(d for d in dead.world.data.iterdir() if d.name.startswith("%d-" % dead.pid))
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("sock", "door"))
    query = ["-t", str(copy), "query", "--format", "json", "select count(*) from script.kept"]
    done = dead.world.probing(*query)
    assert json.loads(done.stdout)["rows"] == [[5000]] and "incomplete" not in done.stderr
    (copy / "rings").unlink()
    (copy / "strings").write_bytes(b"rubbish")
    done = dead.world.probing(*query)
    assert "rings" in done.stderr and "names are missing" in done.stderr, done.stderr
    for line in done.stderr.splitlines():
        assert line.startswith("probing: incomplete: "), done.stderr


def test_gc_takes_it_away(dead):
    assert "1 data directories removed" in dead.world.probing("gc").stdout
    assert str(dead.pid) not in dead.world.probing("list", "--dead").stdout
    assert dead.probing("query", "select 1").returncode == 1


def test_gc_leaves_what_a_living_process_may_go_on_with(world):
    """A core that comes again goes on with the directory, and touches it first: so for a minute it
    is left alone, however the clock was set meanwhile."""
    target = world.python("import time\nprint('ready', flush=True)\ntime.sleep(1000)\n")
    target.wait_line("ready")
    target.inject()
    directory = next(world.data.iterdir())
    assert "0 data directories removed, 0 kept" in world.probing("gc").stdout  # it runs
    assert target.probing("eject").returncode == 0
    now = time.time()
    for changed in (now, now - 50, now + 3600):
        os.utime(directory, (changed, changed))
        assert "0 data directories removed, 1 kept" in world.probing("gc").stdout, changed - now
    os.utime(directory, (now - 61, now - 61))
    info = (directory / "info").read_bytes()
    (directory / "info").unlink()  # as it is while it is being made
    os.utime(directory, (now - 61, now - 61))
    assert "0 data directories removed, 1 kept" in world.probing("gc").stdout
    (directory / "info").write_bytes(info)
    os.utime(directory, (now - 61, now - 61))
    assert "1 data directories removed, 0 kept" in world.probing("gc").stdout
    assert not directory.exists() and target.alive()


def namespace(*words):
    """Run it where no process and nobody else's data is to be seen."""
    return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
                           "sh", "-c", 'mkdir -p /tmp/probing-0 && '
                           'mount -t tmpfs none /tmp/probing-0 && exec "$@"', "sh", *words],
                          capture_output=True, text=True)


def test_the_living_of_another_pid_namespace_are_no_dead(world):
    if os.geteuid() != 0 or namespace("true").returncode != 0:
        pytest.skip("no pid namespaces can be made here")
    target = world.start("unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
                         "/usr/bin/python3", "-u", "-c",
                         "import time\nprint('ready')\nwhile True: time.sleep(1)")
    target.wait_line("ready")
    pid = Path("/proc/%d/task/%d/children" % (target.pid, target.pid)).read_text().split()[0]
    done = world.probing("-t", pid, "inject")
    assert done.returncode == 0, done.stderr
    directory = next(world.data.iterdir())
    assert directory.name.startswith("1-")

    def there(*words):  # where neither the process nor its number is to be seen
        done = namespace("env", "PROBING_DATA_DIR=%s" % world.data, str(CLI), *words)
        return done.stdout + done.stderr

    assert directory.name not in there("list", "--dead")
    assert "0 data directories removed, 1 kept" in there("gc")
    assert "2" in there("-t", str(directory), "query", "select 1 + 1 as n")
    assert "pid: 1" in there("-t", str(directory), "info")
    target.end()
    wait_for(lambda: directory.name in there("list", "--dead"), "its death")
    assert "1 data directories removed" in there("gc") and not directory.exists()


def test_an_info_that_is_damaged_is_not_believed(dead):
    source = next(dead.world.data.iterdir())
    info = source / "info"
    whole = info.read_bytes()
    assert b"\ncheck: " in whole
    info.write_bytes(whole.replace(b"pid: ", b"pid: 1"))  # of no process, or of another one
    assert "(info is damaged)" in dead.world.probing("list", "--dead").stdout
    done = dead.probing("query", "--format", "json", "select count(*) from script.kept")
    assert json.loads(done.stdout)["rows"] == [[5000]]
    assert "info is damaged" in done.stderr
    info.write_bytes(b"")
    assert "info is damaged" in dead.probing("query", "select 1").stderr
    info.unlink()
    done = dead.probing("query", "--format", "json", "select count(*) from script.kept")
    assert json.loads(done.stdout)["rows"] == [[5000]] and done.stderr == ""


def test_is_asked_in_the_moment_of_its_death(world):
    """Killed and not yet gone it has no memory and no root, and is taken for dead."""
    for _ in range(10):
        target = world.start("/usr/bin/python3", "-u", "-c",
                             "import threading, time\nprint('ready')\n"
                             "while True: sum(range(1000))")
        target.wait_line("ready")
        target.inject()
        os.kill(target.pid, signal.SIGKILL)
        assert target.rows("select 1") == [[1]]
