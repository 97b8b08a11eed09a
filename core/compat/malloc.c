/* SPDX-License-Identifier: Apache-2.0
 *
 * core/compat/malloc.c - each malloc() in libprobing.so, of the libraries in it too, is our heap's.
 *
 * Threads: any.  Part of libprobing.so only, by --wrap (core/SConscript); not where a sanitizer
 * looks after malloc().  What libc itself allocates for its caller (asprintf, getline, scandir,
 * realpath with NULL) is the program's, and none of it is called (tests/meta/test_product.py).
 * libc's qsort() is here because it calls malloc(), with megabytes.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/guest/heap.h"

void __real_free(void *p);
void *__real_realloc(void *p, size_t size);
size_t __real_malloc_usable_size(void *p);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
int __wrap_posix_memalign(void **ret, size_t align, size_t size);
size_t __wrap_malloc_usable_size(void *p);
void __wrap_free(void *p);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t max);

void *__wrap_malloc(size_t size)
{
    return heap_alloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return heap_zalloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    if (!p)
        return heap_alloc(size);
    if (heap_size(p) == 0)
        return __real_realloc(p, size);
    return heap_resize(p, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return heap_aligned(align, size);
}

int __wrap_posix_memalign(void **ret, size_t align, size_t size)
{
    int saved = errno;
    void *p = heap_aligned(align, size);
    int rc = p ? 0 : errno;
    errno = saved;
    if (p)
        *ret = p;
    return rc;
}

size_t __wrap_malloc_usable_size(void *p)
{
    size_t size = p ? heap_size(p) : 0;
    return size || !p ? size : __real_malloc_usable_size(p);
}

void __wrap_free(void *p)
{
    if (p && !heap_free(p))
        __real_free(p);
}

char *__wrap_strndup(const char *text, size_t max)
{
    size_t n = strnlen(text, max);
    char *copy = heap_alloc(n + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

char *__wrap_strdup(const char *text)
{
    return __wrap_strndup(text, SIZE_MAX / 8);
}

/* ---- sorting ---- */

typedef int compare_with(const void *a, const void *b, void *arg);
typedef int compare(const void *a, const void *b);

struct plain {
    compare *compare;
};

void __real_qsort_r(void *base, size_t n, size_t size, compare_with *order, void *arg);
void __wrap_qsort_r(void *base, size_t n, size_t size, compare_with *order, void *arg);
void __wrap_qsort(void *base, size_t n, size_t size, compare *order);

struct sorting {
    size_t size;
    compare_with *compare;
    void *arg;
};

/* Two sorted runs that lie one behind the other in `from` become one in `to`; equal ones keep
 * their order. */
static void merge_runs(const struct sorting *s, const char *from, size_t n_a, size_t n_b, char *to)
{
    const char *a = from, *b = from + n_a * s->size;
    while (n_a && n_b) {
        bool first = s->compare(a, b, s->arg) <= 0;
        memcpy(to, first ? a : b, s->size);
        to += s->size;
        a += first ? s->size : 0;
        b += first ? 0 : s->size;
        n_a -= first;
        n_b -= !first;
    }
    memcpy(to, n_a ? a : b, (n_a + n_b) * s->size);
}

void __wrap_qsort_r(void *base, size_t n, size_t size, compare_with *order, void *arg)
{
    const struct sorting s = {size, order, arg};
    char *other = n > 1 ? heap_zalloc(n, size) : NULL;
    if (n > 1 && !other) {
        __real_qsort_r(base, n, size, order, arg); /* knows a way without memory */
        return;
    }
    char *from = base, *to = other;
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t at = 0; at < n; at += 2 * run) {
            size_t n_a = n - at < run ? n - at : run, rest = n - at - n_a;
            merge_runs(&s, from + at * size, n_a, rest < run ? rest : run, to + at * size);
        }
        char *merged = to;
        to = from;
        from = merged;
    }
    if (from != base)
        memcpy(base, from, n * size);
    (void)heap_free(other);
}

static int without_arg(const void *a, const void *b, void *arg)
{
    return ((const struct plain *)arg)->compare(a, b);
}

void __wrap_qsort(void *base, size_t n, size_t size, compare *order)
{
    struct plain plain = {order};
    __wrap_qsort_r(base, n, size, without_arg, &plain);
}
