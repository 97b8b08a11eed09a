# SPDX-License-Identifier: Apache-2.0
"""Members that hang, lie, flood or go: each is named, and the others' answers are there."""
import json
import os
import signal
import struct
import subprocess
import time

import pytest
from ranks import Player, four, frame, named, piece, rows, start_ranks  # noqa: F401
from world import CLI, wait_for

# For minutes in the rank of that number, at once in all others.
SLOW = ("select (select count(*) from generate_series(1, case when e.value = '%d' then 3000000000 "
        "else 1 end) g) as n from process.envs e where name = 'RANK'")
MARK = b"\xff\xff\xff\xff"


def forever(*data):
    def play(connection):
        while True:
            for one in data:
                connection.sendall(one)
    return play


def once(*data):
    def play(connection):
        for one in data:
            connection.sendall(one)
        connection.recv(1)  # until the command hangs up
    return play


def ends(*data):
    def play(connection):
        for one in data:
            connection.sendall(one)
        connection.close()
    return play


# name -> what it plays, raw: without the handshake; and words of the reason
PLAYERS = {
    "garbage": (once(b"\x00\xffgarbage\r\n\r\n" * 9000), True, "does not speak our protocol"),
    "http": (ends(b"HTTP/1.1 404 Not Found\r\n\r\nno"), True, "404"),
    "head": (forever(b"a: b\r\n" * 1000), True, "no end"),
    "closes": (ends(), True, "closed"),
    "half": (ends(piece(MARK + b"\x10\0\0\0ab")), False, "closed"),
    "no arrow": (once(piece(b"hello, world")), False, "not what a core sends"),
    "huge": (once(piece(MARK + struct.pack("<I", 1 << 30))), False, "not what a core sends"),
    "flood": (forever(piece(MARK + os.urandom(60000))), False, "not what a core sends"),
    "pings": (forever(frame(9, b"x")), False, "flood of pings"),
    "frame": (forever(b"\x82\x7f" + struct.pack(">Q", 1 << 40)), False, "our protocol"),
    "nothing": (once(frame(1, b'{"id":1,"done":0}')), False, "ended prematurely"),
    "no": (once(frame(1, b'{"id":1,"done":-22,"error":"\\u001b[31mred\\nprobing: lies"}')), False,
           "\\x1b[31mred"),
    "silent": (once(), False, "no answer within"),
    "deaf": (once(), True, "no answer within"),
}


@pytest.fixture(scope="module")
def players():
    made = {name: Player(play, raw) for name, (play, raw, _) in PLAYERS.items()}
    yield made
    for player in made.values():
        player.close()


@pytest.mark.parametrize("token", ["", "none of theirs"])  # without: a child asks each
def test_all_of_them_at_once(four, players, token):
    done = four.probing("-t", named(*players.values(), *four.ranks), "--timeout", "8s", "query",
                        "select 7 as n", "--format", "json", env={"PROBING_TOKEN": token})
    assert done.returncode == 1
    assert [r["n"] for r in rows(done)] == [7] * 4
    assert "4 of %d answered" % (4 + len(players)) in done.stderr
    lines = done.stderr.splitlines()
    for name, player in players.items():
        line = next((t for t in lines if player.name in t), "")
        assert PLAYERS[name][2] in line, (name, done.stderr)
    assert "\x1b" not in done.stderr and not [t for t in lines[1:] if not t.startswith("  ")]


