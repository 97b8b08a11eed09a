/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/text.h - numbers, durations and sizes out of text, and the nearest of some names.
 *
 * The parsers take the whole text or nothing: no blanks, no trailing text, no overflow, C locale
 * whatever the host has set.  0, or -EINVAL / -ERANGE with err_set() done.  Any thread.
 */
#ifndef CORE_BASE_TEXT_H
#define CORE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/number.h"

int parse_u64(const char *text, uint64_t *ret);
int parse_i64(const char *text, int64_t *ret);
int parse_f64(const char *text, size_t n, double *ret); /* decimal point is '.', always */
int parse_bool(const char *text, bool *ret);            /* on/off, true/false, yes/no, 1/0 */
bool text_is_off(const char *text);                     /* empty, or what parse_bool() has for no */
int parse_ns(const char *text, uint64_t *ret);    /* "10s" "5m" "2h" "1d" "250ms"; bare: seconds */
int parse_bytes(const char *text, uint64_t *ret); /* "4096" "64K" "10MB" "1GB", powers of 1024 */

/* As these read it, in the largest unit in which it is whole: "250ms", "90s", "64KB"; 0 is "0". */
#define TEXT_AMOUNT_BYTES 32
void text_ns(int64_t ns, char ret[TEXT_AMOUNT_BYTES]);
void text_bytes(int64_t bytes, char ret[TEXT_AMOUNT_BYTES]);

/* The one of `names` that is nearest to `word` (at most a third of its letters differ), else
 * NULL. */
const char *text_nearest(const char *word, const char *const *names, size_t n);

/* Is `n` bytes at `name` one of a list with ',' or ' ' between? */
bool text_is_listed(const char *list, const char *name, size_t n);
bool text_is_name(const char *text); /* ^[a-z][a-z0-9_]{0,62}$ */

#endif
