# SPDX-License-Identifier: Apache-2.0
"""What the memory plugin says is alive is what a program in C knows that it has not freed."""
import re
from pathlib import Path

import pytest
from world import BUILD, World, lend, wait_for

# The plugin states the standard error of each estimate; one in some ten thousand is further off.
SIGMAS = 4


def program():
    path = BUILD / "tests" / "memory" / "allocations"
    assert path.exists(), "%s is not built: run scons unit" % path
    return str(path)


def enter(world, *settings):
    go, then = world.tmp / "go", world.tmp / "then"
    target = world.start(program(), str(go), str(then))
    target.wait_line("ready")
    target.inject("--wait")
    assert target.probing("plugin", "load", "memory").returncode == 0
    for setting in settings:
        assert target.probing("config", setting).returncode == 0
    (asked,), = target.rows("select sample_bytes from memory.sampling")
    go.touch()
    target.wait_line("^alive churn", timeout=300)
    # where it allocated 10 GB at once samples have thinned out
    wait_for(lambda: target.rows("select sample_bytes from memory.sampling") == [[asked]],
             "the distance that was asked for")
    then.touch()
    target.wait_line("^done", timeout=300)
    truth = {name: (int(alive), int(count)) for name, alive, count in
             re.findall(r"^alive (\w+) (\d+) (\d+)", target.output(), flags=re.M)}
    return target, truth


LIVE = ("select function_name, sum(bytes), sqrt(sum(bytes_error::double * bytes_error)), "
        "sum(count), sum(samples) from memory.live group by 1")


def compare(found, truth):
    """Of few samples the stated error is itself uncertain: what one of them stands for is allowed
    beside it, and where there is none, some of the heaviest."""
    unit = {name: row[1] / row[3] ** 0.5 for name, row in found.items()}
    for name, (alive, count) in truth.items():
        told, error, number, samples = found.get(name, (0, 0, 0, 0))
        print("%-20s alive %12d told %12d +- %10d count %8d told %10.1f samples %d" % (
            name, alive, told, error, count, number, samples))
        assert abs(told - alive) <= SIGMAS * (error + (unit[name] if samples else 0)) or \
            samples == 0 and alive <= 8 * max(unit.values()), name
    strangers = {name: row for name, row in found.items() if name not in truth}
    assert sum(row[0] for row in strangers.values()) < 4 << 20, strangers


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    for world in lend(World(tmp_path_factory.mktemp("known"))):
        yield enter(world)


def by_function(target, sql):
    return {row[0]: row[1:] for row in target.rows(sql)}


def test_each_function_has_what_it_keeps(known):
    target, truth = known
    assert truth["leak_medium"] == (200000000, 10000) and truth["churn"] == (0, 0)
    compare(by_function(target, LIVE), truth)
    # those that are mapped are told apart
    domains = target.rows("select distinct domain from memory.live where function_name = "
                          "'leak_mapped'")
    assert domains == [["mmap"]]


def test_what_was_allocated_and_for_how_long(known):
    target, _ = known
    churned = int(re.search(r"^churned (\d+)", target.output(), flags=re.M).group(1))
    (told, variance, lived, kept), = target.rows(
        "select sum(bytes), sum(count * (count - 1) * size * size), count(lifetime_ns), "
        "count(*) - count(lifetime_ns) from memory.allocations where function_name = 'churn'")
    print(churned, told, variance ** 0.5)
    assert abs(told - churned) <= SIGMAS * variance ** 0.5
    assert kept == 0 and lived > 200
    (steps, ends), = target.rows("select count(*), count(lifetime_ns) from memory.allocations "
                                 "where function_name = 'grow_in_steps'")
    assert steps - ends <= 40  # one block of each chain stays
    (freed_by,), = target.rows("select count(distinct f.thread_id) from memory.frees f join "
                               "memory.samples s on f.sample_id = s.sample_id where "
                               "s.function_name = 'make_for_another' and f.thread_id <> "
                               "s.thread_id")
    assert freed_by == 1


def test_stacks_have_the_callers(known):
    target, _ = known
    stacks = target.rows(
        "select string_agg(func, ' ' order by depth) from (select distinct s.stack_id, depth, "
        "func from memory.stacks s join memory.live l on s.stack_id = l.stack_id where "
        "l.function_name = 'leak_in_thread') d group by stack_id")
    assert stacks and all(words.split()[:2] == ["leak_in_thread", "thread"]
                          for words, in stacks), stacks
    done = target.probing("flamegraph", "memory", "-f", "folded")
    assert done.returncode == 0, done.stderr
    drawn = {line.rpartition(" ")[0].rpartition(";")[2]: int(line.rpartition(" ")[2])
             for line in done.stdout.splitlines() if ";main;" in line}
    assert drawn == {name: row[0] for name, row in by_function(target, LIVE).items()
                     if name != "leak_in_thread"}


def test_marks_and_the_peak(known):
    target, truth = known
    assert target.probing("mark", "first").returncode == 0
    assert target.probing("mark", "a b").returncode != 0
    rows = by_function(target, "select function_name, sum(bytes), sqrt(sum(bytes_error::double * "
                               "bytes_error)), sum(count), sum(samples) from memory.snapshots "
                               "where kind = 'mark' and name = 'first' group by 1")
    compare(rows, truth)
    # nothing but churn and what was handed over was ever freed, so the peak is near the end
    def peak():
        return by_function(target, "select function_name, sum(bytes) from memory.peak group by 1")
    (huge,), = target.rows("select sum(bytes) from memory.live where function_name = 'leak_huge'")
    assert wait_for(lambda: peak().get("leak_huge"), "a peak with all of it") == [huge]


def test_another_mean_is_as_right(world):
    """A hundred times as many samples: the program allocates too much for them, so they thin out
    where it does, and weigh more."""
    target, truth = enter(world, "memory.sample_bytes=4KB")
    compare(by_function(target, LIVE), truth)
    (asked, most), = target.rows("select sample_bytes, 4096 from memory.sampling")
    assert asked >= most


def test_a_dead_process_can_be_asked(world):
    target, truth = enter(world)
    compare(by_function(target, LIVE), truth)  # and so all of it has been written down
    target.kill()
    compare(by_function(target, LIVE), truth)
    done = target.probing("flamegraph", "memory", "-f", "folded")
    assert done.returncode == 0 and ";main;leak_huge" in done.stdout, done.stderr
