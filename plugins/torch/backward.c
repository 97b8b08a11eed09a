/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/backward.c - how long a module's backward takes, without a change of its graph.
 *
 * Threads: any that holds the GIL; begun() and ended() come on autograd's threads.
 *
 * torch's own backward hooks of modules put functions of their own into the graph, which breaks
 * operations in place.  Here only nodes that are there get hooks that look and change nothing.
 * Which nodes: autograd's engine runs those that are ready in the order in which they were made,
 * the newest first, and a module's nodes were made one after another.  So a module's backward
 * begins before the node of its output and ends after the oldest node that was made in its
 * forward; what runs between is its own, and gradients of parameters that are added up meanwhile.
 *
 * No row: outputs that are no plain tensors (or deeper than one list or dict), more than NODES_MAX
 * nodes, parts of the graph that were made by another thread, a begin and an end on different
 * threads, torch before 2 (it does not tell the order of its nodes).
 */
#include "tensor.h"

#include <stdlib.h>

#define NODES_MAX 2048u /* of one module: a walk over so many takes about a millisecond */
#define SLOTS 4096u     /* of the set of those seen: a power of two, twice as many */
#define SLOTS_SHIFT 52  /* 64 - log2(SLOTS) */
#define OUTPUTS_MAX 16u
#define CAPSULE "probing.span"
#define NEVER UINT64_MAX /* number of nodes that add up gradients: they are of no forward */

struct span { /* one call's backward; owned by the nodes' hooks, freed with the last of them */
    uint32_t life, holders;
    int64_t task; /* the run of the engine that begin_ns belongs to */
    uint64_t name, device, begin_ns;
    int64_t micro, seq;
    const struct thread *thread; /* that began; compared only */
};

struct walk {
    uint64_t from, oldest;
    PyObject *oldest_node;            /* owned */
    uint32_t n_nodes, n_seen, number; /* number: of the walk */
    PyObject *nodes[NODES_MAX];       /* owned; still to look at */
    uint64_t seen[SLOTS];
    uint32_t seen_in[SLOTS];      /* number of the walk; another one: the slot is empty */
    bool failed, too_large, busy; /* busy: garbage may be collected meanwhile, and run anything */
};

static struct {
    PyObject *number, *inside;                         /* torch's functions, owned */
    PyObject *grad_fn, *order, *next, *before, *after; /* attribute names, owned */
} known;                                               /* lock: the GIL */
static struct walk *walk;                              /* lock: the GIL */

static PyObject *none(void)
{
    torch_state.py.Py_IncRef(torch_state.py._Py_NoneStruct);
    return torch_state.py._Py_NoneStruct;
}

static void drop_span(PyObject *capsule)
{
    struct span *span = torch_state.py.PyCapsule_GetPointer(capsule, CAPSULE);
    if (span && --span->holders == 0)
        free(span);
}

/* What a function without arguments gives as a number; NEVER: it failed. */
static uint64_t number_of(PyObject *function)
{
    struct cpython *py = &torch_state.py;
    PyObject *value = function ? cpython_vectorcall(py, function, NULL, 0, NULL) : NULL;
    uint64_t n = value ? py->PyLong_AsUnsignedLongLong(value) : NEVER;
    if (!value || py->PyErr_Occurred())
        n = NEVER;
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return n;
}

/* The run of autograd's engine that this thread works for; negative: none. */
static int64_t task_now(void)
{
    struct cpython *py = &torch_state.py;
    PyObject *value = known.inside ? cpython_vectorcall(py, known.inside, NULL, 0, NULL) : NULL;
    int64_t task = value ? py->PyLong_AsLongLong(value) : -2;
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return task;
}

static PyObject *begun(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    uint64_t called_ns = torch_state.now();
    struct span *span = torch_state.py.PyCapsule_GetPointer(self, CAPSULE);
    (void)args;
    (void)n;
    (void)kwnames;
    int64_t task = task_now();
    if (span && torch_on() && span->life == torch_state.life &&
        (!span->begin_ns || span->task != task)) { /* else another output was first */
        struct thread *t = call_thread();
        span->task = task;
        span->thread = t;
        span->seq = torch_state.seq++;
        span->begin_ns = torch_state.now();
        t->walks_ns += span->begin_ns - called_ns;
    }
    return none();
}

static void add_row(const struct span *span, uint64_t end_ns)
{
    union probing_cell row[N_TRACE];
    memcpy(row, torch_state.row, sizeof(row));
    row[COL_MICRO_STEP].i = span->micro;
    row[COL_LOCAL_STEP].i = (int64_t)torch_state.step;
    row[COL_SEQ].i = span->seq;
    row[COL_MODULE].u = span->name;
    row[COL_STAGE].u = torch_state.stages[STAGE_BACKWARD];
    row[COL_DURATION].f = (double)(end_ns - span->begin_ns) / NS_PER_S;
    if (torch_state.step_begin_ns && span->begin_ns >= torch_state.step_begin_ns)
        row[COL_TIME_OFFSET].f = (double)(end_ns - torch_state.step_begin_ns) / NS_PER_S;
    row[COL_DEVICE].u = span->device;
    (void)torch_state.host->append(torch_state.trace, end_ns, row, N_TRACE, NULL, 0);
}

