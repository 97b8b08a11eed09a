/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_registry/autograd_graph.c - the nodes behind a module's output, and the
 * oldest of them.
 *
 * Threads: any that holds the GIL.
 * A walk ends early at the first node of a forward, for nothing can be older: most do.
 */
#include "module_registry/autograd_graph.h"
#include "python/pyobject.h"

#include <stdlib.h>

#include "lib/hash.h"

#define NODES_MAX 2048u /* of one module: a walk over so many takes about a millisecond */
#define SLOTS 4096u     /* of the set of those seen: a power of two, twice as many */
#define SLOTS_SHIFT 52  /* 64 - log2(SLOTS) */

struct walk {
    uint64_t from, oldest;
    PyObject *oldest_node;                /* owned */
    uint32_t n_nodes, n_seen, number;     /* number: of the walk */
    struct graph_output nodes[NODES_MAX]; /* still to look at */
    uint64_t seen[SLOTS];
    uint32_t seen_in[SLOTS];       /* number of the walk; another one: the slot is empty */
    bool failed, too_large, found; /* found: nothing can be older */
    bool busy;                     /* garbage may be collected meanwhile, and run anything */
};

static struct {
    PyObject *number;                 /* torch's function, owned */
    PyObject *grad_fn, *order, *next; /* attribute names, owned */
} known;                              /* lock: the GIL */
static struct walk *walk;             /* lock: the GIL */

/* Call a function without arguments for the number that it gives; GRAPH_NEVER: it failed. */
uint64_t graph_number(PyObject *function)
{
    struct cpython *py = &python.api;
    PyObject *value = function ? cpython_vectorcall(py, function, NULL, 0, NULL) : NULL;
    uint64_t n = value ? py->PyLong_AsUnsignedLongLong(value) : GRAPH_NEVER;
    if (!value || py->PyErr_Occurred())
        n = GRAPH_NEVER;
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return n;
}

static uint64_t order_of(PyObject *node)
{
    struct cpython *py = &python.api;
    PyObject *method = py->PyObject_GetAttr(node, known.order);
    uint64_t n = graph_number(method);
    py->PyErr_Clear();
    py->Py_DecRef(method);
    return n;
}

static bool is_new(struct walk *w, uint64_t order)
{
    uint32_t slot = (uint32_t)(hash_spread(order) >> SLOTS_SHIFT);
    while (w->seen_in[slot] == w->number && w->seen[slot] != order)
        slot = (slot + 1) & (SLOTS - 1);
    if (w->seen_in[slot] == w->number)
        return false;
    if (++w->n_seen > NODES_MAX) {
        w->failed = w->too_large = true;
        return false;
    }
    w->seen[slot] = order;
    w->seen_in[slot] = w->number;
    return true;
}

/* Another node to look at, when it was made in this forward and is not known yet.  The oldest of
 * the nodes from `first` on is looked at first: connections past other layers are short ways. */
static void meet_node(struct walk *w, PyObject *node, uint64_t order, uint32_t first)
{
    if (order == GRAPH_NEVER || order < w->from || w->failed || w->found || !is_new(w, order))
        return;
    if (order < w->oldest) {
        python.api.Py_DecRef(w->oldest_node);
        python.api.Py_IncRef(node);
        w->oldest_node = node;
        w->oldest = order;
    }
    w->found = order == w->from;
    python.api.Py_IncRef(node);
    uint32_t at = w->n_nodes++; /* never more than were seen */
    if (at > first && w->nodes[at - 1].order < order) {
        w->nodes[at] = w->nodes[at - 1];
        at--;
    }
    w->nodes[at] = (struct graph_output){.node = node, .order = order};
}

static void meet_next(struct walk *w, PyObject *node)
{
    struct cpython *py = &python.api;
    PyObject *next = py->PyObject_GetAttr(node, known.next);
    Py_ssize_t n = next ? py->PyTuple_Size(next) : 0;
    uint32_t first = w->n_nodes;
    for (Py_ssize_t i = 0; i < n && !w->found; i++) {
        PyObject *pair = py->PyTuple_GetItem(next, i); /* (node or None, number) */
        PyObject *other = pair ? py->PyTuple_GetItem(pair, 0) : NULL;
        if (other && other != py->_Py_NoneStruct)
            meet_node(w, other, order_of(other), first);
    }
    w->failed = w->failed || !next;
    py->PyErr_Clear();
    py->Py_DecRef(next);
}

/* The node of an output; NULL: it has none, or none of this forward.  false: it is nothing that
 * can be looked into. */
