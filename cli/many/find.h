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
/* Every process of the job of that name, and the data of its ranks that have ended. */
int find_add_job(struct find *f, const char *name);
/* Put them in order of rank, and find out how to call them. */
int members_sort(struct members *m);

#endif