static PyObject *ended(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    uint64_t end_ns = torch_state.now();
    struct span *span = torch_state.py.PyCapsule_GetPointer(self, CAPSULE);
    (void)args;
    (void)n;
    (void)kwnames;
    if (span && torch_on() && torch_state.live && span->life == torch_state.life &&
        span->begin_ns && span->task == task_now() && span->thread == call_thread()) {
        add_row(span, end_ns);
        call_thread()->walks_ns += torch_state.now() - end_ns;
    }
    if (span)
        span->begin_ns = 0;
    return none();
}

static uint64_t order_of(PyObject *node)
{
    struct cpython *py = &torch_state.py;
    PyObject *method = py->PyObject_GetAttr(node, known.order);
    uint64_t n = number_of(method);
    py->PyErr_Clear();
    py->Py_DecRef(method);
    return n;
}

/* Another node to look at, when it was made in this forward and is not known yet. */
static void meet(struct walk *w, PyObject *node)
{
    uint64_t order = order_of(node);
    if (order == NEVER || order < w->from || w->failed)
        return;
    uint32_t slot = (uint32_t)(order * UINT64_C(0x9e3779b97f4a7c15) >> SLOTS_SHIFT);
    while (w->seen_in[slot] == w->number && w->seen[slot] != order)
        slot = (slot + 1) & (SLOTS - 1);
    if (w->seen_in[slot] == w->number)
        return;
    if (++w->n_seen > NODES_MAX) {
        w->failed = w->too_large = true;
        return;
    }
    w->seen[slot] = order;
    w->seen_in[slot] = w->number;
    if (order < w->oldest) {
        torch_state.py.Py_DecRef(w->oldest_node);
        torch_state.py.Py_IncRef(node);
        w->oldest_node = node;
        w->oldest = order;
    }
    torch_state.py.Py_IncRef(node);
    w->nodes[w->n_nodes++] = node; /* never more than were seen */
}

static void meet_next(struct walk *w, PyObject *node)
{
    struct cpython *py = &torch_state.py;
    PyObject *next = py->PyObject_GetAttr(node, known.next);
    Py_ssize_t n = next ? py->PyTuple_Size(next) : 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *pair = py->PyTuple_GetItem(next, i); /* (node or None, number) */
        PyObject *other = pair ? py->PyTuple_GetItem(pair, 0) : NULL;
        if (other && other != py->_Py_NoneStruct)
            meet(w, other);
    }
    w->failed = w->failed || !next;
    py->PyErr_Clear();
    py->Py_DecRef(next);
}

/* Hook a node so that fn(span, ...) is called. */
static bool attach(PyObject *node, PyObject *name, struct span *span, struct cpython_method *method)
{
    struct cpython *py = &torch_state.py;
    PyObject *capsule = py->PyCapsule_New(span, CAPSULE, drop_span);
    if (capsule)
        span->holders++;
    PyObject *function = capsule ? py->PyCFunction_NewEx(method, capsule, NULL) : NULL;
    PyObject *handle = function ? py->PyObject_CallMethodObjArgs(node, name, function, NULL) : NULL;
    bool worked = handle != NULL;
    py->PyErr_Clear();
    py->Py_DecRef(handle);
    py->Py_DecRef(function);
    py->Py_DecRef(capsule);
    return worked;
}

static void attach_all(PyObject *const *outputs, uint32_t n, PyObject *oldest,
                       const struct backward_call *call)
{
    static struct cpython_method before = {"probing_begun", NULL, METH_FASTCALL | METH_KEYWORDS,
                                           NULL};
    static struct cpython_method after = {"probing_ended", NULL, METH_FASTCALL | METH_KEYWORDS,
                                          NULL};
    struct span *span = calloc(1, sizeof(*span));
    if (!span)
        return;
    memcpy(&before.call, &(PyCFunctionFastKeywords){begun}, sizeof(before.call));
    memcpy(&after.call, &(PyCFunctionFastKeywords){ended}, sizeof(after.call));
    *span = (struct span){.life = torch_state.life,
                          .holders = 1,
                          .name = call->name,
                          .device = call->device,
                          .micro = call->micro};
    bool worked = attach(oldest, known.after, span, &after);
    for (uint32_t i = 0; i < n && worked; i++)
        (void)attach(outputs[i], known.before, span, &before);
    if (--span->holders == 0)
        free(span);
}

/* The node of an output: NULL: it has none, or none of this forward.  false: it is nothing that
 * can be looked into. */
static bool output_node(PyObject *value, uint64_t from, PyObject **ret)
{
    struct cpython *py = &torch_state.py;
    *ret = NULL;
    if (object_type(value) != torch_state.tensor_class) /* another class may run Python code */
        return !py->PyType_IsSubtype(object_type(value), torch_state.tensor_class);
    PyObject *node = py->PyObject_GetAttr(value, known.grad_fn);
    py->PyErr_Clear();
    if (node && node != py->_Py_NoneStruct) {
        uint64_t order = order_of(node);
        if (order != NEVER && order >= from) {
            *ret = node;
            return true;
        }
    }
    py->Py_DecRef(node);
    return true;
}

