/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/python_api.c - looks up the functions of CPython and the classes of torch.
 *
 * Threads: any that holds the GIL.
 * It never imports torch.
 */
#include "python/python_api.h"
#include "python/pyobject.h"

#include <errno.h>

struct python python;

static bool load_more(void)
{
    Dl_info info;
    void *address, *from = RTLD_DEFAULT;
    memcpy(&address, &python.api.Py_IncRef, sizeof(address));
    if (!dlsym(from, "PyVectorcall_Call") && dladdr(address, &info) && info.dli_fname)
        from = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    bool whole = true;
#define MORE(name)                                        \
    address = dlsym(from, #name);                         \
    memcpy(&python.more.name, &address, sizeof(address)); \
    whole = whole && address;
    MORE(PyVectorcall_Call)
    MORE(PyObject_GenericGetDict)
    MORE(PyEval_GetFrame)
    MORE(PyObject_Hash)
    MORE(PyObject_GC_UnTrack)
    MORE(PyObject_GC_Del)
    MORE(PyObject_ClearWeakRefs)
    bool all = whole;
    MORE(PyInstanceMethod_New)
    MORE(_PyType_Lookup)
    MORE(PyFrame_GetCode)
    MORE(PyFrame_GetBack)
    MORE(PyFrame_GetVar)
    MORE(PyDict_AddWatcher)
    MORE(PyDict_ClearWatcher)
    MORE(PyDict_Watch)
    MORE(PyDict_Unwatch)
    MORE(PyUnstable_GC_VisitObjects)
#undef MORE
    return all;
}

int python_load(const char **ret_why)
{
    struct cpython *py = &python.api;
    int rc = cpython_load(py);
    if (rc == -ENOTSUP)
        return torch_refuse(ret_why, rc, "this Python is older than 3.8");
    if (rc < 0 || !load_more())
        return torch_refuse(ret_why, -ENODEV,
                            "this process's CPython lacks functions that the plugin needs");
    if (cpython_since(py, 16))
        return torch_refuse(ret_why, -ENOTSUP,
                            "CPython 3.16 and later are not known to the torch plugin yet");
    if (strstr(py->Py_GetVersion(), "free-threading"))
        return torch_refuse(ret_why, -ENOTSUP,
                            "a Python without a GIL is not supported by the torch plugin");
    return 0;
}

int python_find_torch(const char **ret_why)
{
    struct python *s = &python;
    struct cpython *py = &s->api;
    s->module_class = object_get(object_module("torch.nn.modules.module"), "Module");
    s->parameter_class = object_get(object_module("torch.nn.parameter"), "Parameter");
    s->optimizer_class = object_get(object_module("torch.optim.optimizer"), "Optimizer");
    s->tensor_class = object_get(object_module("torch"), "Tensor");
    s->grad_enabled = object_get(object_module("torch"), "is_grad_enabled");
    PyObject *last = object_get(object_module("torch"), "__version__");
    PyObject *call = object_get(s->module_class, "__call__");
    s->forward_code = object_get(call, "__code__");
    py->Py_DecRef(call);
    bool whole =
        s->module_class && s->parameter_class && s->optimizer_class && s->tensor_class && last;
    py->Py_DecRef(last);
    s->text_modules = py->PyUnicode_InternFromString("_modules");
    s->text_parameters = py->PyUnicode_InternFromString("_parameters");
    s->text_training = py->PyUnicode_InternFromString("training");
    if (!whole)
        return torch_refuse(ret_why, -EAGAIN,
                            "torch is not imported in this process; load the plugin after "
                            "`import torch` has run");
    if (!s->text_modules || !s->text_parameters || !s->text_training)
        return torch_refuse(ret_why, -ENOMEM, "no memory");
    return 0;
}

void python_drop_torch(void)
{
    struct python *s = &python;
    PyObject **held[] = {&s->module_class,    &s->parameter_class, &s->tensor_class,
                         &s->optimizer_class, &s->grad_enabled,    &s->forward_code,
                         &s->text_modules,    &s->text_parameters, &s->text_training};
    object_drop_all(held, PROBING_LENGTH(held));
}
