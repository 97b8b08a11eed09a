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
import socket
import stat
import struct
import threading
import time
import warnings

DEFAULT_PORT = 9922
MESSAGE_BYTES = 64 << 20  # the longest taken from the process
LOOK_SECONDS = 2.0  # a process that dies closes its sockets first, then is seen dead
_HEAD_BYTES = 64 << 10    # of its answer to the handshake
_SMALL_MAX = 1000         # pings and empty parts in a second; a process sends one a minute
_MORE, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10


class Error(RuntimeError):
    """What the process said instead of an answer.

    code: "EINVAL", "EACCES", ...; hint: what to do, or ""; status: the command's, when it gave one.
    """

    def __init__(self, message, code="ERROR", status=None, hint=""):
        super().__init__("%s; %s" % (message, hint) if hint else message)
        self.code, self.status, self.hint = code, status, hint


class Gone(Error, ConnectionError):
    """The process has ended or has let go of probing, or never answered."""

    def __init__(self, message, hint=""):
        super().__init__(message, "ECONNRESET", hint=hint)


class Rows(list):
    """The rows of an answer, as tuples; what is known of its columns; whether it is complete."""
    cut = property(lambda self: self.truncated, doc="The older name of `truncated`.")

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
        return Connection(_door_of(int(text)), None, timeout)
    if "/" in text:
        door = _Door(text) if os.path.isdir(text) else _Door(*os.path.split(text))
        return Connection(door, None, timeout)
    return Connection(_split_address(text), token or os.environ.get("PROBING_TOKEN") or _token_of,
                      timeout)


class _Wired:
    """What has a connection: use it in a `with`, or close() it."""

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
        self._wire = _Wire(address, token, timeout)
        self._last = 0

    def run(self, *words, timeout=None):
        """Run any command; its answer as text.  timeout: seconds, then the process stops it."""
        with self._lock:
            self._last += 1
            request = {"id": self._last, "run": [str(word) for word in words]}
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
        return Rows(json.loads(self.run("query", "--format", "json", "--", sql, timeout=timeout)))

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
        """What scripts publish, as (topic, value); topic: "script.NAME" or "script.*"."""
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
        return _Wire(self._address, self._token, self._timeout)


class Stream(_Wired):
    """Rows or events as they come: iterate over it, close() it."""
    late = property(lambda self: self.late_rows, doc="The older name of `late_rows`.")

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
            self.late_rows += message.get("late_rows", message.get("late", 0))
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


# ---- where a process is found ----

def _status(pid, pattern):
    """The first group of a line of /proc/PID/status."""
    with open("/proc/%d/status" % pid) as status:
        found = re.search(pattern, status.read(), re.M)
    return found.group(1) if found else ""


def _started(pid):
    with open("/proc/%d/stat" % pid, "rb") as text:
        return int(text.read().rpartition(b")")[2].split()[19])


