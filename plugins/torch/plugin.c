/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/plugin.c - the torch plugin: its tables, its setting, in and out of the process.
 *
 * Threads: [control] for what the core calls; install() and uninstall() run with the GIL.
 * It never imports torch, and adds no hook of torch's own kind: those cost more than our work.
 */
#include "capture.h"
#include "comm.h"
#include "device.h"
#include "tensor.h"
#include "torch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <probing/ext/draft/python.h>
#include <probing/ext/draft/torch_step.h>

#define GIL_WAIT_NS UINT64_C(10000000000) /* a step that holds the GIL for longer is stuck */
#define LONGEST_REASON 200
#define LOOK_NS UINT64_C(1000000000)

#define I64(n, u, d)                                        \
    {                                                       \
        .name = n, .type = PROBING_I64, .unit = u, .doc = d \
    }
#define F64(n, u, d)                                        \
    {                                                       \
        .name = n, .type = PROBING_F64, .unit = u, .doc = d \
    }
#define STR(n, d)                                \
    {                                            \
        .name = n, .type = PROBING_STR, .doc = d \
    }

static const struct probing_column trace_columns[N_TRACE] = {
    I64("micro_step", PROBING_COUNT,
        "which forward of the same model in this step, from 0; NULL outside of training"),
    I64("local_step", PROBING_COUNT, "steps ended since the plugin was loaded"),
    I64("global_step", PROBING_COUNT, "as told by probing.step(number); NULL: not told"),
    I64("rank", PROBING_PLAIN, "RANK of the environment"),
    I64("world_size", PROBING_COUNT, "WORLD_SIZE of the environment"),
    STR("role", "as told by probing.set_role(), or ROLE_NAME of the environment"),
    I64("seq", PROBING_COUNT, "order in which the calls of this step began, from 0"),
    STR("module", "as in named_modules(); the class for a root or an optimizer"),
    STR("stage", "what has ended: 'post forward', 'post backward', 'post step', 'skipped step' "
                 "(a GradScaler's, after an overflow) or 'post data' (a DataLoader's next())"),
    F64("duration", PROBING_SECONDS, "time inside the call; on a GPU until its work is queued"),
    F64("time_offset", PROBING_SECONDS, "from the step's begin to this call's end"),
    F64("allocated", PROBING_MB, "device memory in use; NULL: not measured"),
    F64("allocated_delta", PROBING_MB, "change of it by this call; NULL: not measured"),
    F64("max_allocated", PROBING_MB, "its peak; NULL: not measured"),
    F64("max_allocated_delta", PROBING_MB, "change of the peak by this call; NULL: not measured"),
    F64("cached", PROBING_MB, "device memory held by torch's allocator; NULL: not measured"),
    F64("max_cached", PROBING_MB, "its peak; NULL: not measured"),
    STR("device", "of the module's first own parameter; NULL: it has none"),
};

static const struct probing_column timing_columns[N_TIMING] = {
    I64("steps", PROBING_COUNT, "local_step"),
    F64("step_duration_sec", PROBING_SECONDS,
        "from the end of the last step to the end of this one"),
    F64("forward_sec", PROBING_SECONDS,
        "top-level forwards; in training, those of modules in training mode"),
    F64("backward_sec", PROBING_SECONDS,
        "autograd's engine, as backward() and grad() call it; on a GPU until it is queued"),
    F64("optimizer_sec", PROBING_SECONDS, "step() of optimizers and GradScalers"),
    F64("dataloader_sec", PROBING_SECONDS, "waiting in next() of DataLoaders"),
    F64("comm_sec", PROBING_SECONDS,
        "torch.distributed's operations called from Python, and waiting for them"),
    F64("other_sec", PROBING_SECONDS, "the rest of the step: with it, the parts add up"),
    F64("overhead_sec", PROBING_SECONDS, "our own cost, measured on one module call in 61"),
    I64("sampled", PROBING_PLAIN, "1: this step has rows in python.torch_trace"),
    F64("sample_rate", PROBING_PLAIN, "share of the steps that shall have rows"),
    STR("step_end", "what ended it: optimizer, forward (again, of a model) or probing.step"),
};

