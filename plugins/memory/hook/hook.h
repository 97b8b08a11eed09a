/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/hook/hook.h - our functions in place of the allocators', in every loaded object.
 *
 * The slots through which objects call malloc() and its family (R_*_JUMP_SLOT, _GLOB_DAT, _64) are
 * written over while the program runs, and written back.  What is ours, the dynamic linker and the
 * allocators themselves stay as they are.  Code of ours that a thread may stand in stays mapped.
 *
 * [control] unless said otherwise.
 */
#ifndef MEMORY_HOOK_HOOK_H
#define MEMORY_HOOK_HOOK_H

#include <probing/plugin.h>
#include <stdint.h>

struct hooks;

struct hooks_about {
    uint32_t objects, slots; /* that are patched now */
    const char *allocator;   /* "glibc", "jemalloc", "tcmalloc", "mimalloc", or a file's name */
    const char *unseen;      /* what cannot be seen here, one line; "": nothing is known */
};

/* Put them in; what is loaded later gets them at the next hooks_look().  0, or -errno after fail():
 * then nothing is changed. */
int hooks_in(const struct probing_host *host, struct hooks **ret);
/* Objects that came since get theirs.                                              [worker] */
void hooks_look(struct hooks *h);
/* All slots are as they were; h is free.  Threads may still stand in our code. */
void hooks_out(struct hooks *h);
void hooks_about(struct hooks *h, struct hooks_about *ret);
/* The slots stay as they are, and our functions pass everything on.                  [child] */
void hooks_forked(void);

#endif
