/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func.c - operators: comparison of every type, arithmetic, and the extremes.
 *
 * The query's thread only.  Functions of numbers, texts and times, and casts are in func_math.c,
 * func_text.c, func_time.c and cast.c.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/text.h"

int sql_compare_text(struct text a, struct text b)
{
    int c = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return c ? c : (a.size > b.size) - (a.size < b.size);
}

/* ---- comparison: PostgreSQL's order, in which NaN equals itself and is the largest ---- */

/* Compare intervals that have months. */
static int compare_calendar(struct text a, struct text b)
{
    return memcmp(a.data, b.data, INTERVAL_KEY_BYTES);
}

#define COMPARE_INT(name, sign)                           \
    KERNEL(name)                                          \
    {                                                     \
        const int64_t *a = st->a[0]->i, *b = st->a[1]->i; \
        int64_t *out = st->dst->i;                        \
        ROWS(out[i] = a[i] sign b[i];);                   \
        return 0;                                         \
    }
#define COMPARE_DOUBLE(name, sign)                                                        \
    KERNEL(name)                                                                          \
    {                                                                                     \
        const double *a = st->a[0]->d, *b = st->a[1]->d;                                  \
        int64_t *out = st->dst->i;                                                        \
        ROWS(out[i] = a[i] == a[i] && b[i] == b[i] ? a[i] sign b[i]                       \
                                                   : (a[i] != a[i]) sign(b[i] != b[i]);); \
        return 0;                                                                         \
    }
#define COMPARE_TEXT(name, sign)                                                        \
    KERNEL(name)                                                                        \
    {                                                                                   \
        ROWS(st->dst->i[i] = sql_compare_text(st->a[0]->t[i], st->a[1]->t[i]) sign 0;); \
        return 0;                                                                       \
    }
#define COMPARE_CALENDAR(name, sign)                                                    \
    KERNEL(name)                                                                        \
    {                                                                                   \
        ROWS(st->dst->i[i] = compare_calendar(st->a[0]->t[i], st->a[1]->t[i]) sign 0;); \
        return 0;                                                                       \
    }
