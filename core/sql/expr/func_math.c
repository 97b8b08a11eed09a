/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_math.c - functions of numbers: roots, logarithms, angles, rounding, and casts
 * to narrower numbers.
 *
 * The query's thread only.  Operators are in func.c.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/text.h"

KERNEL(abs_int)
{
    bool over = false;
    ROWS(int64_t v = st->a[0]->i[i]; over |= v == INT64_MIN;
         st->dst->i[i] = v < 0 && v != INT64_MIN ? -v : v;);
    return over ? sql_run_error(r, st, -ERANGE, "integer out of range") : 0;
}

KERNEL(sign_int)
{
    ROWS(st->dst->i[i] = (st->a[0]->i[i] > 0) - (st->a[0]->i[i] < 0););
    return 0;
}

KERNEL(same_int)
{
    ROWS(st->dst->i[i] = st->a[0]->i[i];);
    return 0;
}

#define MATH(name, expression)                                        \
    KERNEL(name)                                                      \
    {                                                                 \
        ROWS(double x = st->a[0]->d[i]; st->dst->d[i] = expression;); \
        return 0;                                                     \
    }
/* Outside the domain is an error, as in PostgreSQL. */
#define MATH_IN(name, inside, expression, complaint)                                              \
    KERNEL(name)                                                                                  \
    {                                                                                             \
        bool bad = false;                                                                         \
        ROWS(double x = st->a[0]->d[i]; bad |= !(inside) && x == x; st->dst->d[i] = expression;); \
        return bad ? sql_run_error(r, st, -EDOM, complaint) : 0;                                  \
    }

MATH(abs_double, fabs(x))
MATH(floor_double, floor(x))
MATH(ceil_double, ceil(x))
MATH(trunc_double, trunc(x))
MATH(round_double, rint(x))
MATH_IN(exp_double, x <= 709.78 || isinf(x), exp(x),
        "the result of exp() is too large for a double")
MATH(sign_double, (double)((x > 0) - (x < 0)))
MATH_IN(sqrt_double, x >= 0, sqrt(x), "cannot take the square root of a negative number")
MATH_IN(ln_double, x > 0, log(x), "cannot take the logarithm of a number that is not positive")
MATH_IN(log10_double, x > 0, log10(x), "cannot take the logarithm of a number that is not positive")
MATH_IN(log2_double, x > 0, log2(x), "cannot take the logarithm of a number that is not positive")
MATH_IN(sin_double, !isinf(x), sin(x), "an infinity has no sine")
MATH_IN(cos_double, !isinf(x), cos(x), "an infinity has no cosine")
MATH_IN(tan_double, !isinf(x), tan(x), "an infinity has no tangent")
MATH(atan_double, atan(x))
MATH(cbrt_double, cbrt(x))
MATH(degrees_double, x *(180 / M_PI))
MATH(radians_double, x *(M_PI / 180))
MATH_IN(asin_double, x >= -1 && x <= 1, asin(x), "asin and acos take numbers from -1 to 1")
MATH_IN(acos_double, x >= -1 && x <= 1, acos(x), "asin and acos take numbers from -1 to 1")

KERNEL(power_double)
{
    const double *a = st->a[0]->d, *b = st->a[1]->d;
    bool bad = false;
    ROWS(double x = pow(a[i], b[i]); st->dst->d[i] = x;
         bad |= !isfinite(x) && isfinite(a[i]) && isfinite(b[i]);
         bad |= (a[i] == 0 && b[i] < 0) ||
                (isinf(a[i]) && a[i] < 0 && b[i] == b[i] && rint(b[i]) != b[i]););
    return bad ? sql_run_error(r, st, -ERANGE,
                               "the power is too large for a double, or undefined for a negative "
                               "number or zero")
               : 0;
}

KERNEL(atan2_double)
{
    ROWS(st->dst->d[i] = atan2(st->a[0]->d[i], st->a[1]->d[i]););
    return 0;
}

