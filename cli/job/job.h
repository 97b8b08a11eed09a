/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/job.h - which processes of this machine are ranks of which job, as their environments
 * say: torchrun, SLURM, Open MPI, PMI, Kubernetes' indexed jobs.
 *
 * One thread.  0 or -errno with err_set().
 *
 *     find_ranks.c: the ranks that run     ended_ranks.c: those that have ended and left data
 *     place.c: an environment, read as a place in a job     job_name.c: "NAME@USER"
 *     process_environment.c: the environment of a process, where its user may speak for it
 */
#ifndef CLI_JOB_JOB_H
#define CLI_JOB_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sdk/lib/buf.h"

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

/* ---- place.c ---- */

/* Read the place of a process from its environment, as /proc shows it. */
void member_place(const char *environment, size_t size, struct member_tags *ret);
/* The statement that asks a core for the variables that say it. */
void member_place_statement(struct buf *ret);
/* SLURM's srun has started it itself, and no mpirun or torchrun that stands between. */
bool place_is_by_srun(const char *environment, size_t size);

/* An environment as /proc has it, ended by NUL: is it of a process of that job (NULL: of any), and
 * where do its ranks meet ("127.0.0.1:29500", "")? */
bool job_is_named(const struct buf *environment, const char *name);
void job_master(const struct buf *environment, char *ret, size_t size);

/* ---- process_environment.c ---- */

/* A process's environment as /proc has it, or, where a Python has set its rank itself since it
 * began (mp.spawn, Lightning), as it is now; and a NUL more, which counts.  Nothing but that NUL of
 * a process that has other rights than the user who started it (sdk/lib/proc/identity.h): who wrote
 * that environment may not speak for it.  0 or -errno, as apart_read(); caller buf_done()s either
 * way. */
#define FIND_ENVIRONMENT_BYTES ((size_t)8 << 20) /* Linux gives a program 6 MiB at most */
struct find_source {
    uint32_t uid; /* whose word it is */
    bool late;    /* as it is now */
};
int find_environment(pid_t pid, struct buf *ret, struct find_source *ret_source); /* NULL: any */
/* The last part of its program's path; "" where it cannot be read. */
void find_program(pid_t pid, char *ret, size_t size);

/* ---- find_ranks.c ---- */

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

/* ---- ended_ranks.c ---- */

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

/* Read the place of a process that has ended from its data. */
void dead_place(const char *directory, struct member_tags *ret);
/* ---- job_name.c ---- */

/* "NAME": a job of the user who asks; "NAME@USER", "NAME@#1000": that user's. */
struct job_meant {
    const char *name; /* borrowed from the text, or from `room`; NULL: any */
    uint32_t uid;
    char room[512];
};
/* Would a list of targets take this letter of a job's name for its own? */
bool job_name_is_marked(char c);
/* "job:NAME" as a list has it: a '\' before what of the name the list would take for its own. */
void members_add_job(struct buf *b, const char *name);
void job_meant_read(const char *text, struct job_meant *ret); /* text may be NULL */
/* A name, and what to write behind "job:" so that the job of that user is meant. */
void job_add_user(struct buf *b, uint32_t uid);
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
