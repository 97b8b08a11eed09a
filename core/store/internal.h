/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/internal.h - what the files of core/store share and nobody else sees.
 *
 * LMDB holds two databases:
 *     "segments"  u32 table id, u64 number of the first row (big-endian) -> a segment.  By row
 *                 number and not by time: numbers are dense and never equal, a continuous query's
 *                 cursor is one seek, and rows come nearly in order of time, so zone maps prune.
 *     "meta"      't' u32 table id -> its description as JSON, with a check
 *                 'r' u32 table id -> struct row_record
 *                 'p' u32 ring     -> struct position_record, written with the rows it speaks of
 *                 'f' u32 0        -> struct format_record, written with each drain
 *                 's' u32 0        -> struct commit_sum_record, written with each transaction
 *                 'x' u32 0        -> spare pages (drain.c), no data
 *
 * Locks, in this order: map_lock (read), drain_lock.  No callback is called under them.
 */
#ifndef CORE_STORE_INTERNAL_H
#define CORE_STORE_INTERNAL_H

#include <lmdb.h>
#include <pthread.h>
#include <signal.h>

#include "core/store/segment.h"
#include "core/store/store.h"
#include "sdk/lib/buf.h"

#define STORE_SLOTS_MAX 512 /* rings: as many as core/ring has */

#define STORE_FORMAT 3 /* of these records; segments have a number of their own */

/* Each ends with store_sum() of what is before it and of its key. */
struct format_record {
    uint64_t format, rings, drains; /* rings: rings_identity(); drains: as rings_drains() */
    uint64_t sum;
};

struct row_record {
    uint64_t next_row, expired;
    uint64_t sum;
};

struct position_record {
    uint64_t rings, generation, position;
    uint64_t sum;
};

/* Sums over all that is in data.mdb (commit_sum.c): of the records 'f', 'p' and 'r', and of the
 * segments' row numbers.  What is in segments has checksums of its own. */
struct commit_sum {
    uint64_t records, segments;
};

struct commit_sum_record {
    struct commit_sum seal;
    uint64_t sum;
};

/* Rows of one table on their way from rings to a segment. */
struct builder {
    const struct table *table;
    uint32_t n_rows, n_columns; /* n_columns: without the tail */
    uint32_t idle;              /* drains without a row */
    uint8_t types[TABLE_COLUMNS_MAX];
    uint32_t n_times; /* columns of type TIME beside ts: theirs becomes UTC too */
    uint8_t times[TABLE_COLUMNS_MAX];
    uint32_t n_names; /* columns of ids of texts */
    uint8_t names[TABLE_COLUMNS_MAX];
    uint64_t n_bad_ids; /* of this drain */
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
/* As many of the reader's next rows as are plainly this table's and have room.  Gives how many. */
uint32_t builder_take(struct builder *b, struct ring_reader *reader, int64_t utc_offset);
/* Make NULL of each cell of a text whose id is above `last`, and count it in n_bad_ids. */
void builder_drop_ids(struct builder *b, uint64_t last);
/* Put the rows of a segment before those that are there.  The sum must be at most SEGMENT_ROWS. */
int builder_prepend(struct builder *b, const struct segment *s);
/* The segment into `out` (emptied first), and no rows any more. */
int builder_flush(struct builder *b, uint64_t first_row, int64_t *scratch, struct buf *out);

struct table_state {
    uint64_t next_row, rows, bytes, segments, expired;
};

/* A segment of the dead: in their file, or made of rows that they left in their rings. */
struct memory_segment {
    struct memory_segment *next;
    uint32_t table_id, n_rows;
    uint64_t first_row;
    size_t size;
    const void *data;
    void *owned; /* NULL: it lies in the mapped file */
};

/* A table's retention as the user set it, of tables to come too. */
struct retention_rule {
    struct retention_rule *next;
    char *name;
    uint64_t ns, bytes;
};

struct store {
    char *directory;
    bool live;
    int held;              /* descriptor of the file `held`; -1: none */
    _Atomic bool disabled; /* in a forked child: nothing works any more */
    struct tables *tables;
    struct rings *rings;     /* NULL: dead without */
    struct interns *interns; /* NULL: dead without */
    int64_t utc_offset;

