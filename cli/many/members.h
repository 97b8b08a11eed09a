/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/members.h - several processes at once: who stands behind `-t 12,13`, `-t all`,
 * `-t job:NAME`, `-t 'host[1-8]'`.
 *
 * A member is one process that is asked, or what is left of a dead one; a rank is a member that has
 * a place in a job.  One thread.  0 or -errno with err_set().
 */
#ifndef CLI_MANY_MEMBERS_H
#define CLI_MANY_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/job/job.h"
#include "cli/target/remote_target.h"
#include "cli/target/target.h"
#include "sdk/lib/arena.h"

struct buf;
struct probing_client;

#define MEMBERS_MAX 16384 /* more are a mistake: 'host[1-99999999]' */
#define MEMBER_WHY_BYTES 400

/* The outcome of asking it. */
enum member_state {
    MEMBER_NOT_ASKED, /* also: it could not be, and `why` says so */
    MEMBER_ASKED,     /* it has not come to an end */
    MEMBER_ANSWERED,  /* whole */
    MEMBER_FAILED     /* `error` and `why` */
};

struct member_result {
    enum member_state state;
    int error;
    char why[MEMBER_WHY_BYTES]; /* one sentence, without the member's name */
    uint64_t rows, bytes, elapsed_ns;
    uint64_t lost;   /* rows that it has lost itself, as it says */
    bool truncated;  /* it has more rows than the limit */
    char empty[200]; /* why there are none, where it knows */
    char note[200];  /* what else there is to say of a whole answer; "": nothing */
};

#define MEMBER_CLOCK_MOST (INT64_MAX / 4) /* ns, 73 years: what is further off is no clock */
/* A member's times by our clock.  Its core reads the wall clock once and counts on from there: what
 * becomes of a machine's clock later moves none of its rows. */
struct member_clock {
    int64_t offset_ns; /* to be taken off its times.  0: none, or less than can be told */
    int64_t error_ns;  /* how far they may be from our clock then; MEMBER_UNKNOWN: not known, so
                        * nothing is taken off */
};

struct member {
    struct target target;      /* `text` is the members' */
    const char *name;          /* as it is called to users: "4242", "node3:9922", a directory */
    int error;                 /* it cannot be asked: found while looking for it; 0 */
    struct rank tags;          /* its place in a job: the columns _host, _rank ... of `global.*` */
    struct member_clock asked; /* of one behind TCP: its clock minus ours, as it has said */
    struct member_result result; /* of the last time */
};

struct members {
    struct member *list; /* in order of rank, then as they were named; each process once */
    uint32_t n;
    bool ranked;   /* all have ranks, and no two the same one: that is what to call them */
    bool any_rank; /* has one */
    struct arena mem;
    struct probing_client **kept; /* [n] of the question before; NULL: none */
    uint32_t n_kept;
};

/* Does the text name several, as lists and the words do, even if there is but one of them now?
 * A path ("/..." or "./...") that is there is one target; what merely lies here under such a name
 * is not asked. */
bool members_are_named(const char *text);
/* Find them.  One that cannot be used is in the list with the reason; that there is none at all is
 * an error, and so is a text that can mean nothing. */
int members_find(const char *text, struct members *ret);
/* The same, but no other machine is asked who is there: fn gets each host and what is meant there,
 * or why it cannot be tried, and what it gives below 0 ends it.  *ret may be empty then. */
struct members_there {
    struct remote_name name;
    uint32_t host; /* of link.h, where error is 0 */
    int error;
    const char *why;
};
int members_find_here(const char *text, int (*fn)(void *arg, const struct members_there *t),
                      void *arg, struct members *ret);
/* The ranks of one job that run here (NULL: of the only one), and the same as members that can be
 * asked: none where none runs. */
int members_find_job(const char *job, struct ranks *ret, struct members *ret_members);
void members_done(struct members *m); /* of zeros, too */
/* A connection for the next question, as its core pays for each: a thread that wakes, a handshake,
 * memory.  It has shaken hands, so that its token is of no more use.  false: no memory for it. */
bool members_keep(struct members *all, const struct member *m, struct probing_client *c);
struct probing_client *members_take_kept(struct members *all, const struct member *m); /* or NULL */
void members_hang_up(struct members *m);
/* Its result is that it failed: `rc` and its reason, in one line whatever was in it. */
void member_failed(struct member *m, enum member_state state, int rc);
/* "rank 3", or "process 4242" where they are not ranked, for sentences. */
const char *member_label(const struct members *all, const struct member *m, char *room, size_t n);
/* "0-3,7": the ranks, or names, of those that are `which`; of very many the first ones. */
void members_list(const struct members *all, const bool *which, struct buf *ret);

/* ---- clocks.c ---- */

/* Find the clocks of all of them, [m->n].  A clock that cannot be known is not. */
void members_clocks(const struct members *m, struct member_clock *ret);
/* A process of this machine, living or dead: its clock minus the machine's as it is now.  -ENODATA:
 * it is of another machine, boot or time namespace, or does not say. */
int member_clock_step(const struct target *t, int64_t *ret_ns);

#endif
