/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/scan.c - reading a table: segment by segment, wanted columns only, in small batches.
 *
 * Any thread, each with its own scan; scans beside each other share out the segments.  Of each
 * segment the wanted columns' packed bytes are copied out within a transaction that ends at once,
 * so no page is ever pinned; they are unpacked batch by batch, while they are in the cache.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/store/internal.h"

#define BATCH STORE_BATCH_ROWS

/* The next segment that no scan of a group has begun. */
struct shared {
    pthread_mutex_t mutex; /* the innermost: under map_lock */
    uint64_t next_row;     /* lock: mutex */
    uint32_t users;        /* lock: mutex */
};

struct store_scan {
    struct store *store;
    struct shared *shared; /* NULL: it reads alone */
    bool left;             /* begins no further segment */
    const struct table *table;
    struct store_bound *bounds;
    uint32_t n_bounds;
    uint64_t wanted[2], for_bounds[2];
    uint64_t inside[2];         /* of the segment, see struct store_batch */
    uint64_t next_row, end_row; /* to hand out; where this scan ends */
    uint64_t rows_there;        /* in the store when it was made */
    uint64_t pruned, segments;
    const struct memory_segment *memory;

    struct buf copy;        /* the segment now read, or the wanted parts of it */
    struct segment segment; /* n_rows 0: none */
    uint64_t segment_row;   /* number of its first row */
    uint32_t at;            /* rows of it gone by */
    struct segment_cursor cursors[TABLE_COLUMNS_MAX];
    uint32_t *tail_offsets; /* of the whole segment */
    const uint8_t *tails;
    union probing_cell *cells; /* BATCH a column */
};

static bool is_wanted(const struct store_scan *scan, uint32_t column)
{
    return scan->wanted[column / 64] >> (column % 64) & 1;
}

static uint32_t plain_columns(const struct table *t)
{
    return t->n_columns - (t->has_tail ? 1 : 0);
}

static int new_scan(struct store *s, const struct table *t, const struct store_scan_options *o,
                    uint64_t end_row, struct store_scan **ret)
{
    struct store_scan *scan = calloc(1, sizeof(*scan));
    if (!scan)
        return err_set(-ENOMEM, "no memory for reading %s.%s", t->schema, t->name);
    scan->store = s;
    scan->table = t;
    memcpy(scan->wanted, o->columns, sizeof(scan->wanted));
    memcpy(scan->for_bounds, o->for_bounds, sizeof(scan->for_bounds));
    scan->next_row = o->from_row;
    buf_init(&scan->copy, SEGMENT_MAX);
    scan->n_bounds = o->n_bounds;
    scan->bounds = calloc(o->n_bounds ? o->n_bounds : 1, sizeof(*scan->bounds));
    scan->cells = malloc(sizeof(union probing_cell) * BATCH * t->n_columns);
    if (t->has_tail)
        scan->tail_offsets = malloc(sizeof(uint32_t) * (SEGMENT_ROWS + SEGMENT_BLOCK + 1));
    if (!scan->bounds || !scan->cells || (t->has_tail && !scan->tail_offsets)) {
        store_scan_free(scan);
        return err_set(-ENOMEM, "no memory for reading %s.%s", t->schema, t->name);
    }
    if (o->n_bounds)
        memcpy(scan->bounds, o->bounds, o->n_bounds * sizeof(*scan->bounds));
    scan->end_row = end_row;
    scan->memory = s->memory;
    *ret = scan;
    return 0;
}

int store_scan_new(struct store *s, const struct table *t, const struct store_scan_options *o,
                   struct store_scan **ret)
{
    if (t->scan)
        return err_set(-EINVAL, "table %s.%s is computed, not stored", t->schema, t->name);
    int rc = store_drain(s); /* says -ESHUTDOWN in a forked child */
    if (rc == -ESHUTDOWN)
        return rc;
    /* Rows that the store refused are counted as lost; what is there can still be read. */
    (void)pthread_mutex_lock(&s->drain_lock);
    uint64_t end_row = s->state[t->id].next_row, rows = s->state[t->id].rows;
    (void)pthread_mutex_unlock(&s->drain_lock);
    rc = new_scan(s, t, o, o->to_row && o->to_row < end_row ? o->to_row : end_row, ret);
    if (rc == 0)
        (*ret)->rows_there = rows;
    return rc;
}

