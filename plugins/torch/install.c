/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/install.c - into torch and out of it: what is looked up there, and where hooks go.
 *
 * Threads: any that holds the GIL.
 * It never imports torch, and adds no hook of torch's own kind: those cost more than our work.
 */
#include "install.h"
#include "device/device.h"
#include "dist/collective.h"
#include "module_calls/model_reader.h"
#include "profiler/profile_run.h"
#include "python/dict_version.h"
#include "python/pyobject.h"
#include "python/tensor.h"
#include "python/tensor_storage.h"

#include <errno.h>

static bool load_more(void)
{
    Dl_info info;
    void *address, *from = RTLD_DEFAULT;
    memcpy(&address, &torch_state.py.Py_IncRef, sizeof(address));
    if (!dlsym(from, "PyVectorcall_Call") && dladdr(address, &info) && info.dli_fname)
        from = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    bool whole = true;
#define MORE(name)                                             \
    address = dlsym(from, #name);                              \
    memcpy(&torch_state.more.name, &address, sizeof(address)); \
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

static int load_python(void)
{
    struct cpython *py = &torch_state.py;
    int rc = cpython_load(py);
    if (rc == -ENOTSUP)
        return plugin_refuse(rc, "this Python is older than 3.8");
    if (rc < 0 || !load_more())
        return plugin_refuse(-ENODEV,
                             "this process's CPython lacks functions that the plugin needs");
    if (cpython_since(py, 16))
        return plugin_refuse(-ENOTSUP,
                             "CPython 3.16 and later are not known to the torch plugin yet");
    if (strstr(py->Py_GetVersion(), "free-threading"))
        return plugin_refuse(-ENOTSUP,
                             "a Python without a GIL is not supported by the torch plugin");
    return 0;
}

static int find_torch(void)
{
    struct torch *s = &torch_state;
    struct cpython *py = &s->py;
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
        return plugin_refuse(-EAGAIN,
                             "torch is not imported in this process; load the plugin after "
                             "`import torch` has run");
    if (!s->text_modules || !s->text_parameters || !s->text_training)
        return plugin_refuse(-ENOMEM, "no memory");
    return 0;
}

static void drop_torch(void)
{
    struct torch *s = &torch_state;
    PyObject **held[] = {&s->module_class,    &s->parameter_class, &s->tensor_class,
                         &s->optimizer_class, &s->grad_enabled,    &s->forward_code,
                         &s->text_modules,    &s->text_parameters, &s->text_training};
    for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++) {
        s->py.Py_DecRef(*held[i]);
        *held[i] = NULL;
    }
}

/* torch.compile compares a module's call with what Module.__call__ was when dynamo was imported,
 * and traces straight into forward() when they are the same; anything else it cannot trace.  So
 * tell it what stands there now.  (Seen in torch 2.13; can go when dynamo looks it up itself.) */
static void tell_dynamo(void)
{
    static const char name[] = "unpatched_nn_module_call";
    static const char *const modules[] = {"torch._dynamo.utils",
                                          "torch._dynamo.variables.nn_module"};
    struct cpython *py = &torch_state.py;
    PyObject *now = object_get(torch_state.module_class, "__call__");
    PyObject *before = now && hook_is(now) ? hook_original(now) : now;
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
        PyObject *module = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), modules[i]);
        PyObject *known = object_get(module, name);
        if (known && known != now &&
            (hook_is(known) ? hook_original(known) == now : known == before))
            (void)py->PyObject_SetAttrString(module, name, now);
        py->PyErr_Clear();
        py->Py_DecRef(known);
    }
    py->Py_DecRef(now);
}

/* torch.fx has a function of its own there while it traces, and then puts back what it found: the
 * function without us, or a hook from before the last stop().  Whatever else stands there calls us,
 * or shall not be watched. */
static void hook_calls_again(void)
{
    static const char *const torchs[] = {"_wrapped_call_impl", "_call_impl"};
    PyObject *class = torch_state.module_class, *now = object_get(class, "__call__");
    bool ours = now && hook_is(now);
    for (size_t i = 0; i < sizeof(torchs) / sizeof(torchs[0]) && now && !ours; i++) {
        PyObject *function = object_get(class, torchs[i]);
        ours = function == now;
        torch_state.py.Py_DecRef(function);
    }
    torch_state.py.Py_DecRef(now);
    if (ours && hook_class_plain(class, "__call__", call_module) == 0)
        tell_dynamo();
}

/* Functions and classes of torch's modules, where they are.  Each module is asked for by itself:
 * none is imported. */
