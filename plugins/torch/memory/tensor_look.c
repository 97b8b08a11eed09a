/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/memory/tensor_look.c - what one look has found: storages by their addresses, their
 * owners, and texts.
 *
 * Threads: the look's; look_add() needs the GIL.
 */
#include "memory/tensor_look.h"
#include "lib/array.h"

#include <stdlib.h>

#include "lib/hash.h"
#include "python/tensor_storage.h"

#define ENTRIES_MAX (1u << 22) /* of each list: 400 MB, beyond all that was ever seen */
#define TEXT_MAX (64u << 20)

/* ---- numbers ---- */

static struct number_at *slot_of(const struct number_index *x, uint64_t key)
{
    uint32_t mask = x->room - 1;
    uint32_t i = (uint32_t)(hash_spread(key) >> 32) & mask;
    while (x->slots[i].key && x->slots[i].key != key)
        i = (i + 1) & mask;
    return &x->slots[i];
}

uint32_t *number_find(const struct number_index *x, uint64_t key)
{
    struct number_at *s = x->room ? slot_of(x, key) : NULL;
    return s && s->key ? &s->at : NULL;
}

static bool grow_index(struct number_index *x)
{
    struct number_index larger = {.room = x->room ? 2 * x->room : 256, .n = x->n};
    larger.slots = calloc(larger.room, sizeof(*larger.slots));
    if (!larger.slots)
        return false;
    for (uint32_t i = 0; i < x->room; i++)
        if (x->slots[i].key)
            *slot_of(&larger, x->slots[i].key) = x->slots[i];
    free(x->slots);
    *x = larger;
    return true;
}

bool number_put(struct number_index *x, uint64_t key, uint32_t at)
{
    if (2 * (x->n + 1) > x->room && !grow_index(x))
        return false;
    struct number_at *s = slot_of(x, key);
    x->n += s->key == 0;
    *s = (struct number_at){key, at};
    return true;
}

/* ---- texts ---- */

static bool append_text(struct text_pool *p, const char *text, uint32_t n)
{
    uint32_t room = p->room ? p->room : 4096;
    while (p->n + n + 1 > room)
        room *= 2;
    char *bytes = room > TEXT_MAX ? NULL : room > p->room ? realloc(p->bytes, room) : p->bytes;
    if (!bytes)
        return false;
    p->bytes = bytes;
    p->room = room;
    memcpy(p->bytes + p->n, text, n + 1);
    p->n += n + 1;
    return true;
}

uint32_t look_text(struct tensor_look *l, const char *text)
{
    struct text_pool *p = &l->texts;
    if (!*text)
        return 0;
    uint64_t key = hash_text(HASH_FNV, text) | 1;
    for (uint32_t *at; (at = number_find(&p->index, key)); key += 2)
        if (strcmp(p->bytes + *at, text) == 0)
            return *at;
    uint32_t at = p->n ? p->n : 1;
    p->n = at; /* so that no text has the number 0 */
    if (append_text(p, text, (uint32_t)strlen(text)) && number_put(&p->index, key, at))
        return at;
    l->no_memory = true;
    return 0;
}

const char *look_word(const struct tensor_look *l, uint32_t text)
{
    return text ? l->texts.bytes + text : NULL;
}

/* ---- storages ---- */

static struct tensor_storage *new_storage(struct tensor_look *l, uint64_t base)
{
    struct tensor_storage *all =
        array_grow(l->storages, l->n_storages, &l->storages_room, sizeof(*all), ENTRIES_MAX);
    l->storages = all ? all : l->storages;
    if (!all || (base && !number_put(&l->storage_at, base, l->n_storages))) {
        l->no_memory = true;
        return NULL;
    }
    all[l->n_storages] = (struct tensor_storage){.base = base, .numel = -1};
    return &all[l->n_storages++];
}

