# SPDX-License-Identifier: Apache-2.0
"""Who may come in, and for what: the two tokens, pages of strangers, limits, and the log of writes.

Requests are written by hand, byte by byte: a browser would not let us forge them.
"""
import json
import os
import socket
import threading

import pytest

from wire import Wire, open_door
from world import LIMIT


@pytest.fixture
def door(world):
    return open_door(world)


READS = (["query", "select 1"], ["tables"], ["describe", "probing.tables"], ["backtrace"],
         ["plugin", "list"], ["config"], ["script", "list"], ["info"], ["help"])
WRITES = (["eval", "1"], ["complete", "os"], ["script", "run", "a", "x = 1"],
          ["script", "stop", "a"], ["script", "reload", "a", "x = 1"],
          ["script", "check", "a", "x = 1"], ["script", "help", "a", "x = 1"],
          ["config", "set", "probing.log_level", "info"],
          ["config", "probing.log_level=info"], ["plugin", "load", "torch"],
          ["plugin", "stop", "python"], ["eject"])


def test_tokens_are_private_files_and_differ(door):
    for name in ("token", "token-read"):
        path = door.directory / name
        assert path.stat().st_mode & 0o777 == 0o600 and len(path.read_text()) == 32
    assert door.token != door.read_token


def test_read_token_reads_and_never_writes(door):
    with door.wire(token=door.read_token) as wire:
        for words in READS:
            status, _, error = wire.run(*words)
            assert status == 0, (words, status, error)
        for words in WRITES:
            status, _, error = wire.run(*words)
            assert (status, "may only read" in error) == (-13, True), (words, status, error)
    status, _, body = door.http("POST", "/eval", body="1", token=door.read_token)
    assert status == 403 and json.loads(body)["error"]["code"] == "EACCES"
    with socket.create_connection(("127.0.0.1", door.port), timeout=LIMIT) as text:
        text.sendall(b"token %s\neval 1\nquit\n" % door.read_token.encode())
        assert b"error: 'eval' changes the process" in text.makefile("rb").read()
    assert door.target.rows("select 1") == [[1]]  # nothing of it was done


def test_full_token_writes(door):
    with door.wire(token=door.token) as wire:
        assert wire.run("eval", "6 * 7")[:2] == (0, "42\n")


def test_writes_are_logged_with_who_and_without_secrets(door):
    secret = "hunter2hunter2"
    with door.wire(token=door.token) as wire:
        assert wire.run("eval", "password = '%s'" % secret)[0] == 0
        wire.run("config", "set", "demo.api_key", secret)
        wire.run("config", "demo.api_key=" + secret)
        wire.run("script", "run", "tiny", "-- %s\n" % secret)
        wire.run("query", "select '%s'" % secret)  # no write: not logged
    with door.wire(token=door.read_token) as wire:
        wire.run("eval", secret)
    with door.wire(token=None, path=door.sock) as wire:
        assert wire.run("eval", "1")[0] == 0
    rows = [row[0] for row in door.target.rows("select text from probing.log "
                                               "where source = 'server' order by ts")]
    log = "\n".join(rows)
    assert secret not in log and door.token not in log and door.read_token not in log, log
    ends = [line.split(", full token: ")[1] for line in rows if ", full token: " in line]
    assert ends == ["eval (27 bytes)", "config set demo.api_key ***",
                    "config demo.api_key=***", "script run tiny (18 bytes)"], log
    assert any(line.startswith("127.0.0.1:") for line in rows), log
    refused = "read-only token (refused, may only read): eval (14 bytes)"
    assert any(line.endswith(refused) for line in rows), log
    assert "pid %d of uid %d: eval (1 bytes)" % (os.getpid(), os.getuid()) in rows


def test_wrong_token_is_logged_not_shown(door):
    assert door.http("GET", "/tables", token="nonsense-token")[0] == 401
    log = [r[0] for r in door.target.rows("select text from probing.log where level = 'warn'")]
    assert any("127.0.0.1:" in line and "turned away" in line for line in log), log
    assert not any("nonsense" in line for line in log)


