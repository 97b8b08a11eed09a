/* SPDX-License-Identifier: Apache-2.0
 *
 * core/ring/append.c - one row into the calling thread's ring, wait-free.
 *
 * Any thread, and signal handlers: it takes no lock, allocates nothing and makes system calls only
 * when a thread gets its ring or wakes the drain.  It does not know what the cells mean.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/ring/internal.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline)) /* so that the quick way needs few registers */
#define QUICK_CELLS 16u /* rows of fewer: 6 ns less for one of 12, none more for one of 7 */
#define AHEAD 1024 /* bytes: 256 to 4096 are as good, none is 1 ns slower; bench/append_bench.c */

struct gate *_Atomic ring_gate;

/* Each thread's own way to its rings.  initial-exec: reached without a call into the loader, which
 * would not be safe in a signal handler. */
static __thread struct {
    uint64_t epoch; /* the pointers below belong to it */
    struct writer *normal;
    struct writer *nested; /* for appends in a signal handler that interrupted an append */
    uint32_t depth;        /* of append_slowly() */
    uint32_t refused_at;   /* gate->tended when no ring was to be had; 0: never */
} mine __attribute__((tls_model("initial-exec")));

/* One append's arguments. */
struct row {
    struct table *table;
    uint64_t ts;
    const union probing_cell *cells;
    uint32_t n;
    const void *tail;
    uint32_t tail_n;
};

static void count_loss(struct table *t, enum table_loss why)
{
    _Atomic uint64_t *lost = __atomic_load_n(&t->lost, __ATOMIC_ACQUIRE);
    (void)atomic_fetch_add_explicit(&lost[why], 1, memory_order_relaxed);
}

/* ---- a thread gets a ring ---- */

/* Find a slot for the calling thread; -1: none. */
static int64_t take_slot(struct rings *r)
{
    for (uint32_t slot = 0; slot < r->slots; slot++) {
        uint32_t state = SLOT_SPARE;
        if (atomic_compare_exchange_strong_explicit(&slot_head(r, slot)->state, &state, SLOT_TAKEN,
                                                    memory_order_acq_rel, memory_order_relaxed))
            return slot;
    }
    for (uint32_t slot = 0; slot < r->slots; slot++) {
        if (atomic_load_explicit(&slot_head(r, slot)->state, memory_order_relaxed) != SLOT_HOLE)
            continue;
        if (ring_reserve_slot(r, slot, SLOT_TAKEN))
            return slot;
        /* Another thread was quicker, or the device is full: only the first is worth going on. */
        if (atomic_load_explicit(&slot_head(r, slot)->state, memory_order_relaxed) == SLOT_HOLE)
            return -1;
    }
    return -1;
}

static void put_owner(struct slot_owner *o, uint64_t generation, int32_t tid)
{
    atomic_store_explicit(&o->tid, tid, memory_order_relaxed);
    atomic_store_explicit(&o->check, owner_check(generation, tid), memory_order_relaxed);
    atomic_store_explicit(&o->generation, generation, memory_order_release);
}

/* A ring of its own for the calling thread, or NULL. */
static struct writer *claim_ring(struct rings *r)
{
    uint32_t tended = atomic_load_explicit(&r->gate->tended, memory_order_relaxed);
    if (mine.refused_at == tended)
        return NULL;
    int64_t slot = take_slot(r);
    if (slot < 0) {
        mine.refused_at = tended;
        return NULL;
    }
    uint32_t given = atomic_load_explicit(&r->gate->given, memory_order_relaxed);
    while (given <= slot &&
           !atomic_compare_exchange_weak_explicit(&r->gate->given, &given, (uint32_t)slot + 1,
                                                  memory_order_release, memory_order_relaxed))
        continue;
    struct slot_head *h = slot_head(r, (uint32_t)slot);
    struct writer *w = &r->gate->writers[r->epoch % EPOCHS][slot];
    int32_t tid = (int32_t)syscall(SYS_gettid);
    uint64_t generation =
        1 + atomic_fetch_add_explicit(&r->head->generations, 1, memory_order_relaxed);
    w->slot = (uint32_t)slot;
    w->limit = 0; /* the first append looks at the tail */
    w->woke_at = 0;
    w->head = h;
    w->data = slot_data(r, (uint32_t)slot);
    w->key = check_key(rings_identity(r), (uint32_t)slot, generation, tid);
    atomic_store_explicit(&w->inside, 0, memory_order_relaxed);
    atomic_store_explicit(&h->start_time, 0, memory_order_relaxed);
    /* Head and tail are 0: whoever freed the slot left them so. */
    put_owner(&h->owner_again, generation, tid);
    put_owner(&h->owner, generation, tid);
    return w;
}

