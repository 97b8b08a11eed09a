/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/groups.c - the process groups of torch.distributed, and how far this rank is.
 *
 * Threads: [worker], which asks for the GIL.
 * torch counts the operations of a group itself, those that C++ starts too: where ranks differ, the
 * one that is behind is the one that the others wait for.
 */
#include "comm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <probing/ext/draft/python.h>

#define GIL_WAIT_NS UINT64_C(2000000000)
#define GROUPS_MAX 64u
#define STORES_MAX 8 /* in one another */

struct one {
    char name[COMM_GROUP_BYTES], job[2 * COMM_GROUP_BYTES], ranks[4 * COMM_GROUP_BYTES];
    int64_t rank, size, seq;
};

struct listing {
    uint32_t n;
    int64_t step;
    struct one all[GROUPS_MAX];
};

static const struct probing_column columns[] = {
    {.name = "group_name", .type = PROBING_STR, .doc = "as torch names it"},
    {.name = "group_rank", .type = PROBING_I64, .doc = "ours, in the group"},
    {.name = "group_size", .type = PROBING_I64, .unit = PROBING_COUNT, .doc = "processes in it"},
    {.name = "participate_ranks", .type = PROBING_STR, .doc = "of the whole job; NULL: not told"},
    {.name = "seq",
     .type = PROBING_I64,
     .doc = "number of its newest operation, as torch counts on every rank; NULL: it does not"},
    {.name = "steps", .type = PROBING_I64, .doc = "local_step, now"},
    {.name = "job", .type = PROBING_STR, .doc = "the store where its ranks have met: host:port"},
};

/* New reference; takes that of `object`, which may be NULL. */
static PyObject *next(PyObject *object, const char *name)
{
    struct cpython *py = &torch_state.py;
    PyObject *value = object ? py->PyObject_GetAttrString(object, name) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(object);
    return value;
}

static PyObject *get(PyObject *object, const char *name)
{
    torch_state.py.Py_IncRef(object);
    return next(object, name);
}

/* Of what a method gives; takes the reference of the answer. */
static int64_t number_of(PyObject *group, const char *method)
{
    struct cpython *py = &torch_state.py;
    PyObject *value = py->PyObject_CallMethod(group, method, NULL);
    int64_t n = PROBING_NULL_I64;
    if (value && py->PyType_IsSubtype(object_type(value), py->PyLong_Type))
        n = py->PyLong_AsLongLong(value);
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return n;
}

/* str(value), cut; takes the reference. */
static void text_of(PyObject *value, char *room, size_t size)
{
    struct cpython *py = &torch_state.py;
    PyObject *text = value && value != py->_Py_NoneStruct ? py->PyObject_Str(value) : NULL;
    Py_ssize_t n = 0;
    const char *bytes = text ? py->PyUnicode_AsUTF8AndSize(text, &n) : NULL;
    (void)snprintf(room, size, "%s", bytes ? bytes : "");
    py->PyErr_Clear();
    py->Py_DecRef(text);
    py->Py_DecRef(value);
}

/* "host:port" of the store below all prefixes, or its file. */
static void read_job(PyObject *store, struct one *one)
{
    char host[COMM_GROUP_BYTES], port[16];
    PyObject *inner;
    torch_state.py.Py_IncRef(store);
    for (int i = 0; i < STORES_MAX && (inner = get(store, "underlying_store")) != NULL; i++) {
        torch_state.py.Py_DecRef(store);
        store = inner;
    }
    text_of(get(store, "host"), host, sizeof(host));
    text_of(get(store, "port"), port, sizeof(port));
    if (host[0])
        (void)snprintf(one->job, sizeof(one->job), "%s:%s", host, port);
    else
        text_of(get(store, "path"), one->job, sizeof(one->job));
    torch_state.py.Py_DecRef(store);
}

static PyObject *distributed(void)
{
    struct cpython *py = &torch_state.py;
    return py->PyDict_GetItemString(py->PyImport_GetModuleDict(),
                                    "torch.distributed.distributed_c10d");
}

