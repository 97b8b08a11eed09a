# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL of the tests' own, and the little of its protocol that asking it takes."""
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess

UNPRIVILEGED = "nobody"  # initdb refuses to run as root


def find_programs():
    """The folder with initdb and postgres, or None."""
    found = [pathlib.Path(p).parent for p in [shutil.which("initdb")] if p]
    found += sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((f for f in found if (f / "initdb").exists() and (f / "postgres").exists()), None)


class Refused(Exception):
    """The server's error for a statement that it does not answer."""


class Postgres:
    """A private cluster in `folder`, reached by its socket there alone: no port, nothing kept."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        programs = find_programs()
        self.user = {}
        if os.geteuid() == 0:
            self.user = {"user": UNPRIVILEGED}
            shutil.chown(folder, UNPRIVILEGED)
        subprocess.run(
            [
                programs / "initdb",
                "-D",
                folder / "data",
                "-U",
                "tests",
                "--no-sync",
                "--locale=C.UTF-8",
                "--lc-collate=C",
                "-E",
                "UTF8",
                "--auth=trust",
            ],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            **self.user
        )
        self.process = subprocess.Popen(
            [
                programs / "postgres",
                "-D",
                folder / "data",
                "-k",
                folder,
                "-c",
                "listen_addresses=",
                "-c",
                "fsync=off",
                "-c",
                "timezone=UTC",
                "-c",
                "max_connections=5",
                "-c",
                "jit=off",
                "-c",
                "log_min_messages=log",
                "-c",
                "statement_timeout=20s",
            ],
            cwd=folder,
            bufsize=0,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            **self.user
        )
        for line in self.process.stderr:
            if b"ready to accept connections" in line:
                break
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(folder / ".s.PGSQL.5432"))
        self.stream = self.socket.makefile("rb")
        start = struct.pack("!i", 196608) + b"user\0tests\0database\0postgres\0\0"
        self.socket.sendall(struct.pack("!i", len(start) + 4) + start)
        self._answer()

    def close(self):
        self.stream.close()
        self.socket.close()
        self.process.send_signal(signal.SIGINT)  # its fast shutdown, which waits for no client
        self.process.communicate()

    def ask(self, statement):
        """(oids of the columns' types, rows of texts) or Refused."""
        text = statement.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!i", len(text) + 4) + text)
        return self._answer()

    def _answer(self):
        types, rows, refused = [], [], None
        while True:
            kind, size = struct.unpack("!ci", self.stream.read(5))
            body = self.stream.read(size - 4)
            if kind == b"T":
                types = self._types(body)
            elif kind == b"D":
                rows.append(self._row(body))
            elif kind == b"E":
                fields = body.rstrip(b"\0").decode().split("\0")
                refused = next(f[1:] for f in fields if f[:1] == "M")
            elif kind == b"Z":
                if refused:
                    raise Refused(refused)
                return types, rows

    @staticmethod
    def _types(body):
        types, at = [], 2
        while at < len(body):
            at = body.index(b"\0", at) + 1
            types.append(struct.unpack_from("!i", body, at + 6)[0])
            at += 18
        return types

    @staticmethod
    def _row(body):
        cells, at = [], 2
        while at < len(body):
            size = struct.unpack_from("!i", body, at)[0]
            at += 4
            cells.append(None if size < 0 else body[at : at + size].decode())
            at += max(size, 0)
        return cells
