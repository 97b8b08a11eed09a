/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/event_stats.c - a small hash table of sums.
 *
 * Threads: one at a time.
 */
#include "trace/event_stats.h"

#include "lib/hash.h"

void event_stats_forget(struct event_stats *e)
{
    memset(e, 0, sizeof(*e));
}

static bool is_same(const struct event_key *a, const struct event_key *b)
{
    return a->event == b->event && a->kind == b->kind && a->memory_kind == b->memory_kind &&
           a->module == b->module && a->device == b->device;
}

static uint32_t place_of(const struct event_key *key)
{
    uint64_t h = hash_spread(key->kind * 5 + key->event) ^ hash_spread(key->memory_kind * 3) ^
                 hash_spread(key->module * 7 + key->device);
    return (uint32_t)hash_spread(h) % EVENT_SUMS;
}

struct event_sum *event_stats_of(struct event_stats *e, const struct event_key *key)
{
    uint32_t i = place_of(key);
    while (e->all[i].count && !is_same(&e->all[i].key, key))
        i = (i + 1) % EVENT_SUMS;
    if (!e->all[i].count) {
        if (e->n >= EVENT_SUMS / 2)
            return NULL;
        e->n++;
        e->all[i] = (struct event_sum){.key = *key};
    }
    return &e->all[i];
}

static void write_sum(const struct event_sum *s, const struct probing_host *host,
                      struct probing_table *table, int64_t window)
{
    union probing_cell row[N_EVENTS] = {
        [EVENTS_EVENT] = {.u = s->key.event},
        [EVENTS_KIND] = {.u = s->key.kind},
        [EVENTS_MEMORY_KIND] = {.u = s->key.memory_kind},
        [EVENTS_MODULE] = {.u = s->key.module},
        [EVENTS_DEVICE] = {.i = s->key.device == CUPTI_NONE ? PROBING_NULL_I64 : s->key.device},
        [EVENTS_COUNT] = {.i = (int64_t)s->count},
        [EVENTS_BYTES] = {.i = s->sizes ? (int64_t)s->bytes : PROBING_NULL_I64},
        [EVENTS_TOTAL] = {.i = (int64_t)s->total_ns},
        [EVENTS_WAITED] = {.i = (int64_t)s->waited},
        [EVENTS_ROWS] = {.i = (int64_t)s->rows},
        [EVENTS_WINDOW] = {.i = window}};
    (void)host->append(table, s->last_ns, row, N_EVENTS, NULL, 0);
}

void event_stats_write(struct event_stats *e, const struct probing_host *host,
                       struct probing_table *table, int64_t window)
{
    for (uint32_t i = 0; e->n && i < EVENT_SUMS; i++)
        if (e->all[i].count)
            write_sum(&e->all[i], host, table, window);
    if (e->n)
        event_stats_forget(e);
}
