/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/natives.h - what is in C of our Python modules: they see it as native["name"].
 *
 * All with the GIL.  A native may be called after the plugin has stopped, by code that kept it:
 * then it does nothing.
 */
#ifndef PYTHON_NATIVES_H
#define PYTHON_NATIVES_H

#include "cpython.h"

/* A copy that stays: hooks of ours may be called longer than the plugin runs.  Written with the
 * GIL, before any native is made. */
extern struct cpython natives_py;

/* A new dict of all of them; NULL: no memory. */
PyObject *natives_new(void);

/* None, with a reference for the caller. */
static inline PyObject *natives_none(void)
{
    natives_py.Py_IncRef(natives_py._Py_NoneStruct);
    return natives_py._Py_NoneStruct;
}

/* Each ends with a name that is NULL. */
extern struct cpython_method debug_natives[], eval_natives[], tables_natives[], trace_natives[];

#endif
