/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/drain.c - rows out of the rings into segments, in one transaction with the positions.
 *
 * The drain thread, and whoever calls store_drain(), under the drain lock.  When the store cannot
 * take rows they are dropped and counted; the writers never wait for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/store/internal.h"

#define DRAIN_NS (2 * NS_PER_S)   /* longest that rows stay in rings when nobody asks */
#define WAKE_NS (250 * NS_PER_MS) /* longest sleep where they fill, or threads come and go: ... */
#define FILLS 0.0625              /* ... more of a ring was in use at the last look, ... */
#define MANY 64                   /* ... or there are more rings than this */
#define SYNC_NS (10 * NS_PER_S)   /* what a power failure may cost */
#define SMALL_ROWS (SEGMENT_ROWS / 2) /* rows: smaller segments are merged with what comes */
#define MERGE_FACTOR \
    8 /* a segment is written again when a share of 1/8 has come: log2 times in all */
#define ROOM_EACH (60 * NS_PER_S)        /* how often room is made where it did not help */
#define SHORT_BYTES (UINT64_C(64) << 20) /* less room than this is short */
#define SPARE_BYTES 65536                /* what deleting an eighth of a store may want, and more */
#define REOPEN_EACH NS_PER_S             /* how often a file that fails is opened afresh */
#define MENDS_MOST 2                     /* drains in a row that run into lost pages */
#define IDLE_DRAINS 16                   /* drains after which a table's memory is given back */

/* The last segment of a table before row `next`: 0 and in *ret, or MDB_NOTFOUND. */
static int last_segment(struct store *s, MDB_txn *txn, uint32_t id, uint64_t next,
                        struct segment_key *ret_key, struct segment *ret)
{
    MDB_cursor *cursor;
    struct segment_key k = key_of(id, next);
    MDB_val key = value_of(&k, sizeof(k)), value;
    uint32_t got_id;
    uint64_t row;
    int rc = mdb_cursor_open(txn, s->segments, &cursor);
    if (rc)
        return rc;
    rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    rc = mdb_cursor_get(cursor, &key, &value, rc == 0 ? MDB_PREV : MDB_LAST);
    if (rc == 0 && (!key_read(&key, &got_id, &row) || got_id != id || row >= next))
        rc = MDB_NOTFOUND;
    /* Only a whole neighbour may be merged: a gap would change row numbers. */
    if (rc == 0 &&
        (segment_open(value.mv_data, value.mv_size, ret) != 0 || row + ret->n_rows != next))
        rc = MDB_NOTFOUND;
    if (rc == 0)
        *ret_key = key_of(id, row);
    mdb_cursor_close(cursor);
    return rc;
}

/* Would the segment, with what comes, reach over half the age that rows of its table may have?  It
 * goes only when its youngest row is too old, and the oldest would be kept for many times that. */
static bool spans_too_long(struct store *s, const struct builder *b, const struct segment *seg)
{
    struct segment_column c;
    uint64_t newest = b->cells[0][b->n_rows - 1].u, keep_ns = retention_global_ns(s, b->table);
    return keep_ns && segment_column(seg, 0, &c) == 0 && c.has_bounds && newest > c.min.u &&
           newest - c.min.u > keep_ns / 2;
}

/* Take the small segments before the builder's rows into it, so that a table of one row a second
 * does not become a million segments. */
static int merge_small(struct store *s, MDB_txn *txn, struct builder *b, uint64_t *first_row)
{
    struct table_state *state = &s->state[b->table->id];
    for (;;) {
        struct segment_key k;
        struct segment seg;
        int rc = last_segment(s, txn, b->table->id, *first_row, &k, &seg);
        if (rc == MDB_NOTFOUND)
            return 0;
        if (rc)
            return rc;
        uint32_t n_rows = seg.n_rows, size = seg.size;
        if (n_rows >= SMALL_ROWS || n_rows > MERGE_FACTOR * b->n_rows ||
            n_rows + b->n_rows > SEGMENT_ROWS ||
            (b->table->has_tail && size + b->tails.size > SEGMENT_TAILS) ||
            spans_too_long(s, b, &seg))
            return 0;
        if (builder_prepend(b, &seg) != 0)
            return 0; /* damaged: it stays for what it is worth */
        MDB_val key = value_of(&k, sizeof(k));
        rc = mdb_del(txn, s->segments, &key, NULL);
        if (rc)
            return rc;
        *first_row -= n_rows;
        commit_sum_rows_removed(&s->seal, b->table->id, *first_row, n_rows);
        state->next_row -= n_rows;
        state->rows -= n_rows;
        state->bytes -= size;
        state->segments--;
    }
}