/* log(base, x) */
KERNEL(log_of_base)
{
    const double *a = st->a[0]->d, *b = st->a[1]->d;
    bool bad = false, one = false;
    ROWS(bad |= a[i] <= 0 || b[i] <= 0; one |= a[i] == 1;
         st->dst->d[i] = a[i] == 2    ? log2(b[i])
                         : a[i] == 10 ? log10(b[i])
                                      : log(b[i]) / log(a[i]););
    if (bad)
        return sql_run_error(r, st, -EDOM,
                             "cannot take the logarithm of a number that is not positive");
    return one ? sql_run_error(r, st, -EDOM, "a logarithm has no base 1") : 0;
}

KERNEL(div_whole)
{
    const double *a = st->a[0]->d, *b = st->a[1]->d;
    bool zero = false;
    ROWS(zero |= b[i] == 0 && a[i] == a[i];
         st->dst->d[i] = b[i] == 0 ? 0 : trunc(a[i] / b[i]) + 0.0;);
    return zero ? sql_run_error(r, st, -EDOM, "division by zero (nullif(x, 0) avoids it)") : 0;
}

/* isnan, isinf, isfinite */
KERNEL(is_double)
{
    char kind = st->expr->func->name[2];
    const double *v = st->a[0]->d;
    ROWS(st->dst->i[i] = kind == 'n' ? isnan(v[i]) : kind == 'i' ? !!isinf(v[i]) : isfinite(v[i]););
    return 0;
}

/* x * 10^digits.  What is nearer to a half or a whole than a double is to what was written (2.675
 * is 2.67499999999999982) is that: PostgreSQL makes numerics of the first 15 digits. */
static double scaled_up(double x, double scale)
{
    double scaled = x * scale, half = rint(scaled * 2) / 2;
    return fabs(scaled - half) <= fabs(scaled) * 4.5e-16 ? half : scaled;
}

static double to_digits(double x, int64_t digits, bool cut)
{
    double scale = pow(10, fabs((double)(digits > 300 ? 300 : digits < -300 ? -300 : digits)));
    double scaled = digits < 0 ? x / scale : scaled_up(x, scale);
    double whole = cut ? trunc(scaled) : round(scaled);
    if (!isfinite(scaled))
        return x;
    return (digits < 0 ? whole * scale : whole / scale) + 0.0; /* a numeric has no -0 */
}

KERNEL(round_digits)
{
    ROWS(st->dst->d[i] = to_digits(st->a[0]->d[i], st->a[1]->i[i], false););
    return 0;
}

KERNEL(trunc_digits)
{
    ROWS(st->dst->d[i] = to_digits(st->a[0]->d[i], st->a[1]->i[i], true););
    return 0;
}

/* x::numeric(digits, decimals): rounded; what has more digits before its point is none. */
KERNEL(to_numeric)
{
    bool forgiving = st->expr->func->name[strlen(st->expr->func->name) - 1] == '?';
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        int64_t digits = st->a[1]->i[i], decimals = st->a[2]->i[i];
        double x = st->a[0]->d[i];
        if (digits < 1 || digits > 1000 || decimals < 0 || decimals > digits)
            return sql_run_error(r, st, -EINVAL,
                                 "numeric(digits, decimals) has 1 to 1000 digits, of which at most "
                                 "as many are decimals");
        double rounded = to_digits(x, decimals, false);
        st->dst->d[i] = rounded;
        if (fabs(rounded) < pow(10, (double)(digits - decimals)) || isnan(x))
            continue;
        if (!forgiving)
            return sql_run_error(r, st, -ERANGE, "the number has more digits than its type allows");
        sql_set_null(st->dst, i);
    }
    return 0;
}

/* x::smallint, x::integer: a bigint of so many bits. */
KERNEL(to_int)
{
    bool forgiving = st->expr->func->name[strlen(st->expr->func->name) - 1] == '?';
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        int64_t x = st->a[0]->i[i], most = (INT64_C(1) << (st->a[1]->i[i] - 1)) - 1;
        st->dst->i[i] = x;
        if (x <= most && x >= -most - 1)
            continue;
        if (!forgiving)
            return sql_run_error(r, st, -ERANGE,
                                 most < INT32_MAX ? "smallint out of range; a bigint holds it"
                                                  : "integer out of range; a bigint holds it");
        sql_set_null(st->dst, i);
    }
    return 0;
}

KERNEL(pi_double)
{
    ROWS(st->dst->d[i] = M_PI;);
    return 0;
}

