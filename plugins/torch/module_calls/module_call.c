/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_calls/module_call.c - what happens around each call of a module: two clock
 * readings, one row.
 *
 * Threads: any that holds the GIL; what a thread is inside of is its own.
 * It runs no Python code, except on the first call of a module it has not seen.
 * A call that raised has no row: its time is not that of a forward.  But a checkpoint that computes
 * a forward again ends it by an exception as soon as it has what the backward needs: those have.
 * Most calls are those of a known module inside of another one's, with nothing to do but the two
 * readings and the row: they go a short way of their own, call_known(), all others call_any().
 */
#include "module_calls/module_calls.h"

#include "module_calls/model_reader.h"
#include "module_registry/module_names.h"
#include "python/pyobject.h"
#include "steps/call_thread.h"
#include "steps/loop_table.h"
#include "steps/recent_calls.h"
#include "variables/loss.h"
#include "variables/variable_rows.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline)) /* so that the short way stays short */
#define LIKELY(condition) __builtin_expect(condition, 1)

/* Calls: on one in so many our own time is measured; a prime, so that no model shows us the same
 * module again and again. */
#define OVERHEAD_EVERY 61u

struct code_cache { /* of a call, at its begin, for its row */
    uint64_t name, device, step, begin_ns;
    uint64_t walks_ns; /* the thread's */
    int64_t seq;
};

struct call {
    struct code_cache known;
    uint64_t own_ns;
    uint64_t graph_from;  /* UINT64_MAX: no row for its backward */
    uint64_t ticket;      /* of device_begin() */
    uint64_t other_ns;    /* the thread's PHASE_OTHER before an evaluation */
    struct memory memory; /* at its begin */
    enum phase before;    /* the thread's, around a counted call */
    uint32_t life;
    int cuda;                           /* number of the module's device; below 0: none of CUDA's */
    bool top, wanted, counted, weighed; /* weighed: our own time is measured on this call */
    bool remembers;                     /* `memory` is known */
    bool evaluates;                     /* a model outside of training, in a loop that trains */
};

void call_settings(struct settings *set)
{
    if (set->backward && !module_calls.has_backward) {
        set->backward = false;
        torch_state.host->log(torch_state.host, PROBING_WARN, BACKWARD_WITHOUT_ORDER);
    }
    module_calls.short_way = !(set->backward || set->memory || set->device_times || set->nan);
}

/* The number of the accumulated batch that this call works on: how often the same module was called
 * in this step.  A loss without parameters belongs to the model called before it. */
static int64_t micro_step(struct thread *t, struct module *m)
{
    if (m->step != t->step || !m->calls) {
        m->step = t->step;
        m->calls = 0;
    }
    int64_t nth = m->calls++;
    if (!m->has_params)
        return t->last_micro;
    t->last_micro = nth;
    return nth;
}

/* Outside of training: in evaluation mode, or with gradients switched off. */
static bool is_inference(bool training)
{
    struct cpython *py = &python.api;
    if (!training || !python.grad_enabled)
        return !training;
    PyObject *on = cpython_vectorcall(py, python.grad_enabled, NULL, 0, NULL);
    py->PyErr_Clear();
    py->Py_DecRef(on); /* a constant of the interpreter */
    return on == py->_Py_FalseStruct;
}

/* In a loop without an optimizer, a model that is called again begins a step.  With one that has
 * not stepped yet it is a validation before the training. */
static void enter_inference(struct thread *t, struct module *m)
{
    if (!m || !m->has_params)
        return;
    bool trains = t->training && t->seen & 1u << PHASE_BACKWARD; /* it looks how well it does */
    if (m->calls && m->step == steps.step && !trains && !steps.has_optimizer) {
        step_end(t, STEPPER_FORWARD, torch_state.now());
        m->calls = 0;
    }
    m->step = steps.step;
    m->calls++;
}

/* A loop that changes its parameters by hand: the next batch begins a step.  With an optimizer that
 * has not stepped yet, batches are accumulated for it. */
