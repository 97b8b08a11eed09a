/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/stack_tree.h - the stacks of many ranks as one tree: what they share stands once, and
 * each branch names the ranks that are on it.
 *
 * One thread.  It holds what it was given, bounded: a rank that sends more is refused (-E2BIG).
 */
#ifndef CLI_HANG_STACK_TREE_H
#define CLI_HANG_STACK_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/buf.h"

#define STACK_TREE_FRAMES 16384              /* of one stack */
#define STACK_TREE_BYTES ((size_t)256 << 20) /* of one tree */

/* Two frames are one place when all three are the same.  Texts are copied. */
struct tree_frame {
    const char *func;
    const char *where; /* "loop.py:14", "libc.so.6"; "": not known */
};

struct stack_tree;
struct stack_tree *stack_tree_new(void); /* NULL: no memory */
void stack_tree_free(struct stack_tree *t);

/* Frames from the outermost in; state: what the thread does there, "waiting in futex".  Ranks come
 * in rising order, each once or, with several threads, several times in a row.  -E2BIG, -ENOMEM. */
int stack_tree_add(struct stack_tree *t, int64_t rank, const struct tree_frame *frames, size_t n,
                   const char *state);

/* Lines, each behind `indent` and what its depth adds.  `one`, `many`: "rank", "ranks". */
void stack_tree_print(const struct stack_tree *t, const char *indent, const char *one,
                      const char *many, struct buf *ret);

#endif
