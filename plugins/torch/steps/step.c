/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/step.c - where one step ends and the next begins, and where its time went.
 *
 * Threads: any that holds the GIL.
 * A step ends with optimizer.step(), or GradScaler.step() which may skip it; in loops without an
 * optimizer, when a model is called again outside of training, or in training after a backward, as
 * where parameters are changed by hand; and once probing.step() was called, only there.
 * Whoever wants to hear of it is in the list of listeners.
 */
#include "steps/step.h"

#define LATE_EVERY 32u /* steps: parts of torch that were not imported are asked for again, */
#define LATE_NS PROBING_NS_PER_S /* at most once in so long: the loader looks through its list */

static const struct step_listener nobody[1];
static const struct step_listener *listeners = nobody; /* lock: the GIL */
static double sample_debt; /* lock: the GIL; sampled steps that sample_rate asks for, to come */
static uint64_t late_ns;   /* lock: the GIL; when parts of torch that come late were asked for */
struct steps steps;

void step_listen(const struct step_listener *given)
{
    listeners = given;
}

static bool is_listener(const struct step_listener *l)
{
    return l->look || l->settings || l->optimizes || l->optimized || l->ends || l->ended ||
           l->begun;
}

void step_look(void)
{
    for (const struct step_listener *l = listeners; is_listener(l); l++)
        if (l->look)
            l->look();
}

void step_optimizes(const struct thread *t, PyObject *optimizer)
{
    for (const struct step_listener *l = listeners; is_listener(l); l++)
        if (l->optimizes)
            l->optimizes(t, optimizer);
}

void step_optimized(struct thread *t, uint64_t end_ns)
{
    for (const struct step_listener *l = listeners; is_listener(l); l++)
        if (l->optimized)
            l->optimized(t, end_ns);
}

bool step_is_shadow(void)
{
    const struct settings *set = &steps.set;
    return set->baseline > 1 && steps.step % set->baseline == set->baseline - 1;
}

static bool is_sampled(void)
{
    const struct settings *set = &steps.set;
    if (step_is_shadow())
        return false;
    if (set->every)
        return steps.step % set->every == 0;
    sample_debt += set->rate;
    if (sample_debt < 1)
        return false;
    sample_debt -= 1;
    return true;
}

/* ---- a thread's time ---- */

static void renew_thread(struct thread *t, uint64_t now_ns)
{
    t->step = steps.step;
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
    if (t->step != steps.step)
        renew_thread(t, steps.begin_ns);
}

enum phase step_phase(struct thread *t, enum phase phase, uint64_t now_ns)
{
    step_renew(t);
    enum phase before = t->phase;
    t->spent_ns[before] += now_ns - t->phase_ns;
    t->phase_ns = now_ns;
    t->phase = phase;
    t->seen |= 1u << phase;
    if (t == steps.loop.thread)
        step_loop_phase(phase, now_ns);
    return before;
}

/* ---- from one step to the next ---- */

static void change_settings(void)
{
    for (const struct step_listener *l = listeners; is_listener(l); l++)
        if (l->settings)
            l->settings(&steps.set);
}

static void begin_step(uint64_t now_ns)
{
    (void)settings_take(&steps.set);
    change_settings();
    steps.begin_ns = now_ns;
    steps.seq = 0;
    steps.work = 0;
    steps.sampled = is_sampled();
}

void step_take_settings(void)
{
    if (steps.stepper != STEPPER_NONE || !settings_take(&steps.set))
        return;
    change_settings();
    steps.sampled = is_sampled();
}

void step_reset(void)
{
    steps.stepper = STEPPER_NONE;
    steps.has_optimizer = false;
    steps.last_optimizer = NULL;
    sample_debt = 1;                                /* the first step has rows */
    steps.step = steps.counts ? steps.step + 1 : 0; /* of another load rows are there already */
    __atomic_store_n(&steps.first_step, steps.step, __ATOMIC_RELAXED);
    steps.counts = true;
    steps.loop.thread = NULL;
    steps.loop.tid = 0;
    begin_step(0);
}

void step_end(struct thread *t, enum stepper stepper, uint64_t end_ns)
{
    steps.stepper = stepper;
    (void)step_phase(t, t->phase, end_ns);
    for (const struct step_listener *l = listeners; is_listener(l); l++)
        if (l->ends)
            l->ends(t, end_ns);
    __atomic_store_n(&steps.step, steps.step + 1, __ATOMIC_RELAXED); /* profile asks */
    if (steps.step % LATE_EVERY == 0 && end_ns - late_ns >= LATE_NS) {
        late_ns = end_ns;
        step_look();
    }
    for (const struct step_listener *l = listeners; is_listener(l); l++)
        if (l->ended)
            l->ended(t, end_ns);
    begin_step(end_ns);
    renew_thread(t, end_ns);
    t->walks_ns += torch_state.now() - end_ns; /* in the time of the step that begins */
    for (const struct step_listener *l = listeners; is_listener(l); l++)
        if (l->begun)
            l->begun(t);
}
