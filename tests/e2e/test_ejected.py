# SPDX-License-Identifier: Apache-2.0
"""Eject leaves nothing behind: while the core is busy, and hundreds of times.

A test that counts descriptors or signal handlers reads them from /proc, never from the core.
"""
import os
import subprocess

import pytest
from life import (BUSY, LOOP, fds, gone, memory_of, our_threads, prepared, state_of, status,
                  time_in_cpu)
from pythons import FULL
from world import CLI, wait_for


def test_eject_leaves_nothing(world):
    target = prepared(world)
    before = state_of(target.pid)
    environment = open("/proc/%d/environ" % target.pid).read()
    target.inject()
    assert target.probing("eval", "import os; k = len(os.environ)").returncode == 0
    assert target.probing("backtrace").returncode == 0
    done = target.probing("eject")
    assert done.returncode == 0, done.stderr
    gone(target, before)
    assert open("/proc/%d/environ" % target.pid).read() == environment
    assert open("/proc/net/unix").read().count("@probing-%d\n" % target.pid) == 0
    assert not [line for line in open("/proc/%d/maps" % target.pid)
                if "rw-s" in line and (str(world.data) in line or "/probing-" in line)]
    assert target.alive()


@pytest.mark.parametrize("busy", ["query", "watch", "eval", "backtrace", "script", "fork"])
def test_eject_while_busy(world, busy):
    """A running command is ended, or the refusal names it; nothing hangs and nothing is left."""
    source = LOOP if busy != "fork" else """
wait_go()
while True:
    pid = os.fork()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
"""
    target = prepared(world, source)
    before = state_of(target.pid)
    target.inject()
    script = world.tmp / "spin.lua"
    script.write_text("while true do end\n")
    command = {"watch": ["watch", "select * from probing.log"],
               "script": ["script", "run", str(script)]}.get(busy, BUSY.get(busy))
    client = None
    if command:
        client = subprocess.Popen([str(CLI), "-t", str(target.pid), *command], env=world.env,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if busy in ("eval", "script"):
            time_in_cpu(target.pid, {"eval": "probing/python", "script": "probing/lua"}[busy])
    target.go()
    done = target.probing("eject")
    try:
        if done.returncode != 0:
            assert busy == "eval" and "try again" in done.stderr, done.stderr
            client.terminate()
            client.wait()
            wait_for(lambda: target.probing("eject").returncode == 0, "eject after the eval")
        if busy == "fork":  # its own children come and go
            wait_for(lambda: not our_threads(target.pid), "our threads to end")
        else:
            gone(target, before)
        assert target.alive()
    finally:
        if client:
            client.terminate()
            client.wait()


def rss_kb(pid):
    return int(status(pid, "VmRSS"))


def cycles(target, n, between=None):
    sizes = []
    for i in range(n):
        target.inject()
        if between:
            between()
        done = target.probing("eject")
        assert done.returncode == 0, done.stderr
        wait_for(lambda: not our_threads(target.pid), "our threads to end")
        if i in (n // 4, n - 1):
            sizes.append(rss_kb(target.pid))
    return sizes


def test_hundreds_of_times(world):
    target = prepared(world)
    before = state_of(target.pid)
    cycles(target, 20)
    maps = len(open("/proc/%d/maps" % target.pid).readlines())
    files = [sorted(f) for _, _, f in os.walk(world.data)]
    quarter, end = cycles(target, 200 if FULL else 60)
    gone(target, before)
    assert len(open("/proc/%d/maps" % target.pid).readlines()) <= maps + 2  # arenas move
    assert [sorted(f) for _, _, f in os.walk(world.data)] == files and memory_of(world) == set()
    print("RSS after a quarter: %d kB, after all: %d kB" % (quarter, end))
    assert end - quarter < 4096  # kB
    assert target.alive()


def test_again_and_again_into_training(world):
    """The heap grows with the first 40 or so, by 30 MB, and then no more."""
    target = world.train()
    before = fds(target.pid)

    def load():
        done = target.probing("plugin", "load", "torch")
        assert done.returncode == 0, done.stderr
    quarter, end = cycles(target, 80 if FULL else 24, load)
    wait_for(lambda: fds(target.pid) == before, "the same descriptors")
    print("RSS after a quarter: %d kB, after all: %d kB" % (quarter, end))
    assert end - quarter < 16384 + (0 if FULL else 30000)  # kB
    steps = target.output().count("step")
    wait_for(lambda: target.output().count("step") > steps, "the loop to go on")