/* Nodes of what a module gave, new references; 0: none, or not all of it can be looked into. */
static uint32_t output_nodes(PyObject *result, uint64_t from, PyObject **ret)
{
    struct cpython *py = &torch_state.py;
    PyObject *type = object_type(result), *key, *value;
    bool list = py->PyType_IsSubtype(type, py->PyList_Type);
    bool tuple = py->PyType_IsSubtype(type, py->PyTuple_Type);
    Py_ssize_t n = list ? py->PyList_Size(result) : tuple ? py->PyTuple_Size(result) : 0;
    uint32_t found = 0;
    bool whole = n <= OUTPUTS_MAX;
    if (!list && !tuple && !py->PyType_IsSubtype(type, py->PyDict_Type)) {
        whole = output_node(result, from, &ret[0]);
        found = ret[0] != NULL;
    }
    for (Py_ssize_t i = 0; i < n && whole; i++) {
        value = list ? py->PyList_GetItem(result, i) : py->PyTuple_GetItem(result, i);
        whole = output_node(value, from, &ret[found]);
        found += ret[found] != NULL;
    }
    Py_ssize_t at = 0;
    while (py->PyType_IsSubtype(type, py->PyDict_Type) && whole && found < OUTPUTS_MAX &&
           py->PyDict_Next(result, &at, &key, &value)) {
        whole = output_node(value, from, &ret[found]);
        found += ret[found] != NULL;
    }
    while (!whole && found)
        py->Py_DecRef(ret[--found]);
    return found;
}

bool backward_find(void)
{
    struct cpython *py = &torch_state.py;
    PyObject *modules = py->PyImport_GetModuleDict();
    PyObject *c = py->PyDict_GetItemString(modules, "torch._C");
    PyObject *autograd = c ? py->PyObject_GetAttrString(c, "_autograd") : NULL;
    py->PyErr_Clear();
    known.number = autograd ? py->PyObject_GetAttrString(autograd, "_get_sequence_nr") : NULL;
    py->PyErr_Clear();
    known.inside = c ? py->PyObject_GetAttrString(c, "_current_graph_task_id") : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(autograd);
    known.grad_fn = py->PyUnicode_InternFromString("grad_fn");
    known.order = py->PyUnicode_InternFromString("_sequence_nr");
    known.next = py->PyUnicode_InternFromString("next_functions");
    known.before = py->PyUnicode_InternFromString("register_prehook");
    known.after = py->PyUnicode_InternFromString("register_hook");
    py->PyErr_Clear();
    return known.number && known.inside && known.grad_fn && known.order && known.next &&
           known.before && known.after;
}

void backward_forget(void)
{
    PyObject **held[] = {&known.number, &known.inside, &known.grad_fn, &known.order,
                         &known.next,   &known.before, &known.after};
    for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++) {
        torch_state.py.Py_DecRef(*held[i]);
        *held[i] = NULL;
    }
    if (walk && walk->busy) /* stop() came in the middle: one of it is left for ever */
        walk = NULL;
    free(walk);
    walk = NULL;
}

uint64_t backward_enter(void)
{
    return known.number && task_now() == -1 ? number_of(known.number) : NEVER;
}

/* Find the oldest node of a forward, new reference; NULL: there is none, or the search failed. */
static PyObject *oldest_of(struct walk *w, PyObject *const *outputs, uint32_t n, uint64_t from)
{
    w->number++;
    w->from = from;
    w->oldest = NEVER;
    w->oldest_node = NULL;
    w->n_nodes = w->n_seen = 0;
    w->failed = w->too_large = false;
    for (uint32_t i = 0; i < n; i++)
        meet(w, outputs[i]);
    while (w->n_nodes) {
        PyObject *node = w->nodes[--w->n_nodes];
        if (!w->failed)
            meet_next(w, node);
        torch_state.py.Py_DecRef(node);
    }
    if (!w->failed)
        return w->oldest_node;
    torch_state.py.Py_DecRef(w->oldest_node);
    return NULL;
}

bool backward_leave(PyObject *result, const struct backward_call *call)
{
    PyObject *outputs[OUTPUTS_MAX + 1] = {NULL}, *guard;
    if (!tensor_quiet(&guard))
        return true;
    uint32_t n = output_nodes(result, call->from, outputs);
    tensor_loud(guard);
    bool too_large = false;
    if (n && !walk)
        walk = calloc(1, sizeof(*walk));
    struct walk *w = walk;
    if (n && w && !w->busy) {
        w->busy = true;
        PyObject *oldest = oldest_of(w, outputs, n, call->from);
        too_large = w->too_large;
        if (oldest)
            attach_all(outputs, n, oldest, call);
        w->busy = false;
        torch_state.py.Py_DecRef(oldest);
    }
    while (n)
        torch_state.py.Py_DecRef(outputs[--n]);
    return !too_large;
}