/* ---- append ---- */

/* The limit was reached: look at the tail, wake the drain at half.  false: no room for `need`. */
static bool make_room(struct gate *g, struct writer *w, uint64_t head, uint64_t need)
{
    uint64_t tail = atomic_load_explicit(&w->head->tail, memory_order_acquire);
    uint64_t half = tail + RING_BYTES / 2, full = tail + RING_BYTES;
    if (head + need > half) {
        /* Once for each quarter that comes in, and only if somebody sleeps: a system call. */
        if (head - w->woke_at >= RING_BYTES / 4 || head + need > full) {
            w->woke_at = head;
            ring_wake_drain(g);
        }
        w->limit = head + RING_BYTES / 8 < full ? head + RING_BYTES / 8 : full;
    } else {
        w->limit = half;
    }
    if (w->limit < head + need && head + need <= full)
        w->limit = head + need;
    return head + need <= full;
}

/* Fill what is left at the ring's end: a row is never split. */
static void fill_end(struct writer *w, uint64_t head, uint32_t left)
{
    uint64_t word = record_word(left, /* table_id= */ 0, 0, 0);
    word = word_with_check(word, check_begin(w->key, head, word, /* ts= */ 0));
    memcpy(w->data + ((uint32_t)head & (RING_BYTES - 1)), &word, 8);
}

/* It is no row of the table.  It is not cut to fit: who is wrong about the number of its cells is
 * wrong about what they mean, too. */
static NOINLINE int refuse_row(const struct row *row)
{
    bool more = row->n > row->table->n_cells;
    table_misused(row->table, more ? TABLE_MORE_CELLS : TABLE_NO_TAIL, row->n);
    count_loss(row->table, TABLE_LOST_BAD_ROW);
    return -EINVAL;
}

/* Any row: with a tail, at the ring's end, or where the tail has to be looked at. */
static NOINLINE int append_any(struct gate *g, struct writer *w, const struct row *row)
{
    const struct table *t = row->table;
    uint32_t n = row->n, has_tail = row->tail ? 1 : 0, tail_n = has_tail ? row->tail_n : 0;
    if (n > t->n_cells || (has_tail && !t->has_tail))
        return refuse_row(row);
    uint64_t whole = RECORD_HEAD + (uint64_t)n * 8 + tail_n;
    if (whole + has_tail > LONGEST_ROW - 8) {
        count_loss(row->table, TABLE_LOST_TOO_LONG);
        return -ENOSPC;
    }
    uint32_t size = (uint32_t)(whole + has_tail + 7) & ~UINT32_C(7);
    uint64_t head = atomic_load_explicit(&w->head->head, memory_order_relaxed);
    uint32_t left = RING_BYTES - ((uint32_t)head & (RING_BYTES - 1));
    uint32_t skip = size > left ? left : 0;
    if (head + skip + size > w->limit && !make_room(g, w, head, skip + size)) {
        count_loss(row->table, TABLE_LOST_RING_FULL);
        return -ENOSPC;
    }
    if (skip) {
        fill_end(w, head, skip);
        head += skip;
    }
    uint64_t end = (head | (RING_BYTES - 1)) + 1; /* of the ring: append_plain() asks once */
    w->limit = w->limit < end ? w->limit : end;
    uint64_t *out = (uint64_t *)(void *)(w->data + ((uint32_t)head & (RING_BYTES - 1)));
    uint64_t word = record_word(size, t->id, n, (uint32_t)(size - whole) & 7);
    for (uint32_t i = 0; i < n; i++)
        out[2 + i] = row->cells[i].u;
    if (has_tail)
        out[size / 8 - 1] = 0; /* the zero bytes; the tail comes over them */
    if (tail_n)
        memcpy(out + 2 + n, row->tail, tail_n);
    uint64_t h = check_begin(w->key, head, word, row->ts);
    out[1] = row->ts;
    out[0] = word_with_check(word, check_words(h, out + 2, size / 8 - 2));
    /* Release: whoever sees the new head, now or after we are dead, sees the row. */
    atomic_store_explicit(&w->head->head, head + size, memory_order_release);
    return 0;
}

