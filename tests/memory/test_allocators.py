# SPDX-License-Identifier: Apache-2.0
"""Allocators in the place of libc's: what is asked of them in each way is seen with its size, and
what was freed in each way is gone."""
import re
import shutil
import subprocess

import pytest

import test_hooks
from test_hooks import build, other_allocator

SIGMAS = 6  # of the stated error: one in 500 million is further off
EACH = 1500
SIZE = 20480  # of any alignment a multiple

# Each function keeps EACH blocks of SIZE bytes, and frees as many that it made in the same way.
SOURCE = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>
#include <unistd.h>
static void *kept[64][EACH];
static int ways;
static char text[SIZE];
#define WAY(name, make, take)                                            \
    extern "C" __attribute__((noinline)) void name()                     \
    {                                                                    \
        for (int i = 0; i < 2 * EACH; i++) {                             \
            void *p = make;                                              \
            if (!p || malloc_usable_size(p) < SIZE)                      \
                abort();                                                 \
            memset(p, i, SIZE);                                          \
            if (i % 2)                                                   \
                kept[ways][i / 2] = p;                                   \
            else                                                         \
                take;                                                    \
        }                                                                \
        ways++;                                                          \
    }
static void *in_posix_memalign()
{
    void *p = nullptr;
    return posix_memalign(&p, 256, SIZE) ? nullptr : p;
}
using std::align_val_t;
using std::nothrow;
WAY(by_malloc, malloc(SIZE), free(p))
WAY(by_calloc, calloc(SIZE / 8, 8), free(p))
WAY(by_realloc, realloc(realloc(malloc(100), 3000), SIZE), free(p))
WAY(by_reallocarray, reallocarray(nullptr, SIZE / 8, 8), free(p))
WAY(by_memalign, memalign(4096, SIZE), free(p))
WAY(by_aligned_alloc, aligned_alloc(32, SIZE), free(p))
WAY(by_posix_memalign, in_posix_memalign(), free(p))
WAY(by_valloc, valloc(SIZE), free(p))
WAY(by_new, ::operator new(SIZE), ::operator delete(p))
WAY(by_new_sized, ::operator new(SIZE), ::operator delete(p, size_t(SIZE)))
WAY(by_new_array, ::operator new[](SIZE), ::operator delete[](p))
WAY(by_new_nothrow, ::operator new(SIZE, nothrow), ::operator delete(p, nothrow))
WAY(by_new_aligned, ::operator new(SIZE, align_val_t(128)),
    ::operator delete(p, align_val_t(128)))
WAY(by_new_array_aligned, ::operator new[](SIZE, align_val_t(64)),
    ::operator delete[](p, SIZE, align_val_t(64)))
