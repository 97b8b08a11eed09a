/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/on_the_way.c - a part as a question: somebody between who asks and the
 * members merges their answers, and who asks takes what comes as one answer of all of them.
 *
 * The question says what an answer's columns must be, and the statement that makes one of many: the
 * same checks are made on the way as by who asks.  One thread.
 */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/distribute/parts.h"

#define COLUMNS_MAX 512
#define COLUMN_BYTES 4 /* type, check, its aggregate, the type of that; then the name */

static struct part *part_at(const struct sql_global *g, uint32_t part)
{
    struct part *p = g->parts;
    while (p && part--)
        p = p->next;
    return p;
}

/* ---- the question ---- */

int sql_global_question(const struct sql_global *g, uint32_t part, struct buf *ret)
{
    const struct part *p = part_at(g, part);
    if (!p || !p->merge || p->merge_tags || p->in_order || p->n_columns > COLUMNS_MAX ||
        p->n_columns == 0)
        return 0;
    (void)buf_add(ret, p->merge, strlen(p->merge) + 1);
    for (uint32_t c = 0; c < p->n_columns; c++) {
        const struct answer_check check = p->checks ? p->checks[c] : (struct answer_check){0};
        const char head[COLUMN_BYTES] = {(char)p->columns[c].type, (char)check.what, (char)check.op,
                                         (char)check.of};
        (void)buf_add(ret, head, sizeof(head));
        (void)buf_add(ret, p->columns[c].name, strlen(p->columns[c].name) + 1);
    }
    return ret->failed ? global_no_memory() : 1;
}

/* ---- on the way ---- */

static int no_question(void)
{
    return err_set(-EBADMSG, "that is no question about answers that are to be merged");
}

static int read_column(struct sql_global *g, const char *data, size_t size, struct part *p)
{
    const unsigned char *head = (const unsigned char *)data;
    const char *name = data + COLUMN_BYTES;
    const char *end = size > COLUMN_BYTES ? memchr(name, '\0', size - COLUMN_BYTES) : NULL;
    if (!end || p->n_columns == COLUMNS_MAX || head[0] > SQL_CALENDAR || head[1] > CHECK_STATE ||
        head[2] > AGG_SKETCH || head[3] > SQL_CALENDAR)
        return no_question();
    const char *copy = arena_text(&g->mem.arena, name, (size_t)(end - name));
    if (!copy)
        return global_no_memory();
    p->columns[p->n_columns] =
        (struct sql_column){.name = copy, .type = (enum sql_type)head[0], .doc = ""};
    p->checks[p->n_columns].what = head[1];
    p->checks[p->n_columns].op = (enum agg_op)head[2];
    p->checks[p->n_columns].of = (enum sql_type)head[3];
    p->n_columns++;
    return (int)(end + 1 - data);
}

static int read_part(struct sql_global *g, const char *data, size_t size, struct part *p)
{
    const char *end = size ? memchr(data, '\0', size) : NULL;
    if (!end)
        return no_question();
    p->merge = arena_text(&g->mem.arena, data, (size_t)(end - data));
    p->columns = arena_zalloc(&g->mem.arena, COLUMNS_MAX, sizeof(*p->columns));
    p->checks = arena_zalloc(&g->mem.arena, COLUMNS_MAX, sizeof(*p->checks));
    if (!p->merge || !p->columns || !p->checks)
        return global_no_memory();
    for (size_t at = (size_t)(end - data) + 1; at < size;) {
        int n = read_column(g, data + at, size - at, p);
        if (n < 0)
            return n;
        at += (size_t)n;
    }
    return p->n_columns ? 0 : no_question();
}

static int hold(struct sql_global *g, struct part *p, uint32_t n_members)
{
    const struct held_table like = {.schema = GLOBAL_SCHEMA,
                                    .name = "answers_1",
                                    .columns = p->columns,
                                    .n_columns = p->n_columns,
                                    .n_parts = n_members};
    p->answers = arena_zalloc(&g->mem.arena, n_members, sizeof(*p->answers));
    g->members = arena_zalloc(&g->mem.arena, n_members, sizeof(*g->members));
    if (!p->answers || !g->members)
        return global_no_memory();
    for (uint32_t m = 0; m < n_members; m++)
        p->answers[m].state = ANSWER_AWAITED;
    g->n_members = n_members;
    return held_add(&g->answers, &g->mem.arena, &like, &p->held);
}

int sql_global_from_question(const char *data, size_t size, uint32_t n_members,
                             const struct sql_global_options *o, struct sql_global **ret)
{
    static const char text[] = "select 1";
    struct sql_global *g;
    int rc = n_members ? sql_global_new(text, sizeof(text) - 1, o, &g) : no_question();
    if (rc < 0)
        return rc;
    struct part *p = arena_zalloc(&g->mem.arena, 1, sizeof(*p));
    rc = p ? read_part(g, data, size, p) : global_no_memory();
    if (rc == 0)
        rc = hold(g, p, n_members);
    if (rc < 0) {
        sql_global_free(g);
        return rc;
    }
    p->name = "answers_1";
    g->parts = p;
    g->n_parts = 1;
    *ret = g;
    return 0;
}

/* What it gives is called as the part's columns, whatever the statement calls it. */
struct passing {
    const struct part *part;
    const struct sql_sink *to;
};

static int pass_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    const struct passing *p = arg;
    bool same = n == p->part->n_columns;
    for (uint32_t c = 0; same && c < n; c++)
        same = columns[c].type == p->part->columns[c].type;
    return same ? p->to->columns(p->to->arg, p->part->columns, n)
                : err_set(-EBADMSG, "what merges the answers gives other columns than these have");
}

static int pass_rows(void *arg, const struct sql_rows *rows)
{
    const struct passing *p = arg;
    return p->to->rows(p->to->arg, rows);
}

int sql_global_run_merge(struct sql_global *g, const struct sql_sink *sink, struct sql_report *ret)
{
    struct passing p = {g->parts, sink};
    const struct sql_sink to = {.arg = &p, .columns = pass_columns, .rows = pass_rows};
    const struct sql_options o = {.cancel = g->o.cancel};
    struct held h = {.tables = NULL};
    struct held_table *from;
    struct arena mem;
    struct held_table like = *g->parts->held;
    arena_init(&mem, 0);
    like.schema = NULL;
    like.name = "answers";
    int rc = held_init(&h);
    if (rc == 0)
        rc = held_add(&h, &mem, &like, &from);
    if (rc == 0) {
        for (uint32_t m = 0; m < g->n_members; m++)
            if (g->parts->answers[m].state == ANSWER_WHOLE)
                from->parts[m] = g->parts->held->parts[m];
        rc = sql_run(h.engine, g->parts->merge, strlen(g->parts->merge), &o, &to, ret);
        memset(from->parts, 0, g->n_members * sizeof(*from->parts)); /* they are not ours */
    }
    held_done(&h);
    arena_done(&mem);
    return rc;
}

/* ---- what comes of it ---- */

void sql_global_answered_within(struct sql_global *g, uint32_t part, uint32_t member,
                                const struct sql_global_said *said)
{
    struct part *p = part_at(g, part);
    struct part_answer *a = p && member < g->n_members ? &p->answers[member] : NULL;
    if (!a || (a->state != ANSWER_AWAITED && a->state != ANSWER_WHOLE))
        return;
    a->state = ANSWER_WHOLE;
    a->elapsed_ns = said->elapsed_ns;
    a->rows = said->rows;
    a->bytes = said->bytes;
}
