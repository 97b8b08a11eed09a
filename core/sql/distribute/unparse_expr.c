/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/unparse_expr.c - expressions written back as SQL, each operator in
 * parentheses.
 *
 * One thread.  The parser lets two places of a tree share a node (x between a and b), so a text may
 * be longer than the tree: the buffer's maximum ends it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/sql/distribute/unparse.h"

void unparse_name(struct unparser *u, const char *name)
{
    (void)buf_addc(u->out, '"');
    for (; *name; name++) {
        if (*name == '"')
            (void)buf_addc(u->out, '"');
        (void)buf_addc(u->out, *name);
    }
    (void)buf_addc(u->out, '"');
}

static void add_text(struct unparser *u, const char *text, uint32_t size)
{
    (void)buf_addc(u->out, '\'');
    for (uint32_t i = 0; i < size; i++) {
        if (text[i] == '\'')
            (void)buf_addc(u->out, '\'');
        (void)buf_addc(u->out, text[i]);
    }
    (void)buf_addc(u->out, '\'');
}

/* A number with a point stays one, and exact where it was. */
static void add_double(struct unparser *u, const struct node *n)
{
    char digits[48];
    bool negative = n->exact ? n->integer < 0 : signbit(n->number) != 0;
    if (n->exact) {
        uint64_t value = negative ? 0 - (uint64_t)n->integer : (uint64_t)n->integer;
        int size = snprintf(digits, sizeof(digits), "%0*llu", (int)n->decimals + 1,
                            (unsigned long long)value);
        int point = size - (int)n->decimals;
        (void)buf_addf(u->out, negative ? "(-%.*s.%s)" : "%.*s.%s", point, digits, digits + point);
        return;
    }
    (void)snprintf(digits, sizeof(digits), "%.17g", fabs(n->number));
    (void)buf_addf(u->out, negative ? "(-%s%s)" : "%s%s", digits,
                   strpbrk(digits, ".e") ? "" : "e0");
}

static void add_column(struct unparser *u, const struct node *n)
{
    for (int i = 1; i >= 0 && !u->bare; i--) {
        if (!n->parts[i])
            continue;
        unparse_name(u, n->parts[i]);
        (void)buf_addc(u->out, '.');
    }
    if (n->kind == NODE_STAR)
        (void)buf_addc(u->out, '*');
    else if (n->quoted)
        unparse_name(u, n->text);
    else
        (void)buf_adds(u->out, n->text);
}

static void add_list(struct unparser *u, struct node *const *list, uint32_t n)
{
    for (uint32_t i = 0; i < n && !u->out->failed; i++) {
        if (i)
            (void)buf_adds(u->out, ", ");
        unparse_node(u, list[i]);
    }
}

static void add_star(struct unparser *u, const struct node *n)
{
    add_column(u, n);
    for (uint32_t i = 0; i < n->n_exclude; i++) {
        (void)buf_adds(u->out, i ? ", " : " exclude (");
        unparse_name(u, n->exclude[i]->text);
    }
    if (n->n_exclude)
        (void)buf_addc(u->out, ')');
    for (uint32_t i = 0; i < n->n_args; i++) {
        (void)buf_adds(u->out, i ? ", " : " replace (");
        unparse_node(u, n->args[i]);
        (void)buf_adds(u->out, " as ");
        unparse_name(u, n->replaced[i]);
    }
    if (n->n_args)
        (void)buf_addc(u->out, ')');
}

/* ---- calls ---- */

