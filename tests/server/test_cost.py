# SPDX-License-Identifier: Apache-2.0
"""What a question costs the process that is asked, in what can be counted: threads that are begun
and woken.  What that is in time, tests/bench/many_ranks.py says."""
import os
import re

import pytest

from wire import open_door

QUESTIONS = 50
ENDLESS = "select count(*) from generate_series(1, 200000000000) n"
LITTLE = "select count(*) from process.envs"
MUCH = "select count(*) from process.envs, generate_series(1, 9) n"  # as far as it is known before


@pytest.fixture
def door(world):
    return open_door(world)


def threads(pid, name):
    """How often each thread of that name has gone to sleep, by its number."""
    found = {}
    for tid in os.listdir("/proc/%d/task" % pid):
        try:
            status = open("/proc/%d/task/%s/status" % (pid, tid)).read()
        except OSError:
            continue
        if re.match(r"Name:\t%s\n" % name, status):
            sleeps = re.search(r"^voluntary_ctxt_switches:\t(\d+)", status, re.M)
            found[int(tid)] = int(sleeps.group(1))
    return found


def ask(wire, statement, timeout_ms):
    wire.last += 1
    wire.send({"id": wire.last, "run": ["query", statement, "--format", "json"],
               "timeout_ms": timeout_ms})
    return wire.end(wire.last)


@pytest.mark.parametrize("question", [LITTLE, MUCH])
def test_a_question_begins_no_thread_and_wakes_few(door, question):
    pid, names = door.target.pid, ("query", "control", "server", "work")
    with door.wire(token=door.token) as wire:
        assert ask(wire, question, 30000)[0] == 0
        before = [threads(pid, "probing/" + name) for name in names]
        for _ in range(QUESTIONS):
            assert ask(wire, question, 30000)[0] == 0
        after = [threads(pid, "probing/" + name) for name in names]
    assert len(before[0]) == (1 if question == MUCH else 0)
    assert before[0].keys() == after[0].keys()
    woken = [sum(a.values()) - sum(b.values()) for a, b in zip(after, before)]
    assert woken[1] < QUESTIONS // 2, woken  # the limits of all are later than what it waits for
    assert woken[2] <= 3 * QUESTIONS, woken  # for the question, and for the answer
    if question == LITTLE:
        assert woken[3] < 2 * QUESTIONS, woken  # for the question: it waits for nobody then


def test_a_shorter_limit_than_those_before_is_kept(door):
    with door.wire(token=door.token) as wire:
        assert ask(wire, "select 1", 3600000)[0] == 0
        for _ in range(3):
            assert ask(wire, ENDLESS, 50)[0] == -110
            assert ask(wire, "select 1", 3600000)[0] == 0
