/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/dataloader.c - waiting for data: next() of DataLoaders, and what their
 * workers do.
 *
 * Threads: hooks hold the GIL; the table torch.loaders is filled on [worker], which asks for it.
 * It looks into the iterators' own dicts only and runs nothing of theirs.
 */
#include "steps/dataloader.h"

#include "lib/proc/task.h"
#include "python/pyobject.h"
#include "steps/call_thread.h"

#include <stdio.h>
#include <unistd.h>

#define LOADERS_MAX 16u  /* iterators known at a time, the newest */
#define WORKERS_MAX 256u /* of all of them, in one answer */
#define NAME_BYTES 96u

static PyObject *loaders[LOADERS_MAX]; /* lock: the GIL; weak references, owned */
static uint32_t next_loader;           /* lock: the GIL */

bool data_is_iterator(PyObject *class)
{
    PyObject *base =
        object_get(object_module("torch.utils.data.dataloader"), "_BaseDataLoaderIter");
    bool is = base && python.api.PyType_IsSubtype(class, base);
    python.api.Py_DecRef(base);
    return is;
}

void data_remember(PyObject *iterator)
{
    struct cpython *py = &python.api;
    for (uint32_t i = 0; i < LOADERS_MAX; i++)
        if (loaders[i] && py->PyWeakref_GetObject(loaders[i]) == iterator)
            return;
    PyObject *weak = py->PyWeakref_NewRef(iterator, NULL);
    py->PyErr_Clear();
    if (!weak)
        return;
    PyObject *old = loaders[next_loader % LOADERS_MAX];
    loaders[next_loader++ % LOADERS_MAX] = weak;
    py->Py_DecRef(old);
}

void data_forget(void)
{
    for (uint32_t i = 0; i < LOADERS_MAX; i++) {
        python.api.Py_DecRef(loaders[i]);
        loaders[i] = NULL;
    }
}

PyObject *data_next(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (!hook_works(hook) || hook_nargs(nargsf) < 1)
        return hook_pass(hook, args, nargsf, kwnames);
    struct thread *t = call_thread();
    uint32_t life = t->life;
    data_remember(args[0]);
    uint64_t begin_ns = torch_state.now();
    enum phase before = step_phase(t, PHASE_DATA, begin_ns);
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    if (t->life != life || !torch_on())
        return result;
    uint64_t end_ns = torch_state.now();
    (void)step_phase(t, before, end_ns);
    if (result && steps.sampled && torch_state.host->wanted(steps.trace))
        trace_add(STAGE_DATA, object_class(args[0]), begin_ns, end_ns);
    return result;
}

/* ---- torch.loaders ---- */

struct worker {
    char loader[NAME_BYTES], dataset[NAME_BYTES];
    int64_t iterator, index, pid, workers, outstanding, received;
    int64_t awaited; /* 1: the next batch is to come from it */
};

struct snapshot {
    uint32_t n;
    struct worker workers[WORKERS_MAX];
};

static const struct probing_column columns[] = {
    PROBING_I64_COLUMN("iterator", PROBING_PLAIN, "number of the iterator"),
    PROBING_STR_COLUMN("loader", "class of the iterator"),
    PROBING_STR_COLUMN("dataset", "class of the data set"),
    PROBING_I64_COLUMN("workers", PROBING_COUNT, "worker processes; 0: the main process loads"),
    PROBING_I64_COLUMN("received", PROBING_COUNT, "number of batches given to the loop so far"),
    PROBING_I64_COLUMN("outstanding", PROBING_COUNT,
                       "number of batches requested from workers and not yet received"),
    PROBING_I64_COLUMN("worker", PROBING_PLAIN, "number of the worker; NULL: there are no workers"),
    PROBING_I64_COLUMN("pid", PROBING_PLAIN, "pid of the worker process"),
    PROBING_I64_COLUMN(
        "next_batch_pending", PROBING_PLAIN,
        "1: the loop's next batch was requested from this worker and has not arrived"),
    PROBING_STR_COLUMN("state",
                       "running, sleeping, waiting for disk, stopped, dead or gone; from /proc"),
    PROBING_F64_COLUMN("cpu_sec", PROBING_SECONDS, "CPU time of the worker so far; from /proc"),
};

static int64_t pid_of(PyObject *process)
{
    struct cpython *py = &python.api;
    PyObject *dict = object_dict(process);
    PyObject *popen = dict ? py->PyDict_GetItemString(dict, "_popen") : NULL;
    PyObject *inner = popen && popen != py->_Py_NoneStruct ? object_dict(popen) : NULL;
    int64_t pid = object_number_in(inner, "pid");
    py->Py_DecRef(inner);
    py->Py_DecRef(dict);
    return pid;
}

/* The worker that has the next batch and has not delivered it, by number; -1: none.
 * _task_info: number of the batch -> (worker,) or (worker, batch). */
