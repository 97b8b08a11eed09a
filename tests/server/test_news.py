# SPDX-License-Identifier: Apache-2.0
"""watch of a view or of any statement whose answer only grows tells each row once; of one that adds
up it tells all of it, in place on a terminal, and says so where it goes into a pipe."""
import json
import subprocess

import pytest

from test_python_client import ROWS
from wire import open_door
from world import CLI, wait_for

# The kinds that were printed again from the first row on at each tick.
GROWING = ["select n, row_number() over (order by n) as i from script.rows",
           "select n from script.rows order by n",
           "select a.n from script.rows a join script.rows b on a.n = b.n",
           "select n from script.rows where n % 2 = 0 union all "
           "select n from script.rows where n % 2 = 1"]


@pytest.fixture
def door(world):
    door = open_door(world)
    script = world.tmp / "rows.lua"
    script.write_text(ROWS)
    done = door.target.probing("script", "run", str(script))
    assert done.returncode == 0, done.stderr
    wait_for(lambda: door.target.rows("select count(*) from script.rows")[0][0] > 10, "rows")
    return door


def watch(door, *words):
    made = subprocess.Popen([str(CLI), "-t", str(door.target.pid), "watch", "--interval", "30ms",
                             *words], env=door.world.env, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    door.world.clients = getattr(door.world, "clients", []) + [made]
    return made


@pytest.mark.parametrize("statement", GROWING)
def test_a_growing_answer_is_told_once(door, statement):
    stream = watch(door, "-f", "jsonl", statement)
    told = sorted(json.loads(stream.stdout.readline())["n"] for _ in range(60))
    first = told[0]
    assert first > 0 and len(set(told)) == 60, "a row was told twice"
    # An answer in pieces of a union may end in the middle: of the first 50 none is left out.
    assert told[:50] == list(range(first, first + 50))
    stream.kill()
    assert stream.stderr.read() == ""


def test_earlier_rows_on_request(door):
    stream = watch(door, "-f", "jsonl", "--last", "4", GROWING[0])
    asked = door.target.rows("select max(n) from script.rows")[0][0]
    told = [json.loads(stream.stdout.readline())["n"] for _ in range(30)]
    assert told == list(range(told[0], told[0] + 30)) and told[0] <= asked


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "table"])
def test_the_same_over_the_websocket(door, form):
    with door.wire(token=door.read_token) as wire:
        wire.send({"id": 1, "watch": GROWING[0], "interval_ms": 30, "format": form})
        told = []
        while len(told) < 20:
            message = wire.receive()
            assert "snapshot" not in message, message
            text = message["data"]
            if form == "json":
                told += [row[0] for row in json.loads(text)["rows"]]
            elif form == "jsonl":
                told += [json.loads(line)["n"] for line in text.splitlines()]
            else:
                told += [int(line.replace("|", ",").split(",")[0]) for line in text.splitlines()
                         if line.strip()[:1].isdigit()]
        assert told == list(range(told[0], told[0] + len(told)))


def test_what_adds_up_is_whole_and_says_so(door):
    with door.wire(token=door.read_token) as wire:
        wire.send({"id": 1, "watch": "select count(*) as n from script.rows", "interval_ms": 30})
        assert wire.receive()["snapshot"] is True
    stream = watch(door, "select count(*) as n from script.rows")
    for _ in range(3):
        assert stream.stdout.readline().split() == ["n"]
        assert "-" in stream.stdout.readline() and stream.stdout.readline().strip().isdigit()
        assert stream.stdout.readline().startswith("(1 row, ")
    stream.kill()
    said = stream.stderr.read()
    assert said.count("\n") == 1 and "its whole answer follows" in said
