/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/find.h - a list of members while it is made: what members.c, ranges.c and job.c share.
 *
 * Private to them; one thread.
 */
#ifndef CLI_MANY_FIND_H
#define CLI_MANY_FIND_H

#include "cli/many/members.h"

struct find {
    const char *text; /* all of what stands behind -t */
    struct members *found;
    uint32_t room;
    struct find_remote *remote; /* hosts that are to be asked who is there */
    uint32_t n_remote;
    uint32_t *slots; /* members by who they are; UINT32_MAX: free.  Of find_has(). */
    uint32_t n_slots, indexed;
};

/* One more, by what a user would write for it alone; one that is there already is not added twice.
 * What cannot be used is added with the reason. */
int find_add(struct find *f, const char *text);
/* "node[01-16,20]:9922", one for each number. */
int find_add_range(struct find *f, const char *text);
int find_each_of_range(struct find *f, const char *text, int (*fn)(void *arg, const char *name),
                       void *arg);
/* "ssh:node[1-8]/job:x": those who are there come with find_ask_remote(). */
int find_add_remote(struct find *f, const char *text);
int find_ask_remote(struct find *f);
/* Or, in their place, fn gets the hosts. */
int find_tell_remote(struct find *f, int (*fn)(void *arg, const struct members_there *t),
                     void *arg);
/* Room for one more, of zeros but its name; it counts when found->n is raised.  NULL: no memory. */
struct member *find_grow(struct find *f, const char *name);
int find_has(struct find *f, const struct target *t); /* 1, 0, or -ENOMEM */
/* Every process of the job of that name, and (job_dead.c) the data of its ranks that have ended;
 * before: where those that live begin in the list. */
int find_add_job(struct find *f, const char *name);
int find_add_dead(struct find *f, const char *name, uint32_t before);
/* Read the place of a process that has ended from its data. */
void dead_place(const char *directory, struct member_tags *ret);
/* An environment as /proc has it, ended by NUL: is it of a process of that job (NULL: of any), and
 * where do its ranks meet ("127.0.0.1:29500", "")? */
bool job_is_named(const struct buf *environment, const char *name);
void job_master(const struct buf *environment, char *ret, size_t size);

/* ---- job_user.c ---- */

/* "NAME": a job of the user who asks; "NAME@USER", "NAME@#1000": that user's. */
struct job_meant {
    const char *name; /* borrowed from the text, or from `room`; NULL: any */
    uint32_t uid;
    char room[512];
};
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
/* On stderr, once a command; nothing where nobody was left out. */
void job_say_left_out(const struct job_left_out *l, const struct job_meant *meant);

/* Put them in order of rank, and find out how to call them. */
int members_sort(struct members *m);

#endif
