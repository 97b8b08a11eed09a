/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/arena.h - memory that is taken piece by piece and given back all at once.
 *
 * Owner's thread only.  Pieces are 16-byte aligned.  With a limit, arena_alloc() gives NULL past
 * it.  Several arenas, also of several threads, may share one budget.
 */
#ifndef SDK_LIB_ARENA_H
#define SDK_LIB_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct arena_block;

struct arena_budget {
    _Atomic size_t used_bytes;
    _Atomic size_t limit_bytes;
    _Atomic bool refused; /* an allocation was */
    /* Called by a thread that wants more than `limit`; true: it is higher now.  NULL: it stays. */
    bool (*raise)(struct arena_budget *b, size_t limit);
};

struct arena {
    struct arena_block *head;
    size_t used_bytes;           /* taken from malloc in all */
    size_t limit_bytes;          /* 0: none */
    struct arena_budget *budget; /* that of several arenas, lives longer than they; NULL: none */
};

void arena_init(struct arena *a, size_t limit_bytes);
void arena_init_in(struct arena *a, struct arena_budget *budget);
void arena_done(struct arena *a); /* frees every piece */

void *arena_alloc(struct arena *a, size_t size); /* NULL: no memory or over the limit */
void *arena_zalloc(struct arena *a, size_t count, size_t size); /* zeroed; NULL also on overflow */
char *arena_text(struct arena *a, const char *text, size_t n);  /* NUL-terminated copy */

#endif
