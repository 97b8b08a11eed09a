# SPDX-License-Identifier: Apache-2.0
"""Plugins that do wrong: the process that they are loaded into lives, and is told what was wrong.

The set lies in tests/hostile/plugins; a file of a plugin that is damaged is made here.
"""
import os
import re
import shutil
import socket
import subprocess

import pytest

from world import BUILD, CLI, said, wait_for, world  # noqa: F401

SET = BUILD / "tests" / "hostile" / "plugins"
LIMIT = "probing.plugin_timeout=1s"  # after which one that hangs is given up


@pytest.fixture
def target(world):
    if not SET.exists():
        pytest.skip("%s is not built: scons unit" % SET)
    made = world.start("sleep", "600")
    made.inject("-D", "probing.plugins=", "-D", LIMIT)
    return made


def state(target, name):
    rows = target.rows("select state, reason from probing.plugins where name = '%s'" % name)
    return rows[0] if rows else None


def lives(target, world):
    """It answers, takes a plugin that is right, and lets us go."""
    assert target.alive()
    assert target.rows("select 1 as n") == [[1]]
    loaded = target.probing("plugin", "load", str(SET / "well.so"))
    assert loaded.returncode == 0, loaded.stderr
    assert target.probing("well").stdout == "well\n"
    left = target.probing("eject")
    assert left.returncode == 0, left.stdout + left.stderr
    assert target.alive()


def refused(target, path):
    done = target.probing("plugin", "load", str(path))
    assert done.returncode == 1 and target.alive(), (done.returncode, done.stdout, done.stderr)
    return done.stderr


# ---- files ----

def test_cut_at_every_place(world, target):
    whole = (SET / "well.so").read_bytes()
    used = whole.rfind(b"GCC: (") if b"GCC: (" in whole else len(whole) * 2 // 3
    for size in [0, 1, 63, 64, 500, 4096, 5000, 8192, 12288, used - 4096, used - 512]:
        cut = world.tmp / "well.so"
        cut.write_bytes(whole[:size])
        said = refused(target, cut)
        assert "well" in said and re.search("cut|whole|empty|outside|no library", said), said
    lives(target, world)


def test_a_pipe_of_its_name_holds_nobody_up(world, target):
    """Neither the command nor, where the core looks for it, the thread that loads plugins."""
    pipe = world.tmp / "piped.so"
    os.mkfifo(pipe)
    assert "is not a file one could load" in refused(target, pipe)
    done = world.probing("plugin", "check", str(pipe))
    assert done.returncode == 1 and "cannot be loaded" in done.stdout, done.stdout + done.stderr
    other = world.python("import time\nwhile True: time.sleep(0.01)\n",
                         env={"PROBING_PLUGIN_PATH": str(world.tmp)})
    other.inject()
    done = other.probing("plugin", "load", "piped")
    assert done.returncode == 1, done.stdout
    lives(other, world)


def test_cut_where_the_core_looks_for_itself(world, target):
    """Not by the command, which looks too: the core finds the file in its own path."""
    folder = world.tmp / "path"
    folder.mkdir()
    (folder / "cut.so").write_bytes((SET / "well.so").read_bytes()[:8192])
    target.probing("eject")
    target.inject("-D", "probing.plugins=cut", "-D", "probing.plugin_path=%s" % folder)
    assert state(target, "cut")[0] == "failed" and "truncated" in state(target, "cut")[1]
    lives(target, world)


def damaged(whole, seed):
    """A few bytes changed, where a loader reads."""
    data, value = bytearray(whole), seed * 2654435761 % 2 ** 32
    for _ in range(1 + seed % 4):
        value = (value * 1103515245 + 12345) % 2 ** 31
        at = value % 1500
        value = (value * 1103515245 + 12345) % 2 ** 31
        data[at] = value >> 8 & 255
    return bytes(data)


def test_damaged_files(world, target):
    """The command's own look is passed by: the core is asked to load the file by its path.  Under
    another name than its own, so that it is mapped and read, and none of its code runs."""
    whole = (SET / "bare.so").read_bytes()
    mapped = 0
    for seed in range(60):
        path = world.tmp / ("bare%d.so" % seed)
        path.write_bytes(damaged(whole, seed))
        done = target.probing("plugin", "load", "other", str(path))
        assert done.returncode == 1 and target.alive(), "seed %d" % seed
        mapped += "failed at dlopen" not in done.stderr
    assert mapped > 0
    lives(target, world)


