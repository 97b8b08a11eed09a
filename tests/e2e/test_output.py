# SPDX-License-Identifier: Apache-2.0
"""Files named with -o: whole or not there, and what is no plain file stays what it is."""
import os
import stat
import subprocess

import pytest

WRITERS = {"export": ["export", "select 1 as a", "--format", "csv"],
           "flamegraph": ["flamegraph", "-m", "wall", "-s", "0.2", "-f", "folded"]}
BUSY = "print('ready', flush=True)\nwhile True: sum(range(1000))\n"


@pytest.fixture
def target(world):
    target = world.python(BUSY)
    target.wait_line("ready")
    target.inject()
    return target


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_what_is_no_plain_file_stays(world, target, name):
    folder = world.tmp / "out"
    folder.mkdir()
    plain, link, pipe = folder / "plain", folder / "link", folder / "pipe"
    plain.write_text("what was there")
    link.symlink_to(plain)
    os.mkfifo(str(pipe))
    done = target.probing(*WRITERS[name], "-o", str(link))
    assert done.returncode == 0, done.stderr
    assert link.is_symlink() and plain.read_text() and plain.read_text() != "what was there"
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        done = target.probing(*WRITERS[name], "-o", str(pipe))
        assert done.returncode == 0, done.stderr
        assert reader.communicate()[0]
    assert stat.S_ISFIFO(os.stat(str(pipe)).st_mode)
    done = target.probing(*WRITERS[name], "-o", str(folder))
    assert done.returncode == 1 and "Is a directory" in done.stderr
    assert sorted(os.listdir(str(folder))) == ["link", "pipe", "plain"]


def test_a_full_device(world, target):
    """The file is not there, or is what it was; nothing is left beside it."""
    link = world.tmp / "full"
    link.symlink_to("/dev/full")
    for words in WRITERS.values():
        done = target.probing(*words, "-o", str(link))
        assert done.returncode == 1 and "No space left" in done.stderr, done.stderr
        assert link.is_symlink()
    assert not [f for f in os.listdir(str(world.tmp)) if f.endswith(".part")]
