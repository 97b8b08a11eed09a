/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/dist/groups.c - the process groups of torch.distributed, and how far this rank is.
 *
 * Threads: [worker], which asks for the GIL.
 * torch counts the operations of a group itself, those that C++ starts too: where ranks differ, the
 * one that is behind is the one that the others wait for.
 */
#include "dist/collective.h"
#include "python/pyobject.h"
#include "steps/step.h"

#include <stdio.h>

#define GROUPS_MAX 64u
#define STORES_MAX 8 /* in one another */

struct one {
    char name[COMM_GROUP_BYTES], job[2 * COMM_GROUP_BYTES], ranks[4 * COMM_GROUP_BYTES];
    int64_t rank, size, seq, job_rank;
};

struct listing {
    uint32_t n;
    int64_t step;
    struct one all[GROUPS_MAX];
};

static const struct probing_column columns[] = {
    PROBING_STR_COLUMN("group_name", "name of the group, as torch calls it"),
    GROUP_COLUMNS,
    PROBING_I64_COLUMN(
        "seq", PROBING_PLAIN,
        "number of its newest operation, as torch counts on every rank; NULL: torch does not "
        "count"),
    PROBING_I64_COLUMN("local_step", PROBING_PLAIN,
                       "number of training steps that have ended by now"),
    PROBING_STR_COLUMN("job", "address of the store at which its ranks met: host:port"),
    PROBING_I64_COLUMN("rank", PROBING_PLAIN, "rank of this process in the whole job"),
};

/* "host:port" of the store below all prefixes, or its file. */
static void read_job(PyObject *store, struct one *one)
{
    char host[COMM_GROUP_BYTES], port[16];
    PyObject *inner;
    python.api.Py_IncRef(store);
    for (int i = 0; i < STORES_MAX && (inner = object_get(store, "underlying_store")) != NULL;
         i++) {
        python.api.Py_DecRef(store);
        store = inner;
    }
    object_text(object_get(store, "host"), host, sizeof(host));
    object_text(object_get(store, "port"), port, sizeof(port));
    if (host[0])
        (void)snprintf(one->job, sizeof(one->job), "%s:%s", host, port);
    else
        object_text(object_get(store, "path"), one->job, sizeof(one->job));
    python.api.Py_DecRef(store);
}

static PyObject *distributed_module(void)
{
    return object_module("torch.distributed.distributed_c10d");
}

void groups_name(PyObject *group, char *room, size_t size)
{
    struct cpython *py = &python.api;
    PyObject *module = distributed_module();
    PyObject *names = object_get_from(object_get(module, "_world"), "pg_names");
    if (!names)
        names = object_get(module, "_pg_names"); /* torch 1 */
    PyObject *name = names && py->PyType_IsSubtype(object_type(names), py->PyDict_Type)
                         ? py->PyDict_GetItem(names, group)
                         : NULL;
    py->Py_IncRef(name);
    object_text(name, room, size);
    py->Py_DecRef(names);
}

PyObject *groups_ranks(PyObject *group)
{
    struct cpython *py = &python.api;
    PyObject *function = object_get(distributed_module(), "get_process_group_ranks");
    PyObject *list = function ? py->PyObject_CallFunctionObjArgs(function, group, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(function);
    return list;
}

int64_t groups_rank(PyObject *ranks, int64_t rank)
{
    struct cpython *py = &python.api;
    if (!ranks || !object_is(ranks, py->PyList_Type) || rank < 0 || rank >= py->PyList_Size(ranks))
        return PROBING_NULL_I64;
    PyObject *number = py->PyList_GetItem(ranks, (Py_ssize_t)rank);
    py->Py_IncRef(number);
    return object_number(number);
}

static void read_group(PyObject *group, PyObject *backend, struct one *one)
{
    struct cpython *py = &python.api;
    PyObject *list = groups_ranks(group);
    groups_name(group, one->name, sizeof(one->name));
    one->rank = object_ask(group, "rank");
    one->size = object_ask(group, "size");
    one->job_rank = groups_rank(list, one->rank);
    object_text(list, one->ranks, sizeof(one->ranks));
    one->seq = object_ask(group, "_get_sequence_number_for_group");
    if (backend && py->PyType_IsSubtype(object_type(backend), py->PyTuple_Type) &&
        py->PyTuple_Size(backend) > 1)
        read_job(py->PyTuple_GetItem(backend, 1), one);
}

static int list_groups(void *arg)
{
    struct cpython *py = &python.api;
    struct listing *l = arg;
    PyObject *module = torch_on() ? distributed_module() : NULL;
    PyObject *map = object_get_from(object_get(module, "_world"), "pg_map"), *copy = NULL;
    if (!map)
        map = object_get(module, "_pg_map"); /* torch 1 */
    if (map && py->PyType_IsSubtype(object_type(map), py->PyDict_Type))
        copy = py->PyDict_Copy(map); /* what is asked may run anything */
    PyObject *group, *backend;
    Py_ssize_t at = 0;
    while (copy && l->n < GROUPS_MAX && py->PyDict_Next(copy, &at, &group, &backend))
        read_group(group, backend, &l->all[l->n++]);
    l->step = (int64_t)steps.step;
    py->PyErr_Clear();
    py->Py_DecRef(copy);
    py->Py_DecRef(map);
    return 0;
}

static const char *text_or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static int emit_found(struct probing_rows *out, const void *found)
{
    const struct probing_host *h = torch_state.host;
    const struct listing *l = found;
    int rc = 0;
    for (uint32_t i = 0; i < l->n && rc == 0; i++) {
        const struct one *g = &l->all[i];
        union probing_cell cells[] = {
            {.s = text_or_null(g->name)},  {.i = g->rank},    {.i = g->size},
            {.s = text_or_null(g->ranks)}, {.i = g->seq},     {.i = l->step},
            {.s = text_or_null(g->job)},   {.i = g->job_rank}};
        rc = h->emit(out, cells, sizeof(cells) / sizeof(cells[0]));
    }
    return rc;
}

static int scan_groups(void *self, struct probing_rows *out)
{
    (void)self;
    return object_scan(out, sizeof(struct listing), list_groups, emit_found);
}

const struct probing_table_desc groups_table = PROBING_COMPUTED_TABLE(
    "groups", columns, scan_groups,
    "process groups of torch.distributed, and the number of operations that this rank has started");
