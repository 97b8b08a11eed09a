/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/differences.c - where the members' columns differ: which of them lack one, and which
 * have another type for it.
 *
 * One thread.
 */
#include <stdlib.h>

#include "cli/many/one_table.h"
#include "cli/terminal/terminal.h"
#include "sdk/lib/buf.h"

#define SAY_BYTES ((size_t)64 << 10)

static const char *const type_names[] = {"null", "boolean",   "bigint",   "double", "text",
                                         "blob", "timestamp", "interval", "date",   "interval"};

struct finding {
    const struct members *all;
    const struct joined_columns *columns;
    const struct own_columns *(*of)(const void *arg, uint32_t i);
    const void *arg;
    bool *which;
};

static void add_members(const struct finding *f, uint32_t n, struct buf *text)
{
    (void)buf_addf(text, " in %s%s ", f->all->ranked ? "rank" : "process",
                   n == 1           ? ""
                   : f->all->ranked ? "s"
                                    : "es");
    members_list(f->all, f->which, text);
}

/* Choose the members of which fits() is true of the column.  How many. */
static uint32_t choose(const struct finding *f, uint32_t column,
                       bool (*fits)(const struct own_columns *own, uint32_t at, enum sql_type t),
                       enum sql_type t)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->all->n; i++) {
        const struct own_columns *own = f->of(f->arg, i);
        bool answered = own != NULL && f->all->list[i].result.state == MEMBER_ANSWERED;
        f->which[i] = answered && fits(own, own->from[column], t);
        n += f->which[i];
    }
    return n;
}

static bool is_lacking(const struct own_columns *own, uint32_t at, enum sql_type t)
{
    (void)own;
    (void)t;
    return at == NO_COLUMN;
}

static bool has_type(const struct own_columns *own, uint32_t at, enum sql_type t)
{
    return at != NO_COLUMN && own->list[at].type == t;
}

static void say_lacking(const struct finding *f, uint32_t column, struct buf *text)
{
    uint32_t n = choose(f, column, is_lacking, SQL_NULL);

    if (n == 0)
        return;
    buf_reset(text);
    (void)buf_addf(text, "column %s is not there", f->columns->list[column].name);
    add_members(f, n, text);
    terminal_say("%s: NULL", buf_text(text));
}

static void say_types(const struct finding *f, uint32_t column, struct buf *text)
{
    uint32_t types = f->columns->types[column], n_types = 0;

    buf_reset(text);
    (void)buf_addf(text, "column %s is", f->columns->list[column].name);
    for (enum sql_type t = SQL_BOOL; (types & (types - 1)) != 0 && t <= SQL_CALENDAR; t++) {
        uint32_t n = types >> t & 1 ? choose(f, column, has_type, t) : 0;
        if (n == 0)
            continue;
        (void)buf_addf(text, "%s %s", n_types++ > 0 ? "," : "", type_names[t]);
        add_members(f, n, text);
    }
    if (n_types > 1)
        terminal_say("%s: %s in this table", buf_text(text),
                     type_names[f->columns->list[column].type]);
}

void members_say_differences(const struct members *m, const struct joined_columns *columns,
                             const struct own_columns *(*of)(const void *arg, uint32_t i),
                             const void *arg)
{
    struct finding f = {.all = m, .columns = columns, .of = of, .arg = arg};
    struct buf text;

    f.which = calloc(m->n, sizeof(*f.which));
    buf_init(&text, SAY_BYTES);
    for (uint32_t i = 0; i < columns->n && f.which != NULL; i++) {
        say_lacking(&f, i, &text);
        say_types(&f, i, &text);
    }
    buf_done(&text);
    free(f.which);
}
