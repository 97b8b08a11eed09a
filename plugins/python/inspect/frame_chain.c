/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/frame_chain.c - the chain of a thread's frames, though it may run on
 * meanwhile.
 *
 * One thread at a time per struct walk.  A stack counts when the thread used no CPU time while it
 * was walked; for a thread that runs, when several whole re-reads of it (one system call each, or
 * one for all) agree with the walk.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/code_cache.h"
#include "inspect/interpreter.h"
#include "lib/hash.h"
#include "lib/proc/thread_clock.h"
#include "probing_sdk.h"

#define PASSES 150 /* tries for a stack that stands still: about 5 ms when 30 deep */
#define REREADS 4  /* a torn read would have to repeat itself as often; interpreter_test.c counts */
#define OUTER_REREADS 24
#define OUTER_REACHED 4   /* of these that must find the innermost frame among those of the walk */
#define LAST 256          /* threads whose last stack is kept; the hash's upper 8 bits */
#define LAST_FRAMES 128   /* and how deep it may be */
#define BLOCK_BYTES 4096u /* a page */
#define BLOCK_MORE 512    /* bytes beyond the innermost frame of last time */
#define ROUND_BYTES 8192u /* of innermost frames that lie side by side, read in one piece */
#define ROUNDS (REREADS + 1) /* readings of them with one system call */
#define TRIES_AT_ONCE 2
#define FAR 4              /* frames elsewhere: on the C stack, of generators */
#define PROOF_BYTES 65536u /* of code objects, read between the rounds */

/* A thread's stack of last time. */
struct walk_last {
    uint64_t state, cpu; /* CPU time of the thread then; 0: it ran, the frames may be others now */
    uint64_t seen;       /* CPU time when that look began */
    int32_t tid;
    int n;                      /* of `frames`; 0: there were more */
    uint64_t top_at, low, high; /* where it began, and the innermost frames that lie side by side */
    struct walk_frame frames[LAST_FRAMES];
};

struct walk_last *walk_last_new(void)
{
    return calloc(LAST, sizeof(struct walk_last));
}

/* Address of the innermost frame; *ret_at: where that pointer stands. */
static int innermost_frame(const struct walk *w, uint64_t state, uint64_t *ret_at, uint64_t *ret)
{
    uint64_t at = state + (uint64_t)w->o.ts_frame;
    if (w->o.ts_cframe >= 0) {
        uint64_t cframe;
        if (peek_u64(&w->peek, state + (uint64_t)w->o.ts_cframe, &cframe))
            return -EFAULT;
        at = cframe + (uint64_t)w->o.cf_frame;
    }
    *ret_at = at;
    return peek_u64(&w->peek, at, ret);
}

static struct walk_last *last_of(const struct walk *w, uint64_t state)
{
    return &w->last[hash_spread(state) >> 56];
}

/* cpu: 0, or as long as the thread has used no more the stack is still the same. */
static void remember_stack(struct walk *w, const struct walk_thread *t, uint64_t cpu,
                           uint64_t top_at, const struct walk_frame *frames, int n)
{
    struct walk_last *last = last_of(w, t->state);
    last->state = t->state;
    last->tid = t->tid;
    last->cpu = n <= LAST_FRAMES ? cpu : 0;
    last->n = n <= LAST_FRAMES ? n : 0;
    last->top_at = top_at;
    last->low = last->high = 0;
    if (w->o.minor >= 11 && n > 0) {
        uint64_t end = frames[0].address + (uint64_t)w->o.frame_size;
        uint64_t left = BLOCK_BYTES - end % BLOCK_BYTES; /* the next page may be none */
        last->low = frames[0].address;
        last->high = end + (left < BLOCK_MORE ? left : BLOCK_MORE);
        for (int i = 1; i < n; i++)
            if (frames[i].address < last->low && last->high - frames[i].address <= ROUND_BYTES)
                last->low = frames[i].address;
    }
    memcpy(last->frames, frames, (size_t)last->n * sizeof(*frames));
}

