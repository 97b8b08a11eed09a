/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/number.h - numbers out of text and into it, in the C locale whatever the program has set.
 *
 * The readers take all of text[0..n) or nothing: no blanks, no trailing text, no overflow.  0,
 * -EINVAL: it is no such number, -ERANGE: it does not fit, -ENOMEM.  Any thread; no state.
 */
#ifndef SDK_LIB_NUMBER_H
#define SDK_LIB_NUMBER_H

#include <stddef.h>
#include <stdint.h>

int number_u64(const char *text, size_t n, uint64_t *ret); /* digits only */
int number_i64(const char *text, size_t n, int64_t *ret);  /* a '-' before them */
int number_f64(const char *text, size_t n, double *ret);   /* decimal point is '.', always */

/* Shortest decimal text that reads back as exactly `value` ("nan", "inf", "-inf" for those).
 * out: at least 32 bytes.  Gives the length. */
size_t format_f64(double value, char *out);

#endif