static void enter_without_optimizer(struct thread *t, const struct module *m)
{
    bool again = m->has_params && m->calls && m->step == steps.step;
    if (!again || steps.has_optimizer || steps.stepper > STEPPER_BACKWARD ||
        !(t->seen & 1u << PHASE_BACKWARD))
        return;
    step_end(t, STEPPER_BACKWARD, torch_state.now());
}

static void enter_top(struct thread *t, struct call *c, PyObject *object)
{
    step_renew(t);
    if (!steps.loop.thread)
        loop_is(t); /* until one ends a step */
    if (t == steps.due_on)
        steps.due(t);
    coordinates_look();
    device_read();
    if (t->outer_unseen)
        t->outer_unseen = call_thread_inside_forward();
    uint64_t now_ns = torch_state.now();
    step_take_settings();
    t->recording = steps.sampled && torch_state.host->wanted(steps.trace);
    t->recomputes =
        t->backward_depth || (module_calls.has_backward && backward_inside(t)); /* else unknown */
    t->micro = PROBING_NULL_I64;
    t->top = NULL;
    t->walk = NO_WALK;
    /* its parts run in threads of their own, which count their nodes for themselves */
    t->no_backward = steps.set.backward && strcmp(object_class_text(object), "DataParallel") == 0;
    if (t->outer_unseen) {
        t->forward_whole = false;
        return;
    }
    steps.work++;
    if (t->recomputes)
        return;
    t->top = names_top(object, now_ns);
    t->walk = t->top ? t->top->at.walk : NO_WALK;
    if (safe_point_wanted())
        safe_point_reached(t, /* stepped= */ false);
    bool training = names_training(object);
    if (steps.stepper <= STEPPER_FORWARD && is_inference(training))
        enter_inference(t, t->top);
    else if (training && t->top) {
        enter_without_optimizer(t, t->top);
        t->micro = micro_step(t, t->top);
        t->training |= t->top->has_params;
    }
    c->counted = training || (steps.stepper < STEPPER_BACKWARD && !steps.has_optimizer);
    c->evaluates = !c->counted;
    t->recording = steps.sampled && torch_state.host->wanted(steps.trace);
}

/* Begin the measurements that have a switch of their own, and cost more. */
static void enter_device(struct call *c, struct thread *t, const struct module *m)
{
    const struct settings *set = &steps.set;
    if (!set->memory && !set->device_times && !c->top)
        return;
    uint64_t begin_ns = torch_state.now();
    c->cuda = m ? m->cuda : -1;
    c->remembers = (set->memory || c->top) && memory_ask(c->cuda, &c->memory);
    c->ticket = set->device_times ? device_begin(c->cuda) : 0;
    t->walks_ns += torch_state.now() - begin_ns;
}

/* Field by field: most of it is read only where it has been set. */
static inline void begin_call(struct call *c, const struct thread *t)
{
    c->life = t->life;
    c->top = t->depth == 0;
    c->counted = c->remembers = c->evaluates = false;
    c->graph_from = UINT64_MAX;
    c->ticket = c->own_ns = 0;
}

/* Is our own time measured on this call? */
static inline bool is_overhead_sample(void)
{
    bool due = module_calls.weigh_in == 0;
    module_calls.weigh_in = due ? OVERHEAD_EVERY - 1 : module_calls.weigh_in - 1;
    return due;
}

static void enter_call(struct call *c, struct thread *t, PyObject *object)
{
    bool weighed = is_overhead_sample();
    uint64_t before = weighed ? torch_state.now() : 0;
    uint64_t walks_ns = t->walks_ns;
    begin_call(c, t);
    c->weighed = weighed;
    if (c->top)
        enter_top(t, c, object);
    t->depth++;
    c->wanted = t->recording;
    if (c->wanted) {
        struct module *m = names_find(object);
        if (t->top &&
            (!m || m->at.walk != t->walk)) /* else nobody knows which tree it belongs to */
            m = names_inside(m, object, t);
        c->known.name = m ? m->at.name : PROBING_NULL_ID;
        c->known.device = m ? m->device : PROBING_NULL_ID;
        c->wanted = m ? !m->at.unwanted : !steps.set.layers[0];
        c->known.seq = steps.seq++;
        c->known.step = steps.step;
        if (steps.set.backward && c->wanted && m && !m->large && !t->backward_depth &&
            !t->no_backward)
            c->graph_from = backward_enter();
        if (c->wanted)
            enter_device(c, t, m);
    }
    c->known.walks_ns = t->walks_ns;
    c->known.begin_ns = torch_state.now();
    if (c->counted || c->evaluates)
        c->before = step_phase(t, c->counted ? PHASE_FORWARD : t->phase, c->known.begin_ns);
    c->other_ns = t->spent_ns[PHASE_OTHER];
    if (weighed)
        c->own_ns = c->known.begin_ns - before - (t->walks_ns - walks_ns);
}

