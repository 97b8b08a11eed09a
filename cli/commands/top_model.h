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
#include "core/base/arena.h"
#include "core/base/json.h"

#define LOOK_MODULES_S 10 /* modules are added up over the last so many seconds */

struct look_thread {
    int64_t tid, cpu_ns;
    double cpu_pct;                       /* of a core, since the look before; below 0: not known */
    const char *comm, *state;             /* the kernel's words */
    const char *name, *doing, *func, *at; /* of the interpreter; "" where it knows nothing */
    int64_t line;
    bool ours;
};

struct look_module { /* calls of a stage of it in the last LOOK_MODULES_S */
    const char *name, *stage;
    double calls, total_sec;
    double own_sec;   /* without modules that are called in it; below 0: not known */
    double memory_mb; /* below 0: not known */
};

/* All texts live in its arena. */
struct look {
    struct arena arena;
    uint64_t at_ns;
    struct look_thread *threads;
    uint32_t n;
    struct look_module *modules; /* in order of their own time */
    uint32_t n_modules;
    struct json *memory, *step, *gpus, *lost; /* answers, NULL: not there */
};

/* Who looks, and what he saw before: CPU time is what has come since then. */
struct looker;
int looker_new(const struct target *t, struct looker **ret); /* connects; caller frees */
void looker_free(struct looker *l);

/* Threads in order of what they use.  Below 0: it does not answer any more, or Ctrl-C; caller calls
 * look_done() all the same. */
int look_take(struct looker *l, struct tally *tally, struct look *ret);
void look_done(struct look *look);
/* One look at the Python stacks alone.  0, or as look_take(). */
int look_sample(struct looker *l, struct tally *tally);

/* ---- a row of an answer ---- */

const char *look_text(const struct json *row, uint32_t column); /* "": none */
double look_number(const struct json *row, uint32_t column);    /* 0: none */
bool look_knows(const struct json *row, uint32_t column);       /* false: there is no number */
int64_t look_int(const struct json *row, uint32_t column);

#endif
