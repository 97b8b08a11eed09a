# SPDX-License-Identifier: Apache-2.0
"""A reader of the Parquet files that probing writes, which knows no library."""
import struct


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def unsnappy(data):
    size, at = varint(data, 0)
    out = bytearray()
    while at < len(data):
        kind = data[at] & 3
        if kind:  # a copy of what came before, of itself, too
            assert kind < 3
            length = (data[at] >> 2) + 1 if kind == 2 else (data[at] >> 2 & 7) + 4
            offset = int.from_bytes(data[at + 1:at + 3], "little") if kind == 2 \
                else data[at] >> 5 << 8 | data[at + 1]
            at += kind + 1
            assert 0 < offset <= len(out)
            piece = out[-offset:][:length]
            out += (piece * (length // len(piece) + 1))[:length]
            continue
        length, at = data[at] >> 2, at + 1
        if length >= 60:
            more = length - 59
            length, at = int.from_bytes(data[at:at + more], "little"), at + more
        out += data[at:at + length + 1]
        at += length + 1
    assert len(out) == size
    return bytes(out)


def thrift(data, at):
    """A struct of Thrift's compact protocol as a dict, and where it ends."""
    def number(at):
        value, at = varint(data, at)
        return (value >> 1) ^ -(value & 1), at

    def value_of(kind, at):
        if kind in (1, 2):
            return kind == 1, at
        if kind in (5, 6):
            return number(at)
        if kind == 8:
            size, at = varint(data, at)
            return data[at:at + size], at + size
        if kind == 9:
            head, at = data[at], at + 1
            size, kind = head >> 4, head & 15
            if size == 15:
                size, at = varint(data, at)
            found = []
            for _ in range(size):
                one, at = value_of(kind, at)
                found.append(one)
            return found, at
        assert kind == 12, kind
        return thrift(data, at)

    fields, last = {}, 0
    while data[at]:
        last, kind = last + (data[at] >> 4), data[at] & 15
        fields[last], at = value_of(kind, at + 1)
    return fields, at + 1


def column(whole, schema, chunk, group):
    """The values of a column in a group of rows."""
    meta = chunk[3]
    page, at = thrift(whole, meta[9])
    assert meta[4] == 1 and meta[7] == at + page[3] - meta[9]
    data, n = unsnappy(whole[at:at + page[3]]), page[5][1]
    assert len(data) == page[2] and meta[6] == meta[7] - page[3] + page[2]
    at = 0
    runs_end = at + 4 + struct.unpack("<I", data[at:at + 4])[0]
    at, there = at + 4, []
    while at < runs_end:
        run, at = varint(data, at)
        there += [data[at]] * (run >> 1)
        at += 1
    assert len(there) == n == group[3]
    values, bit = [], 0
    for present in there:
        value = None
        if present and schema[1] == 0:
            value, bit = bool(data[at + bit // 8] >> bit % 8 & 1), bit + 1
        elif present and schema[1] in (2, 5):
            form = "<q" if schema[1] == 2 else "<d"
            value, at = struct.unpack_from(form, data, at)[0], at + 8
        elif present and schema[1] == 1:
            value, at = struct.unpack_from("<i", data, at)[0], at + 4
        elif present:
            length = struct.unpack_from("<I", data, at)[0]
            at += 4 + length
            value = data[at - length:at].decode()
        values.append(value)
    return values


def parquet(path):
    """(names, rows as dicts) of a file with plain values in one page a group and column, in
    snappy."""
    data = path.read_bytes()
    assert data[:4] == data[-4:] == b"PAR1", path
    size = struct.unpack("<I", data[-8:-4])[0]
    footer, end = thrift(data, len(data) - 8 - size)
    assert end == len(data) - 8
    names = [schema[4].decode() for schema in footer[2][1:]]
    rows = []
    for group in footer[4]:
        columns = [column(data, schema, chunk, group) for schema, chunk in
                   zip(footer[2][1:], group[1])]
        rows += [dict(zip(names, row)) for row in zip(*columns)]
    assert len(rows) == footer[3] == sum(group[3] for group in footer[4])
    return names, rows
