/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/frame_locals.c - a frame's variables as JSON, by guarded reads.
 *
 * One thread at a time per struct walk.  Variables are in the frame; those that functions share are
 * cells there, which before 3.11 have names of their own; those of a module or a class body are in
 * a dict.  A frame that is another one afterwards has no variables here: better none than those of
 * somebody else.
 */
#include "inspect/frame_locals.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects/dict_reader.h"
#include "objects/object_json.h"

#define VARIABLES 64 /* shown of a frame */
#define SLOTS 4096   /* looked at */
#define OPTIMIZED 1  /* co_flags: CO_OPTIMIZED, variables are in the frame */

struct variables {
    struct walk *walk;
    struct out *out;
    int shown;
    bool more;
};

/* Room for another one?  If not, that is remembered. */
static bool has_room(struct variables *v)
{
    v->more = v->more || v->shown >= VARIABLES || value_full(v->out);
    return !v->more;
}

static void put_name(struct variables *v, const char *name)
{
    out_put(v->out, v->shown++ ? "," : "");
    out_string(v->out, name);
    out_put(v->out, ":");
}

/* Read a slot: *ret_object, or as text an int that stands in the slot itself (3.14).  false: not
 * assigned yet, or deleted. */
static bool slot_value(const struct walk *w, uint64_t slot, uint64_t *ret_object, char *text,
                       size_t size)
{
    uint64_t type;
    text[0] = '\0';
    if (w->o.minor >= 14 && (slot & OFFSETS_MARKS) == OFFSETS_MARKS) {
        (void)snprintf(text, size, "%lld", (long long)((int64_t)slot >> 2));
        return true;
    }
    *ret_object = w->o.minor >= 14 ? slot & ~OFFSETS_MARKS : slot;
    /* a variable that an inner function shares */
    if (*ret_object && peek_u64(&w->peek, *ret_object + (uint64_t)w->o.ob_type, &type) == 0 &&
        type == address_of(w->py->PyCell_Type) &&
        peek_u64(&w->peek, *ret_object + (uint64_t)w->o.ob_head, ret_object))
        return false;
    return *ret_object != 0;
}

/* `count` variables from `at` on, with names from this tuple; false: not readable. */
static bool put_slots(struct variables *v, uint64_t names, uint64_t count, uint64_t at)
{
    struct walk *w = v->walk;
    uint64_t slots[VARIABLES], name, object = 0;
    char text[100], number[32];
    if (count > SLOTS)
        return false;
    for (uint64_t i = 0; i < count && !v->more; i++) {
        uint64_t k = i % VARIABLES, left = count - i;
        if (k == 0 && peek_bytes(&w->peek, at + 8 * i, slots,
                                 (size_t)(left < VARIABLES ? left : VARIABLES) * 8))
            return false;
        if (!slot_value(w, slots[k], &object, number, sizeof(number)))
            continue;
        if (peek_u64(&w->peek, names + (uint64_t)w->o.tuple_items + 8 * i, &name) ||
            !walk_string(w, name, text, sizeof(text)))
            return false;
        if (!has_room(v))
            break;
        put_name(v, text);
        if (number[0])
            out_put(v->out, number);
        else
            value_put(w, v->out, object, /* depth= */ 0);
    }
    return true;
}

/* Variables of a module or class body, without what Python itself puts there and what the program
 * consists of. */
static void put_dict(struct variables *v, uint64_t dict)
{
    struct walk *w = v->walk;
    struct entries e;
    char text[100];
    if (!dicts_read(w, dict, SLOTS, &e))
        return;
    for (uint64_t i = 0; i < e.n && !v->more; i++) {
        uint64_t value = dicts_value(w, &e, i);
        if (!value || !walk_string(w, dicts_key(&e, i), text, sizeof(text)) ||
            strncmp(text, "__", 2) == 0 || value_is_program(w, value) || !has_room(v))
            continue;
        put_name(v, text);
        value_put(w, v->out, value, /* depth= */ 0);
    }
    dicts_done(&e);
}

/* The variables in the frame; false: not readable. */
static bool put_frame(struct variables *v, const struct walk_frame *f)
{
    const struct walk *w = v->walk;
    const int more_names[] = {w->o.co_cell_names, w->o.co_free_names};
    uint64_t names, n, at = f->address + (uint64_t)w->o.f_locals;
    int32_t count;
    if (peek_u64(&w->peek, f->code + (uint64_t)w->o.co_local_names, &names) ||
        peek_i32(&w->peek, f->code + (uint64_t)w->o.co_n_locals, &count) || count < 0 ||
        !put_slots(v, names, (uint64_t)count, at))
        return false;
    at += 8 * (uint64_t)count;
    for (int i = 0; i < 2 && more_names[i] >= 0; i++, at += 8 * n)
        if (peek_u64(&w->peek, f->code + (uint64_t)more_names[i], &names) ||
            peek_u64(&w->peek, names + (uint64_t)w->o.var_size, &n) || !put_slots(v, names, n, at))
            return false;
    return true;
}

void locals_json(struct walk *w, const struct walk_frame *f, char *ret, size_t size)
{
    struct out o = {ret, 0, size};
    struct variables v = {.walk = w, .out = &o};
    int32_t flags;
    uint64_t dict;
    ret[0] = '\0';
    out_put(&o, "{");
    bool read = put_frame(&v, f) &&
                peek_i32(&w->peek, f->code + (uint64_t)w->o.co_flags, &flags) == 0 &&
                peek_u64(&w->peek, f->address + (uint64_t)w->o.f_dict, &dict) == 0;
    if (read && !(flags & OPTIMIZED))
        put_dict(&v, dict);
    if (v.more)
        out_put(&o, v.shown ? ",\"...\":null" : "\"...\":null");
    out_put(&o, "}");
    if (!read || !walk_still(w, f))
        ret[0] = '\0';
}
