/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/interpreter_test.c - read a running interpreter many thousand times: no
 * impossible stack.
 *
 * Each libpython of the machine (Debian's and pyenv's) is loaded in a process of its own, runs five
 * threads that call chains f0 f1 f2 ... and g0 g1 g2 ..., makes and frees code objects and threads,
 * and is read by a thread that is not Python's.  Skipped where there is no shared libpython.
 * usage: walk_test [READS [SECONDS [LIBRARY...]]]: so many of each version, or of these libraries
 */
#include "inspect/interpreter.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "inspect/libraries_test.h"

#define LEAST 300   /* stacks of each version, however long that takes */
#define DEEP 20     /* stacks of more than ten functions, at least */
#define GARBAGE 300 /* reads of what is no thread, no frame, no code object */

#define REUSED 14         /* functions made and freed one after the other */
#define REUSED_SECONDS 60 /* for these: a moment, unless the machine is busy */

static int fds[2];        /* what the function waits for */
static long reads = 2000; /* a version: 14,000 with seven of them */
static long seconds = 10; /* a version; then what was read does, if it is enough */

static const char program[] =
    "import os, sys, threading, time\n"
    "names = {'n': 0}\n"
    "for c in 'fg':\n"
    "    for i in range(28):\n"
    "        exec('def %s%d(n): return n if n == %d else %s%d(n)' % (c, i, i, c, i + 1), names)\n"
    "    exec('def %s28(n): return n' % c, names)\n"
    "f0, g0 = names['f0'], names['g0']\n"
    "def work():\n"
    "    i = 0\n"
    "    while True:\n"
    "        i += 1\n"
    "        (f0 if i & 1 else g0)(i % 29)\n"
    "def churn():\n"
    "    while True:\n"
    "        made = {}\n"
    "        exec('def made%d(n): return n' % (time.time() * 1e6), made)\n"
    "        t = threading.Thread(target=list(made.values())[-1], args=(1,))\n"
    "        t.start(); t.join()\n"
    "def reuse():\n"
    "    i = 0\n"
    "    while True:\n" /* the number is the line: code objects and names in the same places */
    "        i += 1\n"
    "        made, line = {}, 2 + i % 7\n"
    "        exec('def e%d(n):%sread(n, 1)' % (line, '\\n' * (line - 1) + ' '),\n"
    "             {'read': os.read}, made)\n"
    "        made['e%d' % line](FD)\n"
    "        del made\n"
    "for t in (work, work, work, churn, reuse):\n"
    "    threading.Thread(target=t, daemon=True).start()\n";

struct counts {
    long stacks, whole, deep, bad; /* of threads that had run since they were read last */
};

/* "f12" to ('f', 12); others to 0. */
static char link_of(const char *name, int *ret)
{
    if ((name[0] != 'f' && name[0] != 'g') || name[1] < '0' || name[1] > '9')
        return 0;
    *ret = name[1] - '0';
    if (name[2] >= '0' && name[2] <= '9')
        *ret = *ret * 10 + name[2] - '0';
    return name[0];
}

static bool impossible(struct walk *w, const struct walk_frame *frames, int n)
{
    char chain = 0;
    int next = 0, number = 0;
    for (int i = n - 1; i >= 0; i--) {
        struct walk_text text;
        if (walk_is_shim(w, &frames[i]))
            continue;
        walk_text(w, &frames[i], &text);
        char c = link_of(text.func, &number);
        if (!c)
            continue; /* code that was freed has no name, and that is said */
        if ((chain && c != chain) || number != next)
            return true;
        chain = c;
        next++;
    }
    return false;
}

static void read_all(struct walk *w, struct counts *c)
{
    static struct walk_thread threads[64];
    static struct walk_frame frames[WALK_FRAMES];
    int n = walk_threads(w, threads, 64);
    for (int i = 0; i < n; i++) {
        enum walk_end end;
        uint64_t before = w->moment;
        int depth = walk_stack(w, &threads[i], frames, WALK_FRAMES, &end);
        if (w->moment == before)
            continue;
        c->stacks++;
        c->whole += end == WALK_WHOLE;
        c->deep += depth > 10;
        if (impossible(w, frames, depth))
            c->bad++;
    }
}

/* The line of the function e2 to e8 that waits in a read, 0: none of them does.  Its name must say
 * the same. */
static int waiting_line(struct walk *w, const struct walk_thread *threads, int n, int *ret_which)
{
    static struct walk_frame frames[WALK_FRAMES];
    for (int i = 0; i < n; i++) {
        enum walk_end end;
        struct walk_text text;
        int depth = walk_stack(w, &threads[i], frames, WALK_FRAMES, &end);
        if (depth < 1 || end != WALK_WHOLE)
            continue;
        walk_text(w, &frames[0], &text);
        if (text.func[0] == 'e' && text.func[1] == '0' + text.line && !text.func[2]) {
            *ret_which = i;
            return text.line;
        }
    }
    return 0;
}

/* Code objects that are made and freed again and again lie at the same addresses, with names at the
 * same addresses: what was known of one is not said of the next. */
static void read_reused(struct walk *w)
{
    static struct walk_thread threads[64];
    int line = 0, seen = 0, which;
    time_t end = time(NULL) + REUSED_SECONDS;
    while (seen < REUSED && time(NULL) < end) {
        int now = waiting_line(w, threads, walk_threads(w, threads, 64), &which);
        if (now && (!line || now == 2 + (line - 1) % 7)) {
            seen++;
            line = now;
            CHECK(write(fds[1], "", 1) == 1);
        } else {
            (void)sched_yield();
        }
    }
    CHECK_INT(seen, REUSED);
}