static int flush_builder(struct store *s, MDB_txn *txn, struct builder *b)
{
    struct table_state *state = &s->state[b->table->id];
    uint64_t first_row = state->next_row;
    if (!interns_lost(s->interns)) /* else nothing can be said about ids */
        builder_drop_ids(b, intern_last(s->interns));
    int rc = b->n_rows < SEGMENT_ROWS ? merge_small(s, txn, b, &first_row) : 0;
    if (rc)
        return lmdb_failed(rc, "segments cannot be merged");
    uint32_t n_rows = b->n_rows;
    rc = builder_flush(b, first_row, s->scratch, &s->out);
    if (rc)
        return err_set(rc, "no memory for a segment of %s.%s", b->table->schema, b->table->name);
    struct segment_key k = key_of(b->table->id, first_row);
    MDB_val key = value_of(&k, sizeof(k)), value = value_of(s->out.data, s->out.size);
    rc = mdb_put(txn, s->segments, &key, &value, 0);
    if (rc)
        return lmdb_failed(rc, "a segment cannot be written");
    commit_sum_rows_added(&s->seal, b->table->id, first_row, n_rows);
    state->next_row = first_row + n_rows;
    state->rows += n_rows;
    state->bytes += value.mv_size;
    state->segments++;
    return 0;
}

static int builder_for(struct store *s, uint32_t id, struct builder **ret)
{
    int rc = 0;
    if (!s->builders[id]) {
        struct table *t = tables_by_id(s->tables, id);
        if (!t || t->scan)
            return err_set(-EBADMSG, "there is no table %u", id);
        rc = builder_new(t, &s->builders[id]);
    }
    *ret = s->builders[id];
    return rc;
}

/* One row, and those behind it that are like it. */
static int take_rows(struct store *s, MDB_txn *txn, const struct ring_row *row,
                     struct ring_reader *reader)
{
    struct builder *b = row->table_id <= TABLES_STORED_MAX ? s->builders[row->table_id] : NULL;
    if (__builtin_expect(b == NULL, 0)) {
        int rc = row->table_id <= TABLES_STORED_MAX ? builder_for(s, row->table_id, &b) : -EBADMSG;
        if (rc)
            return rc == -EBADMSG ? 0 : rc; /* no such table: it cannot be, checks say so */
    }
    if (__builtin_expect(!builder_has_room(b, row->tail_n), 0)) {
        int rc = flush_builder(s, txn, b);
        if (rc)
            return rc;
    }
    int rc = builder_add(b, row, s->utc_offset);
    s->seen[row->table_id] += 1 + (rc ? 0 : builder_take(b, reader, s->utc_offset));
    return rc;
}

static void count_rows(struct store *s, const struct ring_row *row)
{
    if (row->table_id <= TABLES_STORED_MAX)
        s->seen[row->table_id]++;
}

/* Something wrote over the rings.  Whose rows these were cannot be told: of the table whose rows
 * lay there last. */
static void count_damage(struct store *s, uint32_t table_id, uint32_t gaps)
{
    struct table *t = tables_by_id(s->tables, table_id);
    for (uint32_t id = 1; !t && id <= s->last_id; id++) {
        t = tables_by_id(s->tables, id);
        t = t && t->scan ? NULL : t;
    }
    if (t)
        (void)atomic_fetch_add_explicit(&t->lost[TABLE_LOST_DAMAGED], gaps, memory_order_relaxed);
}

