/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/inside.h - what the files of core/store share and nobody else sees.
 *
 * LMDB holds two databases:
 *     "segments"  u32 table id, u64 number of the first row (big-endian) -> a segment.  By row
 *                 number and not by time: numbers are dense and never equal, a continuous query's
 *                 cursor is one seek, and rows come nearly in order of time, so zone maps prune.
 *     "meta"      't' u32 table id -> its description as JSON
 *                 'r' u32 table id -> struct row_record
 *                 'p' u32 ring     -> struct position_record, written with the rows it speaks of
 *
 * Locks, in this order: map_lock (read), drain_lock.  No callback is called under them.
 */
#ifndef CORE_STORE_INSIDE_H
#define CORE_STORE_INSIDE_H

#include <lmdb.h>
#include <pthread.h>

#include "core/base/buf.h"
#include "core/store/segment.h"
#include "core/store/store.h"

#define STORE_SLOTS_MAX 512 /* rings: as many as core/ring has */

struct row_record {
    uint64_t next_row, expired;
};

struct position_record {
    uint64_t rings, generation, position; /* rings: rings_identity() */
};

/* Rows of one table on their way from rings to a segment. */
struct builder {
    const struct table *table;
    uint32_t n_rows, n_columns; /* n_columns: without the tail */
    uint32_t idle;              /* drains without a row */
    uint8_t types[TABLE_COLUMNS_MAX];
    uint32_t n_times; /* columns of type TIME beside ts: theirs becomes UTC too */
    uint8_t times[TABLE_COLUMNS_MAX];
    union probing_cell *cells[TABLE_COLUMNS_MAX];
    uint32_t *tail_offsets;
    struct buf tails;
    union probing_cell *memory;
};

int builder_new(const struct table *t, struct builder **ret);
void builder_free(struct builder *b);
/* Is there room for one row more with such a tail? */
bool builder_has_room(const struct builder *b, uint32_t tail_n);
/* -ENOMEM when the tail does not fit; cells beyond the row's are NULL. */
int builder_add(struct builder *b, const struct ring_row *row, int64_t utc_offset);
/* Put the rows of a segment before those that are there.  The sum must be at most SEGMENT_ROWS. */
int builder_prepend(struct builder *b, const struct segment *s);
/* The segment into `out` (emptied first), and no rows any more. */
int builder_flush(struct builder *b, int64_t *scratch, struct buf *out);

struct table_state {
    uint64_t next_row, rows, bytes, segments, expired;
};

/* A segment in memory: rows that the dead left in their rings. */
struct memory_segment {
    struct memory_segment *next;
    uint32_t table_id, n_rows;
    uint64_t first_row;
    size_t size;
    void *data;
};

struct store {
    char *directory;
    bool live;
    _Atomic bool disabled; /* in a forked child: nothing works any more */
    struct tables *tables;
    struct rings *rings;     /* NULL: dead without */
    struct interns *interns; /* NULL: dead without */
    int64_t utc_offset;

    pthread_rwlock_t map_lock; /* write: the map's size changes, no transaction may be open */
    MDB_env *env;              /* NULL: dead and unreadable */
    MDB_dbi meta, segments;
    size_t map_bytes; /* lock: map_lock */

    pthread_mutex_t drain_lock;
    struct table_state state[TABLES_MAX + 1]; /* lock: drain_lock when live */
    struct table_state saved[TABLES_MAX + 1]; /* lock: drain_lock.  To go back to after a failure */
    struct builder *builders[TABLES_MAX + 1]; /* lock: drain_lock */
    uint64_t seen[TABLES_MAX + 1];   /* rows of each table in this drain.  lock: drain_lock */
    uint64_t heads[STORE_SLOTS_MAX]; /* where this drain has read to.  lock: drain_lock */
    int64_t *scratch;                /* lock: drain_lock */
    struct buf out;                  /* lock: drain_lock */
    uint64_t expired_at;             /* when age was last looked at.  lock: drain_lock */

    _Atomic uint64_t max_bytes, keep_ns;
    _Atomic bool stop;
    bool has_thread;
    pthread_t thread;

    struct memory_segment *memory, *memory_last; /* dead only */
    struct buf damage;                           /* dead only */
};

struct segment_key {
    uint8_t bytes[12];
};
struct meta_key {
    uint8_t bytes[5];
};
struct segment_key key_of(uint32_t table_id, uint64_t first_row);
/* false: not such a key. */
bool key_read(const MDB_val *key, uint32_t *ret_table_id, uint64_t *ret_first_row);
struct meta_key meta_key_of(char kind, uint32_t id);
MDB_val value_of(const void *p, size_t n);

/* An LMDB code as -errno, with the reason said. */
int lmdb_failed(int code, const char *what);

/* Read state, and the tables' descriptions when `tables` is not NULL. */
int store_load(struct store *s);
int store_new(const char *directory, struct tables *tables, bool live, struct store **ret);
void store_drop(struct store *s); /* whatever is there of it */

/* Everything in the rings into segments.  lock: drain_lock */
int drain_now(struct store *s);
void *drain_thread(void *arg);

/* Remove what is too old or too much, in the transaction; gives how many segments.  `room`: bytes
 * to have free below the budget. */
int retention_apply(struct store *s, MDB_txn *txn, uint64_t room);

/* A description from its JSON. */
int schema_write(const struct table *t, struct buf *out);
int schema_read(const char *text, size_t size, struct tables *tables, struct table **ret);

#endif
