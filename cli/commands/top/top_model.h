/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/top/top_model.h - one look at a living process: its threads and what they run, and
 * what `top` asks its tables.
 *
 * One thread, one connection.
 */
#ifndef CLI_COMMANDS_TOP_TOP_MODEL_H
#define CLI_COMMANDS_TOP_TOP_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/answer/arrow_reader.h"
#include "cli/answer/columns.h"
#include "cli/commands/top/function_times.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/buf.h"

struct target;
struct buf;

struct snapshot_thread {
    int64_t tid, cpu_ns;
    double cpu_pct;                       /* of a core, since the look before; below 0: not known */
    const char *comm, *state;             /* the kernel's words */
    const char *name, *doing, *func, *at; /* of the interpreter; "" where it knows nothing */
    int64_t line;
    bool ours;
};

/* Rows of an answer. */
struct snapshot_row {
    struct snapshot_row *next;
    uint32_t n;
    struct sql_value cells[];
};
struct snapshot_rows {
    struct own_columns columns;
    struct snapshot_row *first;
};
/* Gives one that is NULL where the row has no such column, or is NULL itself. */
const struct sql_value *snapshot_cell(const struct snapshot_row *row, uint32_t column);

/* A plugin's declaration for this screen (struct probing_panel), and its rows now. */
struct snapshot_panel {
    const char *doc;
    bool is_table; /* else each row is a line */
    uint32_t most; /* rows that are shown */
    struct snapshot_rows rows;
};

/* All texts live in its arena. */
struct snapshot {
    struct arena arena;
    uint64_t at_ns;
    struct snapshot_thread *threads;
    uint32_t n;
    struct snapshot_panel *panels;
    uint32_t n_panels;
    const struct snapshot_row *memory, *lost; /* NULL: not there */
};

/* The state of a looker, with the look before: CPU time is what has come since then. */
struct top_sampler;
int looker_new(const struct target *t, struct top_sampler **ret); /* connects; caller frees */
void looker_free(struct top_sampler *l);

/* Threads in order of what they use.  Below 0: it does not answer any more, or Ctrl-C; caller calls
 * snapshot_done() all the same. */
int snapshot_take(struct top_sampler *l, struct tally *tally, struct snapshot *ret);
void snapshot_done(struct snapshot *look);
/* One look at the Python stacks and at the threads' processor time.  0, or as snapshot_take(). */
int snapshot_sample(struct top_sampler *l, struct tally *tally);

/* A line of JSON.  ours: probing's own threads, too. */
int snapshot_json(const struct snapshot *look, struct tally *tally, bool ours, struct buf *ret);

#endif
