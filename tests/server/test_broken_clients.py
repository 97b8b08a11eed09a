# SPDX-License-Identifier: Apache-2.0
"""Clients that break off, lie or flood, against a process that works: it never notices.

SERVER_STORM=100000 opens and drops that many connections (3,000 by default).
"""
import os
import random
import re
import socket
import struct

import pytest

from wire import Wire, dial, open_door
from world import wait_for

# Says once a second how many turns its loop made, so that one can see it live.
WORKS = """import time
print("ready")
turns, said = 0, time.monotonic()
while True:
    turns += 1
    time.sleep(0.001)
    if time.monotonic() > said + 1:
        print("turns", turns)
        said = time.monotonic()
"""


@pytest.fixture
def door(world):
    made = open_door(world, WORKS)
    target = made.target
    made.fds = "/proc/%d/fd" % target.pid
    made.target.rows("select 1")  # whatever opens a descriptor once has done so
    yield made
    # It lives, goes on working, answers, and holds nothing that it did not hold before.
    turns = len(re.findall("turns", target.output()))
    wait_for(lambda: len(re.findall("turns", target.output())) > turns + 1, "the loop to turn")
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "an answer")
    assert target.alive()


def kinds(door):
    """The target's descriptors by what they are; connections come and go."""
    found = {}
    for fd in os.listdir(door.fds):
        try:
            name = re.sub(r"\[\d+\]", "", os.readlink("%s/%s" % (door.fds, fd)))
        except OSError:
            continue
        found[name] = found.get(name, 0) + 1
    return found


@pytest.fixture
def no_leak(door):
    before = kinds(door)
    yield door
    wait_for(lambda: all(n <= before.get(kind, 0) for kind, n in kinds(door).items()),
             "no more descriptors than %s" % before)


def try_dial(where):
    try:
        return dial(where)
    except OSError:
        return None  # its queue is full


def drop(s, hard):
    if s is None:
        return
    if hard:  # a reset instead of an end
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def send(s, data):
    try:
        s.sendall(data)
    except OSError:
        pass  # it has been shown out already


def test_storm_of_connections(no_leak):
    """Opened and dropped in a loop, most without a word, by both doors."""
    words = (b"", b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"version\n",
             b"GET /ws HTTP/1.1\r\n" + "\r\n".join(Wire.HANDSHAKE).encode() + b"\r\n\r\n")
    for i in range(int(os.environ.get("SERVER_STORM", "3000"))):
        s = try_dial(no_leak.port if i % 2 else no_leak.sock)
        if s and words[i % len(words)]:
            send(s, words[i % len(words)])
        drop(s, hard=i % 3 == 0)


def test_half_requests(no_leak):
    """Every length that a request can be cut off at."""
    body = b'{"run":["query","select 1"]}'
    whole = (b"POST /run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
             b"Content-Length: %d\r\n\r\n" % (no_leak.token.encode(), len(body))) + body
    for n in range(len(whole)):
        s = wait_for(lambda: try_dial(no_leak.port if n % 2 else no_leak.sock), "a place")
        send(s, whole[:n])
        drop(s, hard=n % 3 == 0)


def test_huge_headers_and_lines(no_leak):
    for junk in (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100000,
                 b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: " + b"h" * (1 << 20),
                 b"POST /eval HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
                 b"POST /eval HTTP/1.1\r\nContent-Length: 1048576\r\n\r\n" + b"x" * 1000,
                 b"query " + b"'" * (2 << 20), b"\0" * (1 << 20), os.urandom(1 << 20),
                 b"\xff\xfe\xc3\x28\xed\xa0\x80 \xf8\n" * 1000):
        s = dial(no_leak.sock)
        send(s, junk)
        drop(s, hard=False)


def closing(wire):
    """The code that the server closes with."""
    while True:
        first, data = wire.receive_frame()
        if first & 15 == 8:
            return struct.unpack("!H", data[:2])[0]


