# SPDX-License-Identifier: Apache-2.0
"""Nothing that a target, a file or a plugin says reaches a terminal raw: every command is run in a
pseudo terminal against a target that lies, and against a real one with a hostile plugin in it."""
import fcntl
import os
import pty
import re
import select
import socket
import struct
import subprocess
import sys
import termios
import time

import pytest

from fake import EVIL, RAW, Fake
from world import CLI, LIMIT, ROOT, start_in_terminal

sys.path.insert(0, str(ROOT / "tests" / "server"))
from wire import open_door  # noqa: E402

# Our own sequences: each is one of cli/terminal (terminal.c, screen.c) or of a line's end.
OURS = [b"\x1b[H\x1b[J", b"\x1b[?1049h\x1b[?25l\x1b[?7l", b"\x1b[?7h\x1b[?25h\x1b[?1049l",
        b"\x1b[H", b"\x1b[2K", b"\x1b[J", b"\r\r\n", b"\r\n", b"\x1b[1m", b"\x1b[2m", b"\x1b[0m"]
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e"
                    "\u2060-\u206f\ufeff\U000e0000-\U000e0fff]")

# How each command of `probing help` is run against the fake: its words, and lines to type.
COMMANDS = {
    "inject": ["inject"], "backtrace": ["backtrace", "--locals"], "eval": ["eval", "1"],
    "repl": ["repl"], "debug": ["debug", "--dump"], "trace": ["trace", "a.b"],
    "query": ["query", "select 1"], "watch": ["watch", "select 1"], "top": ["top"],
    "memory": ["memory"], "cuda": ["cuda"], "gpu": ["gpu"], "nccl": ["nccl"],
    "nccl_hang": ["nccl_hang"],
    "tables": ["tables"], "describe": ["describe", "a.b"],
    "performance": ["performance", "--cc"], "export": ["export", "--format", "csv", "a.b"],
    "flamegraph": ["flamegraph", "--format", "folded"], "torch": ["torch"],
    "plugin": ["plugin", "list"], "config": ["config"], "script": ["script", "list"],
    "stragglers": ["stragglers"], "cluster": ["cluster", "diff"], "relay": None,
    "ship": ["ship", "--once", "--to", "parquet:out"], "eject": ["eject"],
    "launch": None, "list": ["list", "--dead"], "gc": None,
    "completion": ["completion", "bash"], "man": ["man"], "doctor": None, "ui": ["ui"],
    "stranger's own": ["stranger", "word"],
}
TYPED = {"repl": b"1\nx\t\n%tables\n\x04", "top": b"q", "debug": b"q\n"}


def in_terminal(world, *words, typed=b"", env=None, idle=30.0, size=None):
    """All that the command writes to its terminal; size: its rows and columns."""
    def prepare():
        if size:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))
        os.chdir(world.tmp)
    pid, master = start_in_terminal(
        [str(CLI), *words], dict(world.env, TERM="xterm", PAGER="cat", HOME=str(world.tmp),
                                 **(env or {})), prepare)
    seen, until, interrupts = b"", time.monotonic() + 300, 0
    os.write(master, typed) if typed else None
    while True:
        if select.select([master], [], [], idle)[0]:
            try:
                data = os.read(master, 1 << 16)
            except OSError:
                break
            if not data:
                break
            seen += data
            if "watch" in words:
                os.write(master, b"\x03") if len(seen) > 500 else None
            elif "top" in words and size:
                os.write(master, b"q") if b"FUNCTION" in seen else None
        else:  # it waits: for more of a stream, or for us
            os.write(master, b"\x03" if interrupts % 2 == 0 else b"\x04")
            interrupts += 1
        assert time.monotonic() < until, "it does not end: %r" % seen[-500:]
    os.waitpid(pid, 0)
    os.close(master)
    return seen


def steers(seen):
    """Parts of the output that are neither text nor ours; empty when all is well."""
    seen = re.sub(rb"\^[A-Z\\]", b"", seen)  # the terminal's own echo of what was typed
    for own in OURS:
        seen = seen.replace(own, b"\n")
    try:
        text = seen.decode("utf-8")
    except UnicodeDecodeError as error:
        return "no UTF-8: %r" % seen[max(0, error.start - 40):error.start + 20]
    bad = HIDDEN.search(text)
    return "" if bad is None else repr(text[max(0, bad.start() - 60):bad.start() + 20])


