/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/digits.h - numbers in the texts of /proc, for this folder's own files.
 *
 * Any thread, handlers too; no state.
 */
#ifndef SDK_LIB_PROC_DIGITS_H
#define SDK_LIB_PROC_DIGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline unsigned proc_digit(char c)
{
    return c >= '0' && c <= '9'   ? (unsigned)(c - '0')
           : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                                  : 16;
}

/* The number at the beginning of a text that ends with a character that is no digit: where it ends,
 * NULL when there is none or it has more than 64 bits.  base: 10 or 16.  [signal] */
static inline const char *proc_digits(const char *at, unsigned base, uint64_t *ret)
{
    uint64_t value = 0;
    unsigned digit = proc_digit(*at);
    if (digit >= base)
        return NULL;
    for (; digit < base; digit = proc_digit(*++at))
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return NULL;
    *ret = value;
    return at;
}

/* [signal] */
static inline const char *proc_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

#endif
