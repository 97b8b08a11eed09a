/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/code_names.c - code objects by their mark, and copies of what names them.
 *
 * Reads and copies are for signal handlers on any thread: no lock, no allocation, every read of the
 * interpreter's memory by the kernel.  Names are made by one worker at a time.  What is known is
 * kept until the end, which bounds how many code objects are; beyond that they are named anew each
 * time.
 */
#include "inspect/code_names.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/line_table.h"
#include "lib/hash.h"

#define SLOTS (1u << 16) /* of the table of known code objects, a power of two */
#define KNOWN_MAX (SLOTS / 2)
#define KNOWN_BYTES ((size_t)32 << 20) /* of all their names and line tables */
#define LIKE_MAX 256                   /* code objects with one mark that are told apart */
#define NAME_BYTES 1024                /* of a name's characters, as they lie in memory */
#define FILE_BYTES 2048
#define TABLE_BYTES (8u << 10) /* of a line table copied in a handler */
#define NO_ROOM UINT32_MAX
#define AGAIN_BYTES (4u << 20) /* a line table of 100,000 lines has about 500,000 */

/* The first bytes of a code object's name, file and line table, as they lie in memory. */
struct names {
    uint64_t at[CODES_PARTS];
    uint32_t size[CODES_PARTS];
    uint8_t bytes[CODES_PARTS][CODES_PART_BYTES];
};

struct code {
    uint64_t address;
    struct codes_mark mark;
    struct names *names; /* NULL from 3.12 on: the mark's number is enough */
    uint32_t number;
    uint32_t table_size;
    uint8_t *table; /* NULL: its lines are not known */
    char *func, *file;
};

/* The copy of what names a code object: the bytes of the name's str object, of the file's and of
 * the line table. */
struct parts {
    struct codes_mark mark;
    uint32_t func_bytes, file_bytes, table_bytes;
    uint32_t has_table;
};

static struct {
    const struct walk *walk;           /* its offsets and py do not change */
    _Atomic(struct code *) *known;     /* SLOTS; set once each, read by handlers */
    _Atomic(struct code *) *by_number; /* KNOWN_MAX + 1 */
    uint32_t n;
    size_t bytes;
    uint8_t *again; /* room for the parts of one code object */
} all;

/* ---- known code objects ---- */

void codes_mark(const uint8_t *head, struct codes_mark *ret) /* [signal] */
{
    const struct offsets *o = &all.walk->o;
    memset(ret, 0, sizeof(*ret));
    ret->file = u64_at(head, o->co_file);
    ret->name = u64_at(head, o->co_name);
    ret->qualname = o->co_qualname >= 0 ? u64_at(head, o->co_qualname) : 0;
    ret->lines = u64_at(head, o->co_lines);
    ret->first_line = i32_at(head, o->co_first_line);
    ret->version = o->co_version >= 0 ? (uint32_t)i32_at(head, o->co_version) : 0;
}

uint32_t codes_hash(const struct codes_mark *m) /* [signal] */
{
    uint64_t hash = (uint64_t)(uint32_t)m->first_line | (uint64_t)m->version << 32;
    const uint64_t word[] = {m->file, m->name, m->qualname, m->lines};
    for (int i = 0; i < 4; i++)
        hash = hash_spread(hash ^ word[i]) >> 7 ^ hash << 57;
    return (uint32_t)(hash ^ hash >> 32);
}

bool codes_is_setup(const struct codes_mark *m) /* [signal] */
{
    return m->first_line == 0 && m->file == m->name && m->qualname == m->name;
}

static uint32_t slot_of(uint64_t address) /* [signal] */
{
    return (uint32_t)(hash_spread(address) >> 48) & (SLOTS - 1);
}

/* A code object that is known already; NULL: it is not.                             [signal] */
static struct code *find_code(uint64_t address, const struct codes_mark *mark)
{
    for (uint32_t i = slot_of(address), n = 0; n < SLOTS; i = (i + 1) & (SLOTS - 1), n++) {
        struct code *c = atomic_load_explicit(&all.known[i], memory_order_acquire);
        if (!c)
            return NULL;
        if (c->address == address && memcmp(&c->mark, mark, sizeof(*mark)) == 0)
            return c;
    }
    return NULL;
}

