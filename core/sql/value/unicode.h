/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/unicode.h - letters of UTF-8, and their other case: unicode.c.
 *
 * Private to core/sql; any thread.
 */
#ifndef CORE_SQL_VALUE_UNICODE_H
#define CORE_SQL_VALUE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNICODE_BYTES 4 /* of one letter, at most */

#define NO_LETTER 0x110000u /* a byte that is no UTF-8 stands for itself beyond Unicode */

/* The letter at *p, which moves behind it; before `end`. */
static inline uint32_t unicode_next(const char **p, const char *end)
{
    const unsigned char *s = (const unsigned char *)*p;
    size_t left = (size_t)(end - *p);
    uint32_t c = s[0], n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    if (c < 0x80) {
        (*p)++;
        return c;
    }
    uint32_t letter = c & (0xffu >> (n + 1));
    bool good = c >= 0xc2 && c < 0xf5 && n <= left;
    for (uint32_t i = 1; i < n && good; i++) {
        good = (s[i] & 0xc0) == 0x80;
        letter = letter << 6 | (s[i] & 0x3f);
    }
    *p += good ? n : 1;
    return good ? letter : NO_LETTER + c;
}

/* Write it; gives how many bytes it has. */
uint32_t unicode_put(uint32_t letter, char out[UNICODE_BYTES]);
/* One letter becomes one letter or stays, as in PostgreSQL: the upper case of sharp s is itself. */
uint32_t unicode_lower(uint32_t letter);
uint32_t unicode_upper(uint32_t letter);
/* Beyond ASCII: is it a letter, or a digit of another script? */
bool unicode_is_letter(uint32_t letter);

#endif
