/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/lua_memory.c - see lua_memory.h.
 *
 * Threads: the script's own.
 */
#include "core/script/lua_memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define USED_MAX ((size_t)64 << 20)   /* bytes: design.md asks for a limit */
#define MAPPED_MAX ((size_t)96 << 20) /* bytes: blocks of many sizes leave gaps */
#define ALL_MAX ((size_t)256 << 20)   /* bytes mapped by all scripts of the process together */
#define CHUNK_BYTES ((size_t)1 << 20)
#define SLAB_BYTES ((size_t)128 << 10)
#define FINE_MAX 512              /* bytes: up to here sizes go up by 16, then 4 to a doubling */
#define SMALL_MAX (32 << 10)      /* bytes: 3 in a slab; larger blocks are mapped */
#define PAGE_BYTES ((size_t)4096) /* what mappings are rounded to; the kernel rounds on */

struct slab {
    struct slab *next, *prev; /* in `open` or, next only, in `empty` */
    void *free;               /* blocks given back, each with the next one's place in it */
    uint32_t size_class, block_bytes;
    uint32_t n_used, n_ever;    /* blocks in use; blocks that were ever given out */
    uint32_t n_blocks, is_open; /* how many fit; 1: it stands in `open` */
    uint64_t pad[2];            /* blocks begin at 64 bytes */
};
_Static_assert(sizeof(struct slab) == 64, "blocks are 16-byte aligned, and the head is one line");

struct large {
    struct large *next, *prev;
    size_t mapped;
    size_t pad;
};

struct memory_chunk { /* in the last bytes of the chunk: no slab uses that many */
    struct memory_chunk *next;
    void *at;
    size_t mapped;
};

void memory_init(struct memory *m, _Atomic size_t *shared_bytes)
{
    *m = (struct memory){.shared_bytes = shared_bytes};
}

/* ---- from the kernel ---- */

static bool may_map(struct memory *m, size_t size)
{
    if (size > MAPPED_MAX - m->mapped_bytes)
        return false;
    if (atomic_fetch_add_explicit(m->shared_bytes, size, memory_order_relaxed) + size > ALL_MAX) {
        (void)atomic_fetch_sub_explicit(m->shared_bytes, size, memory_order_relaxed);
        return false;
    }
    m->mapped_bytes += size;
    return true;
}

static void was_unmapped(struct memory *m, size_t size)
{
    m->mapped_bytes -= size;
    (void)atomic_fetch_sub_explicit(m->shared_bytes, size, memory_order_relaxed);
}

static void *map_block(struct memory *m, size_t size)
{
    if (!may_map(m, size))
        return NULL;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED)
        return at;
    was_unmapped(m, size);
    return NULL;
}

/* A chunk's note stands in its last bytes, which are taken from its last slab. */
static bool map_chunk(struct memory *m)
{
    size_t whole = CHUNK_BYTES + SLAB_BYTES;
    char *at = map_block(m, whole);
    if (!at)
        return false;
    size_t before = -(uintptr_t)at & (SLAB_BYTES - 1), after = SLAB_BYTES - before;
    if (before)
        (void)munmap(at, before);
    if (after)
        (void)munmap(at + before + CHUNK_BYTES, after);
    was_unmapped(m, SLAB_BYTES);
    at += before;
    struct memory_chunk *c = (struct memory_chunk *)(at + CHUNK_BYTES) - 1;
    *c = (struct memory_chunk){.next = m->chunks, .at = at, .mapped = CHUNK_BYTES};
    m->chunks = c;
    for (size_t i = CHUNK_BYTES / SLAB_BYTES; i-- > 0;) {
        struct slab *s = (struct slab *)(at + i * SLAB_BYTES);
        s->next = m->empty;
        m->empty = s;
    }
    return true;
}

void memory_done(struct memory *m)
{
    while (m->large) {
        struct large *l = m->large;
        m->large = l->next;
        was_unmapped(m, l->mapped);
        (void)munmap(l, l->mapped);
    }
    while (m->chunks) {
        struct memory_chunk *c = m->chunks;
        m->chunks = c->next;
        was_unmapped(m, c->mapped);
        (void)munmap(c->at, CHUNK_BYTES); /* c itself with it */
    }
    memory_init(m, m->shared_bytes);
}

/* ---- small blocks ---- */

static uint32_t class_of(size_t size)
{
    if (size <= FINE_MAX)
        return (uint32_t)((size + 15) / 16 - 1);
    uint32_t doubling = 63 - (uint32_t)__builtin_clzll(size - 1); /* 9: 513 to 1024 */
    uint32_t quarter = (uint32_t)((size - 1) >> (doubling - 2)) & 3;
    return FINE_MAX / 16 + (doubling - 9) * 4 + quarter;
}

static uint32_t bytes_of(uint32_t size_class)
{
    if (size_class < FINE_MAX / 16)
        return (size_class + 1) * 16;
    uint32_t at = size_class - FINE_MAX / 16;
    return (FINE_MAX << (at / 4)) / 4 * (5 + at % 4);
}

static void open_slab(struct memory *m, struct slab *s)
{
    s->prev = NULL;
    s->next = m->open[s->size_class];
    if (s->next)
        s->next->prev = s;
    m->open[s->size_class] = s;
    s->is_open = 1;
}

