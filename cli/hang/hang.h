/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang.h - `cluster hang`: what its parts share.
 *
 * Private to them; one thread.
 *
 *     hang.c: the command     hang_local.c: looks at the ranks of this machine
 *     hang_children.c: at what those wait for that have started it
 *     hang_json.c: what --json prints, and what another machine has printed
 *     hang_stacks.c, hang_judge.c: see hang_judge.h     hang_work.c: see hang_work.h
 */
#ifndef CLI_HANG_HANG_H
#define CLI_HANG_HANG_H

#include "cli/cluster/cluster.h"
#include "cli/hang/hang_judge.h"
#include "cli/hang/hang_work.h"
#include "cli/job/job.h"
#include "sdk/lib/buf.h"

struct hang_seen {
    struct hang_rank rank;
    struct buf stacks;      /* of the last look; empty: none has come */
    struct hang_work until; /* what it had done behind the last look, */
    int64_t still_since;    /* and when its main thread had run last before the first one */
    bool here, outside;     /* a process of this machine; it is read from outside */
    uint32_t claim;         /* of f->claims, by whom it was named */
};

struct hang_found {
    struct hang_seen *list; /* several hosts may claim the same rank */
    uint32_t n, room;
    struct ranks hosts;  /* that have none, could not be asked, or speak of another job */
    struct ranks claims; /* the job that each machine has answered for */
    struct rank job;     /* the one that is meant; its name is "" where nobody has named one */
    bool ranked;         /* each has a rank; else `rank` is its process */
    uint64_t span_ns;    /* from the first look to the last */
};

/* The ranks from `from` on are of the job that one machine has answered for. */
int hang_claim(struct hang_found *f, const struct rank *job, uint32_t from);
/* One more, of zeros but its numbers; NULL: no memory, err_set() done. */
struct hang_seen *hang_add(struct hang_found *f);
void hang_found_done(struct hang_found *f); /* of zeros, too */

/* Looks at those of this machine.  Those of others that o->targets names are asked there: fn gets
 * what they say, as cluster_ask_targets(). */
int hang_local(const struct cluster_options *o, struct hang_found *f,
               int (*fn)(void *arg, const char *host, const struct remote_run *run,
                         const char *why));

/* hang_children.c: of those that are in no collective, which process that they have started holds
 * them up, in `why`. */
int hang_children(const struct cluster_options *o, struct hang_seen *list, uint32_t n);

/* One value.  says, caution: the verdict in words, and where it may be wrong; "": nowhere. */
void hang_write(const struct cluster_options *o, const struct hang_found *f,
                const struct hang_verdict *v, const char *says, const char *caution, struct buf *b);
/* The ranks of such a value are added, all of `host`.  -EBADMSG with err_set(): then none is. */
int hang_read(const char *text, size_t size, const char *host, struct hang_found *f);

#endif
