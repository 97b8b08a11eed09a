/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/side_commands.h - programs beside this one: several run at once, and what they say is
 * kept, within bounds.
 *
 * One thread.
 */
#ifndef CLI_CLUSTER_SIDE_COMMANDS_H
#define CLI_CLUSTER_SIDE_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/many/child.h"
#include "sdk/lib/buf.h"

#define SIDE_OUTPUT_BYTES ((size_t)16 << 20) /* of one: what is more ends it */

struct side_command {
    char *const *argv; /* ends with NULL; argv[0] is looked for as a shell does; borrowed */
    struct buf out, err;
    int error;  /* 0: it ended by itself; -ETIMEDOUT, -EMSGSIZE, -ECANCELED, or why it never ran */
    int status; /* as waitpid() gave it, where error is 0 */
    /* Private. */
    struct child child;
    uint64_t deadline_ns, told_ns;
    bool ended;
};

/* Run them, `at_once` at most at any moment, each for at most timeout_ns; standard input is empty.
 * None is left behind: they end with this process, and on Ctrl-C.  0 or -errno with err_set(). */
int side_commands_run(struct side_command *list, uint32_t n, uint32_t at_once, uint64_t timeout_ns);
void side_command_done(struct side_command *c); /* of zeros, too */

/* Say what is wrong with one that ran, in its own words where it has said some; "": nothing. */
void side_command_why(struct side_command *c, uint64_t timeout_ns, char *ret, size_t size);

#endif
