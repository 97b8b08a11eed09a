/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/hook/wrappers.h - the functions that stand before the allocators', and what they
 * pass every call on to.
 *
 * Any thread, handlers too, at any moment: they may be called before hooks_in() has returned and
 * long after hooks_out(), by a thread that was on its way or through an address that the program
 * kept.  So whatever they were set to stays.
 */
#ifndef MEMORY_HOOK_WRAPPERS_H
#define MEMORY_HOOK_WRAPPERS_H

#include <stdint.h>

enum wrapper_kind {
    WRAPS_ALLOCATOR, /* malloc() and its family */
    WRAPS_REPEATED,  /* what libc's own makes out of calls of the family, which are seen there */
    WRAPS_CPLUSPLUS, /* operator new and delete: seen below, unless the allocator has its own */
    WRAPS_MAPPING,   /* mmap() and its family */
    WRAPS_LOADER     /* dlsym(): after dlopen() it is the first to know of new objects */
};

struct wrapper {
    const char *name;
    uintptr_t ours;          /* address of our function */
    _Atomic uintptr_t *real; /* of what it passes on to; 0: not found, so no slot is written */
    enum wrapper_kind kind;
};

extern const struct wrapper wrappers[];
extern const uint32_t wrappers_n;

/* New objects may have come; called by a thread of the program.  errno stays as it is. */
void wrappers_on_lookup(void (*fn)(void));

#endif
