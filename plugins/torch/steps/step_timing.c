/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/step_timing.c - the table python.torch_step_timing.
 *
 * Threads: any that holds the GIL.
 */
#include "steps/step.h"

#include "python/pyobject.h"

enum {
    TIMING_STEP = N_COORDINATES,
    TIMING_FORWARD,
    TIMING_BACKWARD,
    TIMING_OPTIMIZER,
    TIMING_DATALOADER,
    TIMING_COMM,
    TIMING_OTHER,
    TIMING_EVALUATION,
    TIMING_OVERHEAD,
    TIMING_SAMPLED,
    TIMING_RATE,
    TIMING_KIND,
    TIMING_SHADOW,
    TIMING_SHADOW_NORMAL,
    TIMING_SHADOW_BASELINE,
    TIMING_MODE,
    N_TIMING
};

static const struct probing_column columns[N_TIMING] = {
    COORDINATE_COLUMNS,
    PROBING_F64_COLUMN("step_duration_sec", PROBING_SECONDS,
                       "time from the end of the previous step to the end of this one"),
    PROBING_F64_COLUMN(
        "forward_sec", PROBING_SECONDS,
        "time in top-level forward passes; in training, those of modules in training mode"),
    PROBING_F64_COLUMN(
        "backward_sec", PROBING_SECONDS,
        "time in Tensor.backward() and in autograd's engine when it is called otherwise, such as "
        "by torch.autograd.grad(); on a GPU until the work is queued; without waiting for other "
        "ranks (comm_sec)"),
    PROBING_F64_COLUMN("optimizer_sec", PROBING_SECONDS,
                       "time in step() of optimizers and GradScalers"),
    PROBING_F64_COLUMN("dataloader_sec", PROBING_SECONDS,
                       "time spent waiting in next() of DataLoaders"),
    PROBING_F64_COLUMN(
        "comm_sec", PROBING_SECONDS,
        "time in operations of torch.distributed that Python calls, and waiting for them; without "
        "the Python code of torch.distributed around them, 5 to 20 us each; and what a backward "
        "waits for other ranks when its gradients are computed (DDP, not on a GPU)"),
    PROBING_F64_COLUMN("other_sec", PROBING_SECONDS,
                       "the rest of the step, so that the parts add up"),
    PROBING_F64_COLUMN("evaluation_sec", PROBING_SECONDS,
                       "part of other_sec: calls of models outside of training, as a validation "
                       "makes them"),
    PROBING_F64_COLUMN("overhead_sec", PROBING_SECONDS,
                       "cost of probing itself, measured on one module call in 61"),
    PROBING_I64_COLUMN("sampled", PROBING_PLAIN, "1: this step has rows in python.torch_trace"),
    PROBING_F64_COLUMN("sample_rate", PROBING_PLAIN, "share of the steps that are to have rows"),
    PROBING_STR_COLUMN("step_end",
                       "what ended the step: optimizer, backward (followed by a forward, without "
                       "an optimizer), forward (a second one of the model) or probing.step"),
    PROBING_I64_COLUMN("is_shadow", PROBING_PLAIN,
                       "1: the step has no rows, to measure what rows cost (torch.baseline_every)"),
    PROBING_I64_COLUMN("shadow_normal", PROBING_COUNT,
                       "number of steps between two shadow steps; NULL: there are none"),
    PROBING_I64_COLUMN("shadow_baseline", PROBING_COUNT,
                       "number of consecutive shadow steps; NULL: there are none"),
    PROBING_STR_COLUMN(
        "sample_mode",
        "how the steps with rows are chosen: every (one in this many) or rate (a share)"),
};

const struct probing_table_desc timing_table =
    PROBING_TABLE("python.torch_step_timing", columns, "parts of the time of each training step");

/* The thread that ends a step tells where its own time went: the phases add up to the step. */
void timing_add(const struct thread *t, uint64_t end_ns)
{
    static const char *const steppers[N_STEPPERS] = {
        "", [STEPPER_FORWARD] = "forward", [STEPPER_BACKWARD] = "backward",
        [STEPPER_OPTIMIZER] = "optimizer", [STEPPER_CALL] = "probing.step"};
    static const uint8_t phases[N_PHASES] = {
        [PHASE_OTHER] = TIMING_OTHER,         [PHASE_DATA] = TIMING_DATALOADER,
        [PHASE_FORWARD] = TIMING_FORWARD,     [PHASE_BACKWARD] = TIMING_BACKWARD,
        [PHASE_OPTIMIZER] = TIMING_OPTIMIZER, [PHASE_COMM] = TIMING_COMM};
    const struct settings *set = &steps.set;
    union probing_cell row[N_TIMING];
    if (!steps.begin_ns || !torch_state.host->wanted(steps.timing))
        return;
    for (int i = 0; i < N_TIMING; i++)
        row[i].u = PROBING_NULL_F64;
    coordinates_put(row);
    row[TIMING_STEP].f = probing_seconds(end_ns - steps.begin_ns);
    for (int i = 0; i < N_PHASES; i++)
        if (t->seen & 1u << i && (i != PHASE_FORWARD || t->forward_whole))
            row[phases[i]].f = probing_seconds(t->spent_ns[i]);
    if (t->evaluated_ns)
        row[TIMING_EVALUATION].f = probing_seconds(t->evaluated_ns);
    if (steps.n_overhead_samples) {
        double one = (double)steps.overhead_sampled_ns / (double)steps.n_overhead_samples;
        row[TIMING_OVERHEAD].f =
            probing_seconds(t->walks_ns - t->old_walks_ns) + one * (double)t->calls / 1e9;
    }
    row[TIMING_SAMPLED].i = steps.sampled;
    row[TIMING_RATE].f = set->rate;
    row[TIMING_KIND].u = object_intern_often(steppers[steps.stepper]);
    bool shadows = set->baseline > 1;
    row[TIMING_SHADOW].i = shadows && step_is_shadow();
    row[TIMING_SHADOW_NORMAL].i = shadows ? set->baseline - 1 : PROBING_NULL_I64;
    row[TIMING_SHADOW_BASELINE].i = shadows ? 1 : PROBING_NULL_I64;
    row[TIMING_MODE].u = object_intern_often(set->every ? "every" : "rate");
    (void)torch_state.host->append(steps.timing, end_ns, row, N_TIMING, NULL, 0);
}