static void close_slab(struct memory *m, struct slab *s)
{
    if (s->prev)
        s->prev->next = s->next;
    else
        m->open[s->size_class] = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->is_open = 0;
}

static struct slab *slab_with_room(struct memory *m, uint32_t size_class)
{
    struct slab *s = m->open[size_class];
    if (s)
        return s;
    if (!m->empty && !map_chunk(m))
        return NULL;
    s = m->empty;
    m->empty = s->next;
    uint32_t bytes = bytes_of(size_class);
    *s = (struct slab){
        .size_class = size_class,
        .block_bytes = bytes,
        .n_blocks = (uint32_t)((SLAB_BYTES - sizeof(*s) - sizeof(struct memory_chunk)) / bytes)};
    open_slab(m, s);
    return s;
}

static void *take_small(struct memory *m, size_t size)
{
    struct slab *s = slab_with_room(m, class_of(size));
    if (!s)
        return NULL;
    void *block = s->free;
    if (block)
        memcpy(&s->free, block, sizeof(s->free));
    else
        block = (char *)(s + 1) + (size_t)s->n_ever++ * s->block_bytes;
    s->n_used++;
    if (!s->free && s->n_ever == s->n_blocks)
        close_slab(m, s);
    return block;
}

static void give_small(struct memory *m, void *block)
{
    struct slab *s = (struct slab *)((uintptr_t)block & ~(uintptr_t)(SLAB_BYTES - 1));
    memcpy(block, &s->free, sizeof(s->free));
    s->free = block;
    s->n_used--;
    if (!s->is_open)
        open_slab(m, s);
    /* The last one of its size is kept: a single block taken and given back in turn is common. */
    if (s->n_used == 0 && (s->next || s->prev)) {
        close_slab(m, s);
        s->next = m->empty;
        m->empty = s;
    }
}

/* ---- large blocks ---- */

static size_t large_bytes(size_t size)
{
    return (size + sizeof(struct large) + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

static void link_large(struct memory *m, struct large *l)
{
    l->prev = NULL;
    l->next = m->large;
    if (l->next)
        l->next->prev = l;
    m->large = l;
}

static void unlink_large(struct memory *m, struct large *l)
{
    if (l->prev)
        l->prev->next = l->next;
    else
        m->large = l->next;
    if (l->next)
        l->next->prev = l->prev;
}

static void *take_large(struct memory *m, size_t size)
{
    size_t mapped = large_bytes(size);
    struct large *l = map_block(m, mapped);
    if (!l)
        return NULL;
    l->mapped = mapped;
    link_large(m, l);
    return l + 1;
}

static void give_large(struct memory *m, void *block)
{
    struct large *l = (struct large *)block - 1;
    unlink_large(m, l);
    was_unmapped(m, l->mapped);
    (void)munmap(l, l->mapped);
}

static void *change_large(struct memory *m, void *block, size_t size)
{
    struct large *l = (struct large *)block - 1;
    size_t had = l->mapped, wanted = large_bytes(size);
    if (had == wanted)
        return block;
    if (wanted > had && !may_map(m, wanted - had))
        return NULL;
    unlink_large(m, l);
    struct large *moved = mremap(l, had, wanted, MREMAP_MAYMOVE);
    bool done = moved != MAP_FAILED;
    if (done && wanted < had)
        was_unmapped(m, had - wanted);
    if (!done && wanted > had)
        was_unmapped(m, wanted - had);
    l = done ? moved : l;
    l->mapped = done ? wanted : had;
    link_large(m, l);
    return done || wanted < had ? l + 1 : NULL; /* what shrinks may not fail: Lua relies on it */
}

/* ---- both ---- */

static void *take_block(struct memory *m, size_t size)
{
    return size <= SMALL_MAX ? take_small(m, size) : take_large(m, size);
}

static void give_block(struct memory *m, void *block, size_t size)
{
    if (size <= SMALL_MAX)
        give_small(m, block);
    else
        give_large(m, block);
}

/* A small block knows its own size: what cannot be made smaller may stay where it is. */
static void *move_block(struct memory *m, void *old, size_t had, size_t size)
{
    if (had <= SMALL_MAX && size <= SMALL_MAX && class_of(had) == class_of(size))
        return old;
    if (had > SMALL_MAX && size > SMALL_MAX)
        return change_large(m, old, size);
    void *made = take_block(m, size);
    if (made) {
        memcpy(made, old, had < size ? had : size);
        give_block(m, old, had);
    }
    return made || size > had || had > SMALL_MAX ? made : old;
}

void *memory_change(struct memory *m, void *old, size_t old_size, size_t size)
{
    size_t had = old ? old_size : 0; /* of a new object Lua passes its type */

    if (size > had && (m->used_bytes > USED_MAX || size - had > USED_MAX - m->used_bytes))
        return NULL; /* Lua says "not enough memory" and the script may catch it */
    void *made = NULL;
    if (size == 0 && had)
        give_block(m, old, had);
    else if (size && had)
        made = move_block(m, old, had, size);
    else if (size)
        made = take_block(m, size);
    if (made || size == 0)
        m->used_bytes += size - had;
    return made;
}
