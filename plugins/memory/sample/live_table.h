/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/live_table.h - the samples that are alive, found by their address.
 *
 * Threads of the program put samples in and take them out, in signal handlers too, without a lock
 * or a call of the kernel; one reader, the sampler's thread, gets those that have ended and gives
 * their entries back.  An address is its allocator's or its owner's at any moment, so no two
 * threads work on the same one (a program that frees twice does: then one of them wins).
 *
 * Entries lie in one array and do not move.  The index to it is buckets of 15 words in four levels,
 * each eight or four times as large as the one before: what finds its bucket full goes to the next
 * level and is counted in the full one, so that a search knows where to end and nothing that is
 * taken out leaves a mark behind.  Only what is used is ever touched.
 *
 * Sampling ends and begins again while threads stand in here.  So nothing is wiped under their
 * feet: what is alive is taken out as any thread would, an entry that a thread has taken out comes
 * back through the list of those that have ended, however late, and each knows its round, so that
 * the reader tells those of before.  Memory is given back when nobody holds an entry any more.
 */
#ifndef MEMORY_SAMPLE_LIVE_TABLE_H
#define MEMORY_SAMPLE_LIVE_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LIVE_MAX ((1u << 20) - 1) /* entries: 80 MiB of address space */

enum live_state {
    LIVE_NONE,  /* nobody's, or being filled in */
    LIVE_ALIVE, /* allocated and not freed; taken out and not yet ended */
    LIVE_ENDED  /* freed, and not yet seen by the reader */
};

/* Written by the thread that has it, then read by any: relaxed, but for `state`. */
struct live_entry {
    _Atomic uint64_t id; /* of the sample: never the same twice */
    _Atomic uint64_t address, size, mean;
    _Atomic uint64_t ts, ended; /* CLOCK_MONOTONIC ns; ended: where state says so */
    _Atomic int64_t step;
    _Atomic int32_t tid, ended_by;
    _Atomic uint32_t domain, state; /* release, acquire */
    _Atomic uint32_t origin;        /* the sampler's number for its stack; 0: not named yet */
    _Atomic uint32_t next;          /* in a list */
    _Atomic uint32_t next_bare;     /* in the list of live_tell() */
    _Atomic uint32_t round;         /* of the table, when it was handed out */
};

/* A reader's copy of an entry, all of one sample. */
struct live_seen {
    uint64_t id, size, mean, ts, ended;
    int64_t step;
    int32_t tid, ended_by;
    uint32_t domain, origin, state;
};

struct live_table;

/* Make a table of `max` entries, LIVE_MAX at most.   [control] */
int live_table_new(uint32_t max, struct live_table **ret);
uint64_t live_table_bytes(uint32_t max); /* address space that it takes */
/* Declare all entries past: live_read() knows nothing of them from now on.  Nobody may be inside
 * live_new() or live_insert(), and the reader has ended.   [control] */
void live_next_round(struct live_table *t);
/* Take out what is alive in this entry: true, and where it was.                   [control] */
bool live_drop(struct live_table *t, uint32_t entry, uint64_t *ret_address);
/* After a new round, and all were dropped: true, and its memory is given back; false where threads
 * are in the middle of ending something still, and it stays.  The table can be used at once. */
bool live_give_back(struct live_table *t);
void live_table_free(struct live_table *t); /* nobody uses it any more */

/* A free entry, to be filled in but for `address` and `state`; 0: there is none.   [signal] */
uint32_t live_new(struct live_table *t);
struct live_entry *live_at(struct live_table *t, uint32_t entry);
/* It is alive at this address, where nothing else is, from now on.  false: no room in the index;
 * the entry is free again.                                                        [signal] */
bool live_insert(struct live_table *t, uint32_t entry, uint64_t address);
/* Take out what is alive at the address: the caller has it then, and gives it to one of the next
 * two.  0: nothing.                                                               [signal] */
uint32_t live_take(struct live_table *t, uint64_t address);
/* The sample of this entry, which is the caller's still, has no stack on its way to the reader. */
void live_tell(struct live_table *t, uint32_t entry);
/* It goes on there; false: it is of the past, and is given to live_end(). */
bool live_put_back(struct live_table *t, uint32_t entry, uint64_t address, uint64_t now);
/* It has ended: to the reader with it. */
void live_end(struct live_table *t, uint32_t entry, uint64_t now, int32_t tid);

/* ---- the reader ---- */

/* The entries that have ended since the last call, by `next`; 0: none. */
uint32_t live_ended(struct live_table *t);
/* The entries of live_tell(), by `next_bare`. */
uint32_t live_told(struct live_table *t);
void live_release(struct live_table *t, uint32_t entry);
/* How many entries there are to look at: 1 to this number - 1.                       [any] */
uint32_t live_room(const struct live_table *t);
/* Copy an entry; false: it is neither alive nor ended, of a round before, or changed meanwhile.
 * [any] */
bool live_read(struct live_table *t, uint32_t entry, struct live_seen *ret);
uint64_t live_count(const struct live_table *t); /* alive or not released              [any] */

#endif
