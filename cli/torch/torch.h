/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/torch/torch.h - what `torch` finds out about a loop, and how it is shown.
 *
 * One thread.
 */
#ifndef CLI_TORCH_TORCH_H
#define CLI_TORCH_TORCH_H

#include "cli/cli.h"
#include "cli/commands/flame.h"
#include "core/base/buf.h"

#define TORCH_FIGURES 16
#define TORCH_MODULES 10 /* shown */
#define TORCH_NAME_BYTES 256

struct torch_figures {           /* a row */
    double value[TORCH_FIGURES]; /* NAN: NULL */
    char text[TORCH_NAME_BYTES]; /* the first text */
    uint32_t rows;
};

enum { /* of `steps` */
       TORCH_N,
       TORCH_MEAN,
       TORCH_MEDIAN,
       TORCH_P99,
       TORCH_DATA,
       TORCH_FORWARD,
       TORCH_BACKWARD,
       TORCH_OPTIMIZER,
       TORCH_COMM,
       TORCH_OTHER,
       TORCH_OVERHEAD,
       TORCH_FIRST,
       TORCH_LAST,
       TORCH_SPAN,
       TORCH_CALLED, /* steps that ended where a model was called again */
       N_TORCH_STEPS
};
enum { COST_N, COST_WITH, COST_WITHOUT, COST_STDDEV, N_COST };            /* of `cost` */
enum { MEMORY_USED, MEMORY_HELD, MEMORY_BEFORE, MEMORY_SINCE, N_MEMORY }; /* of `memory` */
enum { LOOP_STEP_SEC, LOOP_PHASE_SEC, LOOP_RSS, LOOP_GROWN, LOOP_SEC, LOOP_PHASE, N_LOOP };

struct torch_report {
    const struct target *t;
    struct torch_figures steps, cost, memory, loop;
    struct flame flame; /* holds the modules' names */
    struct flame_module modules[TORCH_MODULES];
    uint32_t n_modules, n_roots;
    int64_t module_steps;         /* that they are of */
    struct buf waits, suspicions; /* lines */
};

/* torch.c: the error of a target without the plugin's tables: what to do there. */
int torch_err_no_plugin(const struct target *t);

/* torch_print.c */
void torch_show(const struct torch_report *r);
void torch_show_json(const struct torch_report *r);

/* torch_ranks.c: lines about who waits for which rank; none: nobody waits.  suspicions: likewise
 * about a rank that the others wait for in each step. */
void torch_read_waits(const struct target *t, struct buf *lines, struct buf *suspicions);
/* torch_rendezvous.c: likewise about who makes a process group; `others`: also when this one does
 * not. */
void torch_read_joins(const struct target *t, bool others, struct buf *lines);

/* torch_profile.c: `torch profile` */
struct torch_capture {
    const char *steps, *skip; /* numbers, as they were written */
    uint64_t timeout_ns;
};
int torch_capture(const struct target *t, const struct torch_capture *wanted, const char *path);

#endif
