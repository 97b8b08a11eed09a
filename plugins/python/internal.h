/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/internal.h - what the parts of the python plugin share, and who gives what.
 *
 * The struct is made in init() and read by every thread; what changes is tagged.
 */
#ifndef PYTHON_INTERNAL_H
#define PYTHON_INTERNAL_H

#include <probing/ext/draft/stack.h>
#include <pthread.h>
#include <stdio.h>

#include "cpython.h"
#include "exec/runner.h"
#include "probing_sdk.h"

struct plugin {
    const struct probing_host *host;
    struct cpython py;
    char no_python[200]; /* why there is no Python to work with: native stacks only; "": there is */
    _Atomic bool begun;  /* the interpreter has */
    struct runner *runner;  /* NULL: no_python */
    pthread_mutex_t stacks; /* one look at all stacks at a time */
};

/* backtrace.c */
extern const struct probing_command backtrace_command;
extern const struct probing_table_desc backtrace_table;
/* One line on who holds the GIL; gives that thread's innermost frames, to be freed.  NULL: no
 * memory or no such thread.                                                          [worker] */
char *backtrace_holder(struct plugin *p, char *line, size_t line_size);
/* How many interpreters beside the main one have threads. */
int backtrace_subinterpreters(struct plugin *p);

/* eval.c */
extern const struct probing_command complete_command, eval_command;
/* Run main(words) of our own module argv[0] ("trace") as eval runs code: what it prints goes to the
 * client.  Its status, or -errno after fail().                                        [worker] */
int eval_tool(struct plugin *p, int argc, const char *const *argv, struct probing_reply *out);
/* The same with this much time, the wait for the GIL included.                       [worker] */
int eval_tool_within(struct plugin *p, uint64_t timeout_ns, int argc, const char *const *argv,
                     struct probing_reply *out);

/* session.c */
void session_forget(struct plugin *p);
/* A function of one of our own modules, new reference; NULL: no memory.  With the GIL, on a
 * runner's thread. */
PyObject *session_function(struct plugin *p, const char *module, const char *name);

/* tables.c */
int tables_init(struct plugin *p);

/* debug.c */
extern const struct probing_command debug_command;
void debug_stop_session(void); /* the main thread goes on */

/* trace.c */
extern const struct probing_command trace_command;
void trace_forked(void); /* [child] */
/* Take out what watches functions.  0, or -errno: it is still in.                    [control] */
int trace_stop(struct plugin *p);

/* The parts of our Python modules that are in C, by the file that has them.  Each list ends with a
 * name that is NULL; plugin.c offers them (exec/bindings.h). */
extern struct cpython_method debug_natives[], session_natives[], tables_natives[], trace_natives[],
    trace_slot_natives[], trace_entry_natives[], trace_monitor_natives[], watch_natives[];

#endif
