/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/code_cache.c - code objects by their address, each with the proof that it
 * is the same.
 *
 * One thread at a time per struct walk.  From 3.12 on a code object has a number that no other one
 * gets, so its head is the proof.  Before, its name, its file and its line table are compared byte
 * for byte: code that exec() makes and frees again and again lies at the same addresses each time.
 * No proof is needed while the thread whose frame holds the code object has not run since the last.
 */
#include "inspect/code_cache.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/interpreter.h"
#include "lib/hash.h"

#define SLOTS 2048 /* code objects kept, a power of two; 50 threads of a big program have 500 */
#define WAYS 4     /* slots that one address may take */
#define KEPT_MAX ((size_t)16 << 20) /* bytes of all entries; then all are forgotten */
#define TABLE_MAX (32u << 10) /* bytes of a line table that is kept: of about 6,000 lines of code */
#define PARTS (CODE_CACHE_PIECES - 1) /* name, file, line table; the first piece is the head */

struct entry {
    uint64_t address;
    uint64_t checked; /* when it was found to be the same: walk->moment */
    uint64_t asked;   /* known->round of the last plan that it is in */
    uint8_t head[WALK_CODE_BYTES];
    struct iovec part[PARTS];
    uint8_t *bytes; /* of the parts, as they were */
    size_t n_bytes, kept;
    struct code_cache_code code;
};

struct code_cache {
    struct entry *slot[SLOTS];
    size_t kept;
    struct entry *ask[WALK_CODES]; /* code_cache_plan()'s, with the number of its call */
    uint64_t round;
};

struct code_cache *code_cache_new(void)
{
    return calloc(1, sizeof(struct code_cache));
}

static void entry_free(struct code_cache *k, struct entry *e)
{
    if (!e)
        return;
    k->kept -= e->kept;
    free((void *)(uintptr_t)e->code.func);
    free((void *)(uintptr_t)e->code.file);
    free((void *)(uintptr_t)e->code.ranges);
    free(e->bytes);
    free(e);
}

static void forget_all(struct code_cache *k)
{
    for (size_t i = 0; i < SLOTS; i++) {
        entry_free(k, k->slot[i]);
        k->slot[i] = NULL;
    }
}

void code_cache_free(struct code_cache *k)
{
    if (k)
        forget_all(k);
    free(k);
}

static size_t slot_of(uint64_t address)
{
    return (size_t)(hash_spread(address) >> 40) & (SLOTS - WAYS);
}

static struct entry *find_entry(const struct code_cache *k, uint64_t address)
{
    for (size_t i = slot_of(address), way = 0; way < WAYS; way++)
        if (k->slot[i + way] && k->slot[i + way]->address == address)
            return k->slot[i + way];
    return NULL;
}

/* Into the slot of its address, else into the one that was of use longest ago. */
static void keep_entry(struct code_cache *k, struct entry *e)
{
    size_t at = slot_of(e->address);
    if (k->kept + e->kept > KEPT_MAX)
        forget_all(k);
    for (size_t i = slot_of(e->address), way = 0; way < WAYS; way++) {
        struct entry *here = k->slot[i + way], *chosen = k->slot[at];
        if (!chosen || chosen->address == e->address)
            break;
        if (!here || here->address == e->address || here->checked < chosen->checked)
            at = i + way;
    }
    entry_free(k, k->slot[at]);
    k->slot[at] = e;
    k->kept += e->kept;
}

/* ---- is it the same? ---- */

static size_t head_size(const struct walk *w)
{
    return (size_t)w->o.co_lines + 8;
}

static bool same_head(const struct walk *w, const uint8_t *a, const uint8_t *b)
{
    const struct offsets *o = &w->o;
    return u64_at(a, o->ob_type) == u64_at(b, o->ob_type) &&
           u64_at(a, o->co_file) == u64_at(b, o->co_file) &&
           u64_at(a, o->co_name) == u64_at(b, o->co_name) &&
           (o->co_qualname < 0 || u64_at(a, o->co_qualname) == u64_at(b, o->co_qualname)) &&
           u64_at(a, o->co_lines) == u64_at(b, o->co_lines) &&
           i32_at(a, o->co_first_line) == i32_at(b, o->co_first_line) &&
           (o->co_version < 0 || i32_at(a, o->co_version) == i32_at(b, o->co_version));
}

