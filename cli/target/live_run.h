/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/live_run.h - commands of a process that answers: words go there, and the
 * answer goes to stdout as it comes.
 *
 * One thread.
 */
#ifndef CLI_TARGET_LIVE_RUN_H
#define CLI_TARGET_LIVE_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct probing_client;
struct probing_client_event;
struct target;

/* Ask the live target: words as they are, the answer to stdout.  Gives the command's status. */
int live_run(const struct target *t, int argc, const char *const *argv);
/* The same of a command whose answer nobody wants; -EIO, with the answer, when it has failed. */
int live_tell(const struct target *t, int argc, const char *const *argv);
/* The same of a command whose answer is a list, as "config list": it fits a terminal, and with
 * --json it is what `sql` selects. */
int live_list(const struct target *t, int argc, char **argv, const char *sql);

/* ---- what comes until it ends ---- */

/* One command, its answer, its status. */
struct live_stream {
    int64_t ids[3]; /* what was started; the status of the first is the result */
    int status;
    bool people; /* read it: its lines are made to fit the terminal */
    bool whole;  /* it was said that each answer is whole */
                 /* Takes what a followed script publishes.  1: there is no more. */
    int (*on_published)(struct live_stream *s, const struct probing_client_event *e);
    void *arg;
    bool starts; /* its first answer says that it runs, and is not shown */
    bool ended;
};

/* Reads what comes until all that was started has ended.  Gives the status of ids[0]. */
int live_stream_follow(struct probing_client *c, struct live_stream *s);

#endif
