/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/install.c - into torch and out of it: what is looked up there, and where hooks go.
 *
 * Threads: any that holds the GIL.
 * It never imports torch, and adds no hook of torch's own kind: those cost more than our work.
 */
#include "install.h"

#include <errno.h>

#include "dist/collective.h"
#include "module_calls/model_reader.h"
#include "module_calls/module_calls.h"
#include "module_registry/module_names.h"
#include "profiler/profile_run.h"
#include "python/dict_version.h"
#include "python/pyobject.h"
#include "python/tensor_storage.h"
#include "steps/dataloader.h"
#include "steps/loop_table.h"
#include "steps/recent_calls.h"
#include "steps/step.h"
#include "variables/loss.h"
#include "variables/variables.h"

/* torch.compile compares a module's call with what Module.__call__ was when dynamo was imported,
 * and traces straight into forward() when they are the same; anything else it cannot trace.  So
 * tell it what stands there now.  (Seen in torch 2.13; can go when dynamo looks it up itself.) */
static void tell_dynamo(void)
{
    static const char name[] = "unpatched_nn_module_call";
    static const char *const modules[] = {"torch._dynamo.utils",
                                          "torch._dynamo.variables.nn_module"};
    struct cpython *py = &python.api;
    PyObject *now = object_get(python.module_class, "__call__");
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
 * function without us, or a hook from before the last stop().  Anything else that stands there
 * calls us, or shall not be watched. */
static void hook_calls_again(void)
{
    static const char *const torchs[] = {"_wrapped_call_impl", "_call_impl"};
    PyObject *class = python.module_class, *now = object_get(class, "__call__");
    bool ours = now && hook_is(now);
    for (size_t i = 0; i < sizeof(torchs) / sizeof(torchs[0]) && now && !ours; i++) {
        PyObject *function = object_get(class, torchs[i]);
        ours = function == now;
        python.api.Py_DecRef(function);
    }
    python.api.Py_DecRef(now);
    if (ours && hook_class_plain(class, "__call__", call_module) == 0)
        tell_dynamo();
}

static uint32_t hooked; /* lock: the GIL; bits: places in torch's modules that have their hook */

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
    struct cpython *py = &python.api;
    for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++) {
        PyObject *module = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), hooks[i].module);
        PyObject *class = hooks[i].class ? object_get(module, hooks[i].class) : NULL;
        if (hooked & 1u << i)
            module = NULL; /* it may have been wrapped since: that is not ours to change */
        hooked |= module ? 1u << i : 0;
        if (module && !hooks[i].class)
            (void)hook_instance(module, hooks[i].name, hooks[i].call);
        else if (module && class)
            (void)hook_class(class, hooks[i].name, hooks[i].call);
        py->Py_DecRef(class);
        py->PyErr_Clear();
    }
    hook_calls_again();
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
    (void)hook_class(python.tensor_class, "backward", call_tensor_backward);
    python.api.Py_DecRef(engine);
    python.api.Py_DecRef(variable);
}

/* All that hears of steps; at one event they are called in this order. */
static const struct step_listener listeners[] = {
    {.look = hook_modules},
    {.look = loss_find, .optimizes = loss_optimizer},
    {.look = comm_find, .ended = comm_ended},
    {.look = coordinates_find, .ends = coordinates_ends, .ended = coordinates_ended},
    {.ends = timing_add},
    {.settings = variables_settings, .ends = variables_ends},
    {.ends = recent_ends},
    {.look = memory_find},
    {.look = device_find, .ended = device_ended},
    {.settings = call_settings},
    {.optimized = safe_point_optimized},
    {.ended = ddp_ended},
    {.ended = loop_ended},
    {.begun = capture_step},
    {.look = NULL},
};

static bool is_optimizer(PyObject *class)
{
    return python.api.PyType_IsSubtype(class, python.optimizer_class);
}

static int put_hooks(const char **ret_why)
{
    static const struct names_sought sought[] = {
        {is_optimizer, step_wrap}, {data_is_iterator, data_remember}, {NULL, NULL}};
    tensor_find();
    storage_find();
    int rc = names_scan(sought);
    if (rc < 0)
        return torch_refuse(ret_why, rc, "no memory");
    if (hook_class_plain(python.module_class, "__call__", call_module) < 0)
        return torch_refuse(ret_why, -ENOTSUP,
                            "torch.nn.Module.__call__ is not a plain function here; "
                            "something else has replaced it");
    (void)hook_class(python.optimizer_class, "_optimizer_step_code", step_code);
    (void)hook_class(python.optimizer_class, "add_param_group", step_group);
    step_wrap_classes(python.optimizer_class);
    hook_engine();
    step_look();
    tell_dynamo();
    return 0;
}

/* With the GIL. */
int install_undo(void *unused)
{
    (void)unused;
    atomic_store_explicit(&torch_state.on, false, memory_order_relaxed);
    torch_state.live = false;
    program_calls_offer(false);
    int kept = hook_restore_all();
    if (python.module_class)
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
    python_drop_torch();
    torch_leave_host();
    return kept;
}

/* With the GIL. */
int install_do(void *ret_why)
{
    int rc = python_load(ret_why);
    if (rc < 0)
        return rc;
    torch_state.live = true;
    torch_state.life++;
    rc = python_find_torch(ret_why);
    if (rc == 0) {
        const struct probing_host *h = torch_state.host;
        hooked = 0;
        module_calls.backwards = 0;
        module_calls.has_backward = backward_find();
        trace_reset();
        coordinates_begin(h->extension(h, PROBING_PYTHON_COORDINATES_1));
        capture_begin();
        step_listen(listeners);
        step_reset();
        rc = put_hooks(ret_why);
    }
    if (rc < 0)
        (void)install_undo(NULL);
    else
        atomic_store_explicit(&torch_state.on, true, memory_order_relaxed);
    coordinates_set_step(/* counted= */ rc >= 0);
    program_calls_offer(rc >= 0);
    return rc;
}
