/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/peak.c - when the most was alive, and what.
 *
 * The sampler's lock.
 */
#include "peak.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "probing_sdk.h"

#define MORE 1.01                       /* a new peak is at least so much of the one before */
#define RISING_NS PROBING_NS_PER_S      /* one that still grows is looked at so often */
#define GIVEN_NS (5 * PROBING_NS_PER_S) /* between two that are given; ... */
#define MUCH 1.5                        /* ... one of so much more, or as much gone, at once */
#define FALLS 1.1                       /* what was there is kept where so much more was there */
#define FALLEN 4                        /* ... and given where so many times as much was */
#define KEPT_NS (10 * PROBING_NS_PER_S) /* in this time */
#define FREED_NS 1000                   /* before it was freed: rows' times are rounded to that */
#define EVENTS_MAX (1u << 20)

struct peak {
    struct keyed *events; /* by time; index: of the amount */
    double *amounts;
    uint32_t n, room;
    double now, most, given;
    struct snapshot found;
    bool pending;
    uint64_t taken_ns, given_ns;
    struct snapshot before; /* what was alive before much of it was freed; none: n is 0 */
    bool fallen;            /* it was given */
    uint64_t before_ns, fallen_ns;
};

int peak_new(struct peak **ret)
{
    *ret = calloc(1, sizeof(**ret));
    return *ret ? 0 : -ENOMEM;
}

void peak_free(struct peak *p)
{
    if (!p)
        return;
    snapshot_done(&p->found);
    snapshot_done(&p->before);
    free(p->events);
    free(p->amounts);
    free(p);
}

static bool has_room(struct peak *p)
{
    if (p->n < p->room)
        return true;
    uint32_t room = p->room ? 2 * p->room : 256;
    struct keyed *events = room <= EVENTS_MAX ? realloc(p->events, room * sizeof(*events)) : NULL;
    p->events = events ? events : p->events;
    double *amounts = events ? realloc(p->amounts, room * sizeof(*amounts)) : NULL;
    p->amounts = amounts ? amounts : p->amounts;
    p->room = amounts ? room : p->room;
    return amounts != NULL;
}

void peak_add(struct peak *p, uint64_t ts, double bytes)
{
    if (!has_room(p)) {
        p->now += bytes; /* its time is lost, the sum stays right */
        return;
    }
    p->events[p->n] = (struct keyed){.key = ts, .index = p->n};
    p->amounts[p->n++] = bytes;
}

static void keep_peak(struct peak *p, const struct snapshot *x, uint64_t now)
{
    snapshot_done(&p->found);
    p->found = *x;
    p->most = x->bytes > p->most ? x->bytes : p->most;
    p->taken_ns = now;
    p->pending = true;
}

static void take_snapshot(struct peak *p, struct live_table *live, const struct origins *origins,
                          uint64_t at, uint64_t now)
{
    struct snapshot x;
    p->most = p->now;
    p->taken_ns = now;
    if (snapshot_take(live, origins, at, &x) < 0)
        return;
    if (x.bytes > p->found.bytes)
        keep_peak(p, &x, now);
    else
        snapshot_done(&x);
}

/* The most of the events' time, where much less is left after them: what was there then is kept, as
 * it may be the end of the program.  One that is kept stays while less is alive than it had. */
static void look_for_fall(struct peak *p, struct live_table *live, const struct origins *origins,
                          uint64_t now)
{
    double level = p->now, highest = 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        double bytes = p->amounts[p->events[i].index];
        if (bytes < 0 && level > highest) {
            highest = level;
            at = p->events[i].key - FREED_NS;
        }
        level += bytes;
    }
    bool old = p->before.n == 0 || now - p->before_ns > KEPT_NS;
    struct snapshot x;
    if (highest > FALLS * level && (old || highest > p->before.bytes) &&
        now - p->before_ns > RISING_NS && snapshot_take(live, origins, at, &x) == 0) {
        snapshot_done(&p->before);
        p->before = x;
        p->before_ns = now;
        p->fallen = false;
    }
}

void peak_look(struct peak *p, struct live_table *live, const struct origins *origins, uint64_t now)
{
    keyed_sort(p->events, p->n);
    look_for_fall(p, live, origins, now);
    for (uint32_t i = 0; i < p->n; i++) {
        double bytes = p->amounts[p->events[i].index];
        if (bytes < 0 && p->now > MORE * p->most)
            take_snapshot(p, live, origins, p->events[i].key - 1, now);
        p->now += bytes;
    }
    p->n = 0;
    if (p->now > MORE * p->most && now - p->taken_ns > RISING_NS)
        take_snapshot(p, live, origins, now, now);
}

double peak_now(const struct peak *p)
{
    return p->now > 0 ? p->now : 0;
}

int peak_shown(struct peak *p, const struct snapshot *x, uint64_t now)
{
    struct snapshot copy;
    if (x->bytes <= p->found.bytes)
        return 0;
    int rc = snapshot_copy(x, &copy);
    if (rc < 0)
        return rc;
    keep_peak(p, &copy, now);
    return 0;
}

const struct snapshot *peak_found(const struct peak *p)
{
    return &p->found;
}

const struct snapshot *peak_fall(struct peak *p, uint64_t now)
{
    if (p->before.n == 0 || p->fallen || p->now * FALLEN > p->before.bytes ||
        now - p->before_ns > KEPT_NS || (p->fallen_ns && now - p->fallen_ns < GIVEN_NS))
        return NULL;
    p->fallen = true;
    p->fallen_ns = now;
    return &p->before;
}

const struct snapshot *peak_due(struct peak *p, uint64_t now, bool at_once)
{
    bool soon = p->most < MUCH * p->given && p->now * MUCH > p->most;
    if (!p->pending || (!at_once && now - p->given_ns < GIVEN_NS && soon))
        return NULL;
    p->given = p->most;
    p->pending = false;
    p->given_ns = now;
    return &p->found;
}
