/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/device_time.c - work on a line: where it is busy, where it is not, and why.
 *
 * Threads: one at a time.
 */
#include "trace/device_time.h"

#define NEAR_NS 50000 /* between the device's clock and the host's: a wait ends so long after */

int device_time_new(struct device_time **ret)
{
    *ret = calloc(1, sizeof(**ret));
    return *ret ? 0 : -ENOMEM;
}

void device_time_free(struct device_time *d)
{
    free(d);
}

void device_time_forget(struct device_time *d)
{
    memset(d, 0, sizeof(*d));
}

void device_time_waited(struct device_time *d, const struct host_wait *w)
{
    d->waits[d->n_waits++ % HOST_WAITS] = *w;
}

/* The call in which `thread` waited when the device fell idle at `at_ns`, and which ended before it
 * launched anew; NULL: it did not. */
static const struct host_wait *waited_at(const struct device_time *d, uint32_t thread,
                                         uint64_t at_ns, uint64_t launch_ns)
{
    uint64_t n = d->n_waits < HOST_WAITS ? d->n_waits : HOST_WAITS;
    for (uint64_t i = 0; i < n; i++) {
        const struct host_wait *w = &d->waits[(d->n_waits - 1 - i) % HOST_WAITS];
        if (w->thread == thread && w->begin_ns <= at_ns + NEAR_NS && w->end_ns + NEAR_NS >= at_ns &&
            w->end_ns <= launch_ns)
            return w;
    }
    return NULL;
}

/* Had the thread not waited, it would have come earlier by as long as it did, and no more: what it
 * has done since then would have taken its time all the same. */
static void add_idle(const struct device_time *d, struct device_row *r, const struct device_work *w)
{
    uint64_t gap = w->start_ns - r->until_ns;
    r->idle += gap;
    if (!w->launch_ns || w->launch_ns <= r->until_ns)
        return; /* the device had it already */
    const struct host_wait *wait = waited_at(d, w->thread, r->until_ns, w->launch_ns);
    uint64_t waited = wait ? wait->end_ns - wait->begin_ns : 0;
    waited = waited < gap ? waited : gap;
    r->idle_host += gap - waited;
    if (wait && wait->copies)
        r->idle_copy += waited;
    else
        r->idle_sync += waited;
}

/* How much of [start, end] lies behind *until, which goes on to its end. */
static uint64_t time_beyond(uint64_t *until, uint64_t start, uint64_t end)
{
    uint64_t from = start > *until ? start : *until;
    uint64_t more = end > from ? end - from : 0;
    if (end > *until)
        *until = end;
    return more;
}

void device_time_worked(struct device_time *d, const struct device_work *w)
{
    if (w->device >= DEVICES || !w->start_ns || w->end_ns < w->start_ns)
        return;
    struct device_row *r = &d->devices[w->device];
    if (!r->from_ns) {
        r->from_ns = r->until_ns = w->start_ns;
        r->step = PROBING_NULL_I64;
    }
    if (w->start_ns > r->until_ns)
        add_idle(d, r, w);
    r->busy += time_beyond(&r->until_ns, w->start_ns, w->end_ns);
    if (w->kind != WORK_COLLECTIVE)
        r->other += time_beyond(&r->other_until_ns, w->start_ns, w->end_ns);
    if (w->kind != WORK_COPY) {
        r->kernel += time_beyond(&r->kernel_until_ns, w->start_ns, w->end_ns);
        r->kernels++;
        r->launch += w->launch_ns ? w->launch_end_ns - w->launch_ns : 0;
    }
    if (w->step != PROBING_NULL_I64)
        r->step = w->step;
}

static void write_row(const struct device_row *r, uint32_t device, const struct probing_host *host,
                      struct probing_table *table, uint64_t lost, int64_t window)
{
    uint64_t known = r->idle_host + r->idle_sync + r->idle_copy;
    union probing_cell row[N_BUSY] = {[BUSY_STEP] = {.i = r->step},
                                      [BUSY_DEVICE] = {.i = device},
                                      [BUSY_WALL] = {.i = (int64_t)(r->until_ns - r->from_ns)},
                                      [BUSY_BUSY] = {.i = (int64_t)r->busy},
                                      [BUSY_KERNEL] = {.i = (int64_t)r->kernel},
                                      [BUSY_COLLECTIVE] = {.i = (int64_t)(r->busy - r->other)},
                                      [BUSY_COPY] = {.i = (int64_t)(r->busy - r->kernel)},
                                      [BUSY_IDLE] = {.i = (int64_t)r->idle},
                                      [BUSY_IDLE_HOST] = {.i = (int64_t)r->idle_host},
                                      [BUSY_IDLE_SYNC] = {.i = (int64_t)r->idle_sync},
                                      [BUSY_IDLE_COPY] = {.i = (int64_t)r->idle_copy},
                                      [BUSY_IDLE_OTHER] = {.i = (int64_t)(r->idle - known)},
                                      [BUSY_KERNELS] = {.i = (int64_t)r->kernels},
                                      [BUSY_LAUNCH] = {.i = (int64_t)r->launch},
                                      [BUSY_LOST] = {.i = (int64_t)lost},
                                      [BUSY_WINDOW] = {.i = window}};
    (void)host->append(table, r->until_ns, row, N_BUSY, NULL, 0);
}

void device_time_write(struct device_time *d, const struct probing_host *host,
                       struct probing_table *table, uint64_t lost, int64_t window)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        struct device_row *r = &d->devices[i];
        if (!r->from_ns || r->until_ns == r->from_ns)
            continue;
        write_row(r, i, host, table, lost, window);
        /* The time until the next work is of the next row; the lines go on where they are. */
        *r = (struct device_row){.from_ns = r->until_ns,
                                 .until_ns = r->until_ns,
                                 .kernel_until_ns = r->until_ns,
                                 .other_until_ns = r->until_ns,
                                 .step = PROBING_NULL_I64};
    }
}
