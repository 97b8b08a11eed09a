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

#include "read/interpreter.h"
#include "stack/stack_format.h"

#define LOOK_LOCALS 16 /* frames: further out they come and go seldom */

enum want { WANT_BOTH, WANT_NATIVE, WANT_PYTHON };

struct look_options {
    enum want want;
    int32_t only; /* a thread's id, 0: all */
    bool all;     /* ours too */
    bool locals, json;
    bool tasks, repr; /* by Python code in the process: not snapshot.c's to do */
};

struct look {
    pid_t pid;
    const struct cpython *py;
    struct look_options options;
    struct walk walk;
    const struct probing_stack_1 *stack; /* NULL: nobody offers native stacks */
    bool readable;                       /* Python stacks can be read */
    char why[300];                       /* when not */
    char interpreter[256];               /* the object file that holds the eval function */
    struct walk_thread *states;
    int n_states;
    struct walk_frame *frames;          /* WALK_FRAMES */
    char *locals;                       /* of the innermost LOOK_LOCALS, LOCALS_BYTES each */
    struct probing_stack_frame *native; /* as many as `symbols` */
    struct probing_stack_symbol *symbols;
    uint8_t *kinds;    /* enum frame_kind of these */
    struct sink *sink; /* where frames go; set before a show */
};

/* Look at process `pid`, 0: our own; then `py` holds addresses of that one.  What of Python cannot
 * be read is said in `why`.  0, or -ENOMEM. */
int look_begin(struct look *l, pid_t pid, const struct cpython *py,
               const struct probing_stack_1 *stack);
void look_done(struct look *l);

/* What a command line asks for: 0, or -errno with one line in `why`. */
int look_parse(int argc, const char *const *argv, const char *usage, struct look_options *ret,
               char *why, size_t why_size);

/* 0, or what the sink gave below 0. */
int look_show_thread(struct look *l, int32_t tid);
/* Main thread, then Python threads, then others; each group by id. */
int look_show(struct look *l);

#endif