bool codes_is_number(uint32_t number, uint64_t address)
{
    const struct code *c = number <= KNOWN_MAX
                               ? atomic_load_explicit(&all.by_number[number], memory_order_acquire)
                               : NULL;
    return c && c->address == address;
}

uint32_t codes_find(uint64_t address, const struct codes_mark *mark)
{
    const struct code *found = find_code(address, mark);
    return found ? found->number : 0;
}

static bool same_names(const struct code *c, const uint8_t bytes[][CODES_PART_BYTES]) /* [signal] */
{
    for (int i = 0; i < CODES_PARTS; i++)
        if (memcmp(c->names->bytes[i], bytes[i], c->names->size[i]) != 0)
            return false;
    return true;
}

/* As find_code(), and with these names; NULL: none of the first LIKE_MAX there.   [signal] */
static struct code *find_like(uint64_t address, const struct codes_mark *mark,
                              const uint8_t bytes[][CODES_PART_BYTES])
{
    uint32_t seen = 0;
    for (uint32_t i = slot_of(address), n = 0; n < SLOTS; i = (i + 1) & (SLOTS - 1), n++) {
        struct code *c = atomic_load_explicit(&all.known[i], memory_order_acquire);
        if (!c || seen == LIKE_MAX)
            return NULL;
        if (c->address != address || memcmp(&c->mark, mark, sizeof(*mark)) != 0)
            continue;
        seen++;
        if (!c->names || same_names(c, bytes))
            return c;
    }
    return NULL;
}

/* ---- copying what names a code object ---- */

/* The bytes of a str object with `most` of its characters'; 0: no str, or no room.  [signal] */
static uint32_t copy_str(uint64_t object, uint8_t *to, uint32_t room, uint32_t most)
{
    const struct offsets *o = &all.walk->o;
    uint32_t head = (uint32_t)o->str_compact;
    if (room < head || peek_bytes(&all.walk->peek, object, to, head) ||
        u64_at(to, o->ob_type) != (uint64_t)(uintptr_t)all.walk->py->PyUnicode_Type)
        return 0;
    uint32_t state = (uint32_t)i32_at(to, o->str_state), width = state >> o->str_kind & 7;
    uint64_t length = u64_at(to, o->str_length), bytes;
    if (!(state >> o->str_is_compact & 1) || width == 0 || width > 4 || length > 1u << 30)
        return 0;
    uint32_t begin = state >> o->str_is_ascii & 1 ? (uint32_t)o->str_ascii : head;
    bytes = length * width < most ? length * width : most;
    if (bytes > room - head ||
        peek_bytes(&all.walk->peek, object + begin, to + head, (size_t)bytes))
        return 0;
    return head + (uint32_t)bytes;
}

/* Copy what names the code object with this mark; how many bytes, 0: no room or not readable.
 *                                                                                   [signal] */
static uint32_t copy_parts(const struct codes_mark *mark, uint8_t *to, uint32_t room,
                           uint32_t table_most)
{
    const struct offsets *o = &all.walk->o;
    struct parts p = {.mark = *mark};
    uint32_t at = sizeof(p);
    uint64_t size;
    if (room < sizeof(p))
        return 0;
    p.func_bytes =
        copy_str(o->co_qualname >= 0 ? mark->qualname : mark->name, to + at, room - at, NAME_BYTES);
    at += p.func_bytes;
    p.file_bytes = p.func_bytes ? copy_str(mark->file, to + at, room - at, FILE_BYTES) : 0;
    at += p.file_bytes;
    if (!p.file_bytes)
        return 0;
    if (peek_u64(&all.walk->peek, mark->lines + (uint64_t)o->var_size, &size) == 0 &&
        size <= table_most && size <= room - at &&
        peek_bytes(&all.walk->peek, mark->lines + (uint64_t)o->bytes_data, to + at, (size_t)size) ==
            0) {
        p.table_bytes = (uint32_t)size;
        p.has_table = 1;
        at += p.table_bytes;
    }
    memcpy(to, &p, sizeof(p));
    at = (at + 15) & ~15u;
    return at <= room ? at : 0;
}

