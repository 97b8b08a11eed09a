/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_calls/backward.c - how long a module's backward takes, without a change of
 * its graph; and from when on a whole backward only waits for other ranks.
 *
 * Threads: any that holds the GIL; begin_spans() and end_spans() come on autograd's threads.
 *
 * torch's own backward hooks of modules put functions of their own into the graph, which breaks
 * operations in place.  Here only nodes that are there get hooks that look and change nothing.
 * Which nodes: autograd's engine runs those that are ready in the order in which they were made,
 * the newest first, and a module's nodes were made one after another.  So a module's backward
 * begins before the node of its output and ends after the oldest node that was made in its
 * forward; what runs between is its own, and gradients of parameters that are added up meanwhile.
 *
 * To hook a node runs some of torch's Python, which costs more than all the rest; and a walk of
 * each module would look at a node once for every module that it is inside of.  So a module shares
 * the hooks of the modules inside it: that of the last one's output where it gave the same, and
 * that of the first one's oldest node where that is the first node made in its own forward, too
 * (nothing can be older).  That the outputs depend on that node is not known without a walk: the
 * first calls of a module are walked, and one in TRUSTED later on.
 *
 * No row: outputs that are no plain tensors (or deeper than one list or dict), more nodes than
 * autograd_graph.c looks at where no hook can be shared, parts of the graph that were made by
 * another thread, a begin and an end on different threads, torch before 2 (it does not tell the
 * order of its nodes).
 *
 * DistributedDataParallel waits for the other ranks behind all gradients, in a function that
 * autograd's engine calls last.  A function of ours that is queued when the first node has run is
 * called before it: what comes after that is communication.  It cannot be queued from outside
 * of a backward, so the first node has a hook for as long as the backward runs.  On a GPU the
 * backward runs on another thread and the CPU does not wait in it, so nothing is done there.
 */
#include "module_calls/module_calls.h"

#include <stdlib.h>

#include "module_registry/autograd_graph.h"
#include "module_registry/registry.h"
#include "python/pyobject.h"
#include "python/tensor.h"
#include "steps/call_thread.h"
#include "steps/recent_calls.h"

#define DEPTH_MAX 64u /* of modules inside of each other that share hooks */
#define AGREED 2      /* walks of a module that found what its parts say: they are believed then */
#define TRUSTED 64    /* calls until it is walked again */
#define CAPSULE "probing.span"
#define WAIT_LEAST_NS \
    (50 * PROBING_NS_PER_US) /* without DDP, less is what the engine does to return */

struct span { /* one call's backward */
    uint32_t life;
    uint32_t holders; /* nodes' hooks, spans that are told of it, `parts`; freed with the last */
    int64_t task;     /* the run of the engine that begin_ns belongs to */
    uint64_t name, device, begin_ns;
    int64_t micro, seq;
    const struct thread *thread;        /* that began; compared only */
    uint64_t output, oldest;            /* nodes, by their order; output: GRAPH_NEVER: several */
    bool begins, ends;                  /* the hook of `output`, of `oldest` is still there */
    struct span *begin_next, *end_next; /* owned; modules around it that share its hooks */
};

struct module_calls module_calls;

static struct {
    PyObject *inside, *queue;                    /* torch's functions, owned */
    PyObject *first, *last;                      /* functions of ours, owned */
    PyObject *before, *after, *remove, *grad_fn; /* attribute names, owned */
} known;                                         /* lock: the GIL */
static __thread struct parts { /* of the call at that depth, those that are done; held */
    struct span *first, *last;
} parts[DEPTH_MAX];

static PyObject *new_none(void)
{
    python.api.Py_IncRef(python.api._Py_NoneStruct);
    return python.api._Py_NoneStruct;
}

static struct span *hold_span(struct span *span)
{
    if (span)
        span->holders++;
    return span;
}

/* As deep as modules are at most. */
static void release_span(struct span *span)
{
    while (span && --span->holders == 0) {
        struct span *next = span->end_next;
        release_span(span->begin_next);
        free(span);
        span = next;
    }
}

static void drop_begin(PyObject *capsule)
{
    struct span *span = python.api.PyCapsule_GetPointer(capsule, CAPSULE);
    for (struct span *s = span; s; s = s->begin_next)
        s->begins = false;
    release_span(span);
}

static void drop_end(PyObject *capsule)
{
    struct span *span = python.api.PyCapsule_GetPointer(capsule, CAPSULE);
    for (struct span *s = span; s; s = s->end_next)
        s->ends = false;
    release_span(span);
}

/* The run of autograd's engine that this thread works for; negative: none. */
static int64_t task_now(void)
{
    struct cpython *py = &python.api;
    PyObject *value = known.inside ? cpython_vectorcall(py, known.inside, NULL, 0, NULL) : NULL;
    int64_t task = value ? py->PyLong_AsLongLong(value) : -2;
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return task;
}

