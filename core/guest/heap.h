/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/heap.h - memory of our own, so that the program's allocator never hears of us.
 *
 * libprobing.so and the libraries in it take all their memory here (core/compat/malloc.c): glibc
 * makes an arena of 64 MiB of address space for each thread that calls malloc(), and raises its
 * threshold for mmap() for good when something large is freed.  What is freed here goes back to the
 * kernel.  Any thread; never [signal].
 */
#ifndef CORE_GUEST_HEAP_H
#define CORE_GUEST_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 16-byte aligned; NULL with errno ENOMEM. */
void *heap_alloc(size_t size);
void *heap_zalloc(size_t count, size_t size);
void *heap_aligned(size_t align, size_t size); /* a power of two, at most a page */
/* NULL: no memory, and `old` is as it was.  `old` is of this heap. */
void *heap_resize(void *old, size_t size);

/* false: it is not of this heap, and nothing was done. */
bool heap_free(void *p);
size_t heap_size(void *p); /* usable bytes; 0: not of this heap */

/* Mapped just now, in bytes. */
size_t heap_mapped(void);

/* The resident part of that: it costs a look at each page of it, with the heap locked. */
size_t heap_resident(void);

/* To be called every few seconds, `passed_ns` after the last time: gives back the large blocks that
 * were freed since; of 1 MiB of them those that nobody has wanted for ten seconds. */
void heap_trim(uint64_t passed_ns);

/* Around fork(): nobody is in the heap meanwhile, so the child has a whole one. */
void heap_fork_before(void);
void heap_fork_after(void); /* on the thread that forked, in parent and child */

#endif
