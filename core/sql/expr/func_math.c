/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_math.c - functions of numbers that few ask for: of hyperbolas, divisors, other
 * bases, bins.
 *
 * The query's thread only.  The rest are in func.c, beside the operators.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "core/base/text.h"

#define MATH(name, inside, expression, complaint)                                                 \
    KERNEL(name)                                                                                  \
    {                                                                                             \
        bool bad = false;                                                                         \
        ROWS(double x = st->a[0]->d[i]; bad |= !(inside) && x == x; st->dst->d[i] = expression;); \
        return bad ? sql_run_error(r, st, -EDOM, complaint) : 0;                                  \
    }

MATH(sinh_double, true, sinh(x), "")
MATH(cosh_double, true, cosh(x), "")
MATH(tanh_double, true, tanh(x), "")
MATH(asinh_double, true, asinh(x), "")
MATH(acosh_double, x >= 1, acosh(x), "acosh takes numbers from 1 on")
MATH(atanh_double, x >= -1 && x <= 1, atanh(x), "atanh takes numbers from -1 to 1")

MATH(cot_double, !isinf(x), 1 / tan(x), "an infinity has no cotangent")

/* sind(30) is 0.5 exactly: the angle is brought to 0 ... 90 degrees first, where multiples of 30
 * and 45 have values that are known. */
static double sine_degrees(double x)
{
    double sign = x < 0 ? -1 : 1;
    x = fmod(fabs(x), 360);
    if (x > 180) {
        x = 360 - x;
        sign = -sign;
    }
    x = x > 90 ? 180 - x : x;
    return sign * (x == 30 ? 0.5 : x == 90 ? 1 : sin(x * (M_PI / 180)));
}

static double cosine_degrees(double x)
{
    x = fmod(fabs(x), 360);
    x = x > 180 ? 360 - x : x;
    double sign = x > 90 ? -1 : 1;
    x = x > 90 ? 180 - x : x;
    return x == 90 ? 0 : sign * (x == 60 ? 0.5 : cos(x * (M_PI / 180)));
}

static double tangent_degrees(double x)
{
    double sine = sine_degrees(x), cosine = cosine_degrees(x);
    return fabs(sine) == fabs(cosine) || fmod(fabs(x), 90) == 45
               ? (sine < 0) != (cosine < 0) ? -1.0 : 1.0
               : sine / cosine + 0.0;
}

MATH(sind_double, !isinf(x), sine_degrees(x), "an infinity has no sine")
MATH(cosd_double, !isinf(x), cosine_degrees(x), "an infinity has no cosine")
MATH(tand_double, !isinf(x), tangent_degrees(x), "an infinity has no tangent")
MATH(cotd_double, !isinf(x), 1 / tangent_degrees(x), "an infinity has no cotangent")
MATH(asind_double, x >= -1 && x <= 1,
     x == 0.5    ? 30
     : x == -0.5 ? -30
                 : asin(x) * (180 / M_PI),
     "asind and acosd take numbers from -1 to 1")
MATH(acosd_double, x >= -1 && x <= 1,
     x == 0.5    ? 60
     : x == -0.5 ? 120
                 : acos(x) * (180 / M_PI),
     "asind and acosd take numbers from -1 to 1")
MATH(atand_double, true, x == 1 ? 45 : x == -1 ? -45 : atan(x) * (180 / M_PI), "")

KERNEL(atan2d_double)
{
    ROWS(st->dst->d[i] = atan2(st->a[0]->d[i], st->a[1]->d[i]) * (180 / M_PI););
    return 0;
}

/* To 20, which is the last that a bigint holds. */
KERNEL(factorial)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        int64_t x = st->a[0]->i[i], product = 1;
        if (x < 0 || x > 20)
            return sql_run_error(r, st, -ERANGE,
                                 x < 0 ? "a negative number has no factorial"
                                       : "integer out of range: factorial() goes up to 20");
        for (; x > 1; x--)
            product *= x;
        st->dst->i[i] = product;
    }
    return 0;
}

