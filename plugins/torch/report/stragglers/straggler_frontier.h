/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_frontier.h - how late each rank is in each step, and in
 * which part it fell behind.
 *
 * Pure; one thread.
 */
#ifndef TORCH_REPORT_STRAGGLER_FRONTIER_H
#define TORCH_REPORT_STRAGGLER_FRONTIER_H

#include <stddef.h>

#include "straggler_judge.h"

struct frontier {
    const struct judge_job *j;
    float *late;          /* [rank][step] seconds behind the middle rank; NAN: it did not make it */
    uint8_t *part;        /* [rank][step] */
    float *middle;        /* [step] of all ranks' `late`; NAN: the step is not compared */
    uint32_t *leader;     /* [step] the latest */
    double step_sec;      /* the middle one of all */
    double total_sec;     /* all of them, each as its middle rank has it */
    double last_comm_sec; /* of the rank that waits least, in the middle step */
    double newest_sec, newest_comm_sec; /* the same of the newest JUDGE_STEPS_MIN, or fewer */
    uint32_t n_compared;
    bool other_waits;
};

/* false: no memory.  Either way frontier_done(). */
bool frontier_make(const struct judge_job *j, struct frontier *ret);
void frontier_done(struct frontier *f);

static inline float frontier_late(const struct frontier *f, uint32_t rank, uint32_t step)
{
    return f->late[(size_t)rank * f->j->n_steps + step];
}

/* The middle one of n > 0 values, the lower one of two; their order is lost. */
float middle_of(float *values, uint32_t n);
/* Their usual distance from `middle`, as sigma of a normal distribution; likewise. */
float sigma_of(float *values, uint32_t n, float middle);

#endif
