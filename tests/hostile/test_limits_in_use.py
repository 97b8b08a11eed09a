# SPDX-License-Identifier: Apache-2.0
"""Under each limit a program is entered, used as usual, and left; it starts threads, allocates and
maps all the while.  What cannot be had is refused by the name of the limit."""
import os
import resource

import pytest

from test_limits import MIB, ROOT_ONLY, Told, mappings, may, threads
from world import wait_for

USES = (["backtrace"], ["query", "select count(*) from generate_series(1, 300000)"],
        ["flamegraph", "-s", "1", "--format", "folded"], ["plugin", "load", "memory"],
        ["plugin", "load", "system"], ["config", "set", "crash.handler", "on"], ["backtrace"])


def used_and_left(told, *words):
    """words: one of them is in each refusal."""
    assert told.tell("thread") == "well"
    before = mappings(told.pid)
    done = told.probing("inject", "-P")
    refused = [done.stderr] if done.returncode else []
    entered = "entered" in done.stdout
    if not entered:
        assert not threads(told.pid, ours=True) and mappings(told.pid) == before
    for use in USES if entered else ():
        done = told.probing(*use)
        refused += [done.stderr] if done.returncode and use[0] in ("plugin", "config") else []
        assert told.tell("thread") == "well", (use, done.stderr)
        assert told.tell("fork") == "well", use
    for said in refused:
        assert any(word in said for word in words), said
    if entered:
        assert told.probing("eject").returncode == 0
        wait_for(lambda: not threads(told.pid, ours=True), "the end of the core")
    assert told.tell("thread") == "well"
    return entered


@pytest.mark.parametrize("files", [20, 28, 40])
def test_descriptors(world, files):
    told = Told(world, limits=[(resource.RLIMIT_NOFILE, files)])
    assert used_and_left(told, "descriptors") == (files > 27)


@pytest.mark.parametrize("kib", [64, 256, 16384, 65536])
def test_stack(world, kib):
    """The default of a thread, of which the one that loads the library is the first."""
    told = Told(world, limits=[(resource.RLIMIT_STACK, kib << 10)])
    assert used_and_left(told)


def test_large_stacks_and_little_private_memory(world):
    """A thread more with such a stack must still be possible."""
    told = Told(world, limits=[(resource.RLIMIT_STACK, 64 * MIB),
                               (resource.RLIMIT_DATA, 160 * MIB)])
    assert used_and_left(told, "ulimit -d")


def test_queued_signals(world):
    told = Told(world, limits=[(resource.RLIMIT_SIGPENDING, 0)])
    assert used_and_left(told)


@pytest.mark.parametrize("mib", [0, 4, 8, 10, 40])
def test_files(world, mib):
    told = Told(world, limits=[(resource.RLIMIT_FSIZE, mib * MIB)])
    assert used_and_left(told, "ulimit -f") == (mib > 8)


@pytest.mark.parametrize("mib", [800, 1100, 1400])
def test_address_space(world, mib):
    told = Told(world, limits=[(resource.RLIMIT_AS, mib * MIB)])
    assert used_and_left(told, "ulimit -v") == (mib > 900)


@ROOT_ONLY
@pytest.mark.parametrize("kib", [64, 1024, 16384])
def test_small_shared_memory(world, kib):
    may("unshare", "-m")
    told = Told(world, "unshare", "-m", "sh", "-c",
                "mount -t tmpfs -o size=%dk tmpfs /dev/shm && exec \"$0\"" % kib)
    assert used_and_left(told, "shm")


@pytest.fixture
def pids():
    """A cgroup that counts threads: limit(n), of a process's own group."""
    for root in "/sys/fs/cgroup/pids", "/sys/fs/cgroup":
        folder = "%s/probing-test-%d" % (root, os.getpid())
        try:
            os.mkdir(folder)
        except OSError:
            continue
        if os.path.exists(folder + "/pids.max"):
            break
        os.rmdir(folder)
    else:
        pytest.skip("may not make a cgroup for threads here")
    told = []

    def enter(world, most):
        with open(folder + "/pids.max", "w") as f:
            f.write(str(most))
        told.append(Told(world))
        with open(folder + "/cgroup.procs", "w") as f:
            f.write(str(told[0].pid))
        return told[0]
    yield enter
    for one in told:
        one.end()
    wait_for(lambda: not open(folder + "/cgroup.procs").read(), "the group's processes")
    os.rmdir(folder)


@pytest.mark.parametrize("most", [10, 18, 24, 60])
def test_threads_of_a_cgroup(world, pids, most):
    assert used_and_left(pids(world, most), "pids.max") == (most > 17)
