# SPDX-License-Identifier: Apache-2.0
"""A relay that listens: who is let in, and that strangers keep nobody out."""
import os
import re
import signal
import socket
import struct
import subprocess
from pathlib import Path

from ranks import four  # noqa: F401
from test_relay import far  # noqa: F401
from world import CLI, wait_for

MAGIC = b"\n\001probing-relay\001\n"


def test_a_port_with_a_token(far, tmp_path):  # noqa: F811
    """Without a token nothing is opened, and a wrong one opens nothing; ps shows none."""
    done = far.probing("relay", "--listen", "0")
    assert done.returncode == 1 and "needs a token" in done.stderr
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123\n")
    token.chmod(0o644)
    done = far.probing("relay", "--listen", "0", "--token-file", str(token))
    assert done.returncode == 1 and "chmod 600" in done.stderr
    token.chmod(0o600)
    if os.geteuid() == 0:  # its owner knows it
        os.chown(token, 65534, -1)
        done = far.probing("relay", "--listen", "0", "--token-file", str(token))
        assert done.returncode == 1 and "belongs to user 65534" in done.stderr, done.stderr
        os.chown(token, 0, -1)
    long = tmp_path / "long"
    long.write_text("0" * 100000)
    long.chmod(0o600)
    done = far.probing("relay", "--listen", "0", "--token-file", str(long))
    assert done.returncode == 1 and "is longer than" in done.stderr, done.stderr
    relay = far.begin("relay", "--listen", "0", "--token-file", str(token))
    port = re.search(r"127\.0\.0\.1:(\d+)", relay.stderr.readline())[1]
    name = "relay:127.0.0.1:%s/job:%s" % (port, far.job)
    words = ("eval", "me")
    good = far.probing("-t", name, *words, PROBING_TOKEN_FILE=str(token))
    assert good.stdout == "".join("rank %d: %d\n" % (i, i) for i in range(4)), good.stderr
    for wrong in ("0123456789abcdef0124", "0123456789abcdef01230123456789abcdef0123", ""):
        bad = far.probing("-t", name, *words, PROBING_TOKEN=wrong)
        assert bad.returncode == 1 and "the token is wrong" in bad.stderr, bad.stderr
    one = "relay:127.0.0.1:%s/%d" % (port, far.ranks[3].pid)
    assert far.probing("-t", one, *words, PROBING_TOKEN="0123456789abcdef0123").stdout == "3\n"
    relay.terminate()
    relay.communicate(timeout=60)
    done = far.probing("-t", one, *words, PROBING_TOKEN="0123456789abcdef0123")
    assert done.returncode == 1 and "no relay listens there" in done.stderr


