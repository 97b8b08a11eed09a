# SPDX-License-Identifier: Apache-2.0
"""On a terminal: long answers go through a pager, nothing else does; and it is left as it was.

A pseudo terminal stands for the person; what comes out of it is what he would see.
"""
import fcntl
import os
import pty
import re
import select
import struct
import termios

import pytest

from world import CLI, wait_for

IDLE = "import time\nprint('ready')\nwhile True: time.sleep(0.05)\n"
LONG = "select n, 'row ' || n from generate_series(1, 500) t(n)"


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, world, *words, size=(24, 80), env=None):
        self.seen = b""
        pid, self.master = pty.fork()
        if pid == 0:
            os.chdir(world.tmp)
            os.execve(str(CLI), [str(CLI), *words], dict(world.env, TERM="xterm", **(env or {})))
        self.pid = pid
        self.resize(*size)
        self.before = termios.tcgetattr(self.master)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds=0.05):
        """What has come, all of it so far; False once the other side has closed."""
        if select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 1 << 16)
            except OSError:
                return False
            self.seen += data
            return bool(data)
        return True

    def wait_seen(self, pattern):
        def seen():
            open_ = self.read()
            found = re.search(pattern, self.seen, flags=re.S)
            if not open_ and not found:
                pytest.fail("it ended: %r" % self.seen[-2000:])
            return found
        return wait_for(seen, "%r on the terminal, which shows %r" % (pattern, self.seen[-500:]))

    def type(self, keys):
        os.write(self.master, keys)

    def end(self):
        """Its exit code, once it has ended by itself."""
        while self.read(20):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def target(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    return target


def terminal(world, target, *words, **kwargs):
    return Terminal(world, "-t", str(target.pid), *words, **kwargs)


def test_long_answer_goes_through_the_pager_and_short_ones_too(world, target):
    pager = {"PAGER": "sed 's/^/paged:/'"}
    t = terminal(world, target, "query", LONG, env=pager)
    assert t.end() == 0
    assert t.seen.count(b"paged:") == 503 and b"paged:(500 rows" in t.seen
    t = terminal(world, target, "query", "select 1", env=dict(pager, PROBING_PAGER="cat"))
    assert t.end() == 0 and b"paged:" not in t.seen
    t = terminal(world, target, "eval", "1 + 1", env=pager)  # it may go on for long, or ask
    assert t.end() == 0 and t.seen == b"2\r\n"


def test_pager_that_is_left_early_ends_it_well(world, target):
    t = terminal(world, target, "query", "select n from generate_series(1, 1000000) t(n)",
                 env={"PAGER": "head -n 3"})
    assert t.end() == 0
    assert t.seen.count(b"\n") == 3


def test_errors_come_through_it_with_their_code(world, target):
    t = terminal(world, target, "query", "select nothing", env={"PAGER": "sed 's/^/paged:/'"})
    assert t.end() == 1 and b"paged:probing: line 1, column 8" in t.seen


def test_pager_that_is_not_there_is_named(world, target):
    t = terminal(world, target, "tables", env={"PAGER": "no-such-pager"})
    t.end()
    assert b"the pager 'no-such-pager' cannot be run" in t.seen


@pytest.mark.skipif(not any(os.access(d + "/less", os.X_OK) for d in
                            os.environ["PATH"].split(":")), reason="no less here (Debian: less)")
def test_less_prints_what_fits_and_stops_at_the_rest(world, target):
    t = terminal(world, target, "query", "select 1 as one")
    assert t.end() == 0 and b"one" in t.seen and b"(1 row" in t.seen
    t = terminal(world, target, "query", LONG)
    t.wait_seen(rb"row 10\b")
    assert b"row 400" not in t.seen
    t.seen = b""
    t.type(b"\x03")  # Ctrl-C is for the pager, which stays
    t.wait_seen(rb"row 10\b.*:")
    t.type(b"q")
    assert t.end() in (0, 130)
    assert termios.tcgetattr(t.master) == t.before


def test_no_pager_without_a_terminal(world, target):
    done = target.probing("query", LONG, env={"PAGER": "sed 's/^/paged:/'"})
    assert done.returncode == 0 and "paged:" not in done.stdout and "row 500" in done.stdout


def test_tables_fit_the_terminal(world, target):
    for words in (["config"], ["query", "select * from probing.settings"]):
        t = terminal(world, target, *words, size=(50, 60), env={"PROBING_PAGER": ""})
        assert t.end() == 0
        lines = re.sub(rb"\x1b\[[0-9;]*m", b"", t.seen).decode().splitlines()
        assert max(len(line) for line in lines) <= 60, lines
