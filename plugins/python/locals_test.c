/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/locals_test.c - variables that threads change all the time: JSON, no fault.
 *
 * Each shared libpython of the machine runs two threads that make, change and drop values of all
 * kinds, and is read by a thread that is not Python's, into buffers of several sizes.  Of use under
 * the address sanitizer, too.
 * usage: locals_test [SECONDS [LIBRARY...]]: a second of each version, or of these libraries
 */
#include "locals.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/test.h"

#define LEAST 200 /* frames with variables, of each version */
#define MOST_S 60 /* for these, on a busy machine */

static long seconds = 1;

static const char program[] =
    "import random, threading\n"
    "R = random.Random(1)\n"
    "class A:\n"
    "    def __init__(self, n): self.a = n; self.b = [n]; self.c = {'x': n}\n"
    "class S(str): pass\n"
    "class I(int): pass\n"
    "class D(dict): pass\n"
    "class T(tuple): pass\n"
    "def many(d, n): return [value(d + 1) for _ in range(R.randrange(n))]\n"
    "kinds = [\n"
    "    lambda d: many(d, 9), lambda d: {R.choice([1, 'a', (1, 2)]): v for v in many(d, 30)},\n"
    "    lambda d: A(value(d + 1)), lambda d: S('x' * R.randrange(300)), lambda d: kinds[0],\n"
    "    lambda d: I(R.getrandbits(R.randrange(1, 3000))), lambda d: set(range(R.randrange(99))),\n"
    "    lambda d: R.getrandbits(R.randrange(1, 3000)), lambda d: ValueError(value(d + 1)),\n"
    "    lambda d: '\\U0001f600\\0\"' * R.randrange(100), lambda d: bytearray(R.randrange(999)),\n"
    "    lambda d: bytes(range(R.randrange(256))), lambda d: 1j * R.random(), lambda d: A(1).a,\n"
    "    lambda d: D(a=value(d + 1)), lambda d: T(many(d, 4)), lambda d: R.random(),\n"
    "    lambda d: type('Made%d' % R.randrange(9), (A,), {})(3)]\n"
    "def value(d=0): return R.choice(kinds)(d) if d < 4 else d\n"
    "def churn():\n"
    "    while True:\n"
    "        a, b, c, e, o = value(), value(), {'k': value()}, [value()], A(1)\n"
    "        def shares(): return a\n"
    "        for i in range(5):\n"
    "            e.append(value()); c[i] = value(); o.__dict__['q%d' % i] = value()\n"
    "        class Body: q = value(); w = [value() for _ in range(2)]\n"
    "        e.clear(); c.clear(); del o\n"
    "for i in range(2): threading.Thread(target=churn, daemon=True).start()\n";

/* Braces, brackets and quotes close each other, and nothing follows. */
static bool closes(const char *p)
{
    char open[64];
    int depth = 0;
    for (; *p; p++) {
        if (*p == '"')
            for (p++; *p && *p != '"'; p++)
                p += *p == '\\' && p[1];
        else if (*p == '{' || *p == '[')
            open[depth++] = *p == '{' ? '}' : ']';
        else if ((*p == '}' || *p == ']') && (depth == 0 || open[--depth] != *p))
            return false;
        if (!*p || depth == (int)sizeof(open) || (depth == 0 && p[1]))
            return false;
    }
    return depth == 0;
}

/* How many frames had variables. */
static long read_all(struct walk *w)
{
    static struct walk_thread threads[64];
    static struct walk_frame frames[WALK_FRAMES];
    static const size_t sizes[] = {LOCALS_BYTES, 2000, 1001};
    long some = 0;
    int n = walk_threads(w, threads, 64);
    for (int i = 0; i < n; i++) {
        enum walk_end end;
        int depth = walk_stack(w, &threads[i], frames, WALK_FRAMES, &end);
        for (int k = 0; k < depth; k++) {
            if (walk_is_shim(w, &frames[k]))
                continue;
            size_t size = sizes[k % 3];
            char *text = malloc(size); /* a byte too many is seen by the sanitizer */
            locals_json(w, &frames[k], text, size);
            if (text[0] && !CHECK(closes(text)))
                printf("# %s\n", text);
            some += strlen(text) > 2;
            free(text);
        }
    }
    return some;
}

static void *reader(void *arg)
{
    static struct walk w;
    struct cpython py;
    char why[200];
    long some = 0;
    (void)arg;
    if (!CHECK_INT(cpython_load(&py), 0) || !CHECK_INT(walk_open(&w, &py, 0, why, sizeof(why)), 0))
        return NULL;
    for (time_t begin = time(NULL), now = begin;
         now - begin <= seconds || (some < LEAST && now - begin < MOST_S); now = time(NULL))
        some += read_all(&w);
    CHECK(some >= LEAST);
    walk_close(&w);
    return NULL;
}

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
    if (!CHECK_INT(run(program, NULL), 0))
        return 1;
    (void)leave();
    if (!CHECK_INT(pthread_create(&thread, NULL, reader, NULL), 0))
        return 1;
    (void)pthread_join(thread, NULL);
    (void)fflush(stdout);
    return atomic_load(&test_bad_checks) ? 1 : 0;
}

static int tried;

static void try_library(const char *path)
{
    int status = 0;
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(run_library(path));
    if (!CHECK(pid > 0) || !CHECK(waitpid(pid, &status, 0) == pid))
        return;
    if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIP)
        return;
    if (!CHECK(WIFEXITED(status)) || !CHECK_INT(WEXITSTATUS(status), 0))
        printf("# %s: %x\n", path, (unsigned)status);
    tried++;
}

static char **named; /* on the command line */

TEST(variables_that_change)
{
    const char *home = getenv("HOME");
    char pattern[300];
    glob_t found = {0};
    for (; named && *named; named++)
        try_library(*named);
    if (named)
        return;
    (void)snprintf(pattern, sizeof(pattern), "%s/.pyenv/versions/3.*/lib/libpython3.*.so.1.0",
                   home ? home : "");
    (void)glob("/usr/lib/*-linux-gnu/libpython3.*.so.1.0", 0, NULL, &found);
    (void)glob(pattern, GLOB_APPEND, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        long minor = strtol(strstr(found.gl_pathv[i], "libpython3.") + 11, NULL, 10);
        if (minor >= 8 && minor <= 14)
            try_library(found.gl_pathv[i]);
    }
    globfree(&found);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seconds = strtol(argv[1], NULL, 10);
    named = argc > 2 ? argv + 2 : NULL;
    RUN(variables_that_change);
    return tried || test_end() ? test_end() : test_skip("no shared libpython 3.8 to 3.14");
}