def test_strangers_keep_nobody_out(far, tmp_path):  # noqa: F811
    """More of them than a relay takes, who say nothing: who has the token is let in at once."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123\n")
    token.chmod(0o600)
    relay = far.begin("relay", "--listen", "0", "--token-file", str(token))
    port = int(re.search(r"127\.0\.0\.1:(\d+)", relay.stderr.readline())[1])
    one = "relay:127.0.0.1:%d/%d" % (port, far.ranks[3].pid)
    asker = far.begin("-t", one, "watch", "select 1 as one", "--interval", "50ms", "--format",
                      "jsonl", PROBING_TOKEN_FILE=str(token))
    assert "one" in asker.stdout.readline()
    strangers = []
    try:
        for round in range(3):
            for i in range(100):
                strangers.append(socket.socket())
                strangers[-1].bind(("127.0.0.%d" % (1 + i % 3), 0))
                strangers[-1].connect(("127.0.0.1", port))
            done = far.probing("-t", one, "eval", "me", PROBING_TOKEN_FILE=str(token))
            assert done.stdout == "3\n", (round, done.stderr)
        assert all("one" in asker.stdout.readline() for _ in range(20))  # who was in stays
        for stranger in strangers:
            stranger.settimeout(60)
            try:
                while stranger.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    finally:
        for stranger in strangers:
            stranger.close()
        asker.send_signal(signal.SIGINT)
        asker.communicate(timeout=60)
        relay.terminate()
        relay.communicate(timeout=60)


def test_strangers_fill_no_log(far, tmp_path):  # noqa: F811
    """Each of them was a line, 1,300 a second; and who it was none of them said."""
    token, log = tmp_path / "token", tmp_path / "log"
    token.write_text("0123456789abcdef0123\n")
    token.chmod(0o600)
    with open(log, "wb") as out:
        relay = subprocess.Popen([str(CLI), "relay", "--listen", "0", "--token-file", str(token)],
                                 env=dict(far.world.env, **far.here), stdin=subprocess.DEVNULL,
                                 stderr=out)
    try:
        wait_for(lambda: b"listens" in log.read_bytes(), "the relay")
        port = int(re.search(r"127\.0\.0\.1:(\d+)", log.read_text())[1])
        for i in range(60):
            stranger = socket.create_connection(("127.0.0.1", port),
                                                source_address=("127.0.0.7", 0))
            stranger.sendall(MAGIC + struct.pack("<IBBHII", 0xffffffff, 1, 0, 0, 0, 0))
            try:
                while stranger.recv(4096):
                    pass
            except ConnectionResetError:
                pass
            stranger.close()
        one = "relay:127.0.0.1:%d/%d" % (port, far.ranks[3].pid)
        done = far.probing("-t", one, "eval", "me", PROBING_TOKEN_FILE=str(token))
        assert done.stdout == "3\n", done.stderr
        wait_for(lambda: log.read_text().count("\n") >= 7, "words about them")
    finally:
        relay.terminate()
        relay.wait()
    assert log.read_text().splitlines()[1:] == ["probing: 127.0.0.7: the client is no probing"] * 6


def test_strangers_take_no_descriptors_that_are_few(far, tmp_path):  # noqa: F811
    """Those that it has are theirs, and none of them ends: it took nobody in any more, and ran
    round and round as long."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123\n")
    token.chmod(0o600)
    relay = subprocess.Popen(
        ["sh", "-c", "ulimit -n 20; exec \"$@\"", "sh", str(CLI), "relay", "--listen", "0",
         "--token-file", str(token)], env=dict(far.world.env, **far.here),
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    port = int(re.search(r"127\.0\.0\.1:(\d+)", relay.stderr.readline())[1])
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    try:
        done = far.probing("-t", "relay:127.0.0.1:%d/%d" % (port, far.ranks[3].pid), "eval", "me",
                           PROBING_TOKEN_FILE=str(token))
        assert done.stdout == "3\n", done.stderr
        children = Path("/proc/%d/task/%d/children" % (relay.pid, relay.pid)).read_text().split()
        assert len(children) <= 1  # a stranger costs no process
    finally:
        for stranger in strangers:
            stranger.close()
        relay.terminate()
        relay.communicate(timeout=60)


def test_strangers_of_many_networks_displace_nobody_who_has_the_token(far, tmp_path):  # noqa: F811
    """32 of as many addresses were enough to put out one who had not shown it yet."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123\n")
    token.chmod(0o600)
    relay = far.begin("relay", "--listen", "0", "--token-file", str(token))
    port = int(re.search(r"127\.0\.0\.1:(\d+)", relay.stderr.readline())[1])
    text = struct.pack("<I", 1) + b"build\0" + b"0123456789abcdef0123\0"
    hello = MAGIC + struct.pack("<IBBHII", len(text), 1, 0, 0, 0, 0) + text
    asker = socket.create_connection(("127.0.0.1", port))
    strangers = []
    try:
        asker.sendall(hello[:-1])  # it is slow
        for i in range(300):
            strangers.append(socket.socket())
            strangers[-1].bind(("127.%d.%d.1" % (1 + i % 200, i // 200), 0))
            strangers[-1].connect(("127.0.0.1", port))
            if i % 3 == 0:
                strangers[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
        asker.sendall(hello[-1:])
        asker.settimeout(60)
        said = b""
        while len(said) < len(MAGIC) + 16:
            piece = asker.recv(4096)
            assert piece, said
            said += piece
        assert said[len(MAGIC) + 4] == 1  # its HELLO
        wait_for(lambda: strangers[0].recv(4096), "words to one of the others")
    finally:
        for one in [*strangers, asker]:
            one.close()
        relay.terminate()
        relay.communicate(timeout=60)
