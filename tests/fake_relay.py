# SPDX-License-Identifier: Apache-2.0
"""A relay that does not do as it should: fake_relay.py HOW [TEXT], in place of `probing relay`.

HOW says what it does after its HELLO: `lines` answers every command with TEXT, `flood` without
end, `others` speaks for a host that is not its own, `kind` sends a frame that
there is not, `long` one that says it is 4 GB, `half` ends in the middle of one, `silent` answers
nothing, `steer` refuses with what steers terminals.  `old` says that it is of another version.
"""
import os
import struct
import sys

MAGIC = b"\n\x01probing-relay\x01\n"
HELLO, LOST, RUN, DATA, CLOSE, PING, PONG = 1, 4, 6, 8, 10, 11, 12


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


def main():
    how, text = sys.argv[1], (sys.argv[2:] or [""])[0].encode() + b"\n"
    os.write(1, MAGIC)
    exactly(len(MAGIC))
    while True:
        size, kind, _, _, host, stream = struct.unpack("<IBBHII", exactly(16))
        data = exactly(size)
        if kind == HELLO:
            put(HELLO, host, 0, struct.pack("<I", 99 if how == "old" else 1) + b"0.0.1\0liar\0")
        elif kind == PING:
            put(PONG, host, 0, data + data)
        elif kind == RUN:
            misbehave(how, text, host, stream)


main()
