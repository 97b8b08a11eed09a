/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/runner.h - the plugin's Python threads: they run C functions that hold the
 * GIL.
 *
 * Only one of them at a time waits for the GIL: a GIL that is stuck costs one thread.  A job that
 * did not get the GIL in time is taken back and never runs.  Clients' code may run for hours, or
 * sit in a call of C that hears of no interrupt: others do not wait for its end, another thread
 * comes.  All other jobs run one after the other.  Between jobs a thread has no Python thread
 * state: the interpreter does not know of it.
 */
#ifndef PYTHON_EXEC_RUNNER_H
#define PYTHON_EXEC_RUNNER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpython.h"

struct runner;

enum runner_state { RUNNER_WAITS = 0, RUNNER_RUNS, RUNNER_DONE, RUNNER_DROPPED };

struct runner_job {
    int (*fn)(void *arg); /* with the GIL, on a runner's thread */
    void (*drop)(
        void *arg); /* the last one who knows the job frees `arg`; any thread; NULL: none */
    void *arg;
    bool client;             /* a client's code: see above */
    bool abandoned;          /* lock: the runner's; nobody waits for its end any more */
    enum runner_state state; /* lock: the runner's */
    int result;              /* of fn, -ENODEV when the interpreter ended before or in it */
    int holders;             /* lock: the runner's */
    struct runner_job *next;
};

int runner_new(const struct cpython *py, struct runner **ret);
int runner_start(struct runner *r);
/* End the threads.  A client's code that does not end is interrupted, and where it hears of that
 * too late it is left behind: its thread ends with it, without us.  -EBUSY: another job runs. */
int runner_stop(struct runner *r);
void runner_free(struct runner *r); /* what was left behind keeps its memory */
/* In a forked child: the threads are not there.  [child] */
void runner_forked(struct runner *r);

/* Queue a job that the caller made with malloc; runner and caller hold it from now on.
 * -ENODEV: no interpreter or it is ending; -EDEADLK: this is a runner's own thread. */
int runner_submit(struct runner *r, struct runner_job *job);
/* Wait until the job is past `state` or wake() or timeout_ns; gives the state it is in. */
enum runner_state runner_wait(struct runner *r, struct runner_job *job, enum runner_state state,
                              uint64_t timeout_ns);
/* Take back a job that has not begun: true when it will never run. */
bool runner_take_back(struct runner *r, struct runner_job *job);
/* Why has it not begun?  The thread of another job that it has to wait for; 0: for the GIL. */
int runner_is_behind(struct runner *r, const struct runner_job *job);
/* The thread that runs it; 0: none (any more). */
int runner_tid_of(struct runner *r, const struct runner_job *job);
/* The caller's hold ends. */
void runner_release(struct runner *r, struct runner_job *job);
/* Raise KeyboardInterrupt in the job's Python code, again and again for some seconds until it ends;
 * nobody waits for it any more. */
void runner_interrupt(struct runner *r, struct runner_job *job);
/* In a job: from here on it may be interrupted, or may not (as when it begins; but one may still
 * be on its way to the thread's Python code).  A client's code may be left behind from the first
 * on: it uses nothing of the plugin's any more.  With the GIL. */
void runner_allow_interrupt(struct runner *r, bool allow);

/* submit, wait, take back after timeout_ns (then -ETIMEDOUT): python.gil/1's call(). */
int runner_call(struct runner *r, int (*fn)(void *arg), void *arg, uint64_t timeout_ns);

/* A user that may outlive the plugin's use of it holds it. */
void runner_hold(struct runner *r);
void runner_drop(struct runner *r);

/* Waiters may also wait for other things under the same lock. */
void runner_lock(struct runner *r);
void runner_unlock(struct runner *r);
void runner_wake(struct runner *r);                       /* locked */
void runner_sleep(struct runner *r, uint64_t timeout_ns); /* locked; may wake early */
uint64_t runner_now_ns(void);
bool runner_is_own(struct runner *r, int tid); /* a thread of ours, in a job? */

#endif
