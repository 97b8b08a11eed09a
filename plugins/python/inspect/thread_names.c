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

#include "inspect/dict_reader.h"

/* The value of a str key, 0: none.  Frees the entries. */
static uint64_t find_text(const struct walk *w, struct entries *e, const char *key)
{
    uint64_t found = 0;
    char text[32];
    for (uint64_t i = 0; i < e->n && !found; i++)
        if (walk_string(w, dicts_key(e, i), text, sizeof(text)) && strcmp(text, key) == 0)
            found = dicts_value(w, e, i);
    dicts_done(e);
    return found;
}

static uint64_t dict_text(const struct walk *w, uint64_t dict, const char *key)
{
    struct entries e;
    return dicts_read(w, dict, DICTS_ALL, &e) ? find_text(w, &e, key) : 0;
}

/* The value of an int key below 2**61 - 1, which is its own hash; 0: none. */
static uint64_t dict_int(const struct walk *w, uint64_t dict, uint64_t key)
{
    struct entries e;
    uint64_t found = 0;
    if (!dicts_read(w, dict, DICTS_ALL, &e))
        return 0;
    for (uint64_t i = 0; e.stride == 24 && i < e.n && !found; i++)
        if (u64_at(e.bytes + i * e.stride, 0) == key)
            found = dicts_value(w, &e, i);
    dicts_done(&e);
    return found;
}

static uint64_t attribute(const struct walk *w, uint64_t object, const char *name)
{
    struct entries e;
    return object && dicts_attributes(w, object, DICTS_ALL, &e) ? find_text(w, &e, name) : 0;
}

bool names_thread(struct walk *w, const struct walk_thread *t, char *ret, size_t size)
{
    uint64_t modules, dict;
    if (peek_u64(&w->peek, t->interpreter + (uint64_t)w->o.is_modules, &modules))
        return false;
    uint64_t threading = dict_text(w, modules, "threading");
    if (!threading || peek_u64(&w->peek, threading + (uint64_t)w->o.module_dict, &dict))
        return false;
    uint64_t active = dict_text(w, dict, "_active");
    uint64_t thread = active ? dict_int(w, active, t->thread_id) : 0;
    uint64_t name = thread ? attribute(w, thread, "_name") : 0;
    return name && walk_string(w, name, ret, size) && ret[0];
}
