# SPDX-License-Identifier: Apache-2.0
"""A websocket (RFC 6455) to a core, and what has become of its process when it breaks."""
import json
import os
import re
import socket
import struct
import time

from ._door import Door, has_core, identity, listens
from ._error import Error, Gone

MESSAGE_BYTES = 64 << 20  # the longest taken from the process
LOOK_SECONDS = 2.0  # a process that dies closes its sockets first, then is seen dead
_HEAD_BYTES = 64 << 10    # of its answer to the handshake
_SMALL_MAX = 1000         # pings and empty parts in a second; a process sends one a minute
_MORE, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10


class Wire:
    def __init__(self, address, token, timeout):
        self._timeout, self._where = timeout, str(address)
        self._buffer, self._door, self._process = b"", address, None
        try:
            self._socket = _dial(address, timeout)
            self._small = (0.0, 0)  # when the second began, and what came in it
        except OSError as error:
            raise Gone("%s: %s" % (self._where, error.strerror or error))
        if self._socket.family == socket.AF_UNIX:  # who listens: to be known again by its start
            pid = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET,
                                                              socket.SO_PEERCRED, 12))[0]
            self._process = identity(pid) if pid > 0 else None
        try:
            self._shake_hands(token(self._socket) if callable(token) else token)
        except BaseException:
            self._socket.close()
            raise

    def close(self):
        self._socket.close()

    def _shake_hands(self, token):
        # A server refuses names (they can be pointed anywhere), so we say the number we came to.
        host = "localhost"
        if self._socket.family != socket.AF_UNIX:
            name = self._socket.getpeername()
            host = ("[%s]:%d" if ":" in name[0] else "%s:%d") % name[:2]
        if token and not re.fullmatch(r"[!-~]+", token):
            raise Error("the token is not usable: it has blanks or line breaks", "EINVAL")
        self._send_bytes(("GET /ws HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\n"
                          "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                          "Sec-WebSocket-Key: cHJvYmluZ2NsaWVudDAwMQ==\r\n"
                          "Sec-WebSocket-Protocol: probing.1\r\n%s\r\n"
                          % (host, "Authorization: Bearer %s\r\n" % token if token else "")
                          ).encode())
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > _HEAD_BYTES:
                raise Error("%s does not speak our protocol" % self._where, "EPROTO")
            self._more(self._timeout)
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            self._refused(head)

    def _refused(self, head):
        size = re.search(rb"(?i)\r\nContent-Length: (\d+)", head)
        try:
            while size and len(self._buffer) < int(size.group(1)):
                self._more(self._timeout)
            error = json.loads(self._buffer.decode("utf-8", "replace"))["error"]
        except (ValueError, KeyError, TypeError, Gone):
            raise Error("%s does not speak our protocol" % self._where, "EPROTO")
        raise Error(error["message"], error["code"], hint=error["hint"])

    def _send_bytes(self, data):
        self._socket.settimeout(self._timeout)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Gone("%s (%s)" % (self._fate(), error))

    def _fate(self):
        """One sentence on what became of the process behind a stream that has ended."""
        until, listened = time.monotonic() + LOOK_SECONDS, 0
        while self._process and time.monotonic() < until:
            if identity(self._process[0]) != self._process:
                return "the process has died"
            taken = listens(self._door)
            if taken is None and identity(self._process[0]) == self._process:
                return "the core has left process %d, which lives on" % self._process[0]
            listened += bool(taken)
            if listened > 2:  # an exec closes them one by one
                break
            if not taken and not has_core(self._process[0], self._door.directory):
                return ("process %d runs another program now (exec), and the core went with the "
                        "one before" % self._process[0])
            time.sleep(0.01)
        if self._process:
            return "the connection was closed by the core; process %d lives" % self._process[0]
        return "the connection to %s was closed; whether its process lives is unknown" % self._where

    def _more(self, timeout):
        self._socket.settimeout(timeout)
        try:
            data = self._socket.recv(1 << 18)
        except socket.timeout:
            raise Gone("%s does not answer; the process may be stopped or busy" % self._where)
        except OSError as error:
            raise Gone("%s (%s)" % (self._fate(), error))
        if not data:
            raise Gone(self._fate())
        self._buffer += data

    def send(self, message):
        self._frame(_TEXT, json.dumps(message).encode())

    def _frame(self, kind, data):
        n, key = len(data), os.urandom(4)
        size = (struct.pack("!B", 0x80 | n) if n < 126 else
                struct.pack("!BH", 0x80 | 126, n) if n < 65536 else
                struct.pack("!BQ", 0x80 | 127, n))
        mask = int.from_bytes((key * (n // 4 + 1))[:n], "big")
        masked = (int.from_bytes(data, "big") ^ mask).to_bytes(n, "big")
        self._send_bytes(bytes([0x80 | kind]) + size + key + masked)

    def _take(self, n, timeout):
        while len(self._buffer) < n:
            self._more(timeout)
        data, self._buffer = self._buffer[:n], self._buffer[n:]
        return data

    def _count_small(self):
        """As fast as they come they would keep us busy for ever, with nothing to give."""
        since, n = self._small
        now = time.monotonic()
        self._small = (since, n + 1) if now - since < 1 else (now, 1)
        if self._small[1] > _SMALL_MAX:
            raise Error("%s does not speak our protocol (a flood of pings or empty frames)"
                        % self._where, "EPROTO")

    def receive(self, timeout):
        """The next message.  timeout: seconds without a byte; None: for ever."""
        whole, binary = b"", False
        while True:
            first, n = self._take(2, timeout)
            if n >= 126:
                n = int.from_bytes(self._take(2 if n == 126 else 8, self._timeout), "big")
            if n + len(whole) > MESSAGE_BYTES:
                raise Error("an answer is longer than %d bytes" % MESSAGE_BYTES, "EMSGSIZE")
            data, kind = self._take(n, self._timeout), first & 15
            if kind > _BINARY or not (n or first & 0x80):
                self._count_small()
            if kind == _PING:
                self._frame(_PONG, data)
            elif kind == _CLOSE:
                said = data[2:].decode("utf-8", "replace")
                raise Gone("%s: %s" % (self._fate(), said) if said else self._fate())
            elif kind <= _BINARY:
                whole, binary = whole + data, binary if kind == _MORE else kind == _BINARY
                if first & 0x80:  # binary: the id, then a piece of an answer that is no text
                    return json.loads(whole.decode("utf-8")) if not binary else {
                        "id": int.from_bytes(whole[:8], "little"), "data": whole[8:]}


def _dial(address, timeout):
    if isinstance(address, Door):
        return address.dial(timeout)
    made = socket.create_connection(address, timeout)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
