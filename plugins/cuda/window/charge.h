/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/window/charge.h - for which records the program has paid with its time.
 *
 * Threads: one at a time.
 */
#ifndef CUDA_WINDOW_CHARGE_H
#define CUDA_WINDOW_CHARGE_H

#include "cupti/record.h"

#define CHARGE_LAST 4096u /* calls, of all threads, among which an inner one finds its outer one */

struct charge {
    uint64_t calls; /* since they were taken */
    uint32_t last[CHARGE_LAST];
};

/* A call counts, whatever it does: of one of the runtime and the driver's that it makes, which have
 * one number, the first that comes.  So does what a graph does: nobody has called for it alone. */
void charge_record(struct charge *c, const struct record *r);
uint64_t charge_take(struct charge *c); /* and from there on anew */

#endif
