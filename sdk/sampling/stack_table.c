/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/stack_table.c - a table of stacks, and what is in memory so that each
 * frame is named once and each stack is stored once.
 *
 * Its owner's thread only.  Everything here is a cache with a limit: when it is
 * full it is emptied, and what is seen again is stored again under another number.
 */
#include "stack_table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/hash.h"
#include "probing_sdk.h"

#define MAP_FIRST 1024u
#define MAP_MAX (1u << 20)                /* entries of 16 bytes: 16 MiB */
#define RENEW_NS (600 * PROBING_NS_PER_S) /* a stack is stored again after this */
#define FRAMES_MAX (1u << 20)
#define KEPT_FRAMES (5u << 20)       /* frames of all stacks that are kept: 20 MiB */
#define KEPT_MAX 100000u             /* and the stacks */
#define MODULES_NS PROBING_NS_PER_S  /* between readings for addresses of no module */
#define ANYWHERE (UINT64_C(3) << 62) /* an address as key: of a function, all of it */
#define PLACE (UINT64_C(1) << 63)    /* of one place */

/* From a 64-bit key that is never 0 to a value; open addressing. */
struct map {
    struct pair {
        uint64_t key, value;
    } * pairs;
    uint32_t n, room;
};

struct frame {
    uint64_t func, file, module; /* interned */
    int32_t line;
    bool python;
    char *words; /* func, file and module, each with its NUL; NULL: not kept */
};

/* A stack that keeps its number. */
struct kept {
    struct kept *next;
    int64_t id;
    uint64_t stored_ns;
    uint32_t n, frames[];
};

struct stacks {
    const struct probing_host *host;
    const struct probing_stack_1 *symbols;
    const struct probing_python_frames_1 *python;
    struct code *code;
    struct probing_table *stored;
    struct frame *frames;
    uint32_t n_frames, frames_room;
    struct map by_content; /* frame's content -> its number */
    struct map by_address; /* address -> number and kind */
    struct map by_code;    /* code object and instruction -> number */
    struct map by_stack;   /* stack's content -> its id */
    struct map by_id;      /* id -> struct kept */
    struct kept *kept;
    uint32_t n_kept, kept_frames;
    bool keeps;
    uint64_t stored_since, modules_ns;
    int64_t next_id;
    uint64_t words[2];     /* interned "python", "native" */
    uint32_t marks[MARKS]; /* numbers of those frames, 0: not made */
    struct probing_stack_symbol symbol;
    struct probing_python_text text;
};

static const struct probing_column STACKS_COLUMNS[] = {
    {.name = "stack_id", .type = PROBING_I64, .doc = "number of the stack"},
    {.name = "depth", .type = PROBING_I64, .doc = "0 is the innermost frame"},
    {.name = "frame_type", .type = PROBING_STR, .doc = "python or native"},
    {.name = "func",
     .type = PROBING_STR,
     .doc = "name of the function, qualified from CPython 3.11 on"},
    {.name = "file", .type = PROBING_STR, .doc = "source file; NULL for native frames"},
    {.name = "lineno", .type = PROBING_I64, .doc = "line; NULL if it is not known"},
    {.name = "module", .type = PROBING_STR, .doc = "object file of a native frame, else NULL"},
};

/* ---- maps ---- */

static struct pair *map_slot(const struct map *m, uint64_t key)
{
    uint32_t i = (uint32_t)(hash_spread(key) >> 40) & (m->room - 1);
    while (m->pairs[i].key && m->pairs[i].key != key)
        i = (i + 1) & (m->room - 1);
    return &m->pairs[i];
}

static void map_clear(struct map *m)
{
    free(m->pairs);
    *m = (struct map){.pairs = NULL};
}

static const uint64_t *map_get(const struct map *m, uint64_t key)
{
    const struct pair *p = m->room ? map_slot(m, key) : NULL;
    return p && p->key ? &p->value : NULL;
}

