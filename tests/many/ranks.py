# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of many targets: a few ranks with a core, and players that answer badly."""
import json
import os
import socket
import struct
import sys
import threading

import pytest
from world import CLI, IDLE, World, lend, wait_for


def start_ranks(world, n, **more):
    """n programs that do nothing, each with a core and a rank; `more` is their environment."""
    script = world.tmp / "rank.py"
    script.write_text("import os\nme = int(os.environ.get('RANK', -1))\n" + IDLE)
    made = []
    for rank in range(n):
        env = dict({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n)}, **more)
        made.append(world.start(str(CLI), "launch", "--", sys.executable, "-u", str(script),
                                env={k: v for k, v in env.items() if v is not None}))
    for target in made:
        target.wait_line("ready")
        wait_for(lambda t=target: t.probing("eval", "me").returncode == 0, "a core")
    return made


def named(*members):
    """The text behind -t for targets, ports and texts."""
    return ",".join(str(m.pid) if hasattr(m, "pid") else str(m) for m in members)


def rows(done):
    """Rows of an answer in JSON as dicts."""
    answer = json.loads(done.stdout)
    names = [c["name"] for c in answer["columns"]]
    return [dict(zip(names, row)) for row in answer["rows"]]


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """A world with four ranks of a job that torchrun would call "four-PID"; nothing ends them."""
    made = World(tmp_path_factory.mktemp("four"))
    loan = lend(made)
    next(loan)
    made.job = "four-%d" % os.getpid()
    made.port = os.getpid()  # nobody listens there: it is a name only
    made.ranks = start_ranks(made, 4, TORCHELASTIC_RUN_ID=made.job, MASTER_ADDR="127.0.0.1",
                             MASTER_PORT=str(made.port))
    yield made
    next(loan, None)


# ---- players ----

HELLO = (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
         b"server: probing/0.0.1 (build 000000000000)\r\n\r\n")


def frame(op, data):
    size = len(data)
    head = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size) if size < 65536 \
        else b"\x7f" + struct.pack(">Q", size)
    return bytes([0x80 | op]) + head + data


def piece(data):
    """Bytes of the answer of request 1."""
    return frame(2, struct.pack("<q", 1) + data)


class Player:
    """Listens on 127.0.0.1 and gives whoever comes what play(connection) does, after a handshake
    and the request unless `raw`."""

    def __init__(self, play, raw=False):
        self.play, self.raw, self.open = play, raw, []
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(16)
        self.name = "127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def __str__(self):
        return self.name

    def accept(self):
        while True:
            try:
                connection = self.socket.accept()[0]
            except OSError:
                return
            self.open.append(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            if not self.raw:
                connection.recv(65536)
                connection.sendall(HELLO)
                connection.recv(65536)
            self.play(connection)
        except OSError:
            pass  # the command has hung up

    def close(self):
        self.socket.close()
        for connection in self.open:
            connection.close()