WAY(by_strdup, strdup(text), free(p)) /* libc's own call */
static void say(const char *word)
{
    std::printf("%s\n", word);
    std::fflush(stdout);
}
static void wait_for(const char *path)
{
    while (access(path, F_OK) != 0)
        usleep(1000);
}
int main(int, char **argv)
{
    memset(text, 'x', SIZE - 1);
    /* made before the plugin comes, and by whoever the allocator is: freed while it is in */
    void *before[3] = {malloc(SIZE), ::operator new(SIZE), memalign(64, SIZE)};
    say("ready");
    wait_for(argv[1]);
    by_malloc(), by_calloc(), by_realloc(), by_reallocarray(), by_memalign(), by_aligned_alloc();
    by_posix_memalign(), by_valloc(), by_new(), by_new_sized(), by_new_array(), by_new_nothrow();
    by_new_aligned(), by_new_array_aligned(), by_strdup();
    free(before[0]), ::operator delete(before[1]), free(before[2]);
    say("kept");
    wait_for(argv[2]);
    /* when the plugin is out again, what came through it goes to the allocator that made it */
    for (int way = 0; way < ways; way++)
        for (void *p : kept[way])
            if (way >= 8 && way < 14) {
                if (way == 12) ::operator delete(p, align_val_t(128));
                else if (way == 13) ::operator delete[](p, align_val_t(64));
                else if (way == 10) ::operator delete[](p);
                else ::operator delete(p);
            } else
                free(p);
    say("freed");
    for (;;)
        pause();
}
"""
WAYS = re.findall(r"^WAY\((\w+),", SOURCE, flags=re.M)
NAMES = {None: "glibc"}


@pytest.fixture(params=[None, "jemalloc", "tcmalloc", "mimalloc"])
def allocator(request):
    return request.param


def test_each_way_to_allocate(world, allocator):
    env = {"LD_PRELOAD": other_allocator(allocator)} if allocator else {}
    source = world.tmp / "ways.cc"
    source.write_text(SOURCE)
    path = build(world.tmp / "ways", "-std=c++17", "-fno-builtin", "-fno-plt",
                 "-DEACH=%d" % EACH, "-DSIZE=%d" % SIZE, source=source, compiler="g++")
    go, then = world.tmp / "go", world.tmp / "then"
    target = world.start(str(path), str(go), str(then), env=env)
    target.wait_line("ready")
    target.inject("--plugin", "memory", "-D", "memory.sample_bytes=16KB",
                  "-D", "memory.max_overhead_pct=0")
    assert target.rows("select allocator from memory.sampling") == [[NAMES.get(allocator,
                                                                               allocator)]]
    go.touch()
    target.wait_line("^kept")
    rows = {name: row for name, *row in target.rows(
        "select function_name, sum(bytes), sqrt(sum(bytes_error::double * bytes_error)), "
        "sum(samples) from memory.live group by 1")}
    (lost, bare), = target.rows("select lost, without_stack from memory.sampling")
    for way in WAYS:
        told, error, samples = rows.get(way, (0, 0, 0))
        print("%-22s %9d +- %7d, %d samples" % (way, told, error, samples))
        assert abs(told - EACH * SIZE) <= SIGMAS * error + lost * SIZE, (way, rows)
    sizes = target.rows("select distinct size from memory.samples where function_name in ('%s')"
                        % "', '".join(w for w in WAYS if w not in ("by_realloc",)))
    assert sizes == [[SIZE]], sizes
    # the blocks are freed in the ways in which they may be: what is alive then is of nobody here
    then.touch()
    target.wait_line("^freed")
    left = target.rows("select function_name, sum(bytes) from memory.live where function_name in "
                       "('%s') group by 1" % "', '".join(WAYS))
    assert left == [], left
    assert target.probing("plugin", "stop", "memory").returncode == 0
    assert target.alive(), target.output()


# ---- what cannot be seen, in words ----

def test_an_allocator_in_the_program_is_said(world):
    path = build(world.tmp / "own", "-DOWN_ALLOCATOR", source=test_hooks.LIVES)
    target = world.start(str(path), "exit", str(world.tmp / "end"))
    target.wait_line("ready")
    target.inject("--plugin", "memory")
    words = "what the program itself allocates, as malloc() is part of it"
    assert target.rows("select not_seen from memory.sampling") == [[words]]
    assert words in " ".join(target.probing("memory").stdout.split())
    assert target.probing("plugin", "stop", "memory").returncode == 0
    assert target.alive()


def test_a_static_program_is_refused(world):
    source, path = world.tmp / "still.c", world.tmp / "still"
    source.write_text("#include <stdio.h>\n#include <unistd.h>\n"
                      "int main(void) { puts(\"ready\"); fflush(stdout); for (;;) pause(); }\n")
    if not shutil.which("gcc") or subprocess.run(
            ["gcc", "-static", "-o", str(path), str(source)], capture_output=True).returncode:
        pytest.skip("static programs cannot be linked here")
    target = world.start(str(path))
    target.wait_line("ready")
    done = target.probing("inject", "--plugin", "memory")
    assert done.returncode != 0 and "static" in done.stderr, done.stdout + done.stderr
    assert target.alive()
