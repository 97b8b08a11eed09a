/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer/columns.c - see columns.h.
 *
 * One thread.
 */
#include "cli/answer/columns.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"

static int no_memory(void)
{
    return err_set(-ENOMEM, "no memory for the columns of the answers");
}

int own_columns_keep(struct arena *a, const struct sql_column *columns, uint32_t n,
                     struct own_columns *ret)
{
    ret->list = arena_zalloc(a, (size_t)n + 1, sizeof(*ret->list));
    ret->n = ret->list != NULL ? n : 0;
    for (uint32_t i = 0; i < ret->n; i++) {
        ret->list[i] = columns[i];
        ret->list[i].name = arena_text(a, columns[i].name, strlen(columns[i].name));
        ret->list[i].doc = arena_text(a, columns[i].doc, strlen(columns[i].doc));
        if (ret->list[i].name == NULL || ret->list[i].doc == NULL)
            return no_memory();
    }
    return ret->list != NULL ? 0 : no_memory();
}

/* How many columns before the i-th have its name. */
static uint32_t count_earlier(const struct sql_column *list, uint32_t i)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < i; k++)
        n += strcmp(list[k].name, list[i].name) == 0;
    return n;
}

/* The k-th (from 0) column of that name. */
static uint32_t find_column(const struct sql_column *list, uint32_t n, const char *name, uint32_t k)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0 && k-- == 0)
            return i;
    return NO_COLUMN;
}

static enum sql_type join_types(enum sql_type a, enum sql_type b)
{
    if (a == b || b == SQL_NULL)
        return a;
    if (a == SQL_NULL)
        return b;
    bool numbers = (a == SQL_INT || a == SQL_DOUBLE) && (b == SQL_INT || b == SQL_DOUBLE);
    return numbers ? SQL_DOUBLE : SQL_TEXT;
}

/* Room for `more` columns behind those that are there. */
static int make_room(struct arena *a, struct joined_columns *all, uint32_t more)
{
    struct sql_column *list = arena_zalloc(a, all->n + more + 1, sizeof(*list));
    uint32_t *types = arena_zalloc(a, all->n + more + 1, sizeof(*types));

    if (list == NULL || types == NULL)
        return no_memory();
    if (all->n > 0) {
        memcpy(list, all->list, all->n * sizeof(*list));
        memcpy(types, all->types, all->n * sizeof(*types));
    }
    all->list = list;
    all->types = types;
    return 0;
}

/* Most members have the columns of the first. */
static bool are_same(const struct joined_columns *all, const struct own_columns *own)
{
    bool same = all->n == own->n;

    for (uint32_t i = 0; i < own->n && same; i++)
        same = strcmp(all->list[i].name, own->list[i].name) == 0;
    return same;
}

int joined_columns_add(struct arena *a, struct joined_columns *all, const struct own_columns *own)
{
    bool same = are_same(all, own);
    int rc = same ? 0 : make_room(a, all, own->n);

    for (uint32_t i = 0; i < own->n && rc == 0; i++) {
        const struct sql_column *c = &own->list[i];
        uint32_t at =
            same ? i : find_column(all->list, all->n, c->name, count_earlier(own->list, i));
        if (at == NO_COLUMN) {
            at = all->n++;
            all->list[at] = *c;
        }
        all->list[at].type = join_types(all->list[at].type, c->type);
        if (all->list[at].unit != c->unit)
            all->list[at].unit = PROBING_PLAIN;
        if (c->type != SQL_NULL)
            all->types[at] |= 1u << c->type;
    }
    return rc;
}

int joined_columns_place(struct arena *a, const struct joined_columns *all, struct own_columns *own)
{
    bool same = are_same(all, own);

    own->from = arena_zalloc(a, all->n + 1, sizeof(*own->from));
    if (own->from == NULL)
        return no_memory();
    for (uint32_t i = 0; i < all->n; i++)
        own->from[i] =
            same ? i
                 : find_column(own->list, own->n, all->list[i].name, count_earlier(all->list, i));
    return 0;
}

void joined_value(struct sql_value *v, enum sql_type to, char room[SQL_CELL_BYTES])
{
    if (v->type == SQL_NULL || v->type == to)
        return;
    if (v->type == SQL_INT && to == SQL_DOUBLE) {
        *v = (struct sql_value){.type = SQL_DOUBLE, .number = (double)v->integer};
        return;
    }
    if (to != SQL_TEXT || v->type == SQL_BLOB) {
        *v = (struct sql_value){.type = SQL_NULL};
        return;
    }
    size_t n = sql_cell_text(v, /* exact= */ true, room);
    *v = (struct sql_value){.type = SQL_TEXT};
    v->text.data = room;
    v->text.size = (uint32_t)n;
}
