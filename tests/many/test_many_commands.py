# SPDX-License-Identifier: Apache-2.0
"""Commands other than query on several processes: a head line each, equal answers once."""
import json
import os
import signal
import subprocess

import pytest
from ranks import Player, four, named, start_ranks  # noqa: F401
from world import CLI, said, wait_for


def run(world, *words, **more):
    return world.probing("-t", named(*world.ranks), *words, **more)


def test_equal_answers_once(four):
    done = run(four, "eval", "print('hello')")
    assert done.returncode == 0 and done.stdout == "ranks 0-3: hello\n", done.stderr
    done = run(four, "eval", "7 if me == 2 else 5")
    assert done.stdout == "ranks 0-1,3: 5\nrank 2: 7\n"
    done = run(four, "config", "get", "probing.max_memory")
    assert done.stdout.startswith("ranks 0-3: ") and done.stdout.count("\n") == 1


def test_who_fails_is_named_and_the_others_are_there(four):
    done = run(four, "eval", "1 / 0 if me == 1 else 'fine'")
    assert done.returncode == 1
    assert "ranks 0,2-3: 'fine'" in done.stdout and "ZeroDivisionError" in done.stdout
    assert "3 of 4 answered" in done.stderr and "rank 1 (process %d): exit code 1" \
        % four.ranks[1].pid in done.stderr


def test_stacks_of_all(four):
    done = run(four, "backtrace", "--python")
    assert done.returncode == 0, done.stderr
    heads = [line for line in done.stdout.splitlines() if line.startswith("rank ")]
    assert heads == ["rank %d:" % i for i in range(4)]
    assert done.stdout.count("rank.py") >= 4


def test_json_of_all_is_lines_of_json(four):
    """One that fails is a line, too; what a process prints that is no JSON is not handed on."""
    gone = start_ranks(four, 1, RANK="7")[0]
    gone.kill()
    done = four.probing("-t", named(*four.ranks, gone), "backtrace", "--json")
    assert done.returncode == 1 and "4 of 5 answered" in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    # The rank of a dead one is not known, nor what to call the others by it.
    assert [(m["rank"], m["process"]) for m in lines[:4]] == [
        (i, str(t.pid)) for i, t in enumerate(four.ranks)]
    for line in lines[:4]:
        assert line["host"] and line["threads"][0]["frames"][-1]["func"] == "<module>"
    assert lines[4]["process"] == str(gone.pid) and lines[4]["error"]


ODD = """
import threading, time
def odd():
    while True:
        time.sleep(0.001)
if me == 1:
    threading.Thread(target=odd, daemon=True).start()
"""


def test_one_picture_of_all(world):
    """Frames say which ranks are there, where they are fewer than below."""
    world.ranks = start_ranks(world, 2)
    assert run(world, "eval", ODD).returncode == 0

    def drawn():
        done = run(world, "flamegraph", "wall", "-s", "500ms", "-f", "folded")
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        return [line for line in lines if "odd (" in line] and \
            [line for line in lines if line.startswith("<module> (rank.py);")] and lines
    lines = wait_for(drawn, "samples of both")
    assert all("[rank 1]" in line for line in lines if "odd (" in line)
    picture = world.tmp / "both.html"
    done = run(world, "flamegraph", "wall", "--last", "1m", "-o", str(picture))
    assert done.returncode == 0, done.stderr
    assert "[rank 1]" in picture.read_text() and "2 of 2 ranks: wall" in picture.read_text()
    done = run(world, "flamegraph", "no_such_mode")
    assert done.returncode == 2 and "has no mode 'no_such_mode'" in done.stderr


def test_plugins_settings_and_scripts(world):
    world.ranks = start_ranks(world, 2)
    assert run(world, "plugin", "load", "profile").stdout == "ranks 0-1: plugin profile loaded\n"
    assert run(world, "config", "query.timeout=50s").returncode == 0
    assert "50s" in run(world, "config", "get", "query.timeout").stdout
    text = world.tmp / "say.lua"
    text.write_text("probing.log('lua was here')\n")
    assert run(world, "script", "run", str(text)).returncode == 0
    done = run(world, "plugin", "stop", "profile")
    assert done.returncode == 0, done.stderr
    done = run(world, "eject")
    assert done.returncode == 0 and "rank 0:" in done.stdout and "rank 1:" in done.stdout
    done = run(world, "inject")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("entered process") == 2


