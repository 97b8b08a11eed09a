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
#include <stdint.h>

#include "cli/cli.h"
#include "sdk/lib/arena.h"

#define MEMBERS_MAX 16384 /* more are a mistake: 'host[1-99999999]' */
#define MEMBER_WHY_BYTES 400
#define MEMBER_UNKNOWN (-1) /* a rank that is not known */

/* Its place: the columns _host, _addr, _rank, _node_rank, _local_rank and _role of `global.*`.  Of
 * a process of this machine by its environment; else see members_identify(). */
struct member_tags {
    char host[64];                       /* "": not known */
    char addr[300];                      /* what to give -t for this one alone */
    int64_t rank, node_rank, local_rank; /* MEMBER_UNKNOWN */
    char role[32];                       /* torchrun's ROLE_NAME; "": not known */
    char job[128];                       /* by which it was found, or that it is of; "": none */
};

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
    struct target target; /* `text` is the members' */
    const char *name;     /* as it is called to users: "4242", "node3:9922", a directory */
    int error;            /* it cannot be asked: found while looking for it; 0 */
    struct member_tags tags;
    struct member_clock asked;   /* of one behind TCP: its clock minus ours, as it has said */
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
/* "job:NAME" as a list has it: a '\' before what of the name the list would take for its own. */
struct buf;
void members_add_job(struct buf *b, const char *name);
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

/* A process's environment as /proc has it, or, where a Python has set its rank itself since it
 * began (mp.spawn, Lightning), as it is now; and a NUL more, which counts.  Nothing but that NUL of
 * a process that has other rights than the user who started it (sdk/lib/proc/identity.h): who wrote
 * that environment may not speak for it.  0 or -errno, as apart_read(); caller buf_done()s either
 * way. */
struct buf;
#define FIND_ENVIRONMENT_BYTES ((size_t)8 << 20) /* Linux gives a program 6 MiB at most */
struct find_source {
    uint32_t uid; /* whose word it is */
    bool late;    /* as it is now */
};
int find_environment(pid_t pid, struct buf *ret, struct find_source *ret_source); /* NULL: any */
/* The last part of its program's path; "" where it cannot be read. */
void find_program(pid_t pid, char *ret, size_t size);

/* ---- job.c ---- */

/* fn gets each rank of that job on this machine, NULL: of any job of the user who asks; with a core
 * or without, and not its launcher, shell or data loaders.  `text` is "NAME", a job of the user who
 * asks, or "NAME@USER".  A job has one user: what others say of themselves is left out, and said on
 * stderr.  What fn gives below 0 ends it. */
int job_each(const char *text, int (*fn)(void *arg, pid_t pid), void *arg);
/* The environment of this program itself, where it is in that job (NULL: any).  Caller buf_done()s
 * either way. */
bool job_of_asker(const char *text, struct buf *ret);
/* The name alone of such a text; "" for NULL. */
void job_name_of(const char *text, char *ret, size_t size);
/* The control port of MPICH's launcher on each machine, "node1:32893", names a job that has no
 * other name; "": its parent is none. */
void job_proxy(pid_t parent, char *ret, size_t size);

/* "job:4711 (4 ranks), job:sweep@alice (1 rank)": what runs on this machine; or that there is none.
 * How many jobs there are. */
uint32_t job_list(struct buf *ret);

/* ---- job_dead.c ---- */

struct job_living { /* a rank of that job which runs */
    pid_t pid;
    int64_t rank;
};
/* fn gets the data of each rank of that job (as job_each() takes it) that has ended: of the start
 * whose ranks live, else of the last one. */
int job_each_dead(const char *text, const struct job_living *living, uint32_t n,
                  int (*fn)(void *arg, const char *directory, int64_t pid), void *arg);
/* "; data are left of job:sweep (2 ranks)", where ranks have ended; else nothing. */
void job_list_dead(struct buf *ret);
/* Give the variables of its environment that its core kept, as /proc has them; nothing where they
 * are not known.  Made here: caller buf_done()s. */
void dead_environment(const char *directory, struct buf *ret);

/* ---- clocks.c ---- */

/* Find the clocks of all of them, [m->n].  A clock that cannot be known is not. */
void members_clocks(const struct members *m, struct member_clock *ret);
/* A process of this machine, living or dead: its clock minus the machine's as it is now.  -ENODATA:
 * it is of another machine, boot or time namespace, or does not say. */
int member_clock_step(const struct target *t, int64_t *ret_ns);

/* ---- place.c ---- */

/* The tags of a process by its environment, as /proc shows it: torchrun, SLURM, Open MPI, PMI, and
 * Kubernetes' indexed jobs. */
/* The statement that asks a core for the variables that these are. */
void member_place_statement(struct buf *ret);
void member_place(const char *environment, size_t size, struct member_tags *ret);
/* SLURM's srun has started it itself, and no mpirun or torchrun that stands between. */
bool place_is_by_srun(const char *environment, size_t size);

#endif