def test_wrong_websocket_frames(no_leak):
    cases = [(0x82, b"binary", True, 1003),        # binary
             (0x81, b'{"id":1}', False, None),     # not masked
             (0x83, b"", True, None),              # an operation that there is not
             (0xc1, b"{}", True, None),            # a reserved bit
             (0x09, b"ping in parts", True, None),
             (0x89, b"p" * 126, True, None),       # a long ping
             (0x80, b"more of nothing", True, None)]
    for first, data, mask, code in cases:
        with Wire(no_leak.sock) as wire:
            wire.frame(first, data, mask)
            wire.s.settimeout(30 if code else 0.2)
            try:
                assert code in (None, closing(wire)), first
            except (EOFError, OSError):
                assert code is None  # closed without a word, or ignored
    with Wire(no_leak.sock) as wire:  # longer than 4 MiB, by what its head says
        wire.s.sendall(b"\x81\xff" + struct.pack("!Q", 1 << 40) + b"\0\0\0\0" + b"x" * 1000)
    with Wire(no_leak.sock) as wire:  # no UTF-8, no JSON, no sense: said, and it goes on
        for text in (b"\xff\xfe", b"{", b"[]", b"1", b'{"id":1}', b'{"id":-1,"run":["a"]}',
                     b'{"id":1,"run":"tables"}', b'{"id":1,"run":[{}]}', b"[" * 100000):
            wire.frame(0x81, text)
            answer = wire.receive()
            assert "error" in answer, (text, answer)
        assert wire.run("query", "select 1")[0] == 0


def listen_a_little(s, times):
    s.settimeout(0.05)
    try:
        for _ in range(times):
            s.recv(1000)
    except OSError:
        pass  # nothing came, or it has closed


def test_gone_in_the_middle_of_everything(no_leak):
    """While a command runs, an answer streams, a stream flows."""
    chance = random.Random(1)
    for i in range(60):
        where = no_leak.port if i % 2 else no_leak.sock
        token = no_leak.token if i % 2 else None
        try:
            wire = Wire(where, token)
        except (EOFError, OSError):
            continue
        for k in range(chance.randrange(1, 6)):
            wire.send(chance.choice([
                {"id": k, "run": ["eval", "'x' * 3000000"]},
                {"id": k, "run": ["query", "select * from probing.log, probing.settings"]},
                {"id": k, "subscribe": "select * from probing.settings", "interval_ms": 10},
                {"id": k, "follow": "script.nothing"},
                {"id": k, "run": ["backtrace"]}]))
        listen_a_little(wire.s, chance.randrange(3))
        drop(wire.s, hard=i % 3 == 0)
    for i in range(30):
        s = dial(no_leak.sock)
        send(s, b"POST /eval HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n"
                b"'x' * 3000000")
        listen_a_little(s, chance.randrange(3))
        drop(s, hard=i % 3 == 0)


def test_goodbye_of_one_who_reads_nothing(no_leak):
    """He keeps his end open: the connection is over all the same, and costs no time."""
    before = kinds(no_leak)["socket:"]
    wires = [Wire(where, token) for where, token in ((no_leak.sock, None),
                                                    (no_leak.port, no_leak.token))]
    for wire in wires:
        for k in range(3):
            wire.send({"id": k, "run": ["eval", "'x' * 3000000"]})
        listen_a_little(wire.s, 2)
        wire.frame(0x88, struct.pack("!H", 1000))
        wire.s.shutdown(socket.SHUT_WR)
    wait_for(lambda: kinds(no_leak)["socket:"] <= before, "them to be shown out")
    for wire in wires:
        wire.s.close()


def test_flood_of_requests_that_nobody_waits_for(no_leak):
    """More than may wait, from clients that read nothing; then they go."""
    wires = [Wire(no_leak.sock) for _ in range(8)]
    for i in range(100):
        for wire in wires:
            wire.s.settimeout(0.1)
            try:
                wire.send({"id": i, "run": ["query", "select * from probing.settings"]})
            except OSError:
                pass  # its own queue is full: it reads nothing
    for wire in wires:
        wire.s.close()
