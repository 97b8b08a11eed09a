/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/hang_judge.h - from several looks at the stacks of all ranks to who waits for whom.
 *
 * One look says little: a healthy rank stands in a collective, too, most of the time.  A rank that
 * stands in the same one at every look waits; one that is in none at any look is what the others
 * wait for.  Whoever changes between the two moves, and then nothing hangs.
 *
 * One thread.  What ranks send is checked: a rank can be wrong about itself only.
 */
#ifndef CLI_CLUSTER_HANG_JUDGE_H
#define CLI_CLUSTER_HANG_JUDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/cluster/stack_tree.h"
#include "sdk/lib/json.h"

#define HANG_OPERATION 64 /* bytes of a name */
#define HANG_PLACE 200

enum hang_state {
    HANG_UNSEEN,    /* no look at it has come */
    HANG_WAITS,     /* in `operation`, at every look */
    HANG_ELSEWHERE, /* in no operation of a group, at every look: in `place` the last time */
    HANG_MOVES      /* it was in one and then not, or in another */
};

struct hang_rank {
    int64_t rank; /* or its process, where ranks are not known */
    enum hang_state state;
    uint32_t looks; /* that have come */
    char operation[HANG_OPERATION];
    char place[HANG_PLACE];     /* "load  job.py:9" */
    char doing[HANG_OPERATION]; /* "idle in clock_nanosleep" */
};

struct hang_frames { /* which of the stacks' frames go into the tree */
    bool native, all_threads;
};

/* One answer of `backtrace --json`.  tree: NULL, or where the stack goes.  -EBADMSG: it is no such
 * answer; -ENODATA: it has no thread of the program; -E2BIG, -ENOMEM of the tree. */
int hang_look(struct hang_rank *r, const struct json *answer, const struct hang_frames *frames,
              struct stack_tree *tree);

/* The verdict in sentences, a line each.  one, many: "rank", "ranks". */
void hang_verdict(const struct hang_rank *ranks, size_t n, const char *one, const char *many,
                  struct buf *ret);
/* Those that others wait for: which[i], [n].  Gives how many. */
size_t hang_awaited(const struct hang_rank *ranks, size_t n, bool *which);

#endif