struct torch torch_state;           /* lock: see torch.h */
static char reason[LONGEST_REASON]; /* lock: start() and stop() come one at a time */

static int refuse(int code, const char *text)
{
    (void)snprintf(reason, sizeof(reason), "%s", text);
    return code;
}

/* New reference, or NULL. */
static PyObject *attribute_of(PyObject *object, const char *name)
{
    PyObject *value = object ? torch_state.py.PyObject_GetAttrString(object, name) : NULL;
    torch_state.py.PyErr_Clear();
    return value;
}

/* An attribute of an imported module, new reference; NULL: not there (yet). */
static PyObject *attribute(const char *module, const char *name)
{
    struct cpython *py = &torch_state.py;
    PyObject *found = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), module);
    return attribute_of(found, name);
}

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
    MORE(PyObject_GC_UnTrack)
    MORE(PyObject_GC_Del)
    MORE(PyObject_ClearWeakRefs)
    bool all = whole;
    MORE(PyInstanceMethod_New)
    MORE(_PyType_Lookup)
    MORE(PyFrame_GetVar)
#undef MORE
    return all;
}

static int load_python(void)
{
    struct cpython *py = &torch_state.py;
    int rc = cpython_load(py);
    if (rc == -ENOTSUP)
        return refuse(rc, "this Python is older than 3.8");
    if (rc < 0 || !load_more())
        return refuse(-ENODEV, "this process's CPython lacks functions that the plugin needs");
    if (cpython_since(py, 14))
        return refuse(-ENOTSUP, "CPython 3.14 and later are not known to the torch plugin yet");
    if (strstr(py->Py_GetVersion(), "free-threading"))
        return refuse(-ENOTSUP, "a Python without a GIL is not supported by the torch plugin");
    return 0;
}

static int find_torch(void)
{
    struct torch *s = &torch_state;
    struct cpython *py = &s->py;
    s->module_class = attribute("torch.nn.modules.module", "Module");
    s->parameter_class = attribute("torch.nn.parameter", "Parameter");
    s->optimizer_class = attribute("torch.optim.optimizer", "Optimizer");
    s->tensor_class = attribute("torch", "Tensor");
    s->grad_enabled = attribute("torch", "is_grad_enabled");
    PyObject *last = attribute("torch", "__version__");
    PyObject *call = attribute_of(s->module_class, "__call__");
    s->forward_code = attribute_of(call, "__code__");
    py->Py_DecRef(call);
    bool whole =
        s->module_class && s->parameter_class && s->optimizer_class && s->tensor_class && last;
    py->Py_DecRef(last);
    s->text_modules = py->PyUnicode_InternFromString("_modules");
    s->text_parameters = py->PyUnicode_InternFromString("_parameters");
    s->text_training = py->PyUnicode_InternFromString("training");
    if (!whole)
        return refuse(-EAGAIN, "torch is not imported in this process; load the plugin after "
                               "`import torch` has run");
    if (!s->text_modules || !s->text_parameters || !s->text_training)
        return refuse(-ENOMEM, "no memory");
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

/* A whole number of the environment; anything else is as if it were not there. */
static int64_t number_of(const char *name)
{
    const char *text = getenv(name);
    int64_t value = 0;
    if (!text || !*text)
        return PROBING_NULL_I64;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || value > INT32_MAX)
            return PROBING_NULL_I64;
        value = value * 10 + (*text - '0');
    }
    return value;
}

static uint64_t intern(const char *text)
{
    uint64_t id;
    if (!text || !*text || torch_state.host->intern(torch_state.host, text, strlen(text), &id) < 0)
        return PROBING_NULL_ID;
    return id;
}

