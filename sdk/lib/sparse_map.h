/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/sparse_map.h - address space of which only what is touched becomes memory.
 *
 * mmap() alone makes all of it memory at once in a program that has its memory locked, what is to
 * come too (mlockall(MCL_FUTURE)): hundreds of megabytes that nobody uses, and perhaps its cgroup's
 * end.  The program's own mappings stay locked.  Any thread but a handler's; no state.
 */
#ifndef SDK_LIB_SPARSE_MAP_H
#define SDK_LIB_SPARSE_MAP_H

#include <stddef.h>

/* Zeros of our own, to be read and written.  NULL: errno says why.  Given back with munmap(). */
void *sparse_map(size_t size);
/* A file, shared; protection as for mmap(). */
void *sparse_map_file(int fd, size_t size, int protection);
/* The same in place of what is mapped at `at`, all of it at once, so that others may go on reading
 * and writing there; fd: -1: zeros.  0, or -errno, and what was there stays. */
int sparse_map_again(void *at, size_t size, int fd);

#endif