/* x::real: a double that has no more digits than a float of 32 bits, as PostgreSQL shows it. */
KERNEL(to_real)
{
    bool forgiving = st->expr->func->name[2] == 'y'; /* try_real */
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        double x = st->a[0]->d[i], shown = x;
        float single = (float)x;
        if (isinf(single) && !isinf(x)) {
            if (!forgiving)
                return sql_run_error(r, st, -ERANGE, "the number is too large for a real");
            sql_set_null(st->dst, i);
            continue;
        }
        bool plain = isfinite(x) && single != 0;
        int point = plain ? (int)floor(log10(fabs((double)single))) : 0;
        shown = plain ? shown : (double)single;
        for (int digits = 6; digits <= 9 && plain; digits++) {
            char text[48]; /* whole digits and an exponent: no locale's point */
            double whole = rint((double)single * pow(10, digits - 1 - point));
            int size =
                snprintf(text, sizeof(text), "%llde%d", (long long)whole, point - digits + 1);
            if (parse_f64(text, (size_t)size, &shown) == 0 && (float)shown == single)
                break;
        }
        st->dst->d[i] = shown;
    }
    return 0;
}

const struct func sql_number_funcs[] = {{"floor", "i", 'i', 0, same_int},
                                        {"floor", "d", 'd', 0, floor_double},
                                        {"ceil", "i", 'i', 0, same_int},
                                        {"ceil", "d", 'd', 0, ceil_double},
                                        {"ceiling", "i", 'i', 0, same_int},
                                        {"ceiling", "d", 'd', 0, ceil_double},
                                        {"trunc", "i", 'i', 0, same_int},
                                        {"trunc", "d", 'd', 0, trunc_double},
                                        {"trunc", "di", 'd', 0, trunc_digits},
                                        {"round", "i", 'i', 0, same_int},
                                        {"round", "d", 'd', 0, round_double},
                                        {"round", "di", 'd', 0, round_digits},
                                        {"to_numeric", "dii", 'd', 0, to_numeric},
                                        {"to_numeric?", "dii", 'd', 0, to_numeric},
                                        {"to int", "ii", 'i', 0, to_int},
                                        {"to int?", "ii", 'i', 0, to_int},
                                        {"sqrt", "d", 'd', 0, sqrt_double},
                                        {"exp", "d", 'd', 0, exp_double},
                                        {"ln", "d", 'd', 0, ln_double},
                                        {"log", "d", 'd', 0, log10_double},
                                        {"log", "dd", 'd', 0, log_of_base},
                                        {"log10", "d", 'd', 0, log10_double},
                                        {"log2", "d", 'd', 0, log2_double},
                                        {"power", "dd", 'd', 0, power_double},
                                        {"pow", "dd", 'd', 0, power_double},
                                        {"sin", "d", 'd', 0, sin_double},
                                        {"cos", "d", 'd', 0, cos_double},
                                        {"tan", "d", 'd', 0, tan_double},
                                        {"asin", "d", 'd', 0, asin_double},
                                        {"acos", "d", 'd', 0, acos_double},
                                        {"atan", "d", 'd', 0, atan_double},
                                        {"atan2", "dd", 'd', 0, atan2_double},
                                        {"cbrt", "d", 'd', 0, cbrt_double},
                                        {"degrees", "d", 'd', 0, degrees_double},
                                        {"radians", "d", 'd', 0, radians_double},
                                        {"isnan", "d", 'b', 0, is_double},
                                        {"isinf", "d", 'b', 0, is_double},
                                        {"isfinite", "d", 'b', 0, is_double},
                                        {"pi", "", 'd', 0, pi_double},
                                        {"abs", "i", 'i', 0, abs_int},
                                        {"abs", "d", 'd', 0, abs_double},
                                        {"abs", "v", 'v', 0, abs_int},
                                        {"sign", "i", 'i', 0, sign_int},
                                        {"sign", "d", 'd', 0, sign_double},
                                        {"div", "dd", 'd', 0, div_whole},
                                        {"to_real", "d", 'd', 0, to_real},
                                        {"try_real", "d", 'd', 0, to_real},
                                        {NULL, NULL, 0, 0, NULL}};
