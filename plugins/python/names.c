/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/names.c - sys.modules["threading"]._active[id]._name, by guarded reads.
 *
 * One thread at a time per struct walk.  Dicts are read entry by entry in the order they were
 * filled, never by hash probing; a dict that changes meanwhile gives no name or an old one.  The
 * layout of keys objects is in no installed header: Objects/dict-common.h to 3.10,
 * Include/internal/pycore_dict.h from 3.11 on.
 */
#include "names.h"

#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX 65536u /* of a dict; sys.modules of a large program has some thousands */

struct entries {
    uint8_t *bytes; /* n * stride; to be freed */
    uint64_t n;
    size_t stride, key, value; /* offsets in an entry; the hash, if there is one, stands first */
    uint64_t values;           /* address of a split dict's values, 0: they stand in the entries */
};

static uint64_t u64_of(const uint8_t *p)
{
    uint64_t value;
    memcpy(&value, p, sizeof(value));
    return value;
}

/* Where a keys object's entries begin and what they look like; false: it is none. */
static bool keys_shape(const struct walk *w, uint64_t keys, struct entries *e, uint64_t *ret_at)
{
    uint8_t head[40];
    if (peek_bytes(&w->peek, keys, head, sizeof(head)))
        return false;
    e->stride = 24;
    e->key = 8;
    e->value = 16;
    if (w->o.minor < 11) {
        uint64_t size = u64_of(head + 8);
        e->n = u64_of(head + 32);
        *ret_at = keys + 40 + size * (size <= 0xff ? 1 : size <= 0xffff ? 2 : 4);
        return size && !(size & (size - 1)) && e->n <= size && e->n <= ENTRIES_MAX;
    }
    e->n = u64_of(head + 24);
    if (head[10] != 0) { /* only str keys: no hash in the entries */
        e->stride = 16;
        e->key = 0;
        e->value = 8;
    }
    *ret_at = keys + 32 + (UINT64_C(1) << (head[9] & 31));
    return head[8] < 32 && head[9] < 32 && head[10] <= 2 && e->n <= ENTRIES_MAX;
}

static bool keys_read(const struct walk *w, uint64_t keys, uint64_t values, struct entries *ret)
{
    uint64_t at;
    *ret = (struct entries){.values = values};
    if (!keys_shape(w, keys, ret, &at))
        return false;
    ret->bytes = malloc(ret->n * ret->stride + 1);
    if (ret->bytes && peek_bytes(&w->peek, at, ret->bytes, ret->n * ret->stride) == 0)
        return true;
    free(ret->bytes);
    return false;
}

static bool is_dict(const struct walk *w, uint64_t object)
{
    uint64_t type;
    return object && !(object & 7) && peek_u64(&w->peek, object + 8, &type) == 0 &&
           type == (uint64_t)(uintptr_t)w->py->PyDict_Type;
}

/* Values of an object's split dict stand behind four bytes of counts from 3.13 on. */
static uint64_t values_begin(const struct walk *w, uint64_t values)
{
    return values && w->o.minor >= 13 ? values + 8 : values;
}

static bool dict_read(const struct walk *w, uint64_t dict, struct entries *ret)
{
    uint64_t keys, values;
    return is_dict(w, dict) && peek_u64(&w->peek, dict + (uint64_t)w->o.dict_keys, &keys) == 0 &&
           peek_u64(&w->peek, dict + (uint64_t)w->o.dict_values, &values) == 0 &&
           keys_read(w, keys, values_begin(w, values), ret);
}

static uint64_t entry_value(const struct walk *w, const struct entries *e, uint64_t i)
{
    uint64_t value = u64_of(e->bytes + i * e->stride + e->value);
    if (e->values && peek_u64(&w->peek, e->values + 8 * i, &value))
        return 0;
    return value;
}

/* The value of a str key, 0: none.  Frees the entries. */
static uint64_t find_text(const struct walk *w, struct entries *e, const char *key)
{
    uint64_t found = 0;
    char text[32];
    for (uint64_t i = 0; i < e->n && !found; i++)
        if (walk_string(w, u64_of(e->bytes + i * e->stride + e->key), text, sizeof(text)) &&
            strcmp(text, key) == 0)
            found = entry_value(w, e, i);
    free(e->bytes);
    return found;
}

static uint64_t dict_text(const struct walk *w, uint64_t dict, const char *key)
{
    struct entries e;
    return dict_read(w, dict, &e) ? find_text(w, &e, key) : 0;
}

/* The value of an int key below 2**61 - 1, which is its own hash; 0: none. */
static uint64_t dict_int(const struct walk *w, uint64_t dict, uint64_t key)
{
    struct entries e;
    uint64_t found = 0;
    if (!dict_read(w, dict, &e))
        return 0;
    for (uint64_t i = 0; e.stride == 24 && i < e.n && !found; i++)
        if (u64_of(e.bytes + i * e.stride) == key)
            found = entry_value(w, &e, i);
    free(e.bytes);
    return found;
}

/* Where the attributes of an instance of a Python class are: a dict, or values of shared keys. */
static bool attributes(const struct walk *w, uint64_t object, uint64_t *ret_dict,
                       uint64_t *ret_values)
{
    uint64_t type, size;
    *ret_values = 0;
    if (w->o.minor < 11)
        return peek_u64(&w->peek, object + 16, ret_dict) == 0;
    if (peek_u64(&w->peek, object - 24, ret_dict))
        return false;
    if (w->o.minor == 11 && !*ret_dict)
        return peek_u64(&w->peek, object - 32, ret_values) == 0;
    if (w->o.minor == 12 && (*ret_dict & 1)) {
        *ret_values = *ret_dict + 1;
        *ret_dict = 0;
    }
    if (w->o.minor >= 13 && !*ret_dict) {
        if (peek_u64(&w->peek, object + 8, &type) ||
            peek_u64(&w->peek, type + (uint64_t)w->o.type_basic_size, &size))
            return false;
        *ret_values = values_begin(w, object + size);
    }
    return true;
}

static uint64_t attribute(const struct walk *w, uint64_t object, const char *name)
{
    uint64_t dict, values, type, keys;
    struct entries e;
    if (!object || !attributes(w, object, &dict, &values))
        return 0;
    if (!values)
        return dict_text(w, dict, name);
    if (peek_u64(&w->peek, object + 8, &type) ||
        peek_u64(&w->peek, type + (uint64_t)w->o.type_keys, &keys) ||
        !keys_read(w, keys, values, &e))
        return 0;
    return find_text(w, &e, name);
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
