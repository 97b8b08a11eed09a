/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/answers.c - what members send: checked against what they were asked, and
 * held.
 *
 * One thread.
 */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/distribute/parts.h"

static struct part *part_at(const struct sql_global *g, uint32_t part, uint32_t member)
{
    struct part *p = member < g->n_members ? g->parts : NULL;
    while (p && part--)
        p = p->next;
    return p;
}

static int refuse_stranger(void)
{
    return err_set(-EBADMSG, "an answer that nobody asked for");
}

/* An interval that may have months is text on the way: Arrow has no type for it. */
static bool is_interval(const struct sql_column *want, enum sql_type type)
{
    return want->type == SQL_CALENDAR && type == SQL_TEXT;
}

static int make_intervals(struct sql_global *g, struct part *p)
{
    struct intervals *i = &p->intervals;
    if (i->cells)
        return 0;
    i->packed = arena_zalloc(&g->mem.arena, p->n_columns, sizeof(*i->packed));
    i->cells = i->packed ? arena_zalloc(&g->mem.arena, p->n_columns, sizeof(*i->cells)) : NULL;
    return i->cells ? 0 : global_no_memory();
}

/* The row with its intervals read; *cells is it, where it has any. */
static int read_intervals(struct part *p, const struct sql_value **cells)
{
    struct intervals *i = &p->intervals;
    if (!i->cells)
        return 0;
    memcpy(i->cells, *cells, p->n_columns * sizeof(**cells));
    *cells = i->cells;
    for (uint32_t c = 0; c < p->n_columns; c++) {
        struct sql_value *v = &i->cells[c];
        struct interval read;
        if (!is_interval(&p->columns[c], v->type))
            continue;
        if (sql_parse_interval(v->text.data, v->text.size, &read) < 0)
            return err_set(-EBADMSG, "it sent a text that is no interval in the column %.40s",
                           p->columns[c].name);
        sql_interval_pack(read, i->packed[c]);
        v->type = SQL_CALENDAR;
        v->text.data = i->packed[c];
        v->text.size = INTERVAL_BYTES;
    }
    return 0;
}

int sql_global_columns(struct sql_global *g, uint32_t part, uint32_t member,
                       const struct sql_column *columns, uint32_t n)
{
    struct part *p = part_at(g, part, member);
    struct part_answer *a = p ? &p->answers[member] : NULL;
    if (!a || a->state != ANSWER_AWAITED)
        return refuse_stranger();
    if (n != p->n_columns)
        return err_set(-EBADMSG, "it sent %u columns and was asked for %u", n, p->n_columns);
    a->is_null = arena_zalloc(&g->mem.arena, n ? n : 1, sizeof(bool));
    if (!a->is_null)
        return global_no_memory();
    for (uint32_t c = 0; c < n; c++) {
        const struct sql_column *want = &p->columns[c];
        bool interval = is_interval(want, columns[c].type);
        if (interval && make_intervals(g, p) < 0)
            return -ENOMEM;
        a->is_null[c] = columns[c].type == SQL_NULL;
        if (strcmp(columns[c].name, want->name) != 0)
            return err_set(-EBADMSG, "it sent a column '%.40s' where '%.40s' was asked for",
                           columns[c].name, want->name);
        if (columns[c].type != want->type && !a->is_null[c] && !interval)
            return err_set(-EBADMSG, "it sent the column %.40s as %s, which is %s", want->name,
                           sql_type_name(columns[c].type), sql_type_name(want->type));
    }
    a->state = ANSWER_COMING;
    return 0;
}

static int check_cell(const struct part *p, uint32_t c, const struct sql_value *v, bool is_null)
{
    const struct answer_check *check = p->checks ? &p->checks[c] : NULL;
    if (v->type == SQL_NULL)
        return 0;
    if (is_null || v->type != p->columns[c].type)
        return err_set(-EBADMSG, "it sent %s in the column %.40s", sql_a_type(v->type),
                       p->columns[c].name);
    if (check && check->what == CHECK_COUNT && (v->integer < 0 || v->integer > AGG_ROWS_MAX))
        return err_set(-EBADMSG, "it says to have counted %lld rows", (long long)v->integer);
    if (check && check->what == CHECK_STATE &&
        !sql_agg_is_state(check->op, check->of, v->text.data, v->text.size))
        return err_set(-EBADMSG, "it sent %u bytes in %.40s that are no state of an aggregate",
                       v->text.size, p->columns[c].name);
    return 0;
}

static int too_large(struct sql_global *g)
{
    g->too_large = true;
    return err_set(-EFBIG,
                   "the rows that this needs of all ranks are more than %llu bytes: ask for fewer "
                   "columns, filter by where, aggregate (count, sum, avg, min, max, stddev and the "
                   "like are computed by the ranks), or allow more with --max-bytes",
                   (unsigned long long)g->o.max_bytes);
}

int sql_global_row(struct sql_global *g, uint32_t part, uint32_t member,
                   const struct sql_value *cells)
{
    struct part *p = part_at(g, part, member);
    struct part_answer *a = p ? &p->answers[member] : NULL;
    int rc = a && a->state == ANSWER_COMING ? read_intervals(p, &cells) : refuse_stranger();
    for (uint32_t c = 0; rc == 0 && c < p->n_columns; c++)
        rc = check_cell(p, c, &cells[c], a->is_null[c]);
    if (rc < 0)
        return rc;
    struct buf *rows = &p->held->parts[member].rows;
    size_t before = rows->size;
    rc = held_row(p->held, member, cells);
    a->rows++;
    a->bytes += rows->size - before;
    g->bytes += rows->size - before;
    if (rc == 0 && rows->size == before) /* rows without columns */
        return refuse_stranger();
    return rc == 0 && g->bytes > g->o.max_bytes ? too_large(g) : rc;
}

void sql_global_answered(struct sql_global *g, uint32_t part, uint32_t member, uint64_t elapsed_ns)
{
    struct part *p = part_at(g, part, member);
    struct part_answer *a = p ? &p->answers[member] : NULL;
    if (!a)
        return;
    if (a->state != ANSWER_COMING) {
        sql_global_failed(g, part, member, "it sent no answer");
        return;
    }
    a->state = ANSWER_WHOLE;
    a->elapsed_ns = elapsed_ns;
    p->loose += a->bytes;
    global_merge_some(g, p);
}

void sql_global_failed(struct sql_global *g, uint32_t part, uint32_t member, const char *why)
{
    struct part *p = part_at(g, part, member);
    struct part_answer *a = p ? &p->answers[member] : NULL;
    if (!a || a->state == ANSWER_NOT_ASKED || a->state == ANSWER_FAILED || a->state == ANSWER_WHOLE)
        return;
    g->bytes -= a->bytes;
    held_drop(&p->held->parts[member]);
    a->state = ANSWER_FAILED;
    a->why = arena_text(&g->mem.arena, why, strlen(why));
    a->rows = a->bytes = 0;
    g->members[member].failed = true;
    if (!g->members[member].why)
        g->members[member].why = a->why;
}
