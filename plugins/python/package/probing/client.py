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
import glob
import json
import os
import re
import socket
import struct
import threading

DEFAULT_PORT = 9922
MESSAGE_BYTES = 64 << 20  # the longest taken from the process
_MORE, _TEXT, _CLOSE, _PING, _PONG = 0, 1, 8, 9, 10


class Error(RuntimeError):
    """What the process said instead of an answer.

    code: "EINVAL", "EACCES", ...; hint: what to do, or ""; status: the command's, when it gave one.
    """

    def __init__(self, message, code="ERROR", status=None):
        super().__init__(message)
        self.code, self.status = code, status
        self.hint = message.partition("; ")[2] if code != "FAILED" else ""


class Gone(Error, ConnectionError):
    """The process has ended or has let go of probing, or never answered."""

    def __init__(self, message):
        super().__init__(message, "ECONNRESET")


class Rows(list):
    """The rows of an answer, as tuples; what is known of the columns, and whether it is whole."""

    def __init__(self, answer):
        self.names = [column["name"] for column in answer["columns"]]
        self.types = [column["type"] for column in answer["columns"]]
        rows = answer["rows"]
        for at, kind in enumerate(self.types):
            if kind == "double":  # JSON writes 3.0 as 3
                for row in rows:
                    if row[at] is not None:
                        row[at] = float(row[at])
        super().__init__(map(tuple, rows))
        self.units = [column["unit"] for column in answer["columns"]]
        self.lost, self.cut = answer["lost"], answer["cut"]
        self.elapsed_ms = answer["elapsed_ms"]

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
    target = os.environ.get("PROBING_TARGET", "") if target is None else target
    text = str(target).strip()
    url = re.fullmatch(r"https?://([^/?#]+)/?(?:\?token=(\w+))?", text)
    if url:
        text, token = url.group(1), token or url.group(2)
    if not text:
        raise Error("no target; give a pid, host:port, a socket or a data directory", "EINVAL")
    if text.isdigit():
        return Connection(_socket_of(int(text)), None, timeout)
    if "/" in text:
        path = os.path.join(text, "sock") if os.path.isdir(text) else text
        return Connection(path, None, timeout)
    host, port = _split_address(text)
    return Connection((host, port), token or os.environ.get("PROBING_TOKEN") or _token_of(port),
                      timeout)


class Connection:
    """One process.  Use it in a `with`, or close() it."""

    def __init__(self, address, token, timeout):
        self._address, self._token, self._timeout = address, token, timeout
        self._lock = threading.Lock()
        self._wire = _Wire(address, token, timeout)
        self._last = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._wire.close()

    def run(self, *words, timeout=None):
        """Run any command; its answer as text.  timeout: seconds, then the process stops it."""
        with self._lock:
            self._last += 1
            request = {"id": self._last, "run": [str(word) for word in words]}
            if timeout is not None:
                request["timeout_ms"] = max(1, int(timeout * 1000))
            self._wire.send(request)
            text = []
            while True:
                message = self._wire.receive(None if timeout is None else timeout + 2)
                if message.get("id", self._last) != self._last:
                    continue  # the end of one that was given up
                text.append(message.get("data", ""))
                if "done" in message or "error" in message:
                    return _whole("".join(text), message)

    def query(self, sql, timeout=None):
        """Rows of an SQL statement: tuples, with .dicts(), .column(name), .columns()."""
        return Rows(json.loads(self.run("query", "--format", "json", "--", sql, timeout=timeout)))

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
        return Stream(self._again(), {"subscribe": what, "interval_ms": int(interval * 1000),
                                      "last": last}, _each_row)

    def watch(self, sql, interval=1.0):
        """Like subscribe() for any statement: each time all its rows, as a list of dicts."""
        return Stream(self._again(), {"watch": sql, "interval_ms": int(interval * 1000)},
                      lambda message: [list(_each_row(message))])

    def follow(self, topic):
        """What scripts publish, as (topic, value); topic: "script.NAME" or "script.*"."""
        return Stream(self._again(), {"follow": topic},
                      lambda message: [(message["event"], message["data"])])

    def _again(self):
        return _Wire(self._address, self._token, self._timeout)


