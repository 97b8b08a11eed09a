# SPDX-License-Identifier: Apache-2.0
"""Clients that want the server for themselves, and processes that flood their client.

Nothing is timed.  What holds the workers holds them until it is told to end, so that what is
answered meanwhile waited for none of it.
"""
import json
import os
import resource
import select
import socket
import struct
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))
from wire import Wire, dial, http, open_door  # noqa: E402
from world import LIMIT, ROOT, wait_for  # noqa: E402

LONG = ("select a.doc, b.doc from probing.commands a, probing.commands b, probing.commands c, "
        "probing.settings d")
HOLD = "import os, time\nwhile not os.path.exists(%r): time.sleep(0.02)\n'held'"


@pytest.fixture
def door(world):
    made = open_door(world)
    made.target.rows("select 1")
    yield made
    assert made.target.alive() and made.target.rows("select 1") == [[1]]


def ask(door, path="/healthz", **how):
    return door.http("GET", path, token=door.read_token, **how)


def hear_all(s):
    """Read until it closes, and tell whether it was reset."""
    data = b""
    try:
        while True:
            more = s.recv(1 << 16)
            if not more:
                return data, False
            data += more
    except (ConnectionResetError, BrokenPipeError):
        return data, True


def raw(where, data):
    with dial(where) as s:
        try:
            s.sendall(data)
        except OSError:
            pass  # refused before it was all sent: it says so
        return hear_all(s)[0]


def close_code(wire):
    """The code that the server closes with; None: it has closed without one."""
    try:
        while True:
            first, data = wire.receive_frame()
            if first & 15 == 8:
                return struct.unpack("!H", data[:2])[0]
    except (EOFError, OSError):
        return None


# ---- requests end by their own limits ----

def test_a_request_may_take_longer_than_it_may_take_to_send(door):
    """Its answer is not cut at the 10 s that the request has to arrive, kept connection or not."""
    code = "import time; time.sleep(13); 'slept'"
    with dial(door.sock) as s:
        for body in (code, "'again'"):
            s.sendall(("POST /eval HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" %
                       (len(body), body)).encode())
            answer = b""
            while not (b"'slept'\n" in answer or b"'again'\n" in answer):
                more = s.recv(4096)
                assert more, answer
                answer += more
            assert answer.startswith(b"HTTP/1.1 200 ")


# ---- one client beside others ----

def test_short_answers_wait_for_nobody(door, tmp_path):
    """Every worker is held by commands that wait; more of these wait behind them."""
    end = tmp_path / "end"
    wires = [Wire(door.sock) for _ in range(4)]
    for k in range(40):
        wires[k % 4].send({"id": k, "run": ["eval", HOLD % str(end)]})
    with Wire(door.port, door.read_token) as wire:
        for words in (["version"], ["help"], ["info"]):
            assert wire.run(*words)[0] == 0
    assert ask(door)[0] == 200
    assert "pid: %d" % door.target.pid in door.target.probing("info").stdout
    end.write_text("")
    for k in range(40):
        assert wires[k % 4].end(k)[:2] == (0, "'held'\n")
        if k < 4:
            assert wires[k].s.fileno() >= 0
    for wire in wires:
        wire.s.close()


def test_one_client_leaves_workers_to_others(door, tmp_path):
    end = tmp_path / "end"
    with Wire(door.sock) as greedy, Wire(door.port, door.read_token) as other:
        for k in range(60):
            greedy.send({"id": k, "run": ["eval", HOLD % str(end)]})
        assert other.run("query", "select 1")[0] == 0
        assert door.target.rows("select 2") == [[2]]
        end.write_text("")
        assert all(greedy.end(k)[0] == 0 for k in range(60))