    pthread_rwlock_t map_lock; /* write: the map's size changes, no transaction may be open */
    MDB_env *env;              /* NULL: dead, or it could not be opened again */
    MDB_dbi meta, segments;
    uint64_t opens;             /* of data.mdb anew.  lock: map_lock */
    size_t map_bytes;           /* lock: map_lock */
    const void *map, *lock_map; /* data.mdb and lock.mdb, watched; NULL: not.  lock: map_lock */
    dev_t data_dev;             /* what LMDB's descriptor must still be.  lock: map_lock */
    ino_t data_ino;
    _Atomic uint64_t txnid, file_at; /* of the last commit: its number, and how long the file was */
    _Atomic bool unsynced;           /* something was committed since mdb_env_sync() */

    struct commit_sum seal, sealed; /* of the transaction that is open; of the last one */
    bool has_commit_sum;

    pthread_mutex_t drain_lock;
    struct table_state state[TABLES_STORED_MAX + 1]; /* lock: drain_lock when live */
    struct table_state
        saved[TABLES_STORED_MAX + 1]; /* lock: drain_lock.  To go back to after a failure */
    struct builder *builders[TABLES_STORED_MAX + 1]; /* lock: drain_lock */
    uint64_t seen[TABLES_STORED_MAX + 1]; /* rows of each table in this drain.  lock: drain_lock */
    uint64_t heads[STORE_SLOTS_MAX];      /* where this drain has read to.  lock: drain_lock */
    uint32_t last_id;             /* largest id of a table in this drain.  lock: drain_lock */
    uint64_t drains;              /* that were committed, of this life.  lock: drain_lock */
    bool damage_counted;          /* of the rings in this drain.  lock: drain_lock */
    int64_t *scratch;             /* lock: drain_lock */
    struct buf out;               /* lock: drain_lock */
    uint64_t expired_at;          /* when age was last looked at.  lock: drain_lock */
    uint64_t room_made_at;        /* on a full device, 0: never.  lock: drain_lock */
    bool room_helped;             /* lock: drain_lock */
    uint64_t room_reader;         /* oldest_reader() then.  lock: drain_lock */
    uint64_t broken_at;           /* last failure that was no full device.  lock: drain_lock */
    _Atomic bool env_broken;      /* open data.mdb afresh before the next drain */
    _Atomic bool env_lost;        /* no: begin it anew */
    uint32_t mends;               /* drains in a row that ran into lost pages.  lock: drain_lock */
    bool names_lost;              /* and counted.  lock: drain_lock */
    struct retention_rule *keeps; /* lock: drain_lock */

    _Atomic uint64_t max_bytes, keep_ns;
    _Atomic bool limits_changed; /* look at age at the next drain, whenever that was done last */
    _Atomic bool stop;
    bool has_thread;
    pthread_t thread;

