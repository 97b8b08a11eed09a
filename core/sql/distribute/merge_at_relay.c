/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/merge_at_relay.c - a part as a question: somebody between who asks and the
 * members makes one answer of theirs, each row of which says whose it is.
 *
 * The question says what an answer's columns must be, and the statement that makes one of many: the
 * same checks are made on the way as by who asks.  A row of several (a group) is the first one's
 * who has it.  Where the statement needs tags the question has those of each member, as who asks
 * knows them: nobody is asked for tags, so nobody can give wrong ones.  One thread.
 */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/distribute/parts.h"

#define COLUMNS_MAX 512
#define COLUMN_BYTES 4 /* type, check, its aggregate, the type of that; then the name */

_Static_assert(SQL_TAGS <= 8, "the tags that a part needs are bits of a byte");

static struct part *way_part(const struct sql_global *g, uint32_t part)
{
    struct part *p = g->parts;
    while (p && part--)
        p = p->next;
    return p;
}

/* ---- the question ---- */

/* Add the statement that passes answers on as they are. */
static void add_plain(const struct part *p, struct buf *ret)
{
    struct unparser u = {.out = ret};
    (void)buf_adds(ret, "select " WAY_MEMBER);
    for (uint32_t c = 0; c < p->n_columns; c++) {
        (void)buf_adds(ret, ", ");
        unparse_name(&u, p->columns[c].name);
    }
    (void)buf_adds(ret, " from answers");
}

int sql_global_question(const struct sql_global *g, uint32_t part, struct buf *ret)
{
    const struct part *p = way_part(g, part);
    if (!p || !p->on_the_way || p->n_columns > COLUMNS_MAX || p->n_columns == 0)
        return 0;
    if (p->way)
        (void)buf_adds(ret, p->way);
    else
        add_plain(p, ret);
    const char tags[2] = {0, (char)(unsigned char)p->way_tags};
    (void)buf_add(ret, tags, sizeof(tags));
    for (uint32_t c = 0; c < p->n_columns; c++) {
        const struct answer_check check = p->checks ? p->checks[c] : (struct answer_check){0};
        const char head[COLUMN_BYTES] = {(char)p->columns[c].type, (char)check.what, (char)check.op,
                                         (char)check.of};
        (void)buf_add(ret, head, sizeof(head));
        (void)buf_add(ret, p->columns[c].name, strlen(p->columns[c].name) + 1);
    }
    return ret->failed ? global_no_memory() : 1;
}

int sql_global_question_member(const struct sql_global *g, uint32_t part, uint32_t member,
                               struct buf *ret)
{
    const struct part *p = way_part(g, part);
    for (uint32_t t = 0; p && member < g->n_members && t < SQL_TAGS; t++) {
        const struct sql_value *v = &g->members[member].tags[t];
        if (!(p->way_tags & (1u << t)))
            continue;
        (void)buf_addc(ret, v->type != SQL_NULL);
        if (v->type == SQL_TEXT) {
            (void)buf_add(ret, &v->text.size, sizeof(v->text.size));
            (void)buf_add(ret, v->text.data, v->text.size);
        } else if (v->type != SQL_NULL) {
            (void)buf_add(ret, &v->integer, sizeof(v->integer));
        }
    }
    return ret->failed ? global_no_memory() : 0;
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
    if (!end || (size_t)(end - data) + 2 > size)
        return no_question();
    p->way_tags = (unsigned char)end[1];
    p->way = arena_text(&g->mem.arena, data, (size_t)(end - data));
    p->columns = arena_zalloc(&g->mem.arena, COLUMNS_MAX, sizeof(*p->columns));
    p->checks = arena_zalloc(&g->mem.arena, COLUMNS_MAX, sizeof(*p->checks));
    if (!p->way || !p->columns || !p->checks)
        return global_no_memory();
    for (size_t at = (size_t)(end - data) + 2; at < size;) {
        int n = read_column(g, data + at, size - at, p);
        if (n < 0)
            return n;
        at += (size_t)n;
    }
    return p->n_columns ? 0 : no_question();
}

/* In front of each row: whose it is, and that one's tags. */
static int hold_rows(struct sql_global *g, struct part *p, uint32_t n_members)
{
    struct sql_column *all = arena_zalloc(&g->mem.arena, 1 + SQL_TAGS + p->n_columns, sizeof(*all));
    uint32_t n = 1;
    p->answers = arena_zalloc(&g->mem.arena, n_members, sizeof(*p->answers));
    g->members = arena_zalloc(&g->mem.arena, n_members, sizeof(*g->members));
    if (!all || !p->answers || !g->members)
        return global_no_memory();
    all[0] = (struct sql_column){.name = WAY_MEMBER, .type = SQL_INT, .doc = ""};
    for (uint32_t t = 0; t < SQL_TAGS; t++)
        if (p->way_tags & (1u << t))
            all[n++] =
                (struct sql_column){.name = sql_tag_names[t], .type = sql_tag_types[t], .doc = ""};
    memcpy(all + n, p->columns, p->n_columns * sizeof(*all));
    const struct held_table like = {.schema = GLOBAL_SCHEMA,
                                    .name = "answers_1",
                                    .columns = all,
                                    .n_columns = n + p->n_columns,
                                    .n_front = n,
                                    .n_parts = n_members};
    g->n_members = n_members;
    return held_add(&g->answers, &g->mem.arena, &like, &p->held);
}