def resident(door):
    with open("/proc/%d/statm" % door.target.pid) as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def test_clients_that_do_not_read_hold_nobody(door):
    """150 long answers that nobody reads: others are answered, and the memory has a bound."""
    before = resident(door)
    deaf = []
    for _ in range(150):
        deaf.append(dial(door.port))
        deaf[-1].sendall(("GET /query?format=csv&q=%s HTTP/1.1\r\nHost: localhost\r\n"

                          "Authorization: Bearer %s\r\n\r\n"
                           % (LONG.replace(" ", "+"), door.read_token)).encode())
    assert all(ask(door)[0] == 200 for _ in range(20))
    with Wire(door.port, door.read_token) as wire:
        assert all(wire.run("version")[0] == 0 for _ in range(20))
        assert wire.run("query", "select 1")[0] == 0
    assert door.target.rows("select 2") == [[2]]
    assert resident(door) < before + (256 << 20)  # 64 MiB wait for all, then 256 KiB for each
    for s in deaf:
        s.close()


def test_watches_have_a_limit_that_is_said(door):
    """200 statements on one connection: some run, the rest are refused, others may watch still."""
    with Wire(door.port, door.read_token) as wire, Wire(door.port, door.read_token) as other:
        for k in range(200):
            wire.send({"id": k, "watch": "select count(*) as n%d from probing.commands" % k,
                       "interval_ms": 10})
        refused = {}
        while len(refused) < 200 - 32:
            message = wire.receive()
            why = message.get("error", "")
            if why:
                assert "watched by this connection already" in why or "things run on" in why, why
                refused[message.get("id", "no id %d" % len(refused))] = why
        other.send({"id": 70, "watch": "select 7 as seven", "interval_ms": 10})
        assert "7" in other.receive()["data"]
        assert other.run("version")[0] == 0 and ask(door)[0] == 200


# ---- who may stay ----

def test_silent_strangers_shut_nobody_out(door):
    """250 connections without a token, more than there may be, and new ones all the time."""
    silent = [dial(door.port) for _ in range(250)]
    for _ in range(10):
        assert ask(door)[0] == 200
        silent.append(dial(door.port))
    with Wire(door.port, door.token) as wire:
        assert wire.run("version")[0] == 0
        silent += [dial(door.port) for _ in range(250)]
        assert wire.run("version")[0] == 0  # who has shown a token stays
    assert door.target.rows("select 1") == [[1]]
    for s in silent:
        s.close()