/* One ring.  Without a transaction the rows are only counted. */
static int drain_ring(struct store *s, MDB_txn *txn, uint32_t slot)
{
    struct ring_reader reader;
    struct ring_row row = {0};
    uint64_t tail = ring_tail(s->rings, slot);
    s->heads[slot] = 0;
    if (ring_generation(s->rings, slot) == 0 || ring_head(s->rings, slot) == tail)
        return 0;
    if (ring_read(s->rings, slot, tail, &reader) != 0) {
        s->heads[slot] = ring_head(s->rings, slot); /* broken by a stray pointer: begin anew */
        count_damage(s, 0, 1);
        return 0;
    }
    int rc = 0;
    while (rc == 0 && ring_next(&reader, &row) == 1) {
        if (txn)
            rc = take_rows(s, txn, &row, &reader);
        else
            count_rows(s, &row);
    }
    s->heads[slot] = reader.head; /* past what is no row, too */
    if (rc)
        return rc;
    if (reader.gaps && !s->damage_counted)
        count_damage(s, row.table_id, reader.gaps);
    if (!txn)
        return 0;
    struct position_record p = {.rings = rings_identity(s->rings),
                                .generation = ring_generation(s->rings, slot),
                                .position = reader.head};
    rc = store_put_record(s, txn, 'p', slot, &p, sizeof(p));
    return rc ? lmdb_failed(rc, "a ring's position cannot be written") : 0;
}

static int put_format(struct store *s, MDB_txn *txn)
{
    struct format_record f = {
        .format = STORE_FORMAT, .rings = rings_identity(s->rings), .drains = s->drains + 1};
    int rc = store_put_record(s, txn, 'f', 0, &f, sizeof(f));
    return rc ? lmdb_failed(rc, "the drain's number cannot be written") : 0;
}

/* Is the end of the map, of the device or of the allowed file size near? */
static bool room_is_short(struct store *s)
{
    MDB_envinfo info;
    MDB_stat stat;
    struct statvfs device;
    struct rlimit limit;
    int fd;
    if (mdb_env_info(s->env, &info) || mdb_env_stat(s->env, &stat) || mdb_env_get_fd(s->env, &fd))
        return false;
    uint64_t used = (info.me_last_pgno + 1) * (uint64_t)stat.ms_psize;
    bool is_short = used + SHORT_BYTES > info.me_mapsize;
    if (fstatvfs(fd, &device) == 0)
        is_short |= (uint64_t)device.f_bavail * device.f_frsize < SHORT_BYTES;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        is_short |= used + SHORT_BYTES > limit.rlim_cur;
    return is_short;
}

/* Deleting takes some pages, too, even if all is full.  Each drain writes these anew, so that those
 * of the drain before are free in the file when the next one finds no room. */
static int put_spare(struct store *s, MDB_txn *txn)
{
    struct meta_key k = meta_key_of('x', 0);
    MDB_val key = value_of(&k, sizeof(k)), value = value_of(NULL, SPARE_BYTES);
    int rc = mdb_put(txn, s->meta, &key, &value, MDB_RESERVE);
    if (rc)
        return lmdb_failed(rc, "no room for spare pages");
    memset(value.mv_data, 0, value.mv_size);
    return 0;
}

static int drain_all(struct store *s, MDB_txn *txn)
{
    int rc = txn ? put_format(s, txn) : 0;
    if (rc == 0 && txn && room_is_short(s))
        rc = put_spare(s, txn);
    for (uint32_t slot = 0; slot < rings_count(s->rings) && rc == 0; slot++)
        rc = drain_ring(s, txn, slot);
    s->damage_counted = true;
    for (uint32_t id = 1; id <= s->last_id && rc == 0 && txn; id++) {
        if (s->builders[id] && s->builders[id]->n_rows)
            rc = flush_builder(s, txn, s->builders[id]);
    }
    for (uint32_t id = 1; id <= s->last_id && rc == 0 && txn; id++) {
        struct row_record r = {.next_row = s->state[id].next_row, .expired = s->state[id].expired};
        if (r.next_row == s->saved[id].next_row && r.expired == s->saved[id].expired)
            continue;
        int failed = store_put_record(s, txn, 'r', id, &r, sizeof(r));
        rc = failed ? lmdb_failed(failed, "a table's state cannot be written") : 0;
    }
    return rc;
}

