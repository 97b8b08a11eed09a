# SPDX-License-Identifier: Apache-2.0
"""Ask another process that has probing in it.

    import probing
    with probing.connect(4242) as job:              # a pid, "host:port", a socket, a data directory
        for row in job.query("select name, rows from probing.tables").dicts():
            print(row["name"], row["rows"])
        print(job.eval("model.training"), job.backtrace())
        for row in job.subscribe("python.torch_trace"):
            print(row["module"], row["duration"])

Python 3.8 or later and its standard library; a websocket (RFC 6455) of its own, no threads.  One
connection may be used by several threads, one request at a time; each stream has a connection of
its own.  The protocol is described in docs/protocol.md.
"""
import errno
import json
import os
import re
import threading
import time
import warnings

from ._door import Door, door_of, split_address, token_of
from ._error import Error, Gone
from ._wire import Wire


class Rows(list):
    """The rows of an answer, as tuples; what is known of its columns; whether it is complete."""

    def __init__(self, answer):
        self.names, self.types, self.units = (
            [column[what] for column in answer["columns"]] for what in ("name", "type", "unit"))
        rows = answer["rows"]
        for at, kind in enumerate(self.types):
            if kind == "double":  # JSON writes 3.0 as 3
                for row in rows:
                    if row[at] is not None:
                        row[at] = float(row[at])
        super().__init__(map(tuple, rows))
        self.lost, self.truncated = answer["lost"], answer.get("truncated", answer.get("cut"))
        self.elapsed_ms, self.empty = answer["elapsed_ms"], answer.get("empty", "")

    def dicts(self):
        return [dict(zip(self.names, row)) for row in self]

    def column(self, name):
        at = self.names.index(name)
        return [row[at] for row in self]

    def columns(self):
        return {name: [row[i] for row in self] for i, name in enumerate(self.names)}

    def frame(self):
        """A pandas.DataFrame; timestamps as such, to the nanosecond."""
        import pandas
        made = pandas.DataFrame.from_records(list(self), columns=self.names)
        for name, kind in zip(self.names, self.types):
            if kind == "timestamp" and self.names.count(name) == 1:
                made[name] = pandas.to_datetime(made[name], utc=True)
        return made


def connect(target=None, token=None, timeout=30.0):
    """A Connection to `target`: a pid, "host:port", "host", a socket or a data directory.

    None: what PROBING_TARGET says.  token: by TCP only; left out, PROBING_TOKEN or that of the
    process of ours on this machine that listens there.  timeout: seconds without a byte.
    """
    text = str(os.environ.get("PROBING_TARGET", "") if target is None else target).strip()
    url = re.fullmatch(r"https?://([^/?#]+)/?(?:\?token=(\w+))?", text)
    if url:
        text, token = url.group(1), token or url.group(2)
    if not text:
        raise Error("no target", "EINVAL", hint="give a pid, host:port, a socket or a data "
                    "directory")
    if text.isdigit():
        return Connection(door_of(int(text)), None, timeout)
    if "/" in text:
        door = Door(text) if os.path.isdir(text) else Door(*os.path.split(text))
        return Connection(door, None, timeout)
    return Connection(split_address(text), token or os.environ.get("PROBING_TOKEN") or token_of,
                      timeout)


