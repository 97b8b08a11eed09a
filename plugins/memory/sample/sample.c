/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/sample.c - the uncommon part of sample.h.
 */
#include "sample.h"

_Thread_local struct memory_thread memory_thread;
_Atomic uint8_t memory_filter[1u << MEMORY_FILTER_BITS];

void memory_sample(void *p, size_t n, enum memory_domain domain, const void *frame)
{
    (void)p, (void)n, (void)domain, (void)frame;
    memory_thread.left = INT64_MAX / 2;
}

void memory_sample_freed(void *p)
{
    (void)p;
}

uint64_t memory_moving(void *p)
{
    (void)p;
    return 0;
}

void memory_unmoved(void *p, uint64_t moving)
{
    (void)p, (void)moving;
}

void memory_moved(uint64_t moving)
{
    (void)moving;
}
