/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/run_each.h - a command on each of many members, as if it were called once for each: in a
 * child of its own, so that one that waits or hangs is nobody else's trouble.
 *
 * One thread.
 */
#ifndef CLI_MANY_RUN_EACH_H
#define CLI_MANY_RUN_EACH_H

#include "cli/many/members.h"
#include "sdk/lib/buf.h"

struct each_run {
    const struct cli_command *command; /* NULL: one that the processes know */
    int argc;
    char **argv;
    uint32_t at_once;    /* children, 0: as many as make sense */
    uint64_t timeout_ns; /* for each, 0: what is usual for the command */
    const bool *only;    /* [members->n] who; NULL: all */
    /* NULL: what they print is shown.  Else it goes here, of each as it ends; its result says how.
     * Less than 0 ends all. */
    int (*done)(void *arg, const struct member *m, struct buf *out);
    void *arg;
};

/* May it be run on several?  0, or -EINVAL with what to do instead. */
int each_check(const struct each_run *run);
/* Does it go on until somebody stops it?  Then its lines come as they are, with whose they are. */
bool each_flows(const struct each_run *run);
/* Run it on each.  Output comes in the order of the list, equal answers once.  Results stand in the
 * members.  0, EXIT_USAGE when the words were wrong, or -errno: -ECANCELED, Ctrl-C. */
int each_member(struct members *m, const struct each_run *run);

#endif
