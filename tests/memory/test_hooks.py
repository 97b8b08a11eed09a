# SPDX-License-Identifier: Apache-2.0
"""The memory plugin's functions in the slots of objects of each kind, and out of them again."""
import glob
import os
import re
import shutil
import subprocess

import pytest

from world import CORE, ROOT, wait_for

SOURCE = ROOT / "tests" / "memory" / "slots.c"
PATCHELF = "patchelf"  # not for the compiler: another RPATH is written into the file afterwards
PROGRAMS = {
    "pie-now": ["-fPIE", "-pie", "-Wl,-z,relro,-z,now"],
    "pie-lazy": ["-fPIE", "-pie", "-Wl,-z,relro,-z,lazy"],
    "no-relro": ["-fPIE", "-pie", "-Wl,-z,norelro,-z,lazy"],
    "no-plt": ["-fPIE", "-pie", "-fno-plt", "-Wl,-z,relro,-z,now"],
    "fixed-lazy": ["-fno-pie", "-no-pie", "-Wl,-z,lazy"],
    "fixed-now": ["-fno-pie", "-no-pie", "-Wl,-z,relro,-z,now"],
    "old-hash": ["-fPIE", "-pie", "-Wl,--hash-style=sysv"],
    "patched": ["-fno-pie", "-no-pie", "-rdynamic", "-Wl,-z,lazy", PATCHELF],  # tables that
    # reach from one segment into the next
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
    words = [flag for flag in flags if flag != PATCHELF]
    if PATCHELF in flags:
        if not shutil.which(PATCHELF):
            pytest.skip("no patchelf")
        names = path.with_suffix(".c")
        names.write_text("".join("int a_function_with_a_long_name_%d(void) { return %d; }\n"
                                 % (i, i) for i in range(600)))
        words.append(str(names))
    subprocess.run([compiler, "-O1", "-D_GNU_SOURCE", "-o", str(path), str(source), *words,
                    "-ldl", "-pthread"], check=True)
    if PATCHELF in flags:
        subprocess.run([PATCHELF, "--force-rpath", "--set-rpath", "/nowhere", str(path)],
                       check=True)
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
                who, kind, name, leads_to = line.split(" ", 3)
                found.setdefault((who, kind, name), set()).add(leads_to)
        return found

    def memory(self, verb):
        done = self.target.probing("plugin", verb, "memory")
        assert done.returncode == 0, done.stdout + done.stderr


def ours(slots):
    """Slots that lead into the plugin, which has no name."""
    return {key for key, leads_to in slots.items() if leads_to == {""}}


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


# ---- odd moments of a program's life ----

LIVES = ROOT / "tests" / "memory" / "lives.c"
ALL = ("-D", "memory.sample_bytes=1024")  # each thread takes samples all the time


def enter_and_leave(target, times, until=None):
    target.inject("--wait", *ALL)
    for i in range(times):
        for verb in ("load", "stop"):
            done = target.probing("plugin", verb, "memory")
            assert done.returncode == 0, done.stdout + done.stderr + target.output()[-300:]
    assert target.alive(), target.output()[-300:]


@pytest.mark.parametrize("mode", ["handlers", "threads", "children"])
def test_allocations_at_odd_moments(world, mode):
    own = ["-DOWN_ALLOCATOR"] if mode == "handlers" else []
    target = world.start(str(build(world.tmp / "lives", *own, source=LIVES)), mode)
    target.wait_line("ready")
    enter_and_leave(target, 30)
    done = target.probing("plugin", "load", "memory")
    assert done.returncode == 0, done.stderr

    def rounds():
        return len(re.findall("^round", target.output(), flags=re.M))
    before = rounds()
    wait_for(lambda: rounds() > before + 2 or not target.alive(), "more rounds")
    assert target.alive() and target.output().count("wrong") == 0, target.output()[-300:]
    if mode == "handlers":
        assert int(re.findall(r"round (\d+) handled", target.output())[-1]) > 0


@pytest.mark.parametrize("left", [False, True])
def test_a_program_that_ends_with_them_in(world, left):
    end = world.tmp / "end"
    target = world.start(str(build(world.tmp / "lives", source=LIVES)), "exit", str(end))
    target.wait_line("ready")
    target.inject("--wait", "--plugin", "memory", *ALL)
    if left:
        assert target.probing("eject").returncode == 0
    end.touch()
    assert target.process.wait(60) == 0, target.output()
    assert "at exit" in target.output()


def test_from_the_start_of_a_program(world):
    end = world.tmp / "end"
    end.touch()
    path = build(world.tmp / "lives", source=LIVES)
    for _ in range(10):
        done = world.probing("launch", "--plugin", "memory", *ALL, "--", str(path), "exit",
                             str(end))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "at exit" in done.stdout


# ---- C++, and other allocators ----

CPLUSPLUS = r"""
#include <cstdio>
#include <map>
#include <new>
#include <string>
#include <thread>
static void churn(int id)
{
    std::map<int, std::string> m;
    for (unsigned i = 0;; i++) {
        m[i % 1000] = std::string(i % 3000, 'x');
        int *p = new int[1 + i % 50];
        p[0] = id;
        delete[] p;
        char *q = new (std::nothrow) char[100];
        delete[] q;
        char *a = new (std::align_val_t(128)) char[200];
        ::operator delete[](a, std::align_val_t(128));
        if (MAY_FAIL && i % 1000 == 0) {
            try {
                volatile size_t n = ~size_t(0) / 2;
                char *volatile much = new char[n];
                delete[] much;
                std::puts("wrong");
            } catch (std::bad_alloc &) {
            }
        }
        if (i % 200000 == 0) {
            std::puts("round");
            std::fflush(stdout);
        }
    }
}
int main()
{
    std::puts("ready");
    std::fflush(stdout);
    std::thread other(churn, 1);
    churn(2);
}
"""


def other_allocator(name):
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                   "/usr/local/lib"):
        for path in sorted(glob.glob("%s/lib%s.so*" % (folder, name)) +
                           glob.glob("%s/lib%s_minimal.so*" % (folder, name))):
            return path
    pytest.skip("no lib%s here" % name)