static struct shared *new_shared(const struct store_scan *scan)
{
    struct shared *s = calloc(1, sizeof(*s));
    if (!s || pthread_mutex_init(&s->mutex, NULL) != 0) {
        free(s);
        return NULL;
    }
    uint64_t end = scan->segment.n_rows ? scan->segment_row + scan->segment.n_rows : 0;
    s->next_row = scan->next_row > end ? scan->next_row : end;
    s->users = 1;
    return s;
}

static void leave_shared(struct shared *s)
{
    (void)pthread_mutex_lock(&s->mutex);
    bool last = --s->users == 0;
    (void)pthread_mutex_unlock(&s->mutex);
    if (!last)
        return;
    (void)pthread_mutex_destroy(&s->mutex);
    free(s);
}

int store_scan_beside(struct store_scan *scan, struct store_scan **ret)
{
    struct store_scan *other;
    struct store_scan_options o = {.bounds = scan->bounds, .n_bounds = scan->n_bounds};
    if (!scan->store->live)
        return err_set(-EOPNOTSUPP, "the rows of the dead are read by one thread");
    memcpy(o.columns, scan->wanted, sizeof(o.columns));
    memcpy(o.for_bounds, scan->for_bounds, sizeof(o.for_bounds));
    if (!scan->shared && !(scan->shared = new_shared(scan)))
        return err_set(-ENOMEM, "no memory for reading in two threads");
    int rc = new_scan(scan->store, scan->table, &o, scan->end_row, &other);
    if (rc < 0)
        return rc;
    other->shared = scan->shared;
    (void)pthread_mutex_lock(&scan->shared->mutex);
    scan->shared->users++;
    (void)pthread_mutex_unlock(&scan->shared->mutex);
    *ret = other;
    return 0;
}

void store_scan_leave(struct store_scan *scan)
{
    scan->left = true;
}

void store_scan_free(struct store_scan *scan)
{
    if (!scan)
        return;
    if (scan->shared)
        leave_shared(scan->shared);
    buf_done(&scan->copy);
    free(scan->bounds);
    free(scan->cells);
    free(scan->tail_offsets);
    free(scan);
}

uint64_t store_scan_pruned(const struct store_scan *scan, uint64_t *ret_segments)
{
    if (ret_segments)
        *ret_segments = scan->segments;
    return scan->pruned;
}

uint64_t store_scan_rows(const struct store_scan *scan)
{
    uint64_t n = scan->end_row > scan->next_row ? scan->end_row - scan->next_row : 0;
    if (scan->memory) /* rows of the dead that were not stored */
        return UINT64_MAX;
    return n < scan->rows_there ? n : scan->rows_there;
}

uint64_t store_scan_end(const struct store_scan *scan)
{
    return scan->end_row;
}

/* Can no row of the segment lie in the bound? */
static bool misses_bound(const struct segment_column *c, const struct store_bound *bound)
{
    union probing_cell lo = bound->lo, hi = bound->hi;
    if (c->encoding == 0 && !c->has_bounds)
        return true; /* nothing but NULLs, and NULL lies nowhere */
    if (!c->has_bounds)
        return false;
    if (c->type == PROBING_F64)
        return (lo.u != PROBING_NULL_F64 && c->max.f < lo.f) ||
               (hi.u != PROBING_NULL_F64 && c->min.f > hi.f);
    if (c->type == PROBING_STR || c->type == PROBING_BLOB)
        return (lo.u != PROBING_NULL_ID && c->max.u < lo.u) ||
               (hi.u != PROBING_NULL_ID && c->min.u > hi.u);
    return (lo.i != PROBING_NULL_I64 && c->max.i < lo.i) ||
           (hi.i != PROBING_NULL_I64 && c->min.i > hi.i);
}

static bool is_pruned(const struct store_scan *scan, const struct segment *s)
{
    struct segment_column c;
    for (uint32_t i = 0; i < scan->n_bounds; i++) {
        uint32_t column = scan->bounds[i].column;
        if (column < s->n_columns && segment_column(s, column, &c) == 0 && !c.is_tail &&
            misses_bound(&c, &scan->bounds[i]))
            return true;
    }
    return false;
}

/* Do all rows of the segment lie in the bound? */
static bool lies_in_bound(const struct segment_column *c, const struct store_bound *bound)
{
    union probing_cell lo = bound->lo, hi = bound->hi;
    if (!c->has_bounds || c->nulls)
        return false;
    if (c->type == PROBING_F64) /* NaN lies outside of min and max */
        return false;
    if (c->type == PROBING_STR || c->type == PROBING_BLOB)
        return (lo.u == PROBING_NULL_ID || c->min.u >= lo.u) &&
               (hi.u == PROBING_NULL_ID || c->max.u <= hi.u);
    return (lo.i == PROBING_NULL_I64 || c->min.i >= lo.i) &&
           (hi.i == PROBING_NULL_I64 || c->max.i <= hi.i);
}

