/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/stragglers.h - `probing cluster stragglers`: what is read of the
 * ranks of a job, and how it is shown.
 *
 * One thread, of the command.
 *
 *     stragglers.c: the command     straggler_read.c: asks for steps, and lines them up
 *     straggler_signs.c: asks for signs     straggler_links.c: for connections
 *     straggler_judge.h: who is late     straggler_print.c
 */
#ifndef TORCH_REPORT_STRAGGLERS_H
#define TORCH_REPORT_STRAGGLERS_H

#include "report_sdk.h"
#include "straggler_judge.h"

#define STRAGGLER_NAME_BYTES 128

struct straggler_rank {
    char name[STRAGGLER_NAME_BYTES], host[STRAGGLER_NAME_BYTES]; /* name: what -t takes */
    int64_t rank, world_size;                                    /* INT64_MIN: not known */
    int64_t newest_ns, oldest_ns;                                /* of its table; its own clock */
    double step_sec;                                             /* mean of all that it has */
    struct judge_row *rows;
    uint32_t n_rows, room;
    uint32_t times; /* its own steps that are one of `rows` */
    int64_t shift;  /* to the numbers of the rank that the others are lined up with */
    bool judged;    /* it steps with the others */
    char why[200];  /* else: why not */
};

struct straggler_options {
    const struct probing_report_api *api;
    uint64_t last_steps, last_ns; /* 0: not given */
    bool json;
};

struct straggler_job {
    const struct straggler_options *o;
    struct straggler_rank *ranks; /* by rank */
    uint32_t n_ranks, room;
    int64_t begin_ns,
        long_begin_ns; /* rows from there on; only long steps from there on, 0: none */
    bool cut;          /* fewer steps than wanted: that many ranks would be too much */
    /* The ranks that are judged, in their order. */
    uint32_t *index; /* [n_judged] -> ranks */
    uint32_t n_judged, n_numbers;
    int64_t *numbers;         /* [n_numbers] of steps, as the first of `index` counts */
    int64_t *ends_ns;         /* [n_numbers] when they ended, by that one's clock; 0: not known */
    struct judge_step *steps; /* [n_judged][n_numbers] */
    float *backwards, *waits; /* [n_judged][n_backwards] */
    uint32_t n_backwards;
    bool blind;    /* where the ranks wait for each other is not in their steps */
    bool stages;   /* ranks send to and receive from each other */
    double *signs; /* [n_judged][N_SIGNS] */
    bool any_sign;
    struct judge_link *links; /* [n_links] */
    uint32_t *nodes;          /* [n_judged] */
    uint32_t n_links, n_nodes;
    int64_t signs_from_ns, signs_to_ns;
};

/* Steps of all ranks, lined up.  0, or below with the reason kept. */
int straggler_read(struct straggler_job *j);
/* Backwards whose own time torch has measured, where there is such a table and a step's backward
 * has the wait in it. */
int straggler_read_backwards(struct straggler_job *j);
/* Do ranks send to single others, as stages of a pipeline do? */
int straggler_read_stages(struct straggler_job *j);
/* Signs, where there are such tables: of when `most` was late, NULL: nobody. */
int straggler_read_signs(struct straggler_job *j, const struct judge_finding *most);
/* Links between the ranks' machines, after the signs; where there is such a table. */
int straggler_read_links(struct straggler_job *j);
void straggler_done(struct straggler_job *j);

struct straggler_rank *straggler_rank_named(struct straggler_job *j, const char *name);
/* Its place among those that are judged; UINT32_MAX: it is not. */
uint32_t straggler_judged_named(struct straggler_job *j, const char *name);

void straggler_show(const struct straggler_job *j, const struct judge_report *r);
void straggler_show_json(const struct straggler_job *j, const struct judge_report *r);
/* One sentence; room: 400. */
const char *straggler_outcome(const struct straggler_job *j, const struct judge_report *r,
                              char *room);
/* The part that could not be compared, in one sentence, "": none; room: 600. */
const char *straggler_blind(const struct straggler_job *j, const struct judge_report *r,
                            char *room);
/* Means of the steps that a rank made; late: of the middle rank. */
struct straggler_means {
    double whole, parts[N_PARTS];
    uint32_t n;
};
struct straggler_means straggler_means_of(const struct straggler_job *j, uint32_t judged);

int straggler_run(const struct probing_report_api *a, int argc, const char *const *argv);

#endif