/* For undo_drain().  A table that comes during a drain has no rows before the next. */
static void save_state(struct store *s)
{
    memcpy(s->saved, s->state, (s->last_id + 1) * sizeof(s->saved[0]));
}

/* Back to before the drain. */
static void undo_drain(struct store *s)
{
    memcpy(s->state, s->saved, (s->last_id + 1) * sizeof(s->state[0]));
    memset(s->seen, 0, sizeof(s->seen));
    for (uint32_t id = 1; id <= s->last_id; id++) {
        if (s->builders[id]) {
            s->builders[id]->n_rows = 0;
            s->builders[id]->n_bad_ids = 0;
            buf_reset(&s->builders[id]->tails);
        }
    }
}

static bool anything_waits(struct store *s)
{
    for (uint32_t slot = 0; slot < rings_count(s->rings); slot++) {
        if (ring_head(s->rings, slot) != ring_tail(s->rings, slot))
            return true;
    }
    return false;
}

/* Have segments gone in this drain? */
static bool anything_expired(const struct store *s)
{
    for (uint32_t id = 1; id <= s->last_id; id++) {
        if (s->state[id].segments != s->saved[id].segments)
            return true;
    }
    return false;
}

/* Nothing is written if no row waits and none is too old: else a process that does nothing would
 * have its disk woken up every ten seconds. */
static int drain_once(struct store *s)
{
    MDB_txn *txn;
    save_state(s);
    memset(s->seen, 0, (s->last_id + 1) * sizeof(s->seen[0]));
    int rc = env_begin(s, 0, &txn);
    if (rc)
        return lmdb_failed(rc, "no transaction");
    /* Before the rows come: in a full store, deleting is what makes room. */
    rc = retention_apply(s, txn, /* share= */ 0);
    if (rc == 0 && !anything_expired(s) && !anything_waits(s)) {
        memset(s->heads, 0, sizeof(s->heads)); /* of the drain before */
        int failed = env_end(s, txn);
        return failed ? lmdb_failed(failed, "old segments cannot be looked for") : 0;
    }
    if (rc == 0)
        rc = drain_all(s, txn);
    if (rc) {
        mdb_txn_abort(txn);
    } else {
        int failed = env_commit(s, txn);
        rc = failed ? lmdb_failed(failed, "rows cannot be written") : 0;
    }
    if (rc)
        undo_drain(s);
    else
        s->drains++;
    return rc;
}

/* One transaction that deletes 1/`share` of what there is, the oldest; 0: it only moves LMDB's
 * count of transactions on. */
static int small_transaction(struct store *s, unsigned share)
{
    MDB_txn *txn;
    int rc = env_begin(s, 0, &txn);
    if (rc)
        return lmdb_failed(rc, "no transaction");
    save_state(s);
    if (share)
        rc = retention_apply(s, txn, share);
    for (uint32_t id = 1; id <= s->last_id && rc == 0; id++) {
        struct row_record r = {.next_row = s->state[id].next_row, .expired = s->state[id].expired};
        if (r.expired != s->saved[id].expired || (!share && id == 1))
            rc = store_put_record(s, txn, 'r', id, &r, sizeof(r));
    }
    if (rc)
        mdb_txn_abort(txn);
    else
        rc = env_commit(s, txn);
    if (rc)
        undo_drain(s);
    return rc;
}

/* LMDB calls a write that was cut short by a full device EIO. */
static bool is_full(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG || rc == -EIO;
}

/* A line of mdb_reader_list(): pid, thread, and the transaction that is looked at, "-" for none. */
static int see_reader(const char *line, void *arg)
{
    uint64_t *oldest = arg;
    const char *last = strrchr(line, ' ');
    uint64_t txn = last ? strtoull(last + 1, NULL, 10) : 0;
    if (txn && (!*oldest || txn < *oldest))
        *oldest = txn;
    return 0;
}

