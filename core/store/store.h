/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/store.h - every row kept: rings drained into columnar segments in LMDB, and read back.
 *
 * A store is one directory: `data.mdb` (LMDB), `lock.mdb`, `rings`, `strings` (may be symbolic
 * links to a memory file system), `tables` (descriptions as JSON lines, for when LMDB is gone), and
 * `held`, which is locked (fcntl) as long as a process has the store.
 * Who the process was stands in a file `info` that the core writes beside these.  Live: made and
 * written by the process itself; dead: opened read-only by anybody who may read it, whatever became
 * of the process.  The segment format is drawn in core/store/segment.h, the keys in internal.h.
 */
#ifndef CORE_STORE_STORE_H
#define CORE_STORE_STORE_H

#include "core/catalog/catalog.h"
#include "core/catalog/dictionary.h"
#include "core/ring/ring.h"

struct store;

struct store_options {
    const char *directory; /* exists, 0700 */
    /* For what is written through a mapping (rings, strings, lock.mdb): on tmpfs; NULL: in
     * `directory`, which must not be on a file system that moves what is written then. */
    const char *fast_directory;
    uint64_t max_bytes; /* LMDB's map and the total budget for data */
    uint64_t keep_ns;   /* default retention by age, 0: none */
    bool resume;        /* what is there must be gone on with: else -errno, untouched */
};

/* Make a live store (writes, drains), starting the drain thread "probing/drain". */
int store_create(const struct store_options *o, struct tables *tables, struct store **ret);
/* The program may have closed the descriptor by which the directory is locked: lock it again.  By
 * one thread. */
bool store_is_held(const struct store *s);
void store_hold_again(struct store *s);
/* Stop the drain thread after a last drain, close everything.  Files stay.  NULL is fine. */
void store_free(struct store *s);
/* Open a directory read-only (dead, stopped or copied).  Fills `tables` from it.  What is damaged
 * is left out and told in store_damage(). */
int store_open(const char *directory, struct tables *tables, struct store **ret);
const char *store_damage(struct store *s); /* "" when whole; one line a finding */

/* tables_add() for a stored table: kept in LMDB before it returns, so that the dead know it.  With
 * other columns than before: see tables_supersede(); the rows so far stay readable under the name
 * that the old table has got.                                                            [any] */
int store_table_add(struct store *s, const char *schema, const struct probing_table_desc *d,
                    void *self, struct table **ret);

struct interns *store_interns(struct store *s);
int64_t store_utc_offset(struct store *s);

/* Move everything appended before the call into segments now.  0 or -errno.              [any] */
int store_drain(struct store *s);

/* Live settings: total budget and age. */
void store_set_limits(struct store *s, uint64_t max_bytes, uint64_t keep_ns); /* [any] */

/* How much to keep of a table ("python.torch_trace", "python_torch_trace", or its name alone), also
 * of one that is still to come: "2h", "100MB", "2h|100MB" (whichever is reached first), "0" or "":
 * as all tables.  Applied at the next drain.  1: there is no such table yet.  -EINVAL names what
 * can be written, or says that the table is computed.                                     [any] */
int store_retention_set(struct store *s, const char *name, const char *text);
int store_retention_parse(const char *text, uint64_t *ret_ns, uint64_t *ret_bytes);

struct store_table_stats {
    uint64_t rows, bytes, segments; /* in the store */
    uint64_t waiting;               /* appended, still in rings */
    uint64_t first_ts, last_ts;     /* UTC ns, 0: no row */
    uint64_t expired;               /* rows removed by retention */
    uint64_t next_row;              /* number of the row behind the last one in the store */
};
int store_stats(struct store *s, const struct table *t, struct store_table_stats *ret);

/* Add the computed tables probing.tables and probing.lost to the store's tables; store_open() does
 * it by itself. */
int store_about_add(struct store *s);

/* In a forked child: forget without closing what the parent shares.                    [child] */
void store_disable_in_child(struct store *s);

/* ---- reading ---- */

/* Rows with lo <= column <= hi are wanted: whole segments without any are skipped.  For TIME in
 * UTC ns; for STR use lo.u == hi.u == id.  A hint: rows outside may still come. */
struct store_bound {
    uint32_t column;
    union probing_cell lo, hi; /* inclusive; PROBING_NULL_*: open on that side */
};

struct store_batch {
    uint32_t n_rows;    /* 1 to STORE_BATCH_ROWS */
    uint64_t first_row; /* number of the first row in its table, from 0, never reused */
    /* One array a wanted column, cells as the table's type: TIME is UTC ns, STR and BLOB are ids
     * (0: NULL); not wanted: NULL.  The tail column: see tails.  Borrowed until the next call. */
    const union probing_cell *cells[TABLE_COLUMNS_MAX];
    const uint8_t *tails; /* all tails, one after another, each with a NUL behind it */
    const uint32_t
        *tail_offsets; /* n_rows + 1 of them; a tail of 0 bytes, no NUL either, is NULL */
    uint32_t has_null[TABLE_COLUMNS_MAX]; /* 0: no NULL in this column of this batch */
    uint64_t inside[2]; /* bit set: columns whose rows all lie in the bounds given, none NULL */
    /* Zone map of the segment, for engines that use it: min and max per column, if known. */
    union probing_cell min[TABLE_COLUMNS_MAX], max[TABLE_COLUMNS_MAX];
};
#define STORE_BATCH_ROWS 2048 /* rows: the vector size of core/sql */

struct store_scan;

struct store_scan_options {
    uint64_t columns[2]; /* bit set of wanted columns */
    uint64_t from_row;   /* only rows numbered >= this: for continuous queries; 0: all */
    uint64_t to_row;     /* only rows numbered < this; 0: all */
    const struct store_bound *bounds;
    uint32_t n_bounds;
    uint64_t for_bounds[2]; /* bit set: wanted only to look at the bounds, so not unpacked (cells:
                               NULL) where the batch says `inside` */
};

/* A scan sees, once each and in order of row number, all rows appended before the call (live: it
 * drains first) and not expired meanwhile.  Its LMDB read transaction lasts only while it copies
 * the wanted columns of one segment, so a slow reader pins no pages.                    [any] */
int store_scan_new(struct store *s, const struct table *t, const struct store_scan_options *o,
                   struct store_scan **ret);
/* A second scan of the same rows, for another thread: each segment that `scan` has not begun yet
 * is given to one of the two.  Of a live store only.  By the thread that reads `scan`. */
int store_scan_beside(struct store_scan *scan, struct store_scan **ret);
/* Begin no further segment: the scan ends with the one it reads, the others have the rest. */
void store_scan_leave(struct store_scan *scan);
/* 1: a batch, 0: end, -errno. */
int store_scan_next(struct store_scan *scan, struct store_batch *ret);
/* How many segments were skipped, of how many. */
uint64_t store_scan_pruned(const struct store_scan *scan, uint64_t *ret_segments);
/* Rows that it will give at most, when it begins. */
uint64_t store_scan_rows(const struct store_scan *scan);
/* Number of the row after the last that this scan sees: from there a continuous query goes on. */
uint64_t store_scan_end(const struct store_scan *scan);
void store_scan_free(struct store_scan *scan);

/* Row number that the next row of the table will get: the cursor of a continuous query. */
uint64_t store_next_row(struct store *s, const struct table *t);

#endif