static PyObject *begin_spans(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    uint64_t called_ns = torch_state.now();
    struct span *span = python.api.PyCapsule_GetPointer(self, CAPSULE);
    (void)args;
    (void)n;
    (void)kwnames;
    if (!torch_on() || !span || span->life != torch_state.life)
        return new_none();
    int64_t task = task_now();
    struct thread *t = call_thread();
    uint64_t now_ns = torch_state.now();
    for (; span; span = span->begin_next) {
        if (span->begin_ns && span->task == task) /* another output was first */
            continue;
        span->task = task;
        span->thread = t;
        span->seq = steps.seq++;
        span->begin_ns = now_ns;
    }
    t->walks_ns += now_ns - called_ns;
    return new_none();
}

static void add_row(const struct span *span, uint64_t end_ns)
{
    union probing_cell row[N_TRACE];
    memcpy(row, steps.row, sizeof(row));
    row[COL_MICRO_STEP].i = span->micro;
    row[COL_LOCAL_STEP].i = (int64_t)steps.step;
    row[COL_SEQ].i = span->seq;
    row[COL_MODULE].u = span->name;
    row[COL_STAGE].u = steps.stages[STAGE_BACKWARD];
    row[COL_DURATION].f = probing_seconds(end_ns - span->begin_ns);
    if (steps.begin_ns && span->begin_ns >= steps.begin_ns)
        row[COL_TIME_OFFSET].f = probing_seconds(end_ns - steps.begin_ns);
    row[COL_DEVICE].u = span->device;
    if (recent_is_wanted())
        recent_add_call(&(struct recent_call){.tid = call_thread()->tid,
                                              .begin_ns = span->begin_ns,
                                              .end_ns = end_ns,
                                              .step = steps.step,
                                              .name = span->name});
    (void)torch_state.host->append(steps.trace, end_ns, row, N_TRACE_SHORT, NULL, 0);
}

static PyObject *end_spans(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    uint64_t end_ns = torch_state.now();
    struct span *span = python.api.PyCapsule_GetPointer(self, CAPSULE);
    (void)args;
    (void)n;
    (void)kwnames;
    bool on = span && torch_on() && torch_state.live && span->life == torch_state.life;
    struct thread *t = on ? call_thread() : NULL;
    int64_t task = on ? task_now() : -1;
    for (; span; span = span->end_next) {
        if (on && span->begin_ns && span->task == task && span->thread == t)
            add_row(span, end_ns);
        span->begin_ns = 0;
    }
    if (on)
        t->walks_ns += torch_state.now() - end_ns;
    return new_none();
}

/* Hook a node so that fn(span, ...) is called. */
static bool hook_node(PyObject *node, PyObject *name, struct span *span, PyCFunctionFastKeywords fn)
{
    static struct cpython_method before = {"probing_begun", NULL, METH_FASTCALL | METH_KEYWORDS,
                                           NULL};
    static struct cpython_method after = {"probing_ended", NULL, METH_FASTCALL | METH_KEYWORDS,
                                          NULL};
    struct cpython *py = &python.api;
    struct cpython_method *method = fn == begin_spans ? &before : &after;
    memcpy(&method->call, &fn, sizeof(method->call));
    PyObject *capsule = py->PyCapsule_New(span, CAPSULE, fn == begin_spans ? drop_begin : drop_end);
    if (capsule)
        (void)hold_span(span);
    PyObject *function = capsule ? py->PyCFunction_NewEx(method, capsule, NULL) : NULL;
    PyObject *handle = function ? py->PyObject_CallMethodObjArgs(node, name, function, NULL) : NULL;
    bool worked = handle != NULL;
    py->PyErr_Clear();
    py->Py_DecRef(handle);
    py->Py_DecRef(function);
    py->Py_DecRef(capsule);
    return worked;
}

/* Its begin is where `last` begins, if that gave the same. */
static void attach_begin(struct span *span, const struct graph_output *outputs, uint32_t n,
                         struct span *last)
{
    span->output = n == 1 ? outputs[0].order : GRAPH_NEVER;
    for (uint32_t i = 0; i < n; i++) {
        bool shared = last && last->begins && last->output == outputs[i].order;
        if (shared && !last->begin_next)
            last->begin_next = hold_span(span);
        span->begins = shared || hook_node(outputs[i].node, known.before, span, begin_spans);
    }
}

/* ---- a whole backward ---- */

/* It computes on this thread, and it is none that runs inside of another one. */
static bool is_computing(const struct thread *t)
{
    return torch_on() && torch_state.live && t->backward_depth == 1 && t->phase == PHASE_BACKWARD;
}

