/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/environ_now.h - the environment of a process as it is now: what it has set itself
 * since it began (os.environ, setenv) does not stand in /proc/PID/environ.
 *
 * Any thread.  The process goes on meanwhile, so a variable that is being set may be missing.
 */
#ifndef SDK_LIB_PROC_ENVIRON_NOW_H
#define SDK_LIB_PROC_ENVIRON_NOW_H

#include "../buf.h"
#include "memory.h"

/* Add "NAME=VALUE" and a NUL for each variable.  at: where its `environ` of libc is.  -EFAULT: that
 * is none; or what buf_add() gives. */
int proc_environ_now(struct proc_memory *m, uint64_t at, struct buf *ret);

/* The same of this process: what it began with, then what it has set since.  Each name stands once,
 * with the value that the program began with, unless a title has been written over all of these
 * (setproctitle; Ray, vLLM, gunicorn): then with that of now. */
int proc_environ_own(struct buf *ret);

#endif