uint32_t codes_copy(const struct codes_mark *mark, uint8_t *to, uint32_t room)
{
    return copy_parts(mark, to, room, TABLE_BYTES);
}

/* Code objects that are read with one system call, each once though a stack may be deep in it. */
struct check {
    const struct code *code;
    uint32_t number, known, copied; /* the frames' after it */
};

/* The number of a frame's among them; n: it is not there.                           [signal] */
static uint32_t find_check(const struct check *checks, uint32_t n, uint32_t number)
{
    uint32_t i = 0;
    while (i < n && checks[i].number != number)
        i++;
    return i;
}

/* The bytes to compare the frames from `begin` on with; how many, *ret_end: where they end.
 * [signal] */
static uint32_t gather_checks(const struct probing_python_look *l, uint32_t begin,
                              struct check *checks, uint32_t *ret_end)
{
    uint32_t n = 0, i = begin;
    for (; i < l->n_frames; i++) {
        uint32_t number = l->frames[i].known;
        if (!number || find_check(checks, n, number) < n)
            continue;
        if (n == CODES_AT_ONCE)
            break;
        checks[n++] = (struct check){
            atomic_load_explicit(&all.by_number[number], memory_order_acquire), number, number, 0};
    }
    *ret_end = i;
    return n;
}

/* bytes: what stands there now, as the code object's names lie; NULL: not readable.  [signal] */
static void check_code(struct probing_python_look *l, struct check *c, const uint8_t *bytes)
{
    uint8_t now[CODES_PARTS][CODES_PART_BYTES] = {{0}};
    for (int k = 0; bytes && k < CODES_PARTS; bytes += c->code->names->size[k++])
        memcpy(now[k], bytes, c->code->names->size[k]);
    if (bytes && same_names(c->code, now))
        return;
    const struct code *right = bytes ? find_like(c->code->address, &c->code->mark, now) : NULL;
    c->known = right ? right->number : 0;
    uint32_t size =
        right ? 0 : codes_copy(&c->code->mark, l->bytes + l->n_bytes, l->max_bytes - l->n_bytes);
    c->copied = size ? l->n_bytes : NO_ROOM;
    l->n_bytes += size;
}

void codes_check(struct probing_python_look *l, struct iovec *pieces, uint8_t *room)
{
    struct check checks[CODES_AT_ONCE];
    for (uint32_t begin = 0, end; begin < l->n_frames && all.walk->o.co_version < 0; begin = end) {
        uint32_t n = gather_checks(l, begin, checks, &end);
        size_t want = 0, used = 0;
        for (uint32_t i = 0; i < n; i++)
            for (int k = 0; k < CODES_PARTS; k++, used++) {
                const struct names *names = checks[i].code->names;
                pieces[used] = peek_piece(names->at[k], names->size[k]);
                want += names->size[k];
            }
        bool read = peek_pieces(&all.walk->peek, pieces, used, room) == want;
        const uint8_t *at = room;
        for (uint32_t i = 0; i < n; i++) {
            check_code(l, &checks[i], read ? at : NULL);
            for (int k = 0; k < CODES_PARTS; k++)
                at += checks[i].code->names->size[k];
        }
        for (uint32_t i = begin; i < end; i++) {
            uint32_t k = find_check(checks, n, l->frames[i].known);
            if (!l->frames[i].known || k == n || checks[k].known == checks[k].number)
                continue;
            l->frames[i].known = checks[k].known;
            l->frames[i].copied = checks[k].copied;
        }
    }
}

/* ---- names ---- */

/* A copied str object as UTF-8; to be freed. */
static char *str_text(const uint8_t *str, uint32_t bytes, size_t most)
{
    const struct offsets *o = &all.walk->o;
    uint32_t width = (uint32_t)i32_at(str, o->str_state) >> o->str_kind & 7;
    uint32_t n = (bytes - (uint32_t)o->str_compact) / width;
    char *text = malloc(most);
    if (text)
        walk_utf8(str + o->str_compact, width, n, text, most);
    return text;
}