@pytest.mark.parametrize("allocator", [None, "jemalloc", "tcmalloc", "mimalloc"])
@pytest.mark.parametrize("flags", [(), ("-static-libstdc++", "-static-libgcc")],
                         ids=["shared", "static"])
def test_cplusplus(world, flags, allocator):
    env = {"LD_PRELOAD": other_allocator(allocator)} if allocator else {}
    source = world.tmp / "churn.cc"
    source.write_text(CPLUSPLUS)
    # mimalloc as distributions build it, of C, ends a program whose operator new finds no memory
    path = build(world.tmp / "churn", "-std=c++17", "-DMAY_FAIL=%d" % (allocator != "mimalloc"),
                 *flags, source=source, compiler="g++")
    target = world.start(str(path), env=env)
    target.wait_line("ready")
    enter_and_leave(target, 20)
    assert target.probing("plugin", "load", "memory").returncode == 0
    before = target.output().count("round")
    wait_for(lambda: target.output().count("round") > before + 2, "more rounds")
    assert target.output().count("wrong") == 0


PRIVATE = r"""
#include <stdlib.h>
#include <string.h>
/* An allocator of its own, which only those see that were linked with it. */
static char room[1 << 20];
static size_t used;
void *malloc(size_t n) { return room + (used += (n + 31) & ~15UL) % (sizeof(room) / 2); }
void free(void *p) { if (p && ((char *)p < room || (char *)p >= room + sizeof(room))) abort(); }
void *calloc(size_t a, size_t b) { return memset(malloc(a * b), 0, a * b); }
void *realloc(void *p, size_t n) { void *q = malloc(n); if (p) memcpy(q, p, n); return q; }
char *taken(void) { return malloc(50); }
"""


DEEP = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
    int (*use)(void) = (int (*)(void))dlsym(library, "use");
    puts("ready");
    fflush(stdout);
    while (access(argv[2], F_OK) != 0)
        usleep(1000);
    for (; argc == 3; usleep(1000)) {
        use();
        puts("round");
        fflush(stdout);
    }
}
"""
USER = r"""
#include <stdlib.h>
char *taken(void);
int use(void);
int use(void)
{
    for (int i = 0; i < 10; i++) {
        char *p = malloc(100);
        p[99] = 1;
        free(p);
        free(taken());
    }
    return 0;
}
"""


@pytest.mark.parametrize("bound", ["lazy", "now"])
@pytest.mark.parametrize("used", [False, True])
def test_an_object_with_an_allocator_of_its_own_keeps_it(world, bound, used):
    """Loaded with RTLD_DEEPBIND, its calls go to another malloc() than everybody's."""
    for name, text in (("private", PRIVATE), ("user", USER), ("deep", DEEP)):
        (world.tmp / (name + ".c")).write_text(text)
    build(world.tmp / "libprivate.so", "-shared", "-fPIC", source=world.tmp / "private.c")
    build(world.tmp / "libuser.so", "-shared", "-fPIC", "-Wl,-z," + bound, "-Wl,-rpath,$ORIGIN",
          "-L" + str(world.tmp), "-Wl,--no-as-needed", "-lprivate", source=world.tmp / "user.c")
    path, begin = build(world.tmp / "deep", source=world.tmp / "deep.c"), world.tmp / "begin"
    if used:
        begin.touch()  # it has made its calls when it is entered
    target = world.start(str(path), str(world.tmp / "libuser.so"), str(begin))
    target.wait_line("round" if used else "ready")
    target.inject("--wait", "--plugin", "memory")
    begin.touch()

    def goes_on():
        before = target.output().count("round")
        wait_for(lambda: target.output().count("round") > before + 20 or not target.alive(),
                 "more rounds")
        assert target.alive()
    goes_on()
    enter_and_leave(target, 5)
    goes_on()


def test_entered_again_after_eject_while_python_allocates(world):
    """A thread's last look at Python was kept from the plugin before: it crashed."""
    target = world.python("keep = []\n"
                          "def a(n): return b(n)\n"
                          "def b(n): return [bytearray(20000 + i) for i in range(n)]\n"
                          "print('ready', flush=True)\n"
                          "while True: keep = a(50)\n")
    target.wait_line("ready")
    for life in range(4):
        target.inject("--plugin", "memory", "-D", "memory.sample_bytes=64KB")
        wait_for(lambda: target.rows("select count(*) > 5 from memory.samples") == [[True]],
                 "samples of life %d" % life)
        assert target.probing("plugin", "stop", "memory").returncode == 0
        assert target.probing("plugin", "load", "memory").returncode == 0
        assert target.probing("eject").returncode == 0
        assert target.alive()
