/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_find.c - functions by name and the types of their arguments.
 *
 * Any thread.
 */
#include "core/sql/expr/kernel.h"

#include <string.h>

static const struct func *const tables[] = {
    sql_operator_funcs,   sql_text_funcs,   sql_time_funcs, sql_json_funcs,
    sql_json_build_funcs, sql_regexp_funcs, sql_make_funcs, sql_char_funcs,
    sql_interval_funcs,   sql_number_funcs, sql_zone_funcs, sql_collect_funcs};
#define N_TABLES (sizeof(tables) / sizeof(*tables))

enum sql_type sql_letter_type(char letter, enum sql_type any)
{
    switch (letter) {
    case 'i':
        return SQL_INT;
    case 'd':
        return SQL_DOUBLE;
    case 't':
        return SQL_TEXT;
    case 'o':
        return SQL_BLOB;
    case 'b':
        return SQL_BOOL;
    case 's':
        return SQL_TIMESTAMP;
    case 'v':
        return SQL_INTERVAL;
    case 'D':
        return SQL_DATE;
    case 'm':
        return SQL_CALENDAR;
    default:
        return any;
    }
}

bool sql_widens(enum sql_type from, enum sql_type to)
{
    return (from == SQL_INT && to == SQL_DOUBLE) || (from == SQL_DATE && to == SQL_TIMESTAMP) ||
           (from == SQL_INTERVAL && to == SQL_CALENDAR);
}

/* Give the cost of `type` where `letter` is wanted; -1: it cannot be given. */
static int cost_of(char letter, enum sql_type type, bool literal)
{
    enum sql_type want = sql_letter_type(letter, type);
    if (letter == 'x')
        return 3;
    if (want == type)
        return 0;
    if (sql_widens(type, want))
        return 1;
    if (type == SQL_NULL || literal)
        return 2;
    return -1;
}

static int cost_all(const struct func *f, const enum sql_type *types, const bool *literals,
                    uint32_t n)
{
    const char *a = f->args;
    int cost = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (*a == '\0')
            return -1;
        int one = cost_of(*a, types[i], literals[i]);
        if (one < 0)
            return -1;
        cost += one;
        if (a[1] != '*')
            a++;
    }
    if (*a != '\0' && (a[1] != '*' || n == 0))
        return -1;
    return cost;
}

const struct func *sql_func_find(const char *name, const enum sql_type *types, const bool *literals,
                                 uint32_t n, bool *ret_known)
{
    const struct func *best = NULL;
    int best_cost = 0;
    *ret_known = false;
    for (size_t t = 0; t < N_TABLES; t++) {
        for (const struct func *f = tables[t]; f->name; f++) {
            if (strcmp(f->name, name) != 0)
                continue;
            *ret_known = true;
            int cost = cost_all(f, types, literals, n);
            if (cost >= 0 && (!best || cost < best_cost)) {
                best = f;
                best_cost = cost;
            }
        }
    }
    return best;
}

const struct func *sql_func_at(uint32_t number)
{
    for (size_t t = 0; t < N_TABLES; t++)
        for (const struct func *f = tables[t]; f->name; f++)
            if (number-- == 0)
                return f;
    return NULL;
}

bool sql_func_is_called(const struct func *f)
{
    return f->name[0] >= 'a' && f->name[0] <= 'z' && !strchr(f->name, ' ');
}

uint32_t sql_func_names(const char **ret, uint32_t max)
{
    uint32_t n = 0;
    for (size_t t = 0; t < N_TABLES; t++)
        for (const struct func *f = tables[t]; f->name && n < max; f++)
            if (sql_func_is_called(f))
                ret[n++] = f->name;
    return n;
}
