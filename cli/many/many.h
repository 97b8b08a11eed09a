/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/many.h - a command with several targets: `probing -t all query ...`.
 *
 * One thread.
 */
#ifndef CLI_MANY_MANY_H
#define CLI_MANY_MANY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct answer_ask;
struct target;
struct cli_command;

/* The options between the targets and the command. */
struct many_options {
    uint32_t at_once;    /* --at-once; 0: not given */
    uint64_t timeout_ns; /* --timeout; 0: not given */
};
/* Take those words away; 0 or -EINVAL. */
int many_options_take(int *argc, char ***argv, struct many_options *ret);

/* Does it ask for `global.*`?  Of one target, too, that is answered here: as of a job of one. */
bool many_asks_all(const struct cli_command *c, int argc, char *const *argv);
/* One statement of all that `t` names as they are now: as its `answer` and `answer_global`. */
int many_answer(const struct target *t, const struct answer_ask *ask,
                int (*fn)(void *arg, const char *data, size_t size), void *arg);
/* Run a command on all that `text` names; c: NULL, it is one that the processes know.  The exit
 * code is EXIT_FAILED when one of them failed. */
int many_run(const char *text, const struct many_options *o, const struct cli_command *c, int argc,
             char **argv);

#endif
