/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang_judge.h - from several looks at the stacks of all ranks to who waits for whom.
 *
 * One look says little: a healthy rank stands in a collective, too, most of the time.  A rank that
 * stands in the same one at every look, and whose thread was not woken in between, waits; one
 * that is in none at any look is what the others wait for, and so is one that is stopped or gone.
 * Where an operation's arguments are known, it waits for the ranks of its group, or for the one
 * that it sends to or receives from, and of those for the ones that are not in the same call.
 *
 * One thread.  What ranks send is checked: a rank can be wrong about itself only.
 */
#ifndef CLI_HANG_HANG_JUDGE_H
#define CLI_HANG_HANG_JUDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/hang/stack_tree.h"
#include "sdk/lib/json.h"

#define HANG_OPERATION 64 /* bytes of a name */
#define HANG_PLACE 400
#define HANG_WHY 400
#define HANG_STACK_BYTES ((size_t)1 << 20) /* of one rank's stacks: more are left out, and said */
#define HANG_GROUP 48
#define HANG_RANKS 100
#define HANG_UNKNOWN (-1)

enum hang_state {
    HANG_UNSEEN,    /* nothing is known of it: `why` */
    HANG_WAITS,     /* in `operation`, at every look */
    HANG_ELSEWHERE, /* in no operation of a group, at every look: in `place` the last time */
    HANG_MOVES,     /* it was in one and then not, or in another */
    HANG_STOPPED,   /* SIGSTOPped, or a debugger holds it; `place` where it could be read */
    HANG_GONE       /* its process has ended: `why` says how that is known */
};

/* The ranks that an operation is with, as its arguments tell. */
struct hang_call {
    bool known;
    char group[HANG_GROUP]; /* its name; "": the default group, of all ranks */
    char ranks[HANG_RANKS]; /* its ranks in the job: "0-3,8-56/8"; "": all */
    int64_t peer;           /* whom it sends to or receives from, or its root; HANG_UNKNOWN */
    int64_t tag;            /* HANG_UNKNOWN */
};

struct hang_rank {
    int64_t rank; /* or its process, where ranks are not known */
    int64_t pid;  /* HANG_UNKNOWN */
    int64_t tid;  /* of the thread that spoke for it at the last look, "its thread" below.  0: the
                   * main one; it is another where that only waits for others, and one of them is in
                   * a collective, or in the program's code */
    char host[64];
    enum hang_state state;
    uint32_t looks; /* that have come */
    /* Between the looks, in all: how often its thread began to run, for how long it has
     * computed (hang_work.h), what it has read and written.  HANG_UNKNOWN */
    int64_t woken, between_ns, busy_ns, bytes;
    int64_t ran_ns;   /* the same of its thread alone, to the nanosecond; HANG_UNKNOWN */
    int64_t still_ns; /* so long its thread has not run but for us, at least; HANG_UNKNOWN */
    char operation[HANG_OPERATION];
    bool by_python;             /* the operation is a Python function */
    struct hang_call call;      /* of the last look */
    char place[HANG_PLACE];     /* "load, job.py:9" */
    char doing[HANG_OPERATION]; /* "idle in clock_nanosleep" */
    char why[HANG_WHY];         /* "": nothing more is to be said */
};

/* One answer of `backtrace --json`.  stacks: NULL, or where its stacks go as one value of JSON
 * (hang_plant() reads it), innermost frame first, kept as they are where `brief` (an answer without
 * native frames) says the same as the look before; all_threads: not of its thread only.
 * -EBADMSG: it is no such answer; -ENODATA: it has no thread of the program; -E2BIG, -ENOMEM. */
int hang_look(struct hang_rank *r, const struct json *answer, bool all_threads, bool brief,
              struct buf *stacks);
/* Put such stacks into the tree.  python: without native frames, where there are others. */
int hang_plant(struct stack_tree *tree, int64_t rank, const struct json *stacks, bool python);

enum hang_answer { HANG_NO, HANG_YES, HANG_NOT_KNOWN };
struct hang_verdict {
    bool all; /* the caller's: there are no other ranks than those that are judged */
    enum hang_answer hangs;
    bool *awaited; /* [n] those that the others wait for, as far as the looks tell; the caller's */
    size_t n_awaited;
    uint32_t *circle; /* [n] number of the circle of ranks that wait for each other which it is in,
                       * from 1; 0: in none; the caller's */
    uint32_t n_circles;
    bool all_wait;     /* of those that were seen nobody is anywhere else */
    int64_t waited_ns; /* so long all that wait do so, at least; HANG_UNKNOWN */
    bool may_be_slow;  /* HANG_YES, but of no rank that is stopped or gone: a step that takes longer
                        * than they were seen to wait would look the same, or a collective */
};
/* Sentences, a line each, which is the groups of ranks first, then what follows from it.  What
 * ranks say stands in them with escapes: it must not look like a line of ours.  0, or -ENOMEM. */
int hang_judge(const struct hang_rank *ranks, size_t n, const char *one, const char *many,
               struct hang_verdict *v, struct buf *ret);

#endif