/* Copy a cell and add it to the check.  Cell by cell: two in one register would have to wait until
 * the caller, who has just written them one by one, has them in the cache. */
static ALWAYS_INLINE uint64_t put_cell(uint64_t h, uint64_t *to, const union probing_cell *from,
                                       uint32_t i, const uint64_t *keys)
{
    uint64_t x = from[i].u;
    __asm__ __volatile__("" : "+r"(x) : : "memory");
    to[i] = x;
    return h + x * keys[i];
}

/* check_words() on the way, see there. */
static ALWAYS_INLINE uint64_t put_cells(uint64_t h, uint64_t *to, const union probing_cell *from,
                                        uint32_t n)
{
    const uint64_t *keys = check_keys;
    for (; n >= CHECK_WORDS; n -= CHECK_WORDS) {
#pragma GCC unroll 1
        for (uint32_t i = 0; i < CHECK_WORDS; i++)
            h = put_cell(h, to, from, i, keys);
        h *= CHECK_KEY_SUM;
        to += CHECK_WORDS;
        from += CHECK_WORDS;
    }
    if (n & 4) {
        h = put_cell(h, to, from, 0, keys);
        h = put_cell(h, to, from, 1, keys);
        h = put_cell(h, to, from, 2, keys);
        h = put_cell(h, to, from, 3, keys);
        to += 4, from += 4, keys += 4;
    }
    if (n & 2) {
        h = put_cell(h, to, from, 0, keys);
        h = put_cell(h, to, from, 1, keys);
        to += 2, from += 2, keys += 2;
    }
    return n & 1 ? put_cell(h, to, from, 0, keys) : h;
}

/* Around it the mark, by which a handler sees that it has interrupted an append. */
static int append_marked(struct gate *g, struct writer *w, const struct row *row)
{
    atomic_store_explicit(&w->inside, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    int rc = append_any(g, w, row);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&w->inside, 0, memory_order_release);
    return rc;
}

/* The next lines that this ring will fill lie in the drain's core: call them here in time. */
static ALWAYS_INLINE void call_ahead(const struct writer *w, uint64_t head)
{
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" : : "m"(w->data[(head + AHEAD) & (RING_BYTES - 1)]));
#else
    __builtin_prefetch(w->data + ((head + AHEAD) & (RING_BYTES - 1)), /* to write */ 1);
#endif
}

/* Most rows, without a tail and with room: false when it is not one. */
static ALWAYS_INLINE bool append_plain(struct writer *w, const struct table *t, uint64_t ts,
                                       const union probing_cell *cells, uint32_t n,
                                       const void *tail)
{
    uint64_t head = atomic_load_explicit(&w->head->head, memory_order_relaxed);
    uint32_t size = RECORD_HEAD + 8 * n;
    if (tail || n > t->n_cells || head + size > w->limit)
        return false;
    call_ahead(w, head);
    uint64_t *out = (uint64_t *)(void *)(w->data + (head & (RING_BYTES - 1)));
    uint64_t word = record_word(size, t->id, n, 0);
    out[1] = ts;
    uint64_t h = put_cells(check_begin(w->key, head, word, ts), out + 2, cells, n);
    out[0] = word_with_check(word, h);
    atomic_store_explicit(&w->head->head, head + size, memory_order_release);
    return true;
}

static bool is_inside(const struct writer *w)
{
    return w && atomic_load_explicit(&w->inside, memory_order_relaxed);
}

