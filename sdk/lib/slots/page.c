/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/slots/page.c - whether a page may be written: asked from the kernel, or from a copy
 * of /proc/self/maps where it is older than 5.14.
 *
 * Any thread; pages_take() maps memory and reads /proc, page_is_writable() only looks.
 */
#include "sdk/lib/slots/page.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sdk/lib/proc/maps.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static uintptr_t page_size(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* Do what a write would do to a page, but for the write; an error where none is allowed. */
static bool populates_page(uintptr_t address)
{
    int saved = errno;
    uintptr_t size = page_size();
    bool done = madvise((void *)(address & ~(size - 1)), size, MADV_POPULATE_WRITE) == 0;
    errno = saved;
    return done;
}

static int grow_pages(struct pages *p)
{
    size_t room = p->room ? p->room * 2 : 1024;
    struct page_range *more = mmap(NULL, room * sizeof(*more), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more == MAP_FAILED)
        return -ENOMEM;
    if (p->n)
        memcpy(more, p->writable, p->n * sizeof(*more));
    if (p->writable)
        (void)munmap(p->writable, p->room * sizeof(*more));
    p->writable = more;
    p->room = room;
    return 0;
}

int pages_take(struct pages *ret)
{
    char room[PROC_MAPS_ROOM];
    struct proc_lines lines;
    struct proc_mapping m;
    uintptr_t here = (uintptr_t)room;

    *ret = (struct pages){.asks = populates_page(here)};
    if (ret->asks)
        return 0;
    int rc = proc_maps_open(&lines, getpid(), room, sizeof(room));
    if (rc < 0)
        return rc;
    while (rc == 0 && proc_maps_next(&lines, &m)) {
        if (!m.writable)
            continue;
        if (ret->n == ret->room)
            rc = grow_pages(ret);
        if (rc == 0)
            ret->writable[ret->n++] = (struct page_range){.start = m.start, .end = m.end};
    }
    if (rc == 0)
        rc = lines.error;
    proc_lines_close(&lines);
    return rc;
}

void pages_free(struct pages *p)
{
    if (p->writable)
        (void)munmap(p->writable, p->room * sizeof(*p->writable));
}

bool page_is_writable(const struct pages *p, uintptr_t address)
{
    if (p->asks)
        return populates_page(address);
    size_t low = 0, high = p->n;
    while (low < high) { /* they are in the order of addresses, as the kernel wrote them */
        size_t middle = low + (high - low) / 2;
        if (p->writable[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->n && address >= p->writable[low].start;
}
