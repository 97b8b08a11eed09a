# SPDX-License-Identifier: Apache-2.0
"""Numbers of programs that know them: where their time went, what their steps and losses were.

The short form is part of every run.  PROBING_TEST_TRUTH=1, or `scons truth`: five times as long,
so that less is left to chance, on every Python that is found, and beside busy processes, too.
"""
import contextlib
import statistics
import struct

import pytest
import world as shared
from truth import LONG, Run, contention, sample, shares, stacks_of

TORN = 1e-6         # seconds: grain of a clock
BETWEEN = 15e-6     # seconds between a reading of the program's and ours: 2 to 6 were seen
UNDER = 0.005       # of a part: what may be missing of it beside that
TOTAL = 0.01        # of all time, beside its first and its last sample: not all is the account's

SHORT = [("cpu", "mix.py"), ("wall", "waits.py")]


@contextlib.contextmanager
def beside(busy):
    with contention() if busy else contextlib.nullcontext():
        yield


def check_shares(stacks, truth, whole):
    for name, share, seen, allowed in shares(stacks, truth, whole):
        assert abs(seen - share) < allowed, (name, share, seen, allowed, stacks)
    total = sum(stack.ns for stack in stacks) / 1e9
    edge = max(stack.longest for stack in stacks) / 1e9
    assert abs(total - whole) < TOTAL * whole + 2 * edge, (total, whole, stacks)


def check_possible(stacks, chains):
    """Only what calls each other stands on each other, and all that can stand there is known."""
    known = {tuple(chain[:n]) for chain in chains for n in range(len(chain) + 1)}
    wrong = [stack.own for stack in stacks if tuple(stack.own) not in known]
    assert wrong == []


@pytest.mark.parametrize("mode, program", SHORT + [("wall", "mix.py"), ("cpu", "waits.py")] * LONG)
def test_shares_of_time(world, python, busy, program, mode):
    with beside(busy):
        run = Run(world, program, python, sample(mode))
        answer = run.answer()
    stacks = stacks_of(run.target, mode + "_ns")
    check_possible(stacks, answer["chains"])
    check_shares(stacks, answer[mode], answer["all_" + mode])


def test_waits_are_told_where_the_thread_waits(world, python, busy):
    """A thread that has waited and runs when it is looked at has not waited where it runs."""
    with beside(busy):
        run = Run(world, "short_waits.py", python, sample("wall", 1000))
        answer = run.answer()
    stacks = stacks_of(run.target, "wall_ns")
    check_possible(stacks, answer["chains"])
    waited, running = run.target.rows("""
        select sum(wall_ns), sum(case when stack_id in (select stack_id from python.stacks where
            func = 'spin') and stack_id not in (select stack_id from python.stacks where func =
            '[waiting for a CPU]') then wall_ns else 0 end) from python.samples where cpu_ns = 0
        and thread_id = %d""" % run.target.pid)[0]
    assert running < 0.01 * waited, (running, waited)


def test_beside_another_on_one_processor(world, python):
    """Most of the time is waited for the processor, and counted where the thread stands."""
    run = Run(world, "crowded.py", python, sample("wall"))
    answer = run.answer()
    stacks = stacks_of(run.target, "wall_ns")
    check_possible(stacks, answer["chains"])
    check_shares(stacks, answer["wall"], answer["all_wall"])
    truth = {"waits": answer["all_wall"] - answer["all_cpu"], "runs": answer["all_cpu"]}
    for stack in stacks:
        stack.own = ["waits" if stack.leaf == "[waiting for a CPU]" else "runs"]
    check_shares(stacks, truth, answer["all_wall"])


def load(target):
    done = target.probing("inject")
    assert done.returncode == 0, done.stderr
    for words in (("plugin", "load", "torch"),
                  ("config", "torch.profiling=on,exprs=loss,baseline=0")):
        done = target.probing(*words)
        assert done.returncode == 0, done.stdout + done.stderr


def test_parts_of_steps(world, torch, busy):
    """Ours are inside of the program's, and nothing to speak of is missing: a step's median tells,
    as a busy machine may come between the two clocks in any one."""
    with beside(busy):
        run = Run(world, "loop.py", torch, load)
        answer = run.answer()
    parts = answer["parts"]
    late = [None] + [both[1] for both in parts["optimizer"][:-1]]  # the first one ends a step
    parts["optimizer"] = [both[0] + (after or 0) for both, after in zip(parts["optimizer"], late)]
    rows = run.target.rows("select steps, dataloader_sec, forward_sec, backward_sec, "
                           "optimizer_sec, step_duration_sec, other_sec, coalesce(comm_sec, 0) "
                           "from python.torch_step_timing order by steps")
    assert len(rows) >= len(answer["losses"]) - 1  # of the first the begin was not seen
    first = len(answer["losses"]) - len(rows)
    for at, name in enumerate(("dataloader", "forward", "backward", "optimizer"), 1):
        pairs = [(row[at], theirs) for row, theirs in zip(rows, parts[name][first:])]
        if name != "optimizer":  # whose step() makes our rows, too, and the next step has that
            assert all(ours <= theirs + TORN for ours, theirs in pairs), name
        missing = statistics.median(theirs - ours for ours, theirs in pairs)
        usual = statistics.median(theirs for _, theirs in pairs)
        assert missing < UNDER * usual + BETWEEN, (name, missing, usual)
    for row in rows:
        assert sum(row[1:5]) + row[6] + row[7] == pytest.approx(row[5], rel=1e-9), row


def test_losses_to_the_last_bit(world, torch):
    """As without us, whatever is loaded and stopped meanwhile; and what we say they were."""
    alone = Run(world, "loop.py", torch, lambda target: None, tag="alone")
    run = Run(world, "loop.py", torch, load)
    for n in range(20 if LONG else 4):
        seen = run.target.rows("select count(*) from python.variables")[0][0]
        shared.wait_for(lambda: "done" in run.target.output() or
                        run.target.rows("select count(*) from python.variables")[0][0] > seen + 3,
                        "some steps")
        done = run.target.probing("plugin", "stop", "torch")
        assert done.returncode == 0, done.stderr
        load(run.target)
    losses = run.answer()["losses"]
    assert losses == alone.answer()["losses"]
    kept = [struct.pack("f", float(row[0])) for row in run.target.rows(
        "select value from python.variables where name = 'loss' order by ts")]
    bits, at = [struct.pack("f", loss) for loss in losses], -1
    for value in kept:  # in their order; where it was stopped some are missing
        at = bits.index(value, at + 1)
    assert len(kept) > (100 if LONG else 8)


def test_a_collective_begins_when_it_is_called(world, torch, busy):
    """The look at its tensors is in it: 22 us of 250 tensors were left out."""
    with beside(busy):
        run = Run(world, "tensors_of_a_collective.py", torch, load)
        own = run.answer()
    ours = [seconds for seconds, in run.target.rows(
        "select duration_ms / 1e3 from python.comm_collective where op = 'allreduce_coalesced' "
        "order by ts")]
    assert len(ours) == len(own)
    assert all(seconds < truth + TORN for seconds, truth in zip(ours, own))
    short = [truth - seconds for seconds, truth in zip(ours, own)]
    many, one = statistics.median(short[::2]), statistics.median(short[1::2])
    assert many < 2 * one + BETWEEN / 3, (many, one)
