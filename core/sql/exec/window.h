/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/window.h - a window function as it is bound, for bind_window.c and window.c.
 *
 * Private to them; the query's thread only.
 */
#ifndef CORE_SQL_EXEC_WINDOW_H
#define CORE_SQL_EXEC_WINDOW_H

#include "core/sql/exec/ops.h"

enum win_fn {
    WIN_ROW_NUMBER,
    WIN_RANK,
    WIN_DENSE_RANK,
    WIN_PERCENT_RANK,
    WIN_CUME_DIST,
    WIN_NTILE,
    WIN_LAG,
    WIN_LEAD,
    WIN_FIRST,
    WIN_LAST,
    WIN_NTH,
    WIN_AGG
};

struct win_spec { /* the arguments of its expression: the function's, filter, partition, order */
    enum win_fn fn;
    const struct agg_spec *agg;
    uint32_t n_args, n_partition, n_order;
    bool filter;
    bool skips_null;        /* ignore nulls */
    struct sort_key *order; /* column: not used */
    enum frame_mode mode;
    enum frame_exclude exclude;
    enum frame_edge edge[2];
    struct sql_value offset[2]; /* ROWS, GROUPS: a count; RANGE: as the key, or seconds of time */
};

#endif
