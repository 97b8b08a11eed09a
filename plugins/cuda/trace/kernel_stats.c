/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/kernel_stats.c - a hash table of sums.
 *
 * Threads: one at a time.
 */
#include "trace/kernel_stats.h"

#include <stdbool.h>

#include "lib/hash.h"

int kernel_stats_init(struct kernel_stats *k)
{
    *k = (struct kernel_stats){.all = calloc(STATS_SUMS, sizeof(k->all[0]))};
    return k->all ? 0 : -ENOMEM;
}

void kernel_stats_done(struct kernel_stats *k)
{
    free(k->all);
    k->all = NULL;
}

void kernel_stats_forget(struct kernel_stats *k)
{
    memset(k->all, 0, STATS_SUMS * sizeof(k->all[0]));
    k->n = 0;
}

static bool is_same(const struct kernel_key *a, const struct kernel_key *b)
{
    return a->step == b->step && a->name == b->name && a->module == b->module &&
           a->device == b->device;
}

static uint32_t place_of(const struct kernel_key *key)
{
    uint64_t h = hash_spread((uint64_t)key->step) ^ hash_spread(key->name * 3) ^
                 hash_spread(key->module * 7 + key->device);
    return (uint32_t)hash_spread(h) % STATS_SUMS;
}

struct kernel_sum *kernel_stats_of(struct kernel_stats *k, const struct kernel_key *key)
{
    uint32_t i = place_of(key);
    while (k->all[i].count && !is_same(&k->all[i].key, key))
        i = (i + 1) % STATS_SUMS;
    if (!k->all[i].count) {
        if (k->n >= STATS_SUMS / 2)
            return NULL;
        k->n++;
        k->all[i] = (struct kernel_sum){.key = *key, .min_ns = UINT64_MAX};
    }
    return &k->all[i];
}

static void write_sum(const struct kernel_sum *s, const struct probing_host *host,
                      struct probing_table *table, int64_t window)
{
    bool seen = s->launched > 0;
    union probing_cell row[N_STATS] = {
        [STATS_STEP] = {.i = s->key.step},
        [STATS_NAME] = {.u = s->key.name},
        [STATS_MODULE] = {.u = s->key.module},
        [STATS_DEVICE] = {.i = s->key.device},
        [STATS_COUNT] = {.i = (int64_t)s->count},
        [STATS_TOTAL] = {.i = (int64_t)s->total_ns},
        [STATS_MIN] = {.i = (int64_t)s->min_ns},
        [STATS_MAX] = {.i = (int64_t)s->max_ns},
        [STATS_LAUNCH] = {.i = seen ? (int64_t)s->launch_ns : PROBING_NULL_I64},
        [STATS_QUEUED] = {.i = seen ? (int64_t)s->queued_ns : PROBING_NULL_I64},
        [STATS_ROWS] = {.i = (int64_t)s->rows},
        [STATS_WINDOW] = {.i = window}};
    (void)host->append(table, s->last_ns, row, N_STATS, NULL, 0);
}

void kernel_stats_write(struct kernel_stats *k, const struct probing_host *host,
                        struct probing_table *table, int64_t window)
{
    for (uint32_t i = 0; k->n && i < STATS_SUMS; i++)
        if (k->all[i].count)
            write_sum(&k->all[i], host, table, window);
    if (k->n)
        kernel_stats_forget(k);
}
