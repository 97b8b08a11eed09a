/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/top_model.h - one look at a living process: its threads and what they run, and what
 * `top` asks its tables.
 *
 * One thread, one connection.
 */
#ifndef CLI_COMMANDS_TOP_MODEL_H
#define CLI_COMMANDS_TOP_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/cli.h"
#include "cli/commands/function_times.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/json.h"

#define LOOK_MODULES_S 10 /* modules are added up over the last so many seconds */

struct snapshot_thread {
    int64_t tid, cpu_ns;
    double cpu_pct;                       /* of a core, since the look before; below 0: not known */
    const char *comm, *state;             /* the kernel's words */
    const char *name, *doing, *func, *at; /* of the interpreter; "" where it knows nothing */
    int64_t line;
    bool ours;
};

struct snapshot_module { /* calls of a stage of it in the last LOOK_MODULES_S */
    const char *name, *stage;
    double calls, total_sec;
    double own_sec;   /* without modules that are called in it; below 0: not known */
    double memory_mb; /* below 0: not known */
};

/* All texts live in its arena. */
struct snapshot {
    struct arena arena;
    uint64_t at_ns;
    struct snapshot_thread *threads;
    uint32_t n;
    struct snapshot_module *modules; /* in order of their own time */
    uint32_t n_modules;
    struct json *memory, *step, *gpus, *lost; /* answers, NULL: not there */
};

/* Who looks, and what he saw before: CPU time is what has come since then. */
struct top_sampler;
int looker_new(const struct target *t, struct top_sampler **ret); /* connects; caller frees */
void looker_free(struct top_sampler *l);

/* Threads in order of what they use.  Below 0: it does not answer any more, or Ctrl-C; caller calls
 * snapshot_done() all the same. */
int snapshot_take(struct top_sampler *l, struct tally *tally, struct snapshot *ret);
void snapshot_done(struct snapshot *look);
/* One look at the Python stacks alone.  0, or as snapshot_take(). */
int snapshot_sample(struct top_sampler *l, struct tally *tally);

/* ---- a row of an answer ---- */

const char *snapshot_text(const struct json *row, uint32_t column); /* "": none */
double snapshot_number(const struct json *row, uint32_t column);    /* 0: none */
bool snapshot_knows(const struct json *row, uint32_t column);       /* false: there is no number */
int64_t snapshot_int(const struct json *row, uint32_t column);

#endif