static void find_inside(struct store_scan *scan)
{
    struct segment_column c;
    uint64_t outside[2] = {0, 0};
    memset(scan->inside, 0, sizeof(scan->inside));
    for (uint32_t i = 0; i < scan->n_bounds; i++) {
        uint32_t column = scan->bounds[i].column;
        bool in = column < scan->segment.n_columns &&
                  segment_column(&scan->segment, column, &c) == 0 && !c.is_tail &&
                  lies_in_bound(&c, &scan->bounds[i]);
        (in ? scan->inside : outside)[column / 64] |= UINT64_C(1) << (column % 64);
    }
    scan->inside[0] &= ~outside[0];
    scan->inside[1] &= ~outside[1];
}

/* Is the column unpacked, of this segment? */
static bool is_unpacked(const struct store_scan *scan, uint32_t column)
{
    uint64_t bit = UINT64_C(1) << (column % 64);
    return is_wanted(scan, column) &&
           !(scan->for_bounds[column / 64] & scan->inside[column / 64] & bit);
}

/* Get ready to read a segment that lies at `data` for the moment. */
static int begin_segment(struct store_scan *scan, const void *data, size_t size)
{
    const struct table *t = scan->table;
    struct segment s;
    int rc = segment_open(data, size, &s);
    if (rc)
        return rc;
    if (s.n_columns != t->n_columns)
        return err_set(-EBADMSG, "a segment of %s.%s has %u columns, not %u", t->schema, t->name,
                       s.n_columns, t->n_columns);
    /* The head, then the payloads that somebody wants, at the places they had. */
    buf_reset(&scan->copy);
    if (!buf_room(&scan->copy, size))
        return scan->copy.failed;
    struct segment_column c, first = {0};
    rc = segment_column(&s, 0, &first);
    if (rc)
        return rc;
    memcpy(scan->copy.data, data, first.offset < size ? first.offset : size);
    scan->segment = s;
    scan->segment.data = (const uint8_t *)scan->copy.data;
    find_inside(scan);
    for (uint32_t i = 0; i < s.n_columns && rc == 0; i++) {
        if (!is_unpacked(scan, i))
            continue;
        rc = segment_column(&s, i, &c);
        if (rc == 0)
            memcpy(scan->copy.data + c.offset, s.data + c.offset, c.size);
        if (rc == 0 && i < plain_columns(t) && c.type != t->columns[i].type)
            rc = err_set(-EBADMSG, "a segment of %s.%s has another type", t->schema, t->name);
    }
    scan->at = 0;
    return rc;
}

static int open_columns(struct store_scan *scan)
{
    const struct table *t = scan->table;
    int rc = 0;
    for (uint32_t i = 0; i < plain_columns(t) && rc == 0; i++) {
        if (is_unpacked(scan, i))
            rc = segment_cursor_init(&scan->segment, i, /* payload= */ NULL, &scan->cursors[i]);
    }
    if (rc == 0 && t->has_tail && is_wanted(scan, t->n_columns - 1))
        rc = segment_tails(&scan->segment, t->n_columns - 1, scan->tail_offsets, &scan->tails);
    return rc;
}

/* Move to the segment that holds next_row, or the first one after it, that no bound rules out.
 * 1: there is one, in `value`; 0: no more. */
