/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/profiler/kineto.c - torch's own profiler, begun and ended.
 *
 * Threads: any that holds the GIL; the profiler belongs to the one that began it.
 * Of torch.autograd.profiler.profile only the first half is used: its __exit__() turns every event
 * into a Python object while the loop waits.  (Both halves: torch 1.12 to 2.13,
 * torch/autograd/profiler.py.)
 */
#include "profiler/kineto.h"

#include <stdio.h>

static PyObject *profiler_part(const char *name)
{
    struct cpython *py = &python.api;
    PyObject *module =
        py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "torch.autograd.profiler");
    PyObject *part = module ? py->PyObject_GetAttrString(module, name) : NULL;
    py->PyErr_Clear();
    return part;
}

/* Keep what Python raised as the reason. */
static void take_reason(const char *what, struct profiler_reason *ret)
{
    struct cpython *py = &python.api;
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    py->PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value ? py->PyObject_Str(value) : NULL;
    Py_ssize_t n = 0;
    const char *bytes = text ? py->PyUnicode_AsUTF8AndSize(text, &n) : NULL;
    (void)snprintf(ret->text, sizeof(ret->text), "torch's profiler did not %s: %.*s", what,
                   bytes ? (int)strcspn(bytes, "\n") : 0, bytes ? bytes : "");
    py->PyErr_Clear();
    py->Py_DecRef(text);
    py->Py_DecRef(type);
    py->Py_DecRef(value);
    py->Py_DecRef(trace);
}

static bool call_method(PyObject *object, const char *name)
{
    PyObject *result = python.api.PyObject_CallMethod(object, name, NULL);
    python.api.Py_DecRef(result);
    return result != NULL;
}

/* Is there a GPU that this process uses?  It is not asked for: that would make it be used. */
static bool uses_cuda(void)
{
    struct cpython *py = &python.api;
    PyObject *cuda = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "torch.cuda");
    PyObject *answer = cuda ? py->PyObject_CallMethod(cuda, "is_initialized", NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(answer); /* a constant of the interpreter */
    return answer && answer == py->_Py_TrueStruct;
}

/* torch.autograd.profiler.profile(use_kineto=True), with the GPU where there is one. */
static PyObject *make_profile(void)
{
    static const char *const device[] = {NULL, "use_device", "use_cuda"}; /* from 2.1; before */
    struct cpython *py = &python.api;
    PyObject *class = profiler_part("profile"), *none = py->PyTuple_New(0), *made = NULL;
    PyObject *words = py->PyDict_New(), *cuda = py->PyUnicode_FromString("cuda");
    bool ready = class && none && words && cuda &&
                 py->PyDict_SetItemString(words, "use_kineto", py->_Py_TrueStruct) == 0;
    bool gpu = uses_cuda();
    for (int i = gpu ? 1 : 0; ready && !made && i < (gpu ? 3 : 1); i++) {
        py->PyErr_Clear();
        if (device[i])
            (void)py->PyDict_SetItemString(words, device[i], i == 1 ? cuda : py->_Py_TrueStruct);
        made = py->PyObject_Call(class, none, words);
        if (device[i])
            (void)py->PyDict_DelItemString(words, device[i]);
    }
    py->Py_DecRef(cuda);
    py->Py_DecRef(words);
    py->Py_DecRef(none);
    py->Py_DecRef(class);
    return made;
}

/* A flag of torch's that says that a profiler runs goes down again (torch 2). */
static void lower_flag(void)
{
    struct cpython *py = &python.api;
    PyObject *function = profiler_part("_run_on_profiler_stop");
    PyObject *result = function ? py->PyObject_CallFunctionObjArgs(function, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(result);
    py->Py_DecRef(function);
}

bool profiler_runs(void)
{
    struct cpython *py = &python.api;
    PyObject *function = profiler_part("_profiler_enabled");
    if (!function) {
        PyObject *autograd =
            py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "torch.autograd");
        function = autograd ? py->PyObject_GetAttrString(autograd, "_profiler_enabled") : NULL;
    }
    py->PyErr_Clear();
    PyObject *answer = function ? py->PyObject_CallFunctionObjArgs(function, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(function);
    py->Py_DecRef(answer); /* a constant of the interpreter */
    return answer && answer == py->_Py_TrueStruct;
}

bool profiler_start(struct profiler_reason *ret)
{
    PyObject *profile = make_profile();
    bool works =
        profile && call_method(profile, "_prepare_trace") && call_method(profile, "_start_trace");
    if (!works) {
        take_reason("start", ret);
        lower_flag();
    }
    python.api.Py_DecRef(profile);
    return works;
}

PyObject *profiler_stop(struct profiler_reason *ret)
{
    struct cpython *py = &python.api;
    PyObject *function = profiler_part("_disable_profiler");
    PyObject *results = function ? py->PyObject_CallFunctionObjArgs(function, NULL) : NULL;
    if (!results)
        take_reason("stop", ret);
    lower_flag();
    py->Py_DecRef(function);
    return results;
}
