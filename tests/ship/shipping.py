# SPDX-License-Identifier: Apache-2.0
"""What the tests of `probing ship` share: ranks that make rows when they are told to, a receiver
that answers as it is told, and readers of what comes that know no library."""
import http.server
import json
import os
import shutil
import socket
import struct
import sys
import threading
import urllib.request

import pytest
from parquet_reader import parquet, unsnappy, varint
from world import CLI, ROOT, wait_for

PROGRAM = """
import probing, time
table = probing.table("loss", {"step": int, "loss": float, "phase": str, "ok": bool, "note": str})
made = 0
def add(n, apart=0.0):
    global made
    for _ in range(n):
        table.append(made, made / 4, "train" if made % 2 else "eval", made % 3 == 0,
                     None if made % 5 else "n%d \\u00fc" % made)
        made += 1
        if apart:
            time.sleep(apart)
def add_long(n):
    global made
    for _ in range(n):
        table.append(made, 0.0, "long", False, "%d " % made + "x" * 200000)
        made += 1
        time.sleep(0.01)
print("ready", flush=True)
while True: time.sleep(0.005)
"""
COLUMNS = ["_host", "_rank", "_pid", "_job", "_role", "_clock_offset_ns",
           "_clock_error_ns", "_process", "ts", "tid", "step", "loss",
           "phase", "ok", "note"]


def start_job(world, n=1, job=None):
    """n ranks of a job, each with the table python.loss."""
    env = {"PYTHONPATH": str(ROOT / "plugins" / "python" / "package"), "WORLD_SIZE": str(n),
           "TORCHELASTIC_RUN_ID": job or "ship-%d" % os.getpid()}
    script = world.tmp / "rank.py"
    script.write_text(PROGRAM)
    made = []
    for rank in range(n):
        made.append(world.start(str(CLI), "launch", "--plugin", "python", "--", sys.executable,
                                "-u", str(script), env=dict(env, RANK=str(rank),
                                                            LOCAL_RANK=str(rank))))
    for target in made:
        target.wait_line("ready")
        # The package hands its tables over after the core answers; rows until then are lost.
        wait_for(lambda t=target: t.probing("query", "select count(*) from python.loss"
                                            ).returncode == 0, "a core with the table")
    return made


def add(target, n, apart=0.0):
    done = target.probing("eval", "add(%d, %g)" % (n, apart))
    assert done.returncode == 0, done.stderr


def stored(target):
    """The steps that the target has."""
    return [row[0] for row in target.rows("select step from python.loss order by step")]


def ship(world, targets, to, *more, once=True, env=None):
    state = world.tmp / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    words = ["-t", targets, "ship", "--to", to]
    if "--state" not in more:
        words += ["--state", str(state / "ship.json")]
    return world.probing(*words, *(["--once"] if once else []), *more, env=env)


def start_ship(world, targets, to, *more):
    """A `ship` that goes on; its state file is the same as that of ship()."""
    (world.tmp / "state").mkdir(mode=0o700, exist_ok=True)
    return world.start(str(CLI), "-t", targets, "ship", "--to", to, "--interval", "100ms",
                       "--state", str(world.tmp / "state" / "ship.json"), *more)


def state_of(world):
    lines = (world.tmp / "state" / "ship.json").read_text().splitlines()
    return json.loads(lines[0]), [json.loads(line) for line in lines[1:]]


# ---- a receiver ----

class Receiver:
    """Listens and keeps what is posted.  `answer(receiver, request)` gives (status, headers, body),
    or None: the connection is closed without an answer."""

    def __init__(self, answer=None, tls=None):
        self.answer = answer or (lambda receiver, request: (200, {}, b""))
        self.requests = []
        self.lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = {"path": self.path, "headers": dict(self.headers), "body": body}
                with outer.lock:
                    given = outer.answer(outer, request)
                    whole = given and "Cut" not in given[1]
                    request["status"] = given[0] if whole else None
                    outer.requests.append(request)
                if given is None:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, headers, text = given
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                size = len(text) * (9 if "Cut" in headers else 1)
                self.send_header("Content-Length", str(size))
                self.end_headers()
                self.wfile.write(text)
                self.close_connection = self.close_connection or "Cut" in headers

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def taken(self):
        with self.lock:
            return [r for r in self.requests if r["status"] and r["status"] < 300]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receive():
    made = []

    def make(answer=None, tls=None):
        made.append(Receiver(answer, tls))
        return made[-1]
    yield make
    for receiver in made:
        receiver.close()


# ---- protocol buffers and snappy, as their definitions have them ----

def message(data):
    """A message as a list of (field, value): bytes, whole numbers, or the 8 bytes of fixed64."""
    at, fields = 0, []
    while at < len(data):
        head, at = varint(data, at)
        wire = head & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = data[at:at + 8], at + 8
        else:
            assert wire == 2
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size
        fields.append((head >> 3, value))
    return fields


def parts(data, field):
    return [value for number, value in message(data) if number == field]


def remote_write(body):
    """[(labels, [(ms, value)])] of a request."""
    series = []
    for one in parts(unsnappy(body), 1):
        labels = [(parts(x, 1)[0].decode(), parts(x, 2)[0].decode()) for x in parts(one, 1)]
        assert [n for n, _ in labels] == sorted(n for n, _ in labels)
        samples = [(parts(x, 2)[0], struct.unpack("<d", parts(x, 1)[0])[0]) for x in parts(one, 2)]
        series.append((dict(labels), samples))
    return series


# ---- a folder of Parquet ----

def folder(path, table="loss"):
    """All rows of a table in a folder, each with the partition of its file."""
    found = []
    for name in sorted(path.glob("schema=*/table=%s/date=*/rank=*/*.parquet" % table)):
        place = dict(part.split("=") for part in name.relative_to(path).parts[:-1])
        found += [dict(row, place=place) for row in parquet(name)[1]]
    return found


# ---- servers that are installed ----

def server(world, names, words, ready):
    """A server on a free port; words(port) are its options.  Or the test is skipped."""
    path = next((p for p in map(shutil.which, names) if p), None)
    if path is None:
        pytest.skip("none of %s is installed (Debian has them)" % ", ".join(names))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world.start(path, *words(port))

    def answers():
        try:
            return urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, ready)).status == 200
        except OSError:
            return False
    wait_for(answers, "%s on port %d" % (path, port))
    return port


def get(url):
    with urllib.request.urlopen(url) as answer:
        return json.loads(answer.read())


def signals(target, number):
    target.process.send_signal(number)
    return target.process.wait()


