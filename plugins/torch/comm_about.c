/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/comm_about.c - what an operation of a process group is: the group, and the tensors
 * that go in.
 *
 * Threads: any that holds the GIL.
 * Groups are asked once.  Tensors of other classes are not asked: that may run Python code.
 */
#include "comm.h"
#include "object.h"
#include "tensor.h"

#include <stdio.h>

#define GROUPS_MAX 64u
#define TENSORS_MAX 256u /* looked at, of one operation */
#define TEXT_BYTES 256u

struct group {
    PyObject *object; /* an address: valid while `weak` says so */
    PyObject *weak;   /* owned */
    int64_t rank, size, seq;
    uint64_t name, ranks;        /* interned */
    char text[COMM_GROUP_BYTES]; /* its name */
};

/* What an operation works on, added up. */
struct load {
    uint32_t n;
    int64_t bytes;
    uint64_t shape, dtype; /* of the first tensor, interned */
    bool known, on_cpu;
};

static struct group groups[GROUPS_MAX]; /* lock: the GIL */
static uint32_t next_group;             /* lock: the GIL */

/* str(value), interned without a "torch." before it; takes the reference. */
static uint64_t text_of(PyObject *value)
{
    char text[TEXT_BYTES];
    object_text(value, text, sizeof(text));
    return object_intern(strncmp(text, "torch.", 6) == 0 ? text + 6 : text);
}

static uint64_t ranks_of(PyObject *group)
{
    struct cpython *py = &torch_state.py;
    PyObject *module = object_module("torch.distributed.distributed_c10d");
    PyObject *function = object_get(module, "get_process_group_ranks");
    PyObject *list = function ? py->PyObject_CallFunctionObjArgs(function, group, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(function);
    return text_of(list);
}

static struct group *group_of(PyObject *object)
{
    struct cpython *py = &torch_state.py;
    for (uint32_t i = 0; i < GROUPS_MAX; i++)
        if (groups[i].object == object && groups[i].weak &&
            py->PyWeakref_GetObject(groups[i].weak) == object)
            return &groups[i];
    struct group made = {.object = object, .weak = py->PyWeakref_NewRef(object, NULL)};
    py->PyErr_Clear();
    if (!made.weak)
        return NULL;
    made.rank = object_ask(object, "rank");
    made.size = object_ask(object, "size");
    groups_name(object, made.text, sizeof(made.text));
    made.name = object_intern(made.text);
    made.ranks = ranks_of(object);
    struct group *g = &groups[next_group++ % GROUPS_MAX];
    PyObject *old = g->weak;
    *g = made;
    py->Py_DecRef(old);
    return g;
}

static void add_tensor(struct load *load, PyObject *tensor)
{
    struct cpython *py = &torch_state.py;
    if (!tensor_is(tensor)) {
        load->known = false;
        return;
    }
    int64_t n = object_ask(tensor, "numel"), size = object_ask(tensor, "element_size");
    if (load->n++ == 0) {
        PyObject *shape = object_get(tensor, "shape");
        PyObject *list =
            shape ? py->PyObject_CallFunctionObjArgs(py->PyList_Type, shape, NULL) : NULL;
        py->PyErr_Clear();
        py->Py_DecRef(shape);
        load->shape = text_of(list);
        load->dtype = text_of(object_get(tensor, "dtype"));
        PyObject *cpu = object_get(tensor, "is_cpu");
        load->on_cpu = cpu == py->_Py_TrueStruct;
        py->Py_DecRef(cpu);
    }
    if (n >= 0 && size >= 0)
        load->bytes += n * size;
    else
        load->known = false;
}

/* A tensor, or lists of them in lists. */
static void add_all(struct load *load, PyObject *value, int depth)
{
    struct cpython *py = &torch_state.py;
    bool list = object_is(value, py->PyList_Type), tuple = object_is(value, py->PyTuple_Type);
    Py_ssize_t n = list ? py->PyList_Size(value) : tuple ? py->PyTuple_Size(value) : 0;
    if (!list && !tuple)
        add_tensor(load, value);
    for (Py_ssize_t i = 0; i < n && depth < 2 && load->known; i++) {
        if (load->n >= TENSORS_MAX)
            load->known = false;
        else
            add_all(load, list ? py->PyList_GetItem(value, i) : py->PyTuple_GetItem(value, i),
                    depth + 1);
    }
}

/* Which argument goes in: most operations have it first, these have what comes out first. */
static Py_ssize_t input_of(const char *op)
{
    static const char *const second[] = {"gather", "scatter", "alltoall", "all_to_all"};
    for (size_t i = 0; i < sizeof(second) / sizeof(second[0]); i++)
        if (strstr(op, second[i]))
            return 2;
    return 1;
}

void comm_describe(const char *op, PyObject *const *args, Py_ssize_t n, struct comm_about *ret)
{
    struct group *g = group_of(args[0]);
    struct load load = {.on_cpu = true};
    Py_ssize_t input = input_of(op);
    PyObject *guard;
    load.known = tensor_quiet(&guard);
    if (load.known && n > input && !strstr(op, "barrier"))
        add_all(&load, args[input], 0);
    if (load.known && load.n == 0 && input > 1 && n > input) /* only the source of a scatter has */
        add_all(&load, args[1], 0);
    tensor_loud(guard);
    *ret = (struct comm_about){.rank = g ? g->rank : PROBING_NULL_I64,
                               .size = g ? g->size : PROBING_NULL_I64,
                               .seq = g ? ++g->seq : PROBING_NULL_I64,
                               .bytes = load.known && load.n ? load.bytes : PROBING_NULL_I64,
                               .group_name = g ? g->name : PROBING_NULL_ID,
                               .ranks = g ? g->ranks : PROBING_NULL_ID,
                               .shape = load.shape,
                               .dtype = load.dtype,
                               .on_cpu = load.known && load.on_cpu};
    if (g)
        memcpy(ret->group, g->text, sizeof(ret->group));
}

void comm_about_forget(void)
{
    for (uint32_t i = 0; i < GROUPS_MAX; i++) {
        PyObject *weak = groups[i].weak;
        groups[i] = (struct group){.object = NULL};
        torch_state.py.Py_DecRef(weak);
    }
}
