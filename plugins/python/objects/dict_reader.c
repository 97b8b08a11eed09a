/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/objects/dict_reader.c - the entries of a dict, by guarded reads.
 *
 * One thread at a time per struct walk.  Dicts are read entry by entry in the order they were
 * filled, never by hash probing; one that changes meanwhile gives no entries or old ones.  The
 * layout of keys objects is in no installed header: Objects/dict-common.h to 3.10,
 * Include/internal/pycore_dict.h from 3.11 on.
 */
#include "objects/dict_reader.h"

#include <string.h>
#include <sys/mman.h>

#define SIZE_MAX_SANE (UINT64_C(1) << 40) /* entries; more is no dict */

/* Py_TPFLAGS_... */
#define INLINE_VALUES (UINT64_C(1) << 2) /* 3.13: attributes follow the instance */
#define MANAGED_DICT (UINT64_C(1) << 4)  /* 3.11: its dict is before it */
#define IS_DICT (UINT64_C(1) << 29)

/* Find the start and the layout of a keys object's entries; false: it is no keys object. */
static bool keys_shape(const struct walk *w, uint64_t keys, struct entries *e, uint64_t *ret_at)
{
    uint8_t head[40];
    if (peek_bytes(&w->peek, keys, head, sizeof(head)))
        return false;
    e->stride = 24;
    e->key = 8;
    e->value = 16;
    if (w->o.minor < 11) {
        uint64_t size = u64_at(head, 8);
        uint64_t width = size <= 0xff ? 1 : size <= 0xffff ? 2 : size <= 0xffffffff ? 4 : 8;
        e->n = u64_at(head, 32);
        *ret_at = keys + 40 + size * width;
        return size && size < SIZE_MAX_SANE && !(size & (size - 1)) && e->n <= size;
    }
    e->n = u64_at(head, 24);
    if (head[10] != 0) { /* only str keys: no hash in the entries */
        e->stride = 16;
        e->key = 0;
        e->value = 8;
    }
    *ret_at = keys + 32 + (UINT64_C(1) << (head[9] & 63));
    return head[8] < 40 && head[9] < 44 && head[10] <= 2 && e->n <= UINT64_C(1) << head[8];
}

static bool keys_read(const struct walk *w, uint64_t keys, uint64_t values, uint64_t most,
                      struct entries *ret)
{
    uint64_t at;
    ret->bytes = NULL;
    ret->values = values;
    if (!keys_shape(w, keys, ret, &at))
        return false;
    if (ret->n > most)
        ret->n = most;
    size_t size = ret->n * ret->stride;
    ret->bytes = ret->few;
    if (size > sizeof(ret->few)) {
        void *room =
            mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, /* at= */ 0);
        if (room == MAP_FAILED)
            return false;
        ret->bytes = room;
    }
    if (peek_bytes(&w->peek, at, ret->bytes, size) == 0)
        return true;
    dicts_done(ret);
    return false;
}

void dicts_done(struct entries *e)
{
    if (e->bytes && e->bytes != e->few)
        (void)munmap(e->bytes, e->n * e->stride);
    e->bytes = NULL;
}

static bool is_dict(const struct walk *w, uint64_t object)
{
    uint64_t type, flags;
    return object && !(object & 7) &&
           peek_u64(&w->peek, object + (uint64_t)w->o.ob_type, &type) == 0 &&
           peek_u64(&w->peek, type + (uint64_t)w->o.type_flags, &flags) == 0 && (flags & IS_DICT);
}

/* The start of a split dict's values: from 3.13 on behind four bytes of counts. */
static uint64_t first_value(const struct walk *w, uint64_t values)
{
    return values && w->o.minor >= 13 ? values + 8 : values;
}

