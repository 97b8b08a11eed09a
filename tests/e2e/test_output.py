# SPDX-License-Identifier: Apache-2.0
"""Files named with -o: whole or not there, and what is no plain file stays what it is."""
import os
import resource
import stat
import subprocess

import pytest
from world import CLI

WRITERS = {"export": ["export", "select 1 as a", "--format", "csv"],
           "flamegraph": ["flamegraph", "-m", "wall", "-s", "0.2", "-f", "folded"]}
BUSY = "print('ready', flush=True)\nwhile True: sum(range(1000))\n"


@pytest.fixture
def target(world):
    target = world.python(BUSY)
    target.wait_line("ready")
    target.inject()
    return target


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_what_is_no_plain_file_stays(world, target, name):
    folder = world.tmp / "out"
    folder.mkdir()
    plain, link, pipe = folder / "plain", folder / "link", folder / "pipe"
    plain.write_text("what was there")
    link.symlink_to(plain)
    os.mkfifo(str(pipe))
    done = target.probing(*WRITERS[name], "-o", str(link))
    assert done.returncode == 0, done.stderr
    assert link.is_symlink() and plain.read_text() and plain.read_text() != "what was there"
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        done = target.probing(*WRITERS[name], "-o", str(pipe))
        assert done.returncode == 0, done.stderr
        assert reader.communicate()[0]
    assert stat.S_ISFIFO(os.stat(str(pipe)).st_mode)
    done = target.probing(*WRITERS[name], "-o", str(folder))
    assert done.returncode == 1 and "Is a directory" in done.stderr
    assert sorted(os.listdir(str(folder))) == ["link", "pipe", "plain"]


def test_a_pipe_whose_reader_ends_is_said(world, target):
    """It was taken for our standard output, of which nothing is said: rows were missing."""
    pipe = world.tmp / "pipe"
    os.mkfifo(str(pipe))
    with subprocess.Popen(["sh", "-c", "exec 3< %s" % pipe]):
        done = target.probing("export", "select * from generate_series(1, 200000)", "-f", "csv",
                              "-o", str(pipe))
    assert done.returncode == 1 and "cannot be written: Broken pipe" in done.stderr, done


def test_a_full_device(world, target):
    """The file is not there, or is what it was; nothing is left beside it."""
    link = world.tmp / "full"
    link.symlink_to("/dev/full")
    for words in WRITERS.values():
        done = target.probing(*words, "-o", str(link))
        assert done.returncode == 1 and "No space left" in done.stderr, done.stderr
        assert link.is_symlink()
    assert not [f for f in os.listdir(str(world.tmp)) if f.endswith(".part")]


SIZED = [["query", "--format", "json", "select * from generate_series(1, 1000)"],
         ["export", "select * from generate_series(1, 1000)", "-f", "csv", "-o"],
         ["export", "select * from generate_series(1, 1000)", "-f", "jsonl", "-o"],
         ["flamegraph", "-m", "wall", "-s", "0.2", "-f", "html", "-o"],
         ["help", "query"]]


@pytest.mark.parametrize("words", SIZED, ids=lambda words: "-".join((words[0], *words[2:4])))
def test_a_limit_on_the_size_of_files(world, target, words):
    """`ulimit -f` ended the command by SIGXFSZ, without a word."""
    out = world.tmp / "out"

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
    alone = words[0] == "help"
    command = [str(CLI), *([] if alone else ["-t", str(target.pid)]), *words]
    named = words[-1] == "-o"
    with open("/dev/null" if named else out, "w") as file:
        done = subprocess.run(command + [str(out)] * named, stdout=file, stderr=subprocess.PIPE,
                              env=world.env, encoding="utf-8", stdin=subprocess.DEVNULL,
                              preexec_fn=limit)
    assert done.returncode == 1 and "file size limit (`ulimit -f`)" in done.stderr, done
    assert not named or not out.exists()
    assert not [f for f in os.listdir(str(world.tmp)) if f.endswith(".part")]


# Each command's output on stdout, and how it is asked for it.
SAYS = [["query", "select 1 as a"], ["query", "--format", "csv", "select 1 as a"],
        ["query", "--format", "json", "select * from generate_series(1, 100000)"],
        ["query", "--format", "arrow", "select 1 as a"], ["tables"],
        ["export", "select 1 as a", "-f", "csv"],
        ["flamegraph", "-m", "wall", "-s", "0.2", "-f", "folded"], ["backtrace"], ["eval", "1"],
        ["backtrace", "--json"], ["config"], ["plugin", "list"], ["doctor"], ["metrics"],
        ["eval", "print('x' * 100000)"], ["list"], ["help"], ["help", "query"],
        ["--version"], ["version", "-v"], ["--licenses"], ["completion", "bash"],
        ["-t", "all", "query", "select 1 as a"], ["-t", "all", "eval", "1"]]


def test_an_output_that_is_closed_is_nobody_s(world, target):
    """Its number was that of the next descriptor: of other machines answers went into the way
    there, so that there was none, and nothing was wrong."""
    script = world.tmp / "shell"
    script.write_text("#!/bin/sh\nshift\nexec sh -c \"$*\"\n")
    script.chmod(0o755)
    env = dict(world.env, PROBING_RSH=str(script), PROBING_REMOTE=str(CLI))
    far = "ssh:far/%d," % target.pid  # a list
    for words in (["-t", str(target.pid), "query", "select 1"], ["list"], ["version"],
                  ["-t", far + "1", "query", "select 1"], ["-t", far + "1", "eval", "1"],
                  ["-t", far[:-1], "query", "select 1"], ["-t", far[:-1], "backtrace"],
                  ["cluster", "status", "--hosts", "far"]):
        for closed in (">&-", "<&- >&-"):
            done = subprocess.run(["sh", "-c", "exec \"$@\" " + closed, "sh", str(CLI), *words],
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env,
                                  encoding="utf-8")
            assert done.returncode == 1, (words, done)
            assert "cannot write the output: Bad file descriptor" in done.stderr, (words, done)


def test_output_that_cannot_be_written_is_said(world, target):
    """A full device: each command says so; one that nobody reads any more needs no words."""
    for words in SAYS:
        alone = words[0] in ("list", "help", "version", "completion") or words[0][0] == "-"
        command = [str(CLI), *([] if alone else ["-t", str(target.pid)]), *words]
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=world.env,
                                  encoding="utf-8", stdin=subprocess.DEVNULL)
        assert done.returncode == 1, (words, done.returncode, done.stderr)
        assert done.stderr.count("No space left on device") == 1, (words, done.stderr)
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, env=world.env,
                              encoding="utf-8", stdin=subprocess.DEVNULL)
        os.close(write)
        assert "pipe" not in done.stderr, (words, done.stderr)
