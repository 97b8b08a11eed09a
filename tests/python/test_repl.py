# SPDX-License-Identifier: Apache-2.0
"""`repl`: from a pipe, and at a real terminal with editing, history and completion."""
import ctypes.util
import os
import signal
import subprocess
import time

import pytest
from pythons import PYTHONS
from terminal import Terminal, Way
from world import CLI

pytestmark = pytest.mark.some_pythons

LOOP = """
import time
class Model:
    weights_of_layer = [1, 2, 3]
model = Model()
def main():
    print('ready', flush=True)
    while True:
        time.sleep(0.02)
main()
"""


@pytest.fixture
def target(world):
    return world.start(list(PYTHONS.values())[0], LOOP).inject()


def piped(target, text):
    return subprocess.run([str(CLI), "-t", str(target.pid), "repl"], input=text, timeout=60,
                          capture_output=True, encoding="utf-8", env=target.world.env)


def test_statements_from_a_pipe(target):
    done = piped(target, "x = 20\nfor i in range(3):\n    x += 0\n    x += i\n\nx\n\n"
                 "if x:\n  'yes'\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "23\n'yes'\n", "")
    done = piped(target, "1 +\n'after'\n")
    assert "SyntaxError" in done.stdout and "'after'" in done.stdout
    assert piped(target, "x\n1/0\n").returncode == 1
    assert "incomplete" not in piped(target, "x'\n").stdout
    assert piped(target, "def f(a):\n    return a * 2\n\nf(x)\n").stdout == "46\n"


def test_commands_behind_percent(target):
    done = piped(target, "%query select 1 + 1 as two\n%nothing\n%backtrace --json\n%quit\nnever\n")
    assert "two" in done.stdout and '"threads"' in done.stdout and "never" not in done.stdout
    assert "nothing" in done.stderr


def test_a_home_that_is_not_there_is_not_made(target):
    home = target.world.tmp / "no home"
    target.world.env["HOME"] = str(home)
    target.world.env.pop("XDG_STATE_HOME", None)
    assert piped(target, "1 + 1\n").stdout == "2\n"
    assert not home.exists()
    home.mkdir()
    assert piped(target, "1 + 1\n").stdout == "2\n"
    assert not (home / ".local").exists(), "lines of a pipe have no history"


@pytest.mark.parametrize("word", ["exit()", "quit()"])
def test_words_that_leave(target, word):
    done = piped(target, "1 + 1\n%s\n'never'\n" % word)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


def test_over_tcp(target):
    """The token is found on this machine; statements of several lines and commands go there too."""
    said = target.probing("config", "server.listen=127.0.0.1:0").stdout
    address = said.strip().split("=")[1]
    done = subprocess.run([str(CLI), "-t", address, "repl"], timeout=60, capture_output=True,
                          input="def f(a):\n    return a * 2\n\nf(21)\n%query select 1 as one\n",
                          encoding="utf-8", env=target.world.env)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("42\n one")


def test_every_python_reads_lines(world, python):
    target = world.start(python, LOOP).inject()
    done = piped(target, "for i in [7]:\n    i\n\nmodel.weights_of_layer\n")
    assert done.stdout == "7\n[1, 2, 3]\n"
    done = target.probing("complete", "model.weights_")
    assert done.stdout.split() == ["model.weights_of_layer"], done.stderr


def test_sigterm_ends_it_at_the_prompt(target):
    """It dropped the line, as Ctrl-C does, and nobody could end it so."""
    t = Terminal(target, "repl")
    t.wait(">>> ")
    os.kill(t.pid, signal.SIGTERM)
    assert t.end() != 0 and target.alive()


@pytest.mark.skipif(not ctypes.util.find_library("edit"), reason="no libedit (Debian: libedit2)")
def test_terminal(target):
    t = Terminal(target, "repl")
    t.wait(">>> ")
    t.type("model.weigh\t")  # completed by the process, from the live object
    t.wait("ts_of_layer")
    t.type("[1]\n")
    t.wait(r"\n2\r\n")
    t.wait(">>> ")
    t.type("while True:\n    pass\n\n")
    t.wait(r"\.\.\. .*\r\n\.\.\. \r\n")
    time.sleep(0.2)  # not for luck: Ctrl-C must work early and late
    t.type("\x03")
    t.wait("KeyboardInterrupt")
    t.wait(">>> ")
    t.type("half = \x03")  # at the prompt it drops the line
    t.wait(">>> ")
    t.type("\x1b[A\x1b[A\x1b[A")  # up: the history
    t.wait("model.weights_of_layer")
    t.type("\x03")
    t.wait(">>> ")
    assert t.leave() == 0
    history = target.world.tmp / "probing/history"
    assert "model.weights_of_layer[1]" in history.read_text()
    assert history.stat().st_mode & 0o77 == 0 and history.parent.stat().st_mode & 0o77 == 0
    assert target.alive()


@pytest.mark.skipif(not ctypes.util.find_library("edit"), reason="no libedit (Debian: libedit2)")
def test_what_is_pasted_comes_whole(target):
    """Characters beyond ASCII were dropped, and so was a tab that indents a line."""
    t = Terminal(target, "repl")
    t.wait(">>> ")
    t.type("len('gr\xf6\xdfer \u2713')\n")
    t.wait(r"\n8\r\n")
    t.wait(">>> ")
    t.type("for i in range(3):\n\tif i == 2:\n\t\ti * 21\n\n")
    t.wait(r"\n42\r\n")
    t.wait(">>> ")
    t.type("exit()\n")  # Ctrl-D typed while nobody edits is no end of the input
    assert t.end() == 0


def test_the_process_dies_at_the_prompt(target):
    t = Terminal(target, "repl")
    t.wait(">>> ")
    os.kill(target.pid, signal.SIGKILL)
    target.process.wait()
    t.type("1\n")
    t.wait("probing: .*(gone|died|closed|ended|hung up)")
    assert t.end() == 1


def test_a_connection_that_was_closed_meanwhile(target):
    """It took the prompt along: a person who thinks for minutes came back to the shell."""
    with Way(target) as way:
        t = Terminal(target, "repl", at=way.address, env=way.env)
        t.wait(">>> ")
        t.type("kept = 20\n")
        t.wait(">>> ")
        way.cut()
        t.type("kept + 22\n")
        assert "probing:" not in t.wait(r"\n42\r\n")
        t.wait(">>> ")
        assert t.leave() == 0


def test_lines_typed_ahead_are_not_left_to_the_shell(target):
    script = '"$@"; code=$?; stty -icanon min 0 time 10; echo "left: [$(dd bs=999 2>&-)] $code"'
    t = Terminal(target, "repl", before=["/bin/sh", "-c", script, "sh"])
    t.wait(">>> ")
    t.type("import os; os.kill(os.getpid(), 9)\n'typed'\n'ahead'\n")
    t.wait("probing: the process has died.*typed ahead is dropped")
    t.wait(r"left: \[\] 1")
    t.end()


SUBSCRIPTED = """
import sys, time
from collections import defaultdict
class Attention:
    c_attention = 1
class Block:
    attn = Attention()
class Loads:
    def __getitem__(self, at):
        print('subscripted', flush=True)
        return Block()
class Transformer:
    h = [Block()]
    by_name = {'first one': Block()}
    made = defaultdict(Block)
    loads = Loads()
class Model:
    transformer = Transformer()
    def call(self):
        print('called', flush=True)
        return self
model = Model()
def main():
    print('ready', flush=True)
    while True:
        time.sleep(0.02)
main()
"""


@pytest.mark.skipif(not ctypes.util.find_library("edit"), reason="no libedit (Debian: libedit2)")
def test_tab_deletes_nothing(world):
    """Before a subscript all that stood there was deleted; a file's name could come instead."""
    target = world.start(list(PYTHONS.values())[0], SUBSCRIPTED).inject()
    t = Terminal(target, "repl")
    t.wait(">>> ")
    for typed, becomes in [("sys.version_info[0].rea", "sys.version_info[0].real"),
                           ("model.transformer.h[0].attn.c_at",
                            "model.transformer.h[0].attn.c_attention"),
                           ("1 + model.transformer.h[ -1 ].attn.c_at",
                            "1 + model.transformer.h[ -1 ].attn.c_attention"),
                           ("model.transformer.by_name['first one'].attn.c_at",
                            "model.transformer.by_name['first one'].attn.c_attention"),
                           # what a look would run or change: nothing is known of it
                           ("model.call().transf", None),
                           ("model.transformer.loads[0].attn.c_at", None),
                           ("model.transformer.made['new'].attn.c_at", None),
                           ("model.transformer.h[len('')].attn.c_at", None),
                           ("model.transformer.h[9].attn.c_at", None),
                           ("'text'.uppe", None), ("nothing_of_this.att", None)]:
        # The whole line is drawn again behind its Tab, and told to us by Python itself.
        t.type("'''" + typed.replace("'", '"') + "\t''' #end\n")
        said = t.wait(r"#end[^\n]*\n.*\n>>> ")
        line = (becomes or typed).replace("'", '"')
        assert repr(line) in said, (typed, said)
    assert "called" not in target.output() and "subscripted" not in target.output()
    assert target.probing("eval", "len(model.transformer.made)").stdout == "0\n"
    assert t.leave() == 0 and target.alive()
