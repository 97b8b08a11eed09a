# SPDX-License-Identifier: Apache-2.0
"""CPythons that are newer than this machine's libraries or than what the plugin knows.

The latter is the newest known one with another number on it, and where it is to be refused with
offsets published that are wrong.
"""
import json
import os
import re
import struct
import subprocess

import pytest

import world as shared
from pythons import NEWEST, PYTHONS, version_of
from scripts import python_frames
from world import BUILD, CLI, wait_for

WAITS = """import ctypes, sys, time
class Runs:
    def waits(self, number, text="\u00e9"):
        print('ready', flush=True)
        if len(sys.argv) > 1: ctypes.PyDLL(None).open(sys.argv[1].encode(), 0) # with the GIL
        while True: time.sleep(0.01)
def outer(number): Runs().waits(number)
outer(7)
"""
STACK = [("waits", 6), ("outer", 7), ("<module>", 8)]


def with_number(world, python, minor, words=None):
    """A copy of this Python that says it is 3.MINOR.0, and an environment for it."""
    version, place = version_of(python), os.path.realpath(python)
    with open(place, "rb") as source:
        data = source.read()
    text, number = b"%d.%d.%d\0" % version, version[0] << 24 | version[1] << 16 | version[2] << 8
    table = data.find(b"xdebugpy" + struct.pack("<Q", number | 0xf0))
    if table < 0 or data.count(text) != 1:
        pytest.skip("%s is not in its own file: no number to change" % python)
    words = dict(words or {})
    words[1] = 3 << 24 | minor << 16 | 0xf0
    data = bytearray(data.replace(text, (b"3.%d.0" % minor).ljust(len(text) - 1, b"0") + b"\0"))
    for word, value in words.items():
        struct.pack_into("<Q", data, table + 8 * word, value)
    made = world.tmp / "python-of-another-number"
    made.write_bytes(data)
    made.chmod(0o755)
    home = os.path.dirname(os.path.dirname(place))
    return str(made), {"PYTHONHOME": home}


def of_minor(minor):
    found = [path for version, path in PYTHONS.items()
             if version.startswith("3.%d." % minor) and not version.endswith("t")]
    if not found:
        pytest.skip("no CPython 3.%d" % minor)
    return found[0]


def reason_of(target):
    return target.rows("select state, reason from probing.plugins where name = 'python'")[0]


def main_thread(target):
    done = target.probing("backtrace", "--json", "--locals")
    assert done.returncode == 0, done.stderr
    return [t for t in json.loads(done.stdout)["threads"] if t["tid"] == target.pid][0]


def is_read(target):
    thread = main_thread(target)
    frames = [f for f in thread["frames"] if f["type"] == "python"]
    return python_frames(thread) == STACK and thread["frames"][0]["type"] == "native" and \
        frames[0]["locals"]["number"] == 7 and frames[0]["locals"]["text"] == "\u00e9" and \
        frames[1]["locals"] == {"number": 7}


def is_refused(target, why):
    done = target.probing("backtrace", "--python")
    assert done.returncode != 0 and re.search(why, done.stderr), done.stdout + done.stderr
    kinds = {f["type"] for f in main_thread(target)["frames"]}
    assert kinds == {"native"}
    assert target.eval("6 * 7").stdout == "42\n" and target.alive()


def test_one_that_is_newer_is_read_once_a_trial_has_proved_it(world):
    made, env = with_number(world, of_minor(NEWEST[1]), NEWEST[1] + 1)
    target = world.start(made, WAITS, env=env).inject()
    wait_for(lambda: is_read(target), "its stack")
    state, reason = reason_of(target)
    assert state == "running" and "3.%d" % (NEWEST[1] + 1) in reason and "read right" in reason
    assert [reason] in target.rows("select text from probing.log where level = 'info'")
    assert target.probing("plugin", "stop", "python").returncode == 0
    assert target.probing("plugin", "load", "python").returncode == 0
    wait_for(lambda: is_read(target), "its stack, by the plugin that came again")
    assert reason_of(target) == [state, reason]


def test_one_that_begins_with_us_in_it(world):
    made, env = with_number(world, of_minor(NEWEST[1]), NEWEST[1] + 1)
    script = world.tmp / "waits.py"
    script.write_text(WAITS, encoding="utf-8")
    target = shared.Target(world, [str(CLI), "launch", "--", made, "-u", str(script)], env)
    world.targets.append(target)
    target.wait_line("^ready")
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "the core")
    wait_for(lambda: is_read(target), "its stack, once the interpreter has begun")


def test_one_whose_gil_is_not_to_be_had_waits(world):
    made, env = with_number(world, of_minor(NEWEST[1]), NEWEST[1] + 1)
    pipe = world.tmp / "pipe"
    os.mkfifo(pipe)  # to open it is to wait for who opens its other end
    target = world.start(made, WAITS, env=env, arguments=[str(pipe)]).inject()
    done = target.probing("backtrace", "--python")
    assert done.returncode != 0 and "waits for the GIL" in done.stderr, done.stderr
    pipe.write_bytes(b"")
    wait_for(lambda: is_read(target), "the GIL and its stack")