void groups_name(PyObject *group, char *room, size_t size)
{
    struct cpython *py = &torch_state.py;
    PyObject *module = distributed();
    PyObject *names = module ? next(get(module, "_world"), "pg_names") : NULL;
    if (module && !names)
        names = get(module, "_pg_names"); /* torch 1 */
    PyObject *name = names && py->PyType_IsSubtype(object_type(names), py->PyDict_Type)
                         ? py->PyDict_GetItem(names, group)
                         : NULL;
    py->Py_IncRef(name);
    text_of(name, room, size);
    py->Py_DecRef(names);
}

static void read_group(PyObject *module, PyObject *group, PyObject *backend, struct one *one)
{
    struct cpython *py = &torch_state.py;
    PyObject *ranks = get(module, "get_process_group_ranks");
    groups_name(group, one->name, sizeof(one->name));
    PyObject *list = ranks ? py->PyObject_CallFunctionObjArgs(ranks, group, NULL) : NULL;
    py->PyErr_Clear();
    text_of(list, one->ranks, sizeof(one->ranks));
    one->rank = number_of(group, "rank");
    one->size = number_of(group, "size");
    one->seq = number_of(group, "_get_sequence_number_for_group");
    if (backend && py->PyType_IsSubtype(object_type(backend), py->PyTuple_Type) &&
        py->PyTuple_Size(backend) > 1)
        read_job(py->PyTuple_GetItem(backend, 1), one);
    py->Py_DecRef(ranks);
}

static int list_groups(void *arg)
{
    struct cpython *py = &torch_state.py;
    struct listing *l = arg;
    PyObject *module = torch_on() ? distributed() : NULL;
    PyObject *map = module ? next(get(module, "_world"), "pg_map") : NULL, *copy = NULL;
    if (module && !map)
        map = get(module, "_pg_map"); /* torch 1 */
    if (map && py->PyType_IsSubtype(object_type(map), py->PyDict_Type))
        copy = py->PyDict_Copy(map); /* what is asked may run anything */
    PyObject *group, *backend;
    Py_ssize_t at = 0;
    while (copy && l->n < GROUPS_MAX && py->PyDict_Next(copy, &at, &group, &backend))
        read_group(module, group, backend, &l->all[l->n++]);
    l->step = (int64_t)torch_state.step;
    py->PyErr_Clear();
    py->Py_DecRef(copy);
    py->Py_DecRef(map);
    return 0;
}

static const char *text_or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static int scan(void *self, struct probing_rows *out)
{
    const struct probing_host *h = torch_state.host;
    const struct probing_python_gil_1 *gil = h->extension(h, PROBING_PYTHON_GIL_1);
    struct listing *l = calloc(1, sizeof(*l));
    (void)self;
    if (!l)
        return h->fail(h, -ENOMEM, "no memory");
    int rc = torch_on() && gil ? gil->call(list_groups, l, GIL_WAIT_NS) : 0;
    if (rc == -ETIMEDOUT)
        rc = h->fail(h, rc, "the interpreter did not give up the GIL for 2 s");
    for (uint32_t i = 0; i < l->n && rc == 0; i++) {
        const struct one *g = &l->all[i];
        union probing_cell cells[] = {{.s = text_or_null(g->name)},  {.i = g->rank}, {.i = g->size},
                                      {.s = text_or_null(g->ranks)}, {.i = g->seq},  {.i = l->step},
                                      {.s = text_or_null(g->job)}};
        rc = h->emit(out, cells, sizeof(cells) / sizeof(cells[0]));
    }
    free(l);
    return rc == -ECANCELED ? 0 : rc;
}

const struct probing_table_desc groups_table = {
    .size = sizeof(groups_table),
    .column_size = sizeof(struct probing_column),
    .name = "groups",
    .columns = columns,
    .n_columns = sizeof(columns) / sizeof(columns[0]),
    .doc = "process groups of torch.distributed, and how many operations this rank has begun",
    .scan = scan,
};