static bool is_infix(const char *name)
{
    static const char *const names[] = {"=",    "<>",    "<",
                                        "<=",   ">",     ">=",
                                        "||",   "~",     "->",
                                        "->>",  "~*",    "!~",
                                        "!~*",  "+",     "-",
                                        "*",    "/",     "%",
                                        "&",    "|",     "#",
                                        "<<",   ">>",    "is distinct from",
                                        "like", "ilike", "is not distinct from"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

void unparse_order(struct unparser *u, const struct order *o, uint32_t n)
{
    for (uint32_t i = 0; i < n && !u->out->failed; i++) {
        (void)buf_adds(u->out, i ? ", " : " order by ");
        unparse_node(u, o[i].node);
        (void)buf_addf(u->out, "%s nulls %s", o[i].descending ? " desc" : "",
                       o[i].nulls_first ? "first" : "last");
    }
}

static void add_edge(struct unparser *u, const struct window_node *w, int i)
{
    static const char *const words[] = {"unbounded preceding", " preceding", "current row",
                                        " following", "unbounded following"};
    if (w->offset[i])
        unparse_node(u, w->offset[i]);
    (void)buf_adds(u->out, words[w->edge[i]]);
}

static void add_frame(struct unparser *u, const struct window_node *w)
{
    static const char *const modes[] = {" range", " rows", " groups"};
    static const char *const excludes[] = {"", " exclude current row", " exclude group",
                                           " exclude ties"};
    (void)buf_addf(u->out, "%s between ", modes[w->mode]);
    add_edge(u, w, 0);
    (void)buf_adds(u->out, " and ");
    add_edge(u, w, 1);
    (void)buf_adds(u->out, excludes[w->exclude]);
}

void unparse_window(struct unparser *u, const struct window_node *w)
{
    (void)buf_addc(u->out, '(');
    if (w->base)
        unparse_name(u, w->base);
    (void)buf_adds(u->out, w->n_partition ? " partition by " : "");
    add_list(u, w->partition, w->n_partition);
    unparse_order(u, w->order, w->n_order);
    if (w->framed)
        add_frame(u, w);
    (void)buf_addc(u->out, ')');
}

static void add_over(struct unparser *u, const struct window_node *w)
{
    bool alone = w->base && !w->n_partition && !w->n_order && !w->framed;
    (void)buf_adds(u->out, " over ");
    if (alone)
        unparse_name(u, w->base);
    else
        unparse_window(u, w);
}

/* cast(x as numeric(10, 2)), as the parser has made a call of it */
static bool add_numeric(struct unparser *u, const struct node *n)
{
    bool forgiving = strcmp(n->text, "to_numeric?") == 0;
    if ((!forgiving && strcmp(n->text, "to_numeric") != 0) || n->n_args != 3 ||
        n->args[0]->kind != NODE_CAST)
        return false;
    (void)buf_adds(u->out, forgiving ? "try_cast(" : "cast(");
    unparse_node(u, n->args[0]->args[0]);
    (void)buf_adds(u->out, " as numeric(");
    add_list(u, n->args + 1, 2);
    (void)buf_adds(u->out, "))");
    return true;
}

/* cast(x as integer), likewise */
static bool add_integer(struct unparser *u, const struct node *n)
{
    bool forgiving = strcmp(n->text, "to int?") == 0;
    if ((!forgiving && strcmp(n->text, "to int") != 0) || n->n_args != 2)
        return false;
    (void)buf_adds(u->out, forgiving ? "try_cast(" : "cast(");
    unparse_node(u, n->args[0]->args[0]);
    (void)buf_addf(u->out, " as int%lld)", (long long)n->args[1]->integer / 8);
    return true;
}

static void add_arguments(struct unparser *u, const struct node *n)
{
    uint32_t n_args = n->n_args - (n->within ? 1 : 0); /* the last is what it is ordered by */
    (void)buf_addf(u->out, "%s(%s", n->text, n->star ? "*" : n->distinct ? "distinct " : "");
    add_list(u, n->args, n_args);
    if (!n->within)
        unparse_order(u, n->order, n->n_order);
    (void)buf_adds(u->out, n->nulls == NULLS_IGNORED     ? " ignore nulls)"
                           : n->nulls == NULLS_RESPECTED ? " respect nulls)"
                                                         : ")");
}

static void add_call(struct unparser *u, const struct node *n)
{
    if (n->n_args == 2 && is_infix(n->text)) {
        (void)buf_addc(u->out, '(');
        unparse_node(u, n->args[0]);
        (void)buf_addf(u->out, " %s ", n->text);
        unparse_node(u, n->args[1]);
        (void)buf_addc(u->out, ')');
        return;
    }
    if (n->n_args == 1 && strcmp(n->text, "neg") == 0) {
        (void)buf_adds(u->out, "(-(");
        unparse_node(u, n->args[0]);
        (void)buf_adds(u->out, "))");
        return;
    }
    if (add_numeric(u, n) || add_integer(u, n))
        return;
    add_arguments(u, n);
    if (n->within) {
        (void)buf_adds(u->out, " within group (");
        unparse_order(u, n->order, n->n_order);
        (void)buf_addc(u->out, ')');
    }
    if (n->filter) {
        (void)buf_adds(u->out, " filter (where ");
        unparse_node(u, n->filter);
        (void)buf_addc(u->out, ')');
    }
    if (n->over)
        add_over(u, n->over);
}

/* ---- the switch ---- */

static void add_case(struct unparser *u, const struct node *n)
{
    (void)buf_adds(u->out, "case");
    for (uint32_t i = 0; i < n->n_args && !u->out->failed; i++) {
        bool otherwise = n->flag && i + 1 == n->n_args;
        (void)buf_adds(u->out, otherwise ? " else " : i % 2 ? " then " : " when ");
        unparse_node(u, n->args[i]);
    }
    (void)buf_adds(u->out, " end");
}

static void add_chain(struct unparser *u, const struct node *n, const char *word)
{
    (void)buf_addc(u->out, '(');
    for (uint32_t i = 0; i < n->n_args && !u->out->failed; i++) {
        if (i)
            (void)buf_addf(u->out, " %s ", word);
        unparse_node(u, n->args[i]);
    }
    (void)buf_addc(u->out, ')');
}

static void add_select(struct unparser *u, const struct select *s)
{
    (void)buf_addc(u->out, '(');
    unparse_select(u, s);
    (void)buf_addc(u->out, ')');
}

static void add_in(struct unparser *u, const struct node *n)
{
    (void)buf_addc(u->out, '(');
    unparse_node(u, n->args[0]);
    (void)buf_adds(u->out, n->negated ? " not in " : " in ");
    if (n->kind == NODE_IN_SELECT) {
        add_select(u, n->select);
    } else {
        (void)buf_addc(u->out, '(');
        add_list(u, n->args + 1, n->n_args - 1);
        (void)buf_addc(u->out, ')');
    }
    (void)buf_addc(u->out, ')');
}

static void add_cast(struct unparser *u, const struct node *n)
{
    static const char *const types[] = {
        [SQL_NULL] = "double",         [SQL_BOOL] = "boolean",      [SQL_INT] = "bigint",
        [SQL_DOUBLE] = "double",       [SQL_TEXT] = "text",         [SQL_BLOB] = "blob",
        [SQL_TIMESTAMP] = "timestamp", [SQL_INTERVAL] = "interval", [SQL_DATE] = "date",
        [SQL_CALENDAR] = "interval"};
    (void)buf_adds(u->out, n->flag ? "try_cast(" : "cast(");
    unparse_node(u, n->args[0]);
    (void)buf_addf(u->out, " as %s)",
                   n->exact                                ? "numeric"
                   : n->cast == SQL_TIMESTAMP && !n->clock ? "timestamptz"
                                                           : types[n->cast]);
}

static void add_row(struct unparser *u, const struct node *n)
{
    (void)buf_adds(u->out, "row(");
    add_list(u, n->args, n->n_args);
    (void)buf_addc(u->out, ')');
}

void unparse_node(struct unparser *u, const struct node *n)
{
    if (u->out->failed)
        return;
    switch (n->kind) {
    case NODE_NULL:
        (void)buf_adds(u->out, "null");
        return;
    case NODE_BOOL:
        (void)buf_adds(u->out, n->flag ? "true" : "false");
        return;
    case NODE_INT:
        (void)buf_addf(u->out, n->integer < 0 ? "(%lld)" : "%lld", (long long)n->integer);
        return;
    case NODE_DOUBLE:
        add_double(u, n);
        return;
    case NODE_TEXT:
        add_text(u, n->text, n->size);
        return;
    case NODE_NAME:
        add_column(u, n);
        return;
    case NODE_STAR:
        add_star(u, n);
        return;
    case NODE_CALL:
        add_call(u, n);
        return;
    case NODE_NOT:
        (void)buf_adds(u->out, "(not ");
        unparse_node(u, n->args[0]);
        (void)buf_addc(u->out, ')');
        return;
    case NODE_AND:
        add_chain(u, n, "and");
        return;
    case NODE_OR:
        add_chain(u, n, "or");
        return;
    case NODE_CASE:
        add_case(u, n);
        return;
    case NODE_IN:
    case NODE_IN_SELECT:
        add_in(u, n);
        return;
    case NODE_EXISTS:
        (void)buf_adds(u->out, "exists ");
        add_select(u, n->select);
        return;
    case NODE_SELECT:
        add_select(u, n->select);
        return;
    case NODE_IS_NULL:
        (void)buf_addc(u->out, '(');
        unparse_node(u, n->args[0]);
        (void)buf_adds(u->out, n->negated ? " is not null)" : " is null)");
        return;
    case NODE_CAST:
        add_cast(u, n);
        return;
    case NODE_ROW:
        add_row(u, n);
        return;
    }
}