/* Frames that were read last: from 3.11 on they lie side by side.  Before them, the pointer to the
 * first frame, and the pointer to that pointer. */
struct block {
    uint64_t base;
    size_t size;
    uint64_t slot, top;
    uint8_t bytes[BLOCK_BYTES];
};

/* As innermost_frame(), and the frames where they were last time with the same system call. */
static int innermost_as_last(const struct walk *w, uint64_t state, struct block *b,
                             uint64_t *ret_at, uint64_t *ret)
{
    const struct walk_last *last = last_of(w, state);
    int slot = w->o.ts_cframe >= 0 ? w->o.ts_cframe : w->o.ts_frame;
    uint64_t low = last->high - last->low > BLOCK_BYTES ? last->high - BLOCK_BYTES : last->low;
    const struct iovec pieces[] = {peek_piece(state + (uint64_t)slot, 8),
                                   peek_piece(last->top_at, 8),
                                   peek_piece(low, (size_t)(last->high - low))};
    if (last->state != state || last->low == last->high)
        return innermost_frame(w, state, ret_at, ret);
    size_t got = peek_pieces(&w->peek, pieces, 3, (uint8_t *)b + offsetof(struct block, slot));
    if (got < 16 || (w->o.ts_cframe >= 0 && b->slot + (uint64_t)w->o.cf_frame != last->top_at))
        return innermost_frame(w, state, ret_at, ret);
    b->base = low;
    b->size = got - 16;
    *ret_at = last->top_at;
    *ret = b->top;
    return 0;
}

/* The copy of these bytes, if they were read; an address may be any number, also one that `+ size`
 * turns over. */
static const uint8_t *in_block(const struct block *b, uint64_t address, size_t size)
{
    uint64_t at = address - b->base;
    return at < b->size && b->size - at >= size ? b->bytes + at : NULL;
}

/* One frame's fields; NULL: not readable.  A read never reaches over the end of a page. */
static const uint8_t *frame_at(const struct walk *w, struct block *b, uint64_t address)
{
    size_t size = (size_t)w->o.frame_size, want = BLOCK_BYTES;
    const uint8_t *found = in_block(b, address, size);
    if (found)
        return found;
    b->base = address & ~(uint64_t)(BLOCK_BYTES - 1);
    if (address - b->base > want - size) { /* it lies in two */
        b->base = address;
        want = size;
    }
    b->size = peek_some(&w->peek, b->base, b->bytes, want);
    return in_block(b, address, size);
}

/* Follow the chain; *ret_top_at: where the first pointer stands.  How many, or -EFAULT. */
static int walk_once(const struct walk *w, const struct walk_thread *t, struct walk_frame *ret,
                     size_t max, uint64_t *ret_top_at, enum walk_end *ret_end)
{
    struct block block = {.size = 0};
    uint64_t address;
    size_t n = 0;
    *ret_end = WALK_WHOLE;
    if (innermost_as_last(w, t->state, &block, ret_top_at, &address))
        return -EFAULT;
    while (address && address != t->base) {
        if (n == max) {
            *ret_end = WALK_LIMIT;
            break;
        }
        const uint8_t *copy = frame_at(w, &block, address);
        if (!copy)
            return -EFAULT;
        walk_parse(w, address, copy, &ret[n]);
        ret[n].since = w->moment;
        address = ret[n++].back;
    }
    return (int)n;
}

static bool same_frame(const struct walk_frame *a, const struct walk_frame *b, bool innermost_one)
{
    return a->address == b->address && a->code == b->code && a->back == b->back &&
           a->owner == b->owner && a->entry == b->entry && (innermost_one || a->instr == b->instr);
}

/* Pieces for all frames of a walk, those that lie side by side in one; how many, and where each
 * frame's copy will be. */