class _Wired:
    """An object that has a connection: use it in a `with`, or close() it."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._wire.close()


class Connection(_Wired):
    """One process."""
    def __init__(self, address, token, timeout):
        self._address, self._token, self._timeout = address, token, timeout
        self._lock = threading.Lock()
        self._wire = Wire(address, token, timeout)
        self._last = 0

    def run(self, *words, timeout=None):
        """Run any command; its answer as text.  timeout: seconds, then the process stops it."""
        return self._run({"run": [str(word) for word in words]}, timeout)

    def _run(self, request, timeout):
        with self._lock:
            self._last += 1
            request["id"] = self._last
            if timeout is not None:
                request["timeout_ms"] = max(1, int(timeout * 1000))
            self._wire.send(request)
            parts, until = [], None if timeout is None else time.monotonic() + timeout + 2
            while True:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:  # however much of others' still comes
                    raise Gone("the process does not end what it was asked for in time")
                message = self._wire.receive(left)
                if message.get("id", self._last) != self._last:
                    continue  # the end of one that was given up
                parts += [message["data"]] if "data" in message else []
                if message.get("note", "").startswith("incomplete"):
                    warnings.warn(message["note"], stacklevel=2)
                if "done" in message or "error" in message:
                    return _whole(type(parts[0])().join(parts) if parts else "", message)

    def query(self, sql, timeout=None):
        """Rows of an SQL statement: tuples, with .dicts(), .column(name), .columns()."""
        return Rows(json.loads(self._run({"run": ["query", "--format", "json", "--", str(sql)],
                                          "bytes": True}, timeout)))

    def arrow(self, sql, timeout=None):
        """The same as bytes, an Arrow stream: for pyarrow.ipc.open_stream() and others."""
        return self.run("query", "--format", "arrow", "--", sql, timeout=timeout)

    def eval(self, code, timeout=None):
        """Run Python code there: what it prints, and the value of its last line."""
        return self.run("eval", "--", code, timeout=timeout)

    def backtrace(self, *words):
        """The stacks of all threads as text; words: "--json", "--locals", "--thread", "4242"."""
        return self.run("backtrace", *words)

    def subscribe(self, what, interval=1.0, last=0):
        """New rows of a table, or of a select over one, as dicts, as they arrive.

        An iterator; its `lost` counts messages that came too fast for us, close() ends it.
        interval: seconds between looks, 0.01 or more; last: rows from before to begin with.
        """
        doubles = self._doubles(what)
        return Stream(self._again(), {"subscribe": what, "interval_ms": int(interval * 1000),
                                      "last": last}, lambda message: _each_row(message, doubles))

    def watch(self, sql, interval=1.0):
        """Like subscribe() for any statement: each time all its rows, as a list of dicts; of one
        whose answer only gains rows (no aggregate, no limit) those that are new."""
        doubles = self._doubles(sql)
        return Stream(self._again(), {"watch": sql, "interval_ms": int(interval * 1000)},
                      lambda message: [list(_each_row(message, doubles))])

    def follow(self, topic):
        """Messages that scripts publish, as (topic, value); topic: "script.NAME" or "script.*"."""
        return Stream(self._again(), {"follow": topic},
                      lambda message: [(message["event"], message["data"])])

    def _doubles(self, what):
        """Names of the columns that are doubles: JSON writes 3.0 as 3 and NaN as a text."""
        source = what if re.fullmatch(r"\s*[\w.]+\s*", what) else "(%s) as q" % what
        try:
            rows = self.query("select * from %s limit 0" % source)
        except Error:
            return ()  # what is wrong with it the stream says
        return tuple(n for n, kind in zip(rows.names, rows.types) if kind == "double")

    def _again(self):
        return Wire(self._address, self._token, self._timeout)


class Stream(_Wired):
    """Rows or events as they come: iterate over it, close() it."""

    def __init__(self, wire, request, read):
        self.lost = self.late_rows = 0
        self._wire, self._read, self._ready = wire, read, []
        wire.send(dict(request, id=1))

    def __iter__(self):
        return self

    def __next__(self):
        while not self._ready:
            message = self._wire.receive(None)
            self.lost += message.get("dropped", 0)
            self.late_rows += message.get("late_rows", 0)
            if "done" in message or "error" in message:
                self.close()
                _whole("", message)
                raise StopIteration
            if "data" in message:
                self._ready = list(self._read(message))[::-1]
        return self._ready.pop()


def _each_row(message, doubles):
    for line in message["data"].splitlines():
        row = json.loads(line)
        for name in doubles:
            if row[name] is not None:
                row[name] = float(row[name])
        yield row


def _whole(text, message):
    """The text, or the error that the last message of a request is."""
    status = message.get("done")
    if status is None or status < 0:
        said, hint = message.get("error", "no reason given"), str(message.get("hint", ""))
        raise Error(said[:-len("; " + hint)] if hint else said,
                    errno.errorcode.get(-(status or 0), "ERROR"), status, hint)
    if status > 0:  # the command's own "no": what it wrote says why
        raise Error(text.strip() or "the command ended with status %d" % status, "FAILED", status)
    return text
