/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/entry.h - the door by which threads of ours enter the interpreter.
 *
 * PyGILState_Ensure() makes a thread state in an interpreter that another thread may be freeing: to
 * 3.15 that crashes the process at its exit.  So does a thread that wakes up in the interpreter
 * when its state has been freed.  Here the interpreter waits before it frees anything: some
 * microseconds for threads that are making a state, and 1 s at most for those that run code, in
 * which it raises KeyboardInterrupt.  Where nothing of ours is inside, it does not wait.  Nobody
 * enters after that.  The states of threads that stay inside (in a call of C that hears of no
 * interrupt) are never freed.
 */
#ifndef PYTHON_EXEC_ENTRY_H
#define PYTHON_EXEC_ENTRY_H

#include <stdbool.h>

#include "cpython.h"

/* One thread of ours inside the interpreter.  Zeroed by its owner, and in place until the thread is
 * outside. */
struct entry {
    struct entry *next; /* lock: the gate's */
    void *state;        /* lock: the gate's; PyThreadState, NULL: outside */
    bool made;          /* the state is ours */
    bool left;          /* lock: the gate's; the interpreter has ended without it */
    unsigned long
        python_id; /* lock: the gate's; threading.get_ident() while it may be interrupted */
};

/* The interpreter has begun: from here on it may be entered.  Any thread, without the GIL; again
 * for each start of the plugin. */
void entry_open(const struct cpython *py);
/* Take the GIL: it may be waited for without end, and where the interpreter ends meanwhile the
 * thread ends in here (by pthread_exit() to 3.13) or waits for the process to end.
 * false: there is no interpreter, or it ends, or no memory.                       [any thread] */
bool entry_take(const struct cpython *py, struct entry *own);
/* Let the GIL go, and with it the thread state that entry_take() has made. */
void entry_leave(const struct cpython *py, struct entry *own);
/* Inside, with the GIL let go by PyEval_SaveThread(): take it again.  Does not come back where the
 * interpreter has ended without this thread. */
void entry_return(const struct cpython *py, void *saved);
/* The thread ends, perhaps inside the interpreter.  [any] */
void entry_gone(struct entry *own);
/* Has the interpreter begun to end? */
bool entry_is_over(void);
/* In the thread itself: its Python code may be interrupted from now on, or may not. */
void entry_allow_interrupt(struct entry *own, bool allow);
/* With the GIL: raise KeyboardInterrupt in its Python code, where it may be. */
void entry_interrupt(const struct cpython *py, const struct entry *of);
/* Py_AddPendingCall() for a thread without the GIL.  0; -1: the queue is full, or as above.
 * 3.8 looks at another thread's state in it while it ends, which nothing of ours can prevent. */
int entry_ask_main(const struct cpython *py, int (*fn)(void *arg), void *arg);
void entry_forked(void); /* [child] */

#endif