static size_t plan_pieces(const struct walk *w, const struct walk_frame *frames, size_t n,
                          struct iovec *pieces, size_t *bytes)
{
    size_t size = (size_t)w->o.frame_size, used = 0;
    uint64_t end = 0;
    for (size_t i = n; i-- > 0;) { /* the outermost one has the lowest address */
        uint64_t gap = frames[i].address - end;
        if (used && frames[i].address >= end && gap <= WALK_GAP) {
            pieces[used - 1].iov_len += (size_t)gap + size;
            *bytes += (size_t)gap;
        } else {
            pieces[used++] = peek_piece(frames[i].address, size);
        }
        w->places[i] = (uint32_t)*bytes;
        *bytes += size;
        end = frames[i].address + size;
    }
    return used;
}

/* Read all frames of a walk again at once: how many of the outermost ones are as they were.
 * *ret_begins: the chain still begins at the same frame. */
static size_t still_there(const struct walk *w, const struct walk_thread *t, uint64_t top_at,
                          struct walk_frame *frames, size_t n, bool *ret_begins)
{
    const struct offsets *o = &w->o;
    size_t bytes = 16, same = 0;
    struct walk_frame now = {.address = 0};
    int slot = o->ts_cframe >= 0 ? o->ts_cframe : o->ts_frame;
    *ret_begins = false;
    w->pieces[0] = peek_piece(t->state + (uint64_t)slot, 8);
    w->pieces[1] = peek_piece(top_at, 8);
    size_t pieces = 2 + plan_pieces(w, frames, n, w->pieces + 2, &bytes);
    w->pieces[pieces++] = peek_piece(top_at, 8);
    if (peek_pieces(&w->peek, w->pieces, pieces, w->copies) != bytes + 8)
        return 0;
    while (same < n) {
        size_t i = n - 1 - same;
        walk_parse(w, frames[i].address, w->copies + w->places[i], &now);
        if (!same_frame(&frames[i], &now, i == 0))
            break;
        same++;
    }
    uint64_t first = n ? frames[0].address : t->base;
    *ret_begins = (o->ts_cframe < 0 || u64_at(w->copies, 0) + (uint64_t)o->cf_frame == top_at) &&
                  u64_at(w->copies, 8) == first && u64_at(w->copies, (int)bytes) == first;
    if (same == n && n && *ret_begins)
        frames[0].instr = now.instr;
    return same == n && n && !*ret_begins ? n - 1 : same;
}

/* Is the whole walk as it was, several times in a row? */
static bool is_unchanged(const struct walk *w, const struct walk_thread *t, uint64_t top_at,
                         struct walk_frame *frames, size_t n)
{
    bool begins = true;
    for (int i = 0; i < REREADS && begins; i++)
        if (still_there(w, t, top_at, frames, n, &begins) != n)
            return false;
    return begins;
}

/* The index of the present innermost frame in an earlier walk; n: it is not in it. */
static size_t place_of_top(const struct walk *w, uint64_t state, const struct walk_frame *frames,
                           size_t n)
{
    uint64_t at, top;
    size_t i = 0;
    if (innermost_frame(w, state, &at, &top))
        return n;
    while (i < n && frames[i].address != top)
        i++;
    return i;
}

/* The caller side of a stack whose inner frames come and go.  A frame that ended leaves its bytes
 * behind: so beside standing still the frames must be reached from the innermost one of now. */
static size_t outer_part(const struct walk *w, const struct walk_thread *t, uint64_t top_at,
                         struct walk_frame *frames, size_t n)
{
    size_t stood = n;
    int reached = 0;
    for (int i = 0; i < OUTER_REREADS && stood > 0; i++) {
        bool begins;
        size_t same = still_there(w, t, top_at, frames, n, &begins);
        size_t top = place_of_top(w, t->state, frames, n);
        stood = same < stood ? same : stood;
        if (top < n) {
            stood = n - top < stood ? n - top : stood;
            reached++;
        }
        if (i % 4 == 3)
            (void)sched_yield();
    }
    return reached >= OUTER_REACHED ? stood : 0;
}