class _Door:
    """A data directory, and who must listen at the socket in it.

    Whoever owns a directory can put anything in it: a link to another's socket, or a socket of
    another process.  So no link is followed, and the kernel says who listens, before a byte is
    sent.  pid: who it must be; 0: the process that the directory is called after.
    """

    def __init__(self, directory, name="sock", pid=0, started=0):
        self.directory, self.name, self.pid, self.started = directory, name, pid, started

    def __str__(self):
        return os.path.join(self.directory, self.name)

    def _open(self):
        """The directory, by its descriptor.  In another's root each name alone: no link leads out
        of it."""
        root = re.match(r"/proc/\d+/root(?=/)", self.directory)
        if not root:
            return os.open(self.directory or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        at = os.open(root.group(), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in filter(None, self.directory[root.end():].split("/")):
            try:
                if name == "..":
                    raise OSError(errno.EXDEV, "a path that leads out")
                inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
                                dir_fd=at)
            finally:
                os.close(at)
            at = inner
        return at

    def dial(self, timeout):
        folder = self._open()
        try:
            # O_PATH of a link is the link itself, which is no socket.
            at = os.open(self.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                if not stat.S_ISSOCK(os.fstat(at).st_mode):
                    raise Error("%s is no socket: no core made it" % self, "ENOTSOCK")
                made = socket.socket(socket.AF_UNIX)
                try:
                    _connect(made, "/proc/self/fd/%d" % at, timeout)
                    self._prove(made, folder)
                except BaseException:
                    made.close()
                    raise
                return made
            finally:
                os.close(at)
        finally:
            os.close(folder)

    def _prove(self, made, folder):
        pid, uid, _ = struct.unpack("3i", made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED,
                                                          struct.calcsize("3i")))
        if self.pid:
            right = pid == self.pid and (not self.started or self._has_started(pid, self.started))
        else:
            named = re.fullmatch(r"(\d+)-(\d+)(?:\.\d+)?",
                                 os.path.basename(os.readlink("/proc/self/fd/%d" % folder)))
            right = bool(named and pid) and self._has_started(pid, int(named.group(2))) and \
                named.group(1) == (_status(pid, r"^NSpid:.*?(\d+)$") or str(pid))
            if not named or not pid:  # all of it our own user's, who gains nothing
                right = uid == os.geteuid() == os.fstat(folder).st_uid
        if not right:
            raise Error("%s is not the socket of %s: process %d of uid %d listens there; nothing "
                        "was sent to it" % (self, "process %d" % self.pid if self.pid else
                                            "the process that its directory is called after",
                                            pid, uid), "EACCES")

    @staticmethod
    def _has_started(pid, started):
        try:
            return _started(pid) == started
        except OSError:
            return False


def _connect(made, path, timeout):
    """A queue may be full, of a process that is stopped or wants us to wait."""
    end = time.monotonic() + timeout
    made.setblocking(False)
    while True:
        try:
            made.connect(path)
            break
        except BlockingIOError:
            if time.monotonic() > end:
                raise socket.timeout("the process takes no connection")
            time.sleep(0.005)
    made.settimeout(timeout)


def _door_of(pid):
    """The directory of a process's core, by its mapped data file: also of another container."""
    try:
        started = _started(pid)
        inside = _status(pid, r"^NSpid:.*?(\d+)$") or str(pid)
        with open("/proc/%d/maps" % pid, errors="surrogateescape") as maps:
            mapped = re.findall(r"^[^/\n]*(/.*)/data\.mdb$", maps.read(), re.M)
        root = os.readlink("/proc/%d/root" % pid)
    except OSError:
        raise Gone("no process %d, or it is not ours" % pid)
    for path in mapped:
        if os.path.basename(path).startswith(inside + "-"):
            if root != "/" and path.startswith(root + "/"):
                path = path[len(root):]
            return _Door("/proc/%d/root%s" % (pid, path), pid=pid, started=started)
    raise Gone("process %d has no probing in it" % pid, "probing -t %d inject brings it" % pid)


def _split_address(text):
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise Error("'%s' is not host:port" % text, "EINVAL")
    return host.strip("[]") or "localhost", int(port)


def _ends(address, six):
    """An address as /proc/net/tcp shows it, or tcp6, which has both kinds."""
    number = address[0].partition("%")[0]
    if ":" in number:
        raw = socket.inet_pton(socket.AF_INET6, number)
    else:
        raw = (b"\0" * 10 + b"\xff\xff" if six else b"") + socket.inet_pton(socket.AF_INET, number)
    words = struct.unpack("=%dI" % (len(raw) // 4), raw)
    return "%s:%04X" % ("".join("%08X" % word for word in words), address[1])


def _other_end(made):
    """The number of the socket at the other end of a connection, and its user; None: not here."""
    near, far = made.getsockname(), made.getpeername()
    if not re.match(r"127\.|::1$|::ffff:127\.", far[0]):
        return None
    end = time.monotonic() + 2
    while time.monotonic() < end:
        for table, six in (("tcp", False), ("tcp6", True)):
            if not six and ":" in far[0]:
                continue
            want = [_ends(far, six), _ends(near, six)]
            with open("/proc/self/net/" + table) as lines:
                for line in lines:
                    words = line.split()
                    if words[1:3] == want and words[9] != "0":
                        return words[9], words[7]
        time.sleep(0.002)  # it has not been taken in yet
    return None


def _holds(pid, inode):
    fds = "/proc/%s/fd/" % pid
    for number in os.listdir(fds):
        try:
            if os.readlink(fds + number) == "socket:[%s]" % inode:
                return True
        except OSError:
            continue  # closed meanwhile
    return False


def _token_of(made):
    """The token of our process at the other end of this very connection, or None: anybody can
    listen on a port and say that he is another, and the kernel knows whose it is."""
    there = _other_end(made)
    for pid in filter(str.isdigit, os.listdir("/proc") if there else ()):
        try:
            if _holds(pid, there[0]) and \
                    there[1] in _status(int(pid), r"^Uid:\s*(.*)$").split():
                return _token_in(int(pid))
        except (Error, OSError):
            continue
    return None


def _token_in(pid):
    """The token of that process's core.  Error, OSError: it has none that could be believed."""
    folder, how = _door_of(pid)._open(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        at = os.open("token", how, dir_fd=folder)
        with open(at, "rb") as file:
            own = os.fstat(at).st_uid == os.fstat(folder).st_uid
            if not (own and stat.S_ISREG(os.fstat(at).st_mode)):
                raise Error("the token of process %d is no file of its own" % pid)
            return file.read(4096).split(b"\n")[0].decode("ascii", "replace").strip()
    finally:
        os.close(folder)


# ---- the websocket ----

class _Wire:
    def __init__(self, address, token, timeout):
        self._timeout, self._where = timeout, str(address)
        self._buffer, self._door, self._process = b"", address, None
        try:
            self._socket = _dial(address, timeout)
            self._small = (0.0, 0)  # when the second began, and what came in it
        except OSError as error:
            raise Gone("%s: %s" % (self._where, error.strerror or error))
        if self._socket.family == socket.AF_UNIX:  # who listens: to be known again by its start
            pid = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET,
                                                              socket.SO_PEERCRED, 12))[0]
            self._process = _identity(pid) if pid > 0 else None
        try:
            self._shake_hands(token(self._socket) if callable(token) else token)
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
            if len(self._buffer) > _HEAD_BYTES:
                raise Error("%s does not speak our protocol" % self._where, "EPROTO")
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
        raise Error(error["message"], error["code"], hint=error["hint"])

    def _send_bytes(self, data):
        self._socket.settimeout(self._timeout)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Gone("%s (%s)" % (self._fate(), error))

    def _fate(self):
        """What has become of the process behind a stream that has ended, in one sentence."""
        until, listened = time.monotonic() + LOOK_SECONDS, 0
        while self._process and time.monotonic() < until:
            if _identity(self._process[0]) != self._process:
                return "the process has died"
            listens = _listens(self._door)
            if listens is None and _identity(self._process[0]) == self._process:
                return "the core has left process %d, which lives on" % self._process[0]
            listened += bool(listens)
            if listened > 2:  # an exec closes them one by one
                break
            if not listens and not _has_core(self._process[0], self._door.directory):
                return ("process %d runs another program now (exec), and the core went with the "
                        "one before" % self._process[0])
            time.sleep(0.01)
        if self._process:
            return "the connection was closed by the core; process %d lives" % self._process[0]
        return "the connection to %s was closed; whether its process lives is unknown" % self._where

    def _more(self, timeout):
        self._socket.settimeout(timeout)
        try:
            data = self._socket.recv(1 << 18)
        except socket.timeout:
            raise Gone("%s does not answer; the process may be stopped or busy" % self._where)
        except OSError as error:
            raise Gone("%s (%s)" % (self._fate(), error))
        if not data:
            raise Gone(self._fate())
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

    def _count_small(self):
        """As fast as they come they would keep us busy for ever, with nothing to give."""
        since, n = self._small
        now = time.monotonic()
        self._small = (since, n + 1) if now - since < 1 else (now, 1)
        if self._small[1] > _SMALL_MAX:
            raise Error("%s does not speak our protocol (a flood of pings or empty frames)"
                        % self._where, "EPROTO")

    def receive(self, timeout):
        """The next message.  timeout: seconds without a byte; None: for ever."""
        whole, binary = b"", False
        while True:
            first, n = self._take(2, timeout)
            if n >= 126:
                n = int.from_bytes(self._take(2 if n == 126 else 8, self._timeout), "big")
            if n + len(whole) > MESSAGE_BYTES:
                raise Error("an answer is longer than %d bytes" % MESSAGE_BYTES, "EMSGSIZE")
            data, kind = self._take(n, self._timeout), first & 15
            if kind > _BINARY or not (n or first & 0x80):
                self._count_small()
            if kind == _PING:
                self._frame(_PONG, data)
            elif kind == _CLOSE:
                said = data[2:].decode("utf-8", "replace")
                raise Gone("%s: %s" % (self._fate(), said) if said else self._fate())
            elif kind <= _BINARY:
                whole, binary = whole + data, binary if kind == _MORE else kind == _BINARY
                if first & 0x80:  # binary: the id, then a piece of an answer that is no text
                    return json.loads(whole.decode("utf-8")) if not binary else {
                        "id": int.from_bytes(whole[:8], "little"), "data": whole[8:]}


def _identity(pid):
    """(pid, start time) of a process that lives; None: dead, a zombie or on its way out."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rpartition(")")[2].split()
        over = fields[0] in "ZXx" or int(fields[6]) & 4  # PF_EXITING
        if over and len(os.listdir("/proc/%d/task" % pid)) <= 1:
            return None
        return pid, int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _listens(door):
    """Does anybody listen there?  None: the socket is not there any more."""
    try:
        door.dial(1.0).close()
        return True
    except FileNotFoundError:  # a process that dies loses its view of files, the folder too
        return None if os.path.isdir(door.directory) else False
    except (Error, OSError):
        return False


def _has_core(pid, directory):
    """Is the store of the directory mapped?  True also where that cannot be told."""
    leaf = os.path.basename(os.path.abspath(directory))
    try:
        with open("/proc/%d/maps" % pid, errors="surrogateescape") as maps:
            text = maps.read()
    except OSError:
        return True
    return not text or not leaf[:1].isdigit() or "/%s/data.mdb" % leaf in text


def _dial(address, timeout):
    if isinstance(address, _Door):
        return address.dial(timeout)
    made = socket.create_connection(address, timeout)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
