# SPDX-License-Identifier: Apache-2.0
"""A client made of bytes, so that tests can say what no real client would: HTTP and websocket."""
import json
import os
import re
import socket
import struct

from world import LIMIT, wait_for

IDLE = "import time\nprint('ready')\nwhile True: time.sleep(0.05)\n"


def open_door(world, source=IDLE, env=None):
    """A target that listens on TCP."""
    target = world.python(source, env=env)
    target.wait_line("ready")
    target.inject("-l", "127.0.0.1:0")
    return Door(world, target)


class Door:
    def __init__(self, world, target):
        self.world, self.target = world, target
        self.directory = next(d for d in world.data.iterdir() if d.name.startswith(str(target.pid)))
        self.sock = str(self.directory / "sock")
        listening = wait_for(lambda: re.search(r"listening: .*:(\d+)",
                                               target.probing("info").stdout), "a TCP address")
        self.port = int(listening.group(1))
        self.token = (self.directory / "token").read_text()
        self.read_token = (self.directory / "token-read").read_text()

    def wire(self, token, path=None):
        return Wire(path or self.port, token)

    def http(self, method, path, body="", token=None, host="127.0.0.1", headers=()):
        host = "%s:%d" % (host, self.port) if host == "127.0.0.1" else host
        lines = ["Authorization: Bearer " + token] if token else []
        return http(self.port, method, path, body, host, lines + list(headers))


def dial(where):
    """where: a port of this machine, or the path of a socket."""
    if isinstance(where, int):
        return socket.create_connection(("127.0.0.1", where), timeout=LIMIT)
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(LIMIT)
    s.connect(where)
    return s


def http(where, method, path, body="", host="localhost", headers=()):
    """(status, header lines, body) of one request on a connection of its own."""
    lines = ["%s %s HTTP/1.1" % (method, path)] + (["Host: " + host] if host else [])
    if not any(h.lower().startswith("connection:") for h in headers):
        lines.append("Connection: close")
    if method == "POST":
        lines.append("Content-Length: %d" % len(body.encode()))
    with dial(where) as s:
        s.sendall(("\r\n".join(lines + list(headers)) + "\r\n\r\n" + body).encode())
        answer = s.makefile("rb").read()
    head, _, rest = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return int(lines[0].split()[1]), lines[1:], rest.decode(errors="replace")


class Wire:
    """A websocket, and messages as they are."""
    HANDSHAKE = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]

    def __init__(self, where, token=None):
        self.s = dial(where)
        self.buffer = b""
        self.last = 0
        self.waiting = {}
        lines = ["GET /ws HTTP/1.1", "Host: localhost"] + self.HANDSHAKE
        lines += ["Authorization: Bearer " + token] if token else []
        self.s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

    def _more(self):
        data = self.s.recv(1 << 16)
        if not data:
            raise EOFError("the server has closed")
        self.buffer += data

    def _take(self, n):
        while len(self.buffer) < n:
            self._more()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def frame(self, first, data, mask=True):
        n = len(data)
        bit = 0x80 if mask else 0
        size = (struct.pack("!B", bit | n) if n < 126 else
                struct.pack("!BH", bit | 126, n) if n < 65536 else struct.pack("!BQ", bit | 127, n))
        key = os.urandom(4) if mask else b""
        if mask and n:
            number = int.from_bytes((key * (n // 4 + 1))[:n], "big")
            data = (int.from_bytes(data, "big") ^ number).to_bytes(n, "big")
        self.s.sendall(bytes([first]) + size + key + data)

    def send(self, message):
        self.frame(0x81, json.dumps(message).encode())

    def receive_frame(self):
        first, size = self._take(2)
        if size == 126:
            size, = struct.unpack("!H", self._take(2))
        elif size == 127:
            size, = struct.unpack("!Q", self._take(8))
        return first, self._take(size)

    def receive(self):
        """The next message; (code, reason) when the server closes."""
        while True:
            first, data = self.receive_frame()
            if first & 15 == 9:
                self.frame(0x8a, data)
            elif first & 15 == 8:
                return struct.unpack("!H", data[:2])[0], data[2:].decode()
            else:
                assert first == 0x81, first
                return json.loads(data.decode("utf-8"))

    def end(self, number):
        """(status, text, error) of a request, whatever comes between."""
        while True:
            text, done = self.waiting.setdefault(number, ([], None))
            if done:
                del self.waiting[number]
                return done["done"], "".join(text), done.get("error", "")
            message = self.receive()
            assert isinstance(message, dict), message
            its, old = self.waiting.setdefault(message.get("id"), ([], None))
            if "data" in message:
                its.append(message["data"])
            if "done" in message or "id" not in message:
                self.waiting[message.get("id")] = (its, message if "done" in message else old)

    def run(self, *words):
        self.last += 1
        self.send({"id": self.last, "run": list(words)})
        return self.end(self.last)
