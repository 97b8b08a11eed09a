# SPDX-License-Identifier: Apache-2.0
"""Enter and leave the programs that people run, and look whether their clients notice.

usage: tests/soak/programs.py [--rounds N] [--only NAME] [--list]
       scons soak programs=all           50 rounds each

A program is started as its users start it, in a folder of its own; a client asks it before, while
and after each round.  In turn a round enters with the allocators hooked, plainly, and with crash
reports and the profiler on, and another of its processes.  A program that this machine has not is
left out aloud: Debian's packages have most; what PyPI has is installed into build/soak/python where
pip can reach it.
Exit code 1 when a program ended, a client got no answer or a wrong one, or something of ours
stayed.
"""
import argparse
import collections
import http.client
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("PROBING_BUILD", ROOT / "build" / "release"))
CLI = BUILD / "probing"
VENV = ROOT / "build" / "soak" / "python"
PACKAGES = "gunicorn uvicorn gevent uvloop celery distributed ipykernel jupyter_client".split()
STARTS_S = 60.0
ANSWERS_S = 20.0     # a client that waits longer has found a hang
WAYS = [("--plugin", "memory"), (), ("-c", "-P")]
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/bin",
                        os.path.expanduser("~/.cargo/bin"), "/usr/local/go/bin",
                        *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")))])


class Missing(Exception):
    """This machine has not what a program needs."""


def which(name):
    found = shutil.which(name, path=PATH)
    if not found:
        raise Missing("no %s here" % name)
    return found


def python_of_pypi(module):
    """The Python of build/soak, with the packages; another where they cannot be had."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], capture_output=True)
        subprocess.run([str(VENV / "bin" / "pip"), "install", "-q", "--retries", "1", *PACKAGES],
                       capture_output=True)
    for found in (str(python), sys.executable, "/usr/bin/python3"):
        if shutil.which(found) and not subprocess.run([found, "-c", "import " + module],
                                                      capture_output=True).returncode:
            return found
    raise Missing("no Python here has %s, and PyPI gave none" % module)


# ---- clients: each asks once and raises when the answer is wrong ----

def expect(got, wanted):
    if got != wanted:
        raise AssertionError("answered %r, not %r" % (got, wanted))


def ask(address, text, wanted):
    """A line, or more, over a socket: the answer must begin so."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(ANSWERS_S)
        s.connect(address)
        s.sendall(text)
        got = b""
        while len(got) < len(wanted):
            part = s.recv(4096)
            if not part:
                break
            got += part
    expect(got[:len(wanted)], wanted)


def ask_http(path, wanted):
    connection = http.client.HTTPConnection("localhost", timeout=ANSWERS_S)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.settimeout(ANSWERS_S)
    connection.sock.connect(path)
    connection.request("GET", "/")
    answer = connection.getresponse()
    expect((answer.status, answer.read()), (200, wanted))
    connection.close()


