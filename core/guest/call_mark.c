/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/call_mark.c - one pointer of each thread.
 *
 * Any thread, and a handler that interrupts one.
 */
#include "core/guest/call_mark.h"

#include <stdatomic.h>
#include <stddef.h>

/* initial-exec: reached without a call into the loader, which would not be safe in a handler. */
static __thread const struct call_mark *innermost __attribute__((tls_model("initial-exec")));

void call_begin(struct call_mark *m)
{
    m->outer = innermost;
    atomic_signal_fence(memory_order_release); /* a handler sees whole marks only */
    innermost = m;
}

void call_end(const struct call_mark *m)
{
    innermost = m->outer;
}

const struct call_mark *call_innermost(void)
{
    return innermost;
}
