/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/sampling.h - the other side of sample.h: who begins and ends the sampling,
 * and gets the samples.
 *
 * [control] unless said otherwise.
 */
#ifndef MEMORY_SAMPLE_SAMPLING_H
#define MEMORY_SAMPLE_SAMPLING_H

#include <probing/ext/draft/python_frames.h>
#include <probing/ext/draft/torch_step.h>
#include <probing/plugin.h>

#include "live_table.h"
#include "sampling/sample_pool.h"

/* Values of `user` in a sample's slot. */
enum {
    OF_ENTRY, /* in the table of live samples */
    OF_FRAME, /* frame of our innermost function: what lies below is ours */
    OF_COMM,  /* the thread's name, 16 bytes */
    OF_COMM_REST
};

#define SAMPLING_MEAN_MAX (UINT64_C(1) << 40) /* bytes */

struct sampling {
    const struct probing_host *host;
    struct live_table *live; /* stays for the life of the process */
    struct sample_pool *slots;
    const struct probing_python_frames_1 *python; /* NULL: none */
    uint64_t mean;                                /* bytes */
};

/* The table that was there before; NULL: none.  Threads may still stand in its functions. */
struct live_table *sampling_table(void);
/* From now on, allocations are sampled; the table is emptied before. */
void sampling_begin(const struct sampling *with);
/* Set the mean; threads see a new mean or step from their next look on.   [any] */
void sampling_set_mean(uint64_t mean);
/* The mean now: what was set, or more, as a thread that found most slots in use has raised it.  It
 * stays raised until the next sampling_set_mean().                                   [any] */
uint64_t sampling_mean(void);
/* The largest one since sampling began; since the last call.  What was allocated meanwhile in less
 * than some times of it may be in no sample.                              [any]; one thread */
uint64_t sampling_widest(void);
uint64_t sampling_widest_since(void);
void sampling_count_steps(const struct probing_torch_step_1 *torch); /* NULL: none    [any] */
/* Nothing is taken any more, and the table is empty: 0, or -EBUSY: a thread is inside. */
int sampling_end(void);
void sampling_forked(void); /* [child] */

struct sampling_counts {
    uint64_t taken, bare; /* of those taken: without a stack, as no slot was free */
    uint64_t means;       /* of those taken: the sum of the distances that they were taken by */
    uint64_t dropped;     /* no room in the table of live samples */
    uint64_t inside;      /* due in our own code or a handler that came into it: not taken */
    uint64_t spent_ns;    /* by the program's threads on samples */
};
void sampling_counts(struct sampling_counts *ret); /* [any] */

#endif
