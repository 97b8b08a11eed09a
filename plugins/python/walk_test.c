/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/walk_test.c - read a running interpreter many thousand times: no impossible stack.
 *
 * Each libpython of the machine (Debian's and pyenv's) is loaded in a process of its own, runs four
 * threads that call chains f0 f1 f2 ... and g0 g1 g2 ..., makes and frees code objects and threads,
 * and is read by a thread that is not Python's.  Skipped where there is no shared libpython.
 */
#include "walk.h"

#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/test.h"

#define READS 3000 /* a version: 20,000 with seven of them */
#define SECONDS 10 /* at most, a version; then what was read must do */

static const char program[] =
    "import sys, threading, time\n"
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
    "for t in (work, work, work, churn):\n"
    "    threading.Thread(target=t, daemon=True).start()\n";

struct counts {
    long stacks, whole, deep, bad;
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
        int depth = walk_stack(w, &threads[i], frames, WALK_FRAMES, &end);
        c->stacks++;
        c->whole += end == WALK_WHOLE;
        c->deep += depth > 10;
        if (impossible(w, frames, depth))
            c->bad++;
    }
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
    time_t end = time(NULL) + SECONDS;
    while (c.stacks < READS && time(NULL) < end)
        read_all(&w, &c);
    printf("# 3.%u: %ld stacks, %ld whole, %ld deep, %ld impossible\n", py.version >> 16 & 0xff,
           c.stacks, c.whole, c.deep, c.bad);
    CHECK_INT(c.bad, 0);
    CHECK(c.stacks >= 1000);
    CHECK(c.deep >= 20); /* how often a stack is deep when read is the scheduler's */
    CHECK(c.whole * 2 > c.stacks);
    walk_close(&w);
    return NULL;
}

/* In a process of its own: its interpreter never ends, as a killed one would not. */
static int run_library(const char *path)
{
    pthread_t thread;
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return TEST_SKIP;
    void (*begin)(int) = (void (*)(int))dlsym(library, "Py_InitializeEx");
    int (*run)(const char *, void *) =
        (int (*)(const char *, void *))dlsym(library, "PyRun_SimpleStringFlags");
    void *(*leave)(void) = (void *(*)(void))dlsym(library, "PyEval_SaveThread");
    begin(0);
    if (run(program, NULL))
        return 1;
    (void)leave();
    if (!CHECK_INT(pthread_create(&thread, NULL, reader, NULL), 0))
        return 1;
    (void)pthread_join(thread, NULL);
    (void)fflush(stdout);
    return atomic_load(&test_bad_checks) ? 1 : 0;
}

static void try_library(const char *path, int *tried)
{
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(run_library(path));
    int status = 0;
    if (!CHECK(pid > 0) || !CHECK(waitpid(pid, &status, 0) == pid))
        return;
    if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIP)
        return;
    if (!CHECK(WIFEXITED(status)) || !CHECK_INT(WEXITSTATUS(status), 0))
        printf("# %s: %x\n", path, (unsigned)status);
    ++*tried;
}

static int libraries;

TEST(no_impossible_stack)
{
    const char *home = getenv("HOME");
    char pattern[300];
    glob_t found = {0};
    (void)snprintf(pattern, sizeof(pattern), "%s/.pyenv/versions/3.*/lib/libpython3.*.so.1.0",
                   home ? home : "");
    (void)glob("/usr/lib/*-linux-gnu/libpython3.*.so.1.0", 0, NULL, &found);
    (void)glob(pattern, GLOB_APPEND, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *minor = strstr(found.gl_pathv[i], "libpython3.") + 11;
        int number = minor[1] == '.' ? minor[0] - '0' : (minor[0] - '0') * 10 + minor[1] - '0';
        if (number >= 8 && number <= 14)
            try_library(found.gl_pathv[i], &libraries);
    }
    globfree(&found);
}

int main(void)
{
    RUN(no_impossible_stack);
    return libraries || test_end() ? test_end() : test_skip("no shared libpython 3.8 to 3.14");
}