static PyObject *all_computed(PyObject *self, PyObject *const *args, Py_ssize_t n,
                              PyObject *kwnames)
{
    struct thread *t = call_thread();
    (void)self;
    (void)args;
    (void)n;
    (void)kwnames;
    if (is_computing(t))
        t->computed_ns = torch_state.now();
    return new_none();
}

static PyObject *first_ran(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    struct cpython *py = &python.api;
    PyObject *words[] = {known.last};
    (void)self;
    (void)args;
    (void)n;
    (void)kwnames;
    if (is_computing(call_thread()) && known.queue && known.last)
        py->Py_DecRef(cpython_vectorcall(py, known.queue, words, 1, NULL));
    py->PyErr_Clear();
    return new_none();
}

/* torch.compile traces such a backward, in which no function of ours can be. */
static bool is_compiled(void)
{
    PyObject *is =
        object_get(object_module("torch._dynamo.compiled_autograd"), "compiled_autograd_enabled");
    python.api.Py_DecRef(is); /* a constant of the interpreter */
    return is == python.api._Py_TrueStruct;
}

/* A tensor's node, new reference; NULL: none, or one that runs on a device. */
static PyObject *node_of(PyObject *tensor)
{
    struct cpython *py = &python.api;
    PyObject *guard, *node = NULL;
    if (object_type(tensor) != python.tensor_class || !tensor_quiet(&guard))
        return NULL;
    PyObject *cuda = object_get(tensor, "is_cuda");
    if (cuda != py->_Py_TrueStruct)
        node = py->PyObject_GetAttr(tensor, known.grad_fn);
    py->Py_DecRef(cuda);
    py->PyErr_Clear();
    tensor_loud(guard);
    if (node != py->_Py_NoneStruct)
        return node;
    py->Py_DecRef(node);
    return NULL;
}

PyObject *backward_begin(struct thread *t, PyObject *args, PyObject *kwargs)
{
    struct cpython *py = &python.api;
    t->computed_ns = 0;
    bool many = steps.row[COL_COORDINATES + PROBING_WORLD_SIZE].i > 1;
    if (!many || !known.queue || !known.first || !torch_state.host->wanted(steps.timing))
        return NULL;
    PyObject *adds = kwargs ? py->PyDict_GetItemString(kwargs, "accumulate_grad") : NULL;
    PyObject *tensors = py->PyTuple_Size(args) > 0 ? py->PyTuple_GetItem(args, 0) : NULL;
    bool some = adds == py->_Py_TrueStruct && tensors && object_is(tensors, py->PyTuple_Type) &&
                py->PyTuple_Size(tensors) > 0;
    PyObject *node = some && !is_compiled() ? node_of(py->PyTuple_GetItem(tensors, 0)) : NULL;
    PyObject *handle =
        node ? py->PyObject_CallMethodObjArgs(node, known.after, known.first, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(node);
    return handle;
}

void backward_waited(struct thread *t, uint64_t end_ns)
{
    bool waited = t->computed_ns && (registry.has_ddp || end_ns - t->computed_ns >= WAIT_LEAST_NS);
    if (waited && t->phase == PHASE_BACKWARD && t->phase_ns <= t->computed_ns)
        (void)step_phase(t, PHASE_COMM, t->computed_ns);
}

void backward_end(PyObject *handle)
{
    struct cpython *py = &python.api;
    PyObject *class = NULL, *value = NULL, *traceback = NULL;
    if (!handle)
        return;
    py->PyErr_Fetch(&class, &value, &traceback);
    if (known.remove) /* else the plugin was stopped meanwhile, and the hook does nothing */
        py->Py_DecRef(py->PyObject_CallMethodObjArgs(handle, known.remove, NULL));
    py->PyErr_Clear();
    py->Py_DecRef(handle);
    py->PyErr_Restore(class, value, traceback);
}

static PyObject *function_of(struct cpython_method *method, PyCFunctionFastKeywords fn)
{
    memcpy(&method->call, &fn, sizeof(method->call));
    return python.api.PyCFunction_NewEx(method, NULL, NULL);
}

static void find_whole(void)
{
    static struct cpython_method first = {"probing_backward_begun", NULL,
                                          METH_FASTCALL | METH_KEYWORDS, NULL};
    static struct cpython_method last = {"probing_backward_computed", NULL,
                                         METH_FASTCALL | METH_KEYWORDS, NULL};
    PyObject *variable = object_get(object_module("torch.autograd"), "Variable");
    PyObject *engine = object_get_from(variable, "_execution_engine");
    known.queue = object_get_from(engine, "queue_callback");
    known.first = function_of(&first, first_ran);
    known.last = function_of(&last, all_computed);
    known.remove = python.api.PyUnicode_InternFromString("remove");
    known.grad_fn = python.api.PyUnicode_InternFromString("grad_fn");
    python.api.PyErr_Clear();
}

/* ---- what torch has for it ---- */

bool backward_find(void)
{
    struct cpython *py = &python.api;
    PyObject *c = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "torch._C");
    known.inside = c ? py->PyObject_GetAttrString(c, "_current_graph_task_id") : NULL;
    py->PyErr_Clear();
    known.before = py->PyUnicode_InternFromString("register_prehook");
    known.after = py->PyUnicode_InternFromString("register_hook");
    py->PyErr_Clear();
    find_whole();
    return graph_find() && known.inside && known.before && known.after;
}