/* Without memory it forgets, which costs time only. */
static void map_put(struct map *m, uint64_t key, uint64_t value)
{
    if (m->n * 4 >= m->room * 3) {
        struct map more = {.room = m->room ? m->room * 2 : MAP_FIRST};
        more.pairs = more.room <= MAP_MAX ? calloc(more.room, sizeof(*more.pairs)) : NULL;
        for (uint32_t i = 0; more.pairs && i < m->room; i++)
            if (m->pairs[i].key) {
                *map_slot(&more, m->pairs[i].key) = m->pairs[i];
                more.n++;
            }
        map_clear(m);
        if (!more.pairs)
            return;
        *m = more;
    }
    struct pair *p = map_slot(m, key);
    m->n += p->key == 0;
    *p = (struct pair){key, value};
}

static uint64_t mix_hash(uint64_t hash, uint64_t word)
{
    hash = hash_spread(hash ^ word);
    return hash ^ hash >> 32;
}

/* ---- frames ---- */

static uint64_t intern_text(const struct stacks *s, const char *text)
{
    return probing_intern_text(s->host, text[0] ? text : NULL);
}

static char *words_of(const char *func, const char *file, const char *module)
{
    size_t n_func = strlen(func) + 1, n_file = strlen(file) + 1, n_module = strlen(module) + 1;
    char *words = malloc(n_func + n_file + n_module);
    if (words) {
        memcpy(words, func, n_func);
        memcpy(words + n_func, file, n_file);
        memcpy(words + n_func + n_file, module, n_module);
    }
    return words;
}

/* The number of a frame with this content; 0: no memory. */
static uint32_t frame_number(struct stacks *s, const struct frame *f, const char *func,
                             const char *file, const char *module)
{
    uint64_t key =
        mix_hash(mix_hash(mix_hash(mix_hash(f->python + 1u, f->func), f->file), f->module),
                 (uint32_t)f->line) |
        1;
    const uint64_t *found = map_get(&s->by_content, key);
    if (found)
        return (uint32_t)*found;
    if (s->n_frames == s->frames_room) {
        uint32_t room = s->frames_room ? s->frames_room * 2 : 256;
        struct frame *more = room <= FRAMES_MAX ? realloc(s->frames, room * sizeof(*more)) : NULL;
        if (!more)
            return 0;
        s->frames = more;
        s->frames_room = room;
    }
    if (s->n_frames == 0)
        s->frames[s->n_frames++] = (struct frame){.line = 0}; /* number 0 is nobody's */
    s->frames[s->n_frames] = *f;
    s->frames[s->n_frames].words = s->keeps ? words_of(func, file, module) : NULL;
    map_put(&s->by_content, key, s->n_frames);
    return s->n_frames++;
}

