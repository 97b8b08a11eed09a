/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/number_text.c - a number as text, as printf's "%.9g" has it.
 *
 * Threads: any.
 * Each step's loss needs one.  printf takes 0.3 us for it, and 1 us where some library has told it
 * of types of its own (libquadmath, which OpenBLAS brings): half of what we cost a step.
 */
#include "variables/number_text.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define DIGITS 9
#define LEAST \
    1e-10 /* down to here all is exact in 128 bits: 53 of the number, 60 of 10 to the 18 */
#define MOST 1e9
#define SMALLEST_PLAIN (-4) /* exponent: what is smaller is written with one */

static uint64_t ten_to(int n)
{
    uint64_t power = 1;
    while (n-- > 0)
        power *= 10;
    return power;
}

/* number * 10^(8 - exponent), to the next whole number; between two, the even one. */
static uint64_t scale_number(double number, int exponent)
{
    int e2;
    uint64_t m = (uint64_t)ldexp(frexp(number, &e2), 53);
    int shift = 53 - e2; /* above 0: MOST has 30 bits */
    unsigned __int128 product = (unsigned __int128)m * ten_to(DIGITS - 1 - exponent);
    uint64_t whole = (uint64_t)(product >> shift);
    unsigned __int128 rest = product - ((unsigned __int128)whole << shift);
    unsigned __int128 half = (unsigned __int128)1 << (shift - 1);
    return whole + (rest > half || (rest == half && whole & 1));
}

static int exponent_of(double number)
{
    static const double powers[] = {1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1,
                                    1,    1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8};
    int n = -10;
    for (size_t i = 0; i < sizeof(powers) / sizeof(powers[0]) && number >= powers[i]; i++)
        n++;
    return n;
}

/* "0.00123": `at` digits before the point. */
static char *put_plain(char *p, const char *digits, int n, int at)
{
    if (at <= 0) {
        *p++ = '0';
        *p++ = '.';
        for (; at < 0; at++)
            *p++ = '0';
        memcpy(p, digits, (size_t)n);
        return p + n;
    }
    for (int i = 0; i < n || i < at; i++) {
        if (i == at)
            *p++ = '.';
        *p++ = i < n ? digits[i] : '0';
    }
    return p;
}

static char *put_exponent(char *p, const char *digits, int n, int exponent)
{
    p = put_plain(p, digits, n, 1);
    *p++ = 'e';
    *p++ = '-';
    *p++ = (char)('0' + -exponent / 10);
    *p++ = (char)('0' + -exponent % 10);
    return p;
}

void number_text(double number, char *text)
{
    double size = fabs(number);
    if (number != number) { /* printf knows it with a sign, too */
        memcpy(text, "nan", 4);
        return;
    }
    if (!(size >= LEAST && size < MOST)) {
        (void)snprintf(text, NUMBER_TEXT_BYTES, "%.9g", number);
        return;
    }
    char digits[DIGITS], *p = text;
    int exponent = exponent_of(size), n = DIGITS;
    uint64_t whole = scale_number(size, exponent);
    if (whole == ten_to(DIGITS)) { /* rounded up to one digit more */
        whole /= 10;
        exponent++;
    }
    for (int i = DIGITS - 1; i >= 0; i--, whole /= 10)
        digits[i] = (char)('0' + whole % 10);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    if (number < 0)
        *p++ = '-';
    if (exponent == DIGITS) /* 999999999.9 */
        p += snprintf(p, NUMBER_TEXT_BYTES - 1, "1e+09");
    else if (exponent < SMALLEST_PLAIN)
        p = put_exponent(p, digits, n, exponent);
    else
        p = put_plain(p, digits, n, exponent + 1);
    *p = '\0';
}