def test_dns_rebinding(door):
    """A name of a stranger that now points here: the browser sends his name as Host and Origin."""
    for host in ("evil.example:%d" % door.port, "evil.example", "127.0.0.1.nip.io:%d" % door.port,
                 "localhost.evil.example", "0x7f.1"):
        for path in ("/", "/query?q=select+1", "/metrics", "/openapi.json", "/healthz"):
            status, _, body = door.http("GET", path, token=door.token, host=host)
            assert status == 403 and "number" in body, (host, path, status)
        status, _, _ = door.http("GET", "/ws", token=door.token, host=host,
                                 headers=Wire.HANDSHAKE + ["Origin: http://" + host])
        assert status == 403, host
    assert door.http("GET", "/healthz", token=door.token, host=None)[0] == 403


def test_pages_of_strangers(door):
    """The cookie comes along by itself; Origin and Sec-Fetch-Site tell whose page asks."""
    status, head, _ = door.http("GET", "/healthz?token=" + door.token)
    cookie = [line for line in head if line.startswith("Set-Cookie: ")][0]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and status == 200
    jar = "Cookie: " + cookie.split(": ")[1].split(";")[0]
    assert door.http("GET", "/tables", headers=[jar])[0] == 200
    here = "http://127.0.0.1:%d" % door.port
    for origin in ("http://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:1",
                   "http://localhost:%d" % door.port, here + ".evil.example", "file://"):
        for method, path in (("GET", "/tables"), ("POST", "/eval"), ("GET", "/ws")):
            extra = Wire.HANDSHAKE if path == "/ws" else []
            status, _, _ = door.http(method, path, headers=[jar, "Origin: " + origin] + extra)
            assert status == 403, (origin, path)
    assert door.http("GET", "/tables", headers=[jar, "Origin: " + here])[0] == 200
    for site in ("cross-site", "same-site"):
        assert door.http("GET", "/tables", headers=[jar, "Sec-Fetch-Site: " + site])[0] == 401
    for site in ("same-origin", "none"):
        assert door.http("GET", "/tables", headers=[jar, "Sec-Fetch-Site: " + site])[0] == 200


def send_quietly(s, data):
    try:
        s.sendall(data)
    except OSError:
        pass  # it has closed


def read_quietly(s):
    data = b""
    try:
        while True:
            more = s.recv(1 << 16)
            if not more:
                return data
            data += more
    except OSError:
        return data  # closed with more of ours unread


def test_requests_a_second_are_limited_by_tcp(door):
    ends = []
    with door.wire(token=door.read_token) as wire:
        for first in range(0, 4000, 50):
            for i in range(first, first + 50):
                wire.send({"id": i, "run": ["version"]})
            ends += [wire.end(i) for i in range(first, first + 50)]
            if ends[-1][0] == -11:
                break
    refused = [end for end in ends if end[0] == -11 and "too many requests" in end[2]]
    assert refused and len(ends) - len(refused) >= 400  # the burst that is allowed
    request = ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n"
               % door.token).encode()
    with socket.create_connection(("127.0.0.1", door.port), timeout=LIMIT) as s:
        threading.Thread(target=send_quietly, args=(s, request * 4000)).start()
        answer = read_quietly(s)
    assert answer.count(b"HTTP/1.1 200") >= 400
    assert answer.count(b"HTTP/1.1 429") == 1 and b"Retry-After: 1" in answer
    with door.wire(token=None, path=door.sock) as wire:  # the owner's own socket is not limited
        assert all(wire.run("version")[0] == 0 for _ in range(600))


def test_connections_by_tcp_leave_room_for_the_owner(door):
    strangers = [socket.create_connection(("127.0.0.1", door.port), timeout=LIMIT)
                 for _ in range(300)]
    try:
        assert door.target.rows("select 1") == [[1]]
    finally:
        for s in strangers:
            s.close()


def test_slow_loris(door):
    """A request that comes a byte a second is not waited for, however alive its sender looks."""
    with socket.create_connection(("127.0.0.1", door.port), timeout=LIMIT) as s:
        s.settimeout(1)
        for byte in b"GET /" + b"x" * 60:
            try:
                s.sendall(bytes([byte]))
                if s.recv(100) == b"":
                    return
            except socket.timeout:
                continue
            except OSError:
                return
    pytest.fail("a minute, and the connection is still open")


def test_tokens_are_in_no_command_line(door):
    with open("/proc/%d/cmdline" % door.target.pid, "rb") as line:
        assert door.token.encode() not in line.read()
    for name in ("info", "tables"):
        path = door.directory / name
        if path.exists():
            assert door.token.encode() not in path.read_bytes()