static int read_tag(struct sql_global *g, const char **data, size_t *size, enum sql_type type,
                    struct sql_value *ret)
{
    const char *at = *data;
    uint32_t n = 0;
    *ret = (struct sql_value){.type = *size && at[0] ? type : SQL_NULL};
    size_t head = ret->type == SQL_NULL ? 1 : type == SQL_TEXT ? 1 + sizeof(n) : 9;
    if (*size < head)
        return no_question();
    if (ret->type == SQL_TEXT) {
        memcpy(&n, at + 1, sizeof(n));
        ret->text.data = n <= *size - head ? arena_text(&g->mem.arena, at + head, n) : NULL;
        ret->text.size = n;
        if (!ret->text.data)
            return no_question();
    } else if (ret->type != SQL_NULL) {
        memcpy(&ret->integer, at + 1, sizeof(ret->integer));
    }
    *data += head + n;
    *size -= head + n;
    return 0;
}

int sql_global_take_member(struct sql_global *g, uint32_t member, const char *data, size_t size)
{
    struct part *p = g->parts;
    struct sql_value *front = member < g->n_members
                                  ? arena_zalloc(&g->mem.arena, p->held->n_front, sizeof(*front))
                                  : NULL;
    uint32_t n = 1;
    int rc = front ? 0 : no_question();
    for (uint32_t t = 0; t < SQL_TAGS && rc == 0; t++)
        if (p->way_tags & (1u << t))
            rc = read_tag(g, &data, &size, sql_tag_types[t], &front[n++]);
    if (rc < 0 || size)
        return no_question();
    front[0] = (struct sql_value){.type = SQL_INT, .integer = member};
    p->held->parts[member].front = front;
    p->answers[member].state = ANSWER_AWAITED;
    return 0;
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
        rc = hold_rows(g, p, n_members);
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

/* ---- one answer of all ---- */

/* Answers pass with the part's column names, whatever the statement calls the columns. */
struct passing {
    const struct part *part;
    const struct sql_sink *to;
    struct sql_column *columns; /* [1 + part->n_columns] */
};

static int pass_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    const struct passing *p = arg;
    bool same = n == 1 + p->part->n_columns;
    for (uint32_t c = 0; same && c < n; c++)
        same = columns[c].type == p->columns[c].type;
    return same ? p->to->columns(p->to->arg, p->columns, n)
                : err_set(-EBADMSG,
                          "the merging statement gives other columns than the answers have");
}

static int pass_rows(void *arg, const struct sql_rows *rows)
{
    const struct passing *p = arg;
    return p->to->rows(p->to->arg, rows);
}

int sql_global_run_merge(struct sql_global *g, const struct sql_sink *sink, struct sql_report *ret)
{
    const struct part *part = g->parts;
    struct passing p = {part, sink, NULL};
    const struct sql_sink to = {.arg = &p, .columns = pass_columns, .rows = pass_rows};
    const struct sql_options o = {.cancel = g->o.cancel};
    struct held h = {.tables = NULL};
    struct held_table *from;
    struct arena mem;
    struct held_table like = *part->held;
    arena_init(&mem, 0);
    p.columns = arena_zalloc(&mem, 1 + part->n_columns, sizeof(*p.columns));
    like.schema = NULL;
    like.name = "answers";
    int rc = p.columns ? held_init(&h) : global_no_memory();
    if (rc == 0)
        rc = held_add(&h, &mem, &like, &from);
    if (rc == 0) {
        p.columns[0] = like.columns[0];
        memcpy(p.columns + 1, part->columns, part->n_columns * sizeof(*p.columns));
        for (uint32_t m = 0; m < g->n_members; m++)
            if (part->answers[m].state == ANSWER_WHOLE)
                from->parts[m] = part->held->parts[m];
        rc = sql_run(h.engine, part->way, strlen(part->way), &o, &to, ret);
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
    struct part *p = way_part(g, part);
    struct part_answer *a = p && member < g->n_members ? &p->answers[member] : NULL;
    if (!a || a->state != ANSWER_WHOLE)
        return;
    a->elapsed_ns = said->elapsed_ns;
    a->rows = said->rows;
    a->bytes = said->bytes;
}