def test_what_these_tests_look_for():
    assert steers(b"plain \xc3\xa9\r\n") == ""
    steering = [c.encode() for c in EVIL if not c.isascii() or not c.isprintable()]
    for piece in steering + [b"\xff", b"\x1b[31m", b"a\rb"]:
        assert steers(b"x" + piece + b"y"), piece


def test_every_command_is_here(world):
    told = re.findall(r"^  (?!probing)(\w+) +\S", world.probing("help").stdout.split("--raw")[2],
                      flags=re.M)
    assert len(told) > 20 and set(told) == set(COMMANDS) - {"stranger's own"}


@pytest.mark.parametrize("status", [0, 1, -22])
@pytest.mark.parametrize("command", [c for c in COMMANDS if COMMANDS[c]])
def test_a_target_that_lies(world, command, status):
    fake = Fake(status)
    try:
        # The line is libedit's to draw, and it draws escapes of its own: read it plainly there.
        env = {"PROBING_TOKEN": "x"}
        if command in ("repl",):
            seen = plain_input(world, fake, COMMANDS[command], TYPED[command], env)
        else:
            seen = in_terminal(world, "-t", "127.0.0.1:%d" % fake.port, *COMMANDS[command],
                               typed=TYPED.get(command, b""), env=env,
                               idle=2.0 if command == "top" else 30.0)
        assert steers(seen) == "", seen[-2000:]
    finally:
        fake.close()
    if command not in ("inject", "completion", "man", "list", "ui"):
        assert fake.asked, "it did not ask: %r" % seen
        assert b"\\x1b" in seen or b"?" in seen or b"31m" not in seen


def plain_input(world, fake, words, typed, env):
    """The command with a pipe as its input, and a terminal for all that it says."""
    master, slave = pty.openpty()
    process = subprocess.Popen([str(CLI), "-t", "127.0.0.1:%d" % fake.port, *words],
                               stdin=subprocess.PIPE, stdout=slave, stderr=slave, cwd=world.tmp,
                               env=dict(world.env, TERM="xterm", **env))
    os.close(slave)
    process.stdin.write(typed)
    process.stdin.close()
    seen = b""
    while select.select([master], [], [], 60)[0]:
        try:
            data = os.read(master, 1 << 16)
        except OSError:
            break
        seen += data
    process.wait()
    os.close(master)
    return seen


def test_completion_offers_no_hostile_name(world):
    """libedit draws candidates by itself: they must not hold what steers."""
    fake = Fake(0)
    try:
        seen = in_terminal(world, "-t", "127.0.0.1:%d" % fake.port, "repl",
                           typed=b"abc\t\t\n", env={"PROBING_TOKEN": "x"}, idle=2.0)
    finally:
        fake.close()
    assert b"pwned\x07" not in seen and b"\x1b]0" not in seen and "\u202e".encode() not in seen


def test_formats_for_programs_are_exact_where_no_terminal_reads_them(world):
    target = world.python("import time\nprint('ready')\nwhile True: time.sleep(0.05)\n")
    target.wait_line("ready")
    target.inject()
    code = "print(%r, end='')" % EVIL
    raw = subprocess.run([str(CLI), "-t", str(target.pid), "eval", code], env=world.env,
                         capture_output=True, timeout=LIMIT).stdout
    assert raw == EVIL.encode()
    words = ["-t", str(target.pid), "query", "select chr(27) || '[2J' as c"]
    exact = subprocess.run([str(CLI), *words, "--format", "csv"], env=world.env,
                           capture_output=True, timeout=LIMIT).stdout
    assert exact == b"c\r\n\x1b[2J\r\n"
    table = subprocess.run([str(CLI), *words], env=world.env, capture_output=True,
                           timeout=LIMIT).stdout
    assert b"\\x1b[2J" in table and b"\x1b" not in table  # a pipe may end in a terminal: less -R
    assert steers(in_terminal(world, *words, "--format", "csv")) == ""
    assert steers(in_terminal(world, "-t", str(target.pid), "eval", code)) == ""
    asked = in_terminal(world, "-t", str(target.pid), "eval", "--raw", code)
    assert EVIL.encode() in asked.replace(b"\r\n", b"\n")
    paged = in_terminal(world, *words, "--format", "csv", env={"PROBING_PAGER": "cat -u | cat"})
    assert steers(paged) == "" and b"2J" in paged


