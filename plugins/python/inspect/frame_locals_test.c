/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/frame_locals_test.c - variables that threads change all the time: JSON, no
 * fault.
 *
 * Each shared libpython of the machine runs two threads that make, change and drop values of all
 * kinds, and is read by a thread that is not Python's, into buffers of several sizes.  Of use under
 * the address sanitizer, too.
 * usage: locals_test [SECONDS [LIBRARY...]]: a second of each version, or of these libraries
 */
#include "inspect/frame_locals.h"

#include <stdlib.h>
#include <time.h>

#include "inspect/libraries_test.h"

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

static int libraries;
static char **named; /* on the command line */

TEST(variables_that_change)
{
    const struct libraries_job job = {program, reader};
    libraries = libraries_run(named, &job);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seconds = strtol(argv[1], NULL, 10);
    named = argc > 2 ? argv + 2 : NULL;
    RUN(variables_that_change);
    return libraries || test_end() ? test_end() : test_skip("no shared libpython 3.8 to 3.15");
}
