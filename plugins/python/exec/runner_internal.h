/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/runner_internal.h - what the runner's parts share.
 *
 * Lock order: the GIL, then the runner's mutex; nobody takes the GIL with the mutex held.
 */
#ifndef PYTHON_EXEC_RUNNER_INTERNAL_H
#define PYTHON_EXEC_RUNNER_INTERNAL_H

#include <signal.h>
#include <stdatomic.h>

#include "exec/entry.h"
#include "exec/runner.h"

#define RUNNER_WORKERS 8             /* threads at most */
#define RUNNER_NAME "probing/python" /* of those threads */

struct worker {
    struct runner *r;
    struct worker *next;        /* lock: r->mutex; of r->workers */
    pthread_t thread;           /* lock: r->mutex */
    struct runner_job *current; /* lock: r->mutex */
    bool loose;         /* lock: r->mutex; what it runs needs nothing of the plugin any more */
    int tid;            /* lock: r->mutex */
    bool leaves;        /* lock: r->mutex; it takes no job any more */
    struct entry entry; /* while it has a Python thread state */
    /* this thread's own: */
    bool guest;           /* it blocks the signals that the main thread does, */
    sigset_t own_signals; /* instead of these */
    unsigned threads;     /* of the process, when a guest began; 0: none did */
    char program[32];     /* the main thread's name then */
};

struct runner {
    const struct cpython *py;
    struct cpython own; /* what a thread that was left behind needs: `py` may be gone then */
    pthread_mutex_t mutex;
    pthread_cond_t cond;      /* on CLOCK_MONOTONIC; one for all who wait, they look again */
    struct runner_job *first; /* lock: mutex */
    struct worker *workers;   /* lock: mutex */
    bool running, stop;       /* lock: mutex */
    bool interrupts;          /* lock: mutex; the thread for it is there: */
    pthread_t interrupter;    /* lock: mutex */
    _Atomic int holders;
    _Atomic bool forked;
};

extern __thread struct worker *runner_me; /* this thread's; NULL: it is none of ours */

/* runner.c */
void runner_finish(struct runner *r, struct runner_job *job, int result);
void runner_answer_all(struct runner *r); /* nobody will run what still waits */
/* Locked.  The first that may run, still in the queue; NULL: none. */
struct runner_job **runner_next_job(struct runner *r);

/* runner_thread.c */
int runner_hire(struct runner *r);            /* locked; one more thread: 0 or -errno */
void runner_hire_if_needed(struct runner *r); /* locked */

/* runner_guest.c: around a client's code */
void runner_guest_begin(struct worker *w);
void runner_guest_end(struct worker *w);
void runner_guest_ended(struct worker *w); /* the same, when the GIL has been let go */
/* Threads that have our name from whom they were started by get the program's. */
void runner_name_strays(struct runner *r);

/* runner_interrupt.c */
void runner_start_interrupts(struct runner *r); /* locked */

#endif
