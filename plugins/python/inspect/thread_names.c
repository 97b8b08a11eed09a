/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/thread_names.c - sys.modules["threading"]._active[id]._name, by guarded
 * reads.
 *
 * One thread at a time per struct walk.  A dict that changes meanwhile gives no name or an old one.
 */
#include "inspect/thread_names.h"

#include <stdlib.h>
#include <string.h>

#define TRIES 5 /* readings of a dict that threads change */

/* An entry is hash, key, value, and an int below 2**61 - 1 is its own hash.  A deleted entry keeps
 * the hash, and another thread may have the same id now. */
static uint64_t id_of(const void *entry)
{
    return u64_at(entry, 16) ? u64_at(entry, 0) : UINT64_MAX;
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = id_of(a), y = id_of(b);
    return x < y ? -1 : x > y;
}

/* Twice the same, or it was read while it changed. */
static bool read_twice(const struct walk *w, uint64_t dict, struct entries *ret)
{
    struct entries again;
    for (int i = 0; i < TRIES; i++) {
        if (!dicts_read(w, dict, DICTS_ALL, ret))
            continue;
        bool same = dicts_read(w, dict, DICTS_ALL, &again);
        if (same) {
            same = again.n == ret->n && again.stride == ret->stride &&
                   memcmp(again.bytes, ret->bytes, ret->n * ret->stride) == 0;
            dicts_done(&again);
        }
        if (same)
            return true;
        dicts_done(ret);
    }
    return false;
}

/* If it could not be read, the next thread tries again. */
static void read_active(struct walk *w, struct thread_names *known, uint64_t interpreter)
{
    names_done(known);
    uint64_t active = dicts_global(w, interpreter, "threading", "_active");
    if (!active || !read_twice(w, active, &known->active))
        return;
    known->interpreter = interpreter;
    if (known->active.stride == 24)
        qsort(known->active.bytes, known->active.n, known->active.stride, compare_ids);
    else /* its keys are texts only */
        dicts_done(&known->active);
}

void names_done(struct thread_names *known)
{
    dicts_done(&known->active);
    known->interpreter = 0;
}

bool names_thread(struct walk *w, struct thread_names *known, const struct walk_thread *t,
                  char *ret, size_t size)
{
    struct entries *e = &known->active;
    if (known->interpreter != t->interpreter)
        read_active(w, known, t->interpreter);
    const uint64_t wanted[3] = {t->thread_id, 0, 1};
    const uint8_t *at = e->bytes ? bsearch(wanted, e->bytes, e->n, e->stride, compare_ids) : NULL;
    uint64_t thread = at ? u64_at(at, (int)e->value) : 0;
    uint64_t name = thread ? dicts_attribute(w, thread, "_name") : 0;
    return name && walk_string(w, name, ret, size) && ret[0];
}
