/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/table_stats.c - how much there is of each table.
 *
 * Any thread.
 */
#include <errno.h>

#include "core/base/err.h"
#include "core/store/internal.h"

/* Rows of a table that lie in the rings.  lock: drain_lock */
static uint64_t count_waiting(struct store *s, uint32_t table_id)
{
    uint64_t n = 0;
    for (uint32_t slot = 0; s->live && slot < rings_count(s->rings); slot++) {
        struct ring_reader reader;
        struct ring_row row;
        if (ring_generation(s->rings, slot) == 0 ||
            ring_read(s->rings, slot, ring_tail(s->rings, slot), &reader) != 0)
            continue;
        while (ring_next(&reader, &row) == 1)
            n += row.table_id == table_id;
    }
    return n;
}

/* Min (or max) of ts in one segment, 0 when it cannot be said. */
static uint64_t segment_ts(const void *data, size_t size, bool last)
{
    struct segment seg;
    struct segment_column c;
    if (segment_open(data, size, &seg) != 0 || segment_column(&seg, 0, &c) != 0 || !c.has_bounds)
        return 0;
    return last ? c.max.u : c.min.u;
}

static void read_times(struct store *s, uint32_t id, struct store_table_stats *ret)
{
    MDB_txn *txn;
    MDB_cursor *cursor;
    struct segment_key k = key_of(id, 0), after = key_of(id + 1, 0);
    MDB_val key = value_of(&k, sizeof(k)), value;
    uint32_t got_id;
    uint64_t row;
    if (env_begin(s, MDB_RDONLY, &txn) != 0)
        return;
    if (mdb_cursor_open(txn, s->segments, &cursor) == 0) {
        if (mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE) == 0 &&
            key_read(&key, &got_id, &row) && got_id == id)
            ret->first_ts = segment_ts(value.mv_data, value.mv_size, /* last= */ false);
        key = value_of(&after, sizeof(after));
        int rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
        rc = mdb_cursor_get(cursor, &key, &value, rc == 0 ? MDB_PREV : MDB_LAST);
        if (rc == 0 && key_read(&key, &got_id, &row) && got_id == id)
            ret->last_ts = segment_ts(value.mv_data, value.mv_size, /* last= */ true);
        mdb_cursor_close(cursor);
    }
    if (env_end(s, txn) != 0)
        ret->first_ts = ret->last_ts = 0;
}

int store_stats(struct store *s, const struct table *t, struct store_table_stats *ret)
{
    if (atomic_load_explicit(&s->disabled, memory_order_acquire))
        return err_set(-ESHUTDOWN, "this is a forked child without a store");
    *ret = (struct store_table_stats){0};
    (void)pthread_rwlock_rdlock(&s->map_lock);
    (void)pthread_mutex_lock(&s->drain_lock);
    const struct table_state *state = &s->state[t->id];
    ret->rows = state->rows;
    ret->bytes = state->bytes;
    ret->segments = state->segments;
    ret->expired = state->expired;
    ret->next_row = state->next_row;
    ret->waiting = count_waiting(s, t->id);
    read_times(s, t->id, ret);
    (void)pthread_mutex_unlock(&s->drain_lock);
    (void)pthread_rwlock_unlock(&s->map_lock);
    for (const struct memory_segment *m = s->memory; m; m = m->next) {
        uint64_t first = segment_ts(m->data, m->size, false);
        uint64_t last = segment_ts(m->data, m->size, true);
        if (m->table_id != t->id)
            continue;
        ret->first_ts = ret->first_ts ? ret->first_ts : first;
        ret->last_ts = last > ret->last_ts ? last : ret->last_ts;
    }
    return 0;
}

uint64_t store_next_row(struct store *s, const struct table *t)
{
    if (atomic_load_explicit(&s->disabled, memory_order_acquire))
        return 0;
    (void)pthread_mutex_lock(&s->drain_lock);
    uint64_t next = s->state[t->id].next_row + (s->live ? count_waiting(s, t->id) : 0);
    (void)pthread_mutex_unlock(&s->drain_lock);
    return next;
}
