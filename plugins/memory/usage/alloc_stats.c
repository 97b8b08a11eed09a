/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/alloc_stats.c - functions of allocators, found by their names.
 *
 * [worker].  No state.
 */
#include "alloc_stats.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/proc/lines.h"
#include "lib/proc/maps.h"
#include "lib/proc/memory.h"
#include "probing_sdk.h"

#define ARENA_BYTES \
    ((uint64_t)64 << 20) /* glibc's arenas but the first begin at a multiple of it */
#define ARENAS_ALL 4096  /* jemalloc's MALLCTL_ARENAS_ALL */

/* As glibc 2.33 has them; mallinfo() before that has ints. */
struct heap_info {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct old_heap_info {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

/* A function of that name, of the program's or of whatever stands before libc. */
static bool find_function(const char *name, void *ret_function)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(ret_function, &found, sizeof(found));
    return found != NULL;
}

/* ---- those that count ---- */

typedef int mallctl_fn(const char *name, void *old, size_t *old_size, void *new, size_t new_size);

static uint64_t jemalloc_number(mallctl_fn *mallctl, const char *name)
{
    size_t value = 0, size = sizeof(value);
    return mallctl(name, &value, &size, NULL, 0) == 0 ? value : ALLOC_UNKNOWN;
}

static bool ask_jemalloc(struct alloc_stats *ret)
{
    mallctl_fn *mallctl;
    uint64_t epoch = 1;
    size_t size = sizeof(epoch);
    if (!find_function("mallctl", &mallctl))
        return false;
    ret->name = "jemalloc";
    (void)mallctl("epoch", &epoch, &size, &epoch, size); /* its numbers are those of now */
    ret->used = jemalloc_number(mallctl, "stats.allocated");
    ret->held = jemalloc_number(mallctl, "stats.resident");
    if (ret->used == ALLOC_UNKNOWN)
        (void)snprintf(ret->why, sizeof(ret->why), "this jemalloc is built without statistics");
    return true;
}

static bool ask_tcmalloc(struct alloc_stats *ret)
{
    int (*number)(const char *name, size_t *value);
    size_t used = 0, heap = 0, given_back = 0;
    if (!find_function("MallocExtension_GetNumericProperty", &number))
        return false;
    ret->name = "tcmalloc";
    if (number("generic.current_allocated_bytes", &used))
        ret->used = used;
    (void)number("tcmalloc.pageheap_unmapped_bytes", &given_back);
    if (number("generic.heap_size", &heap))
        ret->held = heap > given_back ? heap - given_back : 0;
    return true;
}

static bool ask_mimalloc(struct alloc_stats *ret)
{
    void (*info)(size_t * elapsed, size_t * user, size_t * system, size_t * rss, size_t * peak_rss,
                 size_t * commit, size_t * peak_commit, size_t * faults);
    size_t n[7], commit = 0;
    if (!find_function("mi_process_info", &info))
        return false;
    ret->name = "mimalloc";
    info(&n[0], &n[1], &n[2], &n[3], &n[4], &commit, &n[5], &n[6]);
    ret->held = commit;
    (void)snprintf(ret->why, sizeof(ret->why), "mimalloc does not count what is in use");
    return true;
}

/* ---- glibc ---- */

/* Does one of its heaps lie there?  It begins with who it belongs to, the heap before, its size and
 * how much of that may be used (struct _heap_info of malloc/arena.c, 2.17 to 2.41).  A large block
 * of the program's begins with a zero. */
static bool is_heap(const struct proc_mapping *m)
{
    uint64_t head[4];
    return m->inode == 0 && m->path[0] == '\0' && m->writable && m->start % ARENA_BYTES == 0 &&
           m->end - m->start <= ARENA_BYTES &&
           proc_own_memory(m->start, head, sizeof(head)) == sizeof(head) && head[0] != 0 &&
           head[2] <= head[3] && head[3] == m->end - m->start;
}

/* Bytes that its arenas hold, read without a lock: the program's break, and mappings where it puts
 * arenas. */
static uint64_t arenas_held(void)
{
    char room[PROC_MAPS_ROOM];
    struct proc_lines l;
    struct proc_mapping m;
    uint64_t sum = 0;
    (void)proc_maps_open(&l, 0, room, sizeof(room));
    while (proc_maps_next(&l, &m))
        if (strcmp(m.path, "[heap]") == 0 || is_heap(&m))
            sum += m.end - m.start;
    proc_lines_close(&l);
    return sum;
}

static void walk_glibc(struct alloc_stats *ret)
{
    struct heap_info (*info)(void);
    struct old_heap_info (*old_info)(void);
    if (find_function("mallinfo2", &info)) {
        struct heap_info i = info();
        ret->used = i.uordblks + i.hblkhd;
        ret->held = i.arena + i.hblkhd;
    } else if (find_function("mallinfo", &old_info)) { /* below 2 GB, as walk_max says */
        struct old_heap_info i = old_info();
        ret->used = (uint64_t)(unsigned)i.uordblks + (unsigned)i.hblkhd;
        ret->held = (uint64_t)(unsigned)i.arena + (unsigned)i.hblkhd;
    }
}

static bool ask_glibc(uint64_t walk_max, struct alloc_stats *ret)
{
    const char *(*version)(void);
    uint64_t held = arenas_held();
    if (!find_function("gnu_get_libc_version", &version))
        return false;
    ret->name = "glibc";
    ret->held = held; /* without what has mappings of its own, which is all in use */
    if (held <= walk_max)
        walk_glibc(ret);
    else
        (void)snprintf(ret->why, sizeof(ret->why),
                       "glibc must walk its free lists for it, and who allocates waits: "
                       "probing memory --heap does, at %llu MB that it holds",
                       (unsigned long long)(held >> 20));
    return true;
}

void alloc_stats(uint64_t walk_max, struct alloc_stats *ret)
{
    uint64_t before = probing_clock_ns(CLOCK_MONOTONIC);
    *ret = (struct alloc_stats){.name = "unknown", .used = ALLOC_UNKNOWN, .held = ALLOC_UNKNOWN};
    if (!ask_jemalloc(ret) && !ask_tcmalloc(ret) && !ask_mimalloc(ret) && !ask_glibc(walk_max, ret))
        (void)snprintf(ret->why, sizeof(ret->why), "this allocator is not known to us");
    ret->took_ns = probing_clock_ns(CLOCK_MONOTONIC) - before;
}

int alloc_trim(void)
{
    mallctl_fn *mallctl;
    void (*release)(void);
    void (*collect)(bool force);
    int (*trim)(size_t pad);
    char name[32];
    (void)snprintf(name, sizeof(name), "arena.%d.purge", ARENAS_ALL);
    if (find_function("mallctl", &mallctl))
        return mallctl(name, NULL, NULL, NULL, 0) == 0 ? 0 : -ENOSYS;
    if (find_function("MallocExtension_ReleaseFreeMemory", &release))
        return release(), 0;
    if (find_function("mi_collect", &collect))
        return collect(true), 0;
    if (find_function("malloc_trim", &trim))
        return (void)trim(0), 0;
    return -ENOSYS;
}
