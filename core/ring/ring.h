/* SPDX-License-Identifier: Apache-2.0
 *
 * core/ring/ring.h - where rows begin: one ring a thread, in a file mapped shared, wait-free to
 * write.
 *
 * The file `rings`, little-endian, made for one machine's memory and not moved between kinds:
 *
 *     0          header: magic "prbring1", version 5, pid, start time, UTC offset, slots, a check;
 *                then what changes: next generation, number of the last drain
 *     512        the header's fixed part again
 *     4 KiB      counters: TABLES_STORED_MAX + 1 times (appended, one per loss reason), 8 bytes
 *                each; those of id 0 are of tables_refused()
 *     128 KiB    slot headers, 256 bytes each:
 *                +0   generation, check of it and the tid, tid; state; thread's start time
 *                +64  head                                                  its thread writes
 *                +128 tail                                                  the drain writes
 *                +192 generation, check and tid again
 *     256 KiB    slots of RING_BYTES (1 MiB) each
 *
 * All before the slots is reserved when the file is made; a slot's pages are reserved before a
 * thread gets it, so that a full device is a counted loss and never a SIGBUS.  The rest is a hole.
 *
 * Positions count bytes since the generation began; a byte's place is position % RING_BYTES.  A row
 * is never split: what is left at a slot's end is filled by a record of table 0, its word alone.
 *
 *     +0  u64 word, from the low bits on: 15 size of the whole record in units of 8 bytes,
 *             11 table id, 7 number of cells, 3 zero bytes after the tail (0: 8), 28 check
 *     +8  i64 ts, CLOCK_MONOTONIC ns
 *     +16 cells of 8 bytes; then nothing, or the tail and 1 to 8 zero bytes (empty is not none)
 *
 * `head` moves, with release order, when a row is whole.  So at whatever instruction a process is
 * killed, [tail, head) holds whole rows, and one that was begun is not there at all.
 *
 * The check is of all words of the record, of its position, and of whose ring it is (identity of
 * the file, slot, generation, tid): the upper bits of a sum of products (internal.h).  So what a
 * stray pointer of the host, a bad disk or a copy made while the process ran has changed is no row,
 * and neither is a row of an earlier round; one change in 2^28 stays unseen.  The counters have no
 * check.
 *
 * Writers: any thread, signal handlers too.  One reader: whoever holds the store's drain lock, or
 * whoever opened the file of a dead process.
 *
 * How append() and rings_free() meet: the number of the live rings and one mark a writer lie in
 * private pages that the kernel empties in a forked child (MADV_WIPEONFORK), so that no child ever
 * writes to its parent's rings, however it was forked.  A writer sets its mark, then reads the
 * number; rings_free() clears the number, makes every core see that by membarrier(2), and waits
 * up to a second for the marks.  Then it unmaps.  If a writer stays inside (stopped by a debugger),
 * or the kernel has no membarrier, the mapping of the file stays until the process ends.  The
 * private pages, 132 KiB of which few are ever touched, always stay.
 */
#ifndef CORE_RING_RING_H
#define CORE_RING_RING_H

#include "core/catalog/catalog.h"

struct rings;

/* Make (create) the rings file `path`, or open one read-only.  Live: only one per process.
 * Opening: -EPROTO when another version of probing wrote it.  fd: taken over; below 0: why there is
 * none, which is given back; path: for words. */
int rings_create(const char *path, struct rings **ret);
int rings_open(int fd, const char *path, struct rings **ret);
/* Live: unhooks from ring_append() first; later appends do nothing and say -ESHUTDOWN.  The tables'
 * counters are taken into the tables' own memory. */
void rings_free(struct rings *r);

/* Was the file cut short, or written over, or can its pages not be read?  Then the rows in it are
 * lost, and it can be begun anew.  Drain thread only, and nobody else may have the rings. */
bool rings_lost(struct rings *r);
void rings_renew(struct rings *r);

/* Bind a stored table's counters to the file; called by the store when it adds the table. */
int rings_bind_table(struct rings *r, struct table *t);