KERNEL(div_whole)
{
    const double *a = st->a[0]->d, *b = st->a[1]->d;
    bool zero = false;
    ROWS(zero |= b[i] == 0 && a[i] == a[i];
         st->dst->d[i] = b[i] == 0 ? 0 : trunc(a[i] / b[i]) + 0.0;);
    return zero ? sql_run_error(r, st, -EDOM, "division by zero (nullif(x, 0) avoids it)") : 0;
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

static uint64_t absolute(int64_t v)
{
    return v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
}

static uint64_t divisor(int64_t a, int64_t b)
{
    uint64_t x = absolute(a), y = absolute(b);
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

KERNEL(gcd_int)
{
    bool over = false;
    ROWS(uint64_t d = divisor(st->a[0]->i[i], st->a[1]->i[i]); over |= d > INT64_MAX;
         st->dst->i[i] = (int64_t)d;);
    return over ? sql_run_error(r, st, -ERANGE, "integer out of range") : 0;
}

KERNEL(lcm_int)
{
    bool over = false;
    ROWS(int64_t a = st->a[0]->i[i]; int64_t b = st->a[1]->i[i]; uint64_t d = divisor(a, b);
         uint64_t m = 0; over |= d && __builtin_mul_overflow(absolute(a) / d, absolute(b), &m);
         over |= m > INT64_MAX; st->dst->i[i] = (int64_t)m;);
    return over ? sql_run_error(r, st, -ERANGE, "integer out of range") : 0;
}

/* width_bucket(x, low, high, n): from 1 to n; 0 before them, n + 1 behind.  low > high counts
 * downwards. */
KERNEL(width_bucket)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        double x = st->args[0]->d[i], low = st->args[1]->d[i], high = st->args[2]->d[i];
        int64_t count = st->args[3]->i[i];
        if (count <= 0 || count > INT32_MAX || low == high || !isfinite(low) || !isfinite(high) ||
            isnan(x))
            return sql_run_error(r, st, -EINVAL,
                                 "width_bucket takes a number, two different bounds and a count "
                                 "of buckets that is positive");
        bool down = low > high, before = down ? x > low : x < low,
             behind = down ? x <= high : x >= high;
        st->dst->i[i] = before   ? 0
                        : behind ? count + 1
                                 : (int64_t)((x - low) / (high - low) * (double)count) + 1;
    }
    return 0;
}

const struct func sql_more_math_funcs[] = {{"log", "dd", 'd', 0, log_of_base},
                                           {"sinh", "d", 'd', 0, sinh_double},
                                           {"cosh", "d", 'd', 0, cosh_double},
                                           {"tanh", "d", 'd', 0, tanh_double},
                                           {"asinh", "d", 'd', 0, asinh_double},
                                           {"acosh", "d", 'd', 0, acosh_double},
                                           {"atanh", "d", 'd', 0, atanh_double},
                                           {"cot", "d", 'd', 0, cot_double},
                                           {"sind", "d", 'd', 0, sind_double},
                                           {"cosd", "d", 'd', 0, cosd_double},
                                           {"tand", "d", 'd', 0, tand_double},
                                           {"cotd", "d", 'd', 0, cotd_double},
                                           {"asind", "d", 'd', 0, asind_double},
                                           {"acosd", "d", 'd', 0, acosd_double},
                                           {"atand", "d", 'd', 0, atand_double},
                                           {"atan2d", "dd", 'd', 0, atan2d_double},
                                           {"factorial", "i", 'i', 0, factorial},
                                           {"div", "dd", 'd', 0, div_whole},
                                           {"to_real", "d", 'd', 0, to_real},
                                           {"try_real", "d", 'd', 0, to_real},
                                           {"gcd", "ii", 'i', 0, gcd_int},
                                           {"lcm", "ii", 'i', 0, lcm_int},
                                           {"width_bucket", "dddi", 'i', 0, width_bucket},
                                           {NULL, NULL, 0, 0, NULL}};