def test_written_over_and_cut_while_it_runs(world, target):
    folder = world.tmp / "path"
    folder.mkdir()
    path = folder / "well.so"
    shutil.copy(SET / "well.so", path)
    target.probing("eject")
    target.inject("-D", "probing.plugins=well", "-D", "probing.plugin_path=%s" % folder)
    assert state(target, "well")[0] == "running"
    with open(path, "r+b") as file:
        file.write(b"\xcc" * os.path.getsize(path))
        file.truncate(100)
    assert target.probing("well").stdout == "well\n"
    assert wait_for(lambda: target.rows("select count(*) from well.ticks")[0][0] > 2, "ticks")
    assert target.probing("plugin", "stop", "well").returncode == 0
    assert target.alive()
    maps = open("/proc/%d/maps" % target.pid).read()
    assert "/memfd:probing-plugin:%s (deleted)\n" % path in maps and " %s" % path not in maps


def test_that_writes_over_itself(world, target):
    done = target.probing("plugin", "load", str(SET / "writes_over.so"))
    assert done.returncode == 0, done.stderr
    assert target.probing("plugin", "stop", "writes_over").returncode == 0
    lives(target, world)


# ---- what they do ----

def test_init_that_crashes_is_named(world, target):
    done = target.probing("plugin", "load", str(SET / "init_crash.so"))
    assert done.returncode == 1
    assert "process %d ended while plugin init_crash was being loaded" % target.pid in done.stderr
    assert "plugin check" in done.stderr
    assert target.process.wait() == -11


def test_init_that_crashes_with_the_handler_on(world):
    target = world.start("sleep", "600")
    target.inject("-c", "-D", "probing.plugins=")
    done = target.probing("plugin", "load", str(SET / "init_crash.so"))
    assert done.returncode == 1
    assert "SIGSEGV in the plugin's own code" in done.stderr, done.stderr


@pytest.mark.parametrize("name, reason", [
    ("init_99", r"init: init\(\) returned 99: it must return 0"),
    ("init_hangs", "init: it has not returned after 1 s"),
    ("start_fails", "start: no such device; it has left 1 thread running"),
    ("no_destroy", "init and destroy may not be NULL"),
    ("bad_name", "at an address that cannot be read"),
    ("bad_size", "config_size is 4294967295"),
])
def test_refused_with_the_reason(world, target, name, reason):
    said = refused(target, SET / (name + ".so"))
    assert re.search(reason, said), said
    failed = state(target, name)
    assert failed[0] == "failed" and re.search(reason, failed[1]), failed
    lives(target, world)


def test_nothing_of_one_that_failed_goes_on(world, target):
    refused(target, SET / "start_fails.so")
    assert target.rows("select name from probing.commands where name = 'hostile_thing'") == []
    done = target.probing("hostile_thing")
    assert done.returncode == 1 and "start_fails" in done.stderr
    asked = target.probing("query", "select * from start_fails.things")
    assert asked.returncode == 1, asked.stdout
    lives(target, world)


@pytest.mark.parametrize("name, left", [
    ("leaks_threads", "it has left 1 thread running"),
    ("leaks_fds", r"it has left 1 descriptor open that came while it was called \(/dev/zero\)"),
    ("takes_number", r"it has left 1 descriptor open that came while it was called \(/dev/zero\)"),
    ("takes_signal", "it has left its handler of signal 12"),
])
def test_what_is_left_behind_is_said(world, target, name, left):
    assert target.probing("plugin", "load", str(SET / (name + ".so"))).returncode == 0
    done = target.probing("plugin", "stop", name)
    assert done.returncode == 0 and re.search(left, done.stdout), done.stdout + done.stderr
    stopped = state(target, name)
    assert stopped[0] == "stopped" and re.search(left, stopped[1]), stopped
    lives(target, world)


SERVER = """
import socket
door, taken = socket.create_server(("127.0.0.1", 0)), []
print("port", door.getsockname()[1], flush=True)
while True: taken.append(door.accept())
"""


