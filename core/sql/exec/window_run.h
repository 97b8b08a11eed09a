/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/window_run.h - windows at work: what window.c (order, the operator), window_frame.c
 * (which rows a row sees) and window_value.c (what becomes of them) share.
 *
 * Private to them; the query's thread only.
 */
#ifndef CORE_SQL_EXEC_WINDOW_RUN_H
#define CORE_SQL_EXEC_WINDOW_RUN_H

#include "core/sql/exec/window.h"

struct win { /* one window function at work */
    const struct expr *expr;
    const struct win_spec *spec;
    uint32_t first_col; /* of its arguments among the columns kept */
    struct vec *out;    /* a vector a chunk, by the row's own place */
};

struct window {
    struct program *program;
    struct vec **results;
    enum sql_type *types;
    struct rowset rows;
    uint32_t n_kept; /* columns of the child that are given on */
    uint32_t *kept;
    struct win *wins;
    uint32_t n_wins;
    uint32_t *order;
    uint32_t next_chunk, n_checks;
    bool ready;
};

struct part { /* a partition: places first to end - 1 of the order */
    uint32_t first, end;
    uint32_t peer, peer_end; /* rows equal in order with the one at hand */
    uint32_t dense;
    uint32_t *groups; /* GROUPS: where each group of peers begins, and the end; NULL: not asked */
    uint32_t n_groups;
    /* The aggregate over what its frame holds by now. */
    struct agg *agg;
    uint32_t from, to;
    bool any;
};

/* The frame of the row at a place is up to three runs of places: exclude cuts holes. */
struct frame {
    uint32_t from[3], to[3];
    uint32_t n;
};

/* The frame of the row at a place of a partition.  window_frame.c */
void sql_frame_of(const struct window *w, const struct win *f, const struct part *p, uint32_t at,
                  struct frame *ret);
/* Compute the function for the row at a place.  window_value.c */
int sql_window_row(struct op *op, const struct win *f, struct part *p, uint32_t at);

static inline const struct vec *cell(const struct window *w, uint32_t row, uint32_t column)
{
    return &w->rows.chunks[row / SQL_ROWS][column];
}

static inline struct vec *out_of(const struct win *f, uint32_t row)
{
    return &f->out[row / SQL_ROWS];
}

#endif