static int seek_segment(struct store_scan *scan, MDB_cursor *cursor, MDB_val *value)
{
    uint32_t id = scan->table->id, got_id;
    uint64_t row;
    struct segment s;
    struct segment_key k = key_of(id, scan->next_row);
    MDB_val key = value_of(&k, sizeof(k));
    int rc = mdb_cursor_get(cursor, &key, value, MDB_SET_RANGE);
    /* The one before may reach over next_row. */
    if (rc != 0 || !key_read(&key, &got_id, &row) || got_id != id || row > scan->next_row) {
        rc = mdb_cursor_get(cursor, &key, value, rc == 0 ? MDB_PREV : MDB_LAST);
        if (rc == 0 && (!key_read(&key, &got_id, &row) || got_id != id ||
                        segment_open(value->mv_data, value->mv_size, &s) != 0 ||
                        row + s.n_rows <= scan->next_row))
            rc = mdb_cursor_get(cursor, &key, value, MDB_NEXT);
        else if (rc == MDB_NOTFOUND) /* before the very first key */
            rc = mdb_cursor_get(cursor, &key, value, MDB_FIRST);
    }
    for (; rc == 0; rc = mdb_cursor_get(cursor, &key, value, MDB_NEXT)) {
        if (!key_read(&key, &got_id, &row) || got_id != id || row >= scan->end_row)
            return 0;
        int bad = segment_open(value->mv_data, value->mv_size, &s);
        if (bad)
            return bad;
        scan->segments++;
        scan->segment_row = row;
        if (!is_pruned(scan, &s))
            return 1;
        scan->pruned++;
        scan->next_row = row + s.n_rows;
    }
    return rc == MDB_NOTFOUND ? 0 : lmdb_failed(rc, "segments cannot be read");
}

/* The same, of what no scan beside this one has begun. */
static int seek_shared(struct store_scan *scan, MDB_cursor *cursor, MDB_val *value)
{
    struct shared *shared = scan->shared;
    struct segment s;
    if (!shared)
        return seek_segment(scan, cursor, value);
    (void)pthread_mutex_lock(&shared->mutex);
    scan->next_row = shared->next_row;
    int rc = scan->next_row < scan->end_row ? seek_segment(scan, cursor, value) : 0;
    int bad = rc == 1 ? segment_open(value->mv_data, value->mv_size, &s) : 0;
    if (rc == 1 && bad == 0)
        shared->next_row = scan->segment_row + s.n_rows;
    (void)pthread_mutex_unlock(&shared->mutex);
    return bad ? bad : rc;
}

/* One look into LMDB, with the map locked for reading. */
static int look_up(struct store_scan *scan)
{
    struct store *s = scan->store;
    MDB_txn *txn;
    MDB_cursor *cursor;
    MDB_val value;
    int rc = s->env ? env_begin(s, MDB_RDONLY, &txn) : MDB_PANIC;
    if (rc == MDB_PANIC || rc == EIO) {
        (void)err_set(-EIO,
                      "data.mdb cannot be read: it was cut short or written over, or its disk "
                      "fails");
        return rc == MDB_PANIC ? -ENOTRECOVERABLE : -EIO;
    }
    if (rc)
        return lmdb_failed(rc, "segments cannot be read");
    rc = mdb_cursor_open(txn, s->segments, &cursor);
    rc = rc ? lmdb_failed(rc, "segments cannot be read") : 0;
    if (rc == 0) {
        rc = seek_shared(scan, cursor, &value);
        if (rc == 1) {
            int bad = begin_segment(scan, value.mv_data, value.mv_size);
            rc = bad ? bad : 1;
        }
        mdb_cursor_close(cursor);
    }
    int lost = env_end(s, txn);
    return lost ? lmdb_failed(lost, "data.mdb was cut short or cannot be read") : rc;
}

/* The next segment out of LMDB: 1, 0 or -errno. */
static int next_stored(struct store_scan *scan)
{
    struct store *s = scan->store;
    int rc = -ENOTRECOVERABLE;
    uint64_t seen = 0;
    if (!s->live || scan->next_row >= scan->end_row)
        return 0;
    if (atomic_load_explicit(&s->disabled, memory_order_acquire))
        return err_set(-ESHUTDOWN, "this is a forked child without a store");
    for (int tries = 0; tries < 2 && rc == -ENOTRECOVERABLE; tries++) {
        if (tries) /* a write failed, and with it everything that was open */
            store_reopen(s, seen);
        (void)pthread_rwlock_rdlock(&s->map_lock);
        seen = s->opens;
        rc = look_up(scan);
        (void)pthread_rwlock_unlock(&s->map_lock);
    }
    return rc == -ENOTRECOVERABLE ? -EIO : rc;
}

/* The next segment of a dead process: in its file, or made of what was in its rings.  Each was
 * whole when the store was opened; one that is not any more is left out, and told. */