/* All frames get other numbers. */
static void forget_frames(struct stacks *s)
{
    map_clear(&s->by_content);
    map_clear(&s->by_address);
    map_clear(&s->by_code);
    map_clear(&s->by_stack);
    map_clear(&s->by_id);
    for (struct kept *k = s->kept, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    s->kept = NULL;
    s->n_kept = s->kept_frames = 0;
    for (uint32_t i = 0; i < s->n_frames; i++)
        free(s->frames[i].words);
    s->n_frames = 0;
    memset(s->marks, 0, sizeof(s->marks));
}

void stacks_read_modules(struct stacks *s)
{
    if (s->symbols && s->symbols->size >= sizeof(*s->symbols))
        (void)s->symbols->refresh();
    s->modules_ns = s->host->now();
    map_clear(&s->by_address);
}

void stacks_name_with(struct stacks *s, const struct probing_stack_1 *symbols,
                      const struct probing_python_frames_1 *python, struct code *code)
{
    s->code = code;
    s->symbols = symbols;
    s->python = python;
    map_clear(&s->by_address); /* what a function is to Python may be another answer now */
}

static void read_symbol(struct stacks *s, uint64_t address)
{
    s->symbol = (struct probing_stack_symbol){.size = sizeof(s->symbol)};
    if (s->symbols)
        (void)s->symbols->symbol(address, &s->symbol);
}

/* Name the frame at an address.  *ret_key: what else it is the name of, as a key of by_address. */
static uint32_t name_native(struct stacks *s, uint64_t address, int *ret_kind, uint64_t *ret_key)
{
    uint64_t begin = code_function(s->code, address);
    uint64_t inside = begin && begin <= address ? address - begin : 0;
    read_symbol(s, address);
    if (!s->symbol.module[0] && s->host->now() - s->modules_ns > MODULES_NS) {
        stacks_read_modules(s); /* a module that was loaded a moment ago */
        read_symbol(s, address);
    }
    /* unwind table and symbols agree on where the function begins: it is one name */
    *ret_key = begin && s->symbol.name[0] && s->symbol.offset == inside ? begin | ANYWHERE
                                                                        : address | PLACE;
    *ret_kind = s->python ? s->python->kind(s->symbol.name, s->symbol.module) : 0;
    if (code_rule(s->code, address).cfa == CFA_PLT) { /* has no symbols: not the one before */
        (void)snprintf(s->symbol.name, sizeof(s->symbol.name), "[plt]");
        *ret_key = address | PLACE;
    }
    if (!s->symbol.name[0]) /* a function without a symbol is named by where it begins */
        (void)snprintf(s->symbol.name, sizeof(s->symbol.name),
                       s->symbol.module[0] ? "[0x%llx]" : "[unknown]",
                       (unsigned long long)(s->symbol.module_offset - inside));
    struct frame f = {.func = intern_text(s, s->symbol.name),
                      .module = intern_text(s, s->symbol.module)};
    return frame_number(s, &f, s->symbol.name, "", s->symbol.module);
}

uint32_t stacks_native(struct stacks *s, uint64_t address, int *ret_kind)
{
    const uint64_t *found = map_get(&s->by_address, address | PLACE);
    uint64_t begin = found ? 0 : code_function(s->code, address);
    if (!found && begin)
        found = map_get(&s->by_address, begin | ANYWHERE);
    if (found) {
        *ret_kind = (int)(*found >> 32);
        return (uint32_t)*found;
    }
    uint64_t key;
    uint32_t number = name_native(s, address, ret_kind, &key);
    if (number)
        map_put(&s->by_address, key, (uint64_t)*ret_kind << 32 | number);
    return number;
}

uint32_t stacks_python(struct stacks *s, const struct probing_python_look *look, uint32_t i)
{
    const struct probing_python_frame *at = &look->frames[i];
    uint64_t key = (uint64_t)at->known << 32 | (uint32_t)at->offset;
    const uint64_t *found = at->known ? map_get(&s->by_code, key) : NULL;
    if (found)
        return (uint32_t)*found;
    s->text.size = sizeof(s->text);
    int64_t code = s->python->name(look, i, &s->text);
    bool named = code > 0 || code == -ENOSPC;
    struct frame f = {.func = intern_text(s, named ? s->text.func : "?"),
                      .file = named ? intern_text(s, s->text.file) : PROBING_NULL_ID,
                      .line = named ? s->text.line : 0,
                      .python = true};
    uint32_t number =
        frame_number(s, &f, named ? s->text.func : "?", named ? s->text.file : "", "");
    if (number && code > 0)
        map_put(&s->by_code, (uint64_t)code << 32 | (uint32_t)at->offset, number);
    return number;
}

uint32_t stacks_mark(struct stacks *s, enum mark mark)
{
    static const char *const words[MARKS] = {[MARK_CUT] = "[outer frames not read]",
                                             [MARK_BROKEN] = "[native frames not read]",
                                             [MARK_READY] = "[waiting for a CPU]"};
    if (!s->marks[mark]) {
        struct frame f = {.func = intern_text(s, words[mark])};
        s->marks[mark] = frame_number(s, &f, words[mark], "", "");
    }
    return s->marks[mark];
}

uint32_t stacks_left_out(struct stacks *s, uint32_t n, bool more)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "[%s%u frames left out]", more ? "at least " : "", n);
    struct frame f = {.func = intern_text(s, text)};
    return frame_number(s, &f, text, "", "");
}

/* ---- stacks ---- */

