/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/natives.c - one dict of all that our Python modules call in C.
 *
 * With the GIL.
 */
#include "natives.h"

struct cpython natives_py; /* lock: the GIL */

static int add(PyObject *names, struct cpython_method *methods)
{
    int result = 0;
    for (; methods->name && result == 0; methods++) {
        PyObject *made = natives_py.PyCFunction_NewEx(methods, NULL, NULL);
        result = made ? natives_py.PyDict_SetItemString(names, methods->name, made) : -1;
        if (made)
            natives_py.Py_DecRef(made);
    }
    return result;
}

PyObject *natives_new(void)
{
    struct cpython_method *const all[] = {debug_natives, eval_natives, tables_natives,
                                          trace_natives};
    PyObject *names = natives_py.PyDict_New();
    for (size_t i = 0; names && i < sizeof(all) / sizeof(all[0]); i++)
        if (add(names, all[i])) {
            natives_py.Py_DecRef(names);
            names = NULL;
        }
    return names;
}
