/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/look.h - one look at a living process: its threads and what they run, and what `top` asks its
 * tables.
 *
 * One thread, one connection.
 */
#ifndef CLI_LOOK_H
#define CLI_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/cli.h"
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

/* All texts live in its arena. */
struct look {
    struct arena arena;
    uint64_t at_ns;
    struct look_thread *threads;
    uint32_t n;
    struct json *memory, *step, *modules, *gpus, *lost; /* answers, NULL: not there */
};

/* Who looks, and what he saw before: CPU time is what has come since then. */
struct looker;
int looker_new(const struct target *t, struct looker **ret); /* connects; caller frees */
void looker_free(struct looker *l);

/* Threads in order of what they use.  Below 0: it does not answer any more, or Ctrl-C; caller calls
 * look_done() all the same. */
int look_take(struct looker *l, struct look *ret);
void look_done(struct look *look);

/* ---- a row of an answer ---- */

const char *look_text(const struct json *row, uint32_t column); /* "": none */
double look_number(const struct json *row, uint32_t column);    /* 0: none */
bool look_knows(const struct json *row, uint32_t column);       /* false: there is no number */
int64_t look_int(const struct json *row, uint32_t column);

#endif
