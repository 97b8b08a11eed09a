/* SPDX-License-Identifier: Apache-2.0
 *
 * core/ring/internal.h - the rings file as structs, for the files of core/ring that write and read
 * it.  What it all means is drawn in ring.h.
 */
#ifndef CORE_RING_INTERNAL_H
#define CORE_RING_INTERNAL_H

#include <string.h>
#include <sys/types.h>

#include "core/ring/ring.h"
#include "sdk/lib/hash.h"

#define RINGS_MAGIC UINT64_C(0x31676e6972627270) /* "prbring1" */
#define RINGS_VERSION 5
#define SLOTS 512 /* threads that may have a ring at once, nested ones included */
#define EPOCHS 4  /* times that the process may be left and entered while a thread has no core */
#define HEAD_COPY_AT 512
#define COUNTERS_AT 4096
#define SLOT_HEADS_AT 131072
#define DATA_AT 262144
#define LONGEST_ROW (RING_BYTES / 4)
#define RECORD_HEAD 16 /* bytes before the cells */
#define COUNTERS_PER_TABLE (1 + TABLE_LOSS_REASONS)

_Static_assert(COUNTERS_AT + (TABLES_STORED_MAX + 1) * COUNTERS_PER_TABLE * 8 <= SLOT_HEADS_AT,
               "the counters fit before the slot headers");
_Static_assert(SLOT_HEADS_AT + SLOTS * 256 <= DATA_AT, "the slot headers fit before the data");

enum slot_state { SLOT_HOLE, SLOT_SPARE, SLOT_TAKEN, SLOT_RESERVING };

struct file_head {
    uint64_t magic;
    uint32_t version, header_bytes;
    int32_t pid;
    uint32_t slots;
    uint64_t start_time; /* of the process, clock ticks */
    int64_t utc_offset;
    uint64_t anchor_ns; /* CLOCK_MONOTONIC when the file was made */
    uint64_t check;     /* of all before but the magic */
    /* The rest changes, and is not in the copy. */
    _Atomic uint64_t generations; /* given so far */
    _Atomic uint64_t drains;      /* rings_note_drain() */
};

/* The owner of a slot; it is there twice. */
struct slot_owner {
    _Atomic uint64_t generation; /* 0: nobody's */
    _Atomic uint64_t check;      /* of the generation and the tid */
    _Atomic int32_t tid;
};

struct slot_head {
    struct slot_owner owner;
    _Atomic uint32_t state;
    _Atomic uint64_t start_time; /* of the thread, filled in by rings_maintain(); 0: not yet */
    uint8_t gap0[24];
    _Atomic uint64_t head; /* its thread writes */
    uint8_t gap1[56];
    _Atomic uint64_t tail; /* the drain writes */
    uint8_t gap2[56];
    struct slot_owner owner_again;
    uint8_t gap3[40];
};
_Static_assert(sizeof(struct slot_head) == 256, "as drawn in ring.h");
_Static_assert(offsetof(struct slot_head, head) == 64, "as drawn in ring.h");
_Static_assert(offsetof(struct slot_head, tail) == 128, "as drawn in ring.h");
_Static_assert(offsetof(struct slot_head, owner_again) == 192, "as drawn in ring.h");

/* A writer's state beside the file; belongs to the thread that took the slot. */
struct writer {
    _Atomic uint32_t inside; /* 1: an append is under way */
    uint32_t slot;
    uint64_t limit;   /* head may come up to here without a look at tail or at the ring's end */
    uint64_t woke_at; /* position at which the drain was last woken */
    struct slot_head *head;
    uint8_t *data;
    uint64_t key; /* of the checks */
    uint8_t gap[16];
};
_Static_assert(sizeof(struct writer) == 64, "one cache line a writer");

/* The private pages: emptied by the kernel in a forked child. */
struct gate {
    _Alignas(64) struct rings *_Atomic live; /* NULL: appends do nothing */
    _Atomic uint64_t epoch;    /* which rings are live, 0: none.  A thread's pointers of another
                                  epoch are stale */
    _Atomic uint32_t entering; /* threads that look for a ring */
    _Atomic uint32_t tended;   /* changes when it is worth looking for a ring again */
    _Atomic uint32_t given;    /* slots from here on were never given to a thread */
    _Alignas(64) _Atomic uint32_t asleep; /* futex: enum drain_state */
    /* By epoch: a thread that lost its core before it set its mark, and gets it back when other
     * rings are live, must not touch the mark of another thread. */
    _Alignas(64) struct writer writers[EPOCHS][SLOTS];
};

