/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/unsampled.h - how much a stack may have allocated that is in no sample.
 *
 * The error of an estimate is computed from the samples that there are.  Of a stack that allocated
 * while samples were far apart there may be none, and nothing in its other samples says so.  So
 * bytes are counted by the distance between samples that they were allocated at: what is in no
 * sample is at most what was allocated then, and so much that one sample was due.
 *
 * The account is static, as that of sample.c is.
 */
#ifndef MEMORY_SAMPLE_UNSAMPLED_H
#define MEMORY_SAMPLE_UNSAMPLED_H

#include <stdbool.h>
#include <stdint.h>

/* The distance that samples are to have.                                             [any] */
void unsampled_ask(uint64_t mean);
/* Sampling begins: nothing was allocated yet.                                     [control] */
void unsampled_begin(void);
/* So many bytes, none of a sample, at this distance.                               [signal] */
void unsampled_add(uint64_t mean, uint64_t bytes);
/* One standard error of what a stack may have in no sample, beyond what it may have at the
 * distance that was asked for, which is in the error of its samples.                  [any] */
double unsampled_bytes(void);
/* The same of what was allocated since the last call that began anew: that is one thread's, while
 * any may look.                                                                       [any] */
double unsampled_since(bool begin_anew);

#endif