static int store_stack(struct stacks *s, int64_t id, const uint32_t *frames, uint32_t n,
                       uint64_t now)
{
    int r = 0;
    for (uint32_t i = 0; i < n && r == 0; i++) {
        const struct frame *f = &s->frames[frames[i] < s->n_frames ? frames[i] : 0];
        const union probing_cell cells[] = {
            {.i = id},        {.i = i},       {.u = s->words[f->python ? 0 : 1]},
            {.u = f->func},   {.u = f->file}, {.i = f->line > 0 ? f->line : PROBING_NULL_I64},
            {.u = f->module},
        };
        r = s->host->append(s->stored, now, cells, sizeof(cells) / sizeof(cells[0]), NULL, 0);
    }
    return r;
}

/* Without memory it gets another number the next time. */
static void keep_stack(struct stacks *s, int64_t id, const uint32_t *frames, uint32_t n,
                       uint64_t now)
{
    struct kept *k = s->keeps ? malloc(sizeof(*k) + n * sizeof(*frames)) : NULL;
    if (!k)
        return;
    *k = (struct kept){.next = s->kept, .id = id, .stored_ns = now, .n = n};
    memcpy(k->frames, frames, n * sizeof(*frames));
    s->kept = k;
    s->n_kept++;
    s->kept_frames += n;
    map_put(&s->by_id, (uint64_t)id, (uint64_t)(uintptr_t)k);
}

void stacks_renew(struct stacks *s, int64_t number, uint64_t now)
{
    const uint64_t *found = number > 0 ? map_get(&s->by_id, (uint64_t)number) : NULL;
    struct kept *k = found ? (struct kept *)(uintptr_t)*found : NULL;
    if (k && now - k->stored_ns > RENEW_NS && store_stack(s, k->id, k->frames, k->n, now) == 0)
        k->stored_ns = now;
}

int64_t stacks_number(struct stacks *s, const uint32_t *frames, uint32_t n, uint64_t now)
{
    if (now - s->stored_since > RENEW_NS && !s->keeps) {
        map_clear(&s->by_stack);
        s->stored_since = now;
    }
    if (s->n_frames + n > FRAMES_MAX / 2 || s->n_kept > KEPT_MAX || s->kept_frames > KEPT_FRAMES) {
        forget_frames(s); /* the next samples name theirs again */
        return 0;
    }
    uint64_t key = n;
    for (uint32_t i = 0; i < n; i++)
        key = mix_hash(key, frames[i]);
    key |= 1;
    const uint64_t *found = map_get(&s->by_stack, key);
    if (found) {
        int64_t known = (int64_t)*found;
        if (s->keeps)
            stacks_renew(s, known, now);
        return known;
    }
    int64_t id = s->next_id++;
    if (store_stack(s, id, frames, n, now) < 0)
        return 0; /* the next time it gets another number: rows of this one may be there */
    map_put(&s->by_stack, key, (uint64_t)id);
    keep_stack(s, id, frames, n, now);
    return id;
}

void stacks_keep_numbers(struct stacks *s)
{
    s->keeps = true;
}

bool stacks_words(const struct stacks *s, uint32_t frame, struct stack_words *ret)
{
    const struct frame *f = frame && frame < s->n_frames ? &s->frames[frame] : NULL;
    if (!f || !f->words)
        return false;
    const char *file = f->words + strlen(f->words) + 1;
    *ret = (struct stack_words){.func = f->words,
                                .file = file,
                                .module = file + strlen(file) + 1,
                                .func_id = f->func,
                                .file_id = f->file,
                                .line = f->line,
                                .python = f->python};
    return true;
}

int stacks_new(const struct probing_host *host, const char *name, const char *doc,
               struct stacks **ret)
{
    const struct probing_table_desc stored = PROBING_TABLE(name, STACKS_COLUMNS, doc);
    struct timespec now;
    struct stacks *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->host = host;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* another number than of any stack before */
    s->next_id = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    s->stored_since = host->now();
    int r = host->table(host, &stored, &s->stored);
    if (r < 0) {
        free(s);
        return r;
    }
    s->words[0] = intern_text(s, "python");
    s->words[1] = intern_text(s, "native");
    *ret = s;
    return 0;
}

void stacks_free(struct stacks *s)
{
    if (!s)
        return;
    forget_frames(s);
    free(s->frames);
    free(s);
}
