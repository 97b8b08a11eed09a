/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/python_stack_bench.c - what a Python stack with its lines takes, without the GIL.
 *
 * usage: python_stack_bench LIBPYTHON [ROUNDS]       such as libpython3.12.so.1.0; 20 by default
 *
 * Two threads are 30 calls deep, in 30 functions: one waits for a lock, one runs at full speed (its
 * innermost function loops).  Each is read many times; shown is the least time of a stack over the
 * rounds, of the walk alone and with names, lines and columns of all its frames.  A round counts
 * when the thread that runs had a core for most of it.  Last: what the kernel's reads of a running
 * one take by themselves, which no code of ours can be quicker than.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugins/python/inspect/interpreter.h"
#include "tests/bench/bench.h"

#define READS 500 /* a round */

static const char program[] =
    "import threading\n"
    "lock = threading.Lock(); lock.acquire()\n"
    "names = {'lock': lock}\n"
    "for kind, end in (('w', 'lock.acquire()'), ('r', 'while True: pass')):\n"
    "    for i in range(29):\n"
    "        code = 'def %s%d(n):\\n    a = n\\n    b = [x for x in range(n)]\\n' % (kind, i)\n"
    "        exec(code + ('    ' + end if i == 28 else '    return %s%d(n)' % (kind, i + 1)),\n"
    "             names)\n"
    "    threading.Thread(target=names[kind + '0'], args=(3,), name=kind, daemon=True).start()\n";

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static struct walk_frame frames[WALK_FRAMES];
static volatile int sum; /* of the lines: they are made use of */

/* A stack with or without its texts; how deep, below 0: not whole. */
static int read_one(struct walk *w, const struct walk_thread *t, int texts)
{
    enum walk_end end;
    int n = walk_stack(w, t, frames, WALK_FRAMES, &end);
    if (texts)
        code_cache_check(w, frames, (size_t)n);
    for (int i = 0; texts && i < n; i++) {
        struct walk_text text;
        if (walk_is_shim(w, &frames[i]))
            continue;
        walk_text(w, &frames[i], &text);
        sum += text.line;
    }
    return end == WALK_WHOLE ? n : -1;
}

/* CPU time of another thread. */
static double cpu_us(int32_t tid)
{
    struct timespec t = {0};
    (void)clock_gettime((clockid_t)((~(unsigned)tid << 3) | 6u), &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void measure(struct walk *w, const struct walk_thread *t, bool runs, int rounds)
{
    double best[2] = {1e9, 1e9}, over = now_us() + 2e7;
    int depth = 0, done[2] = {0, 0};
    while ((done[0] < rounds || done[1] < rounds) && now_us() < over)
        for (int texts = 0; texts < 2; texts++) {
            double begin = now_us(), cpu = cpu_us(t->tid);
            for (int k = 0; k < READS; k++)
                depth = read_one(w, t, texts);
            cpu = cpu_us(t->tid) - cpu;
            double took = now_us() - begin;
            if (runs && cpu * 10 < took * 9)
                continue;
            done[texts]++;
            best[texts] = took < best[texts] ? took : best[texts];
        }
    if (!done[0] || !done[1]) {
        printf("# runs: it never had a core for long enough: the machine is busy\n");
        return;
    }
    const char *what = runs ? "a thread that runs" : "a thread that waits";
    char name[64];
    (void)snprintf(name, sizeof(name), "%s, with lines", what);
    bench_figure(what, "us", "best=%.4g\tframes=%d", best[0] / READS, depth);
    bench_figure(name, "us", "best=%.4g\trounds=%d\tratio=%.4g\tagainst=%s", best[1] / READS,
                 done[1], best[1] / best[0], what);
}

/* The time that the kernel alone takes to read as much as a running stack of 30 frames: five
 * readings of its pointers and frames, and 30 code objects, of memory that nobody else touches. */
static double reads_us(int rounds)
{
    enum { READINGS = 5, CODES = 30, FRAMES_BYTES = 2880, CODE_BYTES = 144, NOINLINE = 4160 };
    static uint8_t from[FRAMES_BYTES + 4096 + CODES * NOINLINE], to[1 << 16];
    struct iovec pieces[READINGS * 3 + CODES];
    struct peek own;
    size_t n = 0;
    double best = 1e9;
    memset(from, 1, sizeof(from));
    for (int i = 0; i < READINGS; i++) {
        pieces[n++] = peek_piece((uint64_t)(uintptr_t)from, 8);
        pieces[n++] = peek_piece((uint64_t)(uintptr_t)from + 64, 8);
        pieces[n++] = peek_piece((uint64_t)(uintptr_t)from + 128, FRAMES_BYTES);
    }
    for (int i = 0; i < CODES; i++)
        pieces[n++] =
            peek_piece((uint64_t)(uintptr_t)from + 4096 + (size_t)i * NOINLINE, CODE_BYTES);
    if (peek_open(&own, 0, 0))
        return 0;
    for (int i = 0; i < rounds; i++) {
        double begin = now_us();
        for (int k = 0; k < READS; k++)
            (void)peek_pieces(&own, pieces, n, to);
        double took = now_us() - begin;
        best = took < best ? took : best;
    }
    peek_close(&own);
    return best / READS;
}

/* 'w' or 'r': the thread is in the innermost of these 30 functions; 0: not, or not yet. */
static char arrived(struct walk *w, const struct walk_thread *t)
{
    struct walk_text text;
    int n = read_one(w, t, 0);
    for (int i = 0; i < 4 && i < n; i++) {
        walk_text(w, &frames[i], &text);
        if (strcmp(text.func, "w28") == 0 || strcmp(text.func, "r28") == 0)
            return text.func[0];
    }
    return 0;
}

static void *reader(void *arg)
{
    static struct walk_thread threads[64];
    struct cpython py;
    struct walk w;
    char why[200];
    int rounds = *(const int *)arg, found = 0;
    if (cpython_load(&py) || walk_open(&w, &py, 0, why, sizeof(why)))
        return NULL;
    double end = now_us() + 1e7;
    while (found < 2 && now_us() < end) {
        int n = walk_threads(&w, threads, 64);
        found = 0;
        for (int i = 0; i < n; i++)
            found += arrived(&w, &threads[i]) != 0;
        for (int i = 0; i < n && found == 2; i++) {
            char which = arrived(&w, &threads[i]);
            if (which)
                measure(&w, &threads[i], which == 'r', rounds);
        }
    }
    walk_close(&w);
    bench_figure("the kernel's reads of one that runs", "us", "best=%.4g", reads_us(rounds));
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 20;
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (argc > 1 && !library) {
        printf("# %s\n", dlerror());
        return 77; /* it cannot run here */
    }
    if (!library) {
        (void)fprintf(stderr, "usage: python_stack_bench LIBPYTHON [ROUNDS]\n");
        return 2;
    }
    void (*begin)(int) = (void (*)(int))dlsym(library, "Py_InitializeEx");
    int (*run)(const char *, void *) =
        (int (*)(const char *, void *))dlsym(library, "PyRun_SimpleStringFlags");
    void *(*leave)(void) = (void *(*)(void))dlsym(library, "PyEval_SaveThread");
    begin(0);
    if (run(program, NULL))
        return 1;
    (void)leave();
    printf("# %s\n", argv[1]);
    if (pthread_create(&thread, NULL, reader, &rounds))
        return 1;
    (void)pthread_join(thread, NULL);
    (void)fflush(stdout);
    _Exit(0); /* its threads run on */
}
