# SPDX-License-Identifier: Apache-2.0
"""The memory plugin's functions in the slots of objects of each kind, and out of them again."""
import os
import re
import shutil
import subprocess

import pytest

from world import CORE, ROOT, wait_for

SOURCE = ROOT / "tests" / "memory" / "slots.c"
PROGRAMS = {
    "pie-now": ["-fPIE", "-pie", "-Wl,-z,relro,-z,now"],
    "pie-lazy": ["-fPIE", "-pie", "-Wl,-z,relro,-z,lazy"],
    "no-relro": ["-fPIE", "-pie", "-Wl,-z,norelro,-z,lazy"],
    "no-plt": ["-fPIE", "-pie", "-fno-plt", "-Wl,-z,relro,-z,now"],
    "fixed-lazy": ["-fno-pie", "-no-pie", "-Wl,-z,lazy"],
    "fixed-now": ["-fno-pie", "-no-pie", "-Wl,-z,relro,-z,now"],
    "old-hash": ["-fPIE", "-pie", "-Wl,--hash-style=sysv"],
}
LIBRARIES = {
    "now": ["-Wl,-z,relro,-z,now"],
    "lazy": ["-Wl,-z,lazy"],
    "no-relro": ["-Wl,-z,norelro,-z,lazy"],
    "no-plt": ["-fno-plt"],
    "old-hash": ["-Wl,--hash-style=sysv"],
}


def build(path, *flags, source=SOURCE, compiler="gcc"):
    if not shutil.which(compiler):
        pytest.skip("no " + compiler)
    subprocess.run([compiler, "-O1", "-D_GNU_SOURCE", "-o", str(path), str(source), *flags,
                    "-ldl", "-pthread"], check=True)
    return path


def library(world, name, *flags):
    return build(world.tmp / ("lib%s.so" % name), "-shared", "-fPIC", "-DLIBRARY", *flags)


class Program:
    """slots.c in a process that is entered, and what it says."""

    def __init__(self, world, *flags, env=None):
        path = build(world.tmp / "program", *flags)
        self.pipe = world.tmp / "orders"
        os.mkfifo(self.pipe)
        self.target = world.start(str(path), str(self.pipe), env=env)
        self.target.wait_line("ready")
        self.orders = open(self.pipe, "w", buffering=1)
        self.target.inject("--wait")
        self.said = 0

    def __call__(self, order):
        """Lines that the program says to it."""
        done = len(re.findall(r"^done", self.target.output(), flags=re.M))
        self.orders.write(order + "\n")

        def answered():
            assert self.target.alive(), self.target.output()
            return len(re.findall(r"^done \d+\n", self.target.output(), flags=re.M)) > done
        wait_for(answered, "an answer to " + order)
        lines = self.target.output().splitlines()
        new, self.said = lines[self.said:], len(lines)
        assert new[-1] == "done 0", new
        return new[:-1]

    def slots(self):
        """{(who, kind, function): where it leads}"""
        found = {}
        for line in self("say"):
            if line != "ready":
                who, kind, name, leads_to = line.split()
                found.setdefault((who, kind, name), set()).add(leads_to)
        return found

    def memory(self, verb):
        done = self.target.probing("plugin", verb, "memory")
        assert done.returncode == 0, done.stdout + done.stderr


def ours(slots):
    """Those that lead into the plugin, whose file is a descriptor's number."""
    return {key for key, leads_to in slots.items() if all(re.fullmatch(r"\d+", x)
                                                          for x in leads_to)}


def test_each_kind_of_program(world, kind):
    program = Program(world, *PROGRAMS[kind])
    before = program.slots()
    names = {name for _, _, name in before}
    assert {"malloc", "free", "calloc", "realloc", "mmap", "munmap"} <= names
    assert {k for _, k, _ in before} & {"data"} or "fixed" in kind
    for _ in range(3):
        program.memory("load")
        assert ours(program.slots()) == set(before)
        program("use")
        assert ours(program.slots()) == set(before)
        program.memory("stop")
        after = program.slots()
        assert ours(after) == set()
        assert {k: (before[k], after[k]) for k in before
                if after[k] != before[k] and before[k] != {"itself"}} == {}
        program("use")


@pytest.fixture(params=sorted(PROGRAMS))
def kind(request):
    return request.param


@pytest.mark.parametrize("kind_of_library", sorted(LIBRARIES))
def test_libraries_that_come_and_go(world, kind_of_library):
    program = Program(world, "-fPIE", "-pie")
    path = library(world, "late", *LIBRARIES[kind_of_library])
    program.memory("load")
    program("open %s" % path)          # dlsym() is asked before anything of it runs
    slots = program.slots()
    late = {key for key in slots if key[0] == "library"}
    assert len(late) >= 8 and ours(slots) == set(slots)
    program("close")
    program("open %s" % path)
    assert ours(program.slots()) == set(slots)
    program.memory("stop")
    assert ours(program.slots()) == set()
    program("use")
    program.memory("load")
    assert ours(program.slots()) == set(slots)
    program("close")                   # it goes while they are in
    program.memory("stop")
    assert ours(program.slots()) == set()
    program("open %s" % path)
    assert ours(program.slots()) == set()


def test_what_the_program_has_changed_stays(world):
    program = Program(world, "-fPIE", "-pie")
    program("change")
    before = program.slots()
    changed = {key for key, leads_to in before.items()
               if key[1] == "data" and "itself" in leads_to}
    assert changed
    program.memory("load")
    slots = program.slots()
    assert ours(slots) == set(before) - changed
    program.memory("stop")
    after = program.slots()
    assert all(after[key] == before[key] for key in changed)


def test_a_variable_that_is_changed_while_they_are_in(world):
    program = Program(world, "-fPIE", "-pie")
    program.memory("load")
    program("change")
    program.memory("stop")
    slots = program.slots()
    assert ours(slots) == set()
    assert any("itself" in leads_to for key, leads_to in slots.items() if key[1] == "data")


def test_a_sanitizer_is_refused(world):
    path = build(world.tmp / "program", "-fsanitize=address", "-g")
    os.mkfifo(world.tmp / "orders")
    target = world.start(str(path), str(world.tmp / "orders"), env={
        "LD_PRELOAD": str(CORE), "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0"})
    target.wait_line("ready")
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "an answer")
    done = target.probing("plugin", "load", "memory")
    assert done.returncode != 0
    assert "AddressSanitizer is in this process" in done.stderr
    assert target.alive()