/* The first bytes of a str object behind its head, from a copy of it. */
static uint32_t str_names(const uint8_t *str, uint32_t bytes, uint8_t *ret)
{
    const struct offsets *o = &all.walk->o;
    uint32_t state = (uint32_t)i32_at(str, o->str_state), head = (uint32_t)o->str_compact;
    uint32_t begin = state >> o->str_is_ascii & 1 ? (uint32_t)o->str_ascii : head;
    uint32_t n = begin - (uint32_t)o->str_length, more = bytes - head;
    memcpy(ret, str + o->str_length, n);
    more = more < CODES_PART_BYTES - n ? more : CODES_PART_BYTES - n;
    memcpy(ret + n, str + head, more);
    return n + more;
}

static struct names *names_new(const struct parts *p, const uint8_t *func, const uint8_t *file,
                               const uint8_t *table)
{
    const struct offsets *o = &all.walk->o;
    const struct codes_mark *m = &p->mark;
    struct names *n = calloc(1, sizeof(*n));
    if (!n)
        return NULL;
    n->at[0] = (o->co_qualname >= 0 ? m->qualname : m->name) + (uint64_t)o->str_length;
    n->at[1] = m->file + (uint64_t)o->str_length;
    n->at[2] = m->lines + (uint64_t)o->bytes_data;
    n->size[0] = str_names(func, p->func_bytes, n->bytes[0]);
    n->size[1] = str_names(file, p->file_bytes, n->bytes[1]);
    n->size[2] = p->table_bytes < CODES_PART_BYTES ? p->table_bytes : CODES_PART_BYTES;
    memcpy(n->bytes[2], table, n->size[2]);
    return n;
}

static void code_free(struct code *c)
{
    if (!c)
        return;
    free(c->names);
    free(c->func);
    free(c->file);
    free(c->table);
    free(c);
}

static struct code *code_new(uint64_t address, const uint8_t *bytes)
{
    struct parts p;
    memcpy(&p, bytes, sizeof(p));
    const uint8_t *func = bytes + sizeof(p), *file = func + p.func_bytes;
    struct code *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->address = address;
    c->mark = p.mark;
    c->func = str_text(func, p.func_bytes, WALK_NAME);
    c->file = str_text(file, p.file_bytes, WALK_FILE);
    c->table_size = p.table_bytes;
    c->table = p.has_table ? malloc(p.table_bytes + 1u) : NULL;
    if (all.walk->o.co_version < 0)
        c->names = names_new(&p, func, file, file + p.file_bytes);
    if (!c->func || !c->file || (p.has_table && !c->table) ||
        (all.walk->o.co_version < 0 && !c->names)) {
        code_free(c);
        return NULL;
    }
    /* they are kept for ever: no more than they need */
    char *less = realloc(c->func, strlen(c->func) + 1);
    c->func = less ? less : c->func;
    less = realloc(c->file, strlen(c->file) + 1);
    c->file = less ? less : c->file;
    if (p.has_table)
        memcpy(c->table, file + p.file_bytes, p.table_bytes);
    return c;
}

static void code_text(const struct code *c, int64_t offset, struct probing_python_text *ret)
{
    (void)snprintf(ret->func, sizeof(ret->func), "%s", c->func);
    (void)snprintf(ret->file, sizeof(ret->file), "%s", c->file);
    ret->line = c->table && offset != WALK_NOWHERE
                    ? lines_find(all.walk->o.minor, c->table, c->table_size, c->mark.first_line,
                                 offset, /* ret= */ NULL)
                    : 0;
}

