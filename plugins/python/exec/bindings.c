/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/bindings.c - one dict of all that our Python modules call in C.
 *
 * With the GIL.
 */
#include "exec/bindings.h"

#include "internal.h"

struct cpython natives_py; /* lock: the GIL */
const struct probing_host *natives_host;
static struct cpython_method *const *offered; /* lock: the GIL */

void natives_offer(struct cpython_method *const *lists)
{
    offered = lists;
}

int natives_load(struct plugin *p)
{
    int r = p->py.PyExc_BaseException ? 0 : cpython_load(&p->py); /* before Py_Initialize() */
    if (r == 0)
        natives_py = p->py;
    return r;
}

const char *natives_utf8(PyObject *text, size_t *ret_n)
{
    Py_ssize_t n = 0;
    const char *utf8 = text ? natives_py.PyUnicode_AsUTF8AndSize(text, &n) : NULL;
    if (text && !utf8)
        natives_py.PyErr_Clear(); /* a lone surrogate */
    *ret_n = utf8 ? (size_t)n : 0;
    return utf8 ? utf8 : "";
}

PyObject *natives_keep(PyObject *tuple, Py_ssize_t at)
{
    PyObject *item = natives_py.PyTuple_GetItem(tuple, at);
    if (item == natives_py._Py_NoneStruct)
        return NULL;
    natives_py.Py_IncRef(item);
    return item;
}

/* Was it raised in our own Python code, or on the way to it? */
static bool raised_by_us(PyObject *trace)
{
    const struct cpython *py = &natives_py;
    PyObject *frame = NULL, *code = NULL, *file = NULL, *next = trace;
    if (!trace)
        return true;
    py->Py_IncRef(trace);
    while (next && next != py->_Py_NoneStruct) { /* the last one is the innermost */
        PyObject *after = py->PyObject_GetAttrString(next, "tb_next");
        if (frame)
            py->Py_DecRef(frame);
        frame = py->PyObject_GetAttrString(next, "tb_frame");
        py->Py_DecRef(next);
        next = after;
    }
    if (next)
        py->Py_DecRef(next);
    if (frame)
        code = py->PyObject_GetAttrString(frame, "f_code");
    if (code)
        file = py->PyObject_GetAttrString(code, "co_filename");
    bool ours = file && py->PyUnicode_CompareWithASCIIString(file, NATIVES_FILE) == 0;
    PyObject *const made[] = {frame, code, file};
    for (int i = 0; i < 3; i++)
        if (made[i])
            py->Py_DecRef(made[i]);
    py->PyErr_Clear();
    return ours;
}

bool natives_theirs(void)
{
    const struct cpython *py = &natives_py;
    PyObject *type, *value, *trace;
    if (!py->PyErr_Occurred())
        return false;
    if (!py->PyErr_ExceptionMatches(py->PyExc_Exception))
        return true; /* Ctrl-C */
    bool ours = py->PyErr_ExceptionMatches(py->PyExc_RecursionError) ||
                py->PyErr_ExceptionMatches(py->PyExc_MemoryError);
    py->PyErr_Fetch(&type, &value, &trace);
    ours = ours || raised_by_us(trace);
    py->PyErr_Restore(type, value, trace);
    if (ours)
        py->PyErr_Clear();
    return !ours;
}

int natives_add(PyObject *names, struct cpython_method *methods)
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
    PyObject *names = natives_py.PyDict_New();
    for (size_t i = 0; names && offered[i]; i++)
        if (natives_add(names, offered[i])) {
            natives_py.Py_DecRef(names);
            names = NULL;
        }
    return names;
}
