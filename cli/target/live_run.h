/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/live_run.h - one command of a living core, asked with words.
 *
 * One thread.
 */
#ifndef CLI_TARGET_LIVE_RUN_H
#define CLI_TARGET_LIVE_RUN_H

struct target;

/* Ask the live target: words as they are, the answer to stdout.  Gives the command's status. */
int live_run(const struct target *t, int argc, const char *const *argv);
/* The same of a command whose answer nobody wants; -EIO, with the answer, when it has failed. */
int live_tell(const struct target *t, int argc, const char *const *argv);

#endif
