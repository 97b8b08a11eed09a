# SPDX-License-Identifier: Apache-2.0
"""A remote shell between who asks and a real relay that changes what the relay says, frame by frame
(cli/link/frame.h), as a relay can that somebody has made: lying_shell.py SEED HOST WORDS.

A host called "liar..." is lied about, by what follows from SEED; others are as they are.
"""
import os
import random
import struct
import subprocess
import sys

MAGIC = b"\n\x01probing-relay\x01\n"
DATA, CREDIT, CLOSE = 7, 8, 9
EXTREMES = (0, 1, 2, 127, 255, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 1 << 20, 100000,
            1 << 40, 2**63 - 1, 2**63, 2**64 - 1, 0x7ff8 << 48, 0x7ff0 << 48, 0xfff0 << 48)
HEAD = struct.Struct("<IBBHII")  # size, kind, channel, 0, host, stream


def numbers(dice, data):
    """Some numbers in it become extreme, or a bit another."""
    data = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4, 16))):
        width = dice.choice((1, 2, 4, 8))
        if len(data) < width:
            break
        at = dice.randrange(len(data) - width + 1)
        at -= at % 4 if dice.random() < 0.7 else 0
        value = dice.choice(EXTREMES) if dice.random() < 0.6 else int.from_bytes(
            data[at:at + width], "little") + dice.choice((-1, 1, 8, -8, 256, 65536))
        data[at:at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(data)


def raw(dice, data):
    """Bits turn; pieces are cut out, come twice, or are noise."""
    data = bytearray(data)
    at = dice.randrange(len(data)) if data else 0
    how = dice.randrange(5)
    if how == 0:
        for _ in range(dice.choice((1, 2, 8, 64)) if data else 0):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif how == 1:
        del data[at:]
    elif how == 2:
        data[at:at] = bytes(dice.randrange(256) for _ in range(dice.choice((1, 4, 8, 100))))
    elif how == 3:
        data[at:at] = data[at:at + dice.randrange(1, 200)] * dice.choice((1, 2, 50))
    else:
        del data[at:at + dice.randrange(1, 100)]
    return bytes(data)


def head(dice, parts):
    """It says another kind, host, stream or size than it has."""
    parts = list(parts)
    which = dice.randrange(6)
    parts[which] = dice.choice(((0, 1, 1 << 20, 0xffffffff), range(16), (0, 1, 2, 255), (1, 65535),
                                (0, 1, 2, 0xffffffff), (0, 1, 65536, parts[5] ^ 1, 0xffffffff))
                               [which])
    return HEAD.pack(*parts)


def told(dice, how, parts, data):
    """The bytes that are sent in place of one frame."""
    size, kind, channel, zero, host, stream = parts
    true = HEAD.pack(*parts) + data
    if how == "head":
        return head(dice, parts) + data
    if how in ("numbers", "raw"):
        data = (numbers if how == "numbers" else raw)(dice, data)
        return HEAD.pack(len(data), kind, channel, zero, host, stream) + data
    return dice.choice((  # frames
        b"", true + true, true + HEAD.pack(3, DATA, 0, 0, host, stream) + b"abc",
        HEAD.pack(4, CREDIT, 0, 0, host, stream) + struct.pack("<I", 0xffffffff) + true,
        HEAD.pack(9, CLOSE, 0, 0, host, stream) + struct.pack("<iIB", dice.choice((0, -5, 7)),
                                                              dice.choice((0, 1, 99)), 0) + true))


def put(data):
    while data:
        data = data[os.write(1, data):]


def lie(dice, relay):
    rate, skip = dice.choice((0.02, 0.1, 0.3, 1)), dice.choice((0, 1, 2, 3, 5, 8))
    how = dice.choice(("head", "raw", "numbers", "frames", "all"))
    stream = relay.stdout
    begin = b""
    while not begin.endswith(MAGIC):
        begin += stream.read(1) or sys.exit()
    put(begin)
    while True:
        first = stream.read(HEAD.size)
        if len(first) < HEAD.size:
            return
        parts = HEAD.unpack(first)
        data = stream.read(parts[0])
        skip -= 1
        if skip < 0 and dice.random() < rate:
            this = dice.choice(("head", "raw", "numbers", "frames")) if how == "all" else how
            put(told(dice, this, parts, data))
        else:
            put(first + data)


seed, name, words = sys.argv[1], sys.argv[2], " ".join(sys.argv[3:])
if not name.startswith("liar"):
    os.execvp("sh", ["sh", "-c", words])
child = subprocess.Popen(["sh", "-c", words], stdout=subprocess.PIPE)
try:
    lie(random.Random(int(seed)), child)
except BrokenPipeError:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
finally:
    child.kill()