class Program:
    """One program, started in `place`: its processes, its client."""

    user = None

    def __init__(self, place):
        self.place = place
        self.log = open(place / "log", "w+b")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("PROBING", "LD_PRE"))}
        self.env.update(PATH=PATH, PROBING_DATA_DIR=str(place / "data"), PYTHONUNBUFFERED="1")
        self.count = 0

    def run(self, *words, **more):
        self.process = subprocess.Popen(list(map(str, words)), env=self.env, cwd=self.place,
                                        stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, start_new_session=True, **more)

    def output(self):
        return (self.place / "log").read_text(errors="replace")

    def pids(self):
        """It and all below it that live and could be entered."""
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            try:
                text = Path("/proc/%d/task/%d/children" % (pid, pid)).read_text()
                state = Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            found += [pid] * (state != "Z")
            todo += map(int, text.split())
        return found

    def end(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except OSError:
                pass
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        self.log.close()


class Postgres(Program):
    def start(self):
        os.chmod(self.place, 0o777)
        if os.getuid() == 0:
            self.user = "postgres" if os.system("id postgres >/dev/null 2>&1") == 0 else "nobody"
        as_user = {"user": self.user} if self.user else {}
        data = self.place / "cluster"
        made = subprocess.run([which("initdb"), "-D", str(data), "-A", "trust", "-U", "soak"],
                              env=self.env, capture_output=True, text=True, **as_user)
        if made.returncode:
            raise Missing("initdb: " + made.stderr.strip()[-200:])
        self.psql = which("psql")
        self.env.pop("PROBING_DATA_DIR")  # the server is another user's, and may not write there
        self.run(which("postgres"), "-D", data, "-k", self.place, "-c", "listen_addresses=",
                 **as_user)

    def ask(self):
        done = subprocess.run([self.psql, "-h", str(self.place), "-U", "soak", "-At", "-d",
                               "postgres", "-c", "select sum(i) from generate_series(1, 1000) i"],
                              env=self.env, capture_output=True, text=True, timeout=ANSWERS_S)
        expect(done.stdout.strip(), "500500")


class Redis(Program):
    def start(self):
        self.run(which("redis-server"), "--port", "0", "--unixsocket", self.place / "s")

    def ask(self):
        ask(str(self.place / "s"), b"INCR soak\r\n", b":%d\r\n" % (self.count + 1))
        self.count += 1


class Memcached(Program):
    def start(self):
        self.run(which("memcached"), "-u", "root", "-s", self.place / "s")

    def ask(self):
        ask(str(self.place / "s"), b"set k 0 0 2\r\nab\r\nget k\r\n",
            b"STORED\r\nVALUE k 0 2\r\nab\r\n")


class Nginx(Program):
    def start(self):
        (self.place / "conf").write_text(
            "daemon off; worker_processes 2; pid %(p)s/pid; error_log stderr; events {}\n"
            "%(u)s http { access_log off; server { listen unix:%(p)s/s;\n"
            "location / { return 200 soaked; } } }\n"
            % {"p": self.place, "u": "user root;" if os.getuid() == 0 else ""})
        self.run(which("nginx"), "-c", self.place / "conf", "-p", self.place, "-e", "stderr")

    def ask(self):
        ask_http(str(self.place / "s"), b"soaked")


class Squares(Program):
    """One of targets/server.*: a number a line, its square back; by the port that it prints."""

    def ask(self):
        port = re.search(r"^port (\d+)", self.output(), re.M)
        n = random.randrange(1, 1000000)
        ask(("127.0.0.1", int(port[1])), b"%d\n" % n, b"%d\n" % (n * n))


class Node(Squares):
    def start(self):
        self.run(which("node"), HERE / "targets" / "server.js")


class Java(Squares):
    def start(self):
        self.run(which("java"), HERE / "targets" / "Server.java")


class Built(Squares):
    def build(self, *words):
        done = subprocess.run(list(map(str, words)), cwd=self.place, capture_output=True, text=True,
                              env=dict(self.env, CGO_ENABLED="1", GOCACHE=str(self.place / "gc"),
                                       HOME=os.path.expanduser("~")))
        if done.returncode:
            raise Missing("it cannot be built: " + done.stderr.strip()[-200:])
        self.run(self.place / "program")


class Go(Built):
    def start(self):
        self.build(which("go"), "build", "-o", self.place / "program", HERE / "targets/server.go")


class Rust(Built):
    def start(self):
        self.build(which("rustc"), "-O", "-o", self.place / "program", HERE / "targets/server.rs")


class Web(Program):
    wsgi = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "6")])
    return [b"soaked"]
"""
    asgi = """
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"soaked"})
"""

    def serve(self, source, python, *words):
        (self.place / "web.py").write_text(source)
        self.run(python, "-m", *words)

    def ask(self):
        ask_http(str(self.place / "s"), b"soaked")


class Gunicorn(Web):
    def start(self):
        self.serve(self.wsgi, python_of_pypi("gunicorn"), "gunicorn", "-w", "2", "-b",
                   "unix:%s/s" % self.place, "web:app")


class Gevent(Web):
    def start(self):
        python_of_pypi("gunicorn")
        self.serve(self.wsgi, python_of_pypi("gevent"), "gunicorn", "-w", "2", "-k", "gevent",
                   "-b", "unix:%s/s" % self.place, "web:app")


class Uvicorn(Web):
    loop, needs = "asyncio", "uvicorn"

    def start(self):
        python_of_pypi("uvicorn")
        self.serve(self.asgi, python_of_pypi(self.needs), "uvicorn", "--uds", self.place / "s",
                   "--loop", self.loop, "--lifespan", "off", "web:app")


class Uvloop(Uvicorn):
    loop = needs = "uvloop"


class Counts(Program):
    """A program that writes how far it is into the file `n`; it must go on."""

    def ask(self):
        begin, first = time.monotonic(), self.reached()
        while self.reached() <= first:
            if time.monotonic() > begin + ANSWERS_S:
                raise AssertionError("it stands at %d" % first)
            time.sleep(0.01)

    def reached(self):
        try:
            return int((self.place / "n").read_text() or 0)
        except (OSError, ValueError):
            return -1


class Celery(Counts):
    source = """
