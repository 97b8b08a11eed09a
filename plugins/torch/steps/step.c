/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/step.c - where one step ends and the next begins, and where its time went.
 *
 * Threads: any that holds the GIL.
 * A step ends with optimizer.step(), or GradScaler.step() which may skip it; in loops without an
 * optimizer, when a model is called again outside of training, or in training after a backward, as
 * where parameters are changed by hand; and once probing.step() was
 * called, only there.  An optimizer that steps right after another one, without a forward or a
 * backward between, works for the same step.
 *
 * torch calls optimizer._optimizer_step_code() at the end of every step, looked up anew each time,
 * whatever wrapped step() before we came: that counts the steps.  How long they take is seen by
 * hooks on the classes' and instances' own `step`, put in at the start or at an optimizer's first
 * step.
 *
 * A wrapper that is an optimizer itself and holds the one that works (accelerate's) has step()
 * called for each accumulated batch, and passes it on for the last: only then it is a step.
 */
#include "device/device.h"
#include "steps/call_thread.h"
#include "python/pyobject.h"
#include "steps/recent_calls.h"

#define LATE_EVERY 32u /* steps: parts of torch that were not imported are asked for again, */
#define LATE_NS PROBING_NS_PER_S /* at most once in so long: the loader looks through its list */

static const struct step_listener nobody[1];
static const struct step_listener *listeners = nobody; /* lock: the GIL */

void step_listen(const struct step_listener *given)
{
    listeners = given;
}

static bool listens(const struct step_listener *l)
{
    return l->look || l->optimized || l->ended || l->begun;
}

/* Parts of torch that were not imported may have been since. */
static void look(void)
{
    for (const struct step_listener *l = listeners; listens(l); l++)
        if (l->look)
            l->look();
    loss_find();
}

static bool is_shadow(void)
{
    const struct settings *set = &torch_state.set;
    return set->baseline > 1 && torch_state.step % set->baseline == set->baseline - 1;
}

bool step_is_sampled(void)
{
    struct torch *s = &torch_state;
    const struct settings *set = &s->set;
    if (is_shadow())
        return false;
    if (set->every)
        return s->step % set->every == 0;
    s->sample_debt += set->rate;
    if (s->sample_debt < 1)
        return false;
    s->sample_debt -= 1;
    return true;
}

static void renew(struct thread *t, uint64_t now_ns)
{
    t->step = torch_state.step;
    for (int i = 0; i < N_PHASES; i++)
        t->spent_ns[i] = 0;
    t->phase_ns = now_ns;
    t->seen = 1u << t->phase;
    t->calls = 0;
    t->old_walks_ns = t->walks_ns;
    t->last_micro = 0;
    t->training = false;
    t->forward_whole = true;
    t->evaluated_ns = 0;
}

void step_renew(struct thread *t)
{
    /* since then it has been in that phase: every change of it comes by here */
    if (t->step != torch_state.step)
        renew(t, torch_state.step_begin_ns);
}

enum phase step_phase(struct thread *t, enum phase phase, uint64_t now_ns)
{
    step_renew(t);
    enum phase before = t->phase;
    t->spent_ns[before] += now_ns - t->phase_ns;
    t->phase_ns = now_ns;
    t->phase = phase;
    t->seen |= 1u << phase;
    if (t == torch_state.loop.thread)
        loop_phase(phase, now_ns);
    return before;
}

void step_rows_changed(void)
{
    memcpy(torch_state.forward_row, torch_state.row, sizeof(torch_state.row));
    torch_state.forward_row[COL_STAGE].u = torch_state.stages[STAGE_FORWARD];
}

void step_settings_changed(void)
{
    struct settings *set = &torch_state.set;
    if (set->backward && !torch_state.backward_told) {
        set->backward = false;
        torch_state.host->log(torch_state.host, PROBING_WARN, BACKWARD_UNTOLD);
    }
    if (set->rate <= 0 && !set->every && !set->exprs_chosen)
        set->exprs[0] = '\0'; /* off is off */
    set->known = loss_wanted(set->exprs);
    torch_state.short_way = !(set->backward || set->memory || set->device_times || set->nan);
}

void step_begin(uint64_t now_ns)
{
    (void)settings_take(&torch_state.set);
    step_settings_changed();
    step_rows_changed();
    torch_state.step_begin_ns = now_ns;
    torch_state.seq = 0;
    torch_state.work = 0;
    torch_state.sampled = step_is_sampled();
}

void step_row(enum stage stage, uint64_t name, uint64_t begin_ns, uint64_t end_ns)
{
    union probing_cell row[N_TRACE];
    memcpy(row, torch_state.row, sizeof(row));
    row[COL_LOCAL_STEP].i = (int64_t)torch_state.step;
    row[COL_SEQ].i = torch_state.seq++;
    row[COL_MODULE].u = name;
    row[COL_STAGE].u = torch_state.stages[stage];
    if (begin_ns)
        row[COL_DURATION].f = probing_seconds(end_ns - begin_ns);
    if (torch_state.step_begin_ns)
        row[COL_TIME_OFFSET].f = probing_seconds(end_ns - torch_state.step_begin_ns);
    if (recent_is_wanted() && begin_ns)
        recent_add_call(&(struct recent_call){.tid = call_thread()->tid,
                                              .begin_ns = begin_ns,
                                              .end_ns = end_ns,
                                              .step = torch_state.step,
                                              .name = name});
    struct memory memory; /* once a step costs nothing */
    if (stage != STAGE_DATA && memory_ask(/* device= */ -1, &memory))
        memory_put(row, /* before= */ NULL, &memory);
    (void)torch_state.host->append(torch_state.trace, end_ns, row, N_TRACE, NULL, 0);
}

/* The thread that ends a step tells where its own time went: the phases add up to the step. */
static void add_timing_row(const struct thread *t, enum stepper stepper, uint64_t end_ns)
{
    static const uint8_t columns[N_PHASES] = {
        [PHASE_OTHER] = TIMING_OTHER,         [PHASE_DATA] = TIMING_DATALOADER,
        [PHASE_FORWARD] = TIMING_FORWARD,     [PHASE_BACKWARD] = TIMING_BACKWARD,
        [PHASE_OPTIMIZER] = TIMING_OPTIMIZER, [PHASE_COMM] = TIMING_COMM};
    const struct settings *set = &torch_state.set;
    union probing_cell row[N_TIMING];
    for (int i = 0; i < N_TIMING; i++)
        row[i].u = PROBING_NULL_F64;
    coordinates_put(row);
    row[TIMING_STEP].f = probing_seconds(end_ns - torch_state.step_begin_ns);
    for (int i = 0; i < N_PHASES; i++)
        if (t->seen & 1u << i && (i != PHASE_FORWARD || t->forward_whole))
            row[columns[i]].f = probing_seconds(t->spent_ns[i]);
    if (t->evaluated_ns)
        row[TIMING_EVALUATION].f = probing_seconds(t->evaluated_ns);
    if (torch_state.n_overhead_samples) {
        double one =
            (double)torch_state.overhead_sampled_ns / (double)torch_state.n_overhead_samples;
        row[TIMING_OVERHEAD].f =
            probing_seconds(t->walks_ns - t->old_walks_ns) + one * (double)t->calls / 1e9;
    }
    row[TIMING_SAMPLED].i = torch_state.sampled;
    row[TIMING_RATE].f = set->rate;
    row[TIMING_KIND].u = torch_state.steppers[stepper];
    bool shadows = set->baseline > 1;
    row[TIMING_SHADOW].i = shadows && is_shadow();
    row[TIMING_SHADOW_NORMAL].i = shadows ? set->baseline - 1 : PROBING_NULL_I64;
    row[TIMING_SHADOW_BASELINE].i = shadows ? 1 : PROBING_NULL_I64;
    row[TIMING_MODE].u = object_intern(set->every ? "every" : "rate");
    (void)torch_state.host->append(torch_state.timing, end_ns, row, N_TIMING, NULL, 0);
}

void step_end(struct thread *t, enum stepper stepper, uint64_t end_ns)
{
    const struct probing_host *h = torch_state.host;
    (void)step_phase(t, t->phase, end_ns);
    coordinates_look();
    if (torch_state.step_begin_ns && h->wanted(torch_state.timing))
        add_timing_row(t, stepper, end_ns);
    variables_step();
    if (recent_is_wanted())
        recent_add_step(end_ns, torch_state.step);
    __atomic_store_n(&torch_state.step, torch_state.step + 1, __ATOMIC_RELAXED); /* profile asks */
    coordinates_step(/* counted= */ true);
    if (torch_state.step % LATE_EVERY == 0 && end_ns - torch_state.late_ns >= LATE_NS) {
        torch_state.late_ns = end_ns;
        look();
        coordinates_find();
        memory_find();
        device_find();
    }
    device_read();
    for (const struct step_listener *l = listeners; listens(l); l++)
        if (l->ended)
            l->ended(end_ns);
    loop_is(t);
    step_begin(end_ns);
    renew(t, end_ns);
    t->walks_ns += torch_state.now() - end_ns; /* in the time of the step that begins */
    for (const struct step_listener *l = listeners; listens(l); l++)
        if (l->begun)
            l->begun(t);
}

/* begin_ns: 0 when it was not seen. */
static void optimizer_done(struct thread *t, enum stage stage, uint64_t begin_ns, uint64_t end_ns)
{
    for (const struct step_listener *l = listeners; listens(l); l++)
        if (l->optimized)
            l->optimized(t, end_ns);
    if (torch_state.sampled && torch_state.host->wanted(torch_state.trace))
        step_row(stage, t->step_name, begin_ns, end_ns);
    if (torch_state.stepper <= STEPPER_OPTIMIZER &&
        (torch_state.work || !torch_state.last_optimizer ||
         torch_state.last_optimizer == t->optimizer)) {
        torch_state.stepper = STEPPER_OPTIMIZER;
        torch_state.last_optimizer = t->optimizer;
        step_end(t, STEPPER_OPTIMIZER, end_ns);
    }
}

/* Another optimizer among an optimizer's own attributes: then this one is a wrapper around it. */
static bool is_wrapper(PyObject *optimizer)
{
    struct cpython *py = &torch_state.py;
    PyObject *dict = object_dict(optimizer), *key, *value;
    Py_ssize_t at = 0;
    bool found = false;
    while (dict && !found && object_is(dict, py->PyDict_Type) &&
           py->PyDict_Next(dict, &at, &key, &value))
        found = value != optimizer &&
                py->PyType_IsSubtype(object_type(value), torch_state.optimizer_class);
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
        loss_optimizer(t, optimizer);
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
        torch_state.py.PyType_IsSubtype(object_type(args[0]), torch_state.optimizer_class))
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
    torch_state.py.Py_IncRef(optimizer);
    enter_step(t);
    if (optimizer) {
        t->step_name =
            object_class(optimizer); /* torch before 1.13 has no step_code() to tell it */
        t->optimizer = optimizer;
    }
    bool measured = torch_state.set.device_times && torch_state.sampled;
    uint64_t ticket = measured ? device_begin(/* device= */ -1) : 0;
    uint64_t begin_ns = torch_state.now();
    enum phase before = step_phase(t, PHASE_OPTIMIZER, begin_ns);
    work_end();
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    if (t->life != life || !torch_on()) {
        torch_state.py.Py_DecRef(optimizer);
        return result;
    }
    work_begin();
    uint64_t end_ns = torch_state.now();
    const struct device_work work = {.name = t->step_name,
                                     .stage = torch_state.stages[STAGE_STEP],
                                     .step = torch_state.step,
                                     .seq = torch_state.seq};
    enum stage stage;
    if (optimizer && result)
        note_step(t, optimizer);
    torch_state.py.Py_DecRef(optimizer);
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
        loss_optimizer(t, args[1]);
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
            loss_optimizer(t, args[0]);
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
    torch_state.has_optimizer = true;
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    work_begin();
    if (result && hook_works(hook))
        look();
    work_end();
    return result;
}

