/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fail_alloc.h - make the n-th allocation of the calling thread fail.
 * Threads: each thread has its own countdown; others are never disturbed.
 * It does not reach allocations that the C library makes for itself (fopen, getaddrinfo).
 *
 *     for (unsigned n = 1; fail_alloc_step(n); n++) {
 *         struct thing *t = thing_new();    ... every path must end clean; NULL is fine
 *         thing_free(t);
 *     }
 *
 * Works through the linker's --wrap, which `scons` gives to every unit test.
 */
#ifndef PROBING_TESTS_FAIL_ALLOC_H
#define PROBING_TESTS_FAIL_ALLOC_H

#include <stdbool.h>

/* The n-th allocation from now fails, once (n = 1: the next one).  0 switches it off. */
void fail_alloc_at(unsigned n);

/* Did it come to that since fail_alloc_at()? */
bool fail_alloc_happened(void);

/* For a loop over n = 1, 2, 3 ...: arms the n-th failure, and gives false (switched off) as soon
 * as the round before had too few allocations to fail. */
bool fail_alloc_step(unsigned n);

#endif
