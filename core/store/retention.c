/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/retention.c - the oldest segments go: by age, by a table's bytes, by the total.
 *
 * Under the drain lock, inside the drain's transaction.
 */
#include <errno.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/store/internal.h"

#define AGE_EACH NS_PER_S /* ns: how often age is looked at */

struct oldest {
    uint64_t first_row, max_ts;
    uint32_t n_rows;
    size_t size;
};

/* The first segment of a table: 0, or MDB_NOTFOUND. */
static int find_oldest(struct store *s, MDB_cursor *cursor, uint32_t id, struct oldest *ret)
{
    struct segment_key k = key_of(id, 0);
    MDB_val key = value_of(&k, sizeof(k)), value;
    uint32_t got_id;
    struct segment seg;
    struct segment_column c;
    (void)s;
    int rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    if (rc)
        return rc;
    if (!key_read(&key, &got_id, &ret->first_row) || got_id != id)
        return MDB_NOTFOUND;
    ret->size = value.mv_size;
    ret->n_rows = 0;
    ret->max_ts = 0; /* what cannot be read counts as the oldest */
    if (segment_open(value.mv_data, value.mv_size, &seg) == 0) {
        ret->n_rows = seg.n_rows;
        if (segment_column(&seg, 0, &c) == 0 && c.has_bounds)
            ret->max_ts = c.max.u;
    }
    return 0;
}

static int remove_segment(struct store *s, MDB_txn *txn, uint32_t id, const struct oldest *o)
{
    struct table_state *state = &s->state[id];
    struct segment_key k = key_of(id, o->first_row);
    MDB_val key = value_of(&k, sizeof(k));
    int rc = mdb_del(txn, s->segments, &key, NULL);
    if (rc)
        return rc;
    commit_sum_rows_removed(&s->seal, id, o->first_row, o->n_rows);
    state->rows -= o->n_rows < state->rows ? o->n_rows : state->rows;
    state->bytes -= o->size < state->bytes ? o->size : state->bytes;
    state->segments -= state->segments > 0;
    state->expired += o->n_rows;
    return 0;
}

uint64_t retention_global_ns(struct store *s, const struct table *t)
{
    uint64_t own = atomic_load_explicit(&t->keep_ns, memory_order_relaxed);
    return own ? own : atomic_load_explicit(&s->keep_ns, memory_order_relaxed);
}

/* One table: everything too old, and everything above its own bytes. */
static int trim_table(struct store *s, MDB_txn *txn, MDB_cursor *cursor, uint32_t id, uint64_t utc)
{
    const struct table *t = tables_by_id(s->tables, id);
    struct oldest o;
    int rc = 0;
    if (!t)
        return 0;
    uint64_t keep_ns = retention_global_ns(s, t);
    uint64_t keep_bytes = atomic_load_explicit(&t->keep_bytes, memory_order_relaxed);
    while (s->state[id].segments && rc == 0) {
        bool too_much = keep_bytes && s->state[id].bytes > keep_bytes && s->state[id].segments > 1;
        if (!too_much && !keep_ns)
            return 0;
        rc = find_oldest(s, cursor, id, &o);
        if (rc || (!too_much && (keep_ns >= utc || o.max_ts >= utc - keep_ns)))
            break;
        rc = remove_segment(s, txn, id, &o);
    }
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static uint64_t total_bytes(const struct store *s)
{
    uint64_t sum = 0;
    for (uint32_t id = 1; id <= s->last_id; id++)
        sum += s->state[id].bytes;
    return sum;
}

/* All tables together: the oldest segment of all goes first. */
static int trim_total(struct store *s, MDB_txn *txn, MDB_cursor *cursor, uint64_t most)
{
    uint64_t sum = total_bytes(s);
    while (sum > most) {
        struct oldest best = {.max_ts = UINT64_MAX}, o;
        uint32_t best_id = 0;
        for (uint32_t id = 1; id <= s->last_id; id++) {
            if (s->state[id].segments && find_oldest(s, cursor, id, &o) == 0 &&
                (!best_id || o.max_ts < best.max_ts)) {
                best = o;
                best_id = id;
            }
        }
        if (!best_id)
            return 0;
        int rc = remove_segment(s, txn, best_id, &best);
        if (rc)
            return rc;
        sum -= best.size < sum ? best.size : sum;
    }
    return 0;
}

int retention_apply(struct store *s, MDB_txn *txn, unsigned share)
{
    MDB_cursor *cursor;
    uint64_t now = clock_monotonic();
    uint64_t sum = total_bytes(s);
    uint64_t most = atomic_load_explicit(&s->max_bytes, memory_order_relaxed);
    if (share && most > sum - sum / share)
        most = sum - sum / share;
    bool aged = atomic_exchange_explicit(&s->limits_changed, false, memory_order_acquire) ||
                now - s->expired_at >= AGE_EACH;
    if (!aged && sum <= most)
        return 0;
    int rc = mdb_cursor_open(txn, s->segments, &cursor);
    if (rc)
        return lmdb_failed(rc, "old segments cannot be removed");
    for (uint32_t id = 1; id <= s->last_id && aged && rc == 0; id++) {
        if (s->state[id].segments)
            rc = trim_table(s, txn, cursor, id, now + (uint64_t)s->utc_offset);
    }
    if (rc == 0)
        rc = trim_total(s, txn, cursor, most);
    mdb_cursor_close(cursor);
    if (aged)
        s->expired_at = now;
    return rc ? lmdb_failed(rc, "old segments cannot be removed") : 0;
}
