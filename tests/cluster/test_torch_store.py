# SPDX-License-Identifier: Apache-2.0
"""`cluster nodes --store`: real stores of torch, which work on after it, and what is none."""
import base64
import json
import os
import socket
import struct
import subprocess
import threading

import pytest
from world import DEBIAN_PYTHON, has_torch

PYTHONS = [DEBIAN_PYTHON] + [p for p in os.environ.get("PROBING_TEST_TORCH", "").split(":") if p]

# A store that holds the state of a rendezvous, until its own client has had the word "end".
STORE = """
import base64, pickle, sys
import torch.distributed as dist
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState
port, uv = int(sys.argv[1]), sys.argv[2]
more = {} if uv == "old" else {"use_libuv": uv == "libuv"}
store = dist.TCPStore("127.0.0.1", port, None, True, wait_for_workers=False, **more)
state = _RendezvousState()
state.participants = {_NodeDesc("node%d.lan" % i, 100 + i, 0): i for i in range(300)}
state.wait_list = {_NodeDesc("late", 7, 0)}
store.set("torch.rendezvous.myrun", base64.b64encode(pickle.dumps(state)))
store.set("torch.rendezvous.none", b"no pickle")
store.set("torch.rendezvous.large", b"x" * (1 << 20))
print("ready", flush=True)
for line in sys.stdin:
    store.set("word", line)
    print("word", store.get("word"), flush=True)
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def kinds():
    for python in PYTHONS:
        if python == DEBIAN_PYTHON:
            yield pytest.param(python, "old", id="debian")
        else:
            yield pytest.param(python, "libuv", id="libuv")
            yield pytest.param(python, "plain", id="plain")


def nodes(world, port, job, *more):
    return world.probing("cluster", "nodes", "--store", "127.0.0.1:%d" % port, "--job", job,
                         "--json", *more)


@pytest.mark.parametrize("python, kind", kinds())
def test_real_stores(world, python, kind):
    if not has_torch(python):
        pytest.skip("no torch for %s" % python)
    port, script = free_port(), world.tmp / "store.py"
    script.write_text(STORE)
    with subprocess.Popen([python, "-u", str(script), str(port), kind], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, env=world.env) as store:
        try:
            assert store.stdout.readline() == "ready\n"
            done = nodes(world, port, "myrun")
            found = [json.loads(line) for line in done.stdout.splitlines()]
            assert [n["node_rank"] for n in found] == list(range(300)) + [None], done.stderr
            assert [n["host"] for n in found] == ["node%d.lan" % i for i in range(300)] + ["late"]
            assert {n["known_by"] for n in found} == {"torchrun's store"}
            for job, said in (("other", "no key 'torch.rendezvous.other'"),
                              ("none", "cannot be read"), ("large", "cannot be read")):
                done = nodes(world, port, job)
                assert done.returncode == 1 and said in done.stderr, done.stderr
            store.stdin.write("still\n")
            store.stdin.flush()
            assert "still" in store.stdout.readline()  # nobody holds its one thread
        finally:
            store.kill()


class Player:
    """Answers each connection to a store as play(connection, number) does."""

    def __init__(self, play):
        self.socket, self.play, self.open = socket.socket(), play, []
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(8)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection = self.socket.accept()[0]
                self.open.append(connection)  # not closed until the end, but by play()
                self.play(connection, len(self.open))
            except OSError:
                if self.socket.fileno() == -1:
                    return

    def close(self):
        self.socket.close()
        for connection in self.open:
            connection.close()


def as_new(answers):
    """A store of torch 2.13: closes what is no greeting, then gives these answers."""
    def play(connection, number):
        if number == 1:
            connection.close()
            return
        for answer in answers:
            connection.recv(4096)
            connection.sendall(answer)
    return play


def silent(connection, number):
    pass


def chatty(connection, number):
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def half(connection, number):
    connection.recv(1)
    connection.sendall(b"\1\0\0")
    connection.close()


LIES = b"\0" + struct.pack("<Q", 1 << 60)
SHORT = base64.b64encode(b"\x80\x04\x8c\xff" + b"participants" * 9)


@pytest.mark.parametrize("play, said", [
    (silent, "does not answer in time"),
    (chatty, "does not speak the protocol"),
    (half, "does not speak the protocol"),
    (as_new([]), "does not answer in time"),
    (as_new([b"\7"]), "does not speak the protocol"),
    (as_new([b"\1"]), "has no key"),
    (as_new([LIES]), "more than 16 MB"),
    (as_new([b"\0" + struct.pack("<Q", 100) + b"gASV"]), "does not answer in time"),
    (as_new([b"\0" + struct.pack("<Q", 0)]), "it is empty"),
    (as_new([b"\0" + struct.pack("<Q", len(SHORT)) + SHORT]), "it ends in the middle"),
])
def test_players(world, play, said):
    player = Player(play)
    try:
        done = nodes(world, player.port, "myrun", "--timeout", "1s")
        assert done.returncode == 1 and said in done.stderr, done.stderr
        assert done.stdout == ""
    finally:
        player.close()


def test_nobody_there(world):
    done = nodes(world, free_port(), "myrun")
    assert done.returncode == 1 and "Connection refused" in done.stderr
    done = world.probing("cluster", "nodes", "--store", "127.0.0.1:http", "--job", "x")
    assert done.returncode == 1 and "port from 1 to 65535" in done.stderr
