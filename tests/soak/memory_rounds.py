# SPDX-License-Identifier: Apache-2.0
"""Load and stop the memory plugin by the thousand in programs under load, and look whether their
clients notice.

usage: tests/soak/memory_rounds.py [--rounds N] [--minutes N] [--only NAME]
                                   [--with memory|core|nothing]

Clients ask all the time, over connections that last and over new ones, and check what they get.
A round is `plugin load memory`, an answer, `plugin stop memory`, an answer; after some rounds the
program is left, and another of its processes entered.  `--with core` enters and asks without the
plugin, `--with nothing` only waits for answers: what fails there, too, is none of the plugin's.
Exit code 1 when a program ended, a client got a wrong answer or none, or something of ours stayed.
"""
import argparse
import collections
import mmap
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import programs
from programs import CLI, HERE, Missing, command, expect, which

CLIENTS = 3          # processes that ask
PAUSE_S = 0.002      # between two questions of a client: this is no contest
LIFE = 25            # rounds until the process is left and another one entered
SAMPLES = ("-D", "memory.sample_bytes=16KB", "-D", "memory.max_overhead_pct=0")
PYTHONS = ("/usr/bin/python3", sys.executable)


# ---- what the clients ask, and of whom ----

class Connection:
    """A socket that lasts; `line` gives what comes up to a line's end."""

    def __init__(self, address):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(programs.ANSWERS_S)
        self.socket.connect(address)
        self.file = self.socket.makefile("rwb")

    def send(self, data):
        self.file.write(data)
        self.file.flush()

    def line(self):
        got = self.file.readline()
        if not got.endswith(b"\n"):
            raise AssertionError("the connection ended after %r" % got)
        return got


class LinesClient:
    """A number a line, its square back."""

    def __init__(self, program):
        port = re.search(r"^port (\d+)", program.output(), re.M)
        self.connection = Connection(("127.0.0.1", int(port[1])))

    def ask(self):
        n = random.randrange(1, 1000000)
        self.connection.send(b"%d\n" % n)
        expect(self.connection.line(), b"%d\n" % (n * n))


