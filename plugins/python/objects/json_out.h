/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/objects/json_out.h - pieces of JSON in a buffer of fixed size.
 *
 * Any thread.  What does not fit is left out: who writes asks for room before.
 */
#ifndef PYTHON_OBJECTS_JSON_OUT_H
#define PYTHON_OBJECTS_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUT_DIGITS 35 /* of 30 bits: 1,050 bits */

struct out {
    char *p;
    size_t n, size;
};

void out_put(struct out *o, const char *text);

/* As a JSON string. */
void out_string(struct out *o, const char *text);

/* Characters of `width` bytes each as a JSON string, zeros and all. */
void out_chars(struct out *o, const uint8_t *data, unsigned width, size_t count);

/* An int of at most OUT_DIGITS digits of 30 bits, lowest first, which are used up. */
void out_int(struct out *o, uint32_t *digits, unsigned n, bool negative);

/* `single`: it was a float of four bytes, and is written as short as that tells. */
void out_double(struct out *o, double value, bool single);

#endif
