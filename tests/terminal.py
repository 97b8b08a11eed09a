# SPDX-License-Identifier: Apache-2.0
"""A person at the command: a terminal of its own, and a way to the process that can fail."""
import fcntl
import os
import re
import select
import socket
import struct
import termios
import threading
import time

import pytest
from world import CLI, start_in_terminal, wait_for


class Terminal:
    """The command in a terminal of its own; at: another name of the target than its pid, before:
    words in front, size: (lines, columns)."""

    def __init__(self, target, *words, at=None, before=(), size=None, env=None):
        self.seen = b""
        go, asked = os.pipe()

        def prepare():  # its size and modes are there before the command looks
            if size:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            os.chdir(target.world.tmp)
            os.read(go, 1)
        self.pid, self.fd = start_in_terminal(
            [*before, str(CLI), "-t", at or str(target.pid), *words],
            {**target.world.env, "TERM": "xterm", "XDG_STATE_HOME": str(target.world.tmp),
             **(env or {})}, prepare)
        self.modes = termios.tcgetattr(self.fd)  # before the command may change them
        os.write(asked, b"x")
        os.close(go)
        os.close(asked)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds=0.05):
        """Add what has come to `seen`; False once the other side has closed."""
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:
                return False
            self.seen += data
            return bool(data)
        return True

    def wait_seen(self, pattern, timeout=120):
        """Read until that stands in `seen`, whose lines are one to `.`; gives the match."""
        return self.find(re.compile(pattern, re.S), timeout)

    def wait(self, pattern, timeout=120):
        """Read until `pattern` has come; takes what came up to its end out of `seen`, as text."""
        end = self.find(re.compile(pattern.encode()), timeout).end()
        text, self.seen = self.seen[:end], self.seen[end:]
        return text.decode(errors="replace")

    def find(self, pattern, timeout):
        deadline, open_ = time.monotonic() + timeout, True
        while not (found := pattern.search(self.seen)):
            assert open_, "the terminal closed: %r" % self.seen[-2000:]
            assert time.monotonic() < deadline, "no %r in %r" % (pattern, self.seen[-2000:])
            open_ = self.read()
        return found

    def type(self, keys):
        os.write(self.fd, keys if isinstance(keys, bytes) else keys.encode())

    def interrupt(self, pattern):
        """Ctrl-C until that has come: between two states of the terminal it is a letter."""
        for _ in range(60):
            self.type("\x03")
            end = time.monotonic() + 2
            while time.monotonic() < end and self.read():
                if re.search(pattern.encode(), self.seen):
                    return self.wait(pattern)
        pytest.fail("it does not hear Ctrl-C: %r" % self.seen)

    def leave(self):
        """Ctrl-D; give the exit code.  A key that comes while a line editor sets up the terminal
        can be lost, and is pressed again, on a line that is empty."""
        for _ in range(60):
            self.type("\x15\x04")
            end = time.monotonic() + 2
            while time.monotonic() < end:
                if not self.read():
                    return self.end()
        pytest.fail("it does not hear Ctrl-D: %r" % self.seen)

    def end(self):
        """Its exit code, once it has ended by itself."""
        while self.read(20):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def __del__(self):
        os.close(self.fd)


class Way:
    """A port before the TCP port of a target: its connections can be cut, or pinged as by the
    process, without waiting the minutes that the process waits."""

    def __init__(self, target):
        said = target.probing("config", "server.listen=127.0.0.1:0")
        self.to = int(said.stdout.strip().rsplit(":", 1)[1])
        self.door = socket.create_server(("127.0.0.1", 0))
        # A client that finds the token by itself asks whose port it is: it is ours.
        token, = target.world.data.glob("%d-*/token" % target.pid)
        self.env = {"PROBING_TOKEN": token.read_text().strip()}
        self.address = "127.0.0.1:%d" % self.door.getsockname()[1]
        self.pairs, self.pongs = [], 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.door.accept()
            except OSError:
                return
            process = socket.create_connection(("127.0.0.1", self.to))
            self.pairs.append((client, process))
            threading.Thread(target=self.carry, args=(client, process), daemon=True).start()
            threading.Thread(target=self.carry, args=(process, client), daemon=True).start()

    def carry(self, here, there):
        try:
            while data := here.recv(65536):
                # A masked pong of four bytes (RFC 6455); nothing else is sent at the prompt.
                self.pongs += data[:2] == b"\x8a\x84"
                there.sendall(data)
        except OSError:
            pass
        for end in (here, there):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        for pair in self.pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def ping(self):
        """Every client that is connected, as the process does it after a minute."""
        before = self.pongs
        for client, _ in self.pairs:
            client.sendall(b"\x89\x04ping")
        wait_for(lambda: self.pongs >= before + len(self.pairs), "pongs of all connections")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.door.close()
        self.cut()
