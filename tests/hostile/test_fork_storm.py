# SPDX-License-Identifier: Apache-2.0
"""A program that forks all the time while a core comes, works and leaves, on a busy machine: no
child has anything of ours, lacks anything of the program's, hangs or dies."""
import re
import subprocess
import sys

import pytest

from pythons import FULL
from world import BUILD, world  # noqa: F401

STORM = BUILD / "tests" / "hostile" / "fork_storm"
CHILDREN, LOAD = (1000, 40) if FULL else (400, 10)
LOADING = r"/memfd:probing-core \(deleted\)|/.*/lib\w+\.so[.\d]*"  # the loader's, too


@pytest.fixture
def busy():
    spin = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOAD)]
    yield
    for one in spin:
        one.kill()
        one.wait()


def begin(world, threads, *go):
    target = world.start(str(STORM), str(CHILDREN), str(threads), *map(str, go))
    target.wait_line("ready")
    return target


def come_and_go(target, *options):
    """Until all children are born; what the program says of them."""
    end = None
    while not end:
        target.inject(*options)
        assert target.rows("select 1") == [[1]]
        done = target.probing("eject")
        assert done.returncode == 0, done.stdout + done.stderr
        end = re.search(r"^children (\d+) has (\d+) lacks (\d+) hung (\d+) died (\d+)$",
                        target.output(), re.M)
    assert int(end.group(1)) == CHILDREN
    return [int(n) for n in end.groups()[1:]]


@pytest.mark.parametrize("options", [(), ("-c", "-P", "--plugin", "system")])
def test_no_child_has_anything_of_ours(world, busy, options):
    """Two in three children had without load, and more the longer a thread of ours had to wait for
    a processor between a system call and the next."""
    go = world.tmp / "go"
    target = begin(world, 3, go)
    target.inject()  # see below
    assert target.probing("eject").returncode == 0
    go.touch()
    assert come_and_go(target, *options) == [0, 0, 0, 0], target.output()


def test_while_the_library_is_loaded(world):
    """The first time it is loaded from a file in memory, and nobody is there yet to close that."""
    target = begin(world, 4)
    has, lacks, hung, died = come_and_go(target)
    assert (lacks, hung, died) == (0, 0, 0), target.output()
    found = re.findall(r"^CHILD has \d+: (.*)$", target.output(), re.M)
    assert [at for at in found if not re.fullmatch(LOADING, at)] == []
    assert "CHILD maps" not in target.output()
