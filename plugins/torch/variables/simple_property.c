/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/simple_property.c - properties that only give an attribute, `return
 * self._loss`: they can be read without their code being run.
 *
 * Threads: any that holds the GIL.
 * Which ones these are is told by this interpreter: the bytes of their code are those of functions
 * of our own that do nothing else.  Any other property is not read.
 */
#include "python/pyobject.h"
#include "variables/exprs.h"

static struct {
    uint32_t life;                     /* of the plugin, when they were made */
    PyObject *codes[GETTER_NAMES_MAX]; /* by number of attributes, owned; NULL: it cannot be told */
} known;                               /* lock: the GIL */

static PyObject *code_of(PyObject *function)
{
    return object_get_from(object_get(function, "__code__"), "co_code");
}

static void learn_getters(void)
{
    static const char text[] = "def f1(self): return self.a\n"
                               "def f2(self): return self.a.b\n";
    static const char *const names[GETTER_NAMES_MAX] = {"f1", "f2"};
    struct cpython *py = &python.api;
    PyObject *globals = py->PyDict_New();
    known.life = torch_state.life;
    if (globals && py->PyDict_SetItemString(globals, "__builtins__", py->PyEval_GetBuiltins()) == 0)
        py->Py_DecRef(py->PyRun_StringFlags(text, Py_file_input, globals, globals, NULL));
    for (size_t i = 0; i < GETTER_NAMES_MAX; i++) {
        PyObject *function = globals ? py->PyDict_GetItemString(globals, names[i]) : NULL;
        py->Py_DecRef(known.codes[i]);
        known.codes[i] = function ? code_of(function) : NULL;
    }
    py->PyErr_Clear();
    py->Py_DecRef(globals);
}

static bool equal_bytes(PyObject *a, PyObject *b)
{
    struct cpython *py = &python.api;
    bool is = object_is(a, py->PyBytes_Type) && object_is(b, py->PyBytes_Type) &&
              py->PyObject_RichCompareBool(a, b, /* Py_EQ */ 2) == 1;
    py->PyErr_Clear();
    return is;
}

PyObject *getter_names(PyObject *property)
{
    struct cpython *py = &python.api;
    if (strcmp(object_type_text(property), "property") != 0)
        return NULL;
    if (known.life != torch_state.life)
        learn_getters();
    PyObject *function = object_get(property, "fget"), *names = NULL;
    bool plain = function && strcmp(object_type_text(function), "function") == 0;
    PyObject *code = plain ? object_get(function, "__code__") : NULL;
    PyObject *bytes = code ? object_get(code, "co_code") : NULL;
    bool one = code && object_number(object_get(code, "co_argcount")) == 1;
    if (one && bytes)
        names = object_get(code, "co_names");
    Py_ssize_t n = names && object_is(names, py->PyTuple_Type) ? py->PyTuple_Size(names) : 0;
    if (n < 1 || n > (Py_ssize_t)GETTER_NAMES_MAX || !known.codes[n - 1] ||
        !equal_bytes(bytes, known.codes[n - 1])) {
        py->Py_DecRef(names);
        names = NULL;
    }
    py->PyErr_Clear();
    py->Py_DecRef(bytes);
    py->Py_DecRef(code);
    py->Py_DecRef(function);
    return names;
}
