/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/json.h - JSON text in (a small tree in an arena) and out (into a buf).
 *
 * RFC 8259.  Depth and size are bounded; bad UTF-8 and bad escapes are refused with the offset.
 * Owner's thread only.
 */
#ifndef SDK_LIB_JSON_H
#define SDK_LIB_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/arena.h"
#include "sdk/lib/buf.h"

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_type type;
    bool boolean;
    bool is_integer; /* a NUMBER without fraction or exponent that fits: see integer */
    int64_t integer;
    double number;
    const char *text;          /* STRING: unescaped, NUL-terminated; NUMBER: as written */
    size_t size;               /* STRING: bytes of text; ARRAY, OBJECT: how many members */
    const char *key;           /* of a member of an OBJECT, unescaped */
    struct json *first, *next; /* members of ARRAY/OBJECT; the next sibling */
};

#define JSON_DEPTH 64 /* deepest nesting read: more is an attack or a mistake */

struct json_error {
    size_t at;        /* byte */
    const char *what; /* constant */
};

/* Read one value that is the whole text.  The tree lives as long as the arena.  -EINVAL or -ENOMEM
 * with *ret_error. */
int json_read(struct arena *a, const char *text, size_t size, struct json **ret,
              struct json_error *ret_error);

const struct json *json_get(const struct json *object, const char *key); /* NULL: not there */
/* The member's text when it is a STRING, else `otherwise`. */
const char *json_text(const struct json *object, const char *key, const char *otherwise);
int64_t json_int(const struct json *object, const char *key, int64_t otherwise);

/* Add `text` as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD. */
int json_add_text(struct buf *b, const char *text, size_t size);
/* Add a number: shortest form that reads back the same; NaN and infinities become null. */
int json_add_f64(struct buf *b, double value);
/* Add `"key": value, `, as json_text() and json_int() read them back: null where the text is empty,
 * or the number is `none`.  The key needs no escapes. */
void json_add_member_text(struct buf *b, const char *key, const char *text);
void json_add_member_int(struct buf *b, const char *key, int64_t value, int64_t none);

#endif
