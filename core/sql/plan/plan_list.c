/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/plan_list.c - the select list: stars, names of columns, expressions bound.
 *
 * The query's thread only.
 */
#include "core/sql/plan/plan_list.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"

#define ITEMS_MAX 1000 /* columns of a select list */

int sql_list_add(struct query *q, struct list *l, struct expr *e, const char *name, bool aliased)
{
    if (l->n == ITEMS_MAX)
        return err_set(-E2BIG, "more than %d columns in a select list", ITEMS_MAX);
    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 16;
        struct out_item *more = sql_get(q, room, sizeof(*more));
        if (!more)
            return -ENOMEM;
        if (l->n)
            memcpy(more, l->items, l->n * sizeof(*more));
        l->items = more;
        l->room = room;
    }
    l->items[l->n++] = (struct out_item){e, name, aliased};
    return 0;
}

static bool is_excluded(const struct node *star, const char *name)
{
    for (uint32_t i = 0; i < star->n_exclude; i++)
        if (strcasecmp(star->exclude[i]->text, name) == 0)
            return true;
    return false;
}

/* Find what stands for the column by `* replace (x as a)`; NULL: nothing. */
static const struct node *find_replacement(const struct node *star, const char *name)
{
    for (uint32_t i = 0; i < star->n_args; i++)
        if (strcasecmp(star->replaced[i], name) == 0)
            return star->args[i];
    return NULL;
}

static int add_column(struct query *q, struct scope *scope, const struct node *star, uint32_t c,
                      struct list *l)
{
    const struct col *col = &scope->op->cols[c];
    const struct node *other = find_replacement(star, col->name);
    struct expr *e;
    int rc = other ? sql_bind(q, scope, other, &e) : 0;
    if (!other) {
        sql_want(scope->op, c);
        e = sql_column_expr(q, scope->op, c, star->pos);
        rc = e ? 0 : -ENOMEM;
    }
    return rc < 0 ? rc : sql_list_add(q, l, e, col->name, false);
}

/* Each name that * replaces or leaves out must be one of its columns. */
static int check_star(struct query *q, const struct op *op, const struct node *star)
{
    for (uint32_t i = 0; i < star->n_exclude + star->n_args; i++) {
        const char *name =
            i < star->n_exclude ? star->exclude[i]->text : star->replaced[i - star->n_exclude];
        bool found = false;
        for (uint32_t c = 0; c < op->n_cols; c++)
            found = found || strcasecmp(op->cols[c].name, name) == 0;
        struct node n = {.kind = NODE_NAME, .pos = star->pos, .text = name};
        if (!found)
            return sql_no_column(q, op, &n);
    }
    return 0;
}

int sql_list_star(struct query *q, struct scope *scope, const struct node *star, struct list *l)
{
    const struct op *op = scope->op;
    int bad = check_star(q, op, star);
    if (bad < 0)
        return bad;
    uint32_t before = l->n;
    const uint32_t *order = star->parts[0] ? NULL : sql_columns_in_order(q, op);
    if (!order && !star->parts[0])
        return -ENOMEM;
    for (uint32_t i = 0; i < op->n_cols; i++) {
        uint32_t c = order ? order[i] : i;
        const struct col *col = &op->cols[c];
        if ((star->parts[0] && (!col->table || strcasecmp(col->table, star->parts[0]) != 0)) ||
            (star->parts[1] && (!col->schema || strcasecmp(col->schema, star->parts[1]) != 0)) ||
            (!star->parts[0] && col->hidden) || col->aside || is_excluded(star, col->name))
            continue;
        int rc = add_column(q, scope, star, c, l);
        if (rc < 0)
            return rc;
    }
    if (l->n > before)
        return 0;
    if (star->parts[0])
        return sql_error(q->text, q->size, star->pos, -EINVAL, "unknown table '%s' in from",
                         star->parts[0]);
    return sql_refuse(q, star->pos, "* needs a from that has columns");
}

/* The name of a column without an alias: as it is written, blanks made one. */
static const char *written_name(struct query *q, const struct node *n)
{
    if (n->kind == NODE_NAME)
        return n->text;
    char text[128];
    size_t at = 0;
    for (uint32_t i = n->start; i < n->end && i < q->size && at + 1 < sizeof(text); i++) {
        char c = q->text[i];
        bool blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
        if (blank && at && text[at - 1] == ' ')
            continue;
        text[at++] = blank ? ' ' : c;
    }
    while (at && ((unsigned char)text[at - 1] & 0xc0) == 0x80 && at + 1 == sizeof(text))
        at--; /* cut inside a character */
    char *copy = arena_text(&q->mem, text, at);
    return copy;
}

int sql_list_bind(struct query *q, const struct select *s, struct scope *scope, struct list *l)
{
    for (uint32_t i = 0; i < s->n_items; i++) {
        const struct item *item = &s->items[i];
        if (item->node->kind == NODE_STAR) {
            int rc = sql_list_star(q, scope, item->node, l);
            if (rc < 0)
                return rc;
            continue;
        }
        struct expr *e;
        const char *name = item->alias ? item->alias : written_name(q, item->node);
        scope->items = l->items; /* select a + 1 as b, b * 2: as in DuckDB */
        scope->n_items = l->n;
        int rc = sql_bind(q, scope, item->node, &e);
        scope->items = NULL;
        scope->n_items = 0;
        if (rc == 0)
            rc = name ? sql_list_add(q, l, e, name, item->alias != NULL) : -ENOMEM;
        if (rc < 0)
            return rc;
    }
    return 0;
}

int sql_list_project(struct query *q, struct op *op, const struct list *l, struct op **ret)
{
    struct expr **exprs = sql_get(q, l->n, sizeof(struct expr *));
    struct col *cols = sql_get(q, l->n, sizeof(*cols));
    if (!exprs || !cols)
        return -ENOMEM;
    for (uint32_t i = 0; i < l->n; i++) {
        struct expr *e = exprs[i] = l->items[i].expr;
        const char *doc = e->kind == EXPR_COLUMN ? op->cols[e->column].doc : "";
        cols[i] = (struct col){.name = l->items[i].name,
                               .unit = e->unit,
                               .mark = e->mark,
                               .literal = e->literal,
                               .doc = doc ? doc : ""};
    }
    return sql_project(op, exprs, cols, l->n, ret);
}
