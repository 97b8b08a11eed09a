/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/rows.h - rows of single things: kernels, copies, memory, calls, waits.
 *
 * Threads: one at a time.
 */
#ifndef CUDA_TRACE_ROWS_H
#define CUDA_TRACE_ROWS_H

#include "trace/event_stats.h"
#include "trace/launches.h"
#include "trace/names.h"
#include "trace/tables.h"

struct place {                   /* where something was asked for */
    const struct launch *launch; /* NULL: not seen */
    int64_t step;                /* PROBING_NULL_I64: not known */
    uint64_t module;             /* PROBING_NULL_ID: none, or not known */
};

struct rows {
    const struct probing_host *host;
    struct trace_tables tables;
    struct names *names;
    struct session *session;
};

void rows_kernel(const struct rows *w, const struct record *r, const struct place *p,
                 uint64_t name);
/* Any of the others. */
void rows_add(const struct rows *w, const struct record *r, const struct place *p);
/* The sum that a copy, set, wait or allocation belongs to. */
struct event_key rows_event_key(const struct rows *w, const struct record *r,
                                const struct place *p);

#endif
