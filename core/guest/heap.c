/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/heap.c - free lists by size in spans of 64 KiB; what is larger has its own mapping.
 *
 * A region is 16 spans from one mmap().  A span holds pieces of one size, and its first bytes say
 * which; a span without pieces goes back to its region, a region without spans to the kernel.
 * One table knows every span and every large block by address, so a foreign pointer is told from
 * ours without a look at what it points to.  One mutex: a handful of threads share this, and
 * queries cut their pieces out of arenas.
 */
#include "core/guest/heap.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sdk/lib/hash.h"
#include "sdk/lib/proc/maps.h"

#define PAGE ((size_t)4096)     /* bytes: every page is a multiple of this */
#define SPAN ((size_t)64 << 10) /* bytes, and so aligned */
#define SPANS 16                /* of a region: 1 MiB */
#define STEP ((size_t)16)
#define FINE ((size_t)256)           /* up to here pieces differ by STEP, above by a quarter */
#define SMALL_MAX ((size_t)16384)    /* three such fit in a span */
#define CLASSES 40                   /* 16 fine ones, then 4 for each doubling up to SMALL_MAX */
#define DIRTY_MAX 8                  /* free spans whose pages are kept: a small query leaves six */
#define SPARES 32                    /* large blocks kept for the next who wants one ... */
#define SPARE_MAX ((size_t)16 << 20) /* ... of so many bytes in all, until heap_trim(), ... */
#define SPARE_LONG ((size_t)1 << 20) /* ... and of so many for longer: a small query a second ... */
#define SPARE_NS UINT64_C(10000000000) /* ... shall not map its memory anew each time */
#define TABLE_FIRST 512                /* entries: 8 KiB */

struct span {
    struct span *next, *prev; /* with free pieces, of the same class */
    struct span *region;      /* its first span */
    void *free;               /* pieces that were given back */
    uint32_t class, used, carved;
    uint32_t mask;            /* first span of a region: which spans are free */
    struct span *next_region; /* first span of a region */
    uint64_t unused;
};
_Static_assert(sizeof(struct span) == 64, "pieces are 16-byte aligned");

struct entry { /* key 0: free; a span's address + 1, or a large block's address */
    uintptr_t key;
    size_t size; /* of a large block's mapping */
};

struct spare {
    struct entry block; /* key 0: none */
    uint64_t unused_ns; /* by calls of heap_trim() since it was freed */
};

static struct heap {
    pthread_mutex_t mutex; /* for all below */
    struct span *partial[CLASSES];
    struct span *regions;
    uint32_t dirty; /* free spans with pages */
    struct entry *table;
    size_t table_size, table_used; /* entries; a power of two */
    struct spare spares[SPARES];
    size_t spare_bytes, mapped;
} h = {.mutex = PTHREAD_MUTEX_INITIALIZER}; /* one in a process: malloc() has no context */

static size_t round_to_pages(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE); /* 64 KiB on some aarch64 */
    return (size + page - 1) & ~(page - 1);
}

static void *map_bytes(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    h.mapped += size;
    return p;
}

static void unmap_bytes(void *p, size_t size)
{
    h.mapped -= size;
    (void)munmap(p, size);
}

/* ---- the table: linear probing, entries move up when one goes ---- */

static size_t place_of(uintptr_t key)
{
    return (size_t)(hash_spread((uint64_t)key >> 12) >> 32) & (h.table_size - 1);
}

static struct entry *find_entry(uintptr_t key)
{
    if (h.table_size == 0)
        return NULL;
    for (size_t i = place_of(key); h.table[i].key; i = (i + 1) & (h.table_size - 1)) {
        if (h.table[i].key == key)
            return &h.table[i];
    }
    return NULL;
}

static void put_entry(uintptr_t key, size_t size)
{
    size_t i = place_of(key);
    while (h.table[i].key)
        i = (i + 1) & (h.table_size - 1);
    h.table[i] = (struct entry){key, size};
    h.table_used++;
}

static bool table_room(size_t more)
{
    if ((h.table_used + more) * 2 <= h.table_size)
        return true;
    struct entry *old = h.table;
    size_t n = h.table_size, size = n ? n * 2 : TABLE_FIRST;
    struct entry *made = map_bytes(size * sizeof(*made));
    if (!made)
        return false;
    h.table = made;
    h.table_size = size;
    h.table_used = 0;
    for (size_t i = 0; i < n; i++) {
        if (old[i].key)
            put_entry(old[i].key, old[i].size);
    }
    if (old)
        unmap_bytes(old, n * sizeof(*old));
    return true;
}

