/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/entry.h - the door by which threads of ours enter the interpreter.
 *
 * PyGILState_Ensure() makes a thread state in an interpreter that another thread may be freeing: to
 * 3.15 that crashes the process at its exit.  Here the interpreter waits with freeing itself for
 * those who are in the middle of it, some microseconds, and nobody begins after that.
 */
#ifndef PYTHON_EXEC_ENTRY_H
#define PYTHON_EXEC_ENTRY_H

#include <stdbool.h>

#include "cpython.h"

enum entry { ENTRY_NONE = 0, ENTRY_MADE, ENTRY_KEPT };

/* The interpreter has begun: from here on it may be entered.  Any thread, without the GIL; again
 * for each start of the plugin. */
void entry_open(const struct cpython *py);
/* Take the GIL: it may be waited for without end, and where the interpreter ends meanwhile the
 * thread ends in here (by pthread_exit() to 3.13) or waits for the process to end.
 * ENTRY_NONE: there is no interpreter, or it ends, or no memory.                  [any thread] */
enum entry entry_take(const struct cpython *py);
/* Let the GIL go, and with it the thread state that entry_take() has made. */
void entry_leave(const struct cpython *py, enum entry taken);
/* Py_AddPendingCall() for a thread without the GIL.  0; -1: the queue is full, or as above.
 * 3.8 looks at another thread's state in it while it ends, which nothing of ours can prevent. */
int entry_ask_main(const struct cpython *py, int (*fn)(void *arg), void *arg);
void entry_forked(void); /* [child] */

#endif
