/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/memory.h - "probing.memory/1", by the core: memory that the program's allocator
 * does not hear of.  There before init(); valid for the life of the process.
 *
 * A plugin whose threads call malloc() leaves an arena of glibc's behind for each (64 MiB of
 * address space); sdk/plugin_malloc.c sends all its malloc() here.
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_MEMORY_H
#define PROBING_EXT_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <probing/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_MEMORY_1 "probing.memory/1"

/* Each as its namesake in C; errno is set.                                         [any] */
struct probing_memory_1 {
    uint32_t size, reserved;
    void *(*alloc)(size_t size);
    void *(*zalloc)(size_t n, size_t size);
    void *(*aligned)(size_t align, size_t size); /* align: at most 4096 */
    void *(*resize)(void *old, size_t size);     /* old: from here */
    size_t (*size_of)(void *p);                  /* usable bytes; 0: not from here */
    int (*free)(void *p);                        /* 0: not from here, nothing was done */
    /* How much of the process's resident memory is probing's own: this heap, and in *ret_files the
     * files that it keeps rows in, as far as they are mapped and resident.  Not its code, nor what
     * plugins have mapped themselves.  It costs some microseconds for each MB.  NULL where `size`
     * ends before it. */
    uint64_t (*resident)(uint64_t *ret_files);
};

#ifdef __cplusplus
}
#endif
#endif
