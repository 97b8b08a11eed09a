/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/ext_loss.c - "probing.loss/1" for plugins: into the counters of the tables.
 *
 * Any thread.
 */
#include <probing/ext/draft/loss.h>

#include "core/catalog/catalog.h"
#include "core/plugin_host/internal.h"

static void count(struct table *t, enum table_loss why, uint64_t n)
{
    _Atomic uint64_t *lost = __atomic_load_n(&t->lost, __ATOMIC_ACQUIRE);
    (void)atomic_fetch_add_explicit(&lost[why], n, memory_order_relaxed);
}

static void ext_values(struct probing_table *t, uint64_t values)
{
    count((struct table *)t, TABLE_LOST_VALUE, values);
}

static void ext_no_table(const struct probing_host *f, uint64_t rows)
{
    struct plugin *p = f->core;
    if (!host_is_off(p->host))
        count(tables_refused(p->host->tables), TABLE_LOST_NO_TABLE, rows);
}

int host_loss_add(struct host *h)
{
    static const struct probing_loss_1 part = {
        .size = sizeof(part), .values = ext_values, .no_table = ext_no_table};
    return host_extension_add(h, PROBING_LOSS_1, &part);
}