struct rings {
    uint8_t *map;
    size_t size;
    size_t there; /* bytes of it that the file has: less when a copy was cut short */
    uint32_t slots;
    int fd; /* for kernels before 5.14; -1 when opened read-only */
    dev_t dev;
    ino_t ino; /* what fd must still be */
    bool live;
    bool barrier;           /* membarrier works */
    struct file_head fixed; /* what never changes of the head: of a damaged file, the whole one */
    bool head_damaged;
    struct file_head *head;
    uint64_t epoch;
    struct gate *gate;
    uint64_t tends; /* calls of rings_maintain() */
    uint32_t n_bound;
    struct table *bound[TABLES_STORED_MAX + 1];
};

/* The one pointer that ring_append() starts from.  Written once, by the first rings_create() under
 * control; never unmapped. */
extern struct gate *_Atomic ring_gate;

/* [signal] */
static inline struct slot_head *slot_head(const struct rings *r, uint32_t slot)
{
    return (struct slot_head *)(void *)(r->map + SLOT_HEADS_AT) + slot;
}

/* [signal] */
static inline uint8_t *slot_data(const struct rings *r, uint32_t slot)
{
    return r->map + DATA_AT + (size_t)slot * RING_BYTES;
}

/* Reserve a slot's pages: afterwards a store to it cannot fail.  It must be a hole and ends as
 * `to`, or as a hole when the device is full.                                 [signal] */
bool ring_reserve_slot(struct rings *r, uint32_t slot, uint32_t to);

/* rings_wake().                                                               [signal] */
void ring_wake_drain(struct gate *g);

void rings_drop(struct rings *r);
uint64_t rings_head_check(const struct file_head *h);

/* ---- checks ---- */

/* A sum of all words, each times an odd number of its place; behind each eighth the sum so far is
 * multiplied, too.  Where one bit has changed the sum's upper bits have, for certain (ring_test.c);
 * where more have, but for one case in 2^28.  One multiplication a word, and none waits for
 * another: that is what an append can bear. */
#define CHECK_WORDS 8
static const uint64_t check_keys[CHECK_WORDS + 3] = {
    UINT64_C(0xa0761d6478bd642f),
    UINT64_C(0xe7037ed1a0b428db),
    UINT64_C(0x8ebc6af09c88c6e3),
    UINT64_C(0x589965cc75374cc3),
    UINT64_C(0x1d8e4e27c47d124f),
    UINT64_C(0xeb44accab455d165),
    UINT64_C(0x9c6e6877736c46e3),
    UINT64_C(0xc2b2ae3d27d4eb4f), /* of eight words, one each */
    HASH_GOLDEN,
    UINT64_C(0xd6e8feb86659fd93),
    UINT64_C(0xff51afd7ed558ccd)};
#define CHECK_KEY_SUM check_keys[CHECK_WORDS]      /* of the sum so far */
#define CHECK_KEY_WORD check_keys[CHECK_WORDS + 1] /* of a record's first word */
#define CHECK_KEY_TS check_keys[CHECK_WORDS + 2]

/* Add n words to a check.                                                     [signal] */
static inline uint64_t check_words(uint64_t h, const uint64_t *words, uint32_t n)
{
    for (; n >= CHECK_WORDS; n -= CHECK_WORDS, words += CHECK_WORDS) {
        for (uint32_t i = 0; i < CHECK_WORDS; i++)
            h += words[i] * check_keys[i];
        h *= CHECK_KEY_SUM;
    }
    for (uint32_t i = 0; i < n; i++)
        h += words[i] * check_keys[i];
    return h;
}

/* [signal] */
static inline uint64_t owner_check(uint64_t generation, int32_t tid)
{
    const uint64_t words[] = {generation, (uint64_t)(uint32_t)tid};
    return check_words(CHECK_KEY_SUM, words, 2);
}

/* The key that the checks of a slot's rows begin with: a row of another file, slot, owner or round
 * of the ring does not match it.                                              [signal] */
static inline uint64_t check_key(uint64_t identity, uint32_t slot, uint64_t generation, int32_t tid)
{
    const uint64_t words[] = {identity, slot, generation, (uint64_t)(uint32_t)tid};
    return check_words(CHECK_KEY_SUM, words, 4);
}

/* The first word of a record, see ring.h. */
#define WORD_BITS 36
#define WORD_MASK ((UINT64_C(1) << WORD_BITS) - 1)

/* [signal] */
static inline uint64_t record_word(uint32_t size, uint32_t table_id, uint32_t n_cells,
                                   uint32_t padding)
{
    return (uint64_t)(size >> 3) | (uint64_t)table_id << 15 | (uint64_t)n_cells << 26 |
           (uint64_t)padding << 33;
}

/* word: without a check.                                                      [signal] */
static inline uint64_t check_begin(uint64_t key, uint64_t position, uint64_t word, uint64_t ts)
{
    return ((key + position) ^ word) * CHECK_KEY_WORD + ts * CHECK_KEY_TS;
}

/* [signal] */
static inline uint64_t word_with_check(uint64_t word, uint64_t h)
{
    return word | (h & ~WORD_MASK);
}

#endif
