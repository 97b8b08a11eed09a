# SPDX-License-Identifier: Apache-2.0
"""What a process pays for its core: unasked, asked once a second, and for questions in a row.

usage: rank_cost.py [--seconds N] [--rounds N] [--beside FOLDER...]

FOLDER: other builds (`probing` and libprobing.so), whose processes run beside this one's and are
asked in turn with it, so that a load on the machine is a load on both.  Counted is the CPU time of
the whole process, a `sleep` that does nothing itself, ended threads included.  Once a second all
that is touched has left the processor's caches, which costs more than the work; in a row it is
still there.
"""
import argparse
import contextlib
import glob
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time

from figures import figure, remark

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PROBING_BUILD", os.path.join(ROOT, "build", "release"))
GLOBAL = "select count(*) n, avg(length(value)) from global.process.envs"
ONE = "select count(*) n, max(ts) from probing.log"
HELLO = (b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
         b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: cHJvYmluZ2NsaWVudDAwMQ==\r\n"
         b"Sec-WebSocket-Protocol: probing.1\r\n\r\n")
IN_A_ROW = {"a connection": None, "the columns of a table": "select * from process.envs limit 0",
            "a computed table": "select count(*) n, avg(length(value)) from process.envs",
            "a small table": ONE}


class Rank:
    def __init__(self, build):
        self.folder = tempfile.TemporaryDirectory()
        self.probing = os.path.join(build, "probing")
        self.name = "" if build == BUILD else ", " + build
        self.env = dict(os.environ, PROBING_DATA_DIR=self.folder.name, RANK="0")
        self.process = subprocess.Popen([self.probing, "launch", "--", "sleep", "100000"],
                                        env=self.env)
        until = time.monotonic() + 60
        while self.ask_global() != 0:
            if time.monotonic() > until:
                sys.exit("the core that is to be asked has not answered within 60 s")
        self.path = glob.glob(self.folder.name + "/*/sock")[0]

    def command(self, target, *words):
        return subprocess.run([self.probing, "-t", target, *words], env=self.env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode

    def ask_global(self):
        return self.command("%d,%d" % (self.process.pid, self.process.pid), "query", GLOBAL)

    def ask_one(self):
        return self.command(str(self.process.pid), "query", ONE)

    def metrics(self):
        with self.connected() as s:
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            while s.recv(65536):
                pass

    def connected(self):
        s = socket.socket(socket.AF_UNIX)
        s.connect(self.path)
        return s

    def greeted(self):
        s = self.connected()
        s.sendall(HELLO)
        until(s, b"\r\n\r\n")
        return s

    def cpu(self):
        return time.clock_gettime((~self.process.pid << 3) | 2)  # clock_getcpuclockid(3)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def until(s, end):
    got = b""
    while end not in got:
        piece = s.recv(65536)
        if not piece:
            sys.exit("the core has closed the connection")
        got += piece


def ask_in_a_row(s, number, statement):
    text = json.dumps({"id": number,
                       "run": ["query", "--format", "arrow", statement]}).encode()
    size = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + struct.pack(">H", len(text))
    s.sendall(b"\x81" + size + bytes(4) + text)
    until(s, b'"done"')


def per_second(ranks, seconds, what):
    """Share of a core of each, where what(rank) is done once a second."""
    before, began = [r.cpu() for r in ranks], time.monotonic()
    for i in range(seconds):
        for rank in ranks:
            what(rank)
        time.sleep(max(0, began + i + 1 - time.monotonic()))
    passed = time.monotonic() - began
    return [100 * (r.cpu() - b) / passed for r, b in zip(ranks, before)]


def in_a_row(rank, statement, n):
    """Microseconds of the process for each."""
    s = rank.greeted()
    before = rank.cpu()
    for i in range(n):
        if statement is None:
            rank.greeted().close()
        else:
            ask_in_a_row(s, i + 1, statement)
    passed = rank.cpu() - before
    s.close()
    return 1e6 * passed / n


def tell(name, unit, ranks, rounds, goal=None):
    """rounds: of each round one number a rank."""
    first = sorted(r[0] for r in rounds)[len(rounds) // 2]
    for i, rank in enumerate(ranks):
        all_of_it = sorted(r[i] for r in rounds)
        median = all_of_it[len(all_of_it) // 2]
        beside = {"against": name, "ratio": median / first} if i and first else {"goal": goal}
        figure(name + rank.name, unit, median=median, least=all_of_it[0], most=all_of_it[-1],
               **beside)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--row", type=int, default=300, help="questions in a row")
    parser.add_argument("--beside", nargs="*", default=[])
    o = parser.parse_args()
    with contextlib.ExitStack() as stack:
        ranks = []
        for build in [BUILD, *(os.path.abspath(b) for b in o.beside)]:
            ranks.append(Rank(build))
            stack.callback(ranks[-1].end)
        remark("load %.1f" % os.getloadavg()[0])
        for name, what, goal in (("unasked", lambda rank: None, "0.05"),
                                 ("a statement over global.* each second", Rank.ask_global, "0.1"),
                                 ("query each second", Rank.ask_one, None),
                                 ("/metrics each second", Rank.metrics, None)):
            tell(name, "% of a core", ranks,
                 [per_second(ranks, o.seconds, what) for _ in range(o.rounds)], goal)
        for name, statement in IN_A_ROW.items():
            tell("in a row: " + name, "us", ranks,
                 [[in_a_row(rank, statement, o.row) for rank in ranks] for _ in range(o.rounds)])
        remark("load %.1f" % os.getloadavg()[0])


if __name__ == "__main__":
    main()
