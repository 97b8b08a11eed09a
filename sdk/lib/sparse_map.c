/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/sparse_map.c - mapped where nothing may be touched, unlocked, and only then opened.
 *
 * Locked pages are made when they are mapped, or when they may first be written (mm_populate() and
 * mprotect_fixup(), Linux 6.1): a mapping that is no longer locked by then stays empty.
 */
#define _GNU_SOURCE
#include "sdk/lib/sparse_map.h"

#include <errno.h>
#include <sys/mman.h>

static void *map_pages(int fd, size_t size, int protection, int flags)
{
    void *at = mmap(NULL, size, PROT_NONE, flags | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED)
        return NULL;
    (void)munlock(at, size);
    if (mprotect(at, size, protection) == 0)
        return at;
    int why = errno;
    (void)munmap(at, size);
    errno = why;
    return NULL;
}

void *sparse_map(size_t size)
{
    return map_pages(-1, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
}

void *sparse_map_file(int fd, size_t size, int protection)
{
    return map_pages(fd, size, protection, MAP_SHARED);
}

int sparse_map_again(void *at, size_t size, int fd)
{
    void *made = fd == -1 ? sparse_map(size) : sparse_map_file(fd, size, PROT_READ | PROT_WRITE);
    if (!made)
        return -errno;
    if (mremap(made, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at)
        return 0;
    int rc = -errno;
    (void)munmap(made, size);
    return rc;
}
