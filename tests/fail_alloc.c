/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fail_alloc.c - the allocator that fails on request, linked into every unit test.
 * Threads: any; the countdown is the calling thread's own.
 * It does not replace the allocator: what it lets through goes to the real one (or a sanitizer's).
 */
#include "tests/fail_alloc.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
int __real_posix_memalign(void **ret_p, size_t align, size_t size);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
int __wrap_posix_memalign(void **ret_p, size_t align, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t max);

static __thread unsigned countdown; /* 0: off; 1: the next one fails */
static __thread bool happened;

static bool fails(void)
{
    if (countdown == 0 || --countdown > 0)
        return false;
    happened = true;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(align, size);
}

int __wrap_posix_memalign(void **ret_p, size_t align, size_t size)
{
    return fails() ? ENOMEM : __real_posix_memalign(ret_p, align, size);
}

/* libc's own strdup would allocate behind our back. */
char *__wrap_strndup(const char *text, size_t max)
{
    size_t n = strnlen(text, max);
    char *copy = __wrap_malloc(n + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, n);
    copy[n] = 0;
    return copy;
}

char *__wrap_strdup(const char *text)
{
    return __wrap_strndup(text, strlen(text));
}

void fail_alloc_at(unsigned n)
{
    countdown = n;
    happened = false;
}

bool fail_alloc_happened(void)
{
    return happened;
}

bool fail_alloc_step(unsigned n)
{
    bool enough = n > 1 && !happened;
    fail_alloc_at(enough ? 0 : n);
    return !enough;
}
