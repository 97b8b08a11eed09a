/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/child.h - a function in a process of its own, what it prints caught: of a member whose
 * command may wait, hang or be killed without the others noticing.
 *
 * One thread.
 */
#ifndef CLI_MANY_CHILD_H
#define CLI_MANY_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "sdk/lib/buf.h"

struct child {
    pid_t pid;  /* 0: none; it leads a group of processes */
    int fds[2]; /* its standard output and error, not blocking; -1: closed */
    bool reaped;
    int status; /* as waitpid() gave it */
};

/* fn(arg) is run in the child with standard input empty and both outputs caught; what it gives
 * becomes the exit code: its own of 0 to 125, or EXIT_FAILED and its reason on standard error.  The
 * child ends with us, and has none of our descriptors. */
int child_start(struct child *c, int (*fn)(void *arg), void *arg);
/* The same, with a descriptor of ours as its standard input. */
int child_start_with(struct child *c, int input, int (*fn)(void *arg), void *arg);
/* This program, to be run again: by its own name, which others see, where it is still there. */
const char *child_own_program(void);
/* Read what has come of output i (0 or 1), at most `most` bytes, to `to`.  1: perhaps more, 0: none
 * now, -EPIPE: it has ended, or -errno. */
int child_read(struct child *c, int i, struct buf *to, size_t most);
/* The last thing that a child has said itself on its standard error, without who says it; "". */
void child_last_words(struct buf *err, char *ret, size_t size);
/* Write on our standard error which ranks another machine left out, as the program there wrote on
 * its own (job_user.c); for a few hosts only. */
void child_say_left_out(const char *host, struct buf *err);
/* Has it ended?  Then `status` is set. */
bool child_ended(struct child *c);
/* Tell it to end, as Ctrl-C does; */
void child_interrupt(const struct child *c);
/* or kill it and all that it has started; child_ended() will say so; */
void child_kill(const struct child *c);
/* or end it and all that it has started, now, and let go of its outputs.  Of zeros, too. */
void child_end(struct child *c);

#endif
