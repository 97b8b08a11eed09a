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
#include <sys/types.h>

/* Aborts where a promise is broken; what sanitizers find ends it, too. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Optional: an input that the code under test has written itself.  Gives its size. */
__attribute__((weak)) size_t fuzz_seed(uint8_t *data, size_t max);

/* Ends the program where `held` is 0. */
void fuzz_must(int held);
/* A seed that is a text. */
size_t fuzz_text(const char *text, uint8_t *data, size_t max);

/* ---- inputs that are files ---- */

/* The parts of a file that are no holes: an input holds these one after another, cut off at its
 * end. */
struct fuzz_part {
    off_t in_file;
    size_t size;
};

/* The input as a file of memory, as long as it has bytes and at least `least`; a descriptor, and
 * its path. */
int fuzz_file(const struct fuzz_part *parts, size_t n, off_t least, const uint8_t *data,
              size_t size, char ret_path[32]);
/* The file as an input: its last part up to `end` of the file.  Gives its size. */
size_t fuzz_input(const struct fuzz_part *parts, size_t n, off_t end, const char *path,
                  uint8_t *data, size_t max);

/* A path in a new directory, and away with both. */
void fuzz_place(const char *name, char ret_path[64]);
void fuzz_remove(char path[64]);

#endif