static void hook_modules(void)
{
    static const struct {
        const char *module, *class, *name;
        hook_call call;
    } hooks[] = {
        {"torch.amp.grad_scaler", "GradScaler", "step", step_scaler},
        {"torch.cuda.amp.grad_scaler", "GradScaler", "step", step_scaler},
        {"torch.utils.data.dataloader", "_BaseDataLoaderIter", "__next__", data_next},
        {"lightning.pytorch.strategies.strategy", "Strategy", "training_step", loss_training_step},
        {"pytorch_lightning.strategies.strategy", "Strategy", "training_step", loss_training_step},
        {"torch.autograd.profiler", NULL, "_prepare_profiler", capture_others},
        {"torch.autograd.profiler", NULL, "_enable_profiler", capture_others},
        {"torch.autograd.profiler", NULL, "_disable_profiler", capture_others},
    };
    struct cpython *py = &torch_state.py;
    for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++) {
        PyObject *module = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), hooks[i].module);
        PyObject *class = hooks[i].class ? object_get(module, hooks[i].class) : NULL;
        if (torch_state.hooked & 1u << i)
            module = NULL; /* it may have been wrapped since: that is not ours to change */
        torch_state.hooked |= module ? 1u << i : 0;
        if (module && !hooks[i].class)
            (void)hook_instance(module, hooks[i].name, hooks[i].call);
        else if (module && class)
            (void)hook_class(class, hooks[i].name, hooks[i].call);
        py->Py_DecRef(class);
        py->PyErr_Clear();
    }
    hook_calls_again();
}

/* sys._probing_role(str), which probing.set_role() calls. */
static PyObject *role_told(PyObject *self, PyObject *role)
{
    struct cpython *py = &torch_state.py;
    const char *text = py->PyUnicode_AsUTF8AndSize(role, NULL);
    (void)self;
    py->PyErr_Clear();
    if (text && torch_on() && torch_state.live)
        coordinates_tell_role(text);
    py->Py_IncRef(py->_Py_NoneStruct);
    return py->_Py_NoneStruct;
}

/* sys._probing_step and _role: what the package `probing` calls when they are there. */
static void offer_step(bool offer)
{
    static struct cpython_method role = {"probing_role", role_told, METH_O, NULL};
    static struct cpython_method method = {"probing_step", NULL, METH_FASTCALL | METH_KEYWORDS,
                                           NULL};
    struct cpython *py = &torch_state.py;
    PyObject *function = NULL;
    memcpy(&method.call, &(PyCFunctionFastKeywords){step_told}, sizeof(method.call));
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

/* Hook what torch.autograd.backward() and grad() call.  These two stay as they are: torch.jit and
 * dynamo know them by their addresses, and programs pickle them.  Tensor.backward is a method: some
 * 50 us of Python lie between it and the engine. */
static void hook_engine(void)
{
    PyObject *variable = object_get(object_module("torch.autograd"), "Variable");
    PyObject *engine = object_get(variable, "_execution_engine");
    if (engine)
        (void)hook_c_method(object_type(engine), "run_backward", call_backward);
    (void)hook_class(torch_state.tensor_class, "backward", call_tensor_backward);
    torch_state.py.Py_DecRef(engine);
    torch_state.py.Py_DecRef(variable);
}

/* The parts that lie above steps, and hear of them. */
static const struct step_listener listeners[] = {
    {.look = hook_modules}, {.optimized = turns_optimized}, {.look = comm_find, .ended = comm_step},
    {.ended = ddp_step},    {.begun = capture_step},        {.look = NULL},
};

static bool is_optimizer(PyObject *class)
{
    return torch_state.py.PyType_IsSubtype(class, torch_state.optimizer_class);
}

static int put_hooks(void)
{
    static const struct names_sought sought[] = {
        {is_optimizer, step_wrap}, {data_is_iterator, data_remember}, {NULL, NULL}};
    struct torch *s = &torch_state;
    tensor_find();
    storage_find();
    int rc = names_scan(sought);
    if (rc < 0)
        return plugin_refuse(rc, "no memory");
    if (hook_class_plain(s->module_class, "__call__", call_module) < 0)
        return plugin_refuse(-ENOTSUP, "torch.nn.Module.__call__ is not a plain function here; "
                                       "something else has replaced it");
    (void)hook_class(s->optimizer_class, "_optimizer_step_code", step_code);
    (void)hook_class(s->optimizer_class, "add_param_group", step_group);
    step_wrap_classes(s->optimizer_class);
    hook_engine();
    hook_modules();
    loss_find();
    comm_find();
    coordinates_find();
    memory_find();
    device_find();
    tell_dynamo();
    return 0;
}

/* With the GIL. */
int install_undo(void *unused)
{
    (void)unused;
    atomic_store_explicit(&torch_state.on, false, memory_order_relaxed);
    torch_state.live = false;
    offer_step(false);
    int kept = hook_restore_all();
    if (torch_state.module_class)
        tell_dynamo();
    names_forget_all();
    versions_end();
    data_forget();
    backward_forget();
    comm_forget();
    coordinates_forget();
    ddp_forget();
    loss_forget();
    variables_forget();
    tensor_forget();
    storage_forget();
    device_forget();
    memory_forget();
    drop_torch();
    plugin_leave_host();
    return kept;
}

/* With the GIL. */
int install_do(void *unused)
{
    int rc = load_python();
    if (rc < 0)
        return rc;
    torch_state.live = true;
    torch_state.life++;
    rc = find_torch();
    if (rc == 0) {
        torch_state.backward_told = backward_find();
        plugin_reset_rows();
        capture_begin();
        step_listen(listeners);
        rc = put_hooks();
    }
    if (rc < 0)
        (void)install_undo(unused);
    else
        atomic_store_explicit(&torch_state.on, true, memory_order_relaxed);
    coordinates_step(/* counted= */ rc >= 0);
    offer_step(rc >= 0);
    return rc;
}
