/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/window/charge.c - calls are counted once.
 *
 * Threads: as charge.h says.
 */
#include "window/charge.h"

static void count_call(struct charge *c, uint32_t correlation)
{
    uint32_t *last = &c->last[correlation % CHARGE_LAST];
    c->calls += !correlation || *last != correlation;
    *last = correlation;
}

void charge_record(struct charge *c, const struct record *r)
{
    switch (r->kind) {
    case CUPTI_RUNTIME:
    case CUPTI_DRIVER:
        count_call(c, r->correlation);
        break;
    case CUPTI_CONCURRENT_KERNEL:
        c->calls += r->kernel.graph != 0;
        break;
    case CUPTI_MEMCPY:
    case CUPTI_MEMCPY2:
    case CUPTI_MEMSET:
        c->calls += r->copy.graph != 0;
        break;
    default: /* CUPTI's number: what comes of calls that were counted */
        break;
    }
}

uint64_t charge_take(struct charge *c)
{
    uint64_t calls = c->calls;
    c->calls = 0;
    return calls;
}