static ALWAYS_INLINE double to_seconds(uint64_t ns)
{
    return (double)(int64_t)ns / 1e9;
}

/* All of the row but the memory. */
static ALWAYS_INLINE union probing_cell *fill_row(const struct thread *t,
                                                  const struct code_cache *k, uint64_t end_ns)
{
    union probing_cell *row = steps.forward_row; /* append() copies it, with the GIL held */
    row[COL_MICRO_STEP].i = t->micro;
    row[COL_LOCAL_STEP].i = (int64_t)k->step;
    row[COL_SEQ].i = k->seq;
    row[COL_MODULE].u = k->name;
    /* what we did meanwhile inside it is no time of its own */
    row[COL_DURATION].f = to_seconds(end_ns - k->begin_ns - (t->walks_ns - k->walks_ns));
    row[COL_TIME_OFFSET].u = PROBING_NULL_F64;
    if (LIKELY(steps.begin_ns && k->step == steps.step))
        row[COL_TIME_OFFSET].f = to_seconds(end_ns - steps.begin_ns);
    row[COL_DEVICE].u = k->device;
    if (recent_is_wanted())
        recent_add_call(&(struct recent_call){.tid = t->tid,
                                              .begin_ns = k->begin_ns,
                                              .end_ns = end_ns,
                                              .step = k->step,
                                              .name = k->name});
    return row;
}

/* memory: at its end; NULL: not known */
static void add_row(const struct thread *t, const struct call *c, uint64_t end_ns,
                    const struct memory *memory)
{
    union probing_cell *row = fill_row(t, &c->known, end_ns);
    if (t->recomputes)
        row[COL_STAGE].u = steps.stages[STAGE_RECOMPUTED];
    if (memory)
        trace_put_memory(row, &c->memory, memory);
    (void)torch_state.append(steps.trace, end_ns, row, memory ? N_TRACE : N_TRACE_SHORT, NULL, 0);
    if (memory)
        memcpy(&row[COL_ALLOCATED], &steps.row[COL_ALLOCATED],
               (COL_MAX_CACHED - COL_ALLOCATED + 1) * sizeof(row[0]));
    row[COL_STAGE].u = steps.stages[STAGE_FORWARD];
}

/* Was it ended by a checkpoint that needs no more of it?  (torch 2.1) */
static bool is_cut_short(const struct thread *t)
{
    struct cpython *py = &python.api;
    PyObject *class = NULL, *value = NULL, *traceback = NULL;
    if (!t->recomputes)
        return false;
    py->PyErr_Fetch(&class, &value, &traceback);
    PyObject *name = object_get(class, "__name__");
    const char *text = name ? py->PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    bool is = text && strcmp(text, "_StopRecomputationError") == 0;
    py->PyErr_Clear();
    py->Py_DecRef(name);
    py->PyErr_Restore(class, value, traceback);
    return is;
}

/* Its backward is measured when it comes. */
static void expect_backward(struct thread *t, const struct call *c, PyObject *object,
                            PyObject *result)
{
    uint64_t begin_ns = torch_state.now();
    struct backward_call call = {.from = c->graph_from,
                                 .object = object,
                                 .name = c->known.name,
                                 .device = c->known.device,
                                 .micro = t->micro};
    bool fits = backward_leave(result, &call);
    t->walks_ns += torch_state.now() - begin_ns;
    struct module *m = fits ? NULL : names_find(object);
    if (m)
        m->large = true;
}