bool dicts_read(const struct walk *w, uint64_t dict, uint64_t most, struct entries *ret)
{
    uint64_t keys, values;
    return is_dict(w, dict) && peek_u64(&w->peek, dict + (uint64_t)w->o.dict_keys, &keys) == 0 &&
           peek_u64(&w->peek, dict + (uint64_t)w->o.dict_values, &values) == 0 &&
           keys_read(w, keys, first_value(w, values), most < DICTS_ALL ? most : DICTS_ALL, ret);
}

/* ---- attributes ---- */

/* From 3.11 on: a dict, or values of keys that the instances of the type share. */
static bool find_managed(const struct walk *w, uint64_t object, uint64_t type, uint64_t flags,
                         uint64_t *ret_dict, uint64_t *ret_values)
{
    uint64_t size;
    *ret_values = 0;
    if (peek_u64(&w->peek, object + (uint64_t)w->o.managed_dict, ret_dict))
        return false;
    if (w->o.minor == 11 && !*ret_dict) /* they stand one word before */
        return peek_u64(&w->peek, object + (uint64_t)w->o.managed_dict - 8, ret_values) == 0;
    if (w->o.minor == 12 && (*ret_dict & 1)) {
        *ret_values = *ret_dict + 1;
        *ret_dict = 0;
    }
    if (w->o.minor >= 13 && !*ret_dict && (flags & INLINE_VALUES)) {
        if (peek_u64(&w->peek, type + (uint64_t)w->o.type_basic_size, &size))
            return false;
        *ret_values = first_value(w, object + size);
    }
    return true;
}

bool dicts_attributes(const struct walk *w, uint64_t object, uint64_t most, struct entries *ret)
{
    uint64_t type, flags, offset, dict = 0, values = 0, keys;
    if (peek_u64(&w->peek, object + (uint64_t)w->o.ob_type, &type) ||
        peek_u64(&w->peek, type + (uint64_t)w->o.type_flags, &flags) ||
        peek_u64(&w->peek, type + (uint64_t)w->o.type_dict_offset, &offset))
        return false;
    if (w->o.minor >= 11 && (flags & MANAGED_DICT)) {
        if (!find_managed(w, object, type, flags, &dict, &values))
            return false;
    } else if (offset == 0 || offset > INT32_MAX || /* below 0: counted from an end that varies */
               peek_u64(&w->peek, object + offset, &dict)) {
        return false;
    }
    if (!values)
        return dicts_read(w, dict, most, ret);
    return peek_u64(&w->peek, type + (uint64_t)w->o.type_keys, &keys) == 0 &&
           keys_read(w, keys, values, most, ret);
}

/* ---- entries ---- */

uint64_t dicts_key(const struct entries *e, uint64_t i)
{
    return u64_at(e->bytes + i * e->stride, (int)e->key);
}

uint64_t dicts_value(const struct walk *w, const struct entries *e, uint64_t i)
{
    uint64_t value = u64_at(e->bytes + i * e->stride, (int)e->value);
    if (e->values && peek_u64(&w->peek, e->values + 8 * i, &value))
        return 0;
    return value;
}

/* ---- by name ---- */

/* The value of a str key, 0: none.  Frees the entries. */
static uint64_t find_text(const struct walk *w, struct entries *e, const char *key)
{
    uint64_t found = 0;
    char text[64];
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

uint64_t dicts_attribute(const struct walk *w, uint64_t object, const char *name)
{
    struct entries e;
    return object && dicts_attributes(w, object, DICTS_ALL, &e) ? find_text(w, &e, name) : 0;
}

uint64_t dicts_global(const struct walk *w, uint64_t interpreter, const char *module,
                      const char *name)
{
    uint64_t modules, dict;
    if (!interpreter || peek_u64(&w->peek, interpreter + (uint64_t)w->o.is_modules, &modules))
        return 0;
    uint64_t object = dict_text(w, modules, module);
    if (!object || peek_u64(&w->peek, object + (uint64_t)w->o.module_dict, &dict))
        return 0;
    return dict_text(w, dict, name);
}
