# SPDX-License-Identifier: Apache-2.0
"""One statement to two engines: is what they say the same?

Values are compared as what they are (1.0 and 1 of PostgreSQL's numeric are our double), types as
kinds of them, errors as errors whatever their words.
"""
import json
import math
import re
import subprocess

from postgres import Refused

KINDS = {
    16: "boolean",
    20: "bigint",
    21: "bigint",
    23: "bigint",
    25: "text",
    1043: "text",
    1042: "text",
    19: "text",
    18: "text",
    700: "double",
    701: "double",
    1700: "numeric",
    26: "bigint",
    1114: "timestamp",
    1184: "timestamp",
    1082: "date",
    1186: "interval",
    705: "text",
    114: "json",
    3802: "json",
    1083: "time",
    17: "blob",
    1000: "text",
    1009: "text",
    1016: "text",
    1182: "text",
}


class Ours:
    """The unit program core/sql/golden_test.c, which answers line by line."""

    def __init__(self, program):
        self.process = subprocess.Popen(
            [program, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )
        self.last = ""  # statement

    def table(self, name, select):
        """A stored table, which has numbers and texts, and a view that makes the types of them."""
        self.process.stdin.write(
            "table golden.%s_rows select id, i, k, d, t, b::int as b, ts::text as ts_text, "
            "dt::text as dt, iv::text as iv from (%s) x\n" % (name, select)
        )
        self.process.stdin.write(
            "view %s select id, i, k, d, t, b <> 0 as b, ts_text::timestamp as ts, dt::date as dt, "
            "iv::interval as iv from golden.%s_rows\n" % (name, name)
        )

    def ask(self, statement):
        """(kinds of the columns, rows) or Refused."""
        self.last = statement
        self.process.stdin.write(statement + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"])
        return [c["type"] for c in answer["columns"]], answer["rows"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def number(text):
    return float(text.replace("Infinity", "inf")) if isinstance(text, str) else float(text)


def moment(text):
    """Ours has nanoseconds, T and Z; theirs microseconds without zeros at the end."""
    match = re.fullmatch(r"(\S+)[T ](\S+?)(?:\.(\d+))?(?:Z|\+00)?( BC)?", text)
    if not match:
        return text
    return (match[1], match[2], (match[3] or "").rstrip("0"), match[4])


def same_cell(ours, kind, theirs, their_kind):
    if ours is None or theirs is None:
        return ours is None and theirs is None
    if their_kind in ("double", "numeric", "bigint"):
        if kind == "bigint" and their_kind == "bigint":
            return ours == int(theirs)
        try:
            a, b = number(ours), number(theirs)
        except ValueError:
            return False
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        if math.isinf(a) or math.isinf(b):
            return a == b
        return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b)) or max(abs(a), abs(b)) < 1e-12
    if their_kind == "boolean":
        return ours is (theirs == "t")
    if their_kind == "timestamp":
        return moment(str(ours)) == moment(theirs)
    if their_kind == "date":
        return str(ours)[:10] == theirs
    return str(ours) == theirs


def same_kind(ours, theirs):
    if theirs == "numeric":
        return ours in ("double", "bigint")
    if theirs == "json":
        return ours == "text"
    return ours in (theirs, "null")


def said(engine, statement):
    try:
        return engine.ask(statement)
    except Refused as refused:
        return str(refused)


def compare(ours, theirs, statement, ordered):
    """(do both refuse it, None or (kind of difference, ours, theirs))."""
    a, b = said(ours, statement), said(theirs, statement)
    if isinstance(a, str) or isinstance(b, str):
        both = isinstance(a, str) and isinstance(b, str)
        underflow = isinstance(b, str) and "underflow" in b  # docs/sql.md: ours is 0
        if both or underflow:
            return both, None
        return False, ("we refuse" if isinstance(a, str) else "they refuse", a, b)
    return False, difference(a, b, ordered)


def difference(a, b, ordered):
    kinds = [KINDS.get(oid, str(oid)) for oid in b[0]]
    if len(a[0]) != len(kinds) or len(a[1]) != len(b[1]):
        return ("shape", a, b)
    pairs = zip(a[1], b[1]) if ordered else pair_up(a[1], b[1], a[0], kinds)
    for row, other in pairs:
        if other is None or not all(map(same_cell, row, a[0], other, kinds)):
            return ("values", (row, a), (other, b))
    if not all(map(same_kind, a[0], kinds)):
        return ("types", a[0], kinds)
    return None


def pair_up(ours, theirs, a, b):
    """Rows of no order: each of ours with one of theirs that is the same, or None."""
    left = list(theirs)
    for row in ours:
        found = next((o for o in left if all(map(same_cell, row, a, o, b))), None)
        if found is not None:
            left.remove(found)
        yield row, found