/* The device's part of a call whose row is wanted; gives what add_row() wants. */
static const struct memory *leave_device(struct thread *t, const struct call *c, PyObject *result,
                                         struct memory *room)
{
    uint64_t begin_ns = torch_state.now();
    const struct device_work work = {
        .name = c->known.name,
        .stage = steps.stages[t->recomputes ? STAGE_RECOMPUTED : STAGE_FORWARD],
        .step = c->known.step,
        .seq = c->known.seq};
    device_end(c->ticket, result ? &work : NULL);
    bool known = result && c->remembers && memory_ask(c->cuda, room); /* else it has raised */
    t->walks_ns += torch_state.now() - begin_ns;
    return known ? room : NULL;
}

static void leave_call(struct thread *t, const struct call *c, PyObject *const *args, Py_ssize_t n,
                       PyObject *result)
{
    if (t->life != c->life || !torch_on()) /* stopped or forked meanwhile: nothing is there */
        return;
    uint64_t end_ns = torch_state.now(), walks_ns = t->walks_ns;
    t->depth--;
    if (c->counted || c->evaluates)
        (void)step_phase(t, c->before, end_ns);
    if (c->evaluates && t->spent_ns[PHASE_OTHER] > c->other_ns) /* else a step has ended in it */
        t->evaluated_ns += t->spent_ns[PHASE_OTHER] - c->other_ns;
    struct memory room;
    const struct memory *memory =
        c->ticket || c->remembers ? leave_device(t, c, result, &room) : NULL;
    if (c->wanted && (result || is_cut_short(t)))
        add_row(t, c, end_ns, memory);
    if (c->graph_from != UINT64_MAX && result)
        expect_backward(t, c, args[0], result);
    if (steps.set.nan && c->wanted && result) {
        uint64_t begin_ns = torch_state.now();
        nonfinite_watch(c->known.name, args, n, result);
        t->walks_ns += torch_state.now() - begin_ns;
    }
    if (c->top && variables.known && result && n > 0) {
        uint64_t begin_ns = torch_state.now();
        loss_forward(t, args[0], result);
        t->walks_ns += torch_state.now() - begin_ns;
    }
    if (c->top)
        t->top = NULL;
    t->calls++;
    if (c->weighed) {
        /* what was measured by itself is in walks_ns already */
        steps.overhead_sampled_ns +=
            c->own_ns + torch_state.now() - end_ns - (t->walks_ns - walks_ns);
        steps.n_overhead_samples++;
    }
}

static NOINLINE PyObject *call_any(PyObject *hook, PyObject *const *args, size_t nargsf,
                                   PyObject *kwnames)
{
    if (!hook_works(hook) || hook_nargs(nargsf) < 1)
        return hook_pass(hook, args, nargsf, kwnames);
    struct call c;
    struct thread *t = call_thread();
    if (t->depth && !t->recording)
        return hook_pass(hook, args, nargsf, kwnames);
    work_begin();
    enter_call(&c, t, args[0]);
    work_end();
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    work_begin();
    leave_call(t, &c, args, hook_nargs(nargsf), result);
    work_end();
    return result;
}

/* overhead_sampled_ns: when it began, where our own time is measured on this call; else 0, known to
 * the compiler */
static ALWAYS_INLINE PyObject *call_known(struct thread *t, const struct module *m, PyObject *hook,
                                          PyObject *const *args, size_t nargsf, PyObject *kwnames,
                                          uint64_t overhead_sampled_ns)
{
    struct code_cache k = {.name = m->at.name,
                           .device = m->device,
                           .step = steps.step,
                           .walks_ns = t->walks_ns,
                           .seq = steps.seq++};
    uint32_t life = t->life;
    t->depth++;
    k.begin_ns = torch_state.now();
    uint64_t own_ns = overhead_sampled_ns ? k.begin_ns - overhead_sampled_ns : 0;
    PyObject *result = hook_pass_fast(hook, args, nargsf, kwnames);
    if (t->life != life || !torch_on()) /* stopped or forked meanwhile: nothing is there */
        return result;
    uint64_t end_ns = torch_state.now();
    t->depth--;
    t->calls++;
    if (result)
        (void)torch_state.append(steps.trace, end_ns, fill_row(t, &k, end_ns), N_TRACE_SHORT, NULL,
                                 0);
    if (overhead_sampled_ns) {
        steps.overhead_sampled_ns += own_ns + torch_state.now() - end_ns;
        steps.n_overhead_samples++;
    }
    return result;
}

