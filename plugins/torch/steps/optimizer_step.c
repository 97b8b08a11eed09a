/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/optimizer_step.c - the hooks of step() of optimizers and GradScalers, with
 * which most steps end.
 *
 * Threads: any that holds the GIL.
 * An optimizer that steps right after another one, without a forward or a backward between, works
 * for the same step.
 *
 * torch calls optimizer._optimizer_step_code() at the end of every step, looked up anew each time,
 * whatever wrapped step() before we came: that counts the steps.  How long they take is seen by
 * hooks on the classes' and instances' own `step`, put in at the start or at an optimizer's first
 * step.
 *
 * A wrapper that is an optimizer itself and holds the one that works (accelerate's) has step()
 * called for each accumulated batch, and passes it on for the last: only then it is a step.
 */
#include "steps/step.h"

#include "python/pyobject.h"
#include "steps/call_thread.h"

/* begin_ns: 0 when it was not seen. */
static void optimizer_done(struct thread *t, enum stage stage, uint64_t begin_ns, uint64_t end_ns)
{
    step_optimized(t, end_ns);
    if (steps.sampled && torch_state.host->wanted(steps.trace))
        trace_add(stage, t->step_name, begin_ns, end_ns);
    if (steps.stepper <= STEPPER_OPTIMIZER &&
        (steps.work || !steps.last_optimizer || steps.last_optimizer == t->optimizer)) {
        steps.last_optimizer = t->optimizer;
        step_end(t, STEPPER_OPTIMIZER, end_ns);
    }
}

/* Another optimizer among an optimizer's own attributes: then this one is a wrapper around it. */
static bool is_wrapper(PyObject *optimizer)
{
    struct cpython *py = &python.api;
    PyObject *dict = object_dict(optimizer), *key, *value;
    Py_ssize_t at = 0;
    bool found = false;
    while (dict && !found && object_is(dict, py->PyDict_Type) &&
           py->PyDict_Next(dict, &at, &key, &value))
        found =
            value != optimizer && py->PyType_IsSubtype(object_type(value), python.optimizer_class);
    py->Py_DecRef(dict);
    return found;
}

static void enter_step(struct thread *t)
{
    if (t->steps_depth++ > 0)
        return;
    t->step_name = PROBING_NULL_ID;
    t->step_real = t->step_skipped = t->step_empty = false;
}

static void note_step(struct thread *t, PyObject *optimizer)
{
    if (t->step_real)
        return;
    bool wrapper = is_wrapper(optimizer);
    t->step_real = !wrapper;
    t->step_empty |= wrapper;
    if (!wrapper)
        step_optimizes(t, optimizer);
}

/* Give the stage of the outermost step(), which has ended; false: an idle wrapper's. */
static bool leave_step(const struct thread *t, enum stage *ret)
{
    *ret = t->step_skipped && !t->step_real ? STAGE_SKIPPED : STAGE_STEP;
    return t->step_real || t->step_skipped || !t->step_empty;
}

/* step() has ended.  The rows of the step are made before it returns, so by the program's clock
 * that time belongs to it: to the part of the step that has begun meanwhile. */
static void leave_phase(struct thread *t, enum phase before, uint64_t end_ns, bool made_rows)
{
    (void)step_phase(t, before, made_rows ? torch_state.now() : end_ns);
}

/* Give the optimizer whose step() it is, borrowed; NULL: not known. */
static PyObject *optimizer_of(const PyObject *hook, PyObject *const *args, size_t nargsf)
{
    if (hook_nargs(nargsf) > 0 &&
        python.api.PyType_IsSubtype(object_type(args[0]), python.optimizer_class))
        return args[0];
    return hook_owner(hook);
}

/* Stands for `step` of a class (args[0] is the optimizer) or of an instance (it is not). */
static PyObject *step_call(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (!hook_works(hook))
        return hook_pass(hook, args, nargsf, kwnames);
    struct thread *t = call_thread();
    uint32_t life = t->life;
    work_begin();
    PyObject *optimizer = optimizer_of(hook, args, nargsf);
    python.api.Py_IncRef(optimizer);
    enter_step(t);
    if (optimizer) {
        t->step_name =
            object_class(optimizer); /* torch before 1.13 has no step_code() to tell it */
        t->optimizer = optimizer;
    }
    bool measured = steps.set.device_times && steps.sampled;
    uint64_t ticket = measured ? device_begin(/* device= */ -1) : 0;
    uint64_t begin_ns = torch_state.now();
    enum phase before = step_phase(t, PHASE_OPTIMIZER, begin_ns);
    work_end();
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    if (t->life != life || !torch_on()) {
        python.api.Py_DecRef(optimizer);
        return result;
    }
    work_begin();
    uint64_t end_ns = torch_state.now();
    const struct device_work work = {.name = t->step_name,
                                     .stage = steps.stages[STAGE_STEP],
                                     .step = steps.step,
                                     .seq = steps.seq};
    enum stage stage;
    if (optimizer && result)
        note_step(t, optimizer);
    python.api.Py_DecRef(optimizer);
    bool done = leave_step(t, &stage) && t->steps_depth == 1 && result;
    device_end(ticket, done ? &work : NULL);
    t->steps_depth--;
    if (done)
        optimizer_done(t, stage, begin_ns, end_ns);
    leave_phase(t, before, end_ns, done);
    work_end();
    return result;
}

/* GradScaler.step(scaler, optimizer): steps the optimizer unless gradients have overflown. */
PyObject *step_scaler(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (!hook_works(hook) || hook_nargs(nargsf) < 2)
        return hook_pass(hook, args, nargsf, kwnames);
    struct thread *t = call_thread();
    uint32_t life = t->life;
    uint64_t name = object_class(args[1]);
    enum stage stage;
    enter_step(t);
    uint64_t begin_ns = torch_state.now();
    enum phase before = step_phase(t, PHASE_OPTIMIZER, begin_ns);
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    if (t->life != life || !torch_on())
        return result;
    work_begin();
    uint64_t end_ns = torch_state.now();
    t->steps_depth--;
    t->step_name = name;
    t->optimizer = args[1];
    t->step_skipped |= !t->step_real;
    if (!t->step_real)
        step_optimizes(t, args[1]);
    (void)leave_step(t, &stage);
    bool done = t->steps_depth == 0 && result;
    if (done)
        optimizer_done(t, stage, begin_ns, end_ns);
    leave_phase(t, before, end_ns, done);
    work_end();
    return result;
}

PyObject *step_code(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (!hook_works(hook) || hook_nargs(nargsf) < 1)
        return hook_pass(hook, args, nargsf, kwnames);
    struct thread *t = call_thread();
    work_begin();
    t->step_name = object_class(args[0]);
    t->optimizer = args[0];
    if (t->steps_depth > 0) {
        note_step(t, args[0]);
    } else { /* a step() that is not hooked yet */
        bool wrapper = is_wrapper(args[0]);
        if (!wrapper)
            step_optimizes(t, args[0]);
        if (!wrapper)
            optimizer_done(t, STAGE_STEP, /* begin_ns= */ 0, torch_state.now());
        step_wrap(args[0]);
    }
    work_end();
    return hook_pass(hook, args, nargsf, kwnames);
}

/* Optimizer.add_param_group(), which __init__() calls: what will train with it has been imported by
 * now, and its first step has not begun. */
PyObject *step_group(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    steps.has_optimizer = true;
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    work_begin();
    if (result && hook_works(hook))
        step_look();
    work_end();
    return result;
}

/* Has torch put its own wrapper around a class's step()?  It does that when the first optimizer of
 * the class is made, and calls _optimizer_step_code() in it: we must stand outside of that. */
static bool is_made(PyObject *class)
{
    struct cpython *py = &python.api;
    PyObject *step = py->PyObject_GetAttrString(class, "step");
    PyObject *hooked = step ? py->PyObject_GetAttrString(step, "hooked") : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(step);
    py->Py_DecRef(hooked);
    return hooked != NULL;
}

void step_wrap_classes(PyObject *class)
{
    struct cpython *py = &python.api;
    PyObject *list = py->PyObject_CallMethod(class, "__subclasses__", NULL);
    py->PyErr_Clear();
    Py_ssize_t n = list ? py->PyList_Size(list) : 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *derived = py->PyList_GetItem(list, i);
        if (is_made(derived))
            (void)hook_class(derived, "step", step_call);
        step_wrap_classes(derived);
    }
    py->Py_DecRef(list);
}

/* `step` where the class defines it; Optimizer's own only raises. */
static void wrap_class(PyObject *class)
{
    struct cpython *py = &python.api;
    PyObject *order = py->PyObject_GetAttrString(class, "__mro__");
    py->PyErr_Clear();
    Py_ssize_t n = order ? py->PyTuple_Size(order) : 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *base = py->PyTuple_GetItem(order, i);
        if (base == python.optimizer_class || hook_class(base, "step", step_call) == 0)
            break;
    }
    py->Py_DecRef(order);
}

void step_wrap(PyObject *optimizer)
{
    steps.has_optimizer = true;
    wrap_class(object_type(optimizer));
    (void)hook_instance(optimizer, "step", step_call); /* a learning rate scheduler's */
}
