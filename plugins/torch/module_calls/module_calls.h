/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_calls/module_calls.h - each call of a module, forward and backward.
 *
 * Threads: any that holds the GIL, except where a comment says otherwise.
 */
#ifndef TORCH_MODULE_CALLS_MODULE_CALLS_H
#define TORCH_MODULE_CALLS_MODULE_CALLS_H

#include "python/hook.h"
#include "steps/step.h"

/* The fields that each call of a module reads come first. */
extern struct module_calls {             /* lock: the GIL */
    _Alignas(CACHE_LINE) bool short_way; /* they have nothing to do but a row: module_call.c */
    uint32_t weigh_in;                   /* calls; then on one our own time is measured */
    uint32_t backwards;                  /* backward() calls that run now, on any thread */
    bool has_backward; /* backward_find(); read without the GIL between start() and stop() */
} module_calls;

/* ---- module_call.c: hooks of Module.__call__, of Tensor.backward and of autograd's engine ---- */

PyObject *call_module(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *call_backward(PyObject *engine, PyObject *args, PyObject *kwargs);
PyObject *call_tensor_backward(PyObject *hook, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames);
/* A listener: other settings hold. */
void call_settings(struct settings *set);

/* ---- backward.c ---- */

struct backward_call { /* one forward, whose backward is to come */
    uint64_t from;     /* autograd's count of nodes when it began; UINT64_MAX: no row is wanted */
    PyObject *object;  /* the module */
    uint64_t name, device;
    int64_t micro;
};
/* Can this torch's graphs be looked into?  If not, backward_enter() gives UINT64_MAX. */
bool backward_find(void);
#define BACKWARD_WITHOUT_ORDER                                                    \
    "torch.backward: this torch does not tell the order of its graph's nodes (2 " \
    "does), so there are no rows of backwards"
void backward_forget(void);
uint64_t backward_enter(void);
/* Does this thread run a backward, as where a checkpoint computes its forward again? */
bool backward_inside(const struct thread *t);
/* A forward gave `result`; the thread's depth is as before it.  false: its graph is too large. */
bool backward_leave(PyObject *result, const struct backward_call *call);
/* An outermost backward begins: where it waits for other ranks is communication.  Gives a handle
 * for backward_end(), NULL: there is nothing to end. */
PyObject *backward_begin(struct thread *t, PyObject *args, PyObject *kwargs);
void backward_waited(struct thread *t, uint64_t end_ns);
void backward_end(PyObject *handle); /* an exception that is raised stays */

/* ---- nonfinite.c ---- */

/* A module's forward is done (args[0] is the module): tell the first in a step that gave a NaN or
 * an infinity. */
void nonfinite_watch(uint64_t module, PyObject *const *args, Py_ssize_t n, PyObject *result);
/* A backward is done: tell the module whose gradients are the first to have one. */
void nonfinite_watch_gradients(void);

/* ---- module_tables.c ---- */

extern const struct probing_table_desc modules_table, gradients_table;

#endif