static void take_out(struct entry *e)
{
    size_t mask = h.table_size - 1, hole = (size_t)(e - h.table);
    for (size_t i = (hole + 1) & mask; h.table[i].key; i = (i + 1) & mask) {
        size_t wants = place_of(h.table[i].key);
        if (((i - wants) & mask) >= ((i - hole) & mask)) {
            h.table[hole] = h.table[i];
            hole = i;
        }
    }
    h.table[hole] = (struct entry){0};
    if (--h.table_used == 0) { /* the last one: nothing of this heap stays */
        unmap_bytes(h.table, h.table_size * sizeof(*h.table));
        h.table = NULL;
        h.table_size = 0;
    }
}

/* ---- spans ---- */

static uint32_t class_of(size_t size)
{
    if (size <= FINE)
        return (uint32_t)((size + (size == 0) + STEP - 1) / STEP - 1);
    uint32_t doubling = 63 - (uint32_t)__builtin_clzll(size - 1); /* 8: 257 to 512 */
    return 16 + (doubling - 8) * 4 + (uint32_t)((size - 1) >> (doubling - 2) & 3);
}

static size_t size_of(uint32_t class)
{
    if (class < 16)
        return (class + 1) * STEP;
    uint32_t doubling = 8 + (class - 16) / 4;
    return ((size_t)1 << doubling) + (((size_t)(class - 16) % 4 + 1) << (doubling - 2));
}

static uint32_t pieces_of(const struct span *s)
{
    return (uint32_t)((SPAN - sizeof(*s)) / size_of(s->class));
}

static struct span *span_at(struct span *region, uint32_t i)
{
    return (struct span *)(void *)((char *)region + i * SPAN);
}

static struct span *make_region(void)
{
    const size_t size = SPANS * SPAN;
    if (!table_room(SPANS))
        return NULL;
    char *p = map_bytes(size + SPAN);
    if (!p)
        return NULL;
    char *at = (char *)(((uintptr_t)p + SPAN - 1) & ~(SPAN - 1));
    if (at > p)
        unmap_bytes(p, (size_t)(at - p));
    if (p + SPAN > at)
        unmap_bytes(at + size, (size_t)(p + SPAN - at));
    /* One page touched shall not become 2 MiB of memory. */
    (void)madvise(at, size, MADV_NOHUGEPAGE);
    struct span *region = (struct span *)(void *)at;
    *region = (struct span){.region = region, .mask = (1u << SPANS) - 1, .next_region = h.regions};
    h.regions = region;
    for (uint32_t i = 0; i < SPANS; i++)
        put_entry((uintptr_t)span_at(region, i) + 1, 0);
    return region;
}

static void drop_region(struct span *region)
{
    struct span **p = &h.regions;
    while (*p != region)
        p = &(*p)->next_region;
    *p = region->next_region;
    for (uint32_t i = 0; i < SPANS; i++)
        take_out(find_entry((uintptr_t)span_at(region, i) + 1));
    unmap_bytes(region, SPANS * SPAN);
    h.dirty = h.dirty > SPANS ? h.dirty - SPANS : 0; /* about: how many of them had pages */
}

static void link_partial(struct span *s)
{
    struct span **first = &h.partial[s->class];
    s->prev = NULL;
    s->next = *first;
    if (s->next)
        s->next->prev = s;
    *first = s;
}

static void unlink_partial(struct span *s)
{
    if (s->prev)
        s->prev->next = s->next;
    else
        h.partial[s->class] = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->next = s->prev = NULL;
}

static struct span *make_span(uint32_t class)
{
    struct span *region = h.regions;
    while (region && region->mask == 0)
        region = region->next_region;
    if (!region)
        region = make_region();
    if (!region)
        return NULL;
    uint32_t i = (uint32_t)__builtin_ctz(region->mask);
    struct span *s = span_at(region, i);
    region->mask &= ~(1u << i);
    h.dirty -= h.dirty > 0;
    s->region = region;
    s->free = NULL;
    s->class = class;
    s->used = s->carved = 0;
    link_partial(s);
    return s;
}

