/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/bindings.h - what is in C of our Python modules: they see it as
 * native["name"].
 *
 * All with the GIL.  A native may be called after the plugin has stopped, by code that kept it:
 * then it does nothing.
 */
#ifndef PYTHON_EXEC_BINDINGS_H
#define PYTHON_EXEC_BINDINGS_H

#include <stdbool.h>

#include "cpython.h"
#include "probing_sdk.h"

struct plugin;

/* The file name of our Python code.  debugpy leaves what begins with "<frozen " alone: else, while
 * an editor has all threads stopped, ours stops too. */
#define NATIVES_FILE "<frozen probing>"

/* A copy that stays: hooks of ours may be called longer than the plugin runs.  Written with the
 * GIL, before any native is made. */
extern struct cpython natives_py;
/* The core's functions.  Written in init(), before anything of ours is in the interpreter. */
extern const struct probing_host *natives_host;

/* Fill natives_py, in an interpreter that has begun: 0 or -errno.  With the GIL. */
int natives_load(struct plugin *p);

/* Functions that all of our modules may call: lists that each end with a name that is NULL, and
 * after the last one NULL.  Once, before natives_new(). */
void natives_offer(struct cpython_method *const *lists);
/* A new dict of all of them; NULL: no memory. */
PyObject *natives_new(void);

/* None, with a reference for the caller. */
static inline PyObject *natives_none(void)
{
    natives_py.Py_IncRef(natives_py._Py_NoneStruct);
    return natives_py._Py_NoneStruct;
}

/* Text of a str, borrowed; "" for NULL and for one with lone surrogates. */
const char *natives_utf8(PyObject *text, size_t *ret_n);
/* A reference of ours to a tuple's item; NULL for None. */
PyObject *natives_keep(PyObject *tuple, Py_ssize_t at);
/* An error of our own code must not become one of the user's; but what a signal handler of theirs
 * raised while our code ran is theirs.  true: it goes on to them. */
bool natives_theirs(void);

/* A dict with these in it besides; 0 or -1. */
int natives_add(PyObject *names, struct cpython_method *methods);

#endif