static int64_t awaited_of(PyObject *dict)
{
    struct cpython *py = &python.api;
    PyObject *tasks = dict ? py->PyDict_GetItemString(dict, "_task_info") : NULL;
    PyObject *next = dict ? py->PyDict_GetItemString(dict, "_rcvd_idx") : NULL;
    if (!tasks || !next || !object_is(tasks, py->PyDict_Type) || !object_is(next, py->PyLong_Type))
        return -1;
    PyObject *task = py->PyDict_GetItem(tasks, next);
    py->PyErr_Clear();
    if (!task || !object_is(task, py->PyTuple_Type) || py->PyTuple_Size(task) != 1)
        return -1;
    PyObject *worker = py->PyTuple_GetItem(task, 0);
    py->Py_IncRef(worker);
    return object_number(worker);
}

static void look_at(struct snapshot *look, PyObject *iterator, int64_t number)
{
    struct cpython *py = &python.api;
    PyObject *dict = object_dict(iterator);
    PyObject *set = dict ? py->PyDict_GetItemString(dict, "_dataset") : NULL;
    PyObject *list = dict ? py->PyDict_GetItemString(dict, "_workers") : NULL;
    int64_t awaited = awaited_of(dict);
    struct worker one = {.iterator = number,
                         .index = PROBING_NULL_I64,
                         .pid = PROBING_NULL_I64,
                         .awaited = PROBING_NULL_I64};
    (void)snprintf(one.loader, sizeof(one.loader), "%s", object_class_text(iterator));
    (void)snprintf(one.dataset, sizeof(one.dataset), "%s", set ? object_class_text(set) : "");
    one.workers = object_number_in(dict, "_num_workers");
    one.outstanding = object_number_in(dict, "_tasks_outstanding");
    one.received = object_number_in(dict, "_num_yielded");
    bool several = list && py->PyType_IsSubtype(object_type(list), py->PyList_Type);
    Py_ssize_t n = several ? py->PyList_Size(list) : 0;
    if (n == 0 && look->n < WORKERS_MAX)
        look->workers[look->n++] = one;
    for (Py_ssize_t i = 0; i < n && look->n < WORKERS_MAX; i++) {
        one.index = i;
        one.awaited = i == awaited;
        one.pid = pid_of(py->PyList_GetItem(list, i));
        look->workers[look->n++] = one;
    }
    py->Py_DecRef(dict);
}

static int look_at_all(void *arg)
{
    struct cpython *py = &python.api;
    for (uint32_t i = 0; i < LOADERS_MAX && torch_on(); i++) {
        PyObject *iterator = loaders[i] ? py->PyWeakref_GetObject(loaders[i]) : NULL;
        if (!iterator || iterator == py->_Py_NoneStruct)
            continue;
        py->Py_IncRef(iterator);
        look_at(arg, iterator, i);
        py->Py_DecRef(iterator);
    }
    return 0;
}

/* State and CPU time of a worker, as the kernel tells it. */
static void ask_kernel(int64_t pid, const char **ret_state, double *ret_cpu)
{
    struct proc_stat s;
    *ret_state = "gone";
    if (proc_stat_of((pid_t)pid, 0, &s) < 0)
        return;
    char state = s.state;
    *ret_cpu = (double)(s.user_ticks + s.system_ticks) / (double)sysconf(_SC_CLK_TCK);
    *ret_state = state == 'R'                   ? "running"
                 : state == 'S'                 ? "sleeping"
                 : state == 'D'                 ? "waiting for disk"
                 : state == 'T' || state == 't' ? "stopped"
                                                : "dead";
}

static int emit_found(struct probing_rows *out, const void *found)
{
    const struct probing_host *h = torch_state.host;
    const struct snapshot *look = found;
    int rc = 0;
    for (uint32_t i = 0; i < look->n && rc == 0; i++) {
        const struct worker *w = &look->workers[i];
        const char *state = NULL;
        union probing_cell cpu = {.u = PROBING_NULL_F64};
        if (w->pid != PROBING_NULL_I64)
            ask_kernel(w->pid, &state, &cpu.f);
        union probing_cell cells[] = {{.i = w->iterator},
                                      {.s = w->loader},
                                      {.s = w->dataset},
                                      {.i = w->workers},
                                      {.i = w->received},
                                      {.i = w->outstanding},
                                      {.i = w->index},
                                      {.i = w->pid},
                                      {.i = w->awaited},
                                      {.s = state},
                                      cpu};
        rc = h->emit(out, cells, sizeof(cells) / sizeof(cells[0]));
    }
    return rc;
}

static int scan_loaders(void *self, struct probing_rows *out)
{
    (void)self;
    return object_scan(out, sizeof(struct snapshot), look_at_all, emit_found);
}

const struct probing_table_desc data_table =
    PROBING_COMPUTED_TABLE("loaders", columns, scan_loaders,
                           "existing DataLoader iterators, and what their worker processes do");
