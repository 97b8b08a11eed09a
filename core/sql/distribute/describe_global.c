/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/describe_global.c - statements about tables of all: describe, summarize, show
 * columns, show tables.
 *
 *     describe global.s.t       what the table of all has, of what members say of theirs
 *     describe select ...       the same, of its columns
 *     summarize global.s.t      a select for each column, without the tags
 *     show tables from global   which tables members have, and how many of them
 *
 * One thread.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/sql/catalog/catalog.h"
#include "core/sql/distribute/parts.h"

static bool is_list(const struct statement *st)
{
    return st->kind == STATEMENT_SHOW_LIST && strcmp(st->name, "tables") == 0 && st->names[0] &&
           strcmp(st->names[0], GLOBAL_SCHEMA) == 0;
}

bool global_is_about(const struct statement *st)
{
    const char *last = st->names[2] ? st->names[2] : st->names[1];
    bool named = (st->kind == STATEMENT_DESCRIBE || st->kind == STATEMENT_SUMMARIZE) && last &&
                 strcmp(last, GLOBAL_SCHEMA) == 0;
    return named || is_list(st);
}

/* Another statement in its place. */
static int replace_by(struct sql_global *g, struct buf *b)
{
    g->text = b->failed ? NULL : arena_text(&g->mem.arena, buf_text(b), b->size);
    g->size = b->size;
    buf_done(b);
    return g->text ? sql_parse(&g->mem.arena, g->text, g->size, &g->st) : global_no_memory();
}

static void add_pattern(struct buf *b, const char *before, const char *like)
{
    (void)buf_addf(b, "%s '", before);
    for (; *like; like++) {
        (void)buf_addc(b, *like);
        if (*like == '\'')
            (void)buf_addc(b, '\'');
    }
    (void)buf_addc(b, '\'');
}

static int list_tables(struct sql_global *g)
{
    struct buf b;
    buf_init(&b, SQL_TEXT_BYTES);
    (void)buf_adds(&b, "select table_schema, table_name, table_type, count(*) as ranks, max(doc) "
                       "as doc from global.information_schema.tables");
    if (g->st.like)
        add_pattern(&b, " where table_name ilike", g->st.like);
    (void)buf_adds(&b, " group by 1, 2, 3 order by 1, 2, 3");
    return replace_by(g, &b);
}

static void add_table(struct buf *b, const struct statement *st)
{
    struct unparser u = {.out = b};
    (void)buf_adds(b, GLOBAL_SCHEMA ".");
    if (st->names[2])
        unparse_name(&u, st->names[1]);
    (void)buf_adds(b, st->names[2] ? "." : "");
    unparse_name(&u, st->names[0]);
}

int global_about(struct sql_global *g)
{
    struct buf b;
    if (g->st.kind == STATEMENT_SELECT)
        return 0;
    if (is_list(&g->st))
        return list_tables(g);
    if (g->st.kind != STATEMENT_DESCRIBE && g->st.kind != STATEMENT_SUMMARIZE)
        return err_set(-EINVAL, "only select, describe, summarize and show tables can be asked of "
                                "all ranks as one");
    g->about = g->st.kind == STATEMENT_DESCRIBE ? ABOUT_DESCRIBE : ABOUT_SUMMARIZE;
    g->like = g->st.like;
    buf_init(&b, SQL_TEXT_BYTES);
    if (g->st.select) {
        struct unparser u = {.out = &b, .text = g->text, .size = g->size};
        unparse_select(&u, g->st.select);
    } else {
        (void)buf_adds(&b, "select *");
        for (int t = SQL_TAGS_SHOWN; t < SQL_TAGS && g->about == ABOUT_DESCRIBE; t++)
            (void)buf_addf(&b, ", %s", sql_tag_names[t]);
        (void)buf_adds(&b, " from ");
        add_table(&b, &g->st);
    }
    return replace_by(g, &b);
}

/* A member that has not said what it has is missing. */
static void count_members(struct sql_global *g)
{
    for (const struct global_table *t = g->tables; t; t = t->next)
        for (uint32_t m = 0; m < g->n_members; m++) {
            struct global_member *member = &g->members[m];
            member->asked = true;
            if (t->members[m].state == SCHEMA_HERE || member->failed)
                continue;
            member->failed = true;
            member->why = t->members[m].why ? t->members[m].why : "it did not answer";
        }
}

static int describe_columns(struct sql_global *g)
{
    struct buf b;
    count_members(g);
    buf_init(&b, (size_t)2 * SQL_TEXT_BYTES);
    if (g->like) {
        (void)buf_addf(&b, "show columns from (%s)", g->checked);
        add_pattern(&b, " like", g->like);
    } else {
        (void)buf_addf(&b, "describe %s", g->checked);
    }
    g->last = b.failed ? NULL : arena_text(&g->mem.arena, buf_text(&b), b.size);
    buf_done(&b);
    return g->last ? 1 : global_no_memory();
}

/* Over one table of all: each column is pulled or aggregated by itself. */
static int summarize_table(struct sql_global *g)
{
    const struct global_table *t = g->tables;
    struct buf b;
    buf_init(&b, SQL_TEXT_BYTES);
    for (uint32_t c = SQL_TAGS; c < t->n; c++) {
        struct buf name;
        struct unparser u = {.out = &name};
        buf_init(&name, 4096);
        unparse_name(&u, t->columns[c].name);
        (void)buf_adds(&b, c > SQL_TAGS ? " union all " : "");
        sql_add_summary(&b, t->columns[c].name, t->columns[c].type, buf_text(&name));
        (void)buf_addf(&b, GLOBAL_SCHEMA ".%s", t->source);
        buf_done(&name);
    }
    return replace_by(g, &b);
}

int global_about_columns(struct sql_global *g)
{
    return g->about == ABOUT_DESCRIBE    ? describe_columns(g)
           : g->about == ABOUT_SUMMARIZE ? summarize_table(g)
                                         : 0;
}