/* The pieces that must be read to know whether an entry still holds: its head, and the parts if it
 * has no number of its own. */
static size_t proof_pieces(const struct walk *w, const struct entry *e, struct iovec *ret,
                           size_t *ret_bytes)
{
    size_t n = 0;
    ret[n++] = peek_piece(e->address, head_size(w));
    *ret_bytes = head_size(w);
    if (w->o.co_version >= 0 && i32_at(e->head, w->o.co_version) != 0)
        return n;
    for (int i = 0; i < PARTS && e->part[i].iov_len; i++)
        ret[n++] = e->part[i];
    *ret_bytes += e->n_bytes;
    return n;
}

static bool is_proved(const struct walk *w, const struct entry *e, const uint8_t *bytes, size_t n)
{
    return same_head(w, e->head, bytes) &&
           (n == head_size(w) || memcmp(e->bytes, bytes + head_size(w), e->n_bytes) == 0);
}

static bool is_fresh(const struct entry *e, const struct walk_frame *f)
{
    return f->since && e->checked >= f->since;
}

static bool check_one(const struct walk *w, struct entry *e)
{
    struct iovec pieces[CODE_CACHE_PIECES];
    size_t bytes, n = proof_pieces(w, e, pieces, &bytes);
    if (peek_pieces(&w->peek, pieces, n, w->copies) != bytes || !is_proved(w, e, w->copies, bytes))
        return false;
    e->checked = w->moment;
    return true;
}

size_t code_cache_plan(struct walk *w, const struct walk_frame *frames, size_t n, size_t most)
{
    struct code_cache *k = w->known;
    struct iovec pieces[CODE_CACHE_PIECES];
    size_t asked = 0, bytes = 0, size;
    k->round++;
    for (size_t i = 0; i < n && asked < WALK_CODES; i++) {
        struct entry *e = find_entry(k, frames[i].code);
        if (!e || e->asked == k->round || is_fresh(e, &frames[i]))
            continue;
        (void)proof_pieces(w, e, pieces, &size);
        if (size > most - bytes)
            break;
        bytes += size;
        e->asked = k->round;
        k->ask[asked++] = e;
    }
    return asked;
}

size_t code_cache_pieces(const struct walk *w, size_t i, struct iovec ret[CODE_CACHE_PIECES],
                         size_t *ret_bytes)
{
    return proof_pieces(w, w->known->ask[i], ret, ret_bytes);
}

void code_cache_read(const struct walk *w, size_t i, const uint8_t *bytes, size_t size)
{
    if (is_proved(w, w->known->ask[i], bytes, size))
        w->known->ask[i]->checked = w->moment;
}

void code_cache_check(struct walk *w, const struct walk_frame *frames, size_t n)
{
    size_t asked = code_cache_plan(w, frames, n, WALK_COPIES), pieces = 0, size;
    for (size_t i = 0; i < asked; i++)
        pieces += code_cache_pieces(w, i, w->pieces + pieces, &size);
    const uint8_t *at = w->copies, *end = w->copies;
    end += asked ? peek_pieces(&w->peek, w->pieces, pieces, w->copies) : 0;
    for (size_t i = 0; i < asked; i++, at += size) {
        struct iovec again[CODE_CACHE_PIECES];
        (void)code_cache_pieces(w, i, again, &size);
        if (at + size > end)
            break; /* one was not readable: code_cache_get() finds out which */
        code_cache_read(w, i, at, size);
    }
}

/* ---- a new one ---- */

/* A str object's part: from its length to the last of its first `most` characters. */
static bool str_part(const struct walk *w, uint64_t object, size_t most, struct iovec *ret,
                     struct walk_str *ret_str)
{
    uint8_t head[WALK_STR_HEAD];
    if (peek_bytes(&w->peek, object, head, (size_t)w->o.str_compact) ||
        !walk_str(w, head, most, ret_str))
        return false;
    *ret = peek_piece(object + (uint64_t)w->o.str_length,
                      ret_str->at - (size_t)w->o.str_length + ret_str->count * ret_str->width);
    return true;
}

static char *str_text(const struct walk *w, const uint8_t *part, const struct walk_str *s,
                      size_t size)
{
    char *text = malloc(size);
    if (!text)
        return NULL;
    walk_utf8(part + s->at - w->o.str_length, s->width, s->count, text, size);
    char *less = realloc(text, strlen(text) + 1);
    return less ? less : text;
}