    /* Dead only. */
    struct memory_segment *memory, *memory_last;
    void *file; /* data.mdb, mapped; NULL: none */
    size_t file_bytes;
    struct format_record format;
    struct position_record *positions; /* STORE_SLOTS_MAX of them, of the rings' rows in the file */
    struct buf damage;
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
/* Checksum of a record's bytes under its key. */
uint64_t store_sum(struct meta_key key, const void *p, size_t n);
int store_put_record(struct store *s, MDB_txn *txn, char kind, uint32_t id, void *p, size_t n);
/* Is it whole?  Copies it when it is. */
bool store_read_record(const MDB_val *key, const MDB_val *value, void *ret, size_t n);

/* Writing to files under a limit on their size (RLIMIT_FSIZE): the kernel's SIGXFSZ, which would
 * end the host, is swallowed between the two; the error stays. */
struct quiet {
    sigset_t before;
    bool pending;
};
void quiet_begin(struct quiet *q);
void quiet_end(struct quiet *q);

/* An LMDB code as -errno, with the reason said. */
int lmdb_failed(int code, const char *what);

/* Read what an earlier life of a live store left in LMDB. */
int store_load(struct store *s);

/* lmdb_env.c.  Open data.mdb; go on with what is in it, where that can be; everything out of it;
 * have room for a larger budget. */
int env_open(struct store *s, uint64_t max_bytes);
int env_resume(struct store *s, const struct store_options *o);
int env_start_afresh(struct store *s);
void env_grow(struct store *s, uint64_t max_bytes);
void env_close(struct store *s);
uint64_t env_lost_pages(const struct store *s); /* since it was opened */
/* Is data.mdb what the last commit left there, and LMDB's descriptor still its own?  LMDB trusts
 * it: of a file that somebody else wrote to it must read nothing.  false: it is opened afresh, or
 * begun anew, before the next drain.  lock: map_lock */
bool env_is_ours(struct store *s);
/* Transactions.  All of them here, so that what was read of lost pages is never taken for data:
 * codes of LMDB, EIO where pages are lost.  lock: map_lock */
int env_begin(struct store *s, uint32_t flags, MDB_txn **ret);
int env_commit(struct store *s, MDB_txn *txn);
int env_end(struct store *s, MDB_txn *txn); /* of one that only reads */

/* commit_sum.c.  A segment came or went; at the end of a transaction; as data.mdb is opened (codes
 * of LMDB). */
void commit_sum_rows_added(struct commit_sum *seal, uint32_t table_id, uint64_t first_row,
                           uint32_t n_rows);
void commit_sum_rows_removed(struct commit_sum *seal, uint32_t table_id, uint64_t first_row,
                             uint32_t n_rows);
int commit_sum_write(struct store *s, MDB_txn *txn);
int commit_sum_load(struct store *s, MDB_txn *txn);

/* offline_lmdb.c.  What data.mdb has.  0; 1: it is damaged and gave what it could; 2: and which
 * rows of the rings it has cannot be told; a negative error: it gave nothing. */
struct datadir;
int dead_read_data(struct store *s, const struct datadir *d);
/* One segment more for the scans, of memory that is freed with the store or (NULL) of the file;
 * a builder's rows as one, from that row number on.  -ENOMEM. */
int dead_add(struct store *s, const struct segment *seg, void *owned);
int dead_add_rows(struct store *s, struct builder *b, uint64_t first_row);

/* files.c.  -EBUSY when another process has the directory; LMDB's lock file; rings and strings. */
int own_dir_hold(struct store *s);
int own_dir_lock(const struct store_options *o);
int own_dir_files(struct store *s, const struct store_options *o);

/* Apply the retention that was asked for before the table came.  lock: drain_lock */
void retention_wanted(struct store *s, struct table *t);

/* Every table into an empty data.mdb again; what was in it before is counted as lost. */
int store_begin_anew(struct store *s);
int store_new(const char *directory, struct tables *tables, bool live, struct store **ret);
void store_drop(struct store *s); /* whatever is there of it */
/* After a failed write LMDB refuses everything: open data.mdb again.  Without a lock held; no
 * transaction outlives map_lock. */
void store_reopen(struct store *s, uint64_t seen); /* seen: `opens` when it failed */

/* A value of LMDB's file; key: NULL where only the value could be found, whose size then is how far
 * it may go.  in_tree: found by LMDB's own trees, so it is no leftover of the past. */
typedef void page_value_fn(void *arg, const MDB_val *key, const MDB_val *value, bool in_tree);
/* Read the file without trusting it.  0; 1: its trees are broken, so everything that looks like a
 * value was given too, what the trees had twice; -ENOMEM. */
int pages_read(const void *file, size_t size, page_value_fn *fn, void *arg, struct buf *damage);

/* Everything in the rings into segments.  lock: drain_lock */
int drain_now(struct store *s);
void *drain_thread(void *arg);

/* Remove what is too old or too much, in the transaction; and, where `share` is not 0, 1/`share` of
 * all that is there, the oldest first. */
int retention_apply(struct store *s, MDB_txn *txn, unsigned share);
/* How old rows of a table may become, 0: as old as they like. */
uint64_t retention_global_ns(struct store *s, const struct table *t);

/* A description from its JSON. */
int schema_write(const struct table *t, struct buf *out);
int schema_read(const char *text, size_t size, struct tables *tables, struct table **ret);

#endif
