/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/runner.h - the plugin's one Python thread: runs C functions that hold the GIL.
 *
 * Only this thread ever waits for the GIL, so a GIL that is stuck blocks nobody else.  A job that
 * did not get the GIL in time is taken back and never runs.  Between jobs the thread has no Python
 * thread state: the interpreter does not know of it.
 */
#ifndef PYTHON_RUNNER_H
#define PYTHON_RUNNER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpython.h"

struct runner;

enum runner_state { RUNNER_WAITS = 0, RUNNER_RUNS, RUNNER_DONE, RUNNER_DROPPED };

struct runner_job {
    int (*fn)(void *arg); /* with the GIL, on the runner's thread */
    void (*drop)(
        void *arg); /* the last one who knows the job frees `arg`; any thread; NULL: none */
    void *arg;
    enum runner_state state; /* lock: the runner's */
    int result;              /* of fn, -ENODEV when the interpreter ended before or in it */
    int holders;             /* lock: the runner's */
    struct runner_job *next;
};

int runner_new(const struct cpython *py, struct runner **ret);
int runner_start(struct runner *r);
/* Join the thread.  -EBUSY: it waits for the GIL or runs somebody's code. */
int runner_stop(struct runner *r);
void runner_free(struct runner *r);
/* In a forked child: the thread is not there.  [child] */
void runner_forked(struct runner *r);

/* Queue a job that the caller made with malloc; runner and caller hold it from now on.
 * -ENODEV: no interpreter or it is ending; -EDEADLK: this is the runner's own thread. */
int runner_submit(struct runner *r, struct runner_job *job);
/* Wait until the job is past `state` or wake() or timeout_ns; gives the state it is in. */
enum runner_state runner_wait(struct runner *r, struct runner_job *job, enum runner_state state,
                              uint64_t timeout_ns);
/* Take back a job that has not begun: true when it will never run. */
bool runner_take_back(struct runner *r, struct runner_job *job);
/* Does another job's code run, so that this one waits for its end and not for the GIL? */
bool runner_is_behind(struct runner *r, const struct runner_job *job);
/* The caller's hold ends. */
void runner_release(struct runner *r, struct runner_job *job);
/* Raise KeyboardInterrupt in the running job's Python code. */
void runner_interrupt(struct runner *r);

/* submit, wait, take back after timeout_ns (then -ETIMEDOUT): python.gil/1's call(). */
int runner_call(struct runner *r, int (*fn)(void *arg), void *arg, uint64_t timeout_ns);

/* Those who wait may also wait for other things under the same lock. */
void runner_lock(struct runner *r);
void runner_unlock(struct runner *r);
void runner_wake(struct runner *r);                       /* locked */
void runner_sleep(struct runner *r, uint64_t timeout_ns); /* locked; may wake early */
int runner_tid(struct runner *r);                         /* of the thread, 0: none */

#endif
