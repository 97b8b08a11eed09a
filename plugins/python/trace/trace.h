/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/trace/trace.h - functions that are watched: what `trace` and its hooks share.
 *
 * All with the GIL, but what is _Atomic.  A hook whose slot has gone does nothing but go on.
 */
#ifndef PYTHON_TRACE_TRACE_H
#define PYTHON_TRACE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpython.h"
#include "trace/trace_event.h"

#define TRACE_SLOTS 64 /* bits of a client's set */
#define TRACE_TEXT 200 /* bytes of attributes that are shown as they come */

struct trace_slot {
    PyObject *key;             /* code (3.12), function (to 3.10) or its copy (3.11); NULL: free */
    PyObject *args, *result;   /* trace.py's describe_args() and _result(); NULL: not asked for */
    PyObject *variable_value;  /* describe_value(); NULL: calls are watched, not a variable */
    PyObject *only;            /* 3.12: of all functions with this code this one; NULL: all */
    PyObject *function, *code; /* 3.11: the real ones */
    void *entry;               /* to 3.10: the function's own vectorcall */
    uint64_t name_id, variable_id, life;
    int64_t limit;                           /* calls; 0: none */
    char name[120], variable[64], local[64]; /* local: "": the variable is a global one */
    _Atomic bool live;
    _Atomic int64_t calls, raised, total_ns;
    _Atomic int64_t cost_ns, costs; /* what we took ourselves, of so many calls (or lines) */
};

struct trace_call {
    uint64_t entered; /* our work for this call began; 0: its cost is not measured */
    uint64_t began, span, life;
    PyObject *text; /* what was told of the arguments, or last of the variable; or NULL */
    uint32_t slot;
};

/* trace_slot.c */
extern struct trace_slot trace_slots[TRACE_SLOTS];
bool trace_is_live(uint32_t slot);
bool trace_any(void); /* is a slot taken? */

/* trace_call.c: of the calling thread.  What gives false has left an exception of the user's. */
int trace_calls_init(struct plugin *p); /* its table */
/* NULL: too many inside each other, this one is not measured. */
struct trace_call *trace_enter(uint32_t slot);
/* The newest call of the slot's; those above it never ended as far as we saw. */
struct trace_call *trace_innermost(uint32_t slot);
bool trace_leave(uint32_t slot, enum event_phase phase, PyObject *value);
void trace_drop(struct trace_call *c); /* the innermost of all: it is not told */
/* Ask describe_args(code, (positional, named)) for a call's text. */
bool trace_describe(struct trace_slot *s, struct trace_call *c, PyObject *code,
                    PyObject *positional, PyObject *named);
/* A row when the watched variable's value is not what it was. */
bool trace_inspect(uint32_t slot, int64_t line);
uint64_t trace_inside(void); /* number of the innermost watched call; 0: none */

/* trace.c: tell the clients who follow. */
void trace_show(uint32_t slot, uint64_t ts, uint64_t duration_ns, enum event_phase phase,
                const char *text, size_t n);

#endif
