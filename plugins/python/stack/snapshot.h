/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/stack/snapshot.h - one look at the threads of a process: Python and native frames
 * in one.
 *
 * [worker], one look at a time.  The process is our own, or another one that is only read.
 */
#ifndef PYTHON_STACK_SNAPSHOT_H
#define PYTHON_STACK_SNAPSHOT_H

#include <probing/ext/draft/stack.h>
#include <stdbool.h>

#include "inspect/interpreter.h"
#include "inspect/thread_names.h"
#include "lib/stack/backtrace_words.h"
#include "stack/stack_format.h"

#define LOOK_LOCALS 16 /* frames: further out they come and go seldom */

struct snapshot {
    pid_t pid;
    const struct cpython *py;
    struct backtrace_words options;
    struct walk walk;
    const struct probing_stack_1 *stack; /* NULL: nobody offers native stacks */
    bool readable;                       /* Python stacks can be read */
    char why[300];                       /* when not, or not all of them */
    char interpreter[256];               /* the object file that holds the eval function */
    struct walk_thread *states;          /* by tid; of one thread, the newest interpreter's first */
    int n_states;
    struct thread_names names;
    struct walk_frame *frames;          /* WALK_FRAMES */
    char *locals;                       /* of the innermost LOOK_LOCALS, LOCALS_BYTES each */
    struct probing_stack_frame *native; /* as many as `symbols` */
    struct probing_stack_symbol *symbols;
    uint8_t *kinds;        /* enum frame_kind of these */
    struct sink *sink;     /* where frames go; set before a show */
    struct snapshot *next; /* of another CPython in the process, whose threads are shown too */
};

/* Look at process `pid`, 0: our own; then `py` holds addresses of that one.  What of Python cannot
 * be read is said in `why`.  0, or -ENOMEM. */
int snapshot_begin(struct snapshot *l, pid_t pid, const struct cpython *py,
                   const struct probing_stack_1 *stack);
void snapshot_done(struct snapshot *l);

/* 0, or what the sink gave below 0. */
int snapshot_show_thread(struct snapshot *l, int32_t tid);
/* Main thread, then Python threads, then others; each group by id. */
int snapshot_show(struct snapshot *l);

#endif
