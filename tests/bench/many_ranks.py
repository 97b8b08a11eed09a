# SPDX-License-Identifier: Apache-2.0
"""One statement over very many ranks: how long it takes, what the command needs.

usage: many_ranks.py [--ranks N...] [--rounds N]

The ranks are played by one process (ranks_player.c), which answers from what it has computed
before, over TCP of this machine: with the command it shares the processors.  Every hundredth one is
silent in the lines that say so.  What a rank pays says rank_cost.py.
"""
import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time

from figures import figure, remark

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PROBING_BUILD", os.path.join(ROOT, "build", "release"))
PROBING = os.path.join(BUILD, "probing")
ROWS = 2000  # of each rank
STATEMENTS = {
    "one row": "select count(*) n, avg(dur) d, max(bytes) b, stddev(dur) s from global.bench.steps",
    "200 groups": "select step, count(*) n, avg(dur) d, max(bytes) b, stddev(dur) s "
                  "from global.bench.steps group by step",
    "slowest of all": "select _rank, step, max(dur) d from global.bench.steps group by 1, 2 "
                      "order by d desc limit 10",
    "median of all rows": "select median(dur) m from global.bench.steps",
}


def ask(members, statement, *options):
    """Seconds, bytes of memory at most, exit code, and what it said."""
    return run(members, *options, "query", statement, "--format", "json")


def run(members, *words):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        asker = subprocess.Popen([PROBING, "-t", members, *words], stdout=out, stderr=err,
                                 env=dict(os.environ, PROBING_TOKEN="none"))
        _, status, used = os.wait4(asker.pid, 0)
        seconds = time.monotonic() - began
        asker.returncode = os.WEXITSTATUS(status)
        err.seek(0)
        return seconds, used.ru_maxrss * 1024, asker.returncode, err.read().decode()


class Player:
    def __init__(self, silent=0):
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "tests", "bench", "ranks_player"), str(ROWS), str(silent)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])

    def members(self, n):
        whole, rest = divmod(n, 250)
        parts = ["127.0.[0-%d].[1-250]:%d" % (whole - 1, self.port)] if whole else []
        parts += ["127.0.%d.[1-%d]:%d" % (whole, rest, self.port)] if rest else []
        return ",".join(parts)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(n, rounds):
    player = Player()
    try:
        for name, statement in STATEMENTS.items():
            if n > 1000 and name.startswith("median"):
                continue
            made = []
            for _ in range(rounds + 1):  # the first one makes the player's answers
                seconds, memory, code, said = ask(player.members(n), statement)
                if code != 0:
                    sys.exit("%s of %d ranks: exit code %d: %s" % (name, n, code, said))
                made.append((seconds, memory))
            times = sorted(m[0] for m in made[1:])
            figure("%d ranks, %s" % (n, name), "s", least=times[0], median=times[len(times) // 2],
                   goal="1" if n == 1000 else "5" if n == 10000 else None)
            figure("%d ranks, %s, memory" % (n, name), "MB", most=max(m[1] for m in made) / 1e6,
                   goal="300")
    finally:
        player.end()


def measure_stragglers(n):
    """All that it asks, of ranks with as many steps as it compares."""
    player = Player()
    try:
        seconds, memory, code, said = run(player.members(n), "stragglers", "--json")
        if code != 0:
            sys.exit("stragglers of %d ranks: exit code %d: %s" % (n, code, said))
        figure("%d ranks, stragglers" % n, "s", all=seconds, goal="60" if n == 1000 else None)
        figure("%d ranks, stragglers, memory" % n, "MB", most=memory / 1e6, goal="300")
    finally:
        player.end()


def measure_silent(n):
    player = Player(silent=100)
    try:
        seconds, _, code, said = ask(player.members(n), STATEMENTS["200 groups"], "--timeout", "2s")
        words = "%d of %d answered" % (n - n // 100, n)
        if code != 1 or words not in said:
            sys.exit("%d ranks with silent ones: exit code %d: %s" % (n, code, said))
        figure("%d ranks, every 100th silent, limit 2 s" % n, "s", all=seconds)
    finally:
        player.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1000, 10000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    remark("as many as %d open files, %d processors" % (files, len(os.sched_getaffinity(0))))
    for n in options.ranks:
        measure(n, options.rounds)
        if n <= 1000:
            measure_stragglers(n)
    measure_silent(options.ranks[0])


if __name__ == "__main__":
    main()
