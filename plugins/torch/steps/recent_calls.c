/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/recent_calls.c - two rings, of calls and of steps, in the order in which
 * they ended.
 *
 * Threads: as recent_calls.h says.  An entry's `turn` is written last, and looked at before and
 * after the others are read: another one there means that it has been written over.
 *
 * Calls that are inside of each other end from the inside out.  So of a thread's calls that ended
 * after a moment, the first that had begun before it is the innermost.
 */
#include "steps/recent_calls.h"

#include <errno.h>

#include "steps/step.h"

#define CALLS 16384u /* 2 seconds of 100 steps with 80 modules: longer than who asks waits */
#define STEPS 1024u
#define SCANNED 512u /* entries: what ended between a moment and its own call */

struct entry {
    _Atomic uint64_t turn; /* 0: empty; its number in the order of ends, from 1 */
    _Atomic uint64_t tid, begin_ns, end_ns, step, name;
};

struct ring {
    struct entry *entries;
    uint32_t n;
    _Atomic uint64_t next; /* number of entries that have been written */
};

static struct entry call_entries[CALLS], step_entries[STEPS];
static struct ring call_ring = {.entries = call_entries, .n = CALLS},
                   step_ring = {.entries = step_entries, .n = STEPS};
_Atomic uint32_t recent_wanted;
static _Atomic uint64_t since_ns; /* what was before is not known */

static void store_field(_Atomic uint64_t *to, uint64_t value)
{
    atomic_store_explicit(to, value, memory_order_relaxed);
}

static uint64_t load_field(const _Atomic uint64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

static void add_entry(struct ring *r, const struct recent_call *c)
{
    uint64_t turn = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed) + 1;
    struct entry *e = &r->entries[turn % r->n];
    store_field(&e->turn, 0);
    atomic_thread_fence(memory_order_release); /* the 0 is seen before what follows */
    store_field(&e->tid, (uint64_t)c->tid);
    store_field(&e->begin_ns, c->begin_ns);
    store_field(&e->end_ns, c->end_ns);
    store_field(&e->step, c->step);
    store_field(&e->name, c->name);
    atomic_store_explicit(&e->turn, turn, memory_order_release);
}

/* false: it is not there any more, or not yet. */
static bool read_entry(const struct ring *r, uint64_t turn, struct recent_call *ret)
{
    const struct entry *e = &r->entries[turn % r->n];
    if (atomic_load_explicit(&e->turn, memory_order_acquire) != turn)
        return false;
    *ret = (struct recent_call){.tid = (int64_t)load_field(&e->tid),
                                .begin_ns = load_field(&e->begin_ns),
                                .end_ns = load_field(&e->end_ns),
                                .step = load_field(&e->step),
                                .name = load_field(&e->name)};
    atomic_thread_fence(memory_order_acquire);
    return load_field(&e->turn) == turn;
}

/* The first that ended at ts or later; one more than the last: none has. */
static uint64_t first_ended(const struct ring *r, uint64_t ts)
{
    struct recent_call c;
    uint64_t last = atomic_load_explicit(&r->next, memory_order_acquire);
    uint64_t low = last >= r->n ? last - r->n + 2 : 1, high = last + 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (!read_entry(r, middle, &c) || c.end_ns < ts) /* the oldest are being written over */
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void recent_add_call(const struct recent_call *c)
{
    add_entry(&call_ring, c);
}

void recent_add_step(uint64_t end_ns, uint64_t step)
{
    add_entry(&step_ring, &(struct recent_call){.end_ns = end_ns, .step = step});
}

void recent_ends(const struct thread *t, uint64_t end_ns)
{
    (void)t;
    if (recent_is_wanted())
        recent_add_step(end_ns, steps.step);
}

static void count_wanted(int on)
{
    if (!on) {
        atomic_fetch_sub_explicit(&recent_wanted, 1, memory_order_relaxed);
        return;
    }
    if (atomic_fetch_add_explicit(&recent_wanted, 1, memory_order_relaxed) == 0)
        store_field(&since_ns, torch_state.now());
}

static bool step_at(uint64_t ts, int64_t *ret)
{
    struct recent_call c;
    uint64_t turn = first_ended(&step_ring, ts), last = load_field(&step_ring.next);
    if (!torch_on() || ts < load_field(&since_ns))
        return false;
    if (turn > last) { /* none has ended since: it is the one that runs */
        *ret = (int64_t)__atomic_load_n(&steps.step, __ATOMIC_RELAXED);
        return load_field(&step_ring.next) == last;
    }
    if (turn + STEPS <= last + 2 || !read_entry(&step_ring, turn, &c))
        return false; /* it may have been of one before */
    *ret = (int64_t)c.step;
    return true;
}

static int find_place(int32_t tid, uint64_t ts, struct probing_torch_place *ret)
{
    struct recent_call c;
    ret->step = PROBING_NULL_I64;
    ret->module = PROBING_NULL_ID;
    if (!recent_is_wanted())
        return -ENOENT;
    bool known = step_at(ts, &ret->step);
    uint64_t turn = first_ended(&call_ring, ts);
    for (uint32_t i = 0; i < SCANNED && read_entry(&call_ring, turn + i, &c); i++) {
        if (c.tid != tid || c.begin_ns > ts || c.end_ns < ts)
            continue;
        ret->module = c.name;
        return 0;
    }
    return known ? 0 : -ENOENT;
}

const struct probing_torch_place_1 recent_part = {
    .size = sizeof(recent_part), .remember = count_wanted, .at = find_place};