/* The ring for this append: the thread's own, or its second when it interrupted itself. */
static struct writer *find_writer(struct rings *r, struct table *t)
{
    struct writer **w = mine.depth > 1 || is_inside(mine.normal) ? &mine.nested : &mine.normal;
    if (mine.depth > 2 || is_inside(*w)) {
        count_loss(t, TABLE_LOST_NESTED);
        return NULL;
    }
    if (!*w)
        *w = claim_ring(r);
    if (!*w)
        count_loss(t, TABLE_LOST_NO_RING);
    return *w;
}

/* First append of a thread, of a new epoch, or nested: the slower way in. */
static NOINLINE int append_slowly(struct table *t, uint64_t ts, const union probing_cell *cells,
                                  uint32_t n, const void *tail, uint32_t tail_n)
{
    struct gate *g = atomic_load_explicit(&ring_gate, memory_order_acquire);
    struct row row = {t, ts, cells, n, tail, tail_n};
    int rc = -ESHUTDOWN;
    if (!atomic_load_explicit(&g->live, memory_order_relaxed))
        return rc;
    /* No mark of our own yet, so everybody shares this one.  Sequentially consistent: rings_free()
     * either sees it, or we see that there is nothing any more. */
    (void)atomic_fetch_add_explicit(&g->entering, 1, memory_order_seq_cst);
    struct rings *r = atomic_load_explicit(&g->live, memory_order_seq_cst);
    if (r) {
        if (mine.epoch != r->epoch) {
            mine.normal = mine.nested = NULL;
            mine.refused_at = 0;
            mine.depth = 0;
            mine.epoch = r->epoch;
        }
        mine.depth++;
        atomic_signal_fence(memory_order_seq_cst);
        struct writer *w = find_writer(r, t);
        rc = w ? append_marked(g, w, &row) : -ENOSPC;
        atomic_signal_fence(memory_order_seq_cst);
        mine.depth--;
    }
    (void)atomic_fetch_sub_explicit(&g->entering, 1, memory_order_seq_cst);
    return rc;
}

/* Append a row that ring_append() leaves, with its mark set. */
static NOINLINE int append_rest(struct table *t, uint64_t ts, const union probing_cell *cells,
                                uint32_t n, const void *tail, uint32_t tail_n)
{
    struct writer *w = mine.normal;
    struct row row = {t, ts, cells, n, tail, tail_n};
    if (!append_plain(w, t, ts, cells, n, tail))
        return append_marked(atomic_load_explicit(&ring_gate, memory_order_acquire), w, &row);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&w->inside, 0, memory_order_release);
    return 0;
}

/* The others take the same arguments, so that the quick way saves no register for them. */
int ring_append(struct table *t, uint64_t ts, const union probing_cell *cells, uint32_t n,
                const void *tail, uint32_t tail_n)
{
    struct gate *g = atomic_load_explicit(&ring_gate, memory_order_acquire);
    if (__builtin_expect(!g, 0))
        return -ESHUTDOWN;
    if (__builtin_expect(!atomic_load_explicit(&t->wanted, memory_order_relaxed), 0))
        return 0;
    struct writer *w = mine.normal;
    uint64_t epoch = mine.epoch;
    /* The mark last: where the epoch is another, it is another thread's. */
    if (__builtin_expect(!w || epoch != atomic_load_explicit(&g->epoch, memory_order_acquire) ||
                             atomic_load_explicit(&w->inside, memory_order_relaxed) != 0,
                         0))
        return append_slowly(t, ts, cells, n, tail, tail_n);

    /* First the mark, then the epoch again: see rings_free().  The compiler must not swap them; the
     * processor's own reordering is ruled out by membarrier on the other side. */
    atomic_store_explicit(&w->inside, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    bool live = epoch == atomic_load_explicit(&g->epoch, memory_order_acquire);
    if (__builtin_expect(live && (n >= QUICK_CELLS || !append_plain(w, t, ts, cells, n, tail)), 0))
        return append_rest(t, ts, cells, n, tail, tail_n);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&w->inside, 0, memory_order_release);
    return live ? 0 : -ESHUTDOWN;
}

void ring_disable_in_child(void)
{
    struct gate *g = atomic_load_explicit(&ring_gate, memory_order_acquire);
    if (g) {
        atomic_store_explicit(&g->epoch, 0, memory_order_release);
        atomic_store_explicit(&g->live, NULL, memory_order_release);
    }
}
