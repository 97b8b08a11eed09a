/* SPDX-License-Identifier: Apache-2.0
 *
 * core/compat/shared_mappings.c - which memory of the process is a file of ours, so that a forked
 * child has none of it.
 *
 * Threads: any.  The linker sends every mmap(), munmap() and mremap() of libprobing.so here
 * (core/SConscript), those of LMDB too.
 *
 * A child replaces each by memory of its own: what code of ours a hook may still run there reads
 * zeros and writes to nobody, and the parent's files are not held.  A fork may come between any two
 * instructions, so an address is noted before the file is mapped there, and forgotten when it is
 * mapped no more but the address is still ours: a child never replaces what is the program's.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "core/guest/own_descriptors.h"

#define NOTED 64 /* a core has three or four, and two for each ended process that is looked at */

#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t size);
void *__real_mremap(void *at, size_t size, size_t new_size, int flags, ...);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t size);
void *__wrap_mremap(void *at, size_t size, size_t new_size, int flags, ...);

static struct noted {
    _Atomic uintptr_t at; /* 0: free */
    _Atomic size_t size;  /* 0: nothing is mapped there yet, or any more */
} noted[NOTED];

static struct noted *find_mapping(const void *at)
{
    for (int i = 0; i < NOTED && at; i++)
        if (atomic_load_explicit(&noted[i].at, memory_order_acquire) == (uintptr_t)at)
            return &noted[i];
    return NULL;
}

/* The child keeps it if there is no room, as it keeps the program's own. */
static void note_mapping(const void *at, size_t size)
{
    struct noted *known = find_mapping(at);
    for (int i = 0; i < NOTED && !known; i++) {
        uintptr_t none = 0;
        if (atomic_compare_exchange_strong_explicit(&noted[i].at, &none, (uintptr_t)at,
                                                    memory_order_acq_rel, memory_order_relaxed))
            known = &noted[i];
    }
    if (known)
        atomic_store_explicit(&known->size, size, memory_order_release);
}

static void forget_mapping(struct noted *n)
{
    atomic_store_explicit(&n->size, 0, memory_order_release);
    atomic_store_explicit(&n->at, 0, memory_order_release);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (!(flags & MAP_SHARED) || (flags & MAP_ANONYMOUS))
        return __real_mmap(at, size, protection, flags, fd, offset);
    void *place = at;
    if (!(flags & MAP_FIXED))
        place = __real_mmap(at, size, PROT_NONE, RESERVED, -1, 0);
    if (place == MAP_FAILED)
        return MAP_FAILED;
    note_mapping(place, size);
    void *made = __real_mmap(place, size, protection, flags | MAP_FIXED, fd, offset);
    if (made == MAP_FAILED) {
        int why = errno;
        (void)__wrap_munmap(place, size);
        errno = why;
    }
    return made;
}

int __wrap_munmap(void *at, size_t size)
{
    struct noted *n = find_mapping(at);
    if (!n)
        return __real_munmap(at, size);
    (void)__real_mmap(at, size, PROT_NONE, RESERVED | MAP_FIXED, -1, 0);
    forget_mapping(n);
    return __real_munmap(at, size);
}

/* A fork waits meanwhile: the kernel moves it all at once, and the old address is anybody's. */
void *__wrap_mremap(void *at, size_t size, size_t new_size, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(args, void *) : NULL;
    va_end(args);
    struct noted *n = find_mapping(at);
    if (!n)
        return __real_mremap(at, size, new_size, flags, to);
    descriptor_begin();
    forget_mapping(n);
    void *made = __real_mremap(at, size, new_size, flags, to);
    if (made == MAP_FAILED)
        note_mapping(at, size);
    else
        note_mapping(made, new_size);
    descriptor_end_low();
    return made;
}

/* Shared with nobody but the child's own children.  Private memory would count as the child's data,
 * gigabytes of it: the kernel lets such a mapping replace another over RLIMIT_DATA, and the child's
 * next malloc() fails (mmap_region(), Linux 6.1). */
void shared_mappings_drop(void)
{
    const int how = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    for (int i = 0; i < NOTED; i++) {
        void *at = (void *)atomic_load_explicit(&noted[i].at, memory_order_relaxed);
        size_t size = atomic_load_explicit(&noted[i].size, memory_order_relaxed);
        if (at && size &&
            __real_mmap(at, size, PROT_READ | PROT_WRITE, how, -1, 0) ==
                MAP_FAILED) /* overcommit is forbidden */
            (void)__real_mmap(at, size, PROT_READ, RESERVED | MAP_FIXED, -1, 0);
        forget_mapping(&noted[i]);
    }
}
