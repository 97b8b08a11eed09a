/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/apart.h - looks at other processes that may never end, each on a thread of its own and
 * given up in time.
 *
 * What a process shows may block whoever reads it: its memory map, environment and words where a
 * driver holds the lock of its memory (it is in state D) or its pages come from a server of its
 * own, and any path below its root.  Only the end of the reader ends that, so no thread of ours may
 * be the reader that somebody waits for.
 *
 * Asked from one thread.  0 or -errno with err_set().
 */
#ifndef CLI_TARGET_APART_H
#define CLI_TARGET_APART_H

#include <stdbool.h>
#include <sys/types.h>

#include "sdk/lib/buf.h"

/* Run look(state) for a process.  What it gives; -ETIMEDOUT: it has not ended in time, and until it
 * does all others at this process fail so at once; -ECANCELED: Ctrl-C; -EAGAIN: there can be no
 * thread.  *ret_ended: state is the caller's again, else it is the look's, and freed by `release`
 * at its end. */
int apart_run(pid_t pid, int (*look)(void *state), void *state, void (*release)(void *state),
              bool *ret_ended);

/* Add the whole of /proc/PID/NAME. */
int apart_read(pid_t pid, const char *name, struct buf *ret);

/* Does rc say what we lack ourselves (threads, memory, descriptors), and nothing of the process? */
bool apart_is_ours(int rc);

/* rc of a look at one process of all: where that one did not let us look (-ETIMEDOUT), stderr hears
 * of it and of what comes of that, once a look, and 0 is given; where nobody could be looked at
 * (apart_is_ours(), -ECANCELED), rc; else 0. */
int apart_pass_over(pid_t pid, int rc, const char *so);

#endif