# ---- a real process, and a plugin that is hostile ----

def c_text(data):
    return '"%s"' % "".join("\\%03o" % c for c in data)


PLUGIN = r"""
#include <errno.h>
#include <probing/plugin.h>
#define EVIL %s
static const struct probing_host *host;
static int scan(void *self, struct probing_rows *out)
{
    union probing_cell cells[2] = {{.s = EVIL "\n" EVIL}, {.s = EVIL}};
    (void)self;
    return host->emit(out, cells, 2);
}
static int failing_scan(void *self, struct probing_rows *out)
{
    (void)self, (void)out;
    return host->fail(host, -EIO, "scan: " EVIL "\nprobing: all is well");
}
static int run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argv;
    host->reply(out, EVIL "\n", sizeof(EVIL));
    return argc > 1 ? host->fail(host, -EINVAL, "run: " EVIL "\nprobing: all is well") : 0;
}
static const struct probing_column columns[] = {
    {"a", PROBING_STR, PROBING_PLAIN, EVIL, {0}}, {"b", PROBING_STR, PROBING_PLAIN, EVIL, {0}}};
static int init(const struct probing_host *h, void **ret_self)
{
    struct probing_table_desc d = {.size = sizeof(d), .column_size = sizeof(columns[0]),
                                   .name = "rows", .doc = EVIL, .columns = columns,
                                   .n_columns = 2, .scan = scan};
    struct probing_command c = {.size = sizeof(c), .name = "evil", .usage = EVIL, .doc = EVIL,
                                .run = run};
    struct probing_table *t;
    host = h;
    *ret_self = &host;
    h->log(h, PROBING_ERROR, EVIL "\nerror all is lost");
    (void)h->table(h, &d, &t);
    d.name = "fails";
    d.scan = failing_scan;
    (void)h->table(h, &d, &t);
    (void)h->command(h, &c);
    return NAME_FAILS ? h->fail(h, -ENODEV, EVIL) : 0;
}
static void destroy(void *self) { (void)self; }
static const struct probing_config config[] = {
    {"word", EVIL, EVIL, PROBING_STR, 0, 0, 0, 0, 0}, {0}};
PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = PLUGIN_NAME,
    .version = EVIL, .doc = EVIL, .config = config, .config_size = sizeof(config[0]),
    .init = init, .destroy = destroy};
"""

HOSTILE = """
import ctypes, sys, threading, time
evil = %r
ctypes.CDLL(None).prctl(15, evil[:15].encode("utf-8", "replace")[:15], 0, 0, 0)
def wait(secret=evil):
    while True: time.sleep(0.05)
code = wait.__code__.replace(co_name=evil + "\\n  0 all_is_well", co_filename=evil + "\\nThread 1")
wait.__code__ = code
threading.Thread(target=wait, name=evil + "\\nThread 2", daemon=True).start()
threading.Thread(target=wait, name="\u202e\u2066\u200bx", daemon=True).start()
print("ready")
wait()
"""


@pytest.fixture
def hostile(world):
    """A process with hostile names, words and plugins."""
    source = world.tmp / "hostile.py"
    source.write_text(HOSTILE % EVIL)
    target = world.start(sys.executable, "-u", str(source), EVIL + "\n 1  x")
    target.wait_line("ready")
    return target


def evil_plugin(world, name, fails):
    evil = EVIL.encode() + RAW
    return world.plugin(name, PLUGIN.replace("%s", c_text(evil)).replace(
        "PLUGIN_NAME", '"%s"' % name).replace("NAME_FAILS", "1" if fails else "0"))


