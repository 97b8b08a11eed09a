/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/job.h - jobs and their ranks: which processes of this machine are ranks of which job, as
 * their environments say (torchrun, SLURM, Open MPI, PMI, Kubernetes' indexed jobs), and a rank as
 * a line of JSON.
 *
 * One thread.  0 or -errno with err_set().
 *
 *     ranks.c: lists of ranks, and their JSON     find_ranks.c: the ranks that run here
 *     ended_ranks.c: those that have ended and left data     place.c: an environment, read
 *     process_environment.c: the environment of a process, where its user may speak for it
 *     job_name.c: "NAME@USER"
 */
#ifndef CLI_JOB_JOB_H
#define CLI_JOB_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sdk/lib/buf.h"

#define MEMBER_UNKNOWN (-1) /* a rank that is not known */
#define JOB_NAME_BYTES 300

enum rank_state {
    RANK_ENTERED,     /* its core answers */
    RANK_NOT_ENTERED, /* it has none */
    RANK_STOPPED,     /* SIGSTOPped, or a debugger holds it */
    RANK_SILENT,      /* it has a core that does not answer, or says no */
    RANK_ENDED,       /* it does not run any more, and has left its data */
    RANK_NONE,        /* a line for a host: it has no rank, */
    RANK_UNREACHED,   /* could not be asked, */
    RANK_LEFT_OUT     /* or has ranks of another job */
};

/* A process and its place in a job.  Numbers: MEMBER_UNKNOWN; texts: "". */
struct rank {
    char host[256], job[JOB_NAME_BYTES];
    /* "torchrun", "slurm", "openmpi", "mpich", "pmi", "kubernetes", or "torch": RANK and WORLD_SIZE
     * only, as torch.distributed reads them. */
    char launcher[16];
    char role[32];               /* torchrun's ROLE_NAME */
    char master[JOB_NAME_BYTES]; /* where the ranks meet: "MASTER_ADDR:MASTER_PORT" */
    int64_t rank, world_size, node_rank, local_rank;
    int64_t local_size;             /* ranks of this node, whose numbers follow each other */
    int64_t restarts, max_restarts; /* of torchrun: so often it has started all anew because a rank
                                     * failed, and may */
    int64_t pid, parent;
    int64_t clock_offset_ns, clock_error_ns; /* its host's clock (UTC) minus ours, and how wrong
                                              * that may be */
    int64_t last_ns; /* UTC: of one that has ended, when it crashed or last wrote data */
    enum rank_state state;
    char version[48], why[700]; /* of its core; what there is to say about it */
    bool far;                   /* of a machine whose relay has named it */
};
#define RANK_UNKNOWN                                                                            \
    {                                                                                           \
        .rank = MEMBER_UNKNOWN, .world_size = MEMBER_UNKNOWN, .node_rank = MEMBER_UNKNOWN,      \
        .local_rank = MEMBER_UNKNOWN, .local_size = MEMBER_UNKNOWN, .restarts = MEMBER_UNKNOWN, \
        .max_restarts = MEMBER_UNKNOWN, .pid = MEMBER_UNKNOWN, .parent = MEMBER_UNKNOWN,        \
        .clock_error_ns = MEMBER_UNKNOWN, .last_ns = MEMBER_UNKNOWN                             \
    }

/* ---- ranks.c ---- */

struct ranks { /* of zeros at the beginning */
    struct rank *list;
    uint32_t n, room;
};

/* One more, of which nothing is known, until the next call; NULL: no memory, err_set() done. */
struct rank *ranks_add(struct ranks *r);
/* A line for a host, with why it is in that state. */
int ranks_add_host(struct ranks *r, const char *host, enum rank_state state, const char *why);
void ranks_done(struct ranks *r);
/* 0, or -EINVAL with err_set(): they are of several jobs, and none is named. */
int ranks_check_one_job(const struct ranks *r);
/* Find the job that `asked` (NULL: no name) names exactly, or the only one that they name, with the
 * least world size that is known; its name is "" where none names one.  -EINVAL with err_set():
 * several are named, and none is meant.  twice: two hosts claim the same rank, which of one job no
 * two have, so they must meet at one place. */
int ranks_find_job(const struct ranks *r, const char *asked, bool twice, struct rank *ret);
/* Is it of another job than that? */
bool rank_is_left_out(const struct rank *one, const struct rank *job);
/* Add the host of such a one, with the reason, where it is not there yet. */
int ranks_add_left_out(struct ranks *hosts, const struct rank *one, const struct rank *job);

const char *rank_state_name(enum rank_state state);
/* Write its members as JSON, without the braces and what only some users say. */
void rank_write(const struct rank *r, struct buf *b);
/* Read them, and "state", from an object: what is not there, or cannot be, is not known.  -EBADMSG:
 * the state is none of ours, which a line of `relay --list` has not. */
struct json;
int rank_read(const struct json *o, struct rank *ret);
/* Likewise from a line of `cluster status --json` or `relay --list`. */
int rank_read_line(const char *line, size_t size, struct rank *ret);
/* Write the hosts as `no_rank` and `not_reached`, and say them on stderr. */
void ranks_write_hosts(const struct ranks *hosts, struct buf *b);
void ranks_say_hosts(const struct ranks *hosts);

/* ---- place.c: an environment as /proc has it ---- */

/* Read a process's place in its job; what else is known of it stays. */
void rank_read_environment(const struct buf *environment, struct rank *ret);
/* The statement that asks a core for the variables that say it. */
void job_add_variables_statement(struct buf *ret);
/* Is it of a process of that job (NULL: of any), and which hosts does SLURM say that the job has
 * ("node[1-8],other", "")? */
bool job_is_named(const struct buf *environment, const char *name);
void job_read_nodes(const struct buf *environment, char *ret, size_t size);
/* The value of a variable; "": it is not there. */
const char *job_variable(const struct buf *environment, const char *name);

/* ---- process_environment.c ---- */

/* A process's environment as /proc has it, or, where a Python has set its rank itself since it
 * began (mp.spawn, Lightning), as it is now; and a NUL more, which counts.  Nothing but that NUL of
 * a process that has other rights than the user who started it (sdk/lib/proc/identity.h): who wrote
 * that environment may not speak for it.  0 or -errno, as apart_read(); caller buf_done()s either
 * way. */
#define JOB_ENVIRONMENT_BYTES ((size_t)8 << 20) /* Linux gives a program 6 MiB at most */
struct environment_source {
    uint32_t uid; /* whose word it is */
    bool late;    /* as it is now */
};
int job_read_environment(pid_t pid, struct buf *ret, struct environment_source *ret_source);
/* Add its environment as it is now, out of its memory: "NAME=VALUE" and a NUL for each variable;
 * nothing where the program has none of a libc.  0 or -errno with err_set(), as apart_run();
 * -EPERM: it may not be read, as by ptrace(2). */
int job_read_environment_now(pid_t pid, struct buf *ret);
/* The last part of its program's path; "" where it cannot be read. */
void job_read_program(pid_t pid, char *ret, size_t size);

/* ---- find_ranks.c ---- */

/* Find the ranks of that job on this machine, NULL: of any job of the user who asks; with a core or
 * without, and not its launcher, shell or data loaders.  `text` is "NAME", a job of the user who
 * asks, or "NAME@USER".  A job has one user: what others say of themselves is left out, and said on
 * stderr.  They are in order of job, then rank. */
int job_find_ranks(const char *text, struct ranks *ret);
/* The environment of this program itself, where it is in that job (NULL: any).  Caller buf_done()s
 * either way. */
bool job_of_asker(const char *text, struct buf *ret);
/* "job:4711 (4 ranks), job:sweep@alice (1 rank)": what runs on this machine; or that there is none.
 * How many jobs there are. */
uint32_t job_list(struct buf *ret);

/* ---- ended_ranks.c ---- */

/* Give fn the data of each rank of that job (as job_find_ranks() takes it) that has ended: of the
 * start whose ranks live, which are the n of the list, else of the last one. */
int job_find_ended(const char *text, const struct rank *living, uint32_t n,
                   int (*fn)(void *arg, const char *directory, const struct rank *ended),
                   void *arg);
/* "; data are left of job:sweep (2 ranks)", where ranks have ended; else nothing. */
void job_list_ended(struct buf *ret);
/* Read the place of a process that has ended from its data; nothing where it is not known. */
void rank_read_data(const char *directory, struct rank *ret);

/* ---- job_name.c ---- */

/* "NAME": a job of the user who asks; "NAME@USER", "NAME@#1000": that user's. */
struct job_meant {
    const char *name; /* borrowed from the text, or from `room`; NULL: any */
    uint32_t uid;
    char room[512];
};
void job_meant_read(const char *text, struct job_meant *ret); /* text may be NULL */
/* The name alone of such a text; "" for NULL. */
void job_name_of(const char *text, char *ret, size_t size);
/* Would a list of targets take this letter of a job's name for its own? */
bool job_name_is_marked(char c);
/* "job:NAME" as a list has it: a '\' before what of the name the list would take for its own. */
void job_add_target(struct buf *b, const char *name);
/* The name to write behind "job:" so that the job of that user is meant. */
void job_add_text(struct buf *b, const char *name, uint32_t uid);

/* Processes of other users that say that they are of the job. */
#define LEFT_OUT_USERS 4
struct job_left_out {
    struct left_out_user {
        uint32_t uid, processes;
        pid_t first;
    } users[LEFT_OUT_USERS];
    uint32_t n, more; /* more: processes of further users */
};
void job_leave_out(struct job_left_out *l, pid_t pid, uint32_t uid);
#define JOB_LEFT_OUT "left out, " /* how that line begins: child_say_left_out() looks for it */
/* On stderr, once a command; nothing where nobody was left out. */
void job_say_left_out(const struct job_left_out *l, const struct job_meant *meant);

#endif