/* Publish: 0, or -ENOSPC and it stays the caller's. */
static int code_keep(struct code *c)
{
    size_t bytes = sizeof(*c) + (c->names ? sizeof(*c->names) : 0) + c->table_size +
                   strlen(c->func) + strlen(c->file) + 64;
    if (all.n == KNOWN_MAX || all.bytes + bytes > KNOWN_BYTES)
        return -ENOSPC;
    c->number = ++all.n;
    all.bytes += bytes;
    uint32_t i = slot_of(c->address);
    while (atomic_load_explicit(&all.known[i], memory_order_relaxed))
        i = (i + 1) & (SLOTS - 1);
    atomic_store_explicit(&all.by_number[c->number], c, memory_order_release);
    atomic_store_explicit(&all.known[i], c, memory_order_release);
    return 0;
}

/* There was no room in the handler: the code object may be there still. */
static const uint8_t *read_again(const struct probing_python_frame *frame)
{
    uint8_t head[CODES_HEAD], after[CODES_HEAD];
    struct codes_mark mark, second;
    size_t size = (size_t)all.walk->o.co_lines + 8;
    if (!all.again)
        all.again = malloc(AGAIN_BYTES);
    if (!all.again || peek_bytes(&all.walk->peek, frame->code, head, size))
        return NULL;
    codes_mark(head, &mark);
    if (codes_hash(&mark) != frame->mark ||
        !copy_parts(&mark, all.again, AGAIN_BYTES, AGAIN_BYTES) ||
        peek_bytes(&all.walk->peek, frame->code, after, size))
        return NULL;
    codes_mark(after, &second);
    return memcmp(&mark, &second, sizeof(mark)) == 0 ? all.again : NULL;
}

/* The line table was too long for the handler: take what the code object has now. */
static const uint8_t *full_line_table(const struct probing_python_frame *frame,
                                      const uint8_t *bytes)
{
    struct parts p;
    memcpy(&p, bytes, sizeof(p));
    const uint8_t *whole = p.has_table ? NULL : read_again(frame);
    uint32_t names = p.func_bytes + p.file_bytes;
    /* before 3.12 it may be another one by now */
    return whole && memcmp(whole + sizeof(p), bytes + sizeof(p), names) == 0 ? whole : bytes;
}

static int64_t name_new(const struct probing_python_look *l,
                        const struct probing_python_frame *frame, struct probing_python_text *ret)
{
    const uint8_t *bytes = frame->copied < l->n_bytes
                               ? full_line_table(frame, l->bytes + frame->copied)
                               : read_again(frame);
    if (!bytes)
        return -ENOENT;
    struct code *c = code_new(frame->code, bytes);
    if (!c)
        return -ENOMEM;
    const struct code *old = c->names ? find_like(c->address, &c->mark, c->names->bytes)
                                      : find_code(c->address, &c->mark);
    if (old) {
        code_free(c);
        code_text(old, frame->offset, ret);
        return old->number;
    }
    code_text(c, frame->offset, ret);
    int r = code_keep(c);
    if (r < 0) {
        code_free(c);
        return r;
    }
    return c->number;
}

int64_t codes_name(const struct probing_python_look *l, const struct probing_python_frame *frame,
                   struct probing_python_text *ret)
{
    if (frame->known == 0 || frame->known > KNOWN_MAX)
        return name_new(l, frame, ret);
    const struct code *c = atomic_load_explicit(&all.by_number[frame->known], memory_order_acquire);
    if (!c)
        return -ENOENT;
    code_text(c, frame->offset, ret);
    return c->number;
}

/* ---- begin and end ---- */

int codes_open(const struct walk *w)
{
    all.walk = w;
    all.n = 0;
    all.bytes = 0;
    all.known = calloc(SLOTS, sizeof(*all.known)); /* zero pages until they are used */
    all.by_number = calloc(KNOWN_MAX + 1, sizeof(*all.by_number));
    return all.known && all.by_number ? 0 : -ENOMEM;
}

void codes_close(void)
{
    for (uint32_t i = 1; all.by_number && i <= all.n; i++)
        code_free(atomic_load_explicit(&all.by_number[i], memory_order_relaxed));
    free(all.known);
    free(all.by_number);
    free(all.again);
    all.known = all.by_number = NULL;
    all.again = NULL;
    all.n = 0;
    all.bytes = 0;
}