def test_clients_that_come_meanwhile_are_not_left_by_it(world):
    """They are the core's, by TCP and at its socket, or the program's."""
    begun, go = world.tmp / "begun", world.tmp / "go"
    target = world.python(SERVER, env={"BEGUN": str(begun), "GO": str(go)})
    port = int(target.wait_line(r"^port (\d+)$").group(1))
    target.inject("-D", "probing.plugins=", "-D", "probing.plugin_timeout=5m",
                  "-D", "server.listen=127.0.0.1:0")
    info = target.probing("info").stdout
    load = subprocess.Popen([str(CLI), "-t", str(target.pid), "plugin", "load",
                             str(SET / "start_waits.so")], env=world.env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(begun.exists, "its start")
    ours = socket.create_connection(
        ("127.0.0.1", int(re.search(r"^listening: 127\.0\.0\.1:(\d+)", info, re.M).group(1))))
    ours.sendall(b"version\n")
    assert said(ours, rb"\n")  # it has been let in
    programs = socket.create_connection(("127.0.0.1", port))
    local = socket.socket(socket.AF_UNIX)
    local.connect(re.search(r"^data: (.*)$", info, re.M).group(1) + "/sock")
    local.sendall(b"version\n")
    assert said(local, rb"\n")
    go.touch()
    out, err = load.communicate(timeout=300)
    assert load.returncode == 1 and "no such device" in err and "left" not in err, err
    for one in (ours, programs, local):
        one.close()


def test_nothing_is_said_of_one_that_is_right(world, target):
    for _ in range(5):
        target.probing("plugin", "load", str(SET / "well.so"))
        done = target.probing("plugin", "stop", "well")
        assert done.stdout == "plugin well has stopped\n", done.stdout + done.stderr
    assert state(target, "well") == ["stopped", None]


def test_stop_that_hangs(world, target):
    target.probing("plugin", "load", str(SET / "stop_hangs.so"))
    done = target.probing("plugin", "stop", "stop_hangs")
    assert done.returncode == 1 and "has not returned" in done.stderr
    lives(target, world)


def test_absurd_descriptions_are_refused_one_by_one(world, target):
    done = target.probing("plugin", "load", str(SET / "bad_tables.so"))
    assert done.returncode == 0, done.stderr
    said = target.rows("select text from probing.log where source = 'bad_tables'")
    counts = [re.match(r"refused (\d+) of (\d+)", row[0]) for row in said]
    counts = [found for found in counts if found]
    assert counts and counts[0][1] == counts[0][2]
    assert ["(the text is at an address that cannot be read)"] in said
    lives(target, world)


# ---- plugin check ----

def check(world, name, *more):
    return world.probing("plugin", "check", str(SET / (name + ".so")), *more)


def test_check_of_one_that_is_right(world):
    done = check(world, "well")
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ["symbol +probing_plugin_v1, 112 bytes; ABI 1.4", "tables +well.ticks",
                 "commands +well", "settings +well.pace", r"runs .*; \d+ rows of well.ticks",
                 "again +stop and destroy worked", "result +it can be loaded"]:
        assert re.search(line, done.stdout), (line, done.stdout)


@pytest.mark.parametrize("name, says", [
    ("init_crash", r"died of signal 11.*\n(.*\n)*.*init_crash\.so"),
    ("init_99", r"returned 99"),
    ("init_hangs", "not returned"),
    ("leaks_threads", "threads +NOT RIGHT: .* plugin leaks_th"),
    ("leaks_fds", "files +NOT RIGHT: .*/dev/zero"),
    ("takes_signal", "signals +NOT RIGHT: it left a handler of signal 12"),
    ("start_fails", "no such device"),
    ("stop_hangs", "not returned"),
    ("bad_name", "cannot be read"),
])
def test_check_of_one_that_is_wrong(world, name, says):
    before = set(os.listdir("/dev/shm"))
    done = check(world, name)
    assert done.returncode == 1 and re.search(says, done.stdout), done.stdout + done.stderr
    assert re.search("result +[1-9] problem", done.stdout)
    wait_for(lambda: not [made for made in set(os.listdir("/dev/shm")) - before if "check" in made],
             "the end of what checks have made, those of other tests too")


def test_check_of_a_file_that_is_cut(world):
    cut = world.tmp / "well.so"
    cut.write_bytes((SET / "well.so").read_bytes()[:9000])
    done = world.probing("plugin", "check", str(cut))
    assert done.returncode == 1 and "truncated" in done.stdout


def test_check_in_a_program_of_the_users(world):
    done = check(world, "well", "--", "sleep", "600")
    assert done.returncode == 0 and "it can be loaded" in done.stdout, done.stdout + done.stderr
    done = check(world, "well", "--", "true")
    assert done.returncode == 1 and "ended" in done.stderr
    done = world.probing("plugin", "check")
    assert done.returncode == 2
    done = world.probing("plugin", "list")
    assert done.returncode == 2 and "needs a target" in done.stderr


