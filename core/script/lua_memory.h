/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/lua_memory.h - the memory of one Lua state: mapped by itself, given back all at once.
 *
 * A state that is ended in the middle of something is not taken apart but thrown away whole, so
 * nothing of it may lie in the process's own heap; nor would its 64 MiB be welcome there.  Owner's
 * thread only, but for the sum of all scripts.
 *
 * Small blocks lie in slabs of one size each; a slab that is empty again serves another size.
 * Blocks need no head, because Lua tells the old size when it frees one:
 *
 *     chunk, 1 MiB:          | slab | slab | ... | a note of the chunk in its last bytes |
 *     slab, 128 KiB, at a multiple of that:  | struct slab | block | block | ... |
 *     large block, a mapping of its own:     | struct large | bytes |
 */
#ifndef CORE_SCRIPT_LUA_MEMORY_H
#define CORE_SCRIPT_LUA_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>

#define MEMORY_CLASSES 56

struct slab;
struct large;
struct memory_chunk;

struct memory {
    size_t used_bytes;                 /* of the blocks that are in use */
    _Atomic size_t mapped_bytes;       /* taken from the kernel for them; others may read it */
    _Atomic size_t *shared_bytes;      /* mapped by all scripts of the process */
    struct slab *open[MEMORY_CLASSES]; /* slabs of a size with room in them */
    struct slab *empty;
    struct memory_chunk *chunks;
    struct large *large;
};

void memory_init(struct memory *m, _Atomic size_t *shared_bytes);
void memory_done(struct memory *m); /* every block, whoever still holds it */

/* As lua_Alloc: a new block, another size, or (size 0) none any more.  NULL past a limit. */
void *memory_change(struct memory *m, void *old, size_t old_size, size_t size);

#endif
