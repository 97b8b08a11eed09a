# SPDX-License-Identifier: Apache-2.0
"""Plugins that do not come back: everybody else is answered, and the core can leave.

scan_blocks waits for ever in its table, its command and its configure(), every_blocks in functions
of every(); scan_endless emits rows for ever and does not look at what emit() says.  Nothing is
timed: what is stuck stays so, so that whatever is answered meanwhile did not wait for it.
"""
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))
from wire import Wire, http  # noqa: E402
from world import BUILD, CLI, threads_of, wait_for  # noqa: E402

SET = BUILD / "tests" / "hostile" / "plugins"
STUCK = ["scan_blocks", "scan_endless"]
HANGS = 100  # seconds: what is not answered in these is not answered at all
ASK = "select * from %s.t"


@pytest.fixture
def target(world):
    if not SET.exists():
        pytest.skip("%s is not built: scons unit" % SET)
    made = world.start("sleep", "600")
    made.inject("-D", "probing.plugins=", "-D", "probing.plugin_timeout=2s")
    return made


def load(target, *names):
    for name in names:
        done = target.probing("plugin", "load", str(SET / (name + ".so")))
        assert done.returncode == 0, done.stderr


def answered(target, *words):
    """0 and what is said; not to be answered is a failure, not a wait."""
    done = target.probing(*words, timeout=HANGS)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def ask(world, target, *words):
    return subprocess.Popen([str(CLI), "-t", str(target.pid), *words], env=world.env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def of_plugin(target, name):
    return target.rows("select state, reason, calls, calls_left from probing.plugins "
                       "where name = '%s'" % name)[0]


def fill(world, target, name, clients=12):
    """Clients that ask the table that does not end and have no time limit."""
    asking = [ask(world, target, "query", ASK % name) for _ in range(clients)]
    wait_for(lambda: of_plugin(target, name)[2] == 6, "six calls")
    return asking


def sock_of(target):
    return answered(target, "info").split("data: ")[1].split("\n")[0] + "/sock"


def end(target, *names):
    """It lets us go, and nothing of ours is left but what is inside the plugins."""
    said = answered(target, "eject")
    for name in names:
        assert "a thread is still inside plugin" in said and name in said, said
    wait_for(lambda: not [t for t in threads_of(target.pid) if t.startswith("probing/")],
             "our threads' end")
    assert target.alive()


@pytest.mark.parametrize("name", STUCK)
def test_everybody_else_is_answered(world, target, name):
    load(target, "well", name)
    asking = fill(world, target, name)
    refused = [one for one in asking if one.poll() is not None]
    assert target.rows("select 1") == [[1]]
    assert answered(target, "version").startswith("probing ")
    assert name in answered(target, "plugin", "list")
    assert "well" in answered(target, "plugins")
    for words in (["script", "list"], ["scripts"], ["config"], ["info"],
                  ["config", "set", "probing.log_level", "debug"]):
        answered(target, *words)
    assert answered(target, "well") == "well\n"
    assert http(sock_of(target), "GET", "/healthz")[0] == 200
    load(target, "stop_refuses")  # another one comes
    for one in refused:
        assert name in one.stderr.read()
    done = target.probing("plugin", "stop", name, timeout=HANGS)
    assert done.returncode == 1 and "scan (%s.t): it has not returned" % name in done.stderr
    assert of_plugin(target, name)[0] == "failed"
    assert answered(target, "plugin", "stop", "well") == "plugin well has stopped\n"
    for one in asking:
        _, why = one.communicate(timeout=HANGS)
        assert one.returncode == 1 and (one in refused or name in why), why
    again = target.probing("plugin", "load", str(SET / (name + ".so")), timeout=HANGS)
    assert again.returncode == 1 and "still inside a call that was abandoned" in again.stderr
    done = target.probing("eject", "--force", timeout=HANGS)
    assert done.returncode == 0 and "inside plugin " + name in done.stdout, done.stderr


@pytest.mark.parametrize("name", STUCK)
def test_a_time_limit_is_kept_in_every_protocol(world, target, name):
    load(target, name)
    done = target.probing("query", "--timeout", "1s", ASK % name, timeout=HANGS)
    assert done.returncode == 1 and name in done.stderr, done.stdout + done.stderr
    sock = sock_of(target)
    status, _, text = http(sock, "POST", "/run", '{"run":["query","%s"],"timeout_ms":500}' %
                           (ASK % name))
    assert status == 504 and name in text, (status, text)
    with Wire(sock) as wire:
        wire.send({"id": 1, "run": ["query", ASK % name], "timeout_ms": 500})
        said = wire.receive()
        while "done" not in said and "error" not in said:
            said = wire.receive()
        assert name in str(said), said
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(HANGS)
        s.connect(sock)
        s.sendall(b"query --timeout 500ms %s\n" % (ASK % name).encode())
        text = b""
        while not text.endswith(b".\n") and not text.startswith(b"error"):
            text += s.recv(1000)
        assert name.encode() in text
    wait_for(lambda: of_plugin(target, name)[0] == "failed", "the plugin to be switched off")
    state, reason, calls, left = of_plugin(target, name)
    assert "scan (%s.t): it has not returned" % name in reason and calls == left > 0
    assert target.rows("select count(*) > 0 from probing.log where text like "
                       "'plugin %s failed at scan%%'" % name) == [[1]]
    assert "plugin-left" in threads_of(target.pid)
    end(target, name)
    assert "plugin-left" in threads_of(target.pid)


def test_a_client_that_goes_is_not_waited_for(world, target):
    load(target, "scan_blocks")
    for one in fill(world, target, "scan_blocks"):
        one.kill()
        one.communicate()
    wait_for(lambda: of_plugin(target, "scan_blocks")[0] == "failed", "the plugin's end")
    assert target.rows("select 1") == [[1]]
    end(target, "scan_blocks")


def test_a_command_that_does_not_return(world, target):
    """As long as its client waits it is left alone; then its thread is left to it."""
    load(target, "scan_blocks", "well")
    asking = ask(world, target, "stuck")
    wait_for(lambda: of_plugin(target, "scan_blocks")[2] == 1, "the call")
    time.sleep(3)  # longer than plugin_timeout
    assert asking.poll() is None and of_plugin(target, "scan_blocks")[0] == "running"
    many = [ask(world, target, "stuck") for _ in range(20)]
    wait_for(lambda: of_plugin(target, "scan_blocks")[2] == 6, "six calls")
    assert answered(target, "well") == "well\n" and target.rows("select 1") == [[1]]
    for one in [asking] + many:
        one.send_signal(signal.SIGINT)
        one.communicate()
    wait_for(lambda: of_plugin(target, "scan_blocks")[0] == "failed", "the plugin's end")
    assert "command (stuck): it has not returned" in of_plugin(target, "scan_blocks")[1]
    end(target, "scan_blocks")


def test_functions_of_every_that_do_not_return(world, target):
    """First they are late, and hold no worker; then their plugin is switched off."""
    load(target, "every_blocks", "well")
    assert target.rows("select 1") == [[1]]
    wait_for(lambda: "late" in (of_plugin(target, "every_blocks")[1] or ""), "it to be late")
    assert answered(target, "well") == "well\n" and target.rows("select 1") == [[1]]
    wait_for(lambda: of_plugin(target, "every_blocks")[0] == "failed", "the plugin's end")
    assert "every: it has not returned" in of_plugin(target, "every_blocks")[1]
    end(target, "every_blocks")


def test_a_setting_that_is_not_taken(world, target):
    load(target, "scan_blocks", "well")
    done = target.probing("config", "set", "scan_blocks.stuck", "1", timeout=HANGS)
    assert done.returncode == 1 and "configure: it has not returned after 2 s" in done.stderr
    assert of_plugin(target, "scan_blocks")[0] == "failed"
    assert answered(target, "config", "set", "probing.log_level", "debug")
    end(target, "scan_blocks")


def test_a_script_in_such_a_query_ends(world, target):
    load(target, "scan_blocks")
    script = world.tmp / "asks.lua"
    script.write_text("for row in probing.query('%s') do end" % (ASK % "scan_blocks"))
    running = ask(world, target, "script", "run", str(script))
    wait_for(lambda: of_plugin(target, "scan_blocks")[2] == 1, "the call")
    answered(target, "script", "stop", "asks")
    assert target.rows("select state from probing.scripts") == [["stopped"]]
    running.communicate(timeout=HANGS)
    end(target, "scan_blocks")


def test_eject_is_all_or_nothing(world, target):
    """The plugin that refuses is the last to be asked; the others run again afterwards."""
    load(target, "stop_refuses", "well")
    done = target.probing("eject", timeout=HANGS)
    assert done.returncode == 1, done.stdout
    assert "stop_refuses" in done.stderr and "its hooks cannot be removed" in done.stderr
    assert "eject --force" in done.stderr
    assert [of_plugin(target, name)[0] for name in ("stop_refuses", "well")] == ["running"] * 2
    assert answered(target, "well") == "well\n"
    (rows,), = target.rows("select count(*) from well.ticks")
    wait_for(lambda: target.rows("select count(*) from well.ticks")[0][0] > rows, "ticks")
    done = target.probing("eject", "--force", timeout=HANGS)
    assert done.returncode == 0 and "plugin stop_refuses refused to stop" in done.stdout
    wait_for(lambda: not [t for t in threads_of(target.pid) if t.startswith("probing/")],
             "our threads' end")
    target.inject("-D", "probing.plugins=")
    again = target.probing("plugin", "load", str(SET / "stop_refuses.so"))
    assert again.returncode == 1 and target.rows("select 1") == [[1]]


def test_nothing_is_left_where_another_refuses(world, target):
    """One is inside a call that does not return, another refuses: eject leaves both alone."""
    load(target, "stop_refuses", "scan_blocks", "well")
    asking = ask(world, target, "stuck")
    wait_for(lambda: of_plugin(target, "scan_blocks")[2] == 1, "the call")
    done = target.probing("eject", timeout=HANGS)
    assert done.returncode == 1 and "stop_refuses" in done.stderr, done.stdout + done.stderr
    assert of_plugin(target, "well")[0] == "running"
    asking.communicate(timeout=HANGS)  # it was told to end
    done = target.probing("eject", "--force", timeout=HANGS)
    assert done.returncode == 0 and "inside plugin scan_blocks" in done.stdout
    assert "plugin stop_refuses refused to stop" in done.stdout


def test_again_and_again(world, target):
    """Clients of a stuck table are killed; the plugin is stopped, another loaded, the core leaves
    and comes back, with the threads of earlier lives still inside."""
    for _ in range(3):
        load(target, "well")
        stuck = target.probing("plugin", "load", str(SET / "scan_blocks.so"), timeout=HANGS)
        if stuck.returncode == 0:
            asking = fill(world, target, "scan_blocks", clients=30)
        else:
            asking = []
            assert "still inside a call that was abandoned" in stuck.stderr or \
                "abandoned by an earlier core" in stuck.stderr, stuck.stderr
        for one in asking:
            one.kill()
            one.communicate()
        if asking:
            target.probing("plugin", "stop", "scan_blocks", timeout=HANGS)
        assert answered(target, "well") == "well\n"
        answered(target, "plugin", "stop", "well")
        answered(target, "eject")
        target.inject("-D", "probing.plugins=", "-D", "probing.plugin_timeout=2s")
        assert target.rows("select 1") == [[1]]
    assert threads_of(target.pid).count("plugin-left") == 6