/* The str is as long and wide as it was when its part was planned. */
static bool same_str(const struct walk *w, const uint8_t *part, const struct walk_str *s)
{
    return u64_at(part, 0) == s->length &&
           i32_at(part, w->o.str_state - w->o.str_length) == s->state;
}

static bool decode_lines(const struct walk *w, struct entry *e, const uint8_t *table)
{
    struct code_cache_code *c = &e->code;
    size_t n = lines_decode(w->o.minor, table, c->table_size, c->first_line, NULL, 0);
    struct lines_range *ranges = malloc((n + 1) * sizeof(*ranges));
    if (!ranges)
        return false;
    c->n_ranges = lines_decode(w->o.minor, table, c->table_size, c->first_line, ranges, n);
    c->ranges = ranges;
    return true;
}

/* The parts have been planned: read them all, with the head again, in one moment. */
static bool read_parts(const struct walk *w, struct entry *e, const struct walk_str *func,
                       const struct walk_str *file)
{
    struct iovec pieces[CODE_CACHE_PIECES] = {peek_piece(e->address, head_size(w))};
    uint8_t *copy = w->copies, *part = copy + head_size(w);
    size_t n = 1;
    for (int i = 0; i < PARTS && e->part[i].iov_len; i++) {
        pieces[n++] = e->part[i];
        e->n_bytes += e->part[i].iov_len;
    }
    if (peek_pieces(&w->peek, pieces, n, copy) != head_size(w) + e->n_bytes ||
        !same_head(w, e->head, copy) || !same_str(w, part, func) ||
        !same_str(w, part + e->part[0].iov_len, file))
        return false;
    e->code.func = str_text(w, part, func, WALK_NAME);
    e->code.file = str_text(w, part + e->part[0].iov_len, file, WALK_FILE);
    e->bytes = malloc(e->n_bytes);
    if (!e->code.func || !e->code.file || !e->bytes)
        return false;
    memcpy(e->bytes, part, e->n_bytes);
    const uint8_t *table = part + e->part[0].iov_len + e->part[1].iov_len;
    if (e->part[2].iov_len && (u64_at(table, 0) != e->code.table_size ||
                               !decode_lines(w, e, table + w->o.bytes_data - w->o.var_size)))
        return false;
    e->kept = sizeof(*e) + e->n_bytes + e->code.n_ranges * sizeof(*e->code.ranges) +
              strlen(e->code.func) + strlen(e->code.file);
    return true;
}

static bool read_new(const struct walk *w, struct entry *e)
{
    const struct offsets *o = &w->o;
    struct walk_str func, file;
    uint64_t size;
    if (peek_bytes(&w->peek, e->address, e->head, head_size(w)) ||
        u64_at(e->head, o->ob_type) != address_of(w->py->PyCode_Type))
        return false;
    uint64_t lines = u64_at(e->head, o->co_lines);
    int name = o->co_qualname >= 0 ? o->co_qualname : o->co_name;
    if (!str_part(w, u64_at(e->head, name), WALK_NAME, &e->part[0], &func) ||
        !str_part(w, u64_at(e->head, o->co_file), WALK_FILE, &e->part[1], &file) ||
        peek_u64(&w->peek, lines + (uint64_t)o->var_size, &size))
        return false;
    e->code.first_line = i32_at(e->head, o->co_first_line);
    e->code.table = lines + (uint64_t)o->bytes_data;
    e->code.table_size = (size_t)size;
    if (size <= TABLE_MAX)
        e->part[2] = peek_piece(lines + (uint64_t)o->var_size,
                                (size_t)(o->bytes_data - o->var_size) + (size_t)size);
    return read_parts(w, e, &func, &file);
}

const struct code_cache_code *code_cache_get(struct walk *w, const struct walk_frame *f)
{
    struct entry *e = find_entry(w->known, f->code);
    if (e && (is_fresh(e, f) || check_one(w, e)))
        return &e->code;
    e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    e->address = f->code;
    if (!read_new(w, e)) {
        entry_free(w->known, e);
        return NULL;
    }
    e->checked = w->moment;
    keep_entry(w->known, e);
    return &e->code;
}