# Words of 3.15's table (offsets_table.h) and what would be wrong there.
@pytest.mark.parametrize("word, value", [
    (5, 8), (9, 16), (24, 0), (26, 80), (27, 72), (30, 152), (40, 0), (41, 16), (42, 64), (43, 88),
    (48, 120), (51, 128), (52, 72), (54, 104), (56, 216), (58, 24), (59, 0), (69, 24), (88, 40),
    (91, 24), (92, 56), (93, 40), (79, 40), (12, 16), (42, 1 << 40), (30, 184 + 8), (93, 88)])
def test_one_that_publishes_what_is_not_so_is_refused(world, word, value):
    made, env = with_number(world, of_minor(15), NEWEST[1] + 1, {word: value})
    target = world.start(made, WAITS, env=env).inject()
    is_refused(target, "3.%d: .*(newer than the versions known here|cannot be)" % (NEWEST[1] + 1))
    assert "newer than" in reason_of(target)[1] or "cannot be" in reason_of(target)[1]


@pytest.mark.parametrize("minor", [13, 14])
def test_one_that_publishes_in_another_order_is_refused(world, minor):
    made, env = with_number(world, of_minor(minor), NEWEST[1] + 1)
    target = world.start(made, WAITS, env=env).inject()
    is_refused(target, "newer than the versions known here|cannot be")


def test_from_outside_nothing_proves_it(world):
    made, env = with_number(world, of_minor(NEWEST[1]), NEWEST[1] + 1)
    target = world.start(made, WAITS, env=env)
    target.wait_line("^ready")
    done = target.probing("backtrace", "--external", "--python")
    assert done.returncode != 0 and "Python stacks cannot be read" in done.stderr, done.stderr


def test_the_interpreter_lets_us_in(world, python):
    """PEP 768, from 3.14 on."""
    target = world.start(python, WAITS)
    target.wait_line("^ready")
    done = target.probing("inject", "--way", "remote")
    if version_of(python) < (3, 14):
        assert done.returncode != 0 and "no CPython 3.14 or 3.15" in done.stderr
        return
    assert done.returncode == 0 and "by its interpreter" in done.stdout, done.stdout + done.stderr
    wait_for(lambda: is_read(target), "its stack")


def test_units_with_libraries_that_need_a_newer_c_library(tmp_path, python):
    """The programs that find every libpython of the machine cannot load these."""
    home = os.path.dirname(os.path.dirname(python))
    libraries = os.path.join(home, "lib", "x86_64-linux-gnu")
    loader = os.path.join(libraries, "ld-linux-x86-64.so.2")
    library = os.path.join(libraries, "libpython3.%d.so.1.0" % version_of(python)[1])
    if not os.path.exists(loader) or not os.path.exists(library):
        pytest.skip("this one's library can be loaded as it is, or it has none")
    for name, words in ("walk", ["2000", "10"]), ("locals", ["1"]), ("proof", []):
        program = str(BUILD / "tests" / ("plugins-python-%s_test" % name))
        if not os.path.exists(program):
            pytest.skip("no unit programs were built")
        done = subprocess.run([loader, "--library-path", libraries, program, *words, library],
                              stdout=subprocess.PIPE, env=dict(os.environ, PYTHONHOME=home))
        assert done.returncode == 0 and b"\nok " in b"\n" + done.stdout, done.stdout.decode()


CALLS = """import time
def inner(number):
    if number: time.sleep(600)
class Made:
    def __init__(self, number): max([number], key=inner)
def outer(number):
    sorted([Made], key=lambda kind: kind(number))
for i in range(500): outer(0) # until CPython calls in the shortest way it knows
print('ready', flush=True)
outer(1)
"""


def test_how_a_call_is_made_is_not_what_is_called(world, python):
    """A frame of CPython's own makes the instance of a class (from 3.12 on), and 3.15 has functions
    of its own for calls of C."""
    target = world.start(python, CALLS).inject()
    wait_for(lambda: main_thread(target)["state"] != "running", "it to sleep")
    thread = main_thread(target)
    assert python_frames(thread) == [("inner", 3), ("__init__", 5), ("<lambda>", 7), ("outer", 7),
                                     ("<module>", 10)]
    assert not [f["func"] for f in thread["frames"] if "StackRef" in f["func"]]


FINDS = """import sys
class Made:
    def __init__(self, number): self.sum = sum(i * i for i in range(number))
def outer():
    return [Made(300) for _ in range(100)]
print('ready', flush=True)
while True: outer()
"""


def test_a_profile_has_no_frame_of_a_call_either(world, python):
    target = world.start(python, FINDS).inject()
    done = target.probing("flamegraph", "--seconds", "1", "--format", "folded")
    assert done.returncode == 0 and "outer" in done.stdout, done.stderr
    assert "__init__ (__init__)" not in done.stdout and "StackRef" not in done.stdout, done.stdout
