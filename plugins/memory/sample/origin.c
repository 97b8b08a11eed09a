/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/origin.c - the function that an allocation is put down to, once for each
 * stack.
 *
 * The sampler's lock.
 */
#include "origin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/hash.h"
#include "probing_sdk.h"

#define ORIGINS_MAX (1u << 18) /* stacks that are told apart; later ones have no name */
#define FIRST 256u

struct record {
    struct origin from;
    struct origin_texts texts;
};

struct origins {
    struct record *records; /* [0]: not known */
    uint32_t n, room;
    uint32_t *by_stack; /* open addressing: number of the record, 0: free; twice `room` of them */
};

/* Names of files, as far as they say what it is: what follows is a version. */
static const char *const libraries[] = {
    "libc.so",       "libc-2.",    "ld-linux",      "ld-2.",          "ld-musl",
    "libstdc++.so",  "libc++.so",  "libc++abi.so",  "libgcc_s.so",    "libm.so",
    "libpthread.so", "libdl.so",   "libpthread-2.", "libjemalloc.so", "libtcmalloc",
    "libmimalloc",   "libc10.so",  "libpython",     "python2",        "python3",
    "libasan.so",    "libtsan.so", "linux-vdso.so"};

static bool starts_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* "std::vector<int>::reserve(unsigned long)", "void std::sort<...>(...)": instances of templates
 * lie in the program's own file. */
static bool is_cpp_library(const char *function)
{
    static const char *const spaces[] = {"std::", "__gnu_cxx::", "operator new", "operator delete"};
    size_t end = strcspn(function, "(<");
    for (size_t i = 0; i < PROBING_LENGTH(spaces); i++) {
        const char *at = strstr(function, spaces[i]);
        if (at && (size_t)(at - function) < end && (at == function || at[-1] == ' '))
            return true;
    }
    return false;
}

bool origin_is_library(const char *function, const char *module)
{
    const char *slash = strrchr(module, '/'), *file = slash ? slash + 1 : module;
    for (size_t i = 0; i < PROBING_LENGTH(libraries); i++)
        if (starts_with(file, libraries[i]))
            return true;
    return strcmp(file, "python") == 0 || is_cpp_library(function);
}

static bool is_plumbing(const struct probing_python_frames_1 *python, const struct stack_words *w)
{
    return !w->module[0] || origin_is_library(w->func, w->module) ||
           (python && python->kind(w->func, w->module) != PROBING_PYTHON_NATIVE);
}

/* Until 3.12 CPython made a function of a comprehension; a reader looks for the function around
 * it. */
static bool is_comprehension(const char *function)
{
    static const char *const ends[] = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"};
    size_t n = strlen(function);
    for (size_t i = 0; i < PROBING_LENGTH(ends); i++)
        if (n >= strlen(ends[i]) && strcmp(function + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

static char *copy_text(const char *text)
{
    return text[0] ? strdup(text) : NULL;
}

/* Without memory a text is missing, which says what it is: not known. */
static void find_frames(struct record *r, const struct stacks *stacks,
                        const struct probing_python_frames_1 *python, const uint32_t *frames,
                        uint32_t n)
{
    struct stack_words w, native = {.func = NULL}, any = {.func = NULL}, found = {.func = NULL},
                          inner = {.func = NULL};
    for (uint32_t i = 0; i < n && !found.func; i++) {
        if (!stacks_words(stacks, frames[i], &w))
            continue;
        if (w.python && is_comprehension(w.func))
            inner = inner.func ? inner : w;
        else if (w.python)
            found = w;
        else if (!native.func && !is_plumbing(python, &w))
            native = w;
        else if (!any.func && w.module[0])
            any = w; /* better than nothing */
    }
    if (!found.func)
        found = inner.func ? inner : native.func ? native : any;
    if (found.func) {
        r->from.function = found.func_id;
        r->from.file = found.file_id;
        r->from.line = found.line;
        r->texts.function = copy_text(found.func);
        r->texts.file = copy_text(found.file);
    }
    if (native.func) {
        r->from.native_function = native.func_id;
        r->texts.native_function = copy_text(native.func);
    }
}

static uint32_t *slot_of(const struct origins *o, uint32_t room, uint32_t *by_stack, int64_t stack)
{
    uint32_t i = (uint32_t)(hash_spread((uint64_t)stack) >> 32) & (room - 1);
    while (by_stack[i] && o->records[by_stack[i]].from.stack != stack)
        i = (i + 1) & (room - 1);
    return &by_stack[i];
}

static bool grow_origins(struct origins *o)
{
    uint32_t room = o->room ? o->room * 2 : FIRST;
    if (room > ORIGINS_MAX)
        return false;
    struct record *records = realloc(o->records, room * sizeof(*records));
    if (!records)
        return false;
    o->records = records;
    uint32_t *by_stack = calloc(2 * (size_t)room, sizeof(*by_stack));
    if (!by_stack)
        return false;
    for (uint32_t i = 1; i < o->n; i++)
        *slot_of(o, 2 * room, by_stack, records[i].from.stack) = i;
    free(o->by_stack);
    o->by_stack = by_stack;
    o->room = room;
    return true;
}

uint32_t origin_number(struct origins *o, const struct stacks *stacks,
                       const struct probing_python_frames_1 *python, int64_t stack,
                       const uint32_t *frames, uint32_t n)
{
    if (stack <= 0)
        return 0;
    uint32_t *at = slot_of(o, 2 * o->room, o->by_stack, stack);
    if (*at)
        return *at;
    if (o->n == o->room) {
        if (!grow_origins(o))
            return 0;
        at = slot_of(o, 2 * o->room, o->by_stack, stack);
    }
    struct record *r = &o->records[o->n];
    *r = (struct record){.from = {.stack = stack}};
    find_frames(r, stacks, python, frames, n);
    *at = o->n;
    return o->n++;
}

const struct origin *origin_at(const struct origins *o, uint32_t number)
{
    return &o->records[number < o->n ? number : 0].from;
}

const struct origin_texts *origin_texts(const struct origins *o, uint32_t number)
{
    return &o->records[number < o->n ? number : 0].texts;
}

uint32_t origins_count(const struct origins *o)
{
    return o->n;
}

int origins_new(struct origins **ret)
{
    struct origins *o = calloc(1, sizeof(*o));
    if (!o || !grow_origins(o)) {
        origins_free(o);
        return -ENOMEM;
    }
    o->records[0] = (struct record){.from = {.stack = 0}};
    o->n = 1;
    *ret = o;
    return 0;
}

void origins_free(struct origins *o)
{
    if (!o)
        return;
    for (uint32_t i = 1; i < o->n; i++) {
        free((char *)(uintptr_t)o->records[i].texts.function);
        free((char *)(uintptr_t)o->records[i].texts.native_function);
        free((char *)(uintptr_t)o->records[i].texts.file);
    }
    free(o->records);
    free(o->by_stack);
    free(o);
}
