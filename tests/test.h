/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/test.h - the few words a unit test is written in.
 * Threads: checks may be called from any thread; the counters are atomic.
 * It does not find tests, fork, or time them: a test program is a `main` that RUNs its cases.
 *
 *     TEST(adds_up)
 *     {
 *         CHECK_INT(1 + 1, 2);
 *         if (!CHECK(pointer != NULL))
 *             return;
 *     }
 *
 *     int main(void)
 *     {
 *         RUN(adds_up);
 *         return test_end();
 *     }
 *
 * Each case prints `ok name` or `not ok name`, with a `#` line per failed check before it.
 * A program that cannot run here says `return test_skip("why");` instead.
 */
#ifndef PROBING_TESTS_TEST_H
#define PROBING_TESTS_TEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define TEST_SKIP 77 /* exit code: "could not be tried here", as in automake */

#define TEST(name) static void test_##name(void)
#define RUN(name) test_run(#name, test_##name)

/* Each gives true when it held, so that a case can leave early by itself. */
#define CHECK(x) test_check((x) ? true : false, #x, __FILE__, __LINE__)
#define CHECK_INT(a, b) test_int((long long)(a), (long long)(b), #a, #b, __FILE__, __LINE__)
#define CHECK_STR(a, b) test_str((a), (b), #a, __FILE__, __LINE__)

static _Atomic int test_bad_checks; /* in the case that runs */
static _Atomic int test_bad_cases;

static inline bool test_check(bool held, const char *text, const char *file, int line)
{
    if (!held) {
        printf("# %s:%d: not true: %s\n", file, line, text);
        atomic_fetch_add_explicit(&test_bad_checks, 1, memory_order_relaxed);
    }
    return held;
}

static inline bool test_int(long long a, long long b, const char *text_a, const char *text_b,
                            const char *file, int line)
{
    if (a == b)
        return true;
    printf("# %s:%d: %s is %lld, not %lld (%s)\n", file, line, text_a, a, b, text_b);
    atomic_fetch_add_explicit(&test_bad_checks, 1, memory_order_relaxed);
    return false;
}

static inline bool test_str(const char *a, const char *b, const char *text, const char *file,
                            int line)
{
    if (a == b || (a && b && strcmp(a, b) == 0))
        return true;
    printf("# %s:%d: %s is \"%s\", not \"%s\"\n", file, line, text, a ? a : "(null)",
           b ? b : "(null)");
    atomic_fetch_add_explicit(&test_bad_checks, 1, memory_order_relaxed);
    return false;
}

static inline void test_run(const char *name, void (*body)(void))
{
    atomic_store_explicit(&test_bad_checks, 0, memory_order_relaxed);
    body();
    bool held = atomic_load_explicit(&test_bad_checks, memory_order_relaxed) == 0;
    if (!held)
        atomic_fetch_add_explicit(&test_bad_cases, 1, memory_order_relaxed);
    printf("%s %s\n", held ? "ok" : "not ok", name);
    (void)fflush(stdout); /* a case that crashes must not take its neighbours' lines along */
}

static inline int test_skip(const char *why)
{
    printf("# skipped: %s\n", why);
    return TEST_SKIP;
}

/* The program's exit code. */
static inline int test_end(void)
{
    return atomic_load_explicit(&test_bad_cases, memory_order_relaxed) ? 1 : 0;
}

#endif
