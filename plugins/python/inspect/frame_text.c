/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/frame_text.c - what a frame's code object is called, and which line of it
 * runs.
 *
 * One thread at a time per struct walk, except walk_offset(), which is for signal handlers too.
 */
#include <stdlib.h>
#include <string.h>

#include "inspect/code_cache.h"
#include "inspect/interpreter.h"
#include "inspect/line_table.h"
#include "lib/utf8.h"

#define SCRATCH_MAX (4u << 20) /* bytes of a line table; one of 100,000 lines has about 500,000 */

/* A lone surrogate is how Python keeps a byte that is not UTF-8. */
static size_t put_utf8(char *to, uint32_t c)
{
    return text_utf8_put(to, (c >= 0xd800 && c < 0xe000) || c > 0x10ffff ? 0xfffd : c);
}

void walk_utf8(const uint8_t *data, unsigned width, size_t count, char *ret, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < count && n + 5 <= size; i++) {
        uint32_t c = data[i * width];
        if (width >= 2)
            c |= (uint32_t)data[i * width + 1] << 8;
        if (width == 4)
            c |= (uint32_t)data[i * width + 2] << 16 | (uint32_t)data[i * width + 3] << 24;
        n += put_utf8(ret + n, c);
    }
    ret[n] = '\0';
}

bool walk_string(const struct walk *w, uint64_t object, char *ret, size_t size)
{
    return walk_string_some(w, object, size, ret, size);
}

bool walk_str(const struct walk *w, const uint8_t *head, size_t most, struct walk_str *ret)
{
    const struct offsets *o = &w->o;
    uint64_t length = u64_at(head, o->str_length);
    uint32_t state = (uint32_t)i32_at(head, o->str_state);
    unsigned width = state >> o->str_kind & 7;
    bool compact = state >> o->str_is_compact & 1, ascii = state >> o->str_is_ascii & 1;
    if (u64_at(head, o->ob_type) != address_of(w->py->PyUnicode_Type) || !compact ||
        (width != 1 && width != 2 && width != 4) || length > 1u << 30)
        return false;
    *ret = (struct walk_str){.length = length,
                             .state = (int32_t)state,
                             .width = width,
                             .count = length < most ? (size_t)length : most,
                             .at = (size_t)(ascii ? o->str_ascii : o->str_compact)};
    return true;
}

bool walk_string_some(const struct walk *w, uint64_t object, size_t chars, char *ret, size_t size)
{
    uint8_t head[WALK_STR_HEAD], data[WALK_FILE * 4];
    struct walk_str s;
    ret[0] = '\0';
    if (peek_bytes(&w->peek, object, head, (size_t)w->o.str_compact) ||
        !walk_str(w, head, chars < WALK_FILE ? chars : WALK_FILE, &s) ||
        peek_bytes(&w->peek, object + s.at, data, s.count * s.width))
        return false;
    walk_utf8(data, s.width, s.count, ret, size);
    return true;
}

int64_t walk_offset(const struct walk *w, const struct walk_frame *f)
{
    const struct offsets *o = &w->o;
    int64_t index = (int64_t)f->instr;
    if (o->co_bytecode < 0) /* from 3.10 on the index counts instructions of two bytes */
        return o->minor == 10 && index > 0 ? index * 2 : index;
    uint64_t begin = f->code + (uint64_t)o->co_bytecode, copies, units, n;
    if (f->copy <= 0)
        return (int64_t)(f->instr - begin);
    /* a thread of a free-threaded build runs a copy of its own: an array of them, its length
     * first; its first one is the code object's */
    if (peek_u64(&w->peek, f->code + (uint64_t)o->co_copies, &copies) ||
        peek_u64(&w->peek, copies, &n) || (uint64_t)f->copy >= n ||
        peek_u64(&w->peek, copies + 8 + 8 * (uint64_t)f->copy, &begin) ||
        peek_u64(&w->peek, f->code + (uint64_t)o->var_size, &units) ||
        (int64_t)(f->instr - begin) >= (int64_t)(2 * units))
        return WALK_NOWHERE;
    return (int64_t)(f->instr - begin);
}

/* The line table is too long to be kept: it is read anew, and gone over to the instruction. */
static int in_long_table(struct walk *w, const struct code_cache_code *c, int64_t offset,
                         struct lines_columns *ret)
{
    if (c->table_size > SCRATCH_MAX)
        return 0;
    if (c->table_size > w->scratch_size) {
        uint8_t *more = realloc(w->scratch, c->table_size);
        if (!more)
            return 0;
        w->scratch = more;
        w->scratch_size = c->table_size;
    }
    if (peek_bytes(&w->peek, c->table, w->scratch, c->table_size))
        return 0;
    return lines_find(w->o.minor, w->scratch, c->table_size, c->first_line, offset, ret);
}

void walk_text(struct walk *w, const struct walk_frame *f, struct walk_text *ret)
{
    struct lines_columns columns = {0, 0};
    const struct code_cache_code *c = code_cache_get(w, f);
    *ret = (struct walk_text){.func = "?", .file = "?"};
    if (!c)
        return;
    ret->readable = true;
    ret->func = c->func;
    ret->file = c->file;
    ret->setup = c->first_line == 0 && strcmp(c->func, c->file) == 0; /* as codes_is_setup() */
    int64_t offset = walk_offset(w, f);
    if (offset == WALK_NOWHERE)
        return;
    ret->line = c->ranges ? lines_search(c->ranges, c->n_ranges, c->first_line, offset, &columns)
                          : in_long_table(w, c, offset, &columns);
    ret->column = columns.first;
    ret->end_column = columns.last;
}