/* Add one row: n <= t->n_cells cells (the rest NULL), then the tail (NULL: the column is; of 0
 * bytes: it is empty).  ts as from clock_now().
 * 0, or -ENOSPC (counted), -EINVAL (counted): more cells, or a tail, than the table has;
 * -ESHUTDOWN when nothing collects.                                                 [signal] */
int ring_append(struct table *t, uint64_t ts, const union probing_cell *cells, uint32_t n,
                const void *tail, uint32_t tail_n);

/* Wait until a ring is half full, rings_wake() was called, or the time is up. */
void rings_wait(struct rings *r, uint64_t timeout_ns);
void rings_wake(struct rings *r); /* [signal] */

/* Keep spare rings ready, give back those of dead threads (when drained).  Drain thread only. */
void rings_maintain(struct rings *r);
/* Largest share of any ring in use, 0 to 1: the drain thread wakes more often as it grows. */
double rings_fill(struct rings *r);

/* ---- the reader's side (used by core/store) ---- */

struct ring_row {
    uint32_t table_id;
    int32_t tid;
    uint64_t ts; /* CLOCK_MONOTONIC ns */
    uint32_t n_cells;
    const union probing_cell *cells;
    const void *tail; /* NULL: none */
    uint32_t tail_n;
};

uint32_t rings_count(struct rings *r); /* slots that may have rows; many need not */
#define RING_BYTES (UINT32_C(1) << 20) /* of each slot */

/* Identity of what is in a slot now (changes when another thread takes it); 0: nobody's. */
uint64_t ring_generation(struct rings *r, uint32_t slot);
/* Positions are bytes since the slot's generation began; rows lie in [tail, head). */
uint64_t ring_tail(struct rings *r, uint32_t slot);
uint64_t ring_head(struct rings *r, uint32_t slot);
/* Row at `position`; gives the next position, or 0 when no row is there. */
uint64_t ring_row(struct rings *r, uint32_t slot, uint64_t position, struct ring_row *ret);
/* The same, for many rows: up to where the head was at ring_read(). */
struct ring_reader {
    const uint8_t *data;
    const _Atomic uint64_t *head_now;
    uint64_t position; /* of the next record */
    uint64_t head;
    uint64_t key;
    uint64_t damaged; /* bytes so far that were no whole records, */
    uint32_t gaps;    /* in so many places */
    uint32_t there;   /* bytes of the slot that the file has */
    uint32_t budget;
    int32_t tid;
    bool dead;
    bool midway;  /* set by the caller: position may lie within a record, that is no damage */
    bool no_head; /* the head was damaged: rows were followed as far as they go */
};
/* -EBADMSG: the slot's header is damaged, nothing of it can be read. */
int ring_read(struct rings *r, uint32_t slot, uint64_t position, struct ring_reader *ret);
/* 1: a row; 0: no more.  What is damaged is left out and counted in the reader. */
int ring_next(struct ring_reader *reader, struct ring_row *ret);
/* The next rows as long as they are of this table, with so many cells and no tail, at most `max`:
 * ts into columns[0], the cells into columns[2 ...], from row `at` on.  Gives how many. */
uint32_t ring_take(struct ring_reader *reader, uint32_t table_id, uint32_t n_cells,
                   union probing_cell *const *columns, uint32_t at, uint32_t max);

/* Give room back to the writer. */
void ring_release(struct rings *r, uint32_t slot, uint64_t position);

/* The counters of a table in the file: [0] appended, [1 ...] by enum table_loss. */
_Atomic uint64_t *rings_counters(struct rings *r, uint32_t table_id);

/* UTC minus monotonic of the process that wrote the file. */
int64_t rings_utc_offset(struct rings *r);
/* Which file this is: a number that no other rings file of this process or machine has.
 *                                                                             [signal] */
uint64_t rings_identity(struct rings *r);
/* Number of the last drain whose rows have left the rings: the store keeps the same in LMDB, so
 * that copies of the two made at different times are told apart. */
void rings_note_drain(struct rings *r, uint64_t drains);
uint64_t rings_drains(struct rings *r);
/* The head of a dead process's file was damaged and was read from the copy. */
bool rings_head_damaged(struct rings *r);

/* After fork in the child: ring_append() does nothing any more.                       [child] */
void ring_disable_in_child(void);

#endif
