/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/run_many.h - a command on many other machines at once, and what each of them says, kept
 * within bounds.
 *
 * One thread.
 */
#ifndef CLI_LINK_RUN_MANY_H
#define CLI_LINK_RUN_MANY_H

#include "cli/link/link.h"

struct remote_run {
    uint32_t host;
    int argc;
    const char *const *argv; /* behind `probing`; borrowed */
    int error; /* below 0, with `why`: it is not to be run, or did not come to an end */
    char why[LINK_WHY];
    int status; /* its exit code, where error is 0 */
    struct buf out, err;
    /* Private. */
    struct link_run run;
    uint64_t deadline_ns;
    bool runs;
};

struct remote_limits {
    uint32_t at_once;
    uint64_t timeout_ns; /* of each, from when it is begun: to reach its host, too */
    size_t bytes;        /* that each may say, */
    size_t all_bytes;    /* and all of them */
};

/* Run them.  0, or -errno with err_set(): -ECANCELED, Ctrl-C. */
int remote_runs(struct remote_run *list, uint32_t n, const struct remote_limits *limits);
void remote_run_done(struct remote_run *r); /* of zeros, too */

#endif
