/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/ext_memory.c - "probing.memory/1": the core's heap for plugins.
 *
 * Any thread may call what is offered; offering is for whoever makes the host.
 */
#include <probing/ext/draft/memory.h>

#include "core/base/heap.h"
#include "core/base/mmap_guard.h"
#include "core/plugin_host/internal.h"

static int free_ours(void *p)
{
    return heap_free(p);
}

static uint64_t resident(uint64_t *ret_files)
{
    *ret_files = mapped_resident();
    return heap_resident();
}

int memory_offer(struct host *h)
{
    static const struct probing_memory_1 part = {.size = sizeof(part),
                                                 .alloc = heap_alloc,
                                                 .zalloc = heap_zalloc,
                                                 .aligned = heap_aligned,
                                                 .resize = heap_resize,
                                                 .size_of = heap_size,
                                                 .free = free_ours,
                                                 .resident = resident};
    return host_extension_add(h, PROBING_MEMORY_1, &part);
}