static void drop_span(struct span *s)
{
    struct span *region = s->region;
    unlink_partial(s);
    region->mask |= 1u << ((size_t)((char *)s - (char *)region) / SPAN);
    if (region->mask == (1u << SPANS) - 1)
        drop_region(region);
    else if (h.dirty < DIRTY_MAX)
        h.dirty++;
    else if (s == region) /* its head says what the region has */
        (void)madvise((char *)s + PAGE, SPAN - PAGE, MADV_DONTNEED);
    else
        (void)madvise(s, SPAN, MADV_DONTNEED);
}

static void *take_piece(uint32_t class)
{
    struct span *s = h.partial[class];
    if (!s)
        s = make_span(class);
    if (!s)
        return NULL;
    void *p = s->free;
    if (p)
        memcpy(&s->free, p, sizeof(s->free));
    else
        p = (char *)(s + 1) + s->carved++ * size_of(class);
    if (++s->used == pieces_of(s))
        unlink_partial(s);
    return p;
}

static void give_piece(struct span *s, void *p)
{
    memcpy(p, &s->free, sizeof(s->free));
    s->free = p;
    if (s->used-- == pieces_of(s))
        link_partial(s);
    if (s->used == 0)
        drop_span(s);
}

static struct span *span_of(void *p)
{
    uintptr_t at = (uintptr_t)p & ~(uintptr_t)(SPAN - 1);
    return find_entry(at + 1) ? (struct span *)at : NULL;
}

/* ---- large blocks ---- */

/* One that was freed lately and does not waste more than a quarter. */
static struct entry take_spare(size_t size)
{
    for (uint32_t i = 0; i < SPARES; i++) {
        struct entry e = h.spares[i].block;
        if (e.key && e.size >= size && e.size - size <= size / 4) {
            h.spares[i].block.key = 0;
            h.spare_bytes -= e.size;
            return e;
        }
    }
    return (struct entry){0};
}

static void drop_spare(struct spare *s)
{
    h.spare_bytes -= s->block.size;
    unmap_bytes((void *)s->block.key, s->block.size);
    s->block.key = 0;
}

static void drop_spares(void)
{
    for (uint32_t i = 0; i < SPARES; i++)
        if (h.spares[i].block.key)
            drop_spare(&h.spares[i]);
}

/* The first so many bytes stay until nobody has wanted them for a while. */
static void trim_spares(uint64_t passed_ns)
{
    size_t kept = 0;
    for (uint32_t i = 0; i < SPARES; i++) {
        struct spare *s = &h.spares[i];
        if (!s->block.key)
            continue;
        s->unused_ns += passed_ns;
        if (s->unused_ns >= SPARE_NS || s->block.size > SPARE_LONG - kept)
            drop_spare(s);
        else
            kept += s->block.size;
    }
}

static bool keep_spare(struct entry e)
{
    if (h.regions == NULL || e.size > SPARE_MAX - h.spare_bytes)
        return false;
    for (uint32_t i = 0; i < SPARES; i++) {
        if (!h.spares[i].block.key) {
            h.spares[i] = (struct spare){.block = e};
            h.spare_bytes += e.size;
            return true;
        }
    }
    return false;
}

static void *take_large(size_t size, bool zeroed)
{
    if (!table_room(1))
        return NULL;
    struct entry e = take_spare(size);
    bool used = e.key != 0;
    if (!used)
        e = (struct entry){(uintptr_t)map_bytes(size), size};
    if (!e.key)
        return NULL;
    put_entry(e.key, e.size);
    if (used && zeroed)
        memset((void *)e.key, 0, size);
    return (void *)e.key;
}

static void give_large(struct entry *e)
{
    struct entry was = *e;
    take_out(e);
    if (!keep_spare(was))
        unmap_bytes((void *)was.key, was.size);
}

static void *resize_large(struct entry *e, size_t size)
{
    struct entry was = *e;
    void *p = mremap((void *)was.key, was.size, size, MREMAP_MAYMOVE);
    if (p == MAP_FAILED)
        return NULL;
    h.mapped += size - was.size;
    if ((uintptr_t)p == was.key) {
        e->size = size;
    } else {
        h.table_used++; /* so that the table is not given back between the two */
        take_out(e);
        h.table_used--;
        put_entry((uintptr_t)p, size);
    }
    return p;
}

/* ---- what others call ---- */