static void describe_storage(struct tensor_look *l, struct tensor_storage *s, PyObject *tensor,
                             const struct storage_view *place)
{
    struct tensor_words words;
    storage_words(tensor, place, &words);
    s->numel = place->numel;
    s->device = look_text(l, words.device);
    s->dtype = look_text(l, words.dtype);
    s->shape = look_text(l, words.shape);
    s->op = words.op[0] ? look_text(l, words.op) : s->op;
}

uint64_t look_add(struct tensor_look *l, PyObject *tensor, bool counts)
{
    struct storage_view place;
    storage_place(tensor, &place);
    uint32_t *at = place.base ? number_find(&l->storage_at, place.base) : NULL;
    if (!place.base && !counts) /* the scan comes by it, too */
        return 0;
    struct tensor_storage *s = at ? &l->storages[*at] : new_storage(l, place.base);
    if (!s)
        return 0;
    if (s->numel < 0)
        s->bytes = !place.is_readable ? PROBING_NULL_I64 : place.base ? storage_bytes(tensor) : 0;
    if (place.numel > s->numel)
        describe_storage(l, s, tensor, &place);
    s->in_graph = s->in_graph || place.in_graph;
    s->is_parameter = s->is_parameter || place.is_parameter;
    s->tensors += counts;
    return place.base;
}

/* ---- owners ---- */

static void own_by(struct tensor_look *l, struct number_index *x, uint64_t key,
                   const struct tensor_owner *owner)
{
    if (!key || number_find(x, key))
        return;
    struct tensor_owner *all =
        array_grow(l->owners, l->n_owners, &l->owners_room, sizeof(*all), ENTRIES_MAX);
    l->owners = all ? all : l->owners;
    if (!all || !number_put(x, key, l->n_owners)) {
        l->no_memory = true;
        return;
    }
    all[l->n_owners++] = *owner;
}

void look_own(struct tensor_look *l, uint64_t base, const struct tensor_owner *owner)
{
    own_by(l, &l->owner_at, base, owner);
}

void look_param(struct tensor_look *l, const PyObject *param, const struct tensor_owner *owner)
{
    own_by(l, &l->param_at, (uintptr_t)param, owner);
}

void look_state(struct tensor_look *l, uint64_t base, const PyObject *param, const char *name)
{
    struct optimizer_entry *all =
        array_grow(l->states, l->n_states, &l->states_room, sizeof(*all), ENTRIES_MAX);
    l->states = all ? all : l->states;
    l->no_memory = l->no_memory || !all;
    if (all)
        all[l->n_states++] = (struct optimizer_entry){base, (uintptr_t)param, look_text(l, name)};
}

void look_name_states(struct tensor_look *l)
{
    for (uint32_t i = 0; i < l->n_states; i++) {
        const struct optimizer_entry *e = &l->states[i];
        const uint32_t *at = number_find(&l->param_at, e->param);
        struct tensor_owner owner = at ? l->owners[*at] : (struct tensor_owner){.root = 0};
        const char *of = look_word(l, owner.name), *what = look_word(l, e->name);
        char name[256];
        (void)snprintf(name, sizeof(name), "%.120s%s%.120s", of ? of : "", of ? "." : "",
                       what ? what : "?");
        owner.kind = TENSOR_STATE;
        owner.name = look_text(l, name);
        look_own(l, e->base, &owner);
    }
}

struct tensor_owner look_owner(const struct tensor_look *l, const struct tensor_storage *s)
{
    const uint32_t *at = s->base ? number_find(&l->owner_at, s->base) : NULL;
    if (at)
        return l->owners[*at];
    return (struct tensor_owner){.kind = s->is_parameter ? TENSOR_PARAMETER
                                         : s->in_graph   ? TENSOR_ACTIVATION
                                                         : TENSOR_OTHER};
}

void look_free(struct tensor_look *l)
{
    free(l->texts.bytes);
    free(l->texts.index.slots);
    free(l->storages);
    free(l->storage_at.slots);
    free(l->owners);
    free(l->owner_at.slots);
    free(l->param_at.slots);
    free(l->states);
    free(l);
}
