/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/buffer_pool.h - the buffers that CUPTI writes records into.
 *
 * A buffer goes from the pool to CUPTI, comes back with records in it, and is free again when they
 * have been read.  All of them are mapped once, and never given back: CUPTI may complete one long
 * after it was told to stop.
 */
#ifndef CUDA_CUPTI_BUFFER_POOL_H
#define CUDA_CUPTI_BUFFER_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUFFER_BYTES 262144u /* a thousand kernels and their calls: some ms at the highest rates */
#define BUFFERS 256u         /* 64 MiB, of which only what was written is resident */

struct buffer {
    uint8_t *bytes;
    size_t valid; /* bytes of records */
};

/* Map them; again: nothing.  0 or -ENOMEM.                                          [control] */
int buffer_pool_map(void);
/* A free one; NULL: there is none.                                                     [any] */
uint8_t *buffer_take(void);
/* One that was taken comes back, with `valid` bytes of records; false: it is not from here, or was
 * not taken.                                                                           [any] */
bool buffer_complete(uint8_t *bytes, size_t valid);
/* The one that came back first of those that have not been read.  false: none.
 *                                                                  one reader at a time [worker] */
bool buffer_next(struct buffer *ret);
void buffer_free(const struct buffer *b); /* after it was read                        [worker] */
/* How many CUPTI has now, and how many wait to be read.                                [any] */
void buffer_counts(uint32_t *ret_taken, uint32_t *ret_full);

/* For so long CUPTI has had more than `besides` and brought none back, ns, as far as it was asked.
 *                                                                  one reader at a time [worker] */
uint64_t buffer_out_ns(uint64_t now_ns, uint32_t besides);

#endif
