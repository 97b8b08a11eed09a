/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/step.c - where one step ends and the next begins: at the end of optimizer.step().
 *
 * Threads: any that holds the GIL.
 * torch calls optimizer._optimizer_step_code() at the end of every step, looked up anew each time,
 * whatever wrapped step() before we came: that counts the steps.  How long they take is seen by
 * hooks on the classes' and instances' own `step`, put in at the start or at an optimizer's first
 * step.  Loops without an optimizer have one endless step.
 */
#include "torch.h"

static double seconds(uint64_t ns)
{
    return (double)ns / NS_PER_S;
}

void step_renew(struct thread *t)
{
    t->step = torch_state.step;
    t->forward_ns = t->backward_ns = t->calls = t->walks_ns = 0;
    t->forwards = t->backwards = 0;
    t->last_micro = 0;
    t->forward_whole = true;
}

void step_begin(uint64_t now_ns)
{
    uint32_t every = atomic_load_explicit(&torch_state.every, memory_order_relaxed);
    torch_state.step_begin_ns = now_ns;
    torch_state.seq = 0;
    torch_state.sampled = torch_state.step % every == 0;
}

static void add_step_row(uint64_t name, uint64_t begin_ns, uint64_t end_ns)
{
    union probing_cell row[N_TRACE];
    memcpy(row, torch_state.row, sizeof(row));
    row[COL_LOCAL_STEP].i = (int64_t)torch_state.step;
    row[COL_SEQ].i = torch_state.seq++;
    row[COL_MODULE].u = name;
    row[COL_STAGE].u = torch_state.stage_step;
    if (begin_ns)
        row[COL_DURATION].f = seconds(end_ns - begin_ns);
    if (torch_state.step_begin_ns)
        row[COL_TIME_OFFSET].f = seconds(end_ns - torch_state.step_begin_ns);
    (void)torch_state.host->append(torch_state.trace, end_ns, row, N_TRACE, NULL, 0);
}

/* `other` is what the measured parts leave over; the parts that were not measured are in it. */
static void add_timing_row(const struct thread *t, uint64_t begin_ns, uint64_t end_ns)
{
    union probing_cell row[N_TIMING];
    for (int i = 0; i < N_TIMING; i++)
        row[i].u = PROBING_NULL_F64;
    bool mine = t->step == torch_state.step;
    double whole = seconds(end_ns - torch_state.step_begin_ns), rest = whole;
    row[TIMING_STEPS].i = (int64_t)torch_state.step;
    row[TIMING_STEP].f = whole;
    if (mine && t->forward_whole && t->forwards)
        rest -= row[TIMING_FORWARD].f = seconds(t->forward_ns);
    if (mine && t->backwards)
        rest -= row[TIMING_BACKWARD].f = seconds(t->backward_ns);
    if (begin_ns)
        rest -= row[TIMING_OPTIMIZER].f = seconds(end_ns - begin_ns);
    if (rest >= 0) /* a closure's forward is in the optimizer's time too: then nothing is told */
        row[TIMING_OTHER].f = rest;
    if (mine && torch_state.n_weighed) {
        double one = (double)torch_state.weighed_ns / (double)torch_state.n_weighed;
        row[TIMING_OVERHEAD].f = seconds(t->walks_ns) + one * (double)t->calls / NS_PER_S;
    }
    row[TIMING_SAMPLED].i = torch_state.sampled;
    row[TIMING_RATE].f = 1.0 / atomic_load_explicit(&torch_state.every, memory_order_relaxed);
    (void)torch_state.host->append(torch_state.timing, end_ns, row, N_TIMING, NULL, 0);
}

/* begin_ns: 0 when it was not seen. */
static void step_done(struct thread *t, uint64_t begin_ns, uint64_t end_ns)
{
    const struct probing_host *h = torch_state.host;
    if (torch_state.sampled && h->wanted(torch_state.trace))
        add_step_row(t->step_name, begin_ns, end_ns);
    if (torch_state.step_begin_ns && h->wanted(torch_state.timing))
        add_timing_row(t, begin_ns, end_ns);
    torch_state.step++;
    step_begin(end_ns);
    step_renew(t);
}

/* Stands for `step` of a class (args[0] is the optimizer) or of an instance (it is not). */
static PyObject *step_call(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (!hook_works(hook))
        return hook_pass(hook, args, nargsf, kwnames);
    struct thread *t = call_thread();
    uint32_t life = t->life;
    if (t->steps_depth++ == 0)
        t->step_name = PROBING_NULL_ID;
    uint64_t begin_ns = torch_state.now();
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    if (t->life != life || !torch_on())
        return result;
    t->steps_depth--;
    if (t->steps_depth == 0 && result)
        step_done(t, begin_ns, torch_state.now());
    return result;
}

PyObject *step_code(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (!hook_works(hook) || hook_nargs(nargsf) < 1)
        return hook_pass(hook, args, nargsf, kwnames);
    struct thread *t = call_thread();
    t->step_name = names_class(args[0]);
    if (t->steps_depth == 0) {
        step_done(t, /* begin_ns= */ 0, torch_state.now());
        step_wrap(args[0]);
    }
    return hook_pass(hook, args, nargsf, kwnames);
}

void step_wrap(PyObject *optimizer)
{
    struct cpython *py = &torch_state.py;
    PyObject *order = py->PyObject_GetAttrString(object_type(optimizer), "__mro__");
    py->PyErr_Clear();
    Py_ssize_t n = order ? py->PyTuple_Size(order) : 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *class = py->PyTuple_GetItem(order, i);
        if (class == torch_state.optimizer_class)
            break; /* its own step() only raises */
        if (hook_class(class, "step", step_call) == 0)
            break;
    }
    py->Py_DecRef(order);
    (void)hook_instance(optimizer, "step", step_call); /* a learning rate scheduler's */
}
