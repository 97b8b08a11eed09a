/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/call_thread.c - what a thread begins with when it comes by first.
 *
 * Threads: any that holds the GIL; each has its own.
 */
#include "steps/call_thread.h"

#include <sys/syscall.h>
#include <unistd.h>

__thread struct thread call_thread_own;

bool call_thread_inside_forward(void)
{
    struct cpython *py = &python.api;
    PyObject *frame = python.more.PyEval_GetFrame();
    py->Py_IncRef(frame);
    bool found = false;
    while (frame && frame != py->_Py_NoneStruct && !found) {
        PyObject *code = py->PyObject_GetAttrString(frame, "f_code");
        PyObject *back = py->PyObject_GetAttrString(frame, "f_back");
        found = code && code == python.forward_code;
        py->Py_DecRef(code);
        py->Py_DecRef(frame);
        frame = back;
    }
    py->Py_DecRef(frame);
    py->PyErr_Clear();
    return found;
}

struct thread *call_thread_begin(struct thread *t)
{
    *t = (struct thread){.life = torch_state.life,
                         .tid = (int64_t)syscall(SYS_gettid),
                         .step = steps.step,
                         .phase_ns = steps.begin_ns,
                         .seen = 1u << PHASE_OTHER,
                         .micro = PROBING_NULL_I64};
    t->outer_unseen = call_thread_inside_forward();
    t->forward_whole = !t->outer_unseen;
    return t;
}
