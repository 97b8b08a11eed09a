/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/top/function_times.c - see function_times.h.
 */
#include "cli/commands/top/function_times.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "sdk/lib/hash.h"

#define FUNCTIONS_MAX 4096 /* the process names them: sizes are bounded */
#define FIRST_SLOTS 1024

void tally_done(struct tally *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        free(t->functions[i].name);
        free(t->functions[i].file);
    }
    free(t->functions);
    free(t->slots);
    free(t->threads);
    *t = (struct tally){.n = 0};
}

static uint32_t hash_of(const char *name, const char *file)
{
    return (uint32_t)hash_text(hash_text(HASH_FNV, name), file);
}

/* Gives the slot that it has, or would have. */
static uint32_t *slot_of(const struct tally *t, const char *name, const char *file)
{
    uint32_t at = hash_of(name, file) & t->mask;
    for (; t->slots[at] != 0; at = (at + 1) & t->mask) {
        const struct tally_function *f = &t->functions[t->slots[at] - 1];
        if (strcmp(f->name, name) == 0 && strcmp(f->file, file) == 0)
            break;
    }
    return &t->slots[at];
}

static int index_again(struct tally *t, uint32_t size)
{
    if (t->mask + 1 != size || t->slots == NULL) {
        uint32_t *slots = calloc(size, sizeof(*slots));
        if (slots == NULL)
            return -ENOMEM;
        free(t->slots);
        t->slots = slots;
        t->mask = size - 1;
    } else {
        memset(t->slots, 0, size * sizeof(*t->slots));
    }
    for (uint32_t i = 0; i < t->n; i++)
        *slot_of(t, t->functions[i].name, t->functions[i].file) = i + 1;
    return 0;
}

static int make_room(struct tally *t)
{
    if (t->n < t->room)
        return 0;
    uint32_t room = t->room == 0 ? FIRST_SLOTS / 2 : t->room * 2;
    struct tally_function *more = realloc(t->functions, room * sizeof(*more));
    if (more == NULL)
        return -ENOMEM;
    t->functions = more;
    t->room = room;
    return index_again(t, room * 2);
}

/* NULL: there is no room for it. */
static struct tally_function *get_function(struct tally *t, const char *name, const char *file)
{
    uint32_t *slot = t->slots != NULL ? slot_of(t, name, file) : NULL;

    if (slot != NULL && *slot != 0)
        return &t->functions[*slot - 1];
    if (t->n == FUNCTIONS_MAX || make_room(t) < 0)
        return NULL;
    struct tally_function f = {.name = strdup(name), .file = strdup(file)};
    if (f.name == NULL || f.file == NULL) {
        free(f.name);
        free(f.file);
        return NULL;
    }
    t->functions[t->n++] = f;
    *slot_of(t, name, file) = t->n;
    return &t->functions[t->n - 1];
}

/* A sample is of a stack: of two threads in one function both count, of two frames one. */
static void add_stack(struct tally *t, const struct json *frames, uint64_t ns)
{
    bool innermost = true;

    t->sample++;
    for (const struct json *f = frames->first; f != NULL; f = f->next) {
        if (strcmp(json_text(f, "type", "python"), "python") != 0)
            continue;
        struct tally_function *fn =
            get_function(t, json_text(f, "func", "?"), json_text(f, "file", ""));
        if (fn == NULL) {
            t->left_out++;
            return;
        }
        if (innermost) {
            fn->new_own_ns += ns;
            fn->all_own_ns += ns;
        }
        innermost = false;
        if (fn->sample == t->sample)
            continue;
        fn->sample = t->sample;
        fn->new_total_ns += ns;
        fn->all_total_ns += ns;
    }
}

static int by_tid(const void *a, const void *b)
{
    int64_t x = ((const struct tally_thread *)a)->tid, y = ((const struct tally_thread *)b)->tid;
    return x < y ? -1 : x > y;
}

static struct tally_thread *find_thread(struct tally_thread *all, uint32_t n, int64_t tid)
{
    const struct tally_thread key = {.tid = tid};
    return n == 0 ? NULL : bsearch(&key, all, n, sizeof(key), by_tid);
}

/* Put `used` in the place of the threads before, with what they had been given so far. */
static int renew_threads(struct tally *t, const struct tally_thread *used, uint32_t n)
{
    struct tally_thread *now = calloc(n ? n : 1, sizeof(*now));
    if (now == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        const struct tally_thread *before = find_thread(t->threads, t->n_threads, used[i].tid);
        bool same = before != NULL && before->cpu_ns <= used[i].cpu_ns;
        now[i].tid = used[i].tid;
        now[i].cpu_ns = same ? before->cpu_ns : t->threads == NULL ? used[i].cpu_ns : 0;
    }
    free(t->threads);
    t->threads = now;
    t->n_threads = n;
    return 0;
}

void tally_add(struct tally *t, const struct json *threads, const struct tally_thread *used,
               uint32_t n, uint64_t now_ns)
{
    bool first = t->threads == NULL; /* its time is from before the screen */

    if (renew_threads(t, used, n) < 0)
        return;
    if (first)
        t->begin_ns = now_ns;
    else
        t->new_samples++;
    t->last_ns = now_ns;
    for (const struct json *s = threads->first; s != NULL; s = s->next) {
        const struct json *frames = json_get(s, "frames");
        struct tally_thread *given = find_thread(t->threads, n, json_int(s, "tid", 0));
        if (frames == NULL || given == NULL || strcmp(json_text(s, "state", ""), "running") != 0)
            continue;
        uint64_t ns = used[given - t->threads].cpu_ns - given->cpu_ns;
        if (ns > 0)
            add_stack(t, frames, ns);
        given->cpu_ns += ns;
    }
}

static int by_own(const void *a, const void *b)
{
    const struct tally_function *x = a, *y = b;
    if (x->own_ns != y->own_ns)
        return x->own_ns > y->own_ns ? -1 : 1;
    if (x->total_ns != y->total_ns)
        return x->total_ns > y->total_ns ? -1 : 1;
    if (x->all_own_ns != y->all_own_ns)
        return x->all_own_ns > y->all_own_ns ? -1 : 1;
    return strcmp(x->name, y->name);
}

uint32_t tally_sort(struct tally *t, const struct tally_function **ret)
{
    if (t->n > 0)
        qsort(t->functions, t->n, sizeof(*t->functions), by_own);
    if (t->slots != NULL)
        (void)index_again(t, t->mask + 1); /* of the same size: it takes no memory */
    *ret = t->functions;
    return t->n;
}

void tally_next(struct tally *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        struct tally_function *f = &t->functions[i];
        f->own_ns = f->new_own_ns;
        f->total_ns = f->new_total_ns;
        f->new_own_ns = f->new_total_ns = 0;
    }
    t->span_ns = t->last_ns - t->begin_ns;
    t->begin_ns = t->last_ns;
    t->samples = t->new_samples;
    t->new_samples = 0;
}