class RedisClient:
    """Values of all sizes, lists, hashes and a pattern of keys, all under a name of its own."""

    def __init__(self, program):
        self.connection = Connection(str(program.place / "s"))
        self.name = b"%d" % os.getpid()
        self.list = 0

    def reply(self):
        head = self.connection.line()
        if head[:1] == b"$":
            size = int(head[1:])
            return None if size < 0 else self.connection.file.read(size + 2)[:-2]
        if head[:1] == b"*":
            return [self.reply() for _ in range(int(head[1:]))]
        return head.strip()

    def do(self, *words):
        self.connection.send(b"*%d\r\n" % len(words) + b"".join(
            b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self.reply()

    def ask(self):
        key = self.name + b":%d" % random.randrange(500)
        value = os.urandom(random.choice((10, 100, 1000, 40000)))
        expect(self.do(b"SET", key, value), b"+OK")
        expect(self.do(b"GET", key), value)
        expect(self.do(b"DEL", key), b":1")
        row = [b"%d" % i for i in range(50)]
        expect(self.do(b"RPUSH", key, *row), b":50")
        expect(self.do(b"LRANGE", key, b"0", b"-1"), row)
        expect(self.do(b"DEL", key), b":1")


class NginxClient:
    def __init__(self, program):
        self.path = str(program.place / "s")
        self.wanted = b"soaked"
        self.program = program

    def ask(self):
        self.program.ask()


class PostgresClient:
    """A session of psql that lasts, and for each tenth question a new one."""

    sql = ("select count(*) || ':' || md5(string_agg(i::text || repeat('x', (i % 50)::int), ',' "
           "order by i)) from generate_series(1, 2000) i;")

    def __init__(self, program):
        words = [program.psql, "-h", str(program.place), "-U", "soak", "-At", "-q", "-d",
                 "postgres"]
        self.program = program
        self.session = subprocess.Popen(words, env=program.env, text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        self.asked, self.wanted = 0, self.say(self.sql)
        expect(self.wanted[:5], "2000:")

    def say(self, sql):
        self.session.stdin.write(sql + "\n")
        self.session.stdin.flush()
        return self.session.stdout.readline().strip()

    def ask(self):
        self.asked += 1
        expect(self.say(self.sql), self.wanted)
        if self.asked % 10 == 0:
            self.program.ask()


class Postgres(programs.Postgres):
    client = PostgresClient

    def pids(self):
        """The server, and those of its processes that last: clients' sessions, too."""
        found = []
        for pid in super().pids():
            try:
                words = Path("/proc/%d/cmdline" % pid).read_bytes().decode(errors="replace")
                age = time.time() - os.stat("/proc/%d" % pid).st_ctime
            except OSError:
                continue
            if "[local]" not in words or age > 5:
                found.append(pid)
        return found


class Cplusplus(programs.Built):
    client = LinesClient

    def start(self):
        self.build(which("g++"), "-O2", "-pthread", "-o", self.place / "program",
                   HERE / "targets" / "server.cc")


class Python(programs.Squares):
    client, words = LinesClient, ()

    def start(self):
        for python in PYTHONS:
            if not self.words or not subprocess.run([python, "-c", "import " + self.words[0]],
                                                    capture_output=True).returncode:
                return self.run(python, HERE / "targets" / "server.py", *self.words)
        raise Missing("no Python here has " + self.words[0])


class Torch(Python):
    words = ("torch",)


PROGRAMS = {"redis": type("Redis", (programs.Redis,), {"client": RedisClient}),
            "nginx": type("Nginx", (programs.Nginx,), {"client": NginxClient}),
            "node": type("Node", (programs.Node,), {"client": LinesClient}),
            "postgresql": Postgres, "cpython": Python, "pytorch": Torch, "c++": Cplusplus}


# ---- clients in processes of their own ----

class Clients:
    """They count in shared memory, (answers, errors) each, and write errors down."""

    def __init__(self, program):
        self.counts = mmap.mmap(-1, 4096)
        self.errors_file = program.place / "errors"
        self.pids = [self.begin(program, i) for i in range(CLIENTS)]

    def begin(self, program, i):
        pid = os.fork()
        if pid:
            return pid
        try:
            self.ask_for_ever(program, i)
        finally:
            os._exit(1)

    def ask_for_ever(self, program, i):
        asked = wrong = 0
        client = None
        while os.getppid() != 1:
            try:
                client = client or program.client(program)
                client.ask()
                asked += 1
            except Exception as error:  # whatever it is, a client would notice
                wrong += 1
                client = None
                with open(self.errors_file, "a") as out:
                    out.write("%s client %d: %r\n" % (time.strftime("%H:%M:%S"), i, error))
                time.sleep(0.1)
            struct.pack_into("<QQ", self.counts, 16 * i, asked, wrong)
            time.sleep(PAUSE_S)

    def seen(self, i):
        return struct.unpack_from("<QQ", self.counts, 16 * i)

    def answers(self):
        return sum(self.seen(i)[0] for i in range(CLIENTS))

    def errors(self):
        return sum(self.seen(i)[1] for i in range(CLIENTS))

    def wait_for_answers(self, program):
        """Each of them has had one since."""
        before, end = [self.seen(i)[0] for i in range(CLIENTS)], time.monotonic() + 60
        while any(self.seen(i)[0] <= before[i] for i in range(CLIENTS)):
            if program.process.poll() is not None:
                raise AssertionError("it has ended")
            if time.monotonic() > end:
                raise AssertionError("a client has no answer for 60 s")
            time.sleep(0.002)

    def end(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def texts(self):
        try:
            return self.errors_file.read_text().splitlines()
        except OSError:
            return []


# ---- rounds ----

def done_or_gone(done, pid, counts, what):
    """True when a command worked; False when the process has ended meanwhile."""
    if done.returncode == 0:
        return True
    if not Path("/proc/%d" % pid).exists():
        counts["gone"] += 1
        return False
    raise AssertionError("%s: %s" % (what, (done.stdout + done.stderr).strip()))


def switch(program, pid, counts, way):
    """One round."""
    for words in (("plugin", "load", "memory"), ("plugin", "stop", "memory")):
        if way == "core":
            words = ("query", "select 1")
        if not done_or_gone(command(program, pid, *words), pid, counts, " ".join(words)):
            return False
        program.clients.wait_for_answers(program)
    counts["rounds"] += 1
    return True


def life(program, counts, way, rounds):
    """Enter one of its processes, some rounds, leave it."""
    pid = random.choice(program.pids())
    before = programs.caught(pid)
    done = command(program, pid, "inject", "--wait", *(SAMPLES if way == "memory" else ()))
    if not done_or_gone(done, pid, counts, "inject"):
        return
    counts["entered"] += 1
    if not all(switch(program, pid, counts, way) for _ in range(rounds)):
        return
    done = command(program, pid, "eject")
    if done_or_gone(done, pid, counts, "eject"):
        counts["left"] += 1
        left = "" if "keeps a handler" in done.stdout else programs.settled(pid, before)
        if left:
            raise AssertionError(left)


def soak(name, way, rounds, until):
    counts = collections.Counter()
    place = Path(tempfile.mkdtemp(prefix="probing-rounds-"))
    (place / "data").mkdir(mode=0o700)
    program = PROGRAMS[name](place)
    clients, trouble = None, ""
    try:
        program.start()
        programs.wait_until_it_answers(program)
        program.clients = clients = Clients(program)
        clients.wait_for_answers(program)
        while counts["rounds"] < rounds and time.monotonic() < until:
            if way == "nothing":
                clients.wait_for_answers(program)
                counts["rounds"] += 1
            else:
                life(program, counts, way, min(LIFE, rounds - counts["rounds"]))
        clients.wait_for_answers(program)
    except Missing as reason:
        counts["missing"], trouble = 1, str(reason)
    except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as error:
        trouble = "round %d: %r, exit code %s: %s" % (
            counts["rounds"] + 1, error, program.process.poll(), program.output()[-300:])
    finally:
        if clients:
            counts["answers"], counts["errors"] = clients.answers(), clients.errors()
            clients.end()
            counts["texts"] = clients.texts()
        if hasattr(program, "process"):
            program.end()
        subprocess.run([str(CLI), "gc"], env=program.env, capture_output=True)
        shutil.rmtree(place, ignore_errors=True)
    return counts, trouble


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=100)
    options.add_argument("--minutes", type=float, default=1e6, help="for each program")
    options.add_argument("--only", default="", help="only programs whose name holds this")
    options.add_argument("--with", dest="way", default="memory",
                         choices=("memory", "core", "nothing"))
    given = options.parse_args()
    names = [n for n in PROGRAMS if given.only in n]
    if not names:
        options.error("no program has such a name; there are " + ", ".join(PROGRAMS))
    bad = False
    columns = "rounds entered left gone answers errors".split()
    print("%-12s" % "program" + "".join(" %9s" % c for c in columns), flush=True)
    for name in names:
        counts, trouble = soak(name, given.way, given.rounds,
                               time.monotonic() + 60 * given.minutes)
        if counts["missing"]:
            print("%-12s left out: %s" % (name, trouble), flush=True)
            continue
        print("%-12s" % name + "".join(" %9d" % counts[c] for c in columns),
              "", trouble or "ok", flush=True)
        for text in counts["texts"][:10]:
            print("    " + text[:200], flush=True)
        bad |= bool(trouble) or counts["errors"] > 0
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
