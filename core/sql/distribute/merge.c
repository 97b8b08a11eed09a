/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/merge.c - answers of members that are whole are made one while others still
 * come, so that what is held grows with the groups and not with the members.
 *
 * The merged rows stand in the place of the first member that has a part in them: whatever is asked
 * of its tags has been asked of theirs.  Where the order of members counts, or tags are grouped by,
 * nothing is merged.  One thread.
 */
#include <string.h>

#include "core/sql/distribute/parts.h"

#define MERGE_BYTES ((uint64_t)8 << 20) /* fewer are left to the last statement */
#define CELLS_MAX 512

struct merged {
    const struct part *part;
    struct held_table *to;
    bool same; /* its columns are those of an answer */
};

static int check_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct merged *m = arg;
    m->same = n == m->part->n_columns;
    for (uint32_t c = 0; c < n && m->same; c++)
        m->same = columns[c].type == m->part->columns[c].type;
    return m->same ? 0 : -1;
}

static int keep_rows(void *arg, const struct sql_rows *rows)
{
    struct merged *m = arg;
    struct sql_value cells[CELLS_MAX];
    int rc = 0;
    for (uint32_t i = 0; i < sql_rows_count(rows) && rc == 0; i++) {
        for (uint32_t c = 0; c < m->part->n_columns; c++)
            sql_rows_value(rows, i, c, &cells[c]);
        rc = held_row(m->to, 0, cells);
    }
    return rc;
}

static bool is_mergeable(const struct part *p, uint32_t m)
{
    return p->answers[m].state == ANSWER_WHOLE && p->held->parts[m].rows.size > 0;
}

/* The statement over the rows of those that are whole, which stay where they are. */
static int run_merge(struct sql_global *g, struct held *h, struct arena *mem, struct merged *ret)
{
    const struct part *p = ret->part;
    struct held_table like = {.name = "answers",
                              .columns = p->held->columns,
                              .n_columns = p->held->n_columns,
                              .n_front = p->held->n_front,
                              .n_parts = g->n_members};
    const struct sql_sink sink = {.arg = ret, .columns = check_columns, .rows = keep_rows};
    const struct sql_options o = {.cancel = g->o.cancel};
    struct held_table *from;
    int rc = held_add(h, mem, &like, &from);
    like = (struct held_table){
        .name = "merged", .columns = p->columns, .n_columns = p->n_columns, .n_parts = 1};
    if (rc == 0)
        rc = held_add(h, mem, &like, &ret->to);
    if (rc < 0)
        return rc;
    for (uint32_t m = 0; m < g->n_members; m++)
        if (is_mergeable(p, m))
            from->parts[m] = p->held->parts[m];
    rc = sql_run(h->engine, p->merge, strlen(p->merge), &o, &sink, NULL);
    memset(from->parts, 0, g->n_members * sizeof(*from->parts)); /* they are not ours */
    return rc;
}

static void replace_answers(struct sql_global *g, struct part *p, struct held_part *merged)
{
    struct held_part *first = NULL;
    for (uint32_t m = 0; m < g->n_members; m++) {
        if (!is_mergeable(p, m))
            continue;
        first = first ? first : &p->held->parts[m];
        held_drop(&p->held->parts[m]);
    }
    if (!first)
        return;
    first->rows = merged->rows;
    first->n = merged->n;
    buf_init(&merged->rows, 0);
}

void global_merge_some(struct sql_global *g, struct part *p)
{
    uint64_t at = p->merged * 2 > MERGE_BYTES ? p->merged * 2 : MERGE_BYTES;
    struct merged m = {.part = p};
    struct arena mem;
    struct held h = {.tables = NULL};
    if (!p->merge || p->merge_tags || p->in_order || p->loose < at || p->n_columns > CELLS_MAX)
        return;
    arena_init(&mem, 0);
    int rc = held_init(&h);
    if (rc == 0)
        rc = run_merge(g, &h, &mem, &m);
    uint64_t size = rc == 0 ? m.to->parts[0].rows.size : p->loose;
    if (rc == 0 && size < p->loose) {
        replace_answers(g, p, &m.to->parts[0]);
        g->bytes -= p->loose - size;
        p->loose = size;
    }
    p->merged = p->loose; /* not again before there is twice as much */
    held_done(&h);
    arena_done(&mem);
}
