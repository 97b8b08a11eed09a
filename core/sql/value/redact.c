/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/redact.c - texts as a client may see them who may only read: without secrets.
 *
 * The query's thread only.  Hidden where rows come from, before any expression sees them: no
 * substr(), order by or where tells what was there.
 */
#include "core/sql/value/query.h"

#include <string.h>

#include "core/base/err.h"
#include "core/base/redact.h"

#define SEEN_IDS 4096 /* that a query remembers; a power of two */

struct sql_hidden {
    struct {
        uint64_t id; /* PROBING_NULL_ID: none */
        struct text text;
    } seen[SEEN_IDS];
};

struct text sql_hide_text(struct query *q, struct text t)
{
    struct text none = {"", 0};
    struct buf shown;

    buf_init(&shown, SIZE_MAX / 2);
    int rc = secret_text(t.data, t.size, &shown);
    if (rc > 0)
        t = sql_copy_text(q, (struct text){shown.data, (uint32_t)shown.size});
    buf_done(&shown);
    return rc < 0 || !t.data ? none : t; /* without memory nothing is shown */
}

static struct text hide_id(struct query *q, uint64_t id, struct text t)
{
    if (!q->hidden)
        q->hidden = sql_get(q, 1, sizeof(*q->hidden));
    if (!q->hidden)
        return (struct text){"", 0};
    uint64_t at = id & (SEEN_IDS - 1);
    if (q->hidden->seen[at].id != id) {
        q->hidden->seen[at].text = sql_hide_text(q, t);
        q->hidden->seen[at].id = id;
    }
    return q->hidden->seen[at].text;
}

struct text sql_id_text(struct query *q, uint64_t id)
{
    struct text t = {NULL, 0};

    t.data = intern_text(q->s->interns, id, &t.size);
    return t.data && q->o->hide_secrets ? hide_id(q, id, t) : t;
}

/* ---- names and values in columns of their own ---- */

static bool is_column(const struct table_column *c, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(c->name, *names) == 0)
            return c->type == PROBING_STR || c->type == PROBING_BLOB;
    return false;
}

int sql_hide_names(const struct table *t)
{
    static const char *const names[] = {"name",       "key",     "variable", "attribute",
                                        "expression", "setting", "argument", NULL};
    for (uint32_t c = 0; c < t->n_columns; c++)
        if (is_column(&t->columns[c], names))
            return (int)c;
    return -1;
}

bool sql_hide_values(const struct table *t, uint32_t column)
{
    static const char *const values[] = {"value",  "default", "repr",  "text",
                                         "result", "content", "shown", NULL};
    return is_column(&t->columns[column], values);
}

bool sql_hide_column(const struct table *t, uint32_t column)
{
    const struct table_column *c = &t->columns[column];
    return (c->type == PROBING_STR || c->type == PROBING_BLOB) &&
           secret_name_surely(c->name, strlen(c->name));
}