static NOINLINE PyObject *call_overhead_sampled(struct thread *t, const struct module *m,
                                                PyObject *hook, PyObject *const *args,
                                                size_t nargsf, PyObject *kwnames)
{
    return call_known(t, m, hook, args, nargsf, kwnames, torch_state.now());
}

PyObject *call_module(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const struct hook *h = (const struct hook *)hook;
    struct thread *t = &call_thread_own;
    __asm__("" : "+r"(t)); /* else the compiler asks the loader twice, not knowing what it costs */
    if (!LIKELY(h->works && module_calls.short_way && torch_on() && h->vectorcall &&
                hook_nargs(nargsf) > 0 && t->life == torch_state.life && t->depth))
        return call_any(hook, args, nargsf, kwnames);
    if (!t->recording)
        return hook_pass_fast(hook, args, nargsf, kwnames);
    const struct module *m = registry_find(args[0]);
    if (!LIKELY(m && m->at.walk == t->walk && !m->at.unwanted))
        return call_any(hook, args, nargsf, kwnames);
    if (!LIKELY(!is_overhead_sample()))
        return call_overhead_sampled(t, m, hook, args, nargsf, kwnames);
    return call_known(t, m, hook, args, nargsf, kwnames, /* overhead_sampled_ns= */ 0);
}

/* Tensor.backward(): what it does in Python before the engine, as making the first gradient, is the
 * backward's, too. */
PyObject *call_tensor_backward(PyObject *hook, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames)
{
    if (!hook_works(hook))
        return hook_pass(hook, args, nargsf, kwnames);
    struct thread *t = call_thread();
    uint32_t life = t->life;
    enum phase before = step_phase(t, PHASE_BACKWARD, torch_state.now());
    PyObject *result = hook_pass(hook, args, nargsf, kwnames);
    if (t->life == life && torch_on())
        (void)step_phase(t, before, torch_state.now());
    return result;
}

PyObject *call_backward(PyObject *engine, PyObject *args, PyObject *kwargs)
{
    if (!torch_on())
        return hook_c_pass(engine, args, kwargs);
    struct thread *t = call_thread();
    uint32_t life = t->life;
    t->backward_depth++;
    module_calls.backwards++;
    steps.work++;
    uint64_t begin_ns = torch_state.now();
    PyObject *waits = NULL;
    if (t->backward_depth == 1) {
        work_begin();
        if (variables.known)
            loss_backward(t, args, kwargs);
        waits = backward_begin(t, args, kwargs);
        work_end();
        t->walks_ns += torch_state.now() - begin_ns;
    }
    enum phase before = step_phase(t, PHASE_BACKWARD, begin_ns);
    PyObject *result = hook_c_pass(engine, args, kwargs);
    uint64_t end_ns = torch_state.now();
    backward_end(waits);
    if (t->life == life && torch_on()) {
        if (t->backward_depth-- == 1)
            backward_waited(t, end_ns);
        module_calls.backwards--;
        (void)step_phase(t, before, end_ns);
        if (steps.set.nan && result && t->backward_depth == 0 && steps.sampled) {
            nonfinite_watch_gradients();
            t->walks_ns += torch_state.now() - end_ns;
        }
        if (steps.stepper == STEPPER_BACKWARD && t->backward_depth == 0 && safe_point_wanted()) {
            uint64_t asked_ns = torch_state.now();
            safe_point_reached(t, /* stepped= */ true);
            t->walks_ns += torch_state.now() - asked_ns;
        }
    }
    return result;
}