def test_a_thousand_at_once_are_all_answered(door):
    """By the local socket, in three languages: served, or told that there are too many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    words = ["GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "version\n",
             "GET /ws HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % "\r\n".join(Wire.HANDSHAKE)]
    many = []
    try:
        for i in range(1000):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(LIMIT)
            many.append(s)
            s.connect(door.sock)
            s.sendall(words[i % 3].encode())
        served = told = 0
        for i, s in enumerate(many):  # all are kept open meanwhile
            good = (b" 200 ", b"\n.\n", b" 101 ")[i % 3]
            full = (b" 503 ", b"error: too many connections", b" 503 ")[i % 3]
            answer = more = s.recv(4096)
            while more and good not in answer and full not in answer:  # it comes in pieces
                more = s.recv(4096)
                answer += more
            assert good in answer or full in answer, (i, answer)
            served, told = served + (good in answer), told + (full in answer)
        assert served >= 100 and told >= 100
    finally:
        for s in many:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_for(lambda: b" 200 " in raw(door.sock, words[0].replace("\r\n\r\n",
             "\r\nConnection: close\r\n\r\n").encode()), "a place")


# ---- names ----

ODD_HOSTS = ("[::1]evil.example", "[::1]evil.example:%d", "[::1]:%d@evil.example",
             "localhost:x@evil.example", "localhost:%d@evil.example", "u:p@localhost:%d",
             "localhost.",
             "localhost:", "localhost:0", "localhost:99999", "localhost:%d:%d", "localhost/",
             "localhost?a",
             "localhost#", "localhost\\", "127.1:%d", "0x7f.0.0.1", "0177.0.0.1", "2130706433",
             "[::ffff:127.0.0.1]:%d", "[::1%%lo]:%d", "127.0.0.1, evil.example", "localhost%%00",
             "*", "[]", "[", "::1", "evil.example#@localhost")


def test_a_host_is_read_strictly(door):
    for odd in ODD_HOSTS:
        host = odd % ((door.port,) * odd.count("%d")) if "%" in odd else odd
        for headers in ((), ("Origin: http://" + host,)):
            assert ask(door, host=host, headers=headers)[0] in (400, 403), host
    for good in ("localhost", "LOCALHOST:%d" % door.port, "127.0.0.1:1", "[::1]:%d" % door.port):
        assert ask(door, host=good, headers=("Origin: http://" + good,))[0] == 200, good
    # by the local socket no Host is wanted, but an Origin that is nonsense is not ours either
    odd = "localhost:x@evil.example"
    assert http(door.sock, "GET", "/healthz", host=odd,
                headers=("Origin: http://" + odd,))[0] == 403


def test_a_request_has_one_reading(door):
    """Bytes that two parsers could read differently are refused and end the connection."""
    then = b"GET /tables HTTP/1.1\r\nHost: localhost\r\n\r\n"
    heads = (b"Content-Length: 0\r\nContent-Length: %d\r\n",
             b"Content-Length: %d\r\nContent-Length: 0\r\n",
             b"Content-Length: %d, %d\r\n", b"Content-Length: +%d\r\n", b"Content-Length: 0x%d\r\n",
             b"Content-Length: -%d\r\n", b"Content-Length : %d\r\n", b"Content-Length\t: %d\r\n",
             b"Content\x7f-Length: %d\r\n", b" Content-Length: %d\r\n",
             b"X: y\r\n Content-Length: %d\r\n",
             b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n",
             b"Transfer-Encoding: chunked\r\n",
             b"Transfer-Encoding: identity, chunked\r\n", b"X: a\rContent-Length: %d\r\n",
             b"X\0: a\r\n",
             b"Host: evil.example\r\n", b": nothing\r\n", b"Content-Length: \r\n",
             b"Content-Length: 99999999999999999999\r\n", b"Content-Length: 1048577\r\n")
    for head in heads:
        head = head.replace(b"%d", b"%d" % len(then))
        answer = raw(door.sock,
                     b"POST /run HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n" + then)
        status = answer.split(b" ")[1] if answer else answer
        assert status in (b"400", b"413", b"501") and answer.count(b"HTTP/1.1 ") == 1, (head,
                                                                                        answer)
    for line in (b"GET //healthz HTTP/1.1", b"GET /healthz HTTP/1.1 HTTP/1.1",
                 b"CONNECT localhost:80 HTTP/1.1", b"GET /healthz HTTP/2.0",
                 b"GET \t/healthz HTTP/1.1", b"OPTIONS * HTTP/1.1"):
        answer = raw(door.sock, line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert answer.split(b" ")[1:2] in ([b"400"], [b"404"], [b"405"]), (line, answer)
    assert raw(door.sock, b"GET /healthz\0 HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""  # noise


def test_headers_have_a_limit_whole_or_not(door):
    for end in (b"", b"\r\n\r\n"):
        for filler in (b"X: " + b"a" * 20000, b"\r\n".join(b"X%d: y" % i for i in range(3000))):
            answer = raw(door.sock, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + filler + end)
            assert b" 431 " in answer, (end, answer[:100])


# ---- websocket ----

def test_frames_without_a_mask_are_refused(door):
    for where, token in ((door.sock, None), (door.port, door.token)):
        with Wire(where, token) as wire:
            assert wire.run("version")[0] == 0
            wire.frame(0x81, b'{"id":9,"run":["version"]}', mask=False)
            assert close_code(wire) == 1002
        with Wire(where, token) as wire:
            wire.frame(0x89, b"", mask=False)
            assert close_code(wire) == 1002
    lines = ["GET /ws HTTP/1.1", "Host: localhost"] + Wire.HANDSHAKE
    early = "\r\n".join(lines) + "\r\n\r\n"
    assert b" 400 " in raw(door.sock, early.encode() + b"\x81\x02{}")


def test_floods_of_small_frames_end(door):
    """Pings, pongs, empty messages, parts without end: each closes the one that sends them."""
    for first in (0x89, 0x8a, 0x81, 0x01, 0x00):
        with Wire(door.sock) as wire, Wire(door.sock) as other:
            frames = bytes([first, 0x80, 1, 2, 3, 4]) * 1000
            try:
                for _ in range(1000):
                    wire.s.sendall(frames)
                pytest.fail("a million frames %#x, and it listens" % first)
            except OSError:
                pass  # it has closed
            assert other.run("version")[0] == 0
    with Wire(door.sock) as wire:  # some are no flood
        for _ in range(20):
            wire.frame(0x89, b"hello")
        wire.send({"id": 1, "run": ["version"]})
        while wire.receive_frame()[0] == 0x8a:  # pongs, as many as it likes
            pass


def test_requests_without_end(door):
    """Subscriptions, ids, nesting and pipelines: all there may be, words for the rest."""
    with Wire(door.sock) as wire:
        for k in range(10000):
            wire.send({"id": k, "follow": "script.none%d" % k})
            if k >= 64:
                assert "things run on this connection already" in wire.receive()["error"]
        for text in (b'{"id":%s,"run":["version"]}' % (b"9" * 100000),
                     b'{"id":1e999,"run":["version"]}',
                     b'{"id":"%s","run":["version"]}' % (b"x" * 100000), b'{"a":' * 50000,
                     b'[' * 1000000, b'{"id":99999,"run":[' + b'"a",' * 100000 + b'"a"]}'):
            wire.frame(0x81, text)
            assert "error" in wire.receive()
        wire.last = 1 << 20  # the small ids are in use
        wire.send({"id": 0, "cancel": True})
        assert wire.receive() == {"id": 0, "done": 0}
        assert wire.run("version")[0] == 0
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with dial(door.sock) as s:
        threading.Thread(target=s.sendall, args=(request * 5000 + request.replace(
            b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),)).start()
        assert hear_all(s)[0].count(b"HTTP/1.1 200 ") == 5001


def test_half_closed(door):
    """A client that has stopped sending is answered by text; its HTTP request does not go on."""
    with dial(door.sock) as s:
        s.sendall(b"version\nversion\n")
        s.shutdown(socket.SHUT_WR)
        assert hear_all(s)[0].count(b"\n.\n") == 2
    with dial(door.sock) as s:
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        s.shutdown(socket.SHUT_WR)
        assert b" 200 " in hear_all(s)[0]
    with dial(door.sock) as s:
        s.sendall(b"POST /eval HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
        s.shutdown(socket.SHUT_WR)
        assert hear_all(s) == (b"", False)


def test_a_body_that_does_not_come_is_not_waited_for(door):
    with dial(door.sock) as s:
        s.settimeout(LIMIT)
        s.sendall(b"POST /eval HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\nx")
        for _ in range(60):
            if select.select([s], [], [], 1)[0]:
                break
            s.sendall(b"x")  # a byte a second buys no time
        assert hear_all(s)[0] == b""


# ---- a process that floods its client ----

class Fake:
    """A process that takes any handshake and then says the same without end."""

    def __init__(self, frame):
        self.s = socket.create_server(("127.0.0.1", 0))
        self.port, self.frame = self.s.getsockname()[1], frame
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        try:
            peer = self.s.accept()[0]
            peer.recv(4096)
            peer.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
            while True:
                peer.sendall(self.frame * 1000)
        except OSError:
            pass  # it is heard no more


def test_the_python_client_is_not_held(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "plugins" / "python" / "package"))
    from probing import client
    for frame in (b"\x89\x00", b"\x8a\x00", b"\x01\x00", b"\x00\x00", b"\x89\x04ping"):
        fake = Fake(frame)
        with client.connect("127.0.0.1:%d" % fake.port, token="t", timeout=LIMIT) as job:
            with pytest.raises(client.Error, match="flood"):
                job.query("select 1")
    other = json.dumps({"id": 77, "data": ""}).encode()
    fake = Fake(bytes([0x81, len(other)]) + other)  # messages for nobody, as many as one likes
    with client.connect("127.0.0.1:%d" % fake.port, token="t", timeout=LIMIT) as job:
        with pytest.raises(client.Error, match="in time"):
            job.query("select 1", timeout=0.1)