static void *heap_take(size_t size, size_t align, bool zeroed)
{
    if (size > SIZE_MAX / 4) {
        errno = ENOMEM;
        return NULL;
    }
    bool small = size <= SMALL_MAX && align <= STEP;
    (void)pthread_mutex_lock(&h.mutex);
    void *p =
        small ? take_piece(class_of(size)) : take_large(round_to_pages(size + (size == 0)), zeroed);
    (void)pthread_mutex_unlock(&h.mutex);
    if (!p)
        errno = ENOMEM;
    else if (small && zeroed)
        memset(p, 0, size);
    return p;
}

void *heap_alloc(size_t size)
{
    return heap_take(size, STEP, /* zeroed= */ false);
}

void *heap_zalloc(size_t count, size_t size)
{
    size_t whole;
    if (__builtin_mul_overflow(count, size, &whole)) {
        errno = ENOMEM;
        return NULL;
    }
    return heap_take(whole, STEP, /* zeroed= */ true);
}

void *heap_aligned(size_t align, size_t size)
{
    if (align & (align - 1) || align > PAGE) {
        errno = EINVAL;
        return NULL;
    }
    return heap_take(size, align, /* zeroed= */ false);
}

bool heap_free(void *p)
{
    int saved = errno;
    (void)pthread_mutex_lock(&h.mutex);
    struct entry *e = (uintptr_t)p % PAGE == 0 ? find_entry((uintptr_t)p) : NULL;
    struct span *s = e ? NULL : span_of(p);
    if (e)
        give_large(e);
    else if (s)
        give_piece(s, p);
    if (h.regions == NULL && h.spare_bytes)
        drop_spares();
    (void)pthread_mutex_unlock(&h.mutex);
    errno = saved;
    return e || s;
}

static size_t size_locked(void *p)
{
    struct entry *e = (uintptr_t)p % PAGE == 0 ? find_entry((uintptr_t)p) : NULL;
    struct span *s = e ? NULL : span_of(p);
    return e ? e->size : s ? size_of(s->class) : 0;
}

size_t heap_size(void *p)
{
    (void)pthread_mutex_lock(&h.mutex);
    size_t size = size_locked(p);
    (void)pthread_mutex_unlock(&h.mutex);
    return size;
}

void *heap_resize(void *old, size_t size)
{
    if (size > SIZE_MAX / 4) {
        errno = ENOMEM;
        return NULL;
    }
    (void)pthread_mutex_lock(&h.mutex);
    struct entry *e = (uintptr_t)old % PAGE == 0 ? find_entry((uintptr_t)old) : NULL;
    size_t had = size_locked(old);
    bool large = e && size > SMALL_MAX;
    void *p = large ? resize_large(e, round_to_pages(size)) : NULL;
    (void)pthread_mutex_unlock(&h.mutex);
    if (large || (size <= had && size > had / 2)) {
        errno = large && !p ? ENOMEM : errno;
        return large ? p : old;
    }
    p = heap_alloc(size);
    if (!p)
        return NULL;
    memcpy(p, old, size < had ? size : had);
    (void)heap_free(old);
    return p;
}

size_t heap_mapped(void)
{
    (void)pthread_mutex_lock(&h.mutex);
    size_t mapped = h.mapped;
    (void)pthread_mutex_unlock(&h.mutex);
    return mapped;
}

/* A region is one mapping of which free spans are no entries; but they have no pages either, or
 * only DIRTY_MAX of them. */
size_t heap_resident(void)
{
    size_t sum = 0;
    (void)pthread_mutex_lock(&h.mutex);
    for (const struct span *r = h.regions; r; r = r->next_region)
        sum += proc_resident(r, SPAN * SPANS);
    for (size_t i = 0; i < h.table_size; i++)
        if (h.table[i].key && h.table[i].key % PAGE == 0)
            sum += proc_resident((const void *)h.table[i].key, h.table[i].size);
    for (size_t i = 0; i < SPARES; i++)
        if (h.spares[i].block.key)
            sum += proc_resident((const void *)h.spares[i].block.key, h.spares[i].block.size);
    sum += proc_resident(h.table, h.table_size * sizeof(struct entry));
    (void)pthread_mutex_unlock(&h.mutex);
    return sum;
}

void heap_trim(uint64_t passed_ns)
{
    (void)pthread_mutex_lock(&h.mutex);
    trim_spares(passed_ns);
    (void)pthread_mutex_unlock(&h.mutex);
}

void heap_fork_before(void)
{
    (void)pthread_mutex_lock(&h.mutex);
}

void heap_fork_after(void)
{
    (void)pthread_mutex_unlock(&h.mutex);
}