/* sys._probing_step(), which probing.step() calls; args[0]: the number of the step that begins. */
PyObject *step_told(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    struct cpython *py = &torch_state.py;
    (void)self;
    (void)kwnames;
    if (torch_on() && torch_state.live) {
        work_begin();
        torch_state.stepper = STEPPER_CALL;
        step_end(call_thread(), STEPPER_CALL, torch_state.now());
        int64_t global = PROBING_NULL_I64;
        if (n > 0 && py->PyType_IsSubtype(object_type(args[0]), py->PyLong_Type))
            global = py->PyLong_AsLongLong(args[0]);
        py->PyErr_Clear(); /* larger than 64 bits: -1 */
        coordinates_tell_global(global >= 0 ? global : PROBING_NULL_I64);
        work_end();
    }
    py->Py_IncRef(py->_Py_NoneStruct);
    return py->_Py_NoneStruct;
}

/* Has torch put its own wrapper around a class's step()?  It does that when the first optimizer of
 * the class is made, and calls _optimizer_step_code() in it: we must stand outside of that. */
static bool is_made(PyObject *class)
{
    struct cpython *py = &torch_state.py;
    PyObject *step = py->PyObject_GetAttrString(class, "step");
    PyObject *hooked = step ? py->PyObject_GetAttrString(step, "hooked") : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(step);
    py->Py_DecRef(hooked);
    return hooked != NULL;
}

void step_wrap_classes(PyObject *class)
{
    struct cpython *py = &torch_state.py;
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
    struct cpython *py = &torch_state.py;
    PyObject *order = py->PyObject_GetAttrString(class, "__mro__");
    py->PyErr_Clear();
    Py_ssize_t n = order ? py->PyTuple_Size(order) : 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *base = py->PyTuple_GetItem(order, i);
        if (base == torch_state.optimizer_class || hook_class(base, "step", step_call) == 0)
            break;
    }
    py->Py_DecRef(order);
}

void step_wrap(PyObject *optimizer)
{
    torch_state.has_optimizer = true;
    wrap_class(object_type(optimizer));
    (void)hook_instance(optimizer, "step", step_call); /* a learning rate scheduler's */
}
