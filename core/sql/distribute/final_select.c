/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/final_select.c - the last statement over what members have sent, and explain.
 *
 * One thread.
 */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/distribute/parts.h"

#define MEMORY_BYTES (UINT64_C(4) << 30) /* of a process of the asker's own */

static struct sql_options options_of(const struct sql_global *g)
{
    return (struct sql_options){.timeout_ns = g->o.timeout_ns,
                                .max_rows = g->o.max_rows,
                                .cancel = g->o.cancel,
                                .memory_bytes = MEMORY_BYTES};
}

/* ---- explain ---- */

struct plan {
    struct sql_global *g;
    struct held_table *lines;
    int rc;
};

static void add_line(struct plan *p, const char *text)
{
    const struct sql_value v = {.type = SQL_TEXT, .text = {text, (uint32_t)strlen(text)}};
    if (p->rc == 0)
        p->rc = held_row(p->lines, 0, &v);
}

#define LINE(plan, ...)                                          \
    do {                                                         \
        const char *line_ = global_text((plan)->g, __VA_ARGS__); \
        if (line_)                                               \
            add_line(plan, line_);                               \
        else                                                     \
            (plan)->rc = global_no_memory();                     \
    } while (0)

static int add_plan_rows(void *arg, const struct sql_rows *rows)
{
    struct plan *p = arg;
    for (uint32_t i = 0; i < sql_rows_count(rows); i++) {
        struct sql_value v;
        sql_rows_value(rows, i, 0, &v);
        LINE(p, "  %.*s", (int)v.text.size, v.text.data);
    }
    return p->rc;
}

/* The members that run one statement. */
static void say_who(struct plan *p, const struct part *part, const char *statement)
{
    struct buf b;
    uint32_t n = 0;
    buf_init(&b, 65536);
    for (uint32_t m = 0; m < p->g->n_members; m++) {
        if (part->answers[m].statement != statement)
            continue;
        if (n++ < NAMED_MAX)
            (void)buf_addf(&b, "%s%s", n > 1 ? ", " : "", p->g->members[m].name);
    }
    if (n > NAMED_MAX)
        (void)buf_addf(&b, " ... (%u)", n);
    if (b.failed)
        p->rc = global_no_memory();
    else
        LINE(p, "  %s: %s", buf_text(&b), statement);
    buf_done(&b);
}

static void say_answer(struct plan *p, const struct part *part, uint32_t m)
{
    const struct part_answer *a = &part->answers[m];
    if (a->state == ANSWER_WHOLE)
        LINE(p, "    %s: %llu rows, %llu bytes, %.3f ms", p->g->members[m].name,
             (unsigned long long)a->rows, (unsigned long long)a->bytes,
             (double)a->elapsed_ns / 1e6);
    else if (a->state != ANSWER_NOT_ASKED)
        LINE(p, "    %s: no answer: %s", p->g->members[m].name, a->why ? a->why : "none came");
}

static void explain_part(struct plan *p, const struct part *part)
{
    const struct sql_global *g = p->g;
    uint32_t pruned = 0, asked = 0;
    for (uint32_t m = 0; m < g->n_members; m++) {
        const struct part_answer *a = &part->answers[m];
        asked += a->statement != NULL;
        pruned += !a->statement && !a->why;
    }
    LINE(p, "%s: of %s, %s; %u of %u are asked%s%s", part->name,
         part->table->title ? part->table->title : part->table->source,
         part->merge ? "aggregated by those who are asked and merged" : "rows as they are", asked,
         g->n_members, pruned ? ", by their tags: " : "", pruned ? part->condition : "");
    for (uint32_t m = 0; m < g->n_members; m++) {
        const char *statement = part->answers[m].statement;
        uint32_t before = 0;
        while (before < m && part->answers[before].statement != statement)
            before++;
        if (statement && before == m)
            say_who(p, part, statement);
        if (!statement && part->answers[m].why)
            LINE(p, "  %s: not asked: %s", g->members[m].name, part->answers[m].why);
    }
    for (uint32_t m = 0; m < g->n_members && g->st.analyze; m++)
        say_answer(p, part, m);
}

static int explain_parts(struct sql_global *g, const struct sql_sink *sink, struct sql_report *ret)
{
    static const struct sql_column column = {.name = "plan", .type = SQL_TEXT, .doc = ""};
    static const char text[] = "select plan from " GLOBAL_SCHEMA ".plan";
    const struct held_table held = {
        .schema = GLOBAL_SCHEMA, .name = "plan", .columns = &column, .n_columns = 1, .n_parts = 1};
    struct plan p = {.g = g};
    const struct sql_sink lines = {.arg = &p, .rows = add_plan_rows};
    const struct sql_options o = options_of(g);
    p.rc = held_add(&g->answers, &g->mem.arena, &held, &p.lines);
    for (const struct part *part = g->parts; part && p.rc == 0; part = part->next)
        explain_part(&p, part);
    if (p.rc == 0)
        LINE(&p, "here: %s", g->last);
    const char *last = global_text(g, "explain %s%s", g->st.analyze ? "analyze " : "", g->last);
    if (p.rc == 0)
        p.rc = last ? sql_run(g->answers.engine, last, strlen(last), &o, &lines, NULL)
                    : global_no_memory();
    return p.rc < 0 ? p.rc : sql_run(g->answers.engine, text, sizeof(text) - 1, NULL, sink, ret);
}

/* ---- the answer ---- */

/* The first reason of a member that is not in the answer. */
static const char *first_reason(const struct sql_global *g, const char **ret_who)
{
    for (const struct part *p = g->parts; p; p = p->next)
        for (uint32_t m = 0; m < g->n_members; m++)
            if (p->answers[m].why) {
                *ret_who = g->members[m].name;
                return p->answers[m].why;
            }
    return NULL;
}

/* Are there answers to make one of? */
static int check_answers(struct sql_global *g)
{
    const char *who = NULL, *why = first_reason(g, &who);
    for (struct part *p = g->parts; p; p = p->next)
        for (uint32_t m = 0; m < g->n_members; m++)
            if (p->answers[m].state == ANSWER_AWAITED || p->answers[m].state == ANSWER_COMING) {
                g->members[m].failed = true;
                held_drop(&p->held->parts[m]);
            }
    uint32_t asked = sql_global_asked(g), whole = sql_global_answers(g);
    if (asked && !whole)
        return err_set(-ENODATA, "none of %u answered; %s: %s", asked, who ? who : "each",
                       why ? why : "no answer came");
    if (g->o.strict && whole < asked)
        return err_set(-ENODATA, "%u of %u answered, and --strict wants all; %s: %s", whole, asked,
                       who ? who : "another", why ? why : "no answer came");
    return 0;
}

int sql_global_run(struct sql_global *g, const struct sql_sink *sink, struct sql_report *ret)
{
    const struct sql_options o = options_of(g);
    if (!g->planned)
        return err_set(-EINVAL, "the statement has not been planned");
    if (g->about == ABOUT_DESCRIBE)
        return check_answers(g) < 0
                   ? -ENODATA
                   : sql_run(g->schemas.engine, g->last, strlen(g->last), &o, sink, ret);
    if (sql_global_only_explains(g))
        return explain_parts(g, sink, ret);
    int rc = check_answers(g);
    if (rc == 0 && g->st.explain)
        return explain_parts(g, sink, ret);
    return rc < 0 ? rc : sql_run(g->answers.engine, g->last, strlen(g->last), &o, sink, ret);
}
