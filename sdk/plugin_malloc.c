/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/plugin_malloc.c - malloc() of a plugin by the core's heap ("probing.memory/1").
 *
 * Link it with -Wl,--wrap= for each name below and call memory_take() first in init().  Any thread.
 * What came from libc's malloc (before init(), by open_memstream(), from an older core) goes back
 * there: each knows what is its own.
 */
#include "plugin_malloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void __real_free(void *p);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void __wrap_free(void *p);
char *__wrap_strdup(const char *text);

/* malloc() has no context.  Set once: the code behind it stays mapped. */
static _Atomic(const struct probing_memory_1 *) memory;

static const struct probing_memory_1 *get_memory(void)
{
    return atomic_load_explicit(&memory, memory_order_acquire);
}

void memory_set(const struct probing_memory_1 *m)
{
    const struct probing_memory_1 *none = NULL;
    if (m && m->size >= offsetof(struct probing_memory_1, resident))
        (void)atomic_compare_exchange_strong_explicit(&memory, &none, m, memory_order_acq_rel,
                                                      memory_order_acquire);
}

void *__wrap_malloc(size_t size)
{
    const struct probing_memory_1 *m = get_memory();
    return m ? m->alloc(size) : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    const struct probing_memory_1 *m = get_memory();
    return m ? m->zalloc(n, size) : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    const struct probing_memory_1 *m = get_memory();
    if (!p)
        return __wrap_malloc(size);
    return m && m->size_of(p) ? m->resize(p, size) : __real_realloc(p, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    const struct probing_memory_1 *m = get_memory();
    return m ? m->aligned(align, size) : __real_aligned_alloc(align, size);
}

void __wrap_free(void *p)
{
    const struct probing_memory_1 *m = get_memory();
    if (p && !(m && m->free(p)))
        __real_free(p);
}

char *__wrap_strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = __wrap_malloc(n);
    if (copy)
        memcpy(copy, text, n);
    return copy;
}
