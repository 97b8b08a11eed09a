# SPDX-License-Identifier: Apache-2.0
"""A relay that does not do as it should: fake_relay.py HOW [TEXT], in place of `probing relay`.

HOW says what it does after its HELLO: `lines` answers every command with TEXT, `flood` without
end, `others` speaks for a host that is not its own, `kind` sends a frame that
there is not, `long` one that says it is 4 GB, `half` ends in the middle of one, `silent` answers
nothing, `steer` refuses with what steers terminals.  `old` says that it is of another version.
`merge-...` is of our build, runs what it is to run, and lies where it is to merge what its members
answer (cli/link/merge_protocol.h).
"""
import os
import struct
import subprocess
import sys

MAGIC = b"\n\x01probing-relay\x01\n"
HELLO, LOST, OPEN, RUN, DATA, CLOSE, PING, PONG, MERGE = 1, 4, 5, 6, 7, 9, 10, 11, 12


def put(kind, host, stream, data=b"", channel=0):
    os.write(1, struct.pack("<IBBHII", len(data), kind, channel, 0, host, stream) + data)


def exactly(n):
    data = b""
    while len(data) < n:
        piece = os.read(0, n - len(data))
        if not piece:
            sys.exit(0)
        data += piece
    return data


def misbehave(how, text, host, stream):
    if how == "lines":
        put(DATA, host, stream, text)
        put(CLOSE, host, stream, struct.pack("<iI", 0, 0) + b"\0")
    elif how == "flood":
        while True:
            put(DATA, host, stream, b"x" * 32768)
    elif how == "others":
        put(LOST, host + 1, 0, b"\0\0\0\0it is lost, believe me\0")
    elif how == "kind":
        put(77, host, stream)
    elif how == "long":
        os.write(1, struct.pack("<IBBHII", 0xffffffff, DATA, 0, 0, host, stream))
    elif how == "half":
        os.write(1, struct.pack("<IBBHII", 100, DATA, 0, 0, host, stream) + b"half")
        sys.exit(0)
    elif how == "steer":
        put(CLOSE, host, stream, struct.pack("<iI", -5, 0) + b"no\x1b[2J\nprobing: rank 0\0")


def record(kind, data=b""):
    return kind + struct.pack("<I", len(data)) + data


def member(which, columns=0xffffffff, error=0, why=b""):
    return record(b"M", struct.pack("<IIiQQQQ", which, columns, error, 1, 1, 1, 0) + why + b"\0")


def arrow(data, sql):
    """An answer of the first of its members, such as relays send."""
    directory = data.split(b"/", 1)[1].split(b"\0", 1)[0].decode()
    pid = os.path.basename(directory).split("-")[0]
    return subprocess.run([os.environ["PROBING_REMOTE"], "-t", pid, "query", "--format", "arrow",
                           sql], capture_output=True).stdout


def lie_in_rows(how, data):
    """Rows of whom it may not say a thing, or such as were not asked for."""
    sql = {"merge-whose": "select 77 as __member, 1000 as __s0",
           "merge-nobody": "select null::bigint as __member, 1000 as __s0",
           "merge-failed": "select 3 as __member, 1000 as __s0",
           "merge-type": "select 0 as __member, 'many' as __s0",
           "merge-name": "select 0 as __member, 1000 as n",
           "merge-rowed": "select 1 as name"}[how]
    if how == "merge-rowed":
        return record(b"C", arrow(data, sql)) + member(0, 0) + record(b"E")
    return (b"".join(member(i) for i in range(3)) + member(3, error=-5, why=b"no") +
            record(b"R", arrow(data, sql)) + record(b"E"))


def lie(how, host, stream, data):
    """Say this about its members, whoever they are."""
    if how[6:] in ("whose", "nobody", "failed", "type", "name", "rowed"):
        put(DATA, host, stream, lie_in_rows(how, data))
        put(CLOSE, host, stream, struct.pack("<iI", 0, 0) + b"\0")
        return
    said = {"merge-garbage": b"\xff" * 100,
            "merge-half": member(0),
            "merge-twice": member(0) * 2 + record(b"E"),
            "merge-rows": member(0) + member(1) + member(2) + member(3) + record(b"E"),
            "merge-arrow": member(0) + record(b"R", b"no arrow") + record(b"E"),
            "merge-others": member(77) + record(b"E"),
            "merge-columns": record(b"C", b"\0" * 16) + member(0, 0) + record(b"E"),
            "merge-long": b"R" + struct.pack("<I", 0xffffffff) + b"x" * 1000,
            "merge-steer": member(0, error=-5, why=b"no\x1b[2J\nprobing: rank 0") + record(b"E"),
            "merge-none": record(b"E")}
    if how == "merge-silent":
        return
    if how != "merge-refuses":
        put(DATA, host, stream, said[how])
    put(CLOSE, host, stream,
        struct.pack("<iI", -95 if how == "merge-refuses" else 0, 0) + b"\0")


def run(words, host, stream):
    done = subprocess.run([os.environ["PROBING_REMOTE"], *words], capture_output=True)
    put(DATA, host, stream, done.stdout)
    put(CLOSE, host, stream, struct.pack("<iI", done.returncode, 0) + b"\0")


def build():
    said = subprocess.run([os.environ["PROBING_REMOTE"], "--version"], capture_output=True)
    return said.stdout.split(b"probing ", 1)[1].strip()


def main():
    how, text = sys.argv[1], (sys.argv[2:] or [""])[0].encode() + b"\n"
    os.write(1, MAGIC)
    exactly(len(MAGIC))
    while True:
        size, kind, _, _, host, stream = struct.unpack("<IBBHII", exactly(16))
        data = exactly(size)
        if kind == HELLO:
            said = build() if how.startswith("merge-") else b"0.0.1"
            put(HELLO, host, 0,
                struct.pack("<I", 99 if how == "old" else 2) + said + b"\0liar\0")
        elif kind == PING:
            put(PONG, host, 0, data + data)
        elif kind == MERGE:
            lie(how, host, stream, data)
        elif kind == OPEN:
            put(CLOSE, host, stream, struct.pack("<iI", -5, 0) + b"not for you\0")
        elif kind == RUN and how.startswith("merge-"):
            run(data.decode().split("\0")[:-1], host, stream)
        elif kind == RUN:
            misbehave(how, text, host, stream)


main()