def test_a_hostile_process_and_its_plugin(world, hostile):
    good, bad = evil_plugin(world, "evil", False), evil_plugin(world, "broken", True)
    pid = str(hostile.pid)
    told = b""
    for words in (["inject", "--dry-run"], ["inject"], ["plugin", "load", "python"],
                  ["plugin", "load", str(good)], ["plugin", "load", str(bad)],
                  ["plugin", "list"], ["config"], ["config", "get", "evil.word"], ["tables"],
                  ["describe", "evil.rows"], ["evil"], ["evil", "fail"],
                  ["query", "select * from evil.rows"], ["query", "select * from evil.fails"],
                  ["query", "select a from evil.rows", "--format", "json"],
                  ["query", "select a from evil.rows", "--format", "csv"],
                  ["export", "--format", "csv", "--table", "evil.rows"],
                  ["export", "--format", "jsonl", "--table", "evil.rows"],
                  ["export", "--format", "chrome", "select to_timestamp(1) as ts, a as name "
                   "from evil.rows"], ["top", "--color", "never"],
                  ["query", "select * from probing.log"],
                  ["query", "select * from probing.plugins"],
                  ["query", "select * from probing.commands"],
                  ["query", "select name, value from process.envs"],
                  ["backtrace", "--python", "--locals"], ["backtrace", "--json"],
                  ["backtrace", "--external"], ["backtrace", "--locals=repr"],
                  ["nonsense" + EVIL], ["query", "select '" + EVIL], ["config", "get", "x" + EVIL],
                  ["watch", "select a from evil.rows", "--interval", "100ms"],
                  ["plugin", "stop", "evil"], ["eject"]):
        seen = in_terminal(world, "-t", pid, *words, typed=TYPED.get(words[0], b""),
                           size=(50, 200))
        assert words[0] != "top" or b"FUNCTION" in seen and b"pwned" in seen, seen[-1500:]
        assert steers(seen) == "", (words, seen[-1500:])
        assert b"\nprobing: all is well" not in seen.replace(b"\r", b""), words
        assert b"\n  0 all_is_well" not in seen.replace(b"\r", b""), words
        told += seen
    assert b"\\x1b]0;pwned" in told and b"\\u202e" in told and b"\\xff" in told


def test_list_shows_a_hostile_process_in_one_line(world, hostile):
    hostile.inject()
    seen = in_terminal(world, "list")
    assert steers(seen) == "" and b"pwned" in seen
    assert len(re.findall(rb"^ *(?:%d|1) " % hostile.pid, seen, flags=re.M)) == 1
    assert "\u202e".encode() not in world.probing("list").stdout.encode()


def test_data_of_the_dead_that_lies(world):
    """info is a file that anybody may have written; names of directories, too."""
    for name in ("999999-1", "999998-1\n999997  0.1.0    tmp  init"):
        d = world.data / name
        d.mkdir(mode=0o700)
        (d / "info").write_bytes(b"pid: 999999\nversion: " + EVIL.encode().replace(b"\r", b"") +
                                 b"\ncommand: " + RAW + EVIL.encode() + b"\n")
        (d / "crash").write_bytes(b"signal " + RAW + EVIL.encode() + b"\n")
    for words in (["list", "--dead"], ["-t", "999999", "query", "select 1"],
                  ["-t", str(world.data / "999999-1"), "backtrace"],
                  ["-t", str(world.data / "999999-1"), "tables"]):
        seen = in_terminal(world, *words)
        assert steers(seen) == "", (words, seen)
        assert b"\n999997" not in seen


# ---- the core's own side: nc and curl have no writer that escapes ----

def test_plain_text_protocol(world):
    door = open_door(world)
    done = door.target.probing("plugin", "load", str(evil_plugin(world, "evil", False)))
    assert done.returncode == 0, done.stderr
    with socket.create_connection(("127.0.0.1", door.port), timeout=LIMIT) as s:
        s.sendall(("token %s\nevil\nevil fail\nquery 'select * from evil.rows'\n"
                   "query 'select * from evil.fails'\nhelp evil\nquit\n" % door.token).encode())
        seen = b""
        while True:
            data = s.recv(65536)
            if not data:
                break
            seen += data
    assert steers(seen) == "" and b"\\x1b]0;pwned" in seen
    for path in ("/query?q=select+*+from+evil.fails", "/nothing" + "%1b[2J"):
        answer = door.http("GET", path, token=door.token)
        assert b"\x1b" not in str(answer).encode() and "\x9b" not in str(answer)
