# SPDX-License-Identifier: Apache-2.0
"""The memory plugin's live blocks are those that a program in C knows it has not freed."""
import re

import pytest
from memory_truth import SIGMAS, compare, let_it_run, told, widest
from world import BUILD, World, lend, wait_for


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
    return target, let_it_run(target, go, then, *settings)


def check(target, truth, of="memory.live"):
    found = told(target, of)
    compare(found, truth, widest(target))
    strangers = {name: row for name, row in found.items() if name and name not in truth}
    assert sum(row[0] for row in strangers.values()) < 4 << 20, strangers


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """As many samples as were asked for, whatever they cost: a slow machine thins them out only
    where the plugin's thread cannot read them."""
    for world in lend(World(tmp_path_factory.mktemp("known"))):
        yield enter(world, "memory.max_overhead_pct=0")


def test_each_function_has_what_it_keeps(known):
    target, truth = known
    assert truth["leak_medium"] == (200000000, 10000) and truth["churn"] == (0, 0)
    check(target, truth)
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
    assert drawn == {name: row[0] for name, row in told(target).items()
                     if name and name != "leak_in_thread"}


def test_marks_and_the_peak(known):
    target, truth = known
    assert target.probing("mark", "first").returncode == 0
    assert target.probing("mark", "a b").returncode != 0
    check(target, truth, "memory.snapshots where kind = 'mark' and name = 'first'")
    # nothing but churn and what was handed over was ever freed, so the peak is near the end
    def peak():
        return told(target, "memory.peak").get("leak_huge")
    huge = told(target)["leak_huge"]
    assert wait_for(peak, "a peak with all of it")[0] == huge[0]


def test_another_mean_is_as_right(world):
    """A hundred times as many samples: the program allocates too much for them, so they thin out
    where it does, and weigh more."""
    target, truth = enter(world, "memory.sample_bytes=4KB")
    check(target, truth)
    (asked, most), = target.rows("select sample_bytes_setting, sample_bytes_max "
                                 "from memory.sampling")
    assert asked == 4096 and most > 4 * asked
    said = target.probing("memory").stdout.replace("\n", " ")
    assert "at times that samples were" in said and "may be in no" in said, said


def test_a_dead_process_can_be_asked(world):
    target, truth = enter(world)
    check(target, truth)  # and so all of it has been written down
    target.kill()
    check(target, truth)
    done = target.probing("flamegraph", "memory", "-f", "folded")
    assert done.returncode == 0 and ";main;leak_huge" in done.stdout, done.stderr
