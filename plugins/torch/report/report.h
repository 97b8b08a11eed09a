/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/report.h - what `probing torch` finds out about a loop, and how it is shown.
 *
 * One thread, of the command: nothing in this folder ever runs in a target, and nothing of the
 * plugin's other folders is there.
 */
#ifndef TORCH_REPORT_REPORT_H
#define TORCH_REPORT_REPORT_H

#include <probing/report.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report_sdk.h"

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
       TORCH_CALLED /* steps that ended where a model was called again */
};
enum { COST_N, COST_WITH, COST_WITHOUT, COST_STDDEV };                  /* of `cost` */
enum { MEMORY_USED, MEMORY_HELD, MEMORY_BEFORE, MEMORY_SINCE };         /* of `memory` */
enum { LOOP_STEP_SEC, LOOP_PHASE_SEC, LOOP_RSS, LOOP_GROWN, LOOP_SEC }; /* of `loop` */

/* Text that grows, each line with its end; more than LINES_MAX is dropped. */
#define LINES_MAX ((size_t)1 << 16)
struct lines {
    char *text; /* NULL: nothing yet */
    size_t size;
};
void lines_add(struct lines *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *lines_text(const struct lines *l);

struct slow_module {   /* a module's own time, without that of modules inside */
    char *root, *name; /* root: the model it was called in */
    int64_t own_ns[2]; /* forward, backward */
    int64_t calls;     /* forwards */
};

struct torch_report {
    const struct probing_report_api *api;
    struct torch_figures steps, cost, memory, loop;
    struct slow_module modules[TORCH_MODULES];
    uint32_t n_modules, n_roots;
    int64_t module_steps; /* that they are of */
    struct lines waits, suspicions;
};

/* report_modules.c: the slowest modules of the calls that `where` chooses, " and local_step = 3",
 * the slowest first, into r->modules, n_modules, n_roots (models) and module_steps. */
int slow_modules_read(struct torch_report *r, const char *where);
void slow_modules_free(struct torch_report *r);

/* report_print.c */
void torch_show(const struct torch_report *r);
void torch_show_json(const struct torch_report *r);

/* report_ranks.c: lines about who waits for which rank; none: nobody waits.  suspicions: likewise
 * about a rank that the others wait for in each step. */
void torch_read_waits(const struct probing_report_api *a, struct lines *lines,
                      struct lines *suspicions);
/* report_rendezvous.c: likewise about who makes a process group; `others`: also when this one does
 * not. */
void torch_read_joins(const struct probing_report_api *a, bool others, struct lines *lines);
/* Does plugin torch run in a process of this machine?  (report_ranks.c) */
bool torch_runs_in(const struct probing_report_api *a, int64_t pid);

/* report_profile.c: `torch profile` */
struct torch_capture {
    const char *steps, *skip; /* numbers, as they were written */
    uint64_t timeout_ns;
};
int torch_capture(const struct probing_report_api *a, const struct torch_capture *wanted,
                  const char *path);

#endif
