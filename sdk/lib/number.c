/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/number.c - strict text to number, and shortest number to text.
 *
 * Any thread.  The program's locale is neither used nor changed: numbers are read and written in
 * the C locale, which glibc gives without allocating.
 */
#include "sdk/lib/number.h"

#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX 400 /* characters: the longest exact decimal of a double has fewer */

int number_u64(const char *text, size_t n, uint64_t *ret)
{
    uint64_t value = 0;
    if (n == 0)
        return -EINVAL;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -EINVAL;
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
            return -ERANGE;
    }
    *ret = value;
    return 0;
}

int number_i64(const char *text, size_t n, int64_t *ret)
{
    bool minus = n > 0 && text[0] == '-';
    uint64_t value;
    int rc = number_u64(text + minus, n - minus, &value);
    if (rc == 0 && value > (uint64_t)INT64_MAX + minus)
        rc = -ERANGE;
    if (rc == 0)
        *ret = minus ? (int64_t)(0 - value) : (int64_t)value;
    return rc;
}

int number_f64(const char *text, size_t n, double *ret)
{
    char copy[NUMBER_MAX];
    char *end;
    size_t at = 0;

    if (n == 0 || n >= sizeof(copy) || memchr(text, '\0', n))
        return -EINVAL;
    memcpy(copy, text, n);
    copy[n] = '\0';
    /* strtod also takes blanks, hexadecimal, "infinity" and "nan(...)": look before it does. */
    if (copy[at] == '-' || copy[at] == '+')
        at++;
    bool named = strcmp(copy + at, "inf") == 0 || strcmp(copy + at, "nan") == 0;
    if (!named && strspn(copy + at, "0123456789.eE+-") != n - at)
        return -EINVAL;
    locale_t c = newlocale(LC_ALL_MASK, "C", NULL);
    int saved = errno;
    errno = 0;
    double value = c ? strtod_l(copy, &end, c) : 0;
    int failed = errno;
    errno = saved;
    if (!c)
        return -ENOMEM;
    freelocale(c);
    if (end != copy + n || at == n)
        return -EINVAL;
    if (failed == ERANGE && isinf(value))
        return -ERANGE;
    *ret = value;
    return 0;
}

size_t format_f64(double value, char *out)
{
    int n = 0;
    if (isnan(value) || isinf(value)) {
        const char *name = isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
        n = (int)strlen(name);
        memcpy(out, name, (size_t)n + 1);
        return (size_t)n;
    }
    if (fabs(value) < 1e15 && value == (double)(int64_t)value && !(value == 0 && signbit(value)))
        return (size_t)snprintf(out, 32, "%lld", (long long)value);
    locale_t c = newlocale(LC_ALL_MASK, "C", NULL);
    locale_t old = c ? uselocale(c) : NULL;
    int shortest = fabs(value) < DBL_MIN ? 1 : 15; /* denormals have fewer digits: 5e-324 */
    for (int precision = shortest; precision <= 17; precision++) {
        n = snprintf(out, 32, "%.*g", precision, value);
        if (precision == 17 || (c && strtod_l(out, NULL, c) == value))
            break;
    }
    if (c) {
        (void)uselocale(old);
        freelocale(c);
    }
    return (size_t)n;
}