static void reset_rows(void)
{
    struct torch *s = &torch_state;
    for (int i = 0; i < N_TRACE; i++) {
        switch (trace_columns[i].type) {
        case PROBING_I64:
            s->row[i].i = PROBING_NULL_I64;
            break;
        case PROBING_F64:
            s->row[i].u = PROBING_NULL_F64;
            break;
        default:
            s->row[i].u = PROBING_NULL_ID;
        }
    }
    s->row[COL_RANK].i = number_of("RANK"); /* with the GIL: Python's own setenv() has it too */
    s->row[COL_WORLD_SIZE].i = number_of("WORLD_SIZE");
    s->row[COL_ROLE].u = intern(getenv("ROLE_NAME"));
    static const char *const stages[N_STAGES] = {[STAGE_FORWARD] = "post forward",
                                                 [STAGE_BACKWARD] = "post backward",
                                                 [STAGE_STEP] = "post step",
                                                 [STAGE_SKIPPED] = "skipped step",
                                                 [STAGE_DATA] = "post data"};
    static const char *const steppers[N_STEPPERS] = {
        "", [STEPPER_FORWARD] = "forward", [STEPPER_OPTIMIZER] = "optimizer",
        [STEPPER_CALL] = "probing.step"};
    for (int i = 0; i < N_STAGES; i++)
        s->stages[i] = intern(stages[i]);
    for (int i = 0; i < N_STEPPERS; i++)
        s->steppers[i] = intern(steppers[i]);
    s->hooked = 0;
    s->stepper = STEPPER_NONE;
    s->last_optimizer = NULL;
    s->sample_debt = 1; /* the first step has rows */
    s->step = 0;
    s->backwards = 0;
    s->loop.thread = NULL;
    s->loop.tid = 0;
    step_begin(0);
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
    PyObject *now = attribute_of(torch_state.module_class, "__call__");
    PyObject *before = now && hook_is(now) ? hook_original(now) : now;
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
        PyObject *module = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), modules[i]);
        PyObject *known = attribute_of(module, name);
        if (known && known != now &&
            (hook_is(known) ? hook_original(known) == now : known == before))
            (void)py->PyObject_SetAttrString(module, name, now);
        py->PyErr_Clear();
        py->Py_DecRef(known);
    }
    py->Py_DecRef(now);
}

/* Functions and classes of torch's modules, where they are.  Each module is asked for by itself:
 * none is imported. */
void plugin_hook_modules(void)
{
    static const struct {
        const char *module, *class, *name;
        hook_call call;
    } hooks[] = {
        {"torch.amp.grad_scaler", "GradScaler", "step", step_scaler},
        {"torch.cuda.amp.grad_scaler", "GradScaler", "step", step_scaler},
        {"torch.utils.data.dataloader", "_BaseDataLoaderIter", "__next__", data_next},
        {"torch.autograd.profiler", NULL, "_prepare_profiler", capture_others},
        {"torch.autograd.profiler", NULL, "_enable_profiler", capture_others},
        {"torch.autograd.profiler", NULL, "_disable_profiler", capture_others},
    };
    struct cpython *py = &torch_state.py;
    for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++) {
        PyObject *module = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), hooks[i].module);
        PyObject *class = hooks[i].class ? attribute_of(module, hooks[i].class) : NULL;
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
}