static int next_in_memory(struct store_scan *scan)
{
    for (const struct memory_segment *m = scan->memory; m; m = m->next) {
        struct segment s;
        scan->memory = m->next;
        if (m->table_id != scan->table->id || m->first_row + m->n_rows <= scan->next_row)
            continue;
        scan->segments++;
        scan->segment_row = m->first_row;
        int rc = segment_open(m->data, m->size, &s);
        if (rc == 0 && is_pruned(scan, &s)) {
            scan->pruned++;
            continue;
        }
        if (rc == 0)
            rc = begin_segment(scan, m->data, m->size);
        if (rc == 0)
            rc = open_columns(scan);
        if (rc == 0)
            return 1;
        scan->segment.n_rows = 0;
        if (rc != -EBADMSG)
            return rc;
        (void)buf_addf(&scan->store->damage, "%s: its %u rows are left out\n", err_text(),
                       m->n_rows);
    }
    return 0;
}

static int next_segment(struct store_scan *scan)
{
    scan->segment.n_rows = 0;
    if (scan->left)
        return 0;
    if (!scan->store->live)
        return next_in_memory(scan);
    int rc = next_stored(scan);
    if (rc == 1) {
        int bad = open_columns(scan);
        if (bad) {
            scan->segment.n_rows = 0;
            return bad;
        }
    }
    return rc;
}

/* Unpack n rows of every wanted column. */
static int unpack_rows(struct store_scan *scan, uint32_t n, struct store_batch *ret)
{
    const struct table *t = scan->table;
    for (uint32_t i = 0; i < plain_columns(t); i++) {
        if (!is_unpacked(scan, i))
            continue;
        union probing_cell *cells = scan->cells + (size_t)i * BATCH;
        int rc = segment_cursor_next(&scan->cursors[i], n, cells, &ret->has_null[i]);
        if (rc)
            return rc;
        ret->cells[i] = cells;
    }
    return 0;
}

static void fill_bounds(const struct store_scan *scan, struct store_batch *ret)
{
    const struct table *t = scan->table;
    struct segment_column c;
    for (uint32_t i = 0; i < t->n_columns; i++) {
        union probing_cell none = {.i = PROBING_NULL_I64};
        if (t->columns[i].type == PROBING_F64)
            none.u = PROBING_NULL_F64;
        else if (t->columns[i].type == PROBING_STR || t->columns[i].type == PROBING_BLOB)
            none.u = PROBING_NULL_ID;
        bool known = segment_column(&scan->segment, i, &c) == 0 && c.has_bounds;
        ret->min[i] = known ? c.min : none;
        ret->max[i] = known ? c.max : none;
    }
}

/* Leave out the first `skip` rows of a batch. */
static void cut_front(const struct store_scan *scan, uint32_t skip, struct store_batch *ret)
{
    for (uint32_t i = 0; i < scan->table->n_columns; i++)
        ret->cells[i] = ret->cells[i] ? ret->cells[i] + skip : NULL;
    if (ret->tail_offsets)
        ret->tail_offsets += skip;
    ret->n_rows -= skip;
    ret->first_row += skip;
}

int store_scan_next(struct store_scan *scan, struct store_batch *ret)
{
    for (;;) {
        if (scan->segment.n_rows == 0 || scan->at >= scan->segment.n_rows) {
            int rc = next_segment(scan);
            if (rc != 1)
                return rc;
            if (scan->next_row < scan->segment_row)
                scan->next_row = scan->segment_row; /* what lay between has expired */
        }
        uint32_t left = scan->segment.n_rows - scan->at;
        uint32_t n = left < BATCH ? left : BATCH;
        *ret = (struct store_batch){.n_rows = n,
                                    .first_row = scan->segment_row + scan->at,
                                    .inside = {scan->inside[0], scan->inside[1]}};
        int rc = unpack_rows(scan, n, ret);
        if (rc)
            return rc;
        if (scan->table->has_tail && is_wanted(scan, scan->table->n_columns - 1)) {
            const uint32_t *offsets = scan->tail_offsets + scan->at;
            ret->tails = scan->tails;
            ret->tail_offsets = offsets;
            ret->has_null[scan->table->n_columns - 1] = 1; /* perhaps */
        }
        scan->at += n;
        uint64_t end = ret->first_row + n;
        if (end <= scan->next_row)
            continue; /* a merge put rows in front that were handed out already */
        if (ret->first_row < scan->next_row)
            cut_front(scan, (uint32_t)(scan->next_row - ret->first_row), ret);
        if (end > scan->end_row) {
            ret->n_rows =
                ret->first_row < scan->end_row ? (uint32_t)(scan->end_row - ret->first_row) : 0;
            end = scan->end_row;
        }
        scan->next_row = end > scan->next_row ? end : scan->next_row;
        if (ret->n_rows == 0)
            return 0;
        fill_bounds(scan, ret);
        return 1;
    }
}