import os, sys
from celery import Celery
app = Celery("work", broker="filesystem://", backend="file://" + os.getcwd() + "/results")
for name in ("queue", "results"):
    os.makedirs(name, exist_ok=True)
app.conf.broker_transport_options = {"data_folder_in": "queue", "data_folder_out": "queue"}
@app.task
def add(a, b):
    return a + b
if __name__ == "__main__":
    for n in range(10**9):
        assert add.delay(n, 1).get(timeout=60) == n + 1
        with open("n.new", "w") as f:
            f.write(str(n))
        os.rename("n.new", "n")
"""

    def start(self):
        python = python_of_pypi("celery")
        (self.place / "work.py").write_text(self.source)
        self.run("/bin/sh", "-c", "%s -m celery -A work worker -c 2 & exec %s work.py"
                 % (python, python))


class Dask(Counts):
    source = """
import os
from distributed import Client, LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster, \\
            Client(cluster) as client:
        for n in range(10**9):
            assert sum(client.gather(client.map(lambda x, n=n: x + n, range(10)))) == 45 + 10 * n
            with open("n.new", "w") as f:
                f.write(str(n))
            os.rename("n.new", "n")
"""

    def start(self):
        (self.place / "work.py").write_text(self.source)
        self.run(python_of_pypi("distributed"), "work.py")


class Ipykernel(Counts):
    source = """
import os
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3")
for n in range(10**9):
    shown = []
    client.execute_interactive("print(%d * 2)" % n, timeout=60, output_hook=shown.append)
    text = "".join(m["content"]["text"] for m in shown if m["msg_type"] == "stream")
    assert text == "%d\\n" % (2 * n), (n, shown)  # it may come in pieces
    with open("n.new", "w") as f:
        f.write(str(n))
    os.rename("n.new", "n")
"""

    def start(self):
        python_of_pypi("jupyter_client")
        (self.place / "work.py").write_text(self.source)
        self.run(python_of_pypi("ipykernel"), "work.py")


class Shell(Counts):
    loop = """n=0
while true; do
    n=$((n + 1)); echo $n > n.new; mv n.new n
    test "$(echo a | cat)" = a || exit 3
done
"""
    name = "sh"

    def start(self):
        (self.place / "loop").write_text(self.loop)
        self.run(which(self.name), self.place / "loop")

    def pids(self):
        return [self.process.pid]  # the others end in a moment


class Fish(Shell):
    name = "fish"
    loop = """set n 0
while true
    set n (math $n + 1); echo $n > n.new; mv n.new n
    test (echo a | cat) = a; or exit 3
