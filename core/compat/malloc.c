/* SPDX-License-Identifier: Apache-2.0
 *
 * core/compat/malloc.c - each malloc() in libprobing.so, of the libraries in it too, is our heap's.
 *
 * Threads: any.  Part of libprobing.so only, by --wrap (core/SConscript); not where a sanitizer
 * looks after malloc().  What libc itself allocates for its caller (asprintf, getline, scandir,
 * realpath with NULL) is the program's, and none of it is called (tests/meta/test_product.py).
 * libc's qsort() and opendir() are here because they call malloc(), with megabytes and 32 KiB.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/heap.h"

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
static void merge(const struct sorting *s, const char *from, size_t n_a, size_t n_b, char *to)
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
            merge(&s, from + at * size, n_a, rest < run ? rest : run, to + at * size);
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

/* ---- directories ---- */

/* readdir()'s struct dirent is getdents64(2)'s. */
struct __dirstream {
    int fd;
    int64_t at, end;
    uint64_t block[1024];
};

DIR *__wrap_fdopendir(int fd);
DIR *__wrap_opendir(const char *path);
struct dirent *__wrap_readdir(DIR *d);
int __wrap_dirfd(DIR *d);
int __wrap_closedir(DIR *d);

DIR *__wrap_fdopendir(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == -1)
        return NULL;
    if (!S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return NULL;
    }
    DIR *d = heap_alloc(sizeof(*d));
    if (!d)
        return NULL;
    d->fd = fd;
    d->at = d->end = 0;
    return d;
}

DIR *__wrap_opendir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    DIR *d = fd == -1 ? NULL : __wrap_fdopendir(fd);
    if (fd != -1 && !d) {
        int saved = errno;
        (void)close(fd);
        errno = saved;
    }
    return d;
}

struct dirent *__wrap_readdir(DIR *d)
{
    if (d->at >= d->end) {
        d->at = 0;
        d->end = syscall(SYS_getdents64, d->fd, d->block, sizeof(d->block));
        if (d->end <= 0)
            return NULL;
    }
    struct dirent *e = (struct dirent *)(void *)((char *)d->block + d->at);
    d->at += e->d_reclen;
    return e;
}

int __wrap_dirfd(DIR *d)
{
    return d->fd;
}

int __wrap_closedir(DIR *d)
{
    int rc = close(d->fd);
    (void)heap_free(d);
    return rc;
}