#define COMPARE(name, sign)             \
    COMPARE_INT(name##_int, sign)       \
    COMPARE_DOUBLE(name##_double, sign) \
    COMPARE_TEXT(name##_text, sign)     \
    COMPARE_CALENDAR(name##_calendar, sign)

COMPARE(eq, ==)
COMPARE(ne, !=)
COMPARE(lt, <)
COMPARE(le, <=)
COMPARE(gt, >)
COMPARE(ge, >=)

static bool same_value(const struct vec *a, const struct vec *b, uint32_t i)
{
    if (a->type == SQL_CALENDAR)
        return compare_calendar(a->t[i], b->t[i]) == 0;
    if (sql_is_textual(a->type))
        return sql_compare_text(a->t[i], b->t[i]) == 0;
    if (a->type == SQL_DOUBLE)
        return a->d[i] == b->d[i] || (a->d[i] != a->d[i] && b->d[i] != b->d[i]);
    return a->i[i] == b->i[i];
}

KERNEL(distinct_from)
{
    const struct vec *a = st->a[0], *b = st->a[1];
    bool negated = st->expr->func->name[3] == 'n'; /* "is not distinct from" */
    ROWS(bool x = sql_is_null(a, i); bool y = sql_is_null(b, i);
         bool same = x || y ? x == y : same_value(a, b, i); st->dst->i[i] = same == negated;);
    return 0;
}

KERNEL(is_null)
{
    const struct vec *a = st->a[0];
    if (!a->has_null && a->type != SQL_NULL) {
        ROWS(st->dst->i[i] = 0;);
        return 0;
    }
    ROWS(st->dst->i[i] = sql_is_null(a, i););
    return 0;
}

KERNEL(not_bool)
{
    ROWS(st->dst->i[i] = !st->a[0]->i[i];);
    return 0;
}

/* ---- arithmetic ---- */

#define CHECKED(name, builtin)                                                   \
    KERNEL(name)                                                                 \
    {                                                                            \
        const int64_t *a = st->a[0]->i, *b = st->a[1]->i;                        \
        int64_t *out = st->dst->i;                                               \
        bool over = false;                                                       \
        ROWS(over |= builtin(a[i], b[i], &out[i]););                             \
        return over ? sql_run_error(r, st, -ERANGE, "integer out of range") : 0; \
    }
CHECKED(add_int, __builtin_add_overflow)
CHECKED(sub_int, __builtin_sub_overflow)
CHECKED(mul_int, __builtin_mul_overflow)
/* An infinity that none of the two numbers was: asked only where there is an infinity at all. */
static int check_double(struct run *r, struct step *st, const uint16_t *sel, uint32_t n)
{
    const double *a = st->a[0]->d, *b = st->a[1]->d, *out = st->dst->d;
    bool over = false;
    ROWS(over |= isinf(out[i]) && !isinf(a[i]) && !isinf(b[i]););
    return over ? sql_run_error(r, st, -ERANGE, "the result is too large for a double") : 0;
}

#define CHECKED_DOUBLES(name, expression)                               \
    KERNEL(name)                                                        \
    {                                                                   \
        const double *a = st->a[0]->d, *b = st->a[1]->d;                \
        double *out = st->dst->d;                                       \
        uint64_t infinite = 0;                                          \
        ROWS(out[i] = expression; infinite |= fabs(out[i]) > DBL_MAX;); \
        return infinite ? check_double(r, st, sel, n) : 0;              \
    }

CHECKED_DOUBLES(add_double, a[i] + b[i])
CHECKED_DOUBLES(sub_double, a[i] - b[i])
CHECKED_DOUBLES(mul_double, a[i] * b[i])

KERNEL(div_double)
{
    const double *a = st->a[0]->d, *b = st->a[1]->d;
    double *out = st->dst->d;
    bool zero = false, infinite = false;
    /* NaN by 0 is NaN */
    ROWS(zero |= b[i] == 0 && a[i] == a[i]; out[i] = b[i] == 0 ? a[i] * 0 : a[i] / b[i];
         infinite |= fabs(out[i]) > DBL_MAX;);
    if (zero)
        return sql_run_error(r, st, -EDOM, "division by zero (nullif(x, 0) avoids it)");
    return infinite ? check_double(r, st, sel, n) : 0;
}

KERNEL(mod_double)
{
    const double *a = st->a[0]->d, *b = st->a[1]->d;
    bool zero = false;
    ROWS(zero |= b[i] == 0; st->dst->d[i] = b[i] == 0 ? 0 : fmod(a[i], b[i]););
    return zero ? sql_run_error(r, st, -EDOM, "division by zero (nullif(x, 0) avoids it)") : 0;
}

KERNEL(bits_int)
{
    const int64_t *a = st->a[0]->i, *b = st->a[1]->i;
    char sign = st->expr->func->name[0];
    ROWS(st->dst->i[i] = sign == '&' ? a[i] & b[i] : sign == '|' ? a[i] | b[i] : a[i] ^ b[i];);
    return 0;
}

KERNEL(bits_not)
{
    ROWS(st->dst->i[i] = ~st->a[0]->i[i];);
    return 0;
}

KERNEL(shift_int)
{
    const int64_t *a = st->a[0]->i, *b = st->a[1]->i;
    bool left = st->expr->func->name[0] == '<', far = false;
    ROWS(uint32_t by = (uint32_t)b[i] & 63; far |= b[i] < 0 || b[i] > 63;
         st->dst->i[i] = left ? (int64_t)((uint64_t)a[i] << by) : a[i] >> by;);
    return far ? sql_run_error(r, st, -ERANGE, "a bigint is shifted by 0 to 63 bits") : 0;
}

KERNEL(div_int)
{
    const int64_t *a = st->a[0]->i, *b = st->a[1]->i;
    bool mod = st->expr->func->name[0] == '%' || st->expr->func->name[0] == 'm';
    bool zero = false, over = false;
    ROWS(
        if (b[i] == 0) { zero = true; } else if (b[i] == -1) {
            over |= !mod && a[i] == INT64_MIN;
            st->dst->i[i] = mod ? 0 : (int64_t)(0 - (uint64_t)a[i]);
        } else { st->dst->i[i] = mod ? a[i] % b[i] : a[i] / b[i]; });
    if (zero)
        return sql_run_error(r, st, -EDOM, "division by zero (nullif(x, 0) avoids it)");
    return over ? sql_run_error(r, st, -ERANGE, "integer out of range") : 0;
}

KERNEL(neg_int)
{
    bool over = false;
    ROWS(over |= __builtin_sub_overflow((int64_t)0, st->a[0]->i[i], &st->dst->i[i]););
    return over ? sql_run_error(r, st, -ERANGE, "integer out of range") : 0;
}

KERNEL(neg_double)
{
    ROWS(st->dst->d[i] = -st->a[0]->d[i];);
    return 0;
}

KERNEL(type_of)
{
    const char *name = sql_type_name(st->a[0]->type);
    ROWS(st->dst->t[i] = (struct text){name, (uint32_t)strlen(name)};);
    return 0;
}

/* Write a boolean as PostgreSQL prints it, which is not how it casts it. */
KERNEL(bool_letter)
{
    ROWS(st->dst->t[i] = (struct text){st->a[0]->i[i] ? "t" : "f", 1};);
    return 0;
}

static int compare_double(double a, double b)
{
    return a != a || b != b ? (a != a) - (b != b) : (a > b) - (a < b);
}

/* greatest, least: NULLs do not count; NULL when all are. */
KERNEL(extreme)
{
    bool least = st->expr->func->name[0] == 'l';
    struct vec *dst = st->dst;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        const struct vec *best = NULL;
        for (uint32_t a = 0; a < st->n_args; a++) {
            const struct vec *v = st->args[a];
            if (sql_is_null(v, i))
                continue;
            int c = best == NULL              ? 0
                    : sql_is_textual(v->type) ? sql_compare_text(v->t[i], best->t[i])
                    : v->type == SQL_DOUBLE   ? compare_double(v->d[i], best->d[i])
                                              : (v->i[i] > best->i[i]) - (v->i[i] < best->i[i]);
            if (!best || (least ? c < 0 : c > 0))
                best = v;
        }
        if (!best)
            sql_set_null(dst, i);
        else if (sql_is_textual(best->type))
            dst->t[i] = best->t[i];
        else
            dst->i[i] = best->i[i];
        if (best && dst->has_null)
            dst->null[i] = 0;
    }
    return 0;
}

#define ORDERED(sign, name)                                                  \
    {sign, "ii", 'b', 0, name##_int}, {sign, "dd", 'b', 0, name##_double},   \
        {sign, "tt", 'b', 0, name##_text}, {sign, "bb", 'b', 0, name##_int}, \
        {sign, "ss", 'b', 0, name##_int}, {sign, "vv", 'b', 0, name##_int},  \
        {sign, "DD", 'b', 0, name##_int}, {sign, "oo", 'b', 0, name##_text}, \
    {                                                                        \
        sign, "mm", 'b', 0, name##_calendar                                  \
    }
#define DISTINCT(name, t)                         \
    {                                             \
        name, t t, 'b', FUNC_NULLS, distinct_from \
    }
#define DISTINCTS(name)                                                                     \
    DISTINCT(name, "i"), DISTINCT(name, "d"), DISTINCT(name, "t"), DISTINCT(name, "b"),     \
        DISTINCT(name, "s"), DISTINCT(name, "v"), DISTINCT(name, "o"), DISTINCT(name, "D"), \
        DISTINCT(name, "m")
#define EXTREME(name, t, c)                 \
    {                                       \
        name, t "*", c, FUNC_NULLS, extreme \
    }
#define EXTREMES(name)                                                             \
    EXTREME(name, "i", 'i'), EXTREME(name, "d", 'd'), EXTREME(name, "t", 't'),     \
        EXTREME(name, "s", 's'), EXTREME(name, "v", 'v'), EXTREME(name, "b", 'b'), \
        EXTREME(name, "D", 'D'), EXTREME(name, "m", 'm')

const struct func sql_operator_funcs[] = {
    ORDERED("=", eq),
    ORDERED("<>", ne),
    ORDERED("<", lt),
    ORDERED("<=", le),
    ORDERED(">", gt),
    ORDERED(">=", ge),
    DISTINCTS("is distinct from"),
    DISTINCTS("is not distinct from"),
    {"is null", "x", 'b', FUNC_NULLS, is_null},
    {"not", "b", 'b', 0, not_bool},
    {"+", "ii", 'i', 0, add_int},
    {"+", "dd", 'd', 0, add_double},
    {"+", "sv", 's', 0, add_int},
    {"+", "vs", 's', 0, add_int},
    {"+", "vv", 'v', 0, add_int},
    {"-", "ii", 'i', 0, sub_int},
    {"-", "dd", 'd', 0, sub_double},
    {"-", "ss", 'v', 0, sub_int}, /* before the next: of a text, too */
    {"-", "sv", 's', 0, sub_int},
    {"-", "vv", 'v', 0, sub_int},
    {"*", "ii", 'i', 0, mul_int},
    {"*", "dd", 'd', 0, mul_double},
    {"*", "vi", 'v', 0, mul_int},
    {"*", "iv", 'v', 0, mul_int},
    {"/", "ii", 'i', 0, div_int},
    {"/", "dd", 'd', 0, div_double},
    {"/", "vi", 'v', 0, div_int},
    {"%", "ii", 'i', 0, div_int},
    {"%", "dd", 'd', 0, mod_double},
    {"mod", "ii", 'i', 0, div_int},
    {"div", "ii", 'i', 0, div_int},
    {"&", "ii", 'i', 0, bits_int},
    {"|", "ii", 'i', 0, bits_int},
    {"#", "ii", 'i', 0, bits_int},
    {"~", "i", 'i', 0, bits_not},
    {"<<", "ii", 'i', 0, shift_int},
    {">>", "ii", 'i', 0, shift_int},
    {"mod", "dd", 'd', 0, mod_double},
    {"neg", "i", 'i', 0, neg_int},
    {"neg", "d", 'd', 0, neg_double},
    {"neg", "v", 'v', 0, neg_int},
    {"typeof", "x", 't', FUNC_NULLS, type_of},
    {"pg_typeof", "x", 't', FUNC_NULLS, type_of},
    {"bool letter", "b", 't', 0, bool_letter},
    EXTREMES("greatest"),
    EXTREMES("least"),
    {NULL, NULL, 0, 0, NULL}};
