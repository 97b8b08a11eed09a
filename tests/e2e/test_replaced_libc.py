# SPDX-License-Identifier: Apache-2.0
"""A program whose libc lies about the time and about files (libfaketime, fakechroot ...): what we
say of it is what the kernel says, and the program goes on to see the lies."""
import os
import re
import time

import pytest
from world import BUILD, wait_for

pytestmark = pytest.mark.skipif(BUILD.name in ("asan", "tsan"),
                                reason="a sanitizer stands before libc itself")
LIBC = str(BUILD / "tests" / "e2e" / "other_libc.so")
DAYS_90 = 90 * 86400
LIES = {"90 days ahead": {"LIBC_AHEAD_S": str(DAYS_90)}, "twice as fast": {"LIBC_RATE": "2"}}
STEPS = 30
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def kernel_cpu_s(pid):
    text = open("/proc/%d/stat" % pid).read()
    after = text[text.rindex(")") + 2:].split()
    return (int(after[11]) + int(after[12])) * TICK_S


def preloaded(world, lie):
    own = world.env.get("LD_PRELOAD", "")
    return dict(lie, LIBC_HIDES="1", LD_PRELOAD=(own + " " + LIBC).strip())


def one(target, sql, env):
    """The first row's cells; the command is lied to as well."""
    done = target.probing("query", "--format", "csv", sql, env=env)
    assert done.returncode == 0, done.stderr
    return [float(cell) if cell else None for cell in done.stdout.split("\n")[1].split(",")]


def enter(target, env):
    for words in (["inject"], ["plugin", "load", "torch"], ["plugin", "load", "profile"]):
        done = target.probing(*words, env=env)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("lie", sorted(LIES))
def test_times_are_the_kernels(world, lie):
    env = preloaded(world, LIES[lie])
    target = world.train("--step-delay", "0.05", env=env)
    begin = time.time()
    enter(target, env)
    steps = "select count(*), max(epoch_ns(ts)) from python.torch_step_timing"
    n, first = wait_for(lambda: (lambda row: row[0] and row)(one(target, steps, env)), "a step")
    middle = time.time()
    wait_for(lambda: one(target, steps, env)[0] >= n + STEPS, "%d steps" % STEPS)
    last = one(target, steps, env)[1]
    passed = time.time() - middle
    # A step of before may be told of late, and the longest one be whole in neither.
    total, longest = one(target, "select sum(step_duration_sec), max(step_duration_sec) from "
                         "python.torch_step_timing where epoch_ns(ts) > %d and epoch_ns(ts) <= %d"
                         % (first, last), env)
    assert 0 < total <= passed + longest and longest < passed
    assert 0 < (last - first) / 1e9 <= passed + longest
    cpu, least, oldest = one(target, "select sum(cpu_ns), min(cpu_ns), min(epoch_ns(ts)) from "
                             "python.samples", env)
    assert 0 <= least and 0 < cpu / 1e9 <= kernel_cpu_s(target.pid) + 2 * TICK_S
    assert begin - 1 < oldest / 1e9 < time.time()
    before = time.time()
    now, = one(target, "select epoch_ns(now())", env)
    assert before - 0.1 < now / 1e9 < time.time() + 0.1
    told = target.probing("metrics", env=env).stdout
    cpu = float(re.search(r"^process_cpu_seconds_total (\S+)$", told, re.M).group(1))
    assert 0 < cpu <= kernel_cpu_s(target.pid) + 2 * TICK_S
    assert str(target.pid) in target.world.probing("list", env=env).stdout
    # to the program itself its libc says what it said before
    told = target.probing("eval", "import time; int(time.time() - %f)" % time.time(), env=env)
    ahead = int(told.stdout)
    assert ahead >= (DAYS_90 - 1 if "days" in lie else 1), told.stderr


def test_what_the_dead_left_is_as_old_as_it_is(world):
    """A core whose libc is 90 days ahead takes nothing away that is a second old."""
    sleeper = "print('ready')\nimport time\nwhile True: time.sleep(0.01)\n"
    env = preloaded(world, LIES["90 days ahead"])
    first = world.python(sleeper)
    first.wait_line("ready")
    first.inject()
    first.kill()
    second = world.python(sleeper, env=env)
    second.wait_line("ready")
    assert second.probing("inject", env=env).returncode == 0
    assert second.probing("query", "select 1", env=env).returncode == 0
    assert first.probing("query", "select 1").returncode == 0