void backward_forget(void)
{
    PyObject **held[] = {&known.inside, &known.queue, &known.first,  &known.last,
                         &known.before, &known.after, &known.remove, &known.grad_fn};
    object_drop_all(held, PROBING_LENGTH(held));
    graph_forget();
}

/* Give the parts inside of a call at this depth; NULL: too deep. */
static struct parts *parts_at(uint32_t depth)
{
    return depth < DEPTH_MAX ? &parts[depth] : NULL;
}

static void forget_parts(struct parts *p)
{
    struct parts old = *p;
    *p = (struct parts){.first = NULL};
    release_span(old.first);
    release_span(old.last);
}

uint64_t backward_enter(void)
{
    struct parts *inside = parts_at(call_thread()->depth);
    if (inside) /* what a call that raised has left */
        forget_parts(inside);
    return known.inside && task_now() == -1 ? graph_count() : GRAPH_NEVER;
}

bool backward_inside(const struct thread *t)
{
    if (t->backward_depth)
        return true;
    return module_calls.backwards && task_now() != -1; /* one of autograd's own threads */
}

/* A hook at its oldest node, which a walk finds.  false: there is none. */
static bool attach_end(struct span *span, const struct graph_output *outputs, uint32_t n,
                       uint64_t from, bool *ret_too_large)
{
    PyObject *oldest = graph_oldest(outputs, n, from, &span->oldest, ret_too_large);
    span->ends = oldest && hook_node(oldest, known.after, span, end_spans);
    python.api.Py_DecRef(oldest);
    return span->ends;
}

/* Find the end of a span's backward: that of the first of its parts, or what a walk finds. */
static bool find_end(struct span *span, const struct graph_output *outputs, uint32_t n,
                     const struct backward_call *call, struct span *first, bool *ret_too_large)
{
    struct module *m = names_find(call->object);
    uint8_t agreed = m ? m->agreed : 0;
    bool shared = first && first->ends && first->oldest == call->from && !first->end_next;
    bool walked = !shared || agreed < AGREED || agreed >= TRUSTED;
    bool found = walked && attach_end(span, outputs, n, call->from, ret_too_large);
    bool same = shared && (!found || span->oldest == first->oldest);
    if ((m = names_find(call->object))) /* torch's Python ran meanwhile */
        m->agreed = !same ? 0 : agreed >= TRUSTED ? AGREED : (uint8_t)(agreed + 1);
    if (found || !shared || (walked && !*ret_too_large))
        return found;
    *ret_too_large = false;
    span->oldest = first->oldest;
    span->ends = true;
    first->end_next = hold_span(span);
    return true;
}

static bool measure_backward(const struct graph_output *outputs, uint32_t n,
                             const struct backward_call *call, const struct parts *inside,
                             struct parts *beside)
{
    struct span *span = calloc(1, sizeof(*span));
    bool too_large = false;
    if (!span)
        return true;
    *span = (struct span){.life = torch_state.life,
                          .holders = 1,
                          .name = call->name,
                          .device = call->device,
                          .micro = call->micro};
    if (find_end(span, outputs, n, call, inside->first, &too_large)) {
        attach_begin(span, outputs, n, inside->last);
        if (beside) {
            release_span(beside->last);
            beside->last = hold_span(span);
            beside->first = beside->first ? beside->first : hold_span(span);
        }
    }
    release_span(span);
    return !too_large;
}

bool backward_leave(PyObject *result, const struct backward_call *call)
{
    struct graph_output outputs[GRAPH_OUTPUTS_MAX + 1];
    PyObject *guard;
    uint32_t depth = call_thread()->depth;
    struct parts inside = {.first = NULL}, *left = parts_at(depth + 1);
    if (!tensor_quiet(&guard))
        return true;
    uint32_t n = graph_outputs(result, call->from, outputs);
    tensor_loud(guard);
    if (left) {
        inside = *left;
        *left = (struct parts){.first = NULL};
    }
    bool fits =
        n == 0 || measure_backward(outputs, n, call, &inside, depth ? parts_at(depth) : NULL);
    forget_parts(&inside);
    while (n)
        python.api.Py_DecRef(outputs[--n].node);
    return fits;
}
