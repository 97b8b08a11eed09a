/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/estimate.h - how far it is to the next sample, and what one stands for.
 *
 * Samples are the points of a Poisson process along the bytes that a thread allocates, `mean` bytes
 * apart on average.  An allocation that holds at least one point is a sample: of n bytes it is one
 * with probability p = 1 - exp(-n / mean), and counts as 1 / p allocations.  The sum of those is
 * right on average, whatever the sizes, and its variance is the sum of (1 - p) / p^2.
 *
 * Pure functions, without libm, which may set errno and need not be in a C program.     [signal]
 */
#ifndef MEMORY_SAMPLE_ESTIMATE_H
#define MEMORY_SAMPLE_ESTIMATE_H

#include <stdint.h>

/* The next number of a thread; *state is never 0 after it. */
uint64_t estimate_random(uint64_t *state);
/* Bytes before the next sample by such a number, `mean` on average, 0 too: an allocation of more
 * bytes than these is one. */
uint64_t estimate_distance(uint64_t random, uint64_t mean);
/* How many allocations of `size` bytes one sample of them stands for: 1 or more. */
double estimate_weight(uint64_t size, uint64_t mean);
/* The variance that a sample of this weight adds to an estimated number of allocations; to one of
 * bytes: times size^2. */
double estimate_variance(double weight);
double estimate_root(double x); /* square root; 0 for what has none */

#endif
