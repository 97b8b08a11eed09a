/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/text.c - what a frame's code object is called, and which line of it runs.
 *
 * One thread at a time per struct walk, except walk_offset(), which is for signal handlers too.
 * The code object may be freed meanwhile: it is read before and after, and counts when it is the
 * same.
 */
#include <stdlib.h>
#include <string.h>

#include "lines.h"
#include "walk.h"

#define SCRATCH_MAX (4u << 20) /* bytes of a line table; one of 100,000 lines has about 500,000 */

static size_t put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c >= 0xd800 && c < 0xe000) /* a lone surrogate: how Python keeps a byte that is not UTF-8 */
        c = 0xfffd;
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 63));
        to[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    to[0] = (char)(0xf0 | (c >> 18 & 7));
    to[1] = (char)(0x80 | (c >> 12 & 63));
    to[2] = (char)(0x80 | (c >> 6 & 63));
    to[3] = (char)(0x80 | (c & 63));
    return 4;
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
        n += put_utf8(ret + n, c < 0x110000 ? c : 0xfffd);
    }
    ret[n] = '\0';
}

bool walk_string(const struct walk *w, uint64_t object, char *ret, size_t size)
{
    return walk_string_some(w, object, size, ret, size);
}

bool walk_string_some(const struct walk *w, uint64_t object, size_t chars, char *ret, size_t size)
{
    uint8_t head[80], data[WALK_FILE * 4];
    ret[0] = '\0';
    if (peek_bytes(&w->peek, object, head, (size_t)w->o.str_compact) ||
        u64_at(head, w->o.ob_type) != address_of(w->py->PyUnicode_Type))
        return false;
    uint64_t length = u64_at(head, w->o.str_length);
    uint32_t state = (uint32_t)i32_at(head, w->o.str_state);
    unsigned width = state >> w->o.str_kind & 7;
    bool compact = state >> w->o.str_is_compact & 1, ascii = state >> w->o.str_is_ascii & 1;
    if (!compact || (width != 1 && width != 2 && width != 4) || length > 1u << 30)
        return false;
    size_t take = length < chars ? (size_t)length : chars;
    if (take > WALK_FILE)
        take = WALK_FILE;
    uint64_t at = object + (uint64_t)(ascii ? w->o.str_ascii : w->o.str_compact);
    if (peek_bytes(&w->peek, at, data, take * width))
        return false;
    walk_utf8(data, width, take, ret, size);
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

static void find_line(struct walk *w, const struct walk_frame *f, const uint8_t *code,
                      struct walk_text *ret)
{
    uint64_t table = u64_at(code, w->o.co_lines), size;
    struct lines_columns columns = {0, 0};
    int64_t offset = walk_offset(w, f);
    if (offset == WALK_NOWHERE || peek_u64(&w->peek, table + (uint64_t)w->o.var_size, &size) ||
        size > SCRATCH_MAX)
        return;
    if (size > w->scratch_size) {
        uint8_t *more = realloc(w->scratch, (size_t)size);
        if (!more)
            return;
        w->scratch = more;
        w->scratch_size = (size_t)size;
    }
    if (peek_bytes(&w->peek, table + (uint64_t)w->o.bytes_data, w->scratch, (size_t)size))
        return;
    ret->line = lines_find(w->o.minor, w->scratch, (size_t)size, i32_at(code, w->o.co_first_line),
                           offset, &columns);
    ret->column = columns.first;
    ret->end_column = columns.last;
}

static int code_read(const struct walk *w, uint64_t address, uint8_t *ret)
{
    if (peek_bytes(&w->peek, address, ret, (size_t)w->o.co_lines + 8))
        return -EFAULT;
    return u64_at(ret, w->o.ob_type) == address_of(w->py->PyCode_Type) ? 0 : -EFAULT;
}

static bool same_code(const struct walk *w, const uint8_t *a, const uint8_t *b)
{
    return u64_at(a, w->o.co_file) == u64_at(b, w->o.co_file) &&
           u64_at(a, w->o.co_name) == u64_at(b, w->o.co_name) &&
           u64_at(a, w->o.co_lines) == u64_at(b, w->o.co_lines) &&
           i32_at(a, w->o.co_first_line) == i32_at(b, w->o.co_first_line);
}

static struct walk_seen *seen_at(struct walk *w, const struct walk_frame *f)
{
    uint64_t hash = (f->code ^ f->instr << 7) * UINT64_C(0x9e3779b97f4a7c15);
    return w->seen ? &w->seen[hash >> 56] : NULL;
}

void walk_text(struct walk *w, const struct walk_frame *f, struct walk_text *ret)
{
    uint8_t code[WALK_CODE_BYTES] = {0}, again[WALK_CODE_BYTES] = {0};
    struct walk_seen *seen = seen_at(w, f);
    *ret = (struct walk_text){.line = 0};
    if (code_read(w, f->code, code) == 0) {
        if (seen && seen->code == f->code && seen->instr == f->instr &&
            same_code(w, seen->head, code)) {
            *ret = seen->text;
            return;
        }
        int name = w->o.co_qualname >= 0 ? w->o.co_qualname : w->o.co_name;
        ret->readable = walk_string(w, u64_at(code, name), ret->func, sizeof(ret->func)) &&
                        walk_string(w, u64_at(code, w->o.co_file), ret->file, sizeof(ret->file));
        find_line(w, f, code, ret);
    }
    /* a thread that went on may have freed it while we read */
    if (ret->readable && (code_read(w, f->code, again) || !same_code(w, code, again)))
        ret->readable = false;
    if (!ret->readable) {
        *ret = (struct walk_text){.func = "?", .file = "?"};
    } else if (seen) {
        *seen = (struct walk_seen){.code = f->code, .instr = f->instr, .text = *ret};
        memcpy(seen->head, code, sizeof(code));
    }
}
