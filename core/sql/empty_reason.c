/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/empty_reason.c - why an answer has no rows: what it reads has none, and who fills
 * it says why.
 *
 * The query's thread; the table's owner is asked by the thread that waits for the query.
 * A condition that no row has met is no reason of ours: then nothing is said.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/catalog/catalog.h"
#include "core/store/store.h"

struct errand {
    const struct sql *s;
    const struct table *table;
    const char *plugin, *lacks; /* of a view that lacks a table: who makes that */
    char *text;
    size_t size;
};

static bool is_empty(const struct query *q, const struct table_seen *seen, bool *ret_expired)
{
    struct store_table_stats stats = {0};
    *ret_expired = false;
    if (seen->table->scan)
        return seen->empty;
    if (!q->s->store || store_stats(q->s->store, seen->table, &stats) < 0)
        return false;
    *ret_expired = stats.expired > 0;
    return stats.rows + stats.waiting == 0;
}

static int ask_owner(void *arg)
{
    const struct errand *e = arg;
    return e->s->why(e->s->why_arg, e->table, e->text, e->size);
}

/* true: also why. */
static bool tell_table(struct query *q, const struct table *t, bool expired, char *ret)
{
    char why[SQL_EMPTY_BYTES / 2] = "";
    struct errand e = {.s = q->s, .table = t, .text = why, .size = sizeof(why)};
    if (expired)
        (void)snprintf(why, sizeof(why), "its rows were older than the retention allows");
    else if (!q->s->why || sql_by_caller(q, ask_owner, &e) < 0)
        why[0] = '\0';
    if (why[0] || !t->scan) /* that a computed one has none is its answer */
        (void)snprintf(ret, SQL_EMPTY_BYTES, "%s.%s has no rows%s%s", t->schema, t->name,
                       why[0] ? ": " : "", why);
    err_clear();
    return why[0] != '\0';
}

/* ---- views ---- */

static int take_text(void *arg, const struct sql_rows *rows)
{
    struct sql_value v;
    char *text = arg;
    sql_rows_value(rows, 0, 0, &v);
    if (v.type == SQL_TEXT)
        (void)snprintf(text, SQL_EMPTY_BYTES / 2, "%.*s", (int)v.text.size, v.text.data);
    return 0;
}

static void tell_view(struct query *q, const struct view *v, char *ret)
{
    char why[SQL_EMPTY_BYTES / 2] = "";
    const struct sql_sink sink = {.arg = why, .rows = take_text};
    const struct sql_options o = {
        .timeout_ns = q->o->timeout_ns, .cancel = q->o->cancel, .hide_secrets = q->o->hide_secrets};
    const struct query_thread_query query = {
        .s = q->s, .text = v->why, .size = strlen(v->why), .o = &o, .sink = &sink};
    if (sql_run_here(&query, q->aside) == 0 && why[0])
        (void)snprintf(ret, SQL_EMPTY_BYTES, "%s has no rows: %s", v->name, why);
    err_clear();
}

static int ask_plugin(void *arg)
{
    const struct errand *e = arg;
    const struct sql_unknown *u = &e->s->unknown;
    return u->why(u->arg, e->plugin, e->lacks, e->text, e->size);
}

/* Name the plugin that makes what a view reads and is not there: the view's own, or another one. */
static const char *maker_of(struct query *q)
{
    char schema[256];
    const char *dot = strchr(q->notes.lacks, '.');
    if (!dot)
        return q->notes.view->plugin;
    (void)snprintf(schema, sizeof(schema), "%.*s", (int)(dot - q->notes.lacks), q->notes.lacks);
    const struct view *made = sql_declared_table(q->s, schema, dot + 1);
    if (!made && q->s->unknown.find) { /* of plugins that nobody has asked for yet */
        q->s->unknown.find(q->s->unknown.arg);
        made = sql_declared_table(q->s, schema, dot + 1);
    }
    return made ? made->plugin : q->notes.view->plugin;
}

/* Its plugin has not made what it reads. */
static void tell_lack(struct query *q, char *ret)
{
    char why[SQL_EMPTY_BYTES / 2] = "";
    const struct view *v = q->notes.view;
    struct errand e = {.s = q->s,
                       .plugin = maker_of(q),
                       .lacks = q->notes.lacks,
                       .text = why,
                       .size = sizeof(why)};
    if (!q->s->unknown.why || sql_by_caller(q, ask_plugin, &e) < 0)
        (void)snprintf(why, sizeof(why), "there is no table '%.120s', which plugin %s makes",
                       q->notes.lacks, e.plugin);
    (void)snprintf(ret, SQL_EMPTY_BYTES, "%s%s%s has no rows: %s", v->schema,
                   v->schema[0] ? "." : "", v->name, why);
    err_clear();
}

void sql_tell_empty(struct query *q, struct sql_report *report)
{
    const struct table *first = NULL;
    uint32_t n = 0, n_empty = 0;
    bool expired, first_expired = false;
    for (const struct table_seen *s = q->notes.seen; s && !report->cut; s = s->next, n++) {
        if (!is_empty(q, s, &expired))
            continue;
        n_empty++;
        first = s->table; /* the list begins with the last */
        first_expired = expired;
    }
    bool told = first && (report->rows == 0 || n_empty == n) &&
                tell_table(q, first, first_expired, report->empty);
    bool empty = q->notes.view_op && q->notes.view_op->rows == 0;
    bool none = q->notes.view && (empty || (!first && report->rows == 0));
    bool all = first && n_empty == n; /* then there is nothing for a view's own reason to judge */
    if (none && !told && !all && !report->cut)
        (q->notes.lacks ? tell_lack(q, report->empty) : tell_view(q, q->notes.view, report->empty));
}
