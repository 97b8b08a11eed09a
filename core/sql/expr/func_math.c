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
                                           {"gcd", "ii", 'i', 0, gcd_int},
                                           {"lcm", "ii", 'i', 0, lcm_int},
                                           {"width_bucket", "dddi", 'i', 0, width_bucket},
                                           {NULL, NULL, 0, 0, NULL}};