/* ---- a stack that runs, with one system call ---- */

/* One read takes, ROUNDS times: the pointers to the innermost frame, the frames that lay side by
 * side last time, and the others.  Between the rounds lies what proves the code objects of last
 * time; so the rounds have uneven distances, and nothing the thread does can keep step with
 * them. */
struct rounds {
    struct walk_last *last;
    size_t pieces, bytes;
    size_t at[ROUNDS]; /* where each begins in the copies */
    uint64_t far[FAR]; /* addresses of the frames elsewhere */
    size_t n_far, proofs;
    uint32_t proof_at[LAST_FRAMES];
};

static void rounds_add(const struct walk *w, struct rounds *r, uint64_t address, size_t size)
{
    w->pieces[r->pieces++] = peek_piece(address, size);
    r->bytes += size;
}

static void rounds_plan(struct walk *w, struct rounds *r, uint64_t state)
{
    static const uint8_t tenths[ROUNDS] = {1, 3, 6, 10, 10}; /* of the proofs, behind each round */
    struct walk_last *last = r->last;
    int slot = w->o.ts_cframe >= 0 ? w->o.ts_cframe : w->o.ts_frame;
    size_t proof = 0, size;
    for (int i = 0; i < last->n; i++) {
        uint64_t address = last->frames[i].address;
        last->frames[i].since = w->moment; /* an older proof is none any more */
        if ((address < last->low || address >= last->high) && r->n_far < FAR)
            r->far[r->n_far++] = address;
    }
    r->proofs = code_cache_plan(w, last->frames, (size_t)last->n, PROOF_BYTES);
    for (size_t i = 0; i < ROUNDS; i++) {
        r->at[i] = r->bytes;
        rounds_add(w, r, state + (uint64_t)slot, 8);
        rounds_add(w, r, last->top_at, 8);
        for (size_t k = 0; k < r->n_far; k++)
            rounds_add(w, r, r->far[k], (size_t)w->o.frame_size);
        rounds_add(w, r, last->low, (size_t)(last->high - last->low));
        for (; proof < r->proofs * tenths[i] / 10; proof++) {
            r->proof_at[proof] = (uint32_t)r->bytes;
            r->pieces += code_cache_pieces(w, proof, w->pieces + r->pieces, &size);
            r->bytes += size;
        }
    }
}

/* A frame in one of the rounds; NULL: it is not there. */
static const uint8_t *rounds_frame(const struct walk *w, const struct rounds *r, size_t round,
                                   uint64_t address)
{
    const uint8_t *far = w->copies + r->at[round] + 16;
    size_t size = (size_t)w->o.frame_size;
    const uint8_t *block = far + r->n_far * size;
    uint64_t at = address - r->last->low, room = r->last->high - r->last->low;
    if (at < room && room - at >= size)
        return block + at;
    for (size_t i = 0; i < r->n_far; i++)
        if (r->far[i] == address)
            return far + i * size;
    return NULL;
}

static bool rounds_agree(const struct walk *w, const struct rounds *r, size_t round,
                         struct walk_frame *frames, int n)
{
    const uint8_t *first = w->copies + r->at[0], *now = w->copies + r->at[round];
    size_t size = (size_t)w->o.frame_size;
    if (memcmp(first, now, 16) != 0)
        return false;
    for (int i = 0; i < n; i++) {
        struct walk_frame again;
        const uint8_t *old = rounds_frame(w, r, 0, frames[i].address);
        const uint8_t *bytes = now + (old - first);
        if (i > 0 && memcmp(old, bytes, size) == 0)
            continue;
        walk_parse(w, frames[i].address, bytes, &again);
        if (!same_frame(&frames[i], &again, i == 0))
            return false;
        if (i == 0)
            frames[0].instr = again.instr;
    }
    return true;
}

