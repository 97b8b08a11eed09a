/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/ext_core.c - "probing.loss/1", "probing.memory/1" and "probing.signal/1": the
 * counters of the tables, the core's heap and core/guest/owned_signals.h, for plugins.
 *
 * Any thread may call what is offered; offering is for whoever makes the host.
 */
#include <errno.h>
#include <probing/ext/draft/loss.h>
#include <probing/ext/draft/memory.h>
#include <probing/ext/draft/signal.h>

#include "core/catalog/catalog.h"
#include "core/guest/heap.h"
#include "core/guest/mmap_guard.h"
#include "core/guest/owned_signals.h"
#include "core/plugin_host/internal.h"

/* ---- loss ---- */

static void count_loss(struct table *t, enum table_loss why, uint64_t n)
{
    _Atomic uint64_t *lost = __atomic_load_n(&t->lost, __ATOMIC_ACQUIRE);
    (void)atomic_fetch_add_explicit(&lost[why], n, memory_order_relaxed);
}

static void ext_values(struct probing_table *t, uint64_t values)
{
    count_loss((struct table *)t, TABLE_LOST_VALUE, values);
}

static void ext_no_table(const struct probing_host *f, uint64_t rows)
{
    struct plugin *p = f->core;
    if (!host_is_off(p->host))
        count_loss(tables_refused(p->host->tables), TABLE_LOST_NO_TABLE, rows);
}

int host_loss_add(struct host *h)
{
    static const struct probing_loss_1 part = {
        .size = sizeof(part), .values = ext_values, .no_table = ext_no_table};
    return host_extension_add(h, PROBING_LOSS_1, &part);
}

/* ---- memory ---- */

static int free_ours(void *p)
{
    return heap_free(p);
}

static uint64_t resident_bytes(uint64_t *ret_files)
{
    *ret_files = mapped_resident();
    return heap_resident();
}

int memory_offer(struct host *h)
{
    static const struct probing_memory_1 part = {.size = sizeof(part),
                                                 .alloc = heap_alloc,
                                                 .zalloc = heap_zalloc,
                                                 .aligned = heap_aligned,
                                                 .resize = heap_resize,
                                                 .size_of = heap_size,
                                                 .free = free_ours,
                                                 .resident = resident_bytes};
    return host_extension_add(h, PROBING_MEMORY_1, &part);
}

/* ---- signals: the core's own stands above them, see core/stack/capture_signal.c ---- */

static int ext_take(int32_t number, probing_signal_fn *fn)
{
    if (number == 0)
        return signals_take_below(SIGRTMAX - 1, fn);
    if (number < 0 || number > SIGRTMAX)
        return -EINVAL;
    int rc = signals_take(number, fn);
    return rc < 0 ? rc : number;
}

static bool ext_is_ours(int32_t number)
{
    return signals_is_ours(number);
}

static int ext_give(int32_t number)
{
    return signals_give(number);
}

int host_signal_add(struct host *h)
{
    static const struct probing_signal_1 part = {
        .size = sizeof(part), .take = ext_take, .is_ours = ext_is_ours, .give = ext_give};
    return host_extension_add(h, PROBING_SIGNAL_1, &part);
}
