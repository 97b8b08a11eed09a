/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/fuzz.h - what a fuzz target gives, and what driver.c does with it.
 *
 * usage of each target: TARGET [file ...]
 *
 * Every file, or where none is named the target's own seed, is fed as it is, cut at every length
 * and with every byte changed (where it is long, at some thousands of places), and changed a
 * thousand times at random.  A real fuzzer (clang -fsanitize=fuzzer) brings its own main().
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Aborts where a promise is broken; what sanitizers find ends it, too. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Optional: an input that the code under test has written itself.  Gives its size. */
__attribute__((weak)) size_t fuzz_seed(uint8_t *data, size_t max);

#endif