/* Addresses that are something else, or nothing: any answer, no fault, no end of time. */
static void read_garbage(struct walk *w)
{
    static struct walk_thread threads[64];
    static struct walk_frame frames[WALK_FRAMES];
    struct walk_text text;
    enum walk_end end;
    uint32_t x = 1;
    int n = walk_threads(w, threads, 64), depth = 0;
    for (int i = 0; i < n; i++)
        depth = depth > 4 ? depth : walk_stack(w, &threads[i], frames, WALK_FRAMES, &end);
    for (int i = 0; i < GARBAGE && depth > 0; i++) {
        x = x * 1664525u + 1013904223u;
        struct walk_frame f = frames[x >> 8 & 3];
        struct walk_thread t = {.state = (x & 1 ? f.address : f.code) + (x >> 12 & 511)};
        f.code += x >> 16 & 1023;
        f.instr = x & 2 ? f.instr + x : x;
        walk_text(w, &f, &text);
        code_cache_check(w, &f, 1);
        int got = walk_stack(w, &t, frames + 8, 64, &end);
        for (int k = 0; k < got; k++)
            walk_text(w, &frames[8 + k], &text);
    }
}

/* A copy of a thread's state, whose innermost frame is not there yet: from 3.11 to 3.12 it is said
 * where that will stand before it stands there. */
struct half_made {
    uint8_t state[OFFSETS_STATE];
    uint64_t nothing[64], innermost;
    int at;
};

static void *make_whole(void *arg)
{
    struct half_made *h = arg;
    (void)nanosleep(&(struct timespec){0, 20000000}, NULL);
    memcpy(h->state + h->at, &h->innermost, sizeof(h->innermost));
    return NULL;
}

static void check_half_made(struct walk *w)
{
    static struct walk_thread threads[64];
    static struct half_made h;
    char why[300] = "";
    int waits;
    while (!waiting_line(w, threads, walk_threads(w, threads, 64), &waits))
        (void)sched_yield();
    struct walk_thread t = threads[waits];
    uint64_t nothing = (uint64_t)(uintptr_t)h.nothing;
    CHECK_INT(peek_bytes(&w->peek, t.state, h.state, sizeof(h.state)), 0);
    t.state = (uint64_t)(uintptr_t)h.state;
    t.tid = (int32_t)syscall(SYS_gettid); /* one that runs: what has not run has not changed */
    h.at = w->o.ts_cframe >= 0 ? w->o.ts_cframe : w->o.ts_frame;
    memcpy(&h.innermost, h.state + h.at, sizeof(h.innermost));
    memcpy(h.state + h.at, &nothing, sizeof(nothing));
    h.nothing[w->o.ts_cframe >= 0 ? w->o.cf_frame / 8 : 0] = (uint64_t)(uintptr_t)(h.nothing + 8);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, make_whole, &h), 0);
    CHECK_INT(walk_check(w, &t, 1, why, sizeof(why)), 0);
    CHECK_STR(why, "");
    CHECK_INT(pthread_join(thread, NULL), 0);
}

static void *reader(void *arg)
{
    struct cpython py;
    struct walk w;
    char why[200];
    static struct counts c;
    (void)arg;
    if (!CHECK_INT(cpython_load(&py), 0) || !CHECK_INT(walk_open(&w, &py, 0, why, sizeof(why)), 0))
        return NULL;
    static struct walk_thread threads[64];
    CHECK_INT(walk_check(&w, threads, walk_threads(&w, threads, 64), why, sizeof(why)), 0);
    struct walk other;
    CHECK_INT(walk_open(&other, &py, 0, why, sizeof(why)), 0);
    other.o.co_file = w.o.co_lines; /* as in a build whose structures are others */
    CHECK_INT(walk_check(&other, threads, walk_threads(&other, threads, 64), why, sizeof(why)),
              -ENOTSUP);
    walk_close(&other);
    time_t end = time(NULL) + seconds;
    while (c.stacks < LEAST || c.deep < DEEP || (c.stacks < reads && time(NULL) < end))
        read_all(&w, &c);
    printf("# 3.%u: %ld stacks, %ld whole, %ld deep, %ld impossible\n", py.version >> 16 & 0xff,
           c.stacks, c.whole, c.deep, c.bad);
    CHECK_INT(c.bad, 0);
    CHECK(c.whole * 2 > c.stacks);
    check_half_made(&w);
    read_reused(&w);
    read_garbage(&w);
    walk_close(&w);
    return NULL;
}

static int libraries;
static char **named; /* on the command line */

#ifdef __SANITIZE_THREAD__
/* CPython joins its threads since 3.13, and our interpreters are left in the middle of that: one
 * that has ended and is not joined yet is a "thread leak" of libpython's. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "thread:do_start_joinable_thread\n";
}
#endif

TEST(no_impossible_stack)
{
    char text[sizeof(program) + 40];
    if (!CHECK(pipe(fds) == 0))
        return;
    (void)snprintf(text, sizeof(text), "FD = %d\n%s", fds[0], program);
    const struct libraries_job job = {text, reader};
    libraries = libraries_run(named, &job);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        reads = strtol(argv[1], NULL, 10);
    if (argc > 2)
        seconds = strtol(argv[2], NULL, 10);
    named = argc > 3 ? argv + 3 : NULL;
    RUN(no_impossible_stack);
    return libraries || test_end() ? test_end() : test_skip("no shared libpython 3.8 to 3.15");
}
