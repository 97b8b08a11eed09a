/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/program_calls.c - what a program says of its steps by the package `probing`:
 * probing.step() and probing.set_role().
 *
 * Threads: any that holds the GIL.
 */
#include "steps/step.h"

#include "steps/call_thread.h"

/* sys._probing_step(), which probing.step() calls; args[0]: the number of the step that begins. */
static PyObject *note_step_end(PyObject *self, PyObject *const *args, Py_ssize_t n,
                               PyObject *kwnames)
{
    struct cpython *py = &python.api;
    (void)self;
    (void)kwnames;
    if (torch_on() && torch_state.live) {
        work_begin();
        step_end(call_thread(), STEPPER_CALL, torch_state.now());
        int64_t global = PROBING_NULL_I64;
        if (n > 0 && py->PyType_IsSubtype(object_type(args[0]), py->PyLong_Type))
            global = py->PyLong_AsLongLong(args[0]);
        py->PyErr_Clear(); /* larger than 64 bits: -1 */
        coordinates_set_global(global >= 0 ? global : PROBING_NULL_I64);
        work_end();
    }
    py->Py_IncRef(py->_Py_NoneStruct);
    return py->_Py_NoneStruct;
}

/* sys._probing_role(str), which probing.set_role() calls. */
static PyObject *note_role(PyObject *self, PyObject *role)
{
    struct cpython *py = &python.api;
    const char *text = py->PyUnicode_AsUTF8AndSize(role, NULL);
    (void)self;
    py->PyErr_Clear();
    if (text && torch_on() && torch_state.live)
        coordinates_set_role(text);
    py->Py_IncRef(py->_Py_NoneStruct);
    return py->_Py_NoneStruct;
}

/* sys._probing_step and _role: what the package `probing` calls when they are there. */
void program_calls_offer(bool offer)
{
    static struct cpython_method role = {"probing_role", note_role, METH_O, NULL};
    static struct cpython_method method = {"probing_step", NULL, METH_FASTCALL | METH_KEYWORDS,
                                           NULL};
    struct cpython *py = &python.api;
    PyObject *function = NULL;
    memcpy(&method.call, &(PyCFunctionFastKeywords){note_step_end}, sizeof(method.call));
    if (offer)
        function = py->PyCFunction_NewEx(&method, NULL, NULL);
    (void)py->PySys_SetObject("_probing_step", function); /* NULL takes it away */
    py->PyErr_Clear();
    py->Py_DecRef(function);
    function = offer ? py->PyCFunction_NewEx(&role, NULL, NULL) : NULL;
    (void)py->PySys_SetObject("_probing_role", function);
    py->PyErr_Clear();
    py->Py_DecRef(function);
}