class Stream:
    """What goes on by itself: iterate over it, close() it."""

    def __init__(self, wire, request, read):
        self.lost = self.late = 0
        self._wire, self._read, self._ready = wire, read, []
        wire.send(dict(request, id=1))

    def __iter__(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._wire.close()

    def __next__(self):
        while not self._ready:
            message = self._wire.receive(None)
            self.lost += message.get("dropped", 0)
            self.late += message.get("late", 0)
            if "done" in message or "error" in message:
                self.close()
                _whole("", message)
                raise StopIteration
            if "data" in message:
                self._ready = list(self._read(message))[::-1]
        return self._ready.pop()


def _each_row(message):
    return (json.loads(line) for line in message["data"].splitlines())


def _whole(text, message):
    """The text, or the error that the last message of a request is."""
    status = message.get("done")
    if status is None or status < 0:
        raise Error(message.get("error", "no reason given"),
                    errno.errorcode.get(-(status or 0), "ERROR"), status)
    if status > 0:  # the command's own "no": what it wrote says why
        raise Error(text.strip() or "the command ended with status %d" % status, "FAILED", status)
    return text


# ---- where a process is found ----

def _roots(uid, base=""):
    named = [os.environ["PROBING_DATA_DIR"]] if os.environ.get("PROBING_DATA_DIR") else []
    return [base + root for root in
            named + ["/tmp/probing-%d" % uid, "/dev/shm/probing-%d" % uid]]


def _socket_of(pid):
    """The socket of a process, also of one in another container."""
    base = "/proc/%d/root" % pid
    try:
        uid = os.stat("/proc/%d" % pid).st_uid
        with open("/proc/%d/status" % pid) as status:
            inside = re.search(r"^NSpid:.*?(\d+)$", status.read(), re.M)
        with open("/proc/%d/environ" % pid, "rb") as environ:
            own = re.search(rb"(?:^|\0)PROBING_DATA_DIR=([^\0]+)", environ.read())
    except OSError:
        raise Gone("no process %d, or it is not ours" % pid)
    roots = ([base + os.fsdecode(own.group(1))] if own else []) + _roots(uid, base) + _roots(uid)
    for number in {inside.group(1) if inside else str(pid), str(pid)}:
        for root in roots:
            found = glob.glob("%s/%s-*/sock" % (glob.escape(root), number))
            if found:
                return max(found, key=os.path.getmtime)
    raise Gone("process %d has no probing in it; probing -t %d inject brings it" % (pid, pid))


def _split_address(text):
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise Error("'%s' is not host:port" % text, "EINVAL")
    return host.strip("[]") or "localhost", int(port)


def _token_of(port):
    """The token of the process of ours on this machine that listens on this port."""
    for root in _roots(os.getuid()):
        for path in glob.glob(glob.escape(root) + "/*/sock"):
            try:
                with Connection(path, None, 5.0) as one:
                    if re.search(r"^listening: .*:%d$" % port, one.run("info"), re.M):
                        with open(path[:-len("sock")] + "token") as token:
                            return token.read().strip()
            except (Error, OSError):
                continue
    return None


# ---- the websocket ----

class _Wire:
    def __init__(self, address, token, timeout):
        self._timeout, self._where = timeout, str(address)
        self._buffer = b""
        try:
            self._socket = _dial(address, timeout)
        except OSError as error:
            raise Gone("%s: %s" % (self._where, error.strerror or error))
        try:
            self._shake_hands(token)
        except BaseException:
            self._socket.close()
            raise

    def close(self):
        self._socket.close()

    def _shake_hands(self, token):
        # A server refuses names (they can be pointed anywhere), so we say the number we came to.
        host = "localhost"
        if self._socket.family != socket.AF_UNIX:
            name = self._socket.getpeername()
            host = ("[%s]:%d" if ":" in name[0] else "%s:%d") % name[:2]
        if token and not re.fullmatch(r"[!-~]+", token):
            raise Error("the token is not usable: it has blanks or line breaks", "EINVAL")
        self._send_bytes(("GET /ws HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\n"
                          "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                          "Sec-WebSocket-Key: cHJvYmluZ2NsaWVudDAwMQ==\r\n"
                          "Sec-WebSocket-Protocol: probing.1\r\n%s\r\n"
                          % (host, "Authorization: Bearer %s\r\n" % token if token else "")
                          ).encode())
        while b"\r\n\r\n" not in self._buffer:
            self._more(self._timeout)
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            self._refused(head)

    def _refused(self, head):
        size = re.search(rb"(?i)\r\nContent-Length: (\d+)", head)
        try:
            while size and len(self._buffer) < int(size.group(1)):
                self._more(self._timeout)
            error = json.loads(self._buffer.decode("utf-8", "replace"))["error"]
        except (ValueError, KeyError, TypeError, Gone):
            raise Error("%s does not speak our protocol" % self._where, "EPROTO")
        raise Error("; ".join(part for part in (error["message"], error["hint"]) if part),
                    error["code"])

    def _send_bytes(self, data):
        self._socket.settimeout(self._timeout)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Gone("%s has gone: %s" % (self._where, error))

    def _more(self, timeout):
        self._socket.settimeout(timeout)
        try:
            data = self._socket.recv(1 << 18)
        except socket.timeout:
            raise Gone("%s does not answer; the process may be stopped or busy" % self._where)
        except OSError as error:
            raise Gone("%s has gone: %s" % (self._where, error))
        if not data:
            raise Gone("%s has gone, or has closed the connection" % self._where)
        self._buffer += data

    def send(self, message):
        self._frame(_TEXT, json.dumps(message).encode())

    def _frame(self, kind, data):
        n, key = len(data), os.urandom(4)
        size = (struct.pack("!B", 0x80 | n) if n < 126 else
                struct.pack("!BH", 0x80 | 126, n) if n < 65536 else
                struct.pack("!BQ", 0x80 | 127, n))
        mask = int.from_bytes((key * (n // 4 + 1))[:n], "big")
        masked = (int.from_bytes(data, "big") ^ mask).to_bytes(n, "big")
        self._send_bytes(bytes([0x80 | kind]) + size + key + masked)

    def _take(self, n, timeout):
        while len(self._buffer) < n:
            self._more(timeout)
        data, self._buffer = self._buffer[:n], self._buffer[n:]
        return data

    def receive(self, timeout):
        """The next message.  timeout: seconds without a byte; None: for ever."""
        whole = b""
        while True:
            first, n = self._take(2, timeout)
            if n >= 126:
                n = int.from_bytes(self._take(2 if n == 126 else 8, self._timeout), "big")
            if n + len(whole) > MESSAGE_BYTES:
                raise Error("an answer is longer than %d bytes" % MESSAGE_BYTES, "EMSGSIZE")
            data, kind = self._take(n, self._timeout), first & 15
            if kind == _PING:
                self._frame(_PONG, data)
            elif kind == _CLOSE:
                raise Gone(data[2:].decode("utf-8", "replace") or "%s has closed" % self._where)
            elif kind in (_TEXT, _MORE):
                whole += data
                if first & 0x80:
                    return json.loads(whole.decode("utf-8"))


def _dial(address, timeout):
    if isinstance(address, tuple):
        made = socket.create_connection(address, timeout)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(timeout)
    try:
        if len(os.fsencode(address)) < 100:
            made.connect(address)
            return made
        folder = os.open(os.path.dirname(address), os.O_PATH | os.O_CLOEXEC)  # too long a path
        try:
            made.connect("/proc/self/fd/%d/%s" % (folder, os.path.basename(address)))
        finally:
            os.close(folder)
        return made
    except BaseException:
        made.close()
        raise
