/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/objects/json_out.c - pieces of JSON in a buffer of fixed size.
 *
 * Any thread.
 */
#include "objects/json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/interpreter.h"
#include "lib/json_text.h"

#define INT_CHARS 340 /* OUT_DIGITS of 30 bits have 317 decimal digits */

void out_put(struct out *o, const char *text)
{
    size_t n = strlen(text);
    if (n >= o->size - o->n)
        n = o->size - o->n - 1;
    memcpy(o->p + o->n, text, n);
    o->n += n;
    o->p[o->n] = '\0';
}

static size_t put_letter(struct out *o, const char *text, size_t n)
{
    char letter[JSON_LETTER_BYTES + 1];
    size_t size, took = json_letter(text, n, letter, &size);
    letter[size] = '\0';
    out_put(o, letter);
    return took;
}

void out_string(struct out *o, const char *text)
{
    out_put(o, "\"");
    for (size_t n = strlen(text); n > 0;) {
        size_t took = put_letter(o, text, n);
        text += took;
        n -= took;
    }
    out_put(o, "\"");
}

void out_chars(struct out *o, const uint8_t *data, unsigned width, size_t count)
{
    char piece[12];
    out_put(o, "\"");
    for (size_t i = 0; i < count; i++) {
        walk_utf8(data + i * width, width, 1, piece, sizeof(piece));
        size_t n = strlen(piece);
        (void)put_letter(o, piece, n ? n : 1); /* a NUL is one, too */
    }
    out_put(o, "\"");
}

/* Digits of 30 bits, lowest first, as decimal text. */
static void write_decimal(uint32_t *digits, unsigned n, bool negative, char *ret, size_t size)
{
    char *p = ret + size;
    *--p = '\0';
    do { /* divide by 10**9 until nothing is left */
        uint64_t rest = 0;
        for (unsigned i = n; i-- > 0;) {
            rest = rest << 30 | digits[i];
            digits[i] = (uint32_t)(rest / 1000000000);
            rest %= 1000000000;
        }
        while (n && !digits[n - 1])
            n--;
        for (int i = 0; i < 9 && (n || rest || i == 0); i++, rest /= 10)
            *--p = (char)('0' + rest % 10);
    } while (n);
    if (negative)
        *--p = '-';
    memmove(ret, p, strlen(p) + 1);
}

void out_int(struct out *o, uint32_t *digits, unsigned n, bool negative)
{
    char text[INT_CHARS];
    write_decimal(digits, n, negative, text, sizeof(text));
    out_put(o, text);
}

void out_double(struct out *o, double value, bool single)
{
    char text[48];
    (void)snprintf(text, sizeof(text), single ? "%.7g" : "%.15g", value);
    if (isfinite(value) && single && strtof(text, NULL) != (float)value)
        (void)snprintf(text, sizeof(text), "%.9g", value);
    else if (isfinite(value) && !single && strtod(text, NULL) != value)
        (void)snprintf(text, sizeof(text), "%.17g", value);
    if (!isfinite(value)) { /* JSON has no such numbers */
        out_put(o, isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"");
        return;
    }
    /* the program's locale may have another point than JSON */
    char whole[96], *end = text + strspn(text, "-0123456789");
    char *rest = end + strcspn(end, "0123456789e");
    (void)snprintf(whole, sizeof(whole), "%.*s%s%s", (int)(end - text), text,
                   rest > end ? "."
                   : *end     ? ""
                              : ".0",
                   rest);
    out_put(o, whole);
}