end
"""


PROGRAMS = {"postgresql": Postgres, "redis": Redis, "memcached": Memcached, "nginx": Nginx,
            "node": Node, "java": Java, "go": Go, "rust": Rust, "gunicorn": Gunicorn,
            "gevent": Gevent, "uvicorn": Uvicorn, "uvloop": Uvloop, "celery": Celery,
            "dask": Dask, "ipykernel": Ipykernel, "fish": Fish,
            **{name: type(name, (Shell,), {"name": name}) for name in ("bash", "dash", "zsh")}}


# ---- rounds ----

def command(program, pid, *words):
    return subprocess.run([str(CLI), "-t", str(pid), *words], env=program.env, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=120)


def caught(pid):
    """Which of the signals that we might take have a handler; a worker may just be booting, and
    put and remove handlers on others."""
    ours = [signal.SIGURG, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL,
            signal.SIGTRAP, signal.SIGSYS, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)]
    text = re.search(r"SigCgt:\s*(\S+)", Path("/proc/%d/status" % pid).read_text())[1]
    return "%x" % (int(text, 16) & sum(1 << n - 1 for n in ours))


def ours(pid):
    names = []
    for path in Path("/proc/%d/task" % pid).glob("*/comm"):
        try:
            names.append(path.read_text().strip())
        except OSError:
            pass
    return [n for n in names if n.startswith("probing/")]


def settled(pid, before):
    """Traces of ours that stayed a while after an eject; "": none."""
    end = time.monotonic() + ANSWERS_S
    while True:
        left = ours(pid)
        handlers = caught(pid)
        if not left and handlers == before:
            return ""
        if time.monotonic() > end:
            return "left: %s, handlers %s, before %s" % (left, handlers, before)
        time.sleep(0.01)


def one_round(program, way, counts):
    """Enter one of its processes, ask, leave, ask; what went wrong is raised."""
    pid = random.choice(program.pids())
    before = caught(pid)
    done = command(program, pid, "inject", *way)
    if done.returncode and not Path("/proc/%d" % pid).exists():
        counts["gone"] += 1  # a worker that its master has replaced
        return
    if done.returncode:
        counts["refused"] += 1
        if "running on" not in done.stderr:
            counts[done.stderr.strip().splitlines()[-1][:150]] += 1
        return
    counts["entered"] += 1
    program.ask()
    if random.random() < 0.3:
        command(program, pid, "backtrace")
    done = command(program, pid, "eject")
    program.ask()
    if done.returncode and not Path("/proc/%d" % pid).exists():
        counts["gone"] += 1
        return
    if done.returncode:
        raise AssertionError("eject: " + done.stderr.strip())
    counts["left"] += 1
    if "keeps a handler" not in done.stdout:
        left = settled(pid, before)
        if left:
            raise AssertionError(left)


def wait_until_it_answers(program):
    end = time.monotonic() + STARTS_S
    while True:
        try:
            return program.ask()
        except (OSError, AssertionError, TypeError, ValueError, subprocess.SubprocessError,
                http.client.HTTPException):
            if program.process.poll() is not None or time.monotonic() > end:
                raise Missing("it did not start: " + program.output()[-300:])
            time.sleep(0.1)


def soak(name, rounds):
    """Counts of one program, and what went wrong, "" when nothing did."""
    counts = collections.Counter()
    place = Path(tempfile.mkdtemp(prefix="probing-soak-"))
    (place / "data").mkdir(mode=0o700)
    program = PROGRAMS[name](place)
    try:
        program.start()
        wait_until_it_answers(program)
        for i in range(rounds):
            one_round(program, WAYS[i % len(WAYS)], counts)
            counts["rounds"] += 1
        program.ask()
        if program.process.poll() is not None:
            raise AssertionError("it has ended")
        return counts, ""
    except Missing as reason:
        counts["missing"] = 1
        return counts, str(reason)
    except (AssertionError, OSError, ValueError, subprocess.SubprocessError,
            http.client.HTTPException) as error:
        code = program.process.poll()
        return counts, "round %d: %r, exit code %s: %s" % (counts["rounds"] + 1, error, code,
                                                           program.output()[-300:])
    finally:
        if hasattr(program, "process"):
            program.end()
        subprocess.run([str(CLI), "gc"], env=program.env, capture_output=True)
        shutil.rmtree(place, ignore_errors=True)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=50)
    options.add_argument("--only", default="", help="only programs whose name holds this")
    options.add_argument("--list", action="store_true")
    given = options.parse_args()
    names = [n for n in PROGRAMS if given.only in n]
    if given.list or not names:
        print("\n".join(names) or "no program has such a name")
        return 0 if names else 2
    bad = []
    print("%-12s %7s %8s %6s %8s %5s" % ("program", "rounds", "entered", "left", "refused", "gone"))
    for name in names:
        counts, trouble = soak(name, given.rounds)
        if counts["missing"]:
            print("%-12s left out: %s" % (name, trouble), flush=True)
            continue
        columns = [counts[c] for c in "rounds entered left refused gone".split()]
        print("%-12s %7d %8d %6d %8d %5d  %s" % (name, *columns, trouble or "ok"), flush=True)
        for reason, n in counts.items():
            if " " in reason:
                print("    %d times: %s" % (n, reason), flush=True)
        bad += [name] if trouble else []
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
