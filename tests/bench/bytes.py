#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What rows of a real python.torch_trace take on disk, beside them raw, in zstd and in SQLite.

usage: bytes.py [SECONDS]      trains tests/train/tiny_transformer.py with the torch plugin so long

Raw: 8 bytes a value, texts as numbers of a dictionary, column by column; zstd takes that.  SQLite
has a table with one row a row and texts as texts, after VACUUM.
"""
import csv
import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import figure, remark, skip

ROOT = Path(__file__).resolve().parents[2]
CLI = str(ROOT / "build" / "release" / "probing")
TABLE = "python.torch_trace"
OURS = "probing, in the store"
PYTHON = "/usr/bin/python3"


def run(*words):
    return subprocess.run([CLI, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def cell(text, names):
    """A CSV cell as 8 bytes; NULL is the least integer."""
    if text == "":
        return struct.pack("<q", -2 ** 63)
    try:
        return struct.pack("<q", int(text))
    except ValueError:
        pass
    try:
        return struct.pack("<d", float(text))
    except ValueError:
        return struct.pack("<q", names.setdefault(text, len(names) + 1))


def raw_columns(rows, times):
    names = {}
    return b"".join(b"".join(struct.pack("<q", times[i]) if k == 0 else cell(row[k], names)
                             for i, row in enumerate(rows)) for k in range(len(rows[0])))


def zstd_bytes(data, level):
    if not shutil.which("zstd"):
        return None
    return len(subprocess.run(["zstd", "-q", "-c", "-%d" % level], input=data, check=True,
                              stdout=subprocess.PIPE).stdout)


def sqlite_bytes(path, head, rows):
    db = sqlite3.connect(path)
    db.execute("create table t (%s)" % ", ".join('"%s"' % name for name in head))
    db.executemany("insert into t values (%s)" % ",".join("?" * len(head)),
                   ([None if c == "" else c for c in row] for row in rows))
    db.commit()
    db.execute("vacuum")
    db.close()
    return os.path.getsize(path)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        skip("%s has no torch" % PYTHON)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(PROBING_DATA_DIR=folder, OMP_NUM_THREADS="1")
        train = subprocess.Popen([PYTHON, str(ROOT / "tests/train/tiny_transformer.py"),
                                  "--steps", "100000000"], stdout=subprocess.PIPE)
        try:
            train.stdout.readline()  # it trains
            run("-t", str(train.pid), "inject", "--plugin", "torch")
            time.sleep(seconds)
        finally:
            train.kill()
            train.wait()
        target = str(next(Path(folder).iterdir()))
        text = run("-t", target, "export", "--format", "csv", "--table", TABLE)
        stats = json.loads(run("-t", target, "query", "--format", "json",
                               "select rows, bytes from probing.tables where name = 'torch_trace'"))
        n, kept = stats["rows"][0]
        head, *rows = list(csv.reader(text.splitlines()))
        times = [int(time.mktime(time.strptime(r[0][:19], "%Y-%m-%dT%H:%M:%S"))) * 10 ** 9 +
                 int((r[0][20:-1] + "000000000")[:9]) for r in rows]
        raw = raw_columns(rows, times)
        report(n, kept, len(head), raw, sqlite_bytes(folder + "/rows.db", head, rows))


def report(n, kept, columns, raw, sqlite):
    def line(what, size):
        if size is None:
            remark("%s is left out: zstd is not installed" % what)
        else:
            figure(what, "bytes a row", size=size / n, a_value=size / n / columns,
                   against=OURS, ratio=size / kept)

    remark("%d rows of %d columns" % (n, columns))
    figure(OURS, "bytes a row", size=kept / n, a_value=kept / n / columns)
    line("raw", len(raw))
    line("zstd -1 of raw", zstd_bytes(raw, 1))
    line("zstd -3 of raw", zstd_bytes(raw, 3))
    line("SQLite", sqlite)


if __name__ == "__main__":
    main()
