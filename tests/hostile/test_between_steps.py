# SPDX-License-Identifier: Apache-2.0
"""A command takes several steps, and between any two of them a process may replace its program, be
killed, or be left by its core.  What is said is what has happened, and `--wait` enters the next
program.  A library before the command's connect() makes it happen exactly there."""
import itertools
import os
import re

import pytest

from world import CLI, world  # noqa: F401

# At the connection number $BEFORE (from 1) to a unix socket $DO is run first, to its end.
BETWEEN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    static int n;
    int (*next)(int, const struct sockaddr *, socklen_t) =
        (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
    if (address->sa_family == AF_UNIX && ++n == atoi(getenv("BEFORE"))) {
        pid_t child = fork();
        if (child == 0) {
            unsetenv("LD_PRELOAD");
            execl("/bin/sh", "sh", "-c", getenv("DO"), (char *)0);
            _exit(127);
        }
        waitpid(child, NULL, 0);
    }
    return next(fd, address, size);
}
__attribute__((visibility("default"))) int connect(int, const struct sockaddr *, socklen_t);
"""
PROGRAM = """
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: os.execv('/bin/sleep', ['sleep', '600']))
print('ready', flush=True)
while True: time.sleep(0.005)
"""
EXEC = ("kill -USR1 %d; until [ $(readlink /proc/%d/exe) = $(readlink -f /bin/sleep) ];"
        " do sleep 0.01; done")
KILL = "kill -KILL %d; while readlink /proc/%d/exe; do sleep 0.01; done"  # a zombie has none
EJECT = "%s -t %%d eject; test %%d" % CLI


@pytest.fixture
def between(world):
    library = str(world.plugin("between", BETWEEN))

    def ask(target, before, what, *args):
        ours = world.env.get("LD_PRELOAD", "")
        return target.probing(*args, env={
            "LD_PRELOAD": (ours + " " + library).strip(), "BEFORE": str(before),
            "DO": "exec >/dev/null 2>&1; " + what % (target.pid, target.pid)})
    return ask


def program(world):
    target = world.python(PROGRAM, python="/usr/bin/python3")
    target.wait_line("ready")
    return target


def replaced(target):
    return os.readlink("/proc/%d/exe" % target.pid).endswith("sleep")


@pytest.mark.parametrize("words", [
    ["-D", "probing.plugins="], ["-D", "probing.retention=1h"],
    ["--plugin", "profile"], ["--listen", "127.0.0.1:0"]], ids=lambda words: words[-1])
def test_inject_waits_for_the_next_program(world, between, words):
    """At each connection of inject in its turn, until there is no such."""
    for before in itertools.count(1):
        target = program(world)
        done = between(target, before, EXEC, "inject", "--wait", *words)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert not re.search("died|has gone|does not answer|cannot connect", said), said
        if not replaced(target):
            break
        assert target.rows("select 1 as n") == [[1]]
        target.kill()
    assert before > 1


@pytest.mark.parametrize("words", [
    ["-D", "probing.retention=1h"], ["--plugin", "profile"], ["--listen", "127.0.0.1:0"],
    ["again"]], ids=lambda words: words[-1])
def test_inject_says_that_the_program_was_replaced(world, between, words):
    for before in itertools.count(1):
        target = program(world)
        if words == ["again"]:
            target.inject("-D", "probing.plugins=")
        done = between(target, before, EXEC, "inject", *words[words == ["again"]:])
        said = done.stdout + done.stderr
        if not replaced(target):
            break
        assert not re.search("died|has gone|does not answer", said), said
        if done.returncode != 0:
            assert re.search(r"now runs another program \(exec|runs another program now \(exec",
                             done.stderr), said
            assert "probing -t %d inject" % target.pid in done.stderr
        target.kill()
    assert done.returncode == 0 and before > 1


COMMANDS = {"query": ["query", "select 1 as n"], "config": ["config", "get", "probing.plugins"],
            "info": ["info"], "tables": ["tables"], "load": ["plugin", "load", "profile"],
            "watch": ["watch", "select 1 as n"], "eject": ["eject"],
            "flamegraph": ["flamegraph"], "script": ["script", "list"]}


@pytest.mark.parametrize("event, true", [
    (EXEC, r"another program (now )?\(exec"),
    (KILL, "has died|has just ended|ended while plugin|no process %d"),
    (EJECT, "core has left process %d|core has just gone from process %d, which lives on")],
    ids=["exec", "kill", "eject"])
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_what_has_happened_is_said(world, between, command, event, true):
    target = program(world)
    target.inject("-D", "probing.plugins=")
    done = between(target, 1, event, *COMMANDS[command])
    said = done.stdout + done.stderr
    assert re.search(true.replace("%d", str(target.pid)), said), said
    for other in {"exec", "died|just ended", "core has (left|just gone)"} - {
            {EXEC: "exec", KILL: "died|just ended", EJECT: "core has (left|just gone)"}[event]}:
        assert not re.search(other, said) or (event == EXEC and "which lives on" in said), said
