/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/plugin_malloc.h - a plugin whose malloc() is the core's heap, if it is linked with
 * plugin_malloc.c.
 */
#ifndef SDK_PLUGIN_MALLOC_H
#define SDK_PLUGIN_MALLOC_H

#include <probing/ext/draft/memory.h>

/* In plugin_malloc.c; where that is not linked (a test, a sanitizer) malloc() is what it was. */
__attribute__((weak, visibility("hidden"))) void memory_set(const struct probing_memory_1 *m);

/* The first thing in init().                                                   [control] */
static inline void memory_take(const struct probing_host *h)
{
    if (memory_set)
        memory_set((const struct probing_memory_1 *)h->extension(h, PROBING_MEMORY_1));
}

#endif
