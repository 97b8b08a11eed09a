# SPDX-License-Identifier: Apache-2.0
"""A process that the kernel kills for want of memory: what it had is there, and why it ended."""
import os
import signal
from pathlib import Path

import pytest
import world as shared

LIMIT = 220 << 20
EATER = ("import os, time\n"
         "print('ready', flush=True)\n"
         "while not os.path.exists(%r): time.sleep(0.02)\n"
         "def leak():\n"
         "    return bytearray(b'x') * (2 << 20)\n"
         "kept = []\n"
         "while True:\n"
         "    kept.append(leak())\n"
         "    time.sleep(0.04)\n")


def own_group(controller):
    for line in open("/proc/self/cgroup"):
        number, names, path = line.rstrip("\n").split(":", 2)
        if controller in names.split(","):
            return path
    return None


@pytest.fixture
def group(world):
    """A memory cgroup of our own with a limit: version 1, else 2."""
    made = None
    for root, controller, limit in (("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes"),
                                    ("/sys/fs/cgroup", "", "memory.max")):
        path = own_group(controller)
        if made or path is None:
            continue
        for parent in (Path(root + path), Path(root)):
            folder = parent / ("probing-test-%d" % os.getpid())
            try:
                folder.mkdir()
                (folder / limit).write_text(str(LIMIT))
                made = folder
                break
            except OSError:
                if folder.exists():
                    folder.rmdir()
    if not made:
        pytest.skip("no memory cgroup may be made here")
    yield made
    for target in world.targets:
        target.kill()
    shared.wait_for(lambda: not (made / "cgroup.procs").read_text().split(), "that it is empty")
    made.rmdir()


def test_the_dead_say_why(world, group):
    go = world.tmp / "go"
    target = world.python(EATER % str(go))
    target.wait_line("ready")
    (group / "cgroup.procs").write_text(str(target.pid))
    target.inject("--plugin", "python", "--plugin", "memory", "-D", "memory.interval=250ms")
    shared.wait_for(lambda: target.rows("select limit_of, limit_bytes from memory.usage limit 1"),
                    "a row")
    limit = target.rows("select limit_of, limit_bytes from memory.usage order by ts desc limit 1")
    assert limit == [["cgroup", LIMIT]], limit
    go.write_text("")
    shared.wait_for(lambda: not target.alive(), "the kernel")
    assert target.process.returncode == -signal.SIGKILL
    events = [row[0] for row in target.rows("select event from memory.events order by ts")]
    assert "memory.oom_near" in events, events
    rows = target.rows("select sum(bytes) from memory.snapshots where snapshot_id = (select "
                       "max(snapshot_id) from memory.snapshots where name = 'memory.oom_near')")
    assert rows[0][0] and rows[0][0] > LIMIT // 4, rows  # what was alive then is on disk
    said = target.probing("memory").stdout
    if os.access("/dev/kmsg", os.R_OK):
        assert "the kernel has killed it for want of memory" in said, said
    else:
        assert "killed 1 process of its cgroup" in said.replace("\n", " "), said
    assert "leak" in said, said
