/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/arena.c - blocks of growing size, cut into 16-byte aligned pieces.
 *
 * Owner's thread only.  Single pieces are never given back.
 */
#include "sdk/lib/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_ALIGN ((size_t)16)
#define ARENA_FIRST ((size_t)4096)      /* bytes: a small query fits in one block */
#define ARENA_LARGEST ((size_t)1 << 20) /* bytes: blocks double up to here */

struct arena_block {
    struct arena_block *next;
    size_t size; /* of the bytes after this header */
    size_t used;
    size_t padding; /* keeps the header a multiple of 16 bytes */
};

void arena_init(struct arena *a, size_t limit_bytes)
{
    *a = (struct arena){.limit_bytes = limit_bytes};
}

void arena_init_in(struct arena *a, struct arena_budget *budget)
{
    *a = (struct arena){.budget = budget};
}

void arena_done(struct arena *a)
{
    if (a->budget)
        (void)atomic_fetch_sub_explicit(&a->budget->used_bytes, a->used_bytes,
                                        memory_order_relaxed);
    while (a->head) {
        struct arena_block *next = a->head->next;
        free(a->head);
        a->head = next;
    }
    a->used_bytes = 0;
}

/* More than the budget has, also when it has been raised? */
static bool is_over(struct arena_budget *b, size_t used, size_t whole)
{
    size_t limit;
    do {
        limit = atomic_load_explicit(&b->limit_bytes, memory_order_relaxed);
        if (used <= limit && whole <= limit - used)
            return false;
    } while (b->raise && b->raise(b, limit));
    return true;
}

/* Count so many bytes as taken, if the limits have room for them. */
static bool take_room(struct arena *a, size_t whole)
{
    struct arena_budget *b = a->budget;
    if (a->limit_bytes && whole > a->limit_bytes - a->used_bytes)
        return false;
    size_t used = b ? atomic_load_explicit(&b->used_bytes, memory_order_relaxed) : 0;
    do {
        if (b && is_over(b, used, whole))
            return false;
    } while (b &&
             !atomic_compare_exchange_weak_explicit(&b->used_bytes, &used, used + whole,
                                                    memory_order_relaxed, memory_order_relaxed));
    a->used_bytes += whole;
    return true;
}

static void give_room(struct arena *a, size_t whole)
{
    a->used_bytes -= whole;
    if (a->budget)
        (void)atomic_fetch_sub_explicit(&a->budget->used_bytes, whole, memory_order_relaxed);
}

static struct arena_block *add_block(struct arena *a, size_t size)
{
    size_t want = a->head ? a->head->size * 2 : ARENA_FIRST;
    if (want > ARENA_LARGEST)
        want = ARENA_LARGEST;
    if (want < size)
        want = size;
    size_t whole = sizeof(struct arena_block) + want;
    if (!take_room(a, whole)) { /* near the limit, take just what is needed */
        want = size;
        whole = sizeof(struct arena_block) + want;
        if (!take_room(a, whole)) {
            if (a->budget)
                atomic_store_explicit(&a->budget->refused, true, memory_order_relaxed);
            return NULL;
        }
    }
    struct arena_block *block = malloc(whole);
    if (!block) {
        give_room(a, whole);
        return NULL;
    }
    *block = (struct arena_block){.next = a->head, .size = want};
    a->head = block;
    return block;
}

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX / 4)
        return NULL;
    size = size ? (size + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1) : ARENA_ALIGN;
    struct arena_block *block = a->head;
    if (!block || block->size - block->used < size) {
        block = add_block(a, size);
        if (!block)
            return NULL;
    }
    char *piece = (char *)(block + 1) + block->used;
    block->used += size;
    return piece;
}

void *arena_zalloc(struct arena *a, size_t count, size_t size)
{
    size_t whole;
    if (__builtin_mul_overflow(count, size, &whole))
        return NULL;
    void *piece = arena_alloc(a, whole);
    if (piece)
        memset(piece, 0, whole);
    return piece;
}

char *arena_text(struct arena *a, const char *text, size_t n)
{
    if (n == SIZE_MAX)
        return NULL;
    char *copy = arena_alloc(a, n + 1);
    if (!copy)
        return NULL;
    if (n)
        memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}