/* The transaction that the oldest reader looks at, which pins all pages since; 0: nobody reads. */
static uint64_t oldest_reader(struct store *s)
{
    uint64_t oldest = 0;
    if (s->env)
        (void)mdb_reader_list(s->env, see_reader, &oldest);
    return oldest;
}

/* If making room did not help, the next try waits, or everything would be deleted for nothing; it
 * does not wait for a reader that has left. */
static bool room_may_help(struct store *s)
{
    return !s->room_made_at || s->room_helped || clock_monotonic() - s->room_made_at >= ROOM_EACH ||
           (s->room_reader && s->room_reader != oldest_reader(s));
}

/* The map or the device is full: give up an eighth of what there is, the oldest, so that the newest
 * rows are those that can be had; where the rows that wait are more than that, a quarter, a half.
 * Pages that a transaction frees are used again by the second one after it, unless somebody reads:
 * then one eighth is all that is tried.  `rc`: why the drain failed.  Gives the last drain's. */
static int drain_into_room(struct store *s, int rc)
{
    s->room_made_at = clock_monotonic();
    s->room_reader = oldest_reader(s);
    for (unsigned share = 8; is_full(rc) && share >= 2; share = s->room_reader ? 0 : share / 2) {
        if (small_transaction(s, share) != 0 || small_transaction(s, 0) != 0)
            break;
        rc = drain_once(s);
    }
    s->room_helped = rc == 0;
    return rc;
}

/* Ids that stand for no text are NULL in the rows now. */
static void count_bad_ids(struct table *t, struct builder *b)
{
    if (!b || b->n_bad_ids == 0)
        return;
    (void)atomic_fetch_add_explicit(&t->lost[TABLE_LOST_VALUE], b->n_bad_ids, memory_order_relaxed);
    b->n_bad_ids = 0;
    table_misused(t, TABLE_NO_ID, 0);
}

/* The rings are empty up to heads[]; count whose rows they were. */
static void release_rings(struct store *s, bool lost)
{
    rings_note_drain(s->rings, s->drains); /* before: what is gone from the rings is in LMDB */
    for (uint32_t slot = 0; slot < rings_count(s->rings); slot++) {
        if (s->heads[slot])
            ring_release(s->rings, slot, s->heads[slot]);
    }
    for (uint32_t id = 1; id <= s->last_id; id++) {
        struct table *t = s->seen[id] ? tables_by_id(s->tables, id) : NULL;
        if (!t)
            continue;
        (void)atomic_fetch_add_explicit(t->appended, s->seen[id], memory_order_relaxed);
        count_bad_ids(t, s->builders[id]);
        if (lost)
            (void)atomic_fetch_add_explicit(&t->lost[TABLE_LOST_STORE], s->seen[id],
                                            memory_order_relaxed);
    }
}

static void age_builders(struct store *s)
{
    for (uint32_t id = 1; id <= s->last_id; id++) {
        struct builder *b = s->builders[id];
        if (!b)
            continue;
        b->idle = s->seen[id] ? 0 : b->idle + 1;
        if (b->idle > IDLE_DRAINS) {
            builder_free(b);
            s->builders[id] = NULL;
        }
    }
}

/* Is it time to look at age again, though no row came? */
static bool age_is_due(struct store *s)
{
    return clock_monotonic() - s->expired_at > 10 * NS_PER_S ||
           atomic_load_explicit(&s->limits_changed, memory_order_relaxed);
}

int drain_now(struct store *s)
{
    if (!anything_waits(s) && !age_is_due(s))
        return 0;
    s->damage_counted = false;
    s->last_id = tables_last(s->tables);
    int rc = drain_once(s);
    if (rc == -EIO && s->env && !env_is_ours(s))
        return -ESTALE;
    if (rc == -EIO) {
        uint64_t now = clock_monotonic();
        bool soon = s->broken_at && now - s->broken_at < REOPEN_EACH;
        atomic_store_explicit(&s->env_broken, !soon, memory_order_release);
        s->broken_at = soon ? s->broken_at : now;
    }
    if (is_full(rc) && room_may_help(s))
        rc = drain_into_room(s, rc);
    if (rc) {
        memset(s->seen, 0, sizeof(s->seen));
        (void)drain_all(s, /* txn= */ NULL);
    }
    release_rings(s, /* lost= */ rc != 0);
    age_builders(s);
    return rc;
}