def test_it_is_named_when_it_dies_in_the_middle(four):
    doomed = start_ranks(four, 1, RANK="7", TORCHELASTIC_RUN_ID="doomed")[0]
    running = subprocess.Popen([str(CLI), "-t", named(four.ranks[0], doomed), "query",
                                SLOW % 7, "--format", "csv"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=four.env, text=True)
    busy = "select count(*) from probing.clients where protocol = 'websocket'"
    wait_for(lambda: int(doomed.rows(busy)[0][0]) >= 2, "the query to run")
    doomed.process.send_signal(signal.SIGKILL)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "0,1" in out and "rank 7 (process %d): the process has died" % doomed.pid in err, err


# Many rows of the rank 7, two of others.
MANY = ("select g, repeat('x', 500) as s from generate_series(1, (select case when value = '7' "
        "then 300000 else 2 end from process.envs where name = 'RANK')) g")


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "arrow"])
def test_an_answer_says_that_one_has_died_when_some_of_its_rows_were_out(four, form):
    doomed = start_ranks(four, 1, RANK="7", TORCHELASTIC_RUN_ID="doomed")[0]
    running = subprocess.Popen([str(CLI), "-t", named(four.ranks[0], doomed), "query", MANY,
                                "--limit", "0", "--format", form], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=four.env, bufsize=0)
    first = b"".join(running.stdout.read(1 << 16) for _ in range(32))  # it waits for who reads
    doomed.process.send_signal(signal.SIGKILL)
    out, err = running.communicate(timeout=60)
    out = first + out
    assert running.returncode == 1 and b"some of its rows are in the answer" in err, err
    if form == "json":
        answer = json.loads(out)
        assert answer["missing"] == 1 and answer["row_count"] == len(answer["rows"]) < 300002
    elif form == "jsonl":
        assert all(json.loads(line)["rank"] in (0, 7) for line in out.splitlines())
    else:
        assert (b"missing" in out) is (form == "arrow")


def test_the_time_in_which_nobody_reads_the_answer_is_not_theirs(four):
    """As of a pager: both have more than is held, and are read again after their time limit."""
    many = MANY.replace("value = '7'", "true")
    running = subprocess.Popen([str(CLI), "-t", named(*four.ranks[:2]), "--timeout", "5s", "query",
                                many, "--limit", "0", "--format", "csv"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=four.env, bufsize=0)
    first, until = running.stdout.read(1 << 16), time.monotonic() + 6
    wait_for(lambda: time.monotonic() > until, "the time limit to have gone by")
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert (first + out).count(b"\n") == 600001


def test_the_time_in_which_the_command_stands_is_not_theirs(four, tmp_path):
    """Stopped in the middle for longer than the time limit, as where it gets no CPU: everybody
    takes the answer, and nobody reads the members."""
    many = MANY.replace("value = '7'", "true").replace("300000", "100000")
    with open(tmp_path / "rows.csv", "wb") as out:
        running = subprocess.Popen([str(CLI), "-t", named(*four.ranks[:2]), "--timeout", "3s",
                                    "query", many, "--limit", "0", "--format", "csv"], stdout=out,
                                   stderr=subprocess.PIPE, env=four.env, bufsize=0)
        wait_for(lambda: os.path.getsize(out.name) > 0, "the first rows")
        running.send_signal(signal.SIGSTOP)
        until = time.monotonic() + 4
        wait_for(lambda: time.monotonic() > until, "the time limit to have gone by")
        running.send_signal(signal.SIGCONT)
        err = running.communicate(timeout=60)[1]
    assert running.returncode == 0, err
    assert (tmp_path / "rows.csv").read_bytes().count(b"\n") == 200001


def test_ctrl_c_shows_what_has_come(four):
    asking = subprocess.Popen([str(CLI), "-t", named(*four.ranks), "query", SLOW % 3, "-f", "csv"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=four.env,
                              text=True)

    def clients(target):
        return int(target.rows("select count(*) from probing.clients")[0][0])
    wait_for(lambda: clients(four.ranks[3]) >= 2, "the last one to be asked")
    wait_for(lambda: all(clients(t) <= 1 for t in four.ranks[:3]), "the others' answers")
    asking.send_signal(signal.SIGINT)
    out, err = asking.communicate(timeout=60)
    assert asking.returncode == 130, err
    assert out.split() == ["rank,n", "0,1", "1,1", "2,1"] and "3 of 4 answered" in err, (out, err)
    assert "interrupted" in err and "truncated" not in out


def test_a_time_limit_is_of_each(four, players):
    done = four.probing("-t", named(players["silent"], players["deaf"], four.ranks[0]), "--timeout",
                        "1s", "query", "select 1 as n")
    assert done.returncode == 1 and "1 of 3 answered" in done.stderr
    assert "no answer within 1s" in done.stderr
