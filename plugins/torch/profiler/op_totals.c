/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/profiler/op_totals.c - operations of torch, added up by name.
 *
 * Threads: one at a time.
 * Events come in any order.  Own times are found at the end: the events of a lane, by their begin,
 * are a tree, and each one's time is taken from the one that it lies in.
 */
#include "profiler/op_totals.h"
#include "lib/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/hash.h"

#define DEPTH_MAX 512u /* calls inside of each other; deeper ones belong to the last of these */
#define FIRST 1024u

struct event {
    uint64_t lane, begin_ns, end_ns;
    uint32_t sum;
};

struct ops {
    struct event *events; /* owned, like the rest; NULL after ops_finish() */
    uint32_t n_events, room_events;
    struct ops_sum *sums;
    uint32_t n_sums, room_sums;
    uint32_t *slots; /* number of a sum + 1, by hash; 0: free.  Twice room_sums */
};

struct ops *ops_new(void)
{
    return calloc(1, sizeof(struct ops));
}

void ops_free(struct ops *o)
{
    if (!o)
        return;
    for (uint32_t i = 0; i < o->n_sums; i++) {
        free((char *)o->sums[i].name);
        free((char *)o->sums[i].kind);
    }
    free(o->events);
    free(o->sums);
    free(o->slots);
    free(o);
}

/* FNV-1a, over both texts and what parts them. */
static uint64_t hash_of(const char *name, const char *kind)
{
    uint64_t h = hash_bytes(HASH_FNV, name, strlen(name) + 1);
    h = hash_text(h, kind);
    return h ^ h >> 32;
}

/* The slot of a sum, or the free one where it belongs. */
static uint32_t *slot_of(const struct ops *o, const char *name, const char *kind)
{
    uint32_t mask = 2 * o->room_sums - 1, i = (uint32_t)hash_of(name, kind) & mask;
    while (o->slots[i] && (strcmp(o->sums[o->slots[i] - 1].name, name) != 0 ||
                           strcmp(o->sums[o->slots[i] - 1].kind, kind) != 0))
        i = (i + 1) & mask;
    return &o->slots[i];
}

static int grow_sums(struct ops *o)
{
    uint32_t room = o->room_sums ? 2 * o->room_sums : FIRST;
    uint32_t *slots = calloc(2 * (size_t)room, sizeof(*slots));
    struct ops_sum *sums = slots ? realloc(o->sums, room * sizeof(*sums)) : NULL;
    if (!sums) {
        free(slots);
        return -ENOMEM;
    }
    free(o->slots);
    o->slots = slots;
    o->sums = sums;
    o->room_sums = room;
    for (uint32_t i = 0; i < o->n_sums; i++)
        *slot_of(o, sums[i].name, sums[i].kind) = i + 1;
    return 0;
}

/* The number of a sum, made when it is new; -ENOMEM. */
static int64_t sum_of(struct ops *o, const char *name, const char *kind)
{
    if (o->n_sums == o->room_sums && grow_sums(o) < 0)
        return -ENOMEM;
    uint32_t *slot = slot_of(o, name, kind);
    if (*slot)
        return *slot - 1;
    struct ops_sum made = {.name = strdup(name), .kind = strdup(kind)};
    if (!made.name || !made.kind) {
        free((char *)made.name);
        free((char *)made.kind);
        return -ENOMEM;
    }
    o->sums[o->n_sums] = made;
    *slot = ++o->n_sums;
    return o->n_sums - 1;
}

int ops_add(struct ops *o, const char *name, const char *kind, uint64_t lane, uint64_t begin_ns,
            uint64_t duration_ns)
{
    if (o->n_events == OPS_EVENTS_MAX)
        return -E2BIG;
    struct event *events =
        array_grow(o->events, o->n_events, &o->room_events, sizeof(*events), UINT32_MAX);
    if (!events)
        return -ENOMEM;
    o->events = events;
    int64_t sum = sum_of(o, name, kind);
    if (sum < 0)
        return (int)sum;
    o->events[o->n_events++] = (struct event){
        .lane = lane, .begin_ns = begin_ns, .end_ns = begin_ns + duration_ns, .sum = (uint32_t)sum};
    return 0;
}

/* If two events begin at once, the longer one is the outer one. */
static int compare_events(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    return x->end_ns > y->end_ns ? -1 : x->end_ns < y->end_ns;
}

static int compare_sums(const void *a, const void *b)
{
    const struct ops_sum *x = a, *y = b;
    return x->self_ns > y->self_ns ? -1 : x->self_ns < y->self_ns;
}

static void take_from_outer(struct ops *o, const struct event *outer, uint64_t ns)
{
    uint64_t *own = &o->sums[outer->sum].self_ns;
    *own -= ns < *own ? ns : *own; /* times of a coarse clock may not add up */
}

void ops_finish(struct ops *o)
{
    const struct event *open[DEPTH_MAX];
    uint32_t depth = 0;
    if (o->n_events)
        qsort(o->events, o->n_events, sizeof(*o->events), compare_events);
    for (uint32_t i = 0; i < o->n_events; i++) {
        const struct event *e = &o->events[i];
        struct ops_sum *sum = &o->sums[e->sum];
        uint64_t ns = e->end_ns - e->begin_ns;
        while (depth && (open[depth - 1]->lane != e->lane || open[depth - 1]->end_ns < e->end_ns))
            depth--;
        sum->calls++;
        sum->total_ns += ns;
        sum->self_ns += ns;
        sum->longest_ns = ns > sum->longest_ns ? ns : sum->longest_ns;
        if (depth)
            take_from_outer(o, open[depth - 1], ns);
        if (depth < DEPTH_MAX)
            open[depth++] = e;
    }
    free(o->events);
    o->events = NULL;
    o->n_events = o->room_events = 0;
    if (o->n_sums)
        qsort(o->sums, o->n_sums, sizeof(*o->sums), compare_sums);
}

uint32_t ops_count(const struct ops *o)
{
    return o->n_sums;
}

const struct ops_sum *ops_at(const struct ops *o, uint32_t i)
{
    return &o->sums[i];
}