/* -ESTALE: data.mdb is not what it was, and the rows wait in the rings. */
static int try_drain(struct store *s)
{
    (void)pthread_rwlock_rdlock(&s->map_lock);
    bool lost = s->env && !env_is_ours(s); /* or who took the flag is at it, and is waited for */
    uint64_t seen = s->opens;
    (void)pthread_rwlock_unlock(&s->map_lock);
    if (atomic_exchange_explicit(&s->env_broken, false, memory_order_acq_rel) || lost)
        store_reopen(s, seen);
    (void)pthread_rwlock_rdlock(&s->map_lock);
    (void)pthread_mutex_lock(&s->drain_lock);
    int rc = drain_now(s);
    s->mends = rc != 0 && env_lost_pages(s) ? s->mends + 1 : 0;
    if (s->mends >= MENDS_MOST) { /* what cannot be read is where we must write */
        s->mends = 0;
        atomic_store_explicit(&s->env_lost, true, memory_order_release);
    }
    (void)pthread_mutex_unlock(&s->drain_lock);
    (void)pthread_rwlock_unlock(&s->map_lock);
    return rc;
}

int store_drain(struct store *s)
{
    if (!s->live)
        return 0;
    if (atomic_load_explicit(&s->disabled, memory_order_acquire))
        return err_set(-ESHUTDOWN, "this is a forked child without a store");
    struct quiet quiet;
    int rc = -ESTALE;
    quiet_begin(&quiet);
    for (int tries = 0; tries <= MENDS_MOST && rc == -ESTALE; tries++)
        rc = try_drain(s);
    quiet_end(&quiet);
    return rc;
}

/* The rings or the names were lost under us: what was in them cannot be told, so each table says
 * that something of it may be missing. */
static void maintain_files(struct store *s)
{
    bool rings = rings_lost(s->rings), names = !s->names_lost && interns_lost(s->interns);
    if (!rings && !names)
        return;
    if (rings)
        rings_renew(s->rings);
    s->names_lost |= names;
    for (uint32_t id = 1; id <= tables_last(s->tables); id++) {
        struct table *t = tables_by_id(s->tables, id);
        if (t && !t->scan)
            (void)atomic_fetch_add_explicit(&t->lost[TABLE_LOST_DAMAGED], 1, memory_order_relaxed);
    }
}

static void sync_commits(struct store *s)
{
    (void)pthread_rwlock_rdlock(&s->map_lock);
    if (s->env && atomic_exchange_explicit(&s->unsynced, false, memory_order_acq_rel) &&
        mdb_env_sync(s->env, /* force= */ 1) != 0)
        atomic_store_explicit(&s->unsynced, true, memory_order_release); /* try again */
    (void)pthread_rwlock_unlock(&s->map_lock);
}

void *drain_thread(void *arg)
{
    struct store *s = arg;
    uint64_t now = clock_monotonic(), drained_at = now, synced_at = now;
    double fill = 1;
    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        bool soon = fill > FILLS || rings_count(s->rings) > MANY;
        rings_wait(s->rings, soon ? WAKE_NS : DRAIN_NS - (now - drained_at));
        now = clock_monotonic();
        clock_calibrate(); /* it knows itself when it is time */
        fill = rings_fill(s->rings);
        if (fill > 0.25 || now - drained_at >= DRAIN_NS) {
            (void)store_drain(s); /* what was lost is counted, there is nobody to tell */
            drained_at = now;
        }
        (void)pthread_mutex_lock(&s->drain_lock);
        maintain_files(s);
        rings_maintain(s->rings);
        (void)pthread_mutex_unlock(&s->drain_lock);
        if (now - synced_at >= SYNC_NS && rings_fill(s->rings) < 0.25) {
            sync_commits(s);
            synced_at = now;
        }
    }
    return NULL;
}
