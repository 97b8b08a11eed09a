/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/window_frame.c - frames: which rows of its partition a row's window function sees.
 *
 * By rows, by groups of peers, or by distance in the value that the window is ordered by; exclude
 * cuts a hole.  The query's thread only.
 */
#include "core/sql/exec/window_run.h"

static uint32_t clamp_place(int64_t place, const struct part *p)
{
    return place < (int64_t)p->first ? p->first
           : place > (int64_t)p->end ? p->end
                                     : (uint32_t)place;
}

static uint32_t rows_edge(const struct win *f, const struct part *p, uint32_t at, int i)
{
    int64_t offset =
        f->spec->offset[i].integer < INT32_MAX ? f->spec->offset[i].integer : INT32_MAX;
    if (f->spec->edge[i] == FRAME_CURRENT)
        return at + (uint32_t)i;
    bool before = f->spec->edge[i] == FRAME_PRECEDING;
    return clamp_place((int64_t)at + (before ? -offset : offset) + i, p);
}

static uint32_t groups_edge(const struct win *f, const struct part *p, int i)
{
    int64_t offset =
        f->spec->offset[i].integer < INT32_MAX ? f->spec->offset[i].integer : INT32_MAX;
    bool before = f->spec->edge[i] == FRAME_PRECEDING;
    int64_t group = (int64_t)p->dense - 1 + (before ? -offset : offset) + i;
    if (group < 0)
        return p->first;
    return group >= (int64_t)p->n_groups ? p->end : p->groups[group];
}

/* Is the key of the row at a place before key + by (in the order of the window)?  `behind`: or
 * equal to it. */
static bool is_before(const struct window *w, const struct win *f, uint32_t place,
                      const struct vec *key, uint32_t row, const struct sql_value *by, bool minus,
                      bool behind)
{
    uint32_t c = f->first_col + f->spec->n_args + f->spec->filter + f->spec->n_partition;
    const struct sort_key *order = &f->spec->order[0];
    uint32_t r = w->order[place], i = r % SQL_ROWS;
    const struct vec *v = cell(w, r, c);
    if (v->null[i])
        return order->nulls_first;
    int compared;
    if (v->type == SQL_DOUBLE) {
        double limit = minus ? key->d[row] - by->number : key->d[row] + by->number, x = v->d[i];
        compared =
            x != x || limit != limit ? (x != x) - (limit != limit) : (x > limit) - (x < limit);
    } else {
        __int128 limit = key->i[row];
        limit += minus ? -(__int128)by->integer : (__int128)by->integer;
        compared = (v->i[i] > limit) - (v->i[i] < limit);
    }
    compared = order->descending ? -compared : compared;
    return compared < 0 || (behind && compared == 0);
}

/* range between x preceding and y following: by halves in the ordered partition. */
static uint32_t range_edge(const struct window *w, const struct win *f, const struct part *p,
                           uint32_t at, int i)
{
    uint32_t c = f->first_col + f->spec->n_args + f->spec->filter + f->spec->n_partition;
    uint32_t r = w->order[at], low = p->first, high = p->end;
    const struct vec *key = cell(w, r, c);
    bool before = f->spec->edge[i] == FRAME_PRECEDING;
    if (key->null[r % SQL_ROWS]) /* NULL is near NULL only */
        return i ? p->peer_end : p->peer;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (is_before(w, f, middle, key, r % SQL_ROWS, &f->spec->offset[i],
                      before != f->spec->order[0].descending, i == 1))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t edge_of(const struct window *w, const struct win *f, const struct part *p,
                        uint32_t at, int i)
{
    switch (f->spec->edge[i]) {
    case FRAME_UNBOUNDED_PRECEDING:
        return p->first;
    case FRAME_UNBOUNDED_FOLLOWING:
        return p->end;
    case FRAME_CURRENT:
        if (f->spec->mode != FRAME_ROWS)
            return i ? p->peer_end : p->peer;
        break;
    case FRAME_PRECEDING:
    case FRAME_FOLLOWING:
        break;
    }
    return f->spec->mode == FRAME_ROWS     ? rows_edge(f, p, at, i)
           : f->spec->mode == FRAME_GROUPS ? groups_edge(f, p, i)
                                           : range_edge(w, f, p, at, i);
}

static void add_run(struct frame *frame, uint32_t from, uint32_t to)
{
    if (from >= to && frame->n)
        return;
    frame->from[frame->n] = from;
    frame->to[frame->n++] = to > from ? to : from;
}

void sql_frame_of(const struct window *w, const struct win *f, const struct part *p, uint32_t at,
                  struct frame *ret)
{
    uint32_t from = edge_of(w, f, p, at, 0), to = edge_of(w, f, p, at, 1);
    uint32_t hole = at, hole_end = at + 1;
    ret->n = 0;
    to = to > from ? to : from;
    if (f->spec->exclude == EXCLUDE_NOTHING) {
        add_run(ret, from, to);
        return;
    }
    if (f->spec->exclude != EXCLUDE_CURRENT) {
        hole = p->peer;
        hole_end = p->peer_end;
    }
    add_run(ret, from, to < hole ? to : hole);
    if (f->spec->exclude == EXCLUDE_TIES && at >= from && at < to)
        add_run(ret, at, at + 1);
    add_run(ret, from > hole_end ? from : hole_end, to);
}