static bool output_node(PyObject *value, uint64_t from, struct graph_output *ret)
{
    struct cpython *py = &python.api;
    *ret = (struct graph_output){.node = NULL};
    if (object_type(value) != python.tensor_class) /* another class may run Python code */
        return !py->PyType_IsSubtype(object_type(value), python.tensor_class);
    PyObject *node = py->PyObject_GetAttr(value, known.grad_fn);
    py->PyErr_Clear();
    if (node && node != py->_Py_NoneStruct) {
        uint64_t order = order_of(node);
        if (order != GRAPH_NEVER && order >= from) {
            *ret = (struct graph_output){.node = node, .order = order};
            return true;
        }
    }
    py->Py_DecRef(node);
    return true;
}

uint32_t graph_outputs(PyObject *result, uint64_t from, struct graph_output *ret)
{
    struct cpython *py = &python.api;
    PyObject *type = object_type(result), *key, *value;
    bool list = py->PyType_IsSubtype(type, py->PyList_Type);
    bool tuple = py->PyType_IsSubtype(type, py->PyTuple_Type);
    Py_ssize_t n = list ? py->PyList_Size(result) : tuple ? py->PyTuple_Size(result) : 0;
    uint32_t found = 0;
    bool whole = n <= GRAPH_OUTPUTS_MAX;
    if (!list && !tuple && !py->PyType_IsSubtype(type, py->PyDict_Type)) {
        whole = output_node(result, from, &ret[0]);
        found = ret[0].node != NULL;
    }
    for (Py_ssize_t i = 0; i < n && whole; i++) {
        value = list ? py->PyList_GetItem(result, i) : py->PyTuple_GetItem(result, i);
        whole = output_node(value, from, &ret[found]);
        found += ret[found].node != NULL;
    }
    Py_ssize_t at = 0;
    while (py->PyType_IsSubtype(type, py->PyDict_Type) && whole && found < GRAPH_OUTPUTS_MAX &&
           py->PyDict_Next(result, &at, &key, &value)) {
        whole = output_node(value, from, &ret[found]);
        found += ret[found].node != NULL;
    }
    while (!whole && found)
        py->Py_DecRef(ret[--found].node);
    return found;
}

bool graph_find(void)
{
    struct cpython *py = &python.api;
    PyObject *modules = py->PyImport_GetModuleDict();
    PyObject *c = py->PyDict_GetItemString(modules, "torch._C");
    PyObject *autograd = c ? py->PyObject_GetAttrString(c, "_autograd") : NULL;
    py->PyErr_Clear();
    known.number = autograd ? py->PyObject_GetAttrString(autograd, "_get_sequence_nr") : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(autograd);
    known.grad_fn = py->PyUnicode_InternFromString("grad_fn");
    known.order = py->PyUnicode_InternFromString("_sequence_nr");
    known.next = py->PyUnicode_InternFromString("next_functions");
    py->PyErr_Clear();
    return known.number && known.grad_fn && known.order && known.next;
}

void graph_forget(void)
{
    PyObject **held[] = {&known.number, &known.grad_fn, &known.order, &known.next};
    object_drop_all(held, PROBING_LENGTH(held));
    if (walk && walk->busy) /* stop() came in the middle: one of it is left for ever */
        walk = NULL;
    free(walk);
    walk = NULL;
}

uint64_t graph_count(void)
{
    return graph_number(known.number);
}

/* Find the oldest node of a forward, new reference; NULL: there is none, or the search failed. */
static PyObject *oldest_of(struct walk *w, const struct graph_output *outputs, uint32_t n,
                           uint64_t from)
{
    w->number++;
    w->from = from;
    w->oldest = GRAPH_NEVER;
    w->oldest_node = NULL;
    w->n_nodes = w->n_seen = 0;
    w->failed = w->too_large = w->found = false;
    for (uint32_t i = 0; i < n; i++)
        meet_node(w, outputs[i].node, outputs[i].order, 0);
    while (w->n_nodes) {
        PyObject *node = w->nodes[--w->n_nodes].node;
        if (!w->failed && !w->found)
            meet_next(w, node);
        python.api.Py_DecRef(node);
    }
    if (!w->failed)
        return w->oldest_node;
    python.api.Py_DecRef(w->oldest_node);
    return NULL;
}

PyObject *graph_oldest(const struct graph_output *outputs, uint32_t n, uint64_t from,
                       uint64_t *ret_order, bool *ret_too_large)
{
    if (!walk)
        walk = calloc(1, sizeof(*walk));
    struct walk *w = walk;
    if (!w || w->busy)
        return NULL;
    w->busy = true;
    PyObject *oldest = oldest_of(w, outputs, n, from);
    *ret_order = w->oldest;
    *ret_too_large = w->too_large;
    w->busy = false;
    return oldest;
}
