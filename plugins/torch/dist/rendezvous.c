/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/dist/rendezvous.c - threads that stand in making a process group, where a rank that
 * never comes is waited for without any operation.
 *
 * Threads: any that holds the GIL.
 * They are found by what stands on their stacks when somebody asks, as such a wait has mostly begun
 * before us; since when is not known then, only since when it was seen.
 */
#include "dist/collective.h"
#include "python/pyobject.h"

#include <stdio.h>

#define FRAMES_MAX 48u /* of a thread: torch's own above it are few */

static struct {
    const PyObject *frame; /* compared only; it lives as long as its call */
    int64_t tid;
    uint64_t seen_ns;    /* at first; 0: the slot is free */
} known[COMM_JOINS_MAX]; /* lock: the GIL */

static PyObject *code_of(PyObject *frame)
{
    return python.more.PyFrame_GetCode ? python.more.PyFrame_GetCode(frame)
                                       : object_get(frame, "f_code");
}

/* Does this function of torch make a group, or take one apart?  op: its name. */
static bool makes_group(PyObject *frame, char *op, size_t size)
{
    static const char *const functions[] = {"init_process_group", "new_group", "split_group",
                                            "destroy_process_group"};
    static const char file[] = "torch/distributed/distributed_c10d.py";
    char path[512];
    PyObject *code = code_of(frame);
    object_text(object_get(code, "co_name"), op, size);
    bool is = false;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]) && !is; i++)
        is = strcmp(op, functions[i]) == 0;
    if (is) {
        object_text(object_get(code, "co_filename"), path, sizeof(path));
        size_t n = strlen(path), want = sizeof(file) - 1;
        is = n >= want && strcmp(path + n - want, file) == 0;
    }
    python.api.Py_DecRef(code);
    return is;
}

/* The kernel's number of a thread; PROBING_NULL_I64: `threading` does not know it. */
static int64_t tid_of(PyObject *ident)
{
    struct cpython *py = &python.api;
    PyObject *all = object_get(object_module("threading"), "_active");
    PyObject *thread =
        all && object_is(all, py->PyDict_Type) ? py->PyDict_GetItem(all, ident) : NULL;
    py->PyErr_Clear();
    int64_t tid = object_number(object_get(thread, "native_id"));
    py->Py_DecRef(all);
    return tid;
}

/* Since when is this call seen? */
static uint64_t seen_since(const PyObject *frame, int64_t tid, uint64_t now_ns)
{
    uint32_t free = COMM_JOINS_MAX;
    for (uint32_t i = 0; i < COMM_JOINS_MAX; i++) {
        if (known[i].seen_ns && known[i].frame == frame && known[i].tid == tid)
            return known[i].seen_ns;
        if (!known[i].seen_ns)
            free = i;
    }
    if (free < COMM_JOINS_MAX) {
        known[free].frame = frame;
        known[free].tid = tid;
        known[free].seen_ns = now_ns;
    }
    return now_ns;
}

/* Find a thread's outermost one of these functions, as that is what the program has called. */
static bool look_at(PyObject *ident, PyObject *frame, struct comm_join *ret)
{
    struct cpython *py = &python.api;
    const PyObject *found = NULL;
    py->Py_IncRef(frame);
    for (uint32_t i = 0; i < FRAMES_MAX && frame && frame != py->_Py_NoneStruct; i++) {
        char op[sizeof(ret->op)];
        if (makes_group(frame, op, sizeof(op))) {
            found = frame;
            memcpy(ret->op, op, sizeof(op));
        }
        frame = object_get_from(frame, "f_back");
    }
    py->Py_DecRef(frame);
    if (!found)
        return false;
    ret->tid = tid_of(ident);
    ret->seen_ns = seen_since(found, ret->tid, torch_state.now());
    return true;
}

/* Calls that are over: another one may get the address of their frame. */
static void forget_others(const struct comm_join *all, uint32_t n)
{
    for (uint32_t i = 0; i < COMM_JOINS_MAX; i++) {
        bool is = false;
        for (uint32_t j = 0; j < n; j++)
            is = is || (all[j].tid == known[i].tid && all[j].seen_ns == known[i].seen_ns);
        if (!is)
            known[i].seen_ns = 0;
    }
}

uint32_t comm_joins(struct comm_join *ret)
{
    struct cpython *py = &python.api;
    PyObject *ask = object_get(object_module("sys"), "_current_frames");
    PyObject *frames = ask && object_module("torch.distributed.distributed_c10d")
                           ? py->PyObject_CallFunctionObjArgs(ask, NULL)
                           : NULL;
    PyObject *ident, *frame;
    Py_ssize_t at = 0;
    uint32_t n = 0;
    py->PyErr_Clear();
    while (frames && n < COMM_JOINS_MAX && py->PyDict_Next(frames, &at, &ident, &frame))
        n += look_at(ident, frame, &ret[n]);
    forget_others(ret, n);
    py->PyErr_Clear();
    py->Py_DecRef(frames);
    py->Py_DecRef(ask);
    return n;
}

void comm_joins_forget(void)
{
    forget_others(NULL, 0);
}