/* sys._probing_role(str), which probing.set_role() calls. */
static PyObject *role_told(PyObject *self, PyObject *role)
{
    struct cpython *py = &torch_state.py;
    const char *text = py->PyUnicode_AsUTF8AndSize(role, NULL);
    (void)self;
    py->PyErr_Clear();
    if (text && torch_on() && torch_state.live)
        torch_state.row[COL_ROLE].u = intern(text);
    step_rows_changed();
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

/* What torch.autograd.backward() and grad() call.  They stay as they are: torch.jit and dynamo know
 * them by their addresses, and programs pickle them. */
static void hook_engine(void)
{
    PyObject *variable = attribute("torch.autograd", "Variable");
    PyObject *engine = attribute_of(variable, "_execution_engine");
    if (engine)
        (void)hook_c_method(object_type(engine), "run_backward", call_backward);
    torch_state.py.Py_DecRef(engine);
    torch_state.py.Py_DecRef(variable);
}

static int put_hooks(void)
{
    struct torch *s = &torch_state;
    tensor_find();
    int rc = names_scan(step_wrap);
    if (rc < 0)
        return refuse(rc, "no memory");
    if (hook_class_plain(s->module_class, "__call__", call_module) < 0)
        return refuse(-ENOTSUP, "torch.nn.Module.__call__ is not a plain function here: something "
                                "else has replaced it");
    (void)hook_class(s->optimizer_class, "_optimizer_step_code", step_code);
    step_wrap_classes(s->optimizer_class);
    hook_engine();
    plugin_hook_modules();
    (void)backward_find();
    comm_find();
    memory_find();
    device_find();
    tell_dynamo();
    return 0;
}

/* With the GIL. */
static int uninstall(void *unused)
{
    (void)unused;
    atomic_store_explicit(&torch_state.on, false, memory_order_relaxed);
    torch_state.live = false;
    offer_step(false);
    int kept = hook_restore_all();
    if (torch_state.module_class)
        tell_dynamo();
    names_forget_all();
    data_forget();
    backward_forget();
    comm_forget();
    tensor_forget();
    device_forget();
    memory_forget();
    drop_torch();
    return kept;
}

/* With the GIL. */
static int install(void *unused)
{
    int rc = load_python();
    if (rc < 0)
        return rc;
    torch_state.live = true;
    torch_state.life++;
    rc = find_torch();
    if (rc == 0) {
        reset_rows();
        capture_begin();
        rc = put_hooks();
    }
    if (rc < 0)
        (void)uninstall(unused);
    else
        atomic_store_explicit(&torch_state.on, true, memory_order_relaxed);
    offer_step(rc >= 0);
    return rc;
}

static int with_gil(int (*fn)(void *))
{
    const struct probing_host *h = torch_state.host;
    const struct probing_python_gil_1 *gil = h->extension(h, PROBING_PYTHON_GIL_1);
    if (!gil)
        return refuse(-ENOENT, "plugin python is not loaded (plugin load python) or found "
                               "no Python here");
    int rc = gil->call(fn, NULL, GIL_WAIT_NS);
    if (rc == -ETIMEDOUT)
        return refuse(rc, "the interpreter did not give up the GIL for 10 s: it is stuck; "
                          "look with backtrace");
    if (rc == -ENODEV && !reason[0])
        return refuse(rc, "no Python interpreter runs in this process, or it is ending");
    return rc;
}

static void look(void *self, uint64_t now_ns)
{
    stuck_look(self, now_ns);
    loop_look(now_ns);
}

static int start(void *self)
{
    (void)self;
    reason[0] = '\0';
    int rc = with_gil(install);
    if (rc < 0)
        return torch_state.host->fail(torch_state.host, rc,
                                      reason[0] ? reason : "the hooks could not be put in");
    settings_begin();
    if (torch_state.host->every(torch_state.host, LOOK_NS, look) < 0)
        torch_state.host->log(torch_state.host, PROBING_WARN,
                              "torch: no timer is left: operations that wait are not told");
    return 0;
}

static int stop(void *self)
{
    (void)self;
    const struct probing_host *h = torch_state.host;
    reason[0] = '\0';
    if (capture_quit() < 0)
        return h->fail(h, -EBUSY,
                       "torch's profiler runs for `torch profile`, and the step at "
                       "whose end it stops does not end");
    atomic_store_explicit(&torch_state.on, false, memory_order_relaxed);
    int rc = with_gil(uninstall);
    if (rc == -ENODEV) /* the interpreter has gone, and the hooks with it */
        return 0;
    if (rc < 0)
        return h->fail(h, -EBUSY, reason);
    if (rc > 0)
        h->log(h, PROBING_WARN,
               "torch: something has wrapped our hooks since; there they stay and "
               "only pass calls on");
    return 0;
}

static int configure(void *self, const char *name, const char *value)
{
    (void)self;
    return settings_configure(name, value);
}

static int init(const struct probing_host *h, void **ret_self)
{
    static const struct probing_table_desc trace = {
        .size = sizeof(trace),
        .column_size = sizeof(struct probing_column),
        .name = "python.torch_trace",
        .columns = trace_columns,
        .n_columns = N_TRACE,
        .doc = "every call of every torch module and optimizer",
    };
    static const struct probing_table_desc timing = {
        .size = sizeof(timing),
        .column_size = sizeof(struct probing_column),
        .name = "python.torch_step_timing",
        .columns = timing_columns,
        .n_columns = N_TIMING,
        .doc = "where the time of each training step went",
    };
    torch_state.host = h;
    torch_state.now = h->now;
    settings_init();
    int rc = h->table(h, &trace, &torch_state.trace);
    if (rc < 0)
        return h->fail(h, rc, "the table python.torch_trace could not be made");
    rc = h->table(h, &timing, &torch_state.timing);
    if (rc < 0)
        return h->fail(h, rc, "the table python.torch_step_timing could not be made");
    struct probing_table *computed;
    if ((rc = h->table(h, &comm_table, &torch_state.comm)) < 0 ||
        (rc = h->table(h, &variables_table, &torch_state.variables)) < 0 ||
        (rc = h->table(h, &device_table, &torch_state.device_time)) < 0 ||
        (rc = h->table(h, &data_table, &computed)) < 0 ||
        (rc = h->table(h, &recorder_table, &computed)) < 0 ||
        (rc = h->table(h, &groups_table, &computed)) < 0 ||
        (rc = h->table(h, &loop_table, &computed)) < 0 ||
        (rc = h->table(h, &stuck_table, &torch_state.stuck)) < 0 ||
        (rc = h->table(h, &snapshot_table, &torch_state.snapshot)) < 0 ||
        (rc = h->table(h, &ops_table, &computed)) < 0 ||
        (rc = h->table(h, &waiting_table, &computed)) < 0 ||
        (rc = h->table(h, &capture_table, &computed)) < 0 ||
        (rc = h->table(h, &modules_table, &computed)) < 0 ||
        (rc = h->table(h, &gradients_table, &computed)) < 0 ||
        (rc = h->command(h, &trace_command)) < 0)
        return h->fail(h, rc, "a table of torch's could not be made");
    *ret_self = &torch_state;
    return 0;
}

static void forked(void *self, int phase)
{
    (void)self;
    if (phase == PROBING_FORK_CHILD)
        atomic_store_explicit(&torch_state.on, false, memory_order_relaxed);
}

static void destroy(void *self)
{
    (void)self; /* stop() has given everything back */
}

static int64_t step_now(void)
{
    if (!atomic_load_explicit(&torch_state.on, memory_order_relaxed))
        return -1;
    return (int64_t)__atomic_load_n(&torch_state.step, __ATOMIC_RELAXED);
}

static const void *extension(void *self, const char *id)
{
    static const struct probing_torch_step_1 part = {.size = sizeof(part), .now = step_now};
    (void)self;
    return strcmp(id, PROBING_TORCH_STEP_1) == 0 ? &part : NULL;
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(probing_plugin_v1),
    .abi = PROBING_ABI,
    .name = "torch",
    .version = "0.1.0",
    .doc = "times of every module and optimizer step, without changing the training code",
    .config = settings_table,
    .config_size = sizeof(struct probing_config),
    .init = init,
    .configure = configure,
    .start = start,
    .stop = stop,
    .fork = forked,
    .destroy = destroy,
    .extension = extension,
};