@pytest.mark.parametrize("words", [("repl",), ("top",), ("debug", "--pause"),
                                   ("flamegraph", "diff", "a", "b"), ("eval", "-f", "-")])
def test_what_is_of_one_process(four, words):
    done = run(four, *words)
    assert done.returncode == 2 and "one process at a time" in done.stderr and done.stdout == ""


def test_a_report_of_a_plugin(four):
    done = run(four, "top", "--once")
    assert done.returncode == 0 and done.stdout.count("rank ") >= 4


def test_wrong_words_are_said_once(four):
    done = run(four, "watch")
    assert done.returncode == 2 and done.stderr.count("watch needs an SQL statement") == 1
    done = run(four, "nosuchcommand")
    assert done.returncode == 1 and done.stderr.count("nosuchcommand") == 1


def test_watch_says_whose_a_row_is(four):
    watch = subprocess.Popen([str(CLI), "-t", named(*four.ranks), "watch", "select text from "
                              "probing.log", "--last", "1", "-f", "jsonl"],
                             stdout=subprocess.PIPE, env=four.env)
    got = b""
    for rank in range(4):
        if b'{"rank":%d,' % rank not in got:
            got += said(watch.stdout, rb'\{"rank":%d,[^\n]*\n' % rank)
    watch.send_signal(signal.SIGINT)
    watch.stdout.read()
    assert watch.wait(timeout=60) == 130
    for line in got.splitlines()[:-1]:
        assert set(json.loads(line)) == {"rank", "text"}


def test_ctrl_c_ends_all_and_says_who_had_answered(four, tmp_path):
    begun = tmp_path / "begun"
    code = "import time\nif me == 3: open(%r, 'w').close()\n" \
        "while me == 3: time.sleep(0.05)\n'done'" % str(begun)
    stuck = subprocess.Popen([str(CLI), "-t", named(*four.ranks), "eval", code],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=four.env,
                             text=True)

    def children():
        with open("/proc/%d/task/%d/children" % (stuck.pid, stuck.pid)) as text:
            return text.read().split()
    # Rank 3 is asked last: before that, one child may be the first of four.
    wait_for(lambda: begun.exists() and len(children()) == 1, "one that has not answered")
    left = children()
    stuck.send_signal(signal.SIGINT)
    out, err = stuck.communicate(timeout=60)
    assert stuck.returncode == 130
    assert "ranks 0-2: 'done'" in out and "3 of 4 answered" in err and "rank 3" in err, (out, err)
    assert not os.path.exists("/proc/" + left[0])
    assert run(four, "eval", "me + 1").returncode == 0  # nothing of it is left there


def test_a_time_limit_and_a_limit_at_once(four):
    code = "import time\nwhile me == 0: time.sleep(0.05)\n'done'"
    done = four.probing("-t", named(*four.ranks), "--timeout", "3s", "--at-once", "2", "eval", code)
    assert done.returncode == 1 and "ranks 1-3: 'done'" in done.stdout
    assert "rank 0 (process %d): no end within 3s" % four.ranks[0].pid in done.stderr, done.stderr


def limited(world, limit, value, *words):
    """The command under such a limit, soft and hard."""
    shell = "ulimit %s %d && exec \"$@\"" % (limit, value)
    return subprocess.run(["bash", "-c", shell, "x", str(CLI), *words], env=world.env,
                          capture_output=True, text=True, timeout=120)


def test_too_few_files_are_said_before_anything_fails(four):
    """With 8 files `cluster status` said that there is no command 'info', and others each another
    thing that could not be opened."""
    job = "job:" + four.job
    for words in (["-t", job, "query", "select 1"], ["-t", job, "eval", "1"],
                  ["cluster", "status", "--job", four.job], ["cluster", "hang", "--job", four.job],
                  ["cluster", "stragglers", "--job", four.job], ["-t", "ssh:x", "backtrace"]):
        done = limited(four, "-n", 8, *words)
        assert done.returncode == 1 and done.stdout == "", (words, done)
        assert "allows 8 open files (ulimit -n)" in done.stderr, (words, done.stderr)
    done = limited(four, "-n", 24, "-t", job, "query", "select 1 as n")
    assert done.returncode == 0, done.stderr
    done = limited(four, "-n", 24, "cluster", "status", "--job", four.job)
    assert done.returncode == 0, done
