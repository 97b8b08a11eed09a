/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/bytes.c - bytes as texts and back: '\x1f'::bytea.
 *
 * The query's thread only.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <string.h>

static int hex_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Pairs of digits, with blanks between them if need be.  Bytes, or -1. */
static int64_t read_hex(struct text t, char *out)
{
    int64_t size = 0;
    for (uint32_t i = 0; i < t.size; i++) {
        if (strchr(" \n\t\r", t.data[i]) && t.data[i])
            continue;
        int high = hex_of(t.data[i]), low = i + 1 < t.size ? hex_of(t.data[i + 1]) : -1;
        if (high < 0 || low < 0)
            return -1;
        out[size++] = (char)(16 * high + low);
        i++;
    }
    return size;
}

static bool is_octal(struct text t, uint32_t i)
{
    for (uint32_t k = i; k < i + 3; k++)
        if (k >= t.size || t.data[k] < '0' || t.data[k] > (k == i ? '3' : '7'))
            return false;
    return true;
}

/* a\\b\001c, and \xHH of DuckDB */
static int64_t read_escaped(struct text t, char *out)
{
    int64_t size = 0;
    for (uint32_t i = 0; i < t.size; i++) {
        if (t.data[i] != '\\') {
            out[size++] = t.data[i];
        } else if (i + 1 < t.size && t.data[i + 1] == '\\') {
            out[size++] = '\\';
            i++;
        } else if (is_octal(t, i + 1)) {
            out[size++] = (char)((t.data[i + 1] - '0') * 64 + (t.data[i + 2] - '0') * 8 +
                                 (t.data[i + 3] - '0'));
            i += 3;
        } else if (i + 3 < t.size && t.data[i + 1] == 'x' && hex_of(t.data[i + 2]) >= 0 &&
                   hex_of(t.data[i + 3]) >= 0) {
            out[size++] = (char)(16 * hex_of(t.data[i + 2]) + hex_of(t.data[i + 3]));
            i += 3;
        } else {
            return -1;
        }
    }
    return size;
}

/* '\x1f20'::bytea: PostgreSQL's two ways of writing bytes */
int sql_bytes_of_text(struct run *r, struct text t, struct text *ret)
{
    char *out = sql_scratch(r, (size_t)t.size + 1);
    if (!out)
        return -ENOMEM;
    struct text digits = {t.data + 2, t.size > 2 ? t.size - 2 : 0};
    bool hex = t.size >= 2 && t.data[0] == '\\' && t.data[1] == 'x';
    int64_t size = hex ? read_hex(digits, out) : -1;
    if (size < 0 && (!hex || memchr(digits.data, '\\', digits.size)))
        size = read_escaped(t, out);
    if (size < 0)
        return -EINVAL;
    *ret = (struct text){out, (uint32_t)size};
    return 0;
}

int sql_text_of_bytes(struct run *r, struct text t, struct text *ret)
{
    static const char hex[] = "0123456789abcdef";
    char *out = sql_scratch(r, 2 * (size_t)t.size + 3);
    if (!out)
        return -ENOMEM;
    memcpy(out, "\\x", 2);
    for (uint32_t i = 0; i < t.size; i++) {
        out[2 + 2 * i] = hex[(unsigned char)t.data[i] >> 4];
        out[3 + 2 * i] = hex[(unsigned char)t.data[i] & 15];
    }
    *ret = (struct text){out, 2 + 2 * t.size};
    return 0;
}
