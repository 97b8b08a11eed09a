/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang_waits.h - which rank waits for which, by what their operations are called with:
 * groups, pairs and tags.
 *
 * One thread; pure.
 */
#ifndef CLI_HANG_HANG_WAITS_H
#define CLI_HANG_HANG_WAITS_H

#include "cli/hang/hang_judge.h"

#define HANG_NOBODY UINT32_MAX

struct hang_waits {
    const struct hang_rank *ranks;
    size_t n;
    bool *waiting;    /* [n] the caller's: it stands in an operation */
    bool *awaited;    /* [n] some wait for it, and it is in no operation, stopped or gone */
    uint32_t *next;   /* [n] one that it waits for, such a one rather than one that waits itself;
                     * HANG_NOBODY: as far as the calls tell, all that it needs have come */
    uint32_t *path;   /* [n] for find_circle() */
    uint32_t *circle; /* [n] as in struct hang_verdict */
    uint32_t n_circles;
    bool tell; /* the calls tell more than that all wait for all */
};

/* Fill in what is not the caller's. */
void hang_waits_find(struct hang_waits *w);

struct hang_range {
    int64_t first, last, step;
};
/* Take the first range from "0-3,8-56/8"; false: there is none, or it is no range. */
bool hang_range_next(const char **text, struct hang_range *ret);

/* Does it send to one rank, or receive from one? */
bool hang_has_peer(const struct hang_rank *r);
/* Does it wait for a transfer that it began before?  With whom, its stack does not tell. */
bool hang_waits_for_transfer(const struct hang_rank *r);
bool hang_is_same_group(const struct hang_call *a, const struct hang_call *b);
bool hang_is_same_call(const struct hang_rank *a, const struct hang_rank *b);
bool hang_is_away(const struct hang_rank *r); /* in no operation, stopped or gone */

/* The last of a chain in which each waits for the next; HANG_NOBODY: it is a circle.
 * ret_steps: after how many. */
uint32_t hang_waits_end(const struct hang_waits *w, uint32_t from, uint32_t *ret_steps);

/* "recv(src=1, tag=0)", "all_reduce of group 2 (ranks 0-3)" */
void hang_call_print(const struct hang_rank *r, struct buf *ret);
/* "rank 0 waits in recv(src=1, tag=0) for rank 1, which waits in ..."  one: "rank" */
void hang_chain_print(const struct hang_waits *w, uint32_t from, const char *one, struct buf *ret);

#endif
