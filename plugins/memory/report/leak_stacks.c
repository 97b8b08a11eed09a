/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/leak_stacks.c - tables of stacks, of functions and of the steps between.
 */
#include "leak_stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/hash.h"

#define FIRST 256u
#define NUMBERS_MAX (1u << 26) /* stacks, functions or steps */

/* ---- arrays and their index ---- */

/* Room for one more behind `n`, and number 0 is there. */
static bool has_room(void **items, uint32_t *n, uint32_t *room, size_t size)
{
    if (*n < *room)
        return true;
    uint32_t more = *room ? *room * 2 : FIRST;
    void *bigger = more <= NUMBERS_MAX ? realloc(*items, more * size) : NULL;
    if (!bigger)
        return false;
    memset((char *)bigger + *room * size, 0, (more - *room) * size);
    *items = bigger;
    *room = more;
    *n = *n ? *n : 1;
    return true;
}

static uint64_t hash_of_stack(const struct leak_stacks *s, uint32_t number)
{
    return hash_spread((uint64_t)s->stacks[number].id);
}

static uint64_t hash_of_function(const struct leak_stacks *s, uint32_t number)
{
    return s->functions[number].hash;
}

static uint32_t *slot_of(struct hashed *h, uint64_t hash, bool (*same)(const void *, uint32_t),
                         const void *with)
{
    uint32_t i = (uint32_t)(hash >> 32) & (h->room - 1);
    while (h->slots[i] && !same(with, h->slots[i]))
        i = (i + 1) & (h->room - 1);
    return &h->slots[i];
}

static bool same_never(const void *with, uint32_t number)
{
    (void)with;
    (void)number;
    return false;
}

/* Twice as many slots as numbers. */
static bool index_fits(struct leak_stacks *s, struct hashed *h, uint32_t n,
                       uint64_t (*hash)(const struct leak_stacks *, uint32_t))
{
    if (2 * n < h->room)
        return true;
    struct hashed more = {.room = h->room ? 2 * h->room : 4 * FIRST};
    more.slots = calloc(more.room, sizeof(*more.slots));
    if (!more.slots)
        return false;
    for (uint32_t i = 1; i < n; i++)
        *slot_of(&more, hash(s, i), same_never, NULL) = i;
    free(h->slots);
    *h = more;
    return true;
}

/* ---- stacks ---- */

struct wanted {
    const struct leak_stacks *s;
    int64_t id;
    uint64_t hash;
    const char *name, *file;
};

static bool same_stack(const void *with, uint32_t number)
{
    const struct wanted *w = with;
    return w->s->stacks[number].id == w->id;
}

uint32_t leak_stack_of(struct leak_stacks *s, int64_t id, bool make)
{
    const struct wanted w = {.s = s, .id = id};
    if (!has_room((void **)&s->stacks, &s->n_stacks, &s->stacks_room, sizeof(*s->stacks)) ||
        !index_fits(s, &s->by_id, s->n_stacks, hash_of_stack))
        return 0;
    uint32_t *at = slot_of(&s->by_id, hash_spread((uint64_t)id), same_stack, &w);
    if (!*at && make) {
        s->stacks[s->n_stacks].id = id;
        *at = s->n_stacks++;
    }
    return *at;
}

/* ---- functions ---- */

static bool same_function(const void *with, uint32_t number)
{
    const struct wanted *w = with;
    const struct function *f = &w->s->functions[number];
    return f->hash == w->hash && strcmp(f->name, w->name) == 0 && strcmp(f->file, w->file) == 0;
}

uint32_t leak_function_of(struct leak_stacks *s, const char *name, const char *file, bool own)
{
    uint64_t hash = hash_spread(hash_text(hash_text(HASH_FNV, name) ^ ':', file));
    const struct wanted w = {.s = s, .hash = hash, .name = name, .file = file};
    if (!has_room((void **)&s->functions, &s->n_functions, &s->functions_room,
                  sizeof(*s->functions)) ||
        !index_fits(s, &s->by_name, s->n_functions, hash_of_function))
        return 0;
    uint32_t *at = slot_of(&s->by_name, hash, same_function, &w);
    if (!*at) {
        struct function f = {.hash = hash,
                             .name = arena_text(&s->arena, name, strlen(name)),
                             .file = arena_text(&s->arena, file, strlen(file)),
                             .own = own};
        if (!f.name || !f.file)
            return 0;
        s->functions[s->n_functions] = f;
        *at = s->n_functions++;
    }
    return *at;
}

int leak_step_add(struct leak_stacks *s, uint32_t stack, const struct step *step)
{
    if (!has_room((void **)&s->steps, &s->n_steps, &s->steps_room, sizeof(*s->steps)))
        return -ENOMEM;
    struct step *to = &s->steps[s->n_steps];
    *to = *step;
    to->next = s->stacks[stack].steps;
    s->stacks[stack].steps = s->n_steps++;
    return 0;
}

void leak_stacks_done(struct leak_stacks *s)
{
    free(s->by_id.slots);
    free(s->by_name.slots);
    free(s->stacks);
    free(s->functions);
    free(s->steps);
    arena_done(&s->arena);
}

/* ---- growth ---- */

/* Estimates of what was alive at two moments differ in the samples that came between and stayed,
 * and in those that had been there and went.  What came and went between them is in neither: its
 * two rows undo each other. */
static void count_between(const struct leak_samples *x, uint32_t from, double *variance,
                          double *samples, double *net)
{
    bool born = x->born > from, undone = x->ended && born;
    if (x->ended ? x->ended <= from : !born)
        return;
    *variance += undone ? -x->variance : x->variance;
    *samples += undone ? -x->count : x->count;
    *net += x->ended ? -x->count : x->count;
}

void leak_growth_count(const struct leak_stacks *s, struct leak_growth *to,
                       const struct leak_samples *x)
{
    double unused[2] = {0, 0};
    uint32_t at = x->ended ? x->ended : x->born;
    for (uint32_t i = at; i <= s->past + LEAK_PERIODS; i++)
        to->level[i] += x->ended ? -x->bytes : x->bytes;
    if (!x->ended) {
        double *largest = &to->largest[x->born];
        *largest = x->largest > *largest ? x->largest : *largest;
        to->came += x->born > s->past ? x->count : 0;
    }
    if (x->born > s->past)
        to->kept[(x->born - s->past - 1) * LEAK_QUARTERS / LEAK_PERIODS] +=
            x->ended ? -x->bytes : x->bytes;
    else if (x->ended > s->past)
        to->gone += x->bytes;
    count_between(x, s->past, &to->variance, &to->samples, &to->net);
    count_between(x, s->past + LEAK_PERIODS / 2, &to->newer_variance, &unused[0], &unused[1]);
}

void leak_growth_add(const struct leak_stacks *s, struct leak_growth *to,
                     const struct leak_growth *from)
{
    for (uint32_t i = 0; i <= s->past + LEAK_PERIODS; i++) {
        to->level[i] += from->level[i];
        to->largest[i] = from->largest[i] > to->largest[i] ? from->largest[i] : to->largest[i];
    }
    for (uint32_t i = 0; i < LEAK_QUARTERS; i++)
        to->kept[i] += from->kept[i];
    to->gone += from->gone;
    to->variance += from->variance;
    to->newer_variance += from->newer_variance;
    to->samples += from->samples;
    to->came += from->came;
    to->net += from->net;
}
