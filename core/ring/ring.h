/* SPDX-License-Identifier: Apache-2.0
 *
 * core/ring/ring.h - where rows begin: one ring a thread, in a file mapped shared, wait-free to write.
 *
 * (Implementer: describe the file with a drawing here: header page with magic, version, pid, clock
 * anchor and per-table counters; then slots of a header and data each; the record layout.)
 *
 * Writers: any thread, signal handlers too.  One reader: whoever holds the store's drain lock, or
 * whoever opened the file of a dead process.
 */
#ifndef CORE_RING_RING_H
#define CORE_RING_RING_H

#include "core/ring/table.h"

struct rings;

/* Make (create) or open read-only the rings file `path`.  Live: only one per process. */
int rings_create(const char *path, struct rings **ret);
int rings_open(const char *path, struct rings **ret);
/* Live: unhooks from ring_append() first; later appends count as lost.  The mapping stays until
 * no thread can be inside (the implementer says how). */
void rings_free(struct rings *r);

/* Bind a stored table's counters to the file; called by the store when it adds the table. */
int rings_bind_table(struct rings *r, struct table *t);

/* Add one row: n <= t->n_cells cells (the rest NULL), then the tail.  ts as from clock_now().
 * 0, or -ENOSPC (counted), or -ESHUTDOWN when nothing collects.                     [signal] */
int ring_append(struct table *t, uint64_t ts, const union probing_cell *cells, uint32_t n,
                const void *tail, uint32_t tail_n);

/* Keep spare rings ready, give back those of dead threads (when drained).  Drain thread only. */
void rings_tend(struct rings *r);
/* Largest share of any ring in use, 0 to 1: the drain thread wakes more often as it grows. */
double rings_fill(struct rings *r);

/* ---- the reader's side (used by core/store) ---- */

struct ring_row {
    uint32_t table_id;
    int32_t tid;
    uint64_t ts; /* CLOCK_MONOTONIC ns */
    uint32_t n_cells;
    const union probing_cell *cells;
    const void *tail;
    uint32_t tail_n;
};

uint32_t rings_count(struct rings *r); /* slots; many never used */
/* Identity of what is in a slot now (changes when another thread takes it); 0: never used. */
uint64_t ring_generation(struct rings *r, uint32_t slot);
/* Positions are bytes since the slot's generation began; rows lie in [tail, head). */
uint64_t ring_tail(struct rings *r, uint32_t slot);
uint64_t ring_head(struct rings *r, uint32_t slot);
/* Row at `position`; gives the next position, or 0 when the bytes there are no whole row. */
uint64_t ring_row(struct rings *r, uint32_t slot, uint64_t position, struct ring_row *ret);
/* Give room back to the writer. */
void ring_release(struct rings *r, uint32_t slot, uint64_t position);

/* UTC minus monotonic of the process that wrote the file. */
int64_t rings_utc_offset(struct rings *r);

/* After fork in the child: ring_append() does nothing any more.                       [child] */
void ring_disable_in_child(void);

#endif
