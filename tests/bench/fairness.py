# SPDX-License-Identifier: Apache-2.0
"""How long short answers take while other clients ask for much, or read nothing.

usage: fairness.py [--build FOLDER] [--seconds N]

A Python process sleeps; one client asks it by TCP for `version` (websocket) and /healthz (HTTP,
kept open), one after the other with 5 ms between.  It does so alone (and asks for a short query,
too); beside one read-only user who
watches 60 dear statements (two connections, as one may have 32); beside 150 connections that asked
for a long answer and read none of it; and beside both, where it asks for a short query, too.  Last
beside 100 connections that ask the table of a plugin that does not return (tests/hostile/plugins).
Printed are p50, p99 and the longest, the share of a core that the process took, and the load.
Compare two builds on one machine, one after the other, several times: what else runs counts.
"""
import argparse
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", name) for name in ("", "server", "bench")]
from figures import figure, remark  # noqa: E402
from wire import Wire, dial  # noqa: E402

DEAR = ("select sum(length(a.doc) - length(d.doc)) as n%d from probing.commands a, "
        "probing.commands b, probing.commands c, probing.commands d")
STUCK = "select * from scan_blocks.t"
LONG = ("select a.doc, b.doc from probing.commands a, probing.commands b, "
        "probing.commands c, probing.settings d")


def watch(port, token, n):
    wires = []
    for first in range(0, n, 30):
        wires.append(Wire(port, token))
        for i in range(first, min(n, first + 30)):
            wires[-1].send({"id": i, "watch": DEAR % i, "interval_ms": 10})
    sockets = [wire.s for wire in wires]
    print("up", flush=True)
    while sockets:
        for s in select.select(sockets, [], [])[0]:
            if not s.recv(1 << 18):
                sockets.remove(s)


def get(port, token, statement):
    s = dial(port)
    s.sendall(("GET /query?format=csv&q=%s HTTP/1.1\r\nHost: localhost\r\n"
               "Authorization: Bearer %s\r\n\r\n" % (statement.replace(" ", "+"), token)).encode())
    return s


def deaf(port, token, n):
    kept = [get(port, token, LONG) for _ in range(n)]
    print("up", flush=True)
    signal.pause()
    del kept


def stuck(port, token, n):
    """A refused client asks again after a while; six wait for ever."""
    asking = [get(port, token, STUCK) for _ in range(n)]
    print("up", flush=True)
    while True:
        for s in select.select(asking, [], [])[0]:
            s.close()
            asking.remove(s)
            time.sleep(0.01)
            asking.append(get(port, token, STUCK))


class Beside:
    """Clients in a process of their own, gone when the block ends."""

    def __init__(self, *loads):
        self.loads = loads

    def __enter__(self):
        self.children = [subprocess.Popen([sys.executable, __file__, "--load", *map(str, load)],
                                          stdout=subprocess.PIPE) for load in self.loads]
        for child in self.children:
            child.stdout.readline()
        time.sleep(1)  # the load is all there

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
            child.wait()


def cpu_s(pid):
    with open("/proc/%d/stat" % pid) as stat:
        fields = stat.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def measure(what, pid, asks, seconds, base):
    """base: {name: p50 alone, s}; what is not in it yet is put there."""
    took, refused = {name: [] for name in asks}, {name: 0 for name in asks}
    began, cpu = time.monotonic(), cpu_s(pid)
    while time.monotonic() < began + seconds:
        for name, ask in asks.items():
            at = time.monotonic()
            refused[name] += not ask()
            took[name].append(time.monotonic() - at)
            time.sleep(0.005)
    core = 100 * (cpu_s(pid) - cpu) / (time.monotonic() - began)
    for name, times in took.items():
        times.sort()
        middle = times[len(times) // 2]
        figure("%s, %s" % (name, what), "ms", p50=1e3 * middle,
               p99=1e3 * times[len(times) * 99 // 100], longest=1e3 * times[-1],
               asked=len(times), refused=refused[name], core_percent=core,
               against="%s, alone" % name if name in base else None,
               ratio=middle / base[name] if name in base else None)
        base.setdefault(name, middle)


def healthz(port, token):
    s = dial(port)
    s.settimeout(120)
    request = ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" %
               token).encode()

    def ask():
        s.sendall(request)
        answer = b""
        while not answer.endswith(b"\r\n\r\nok\n"):
            answer += s.recv(4096) or sys.exit("closed: %r" % answer)
        return True
    return ask


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--load", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        what, port, token, n = options.load
        {"watch": watch, "deaf": deaf, "stuck": stuck}[what](int(port), token, int(n))
        return
    os.environ["PROBING_DATA_DIR"] = data = tempfile.mkdtemp()
    target = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(0.01)"])
    probing = [os.path.join(options.build, "probing"), "-t", str(target.pid)]
    try:
        time.sleep(0.5)  # it has begun
        subprocess.run(probing + ["inject", "-l", "127.0.0.1:0"], check=True,
                       stdout=subprocess.DEVNULL)
        info = subprocess.run(probing + ["info"], check=True, capture_output=True, text=True).stdout
        port = re.search(r"listening: .*:(\d+)", info).group(1)
        folder = re.search(r"data: (\S+)", info).group(1)
        with open(os.path.join(folder, "token-read")) as file:
            token = file.read().strip()
        wire = Wire(int(port), token)
        wire.s.settimeout(120)
        asks = {"version": lambda: wire.run("version")[0] == 0,
                "/healthz": healthz(int(port), token)}
        query = {"select 1": lambda: wire.run("query", "select 1")[0] == 0}
        watches, unread = ("watch", port, token, 60), ("deaf", port, token, 150)
        remark("load %.1f %.1f %.1f before" % os.getloadavg())
        base = {}
        measure("alone", target.pid, dict(asks, **query), options.seconds, base)
        for name, loads in (("60 watches", [watches]), ("150 that do not read", [unread]),
                            ("both", [watches, unread])):
            with Beside(*loads):
                measure(name, target.pid, asks, options.seconds, base)
        with Beside(watches, unread):
            measure("both", target.pid, query, options.seconds, base)
        plugin = os.path.join(options.build, "tests/hostile/plugins/scan_blocks.so")
        subprocess.run(probing + ["plugin", "load", plugin], check=True, stdout=subprocess.DEVNULL)
        with Beside(("stuck", port, token, 100)):
            measure("a plugin that hangs", target.pid, dict(asks, **query), options.seconds, base)
        remark("load %.1f %.1f %.1f after" % os.getloadavg())
    finally:
        target.kill()
        target.wait()
        subprocess.run(["rm", "-rf", data], check=True)


if __name__ == "__main__":
    main()