/* How many frames; -EAGAIN: they are elsewhere now, or not the same in each round. */
static int walk_at_once(struct walk *w, const struct walk_thread *t, struct walk_frame *ret,
                        size_t max, uint64_t *ret_top_at)
{
    struct rounds r = {.last = last_of(w, t->state)};
    const struct walk_last *last = r.last;
    int n = 0;
    if (last->state != t->state || last->low == last->high || !last->n)
        return -EAGAIN;
    rounds_plan(w, &r, t->state);
    if (peek_pieces(&w->peek, w->pieces, r.pieces, w->copies) != r.bytes ||
        (w->o.ts_cframe >= 0 && u64_at(w->copies, 0) + (uint64_t)w->o.cf_frame != last->top_at))
        return -EAGAIN;
    for (uint64_t address = u64_at(w->copies, 8); address && address != t->base;
         address = ret[n++].back) {
        const uint8_t *bytes = rounds_frame(w, &r, 0, address);
        if (!bytes || (size_t)n == max)
            return -EAGAIN;
        walk_parse(w, address, bytes, &ret[n]);
        ret[n].since = w->moment;
    }
    for (size_t i = 1; i < ROUNDS; i++)
        if (!rounds_agree(w, &r, i, ret, n))
            return -EAGAIN;
    for (size_t i = 0, size; i < r.proofs; i++) {
        struct iovec pieces[CODE_CACHE_PIECES];
        (void)code_cache_pieces(w, i, pieces, &size);
        code_cache_read(w, i, w->copies + r.proof_at[i], size);
    }
    *ret_top_at = last->top_at;
    return n;
}

/* ---- any stack ---- */

static int walk_until_it_stands(struct walk *w, const struct walk_thread *t, uint64_t before,
                                struct walk_frame *ret, size_t max, enum walk_end *ret_end)
{
    uint64_t top_at = 0;
    int n = -EFAULT;
    for (int i = 0; i < PASSES; i++) {
        n = walk_once(w, t, ret, max, &top_at, ret_end);
        uint64_t after = thread_cpu_ns(t->tid);
        bool stood = before && after == before;
        if (n >= 0 && (stood || is_unchanged(w, t, top_at, ret, (size_t)n))) {
            remember_stack(w, t, stood && *ret_end == WALK_WHOLE ? before : 0, top_at, ret, n);
            return n;
        }
        before = after;
        if (i % 16 == 15)
            (void)sched_yield();
    }
    if (n < 0) {
        *ret_end = WALK_UNREADABLE;
        return 0;
    }
    size_t stood = outer_part(w, t, top_at, ret, (size_t)n);
    memmove(ret, ret + ((size_t)n - stood), stood * sizeof(*ret));
    *ret_end = WALK_MOVING;
    return (int)stood;
}

int walk_stack(struct walk *w, const struct walk_thread *t, struct walk_frame *ret, size_t max,
               enum walk_end *ret_end)
{
    uint64_t top_at = 0, before = thread_cpu_ns(t->tid);
    struct walk_last *last = last_of(w, t->state);
    bool known = before && last->state == t->state && last->tid == t->tid;
    bool ran = known && last->seen != before; /* since the last look: it may run now */
    if (max > WALK_FRAMES)
        max = WALK_FRAMES;
    if (known && last->cpu == before && (size_t)last->n <= max) {
        memcpy(ret, last->frames, (size_t)last->n * sizeof(*ret));
        *ret_end = WALK_WHOLE;
        return last->n;
    }
    w->moment++;
    last->seen = before;
    for (int i = 0; ran && i < TRIES_AT_ONCE; i++) {
        int n = walk_at_once(w, t, ret, max, &top_at);
        if (n < 0)
            continue;
        remember_stack(w, t, /* cpu= */ 0, top_at, ret, n);
        *ret_end = WALK_WHOLE;
        return n;
    }
    return walk_until_it_stands(w, t, before, ret, max, ret_end);
}
