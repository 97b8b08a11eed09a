# SPDX-License-Identifier: Apache-2.0
"""A process that is there and cannot run: its cgroup is frozen (docker pause, systemctl freeze), or
a debugger holds it.  Nobody waits for its answer, and it is said what lets it go on."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest
from world import IDLE, wait_for

# Version -> of its mounts the kind and an option, the file, what freezes and what thaws.
FREEZERS = {1: ("cgroup", "freezer", "freezer.state", "FROZEN", "THAWED"),
            2: ("cgroup2", "", "cgroup.freeze", "1", "0")}


class Freezer:
    def __init__(self, version, name):
        kind, option, self.file, self.freezes, self.thaws = FREEZERS[version]
        points = [words[1] for words in map(str.split, open("/proc/mounts"))
                  if words[2] == kind and option in words[3]]
        if not points:
            pytest.skip("no freezer of version %d is mounted" % version)
        self.above = pathlib.Path(points[0])
        self.folder = self.above / name
        try:
            self.folder.mkdir()
            (self.folder / self.file).write_text(self.thaws)
        except OSError:
            pytest.skip("no cgroup of version %d can be made here" % version)

    def take(self, pid):
        (self.folder / "cgroup.procs").write_text(str(pid))
        (self.folder / self.file).write_text(self.freezes)
        state = self.folder / ("cgroup.events" if self.file == "cgroup.freeze" else self.file)
        wait_for(lambda: self.freezes == state.read_text().split()[-1], "all of it to be frozen")

    def thaw(self):
        (self.folder / self.file).write_text(self.thaws)

    def end(self):
        self.thaw()
        for pid in (self.folder / "cgroup.procs").read_text().split():
            (self.above / "cgroup.procs").write_text(pid)
        self.folder.rmdir()


@pytest.fixture(params=sorted(FREEZERS))
def freezer(request):
    try:
        made = Freezer(request.param, "probing-frozen-%d" % os.getpid())
    except OSError:
        pytest.skip("cgroups cannot be made here")
    yield made
    made.end()


# At work and asleep: since Linux 6.1 version 1 leaves who sleeps where he is.
WORKS = "print('ready', flush=True)\nwhile True:\n    sum(range(1000))\n"


@pytest.mark.parametrize("source", [IDLE, WORKS], ids=["sleeps", "works"])
def test_one_whose_group_is_frozen(world, freezer, source):
    target, bare = world.python(source), world.python(source)
    for one in (target, bare):
        one.wait_line("ready")
    target.inject()
    freezer.take(bare.pid)
    freezer.take(target.pid)
    done = bare.probing("inject")
    assert done.returncode == 1 and "is frozen with its cgroup" in done.stderr, done.stderr
    assert "docker unpause" in done.stderr
    done = target.probing("query", "select 1 as n")
    assert done.returncode == 0 and "frozen with its cgroup; this is read" in done.stderr
    for words in (("eval", "1"), ("backtrace",)):
        done = target.probing(*words)
        assert done.returncode == 1 and "is frozen with its cgroup and cannot" in done.stderr
    done = world.probing("-t", str(target.pid), "cluster", "hang", "--json", "--looks", "1")
    (rank,) = json.loads(done.stdout)["ranks"]
    assert rank["state"] == "stopped" and "frozen with its cgroup" in rank["why"]
    freezer.thaw()
    assert target.rows("select 1") == [[1]]
    bare.inject()


def test_one_that_a_debugger_holds(world):
    if not shutil.which("gdb"):
        pytest.skip("no gdb (Debian: gdb)")
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    gdb = subprocess.Popen(["gdb", "-q", "-nx", "-p", str(target.pid)], stdin=subprocess.PIPE,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=world.env)
    try:
        def held():
            assert gdb.poll() is None
            states = [stat.read_text().rsplit(")", 1)[1].split()[0] for stat in
                      pathlib.Path("/proc/%d/task" % target.pid).glob("*/stat")]
            return set(states) == {"t"}
        wait_for(held, "gdb to hold it")
        done = target.probing("eval", "1")
        assert "held by process %d (gdb)" % gdb.pid in done.stderr, done.stderr
        assert "kill -CONT" not in done.stderr and "detach" in done.stderr
    finally:
        gdb.communicate(b"detach\nquit\n")
    assert target.rows("select 1") == [[1]]
