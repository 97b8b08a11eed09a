/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/window/spare_time.c - the times of devices that were busy, in two parts of a second.
 *
 * Threads: as spare_time.h says.
 */
#include "window/spare_time.h"

#include "probing_sdk.h"

#define PART_NS PROBING_NS_PER_S
/* After so long, what ran has been told: CUPTI gives a buffer of a thousand kernels when the last
 * one has ended. */
#define KNOWN_NS (3 * PROBING_NS_PER_S / 2)
#define BEGIN_NS (PROBING_NS_PER_S / 2) /* what was launched before a window is not told */
#define QUEUED_NS 100000 /* stood in a queue; launching itself takes some 10 us, clocks differ */

void spare_begin(struct spare_time *s, uint64_t now_ns)
{
    *s = (struct spare_time){.begun_ns = now_ns, .part_ns = now_ns};
}

void spare_worked(struct spare_time *s, uint32_t device, uint64_t start_ns, uint64_t end_ns,
                  uint64_t launched_ns, bool collective)
{
    s->works[1]++;
    s->late[1] += !launched_ns || start_ns < launched_ns + QUEUED_NS;
    if (device >= SPARE_DEVICES || collective || end_ns < start_ns)
        return;
    uint64_t *until = &s->devices[device].until_ns;
    if (*until == 0) { /* a device that works late in a window did nothing before */
        bool late = start_ns > s->begun_ns + BEGIN_NS;
        *until = late ? s->begun_ns : start_ns;
        s->devices[device].from_ns[0] = s->devices[device].from_ns[1] = *until;
    }
    uint64_t from = start_ns > *until ? start_ns : *until;
    if (end_ns <= from)
        return;
    s->devices[device].busy_ns[1] += end_ns - from;
    *until = end_ns;
}

/* Up to where it is known what the device has done. */
static uint64_t known_until(const struct spare_time *s, uint32_t device, uint64_t now_ns)
{
    uint64_t until = s->devices[device].until_ns;
    return until + KNOWN_NS > now_ns ? until : now_ns - KNOWN_NS;
}

static double idle_share(const struct spare_time *s, uint32_t device, uint64_t now_ns)
{
    const uint64_t *busy = s->devices[device].busy_ns;
    uint64_t from = s->devices[device].from_ns[0], end = known_until(s, device, now_ns);
    double share = end > from ? 1 - (double)(busy[0] + busy[1]) / (double)(end - from) : 1;
    return share > 0 ? share : 0;
}

static void begin_part(struct spare_time *s, uint64_t now_ns)
{
    s->part_ns = now_ns;
    s->works[0] = s->works[1];
    s->late[0] = s->late[1];
    s->works[1] = s->late[1] = 0;
    for (uint32_t i = 0; i < SPARE_DEVICES; i++) {
        if (!s->devices[i].until_ns)
            continue;
        s->devices[i].from_ns[0] = s->devices[i].from_ns[1];
        s->devices[i].busy_ns[0] = s->devices[i].busy_ns[1];
        s->devices[i].from_ns[1] = known_until(s, i, now_ns);
        s->devices[i].busy_ns[1] = 0;
    }
}

void spare_look(struct spare_time *s, uint64_t now_ns, double *ret_idle, double *ret_late)
{
    uint64_t works = s->works[0] + s->works[1], worked = 0;
    *ret_idle = 0;
    for (uint32_t i = 0; i < SPARE_DEVICES; i++) {
        if (!s->devices[i].until_ns)
            continue;
        double share = idle_share(s, i, now_ns);
        *ret_idle = share > *ret_idle ? share : *ret_idle;
        worked++;
    }
    *ret_idle = worked ? *ret_idle : 1;
    *ret_late = works ? (double)(s->late[0] + s->late[1]) / (double)works : 1;
    if (now_ns - s->part_ns >= PART_NS)
        begin_part(s, now_ns);
}
