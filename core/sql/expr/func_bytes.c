/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_bytes.c - bytes and how they are written: '\x1f'::bytea, encode, decode.
 *
 * The query's thread only.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

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

static int value_of_64(char c)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? (int)(at - letters) : -1;
}

static int64_t read_base64(struct text t, char *out)
{
    int64_t size = 0;
    uint32_t bits = 0, have = 0, pads = 0, letters = 0;
    for (uint32_t i = 0; i < t.size; i++) {
        if (strchr(" \n\t\r", t.data[i]) && t.data[i])
            continue;
        int value = t.data[i] == '=' ? 0 : value_of_64(t.data[i]);
        pads += t.data[i] == '=';
        letters++;
        if (value < 0 || pads > 2 || (pads && t.data[i] != '='))
            return -1;
        bits = bits << 6 | (uint32_t)value;
        if (++have < 4)
            continue;
        for (uint32_t k = 0; k < 3 - pads; k++)
            out[size++] = (char)(bits >> (16 - 8 * k));
        bits = have = 0;
    }
    return letters % 4 ? -1 : size;
}

enum form { FORM_HEX, FORM_BASE64, FORM_ESCAPE, FORM_UTF8, FORM_NONE };

static enum form form_named(struct text t)
{
    static const char *const names[] = {"hex", "base64", "escape", "utf8"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (t.size == strlen(names[i]) && strncasecmp(t.data, names[i], t.size) == 0)
            return (enum form)i;
    return t.size == 5 && strncasecmp(t.data, "utf-8", 5) == 0 ? FORM_UTF8 : FORM_NONE;
}

static int64_t read_form(enum form form, struct text t, char *out)
{
    if (form == FORM_UTF8 && t.size)
        memcpy(out, t.data, t.size);
    return form == FORM_HEX      ? read_hex(t, out)
           : form == FORM_BASE64 ? read_base64(t, out)
           : form == FORM_ESCAPE ? read_escaped(t, out)
                                 : (int64_t)t.size;
}

static uint32_t write_form(enum form form, struct text t, char *out)
{
    static const char hex[] = "0123456789abcdef",
                      letters[] =
                          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *b = (const unsigned char *)t.data;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t.size && form == FORM_HEX; i++) {
        out[n++] = hex[b[i] >> 4];
        out[n++] = hex[b[i] & 15];
    }
    for (uint32_t i = 0; i < t.size && form == FORM_BASE64; i += 3) {
        uint32_t left = t.size - i;
        uint32_t bits = (uint32_t)b[i] << 16 | (left > 1 ? (uint32_t)b[i + 1] << 8 : 0) |
                        (left > 2 ? b[i + 2] : 0);
        if (i && i % 57 == 0) /* a line has 76 letters */
            out[n++] = '\n';
        for (uint32_t k = 0; k < 4; k++)
            out[n++] = k > left ? '=' : letters[bits >> (18 - 6 * k) & 63];
    }
    for (uint32_t i = 0; i < t.size && form == FORM_ESCAPE; i++) {
        if (b[i] == '\\')
            out[n++] = '\\';
        if (b[i] && b[i] < 0x80) {
            out[n++] = (char)b[i];
            continue;
        }
        out[n++] = '\\';
        for (int k = 6; k >= 0; k -= 3)
            out[n++] = (char)('0' + (b[i] >> k & 7));
    }
    if (form == FORM_UTF8 && t.size)
        memcpy(out, t.data, t.size);
    return form == FORM_UTF8 ? t.size : n;
}

static int which_form(struct run *r, const struct step *st, uint32_t i, enum form *ret)
{
    bool letters = strncmp(st->expr->func->name, "convert", 7) == 0; /* convert_from, convert_to */
    *ret = form_named(st->a[1]->t[i]);
    if (*ret == FORM_NONE || letters != (*ret == FORM_UTF8))
        return sql_run_error(r, st, -EINVAL,
                             letters ? "texts are UTF-8: the encoding is 'UTF8'"
                                     : "bytes are written as 'hex', 'base64' or 'escape'");
    return 0;
}

static bool is_utf8(struct text t)
{
    const char *at = t.data, *end = t.data + t.size;
    while (at < end) {
        unsigned char head = (unsigned char)*at;
        uint32_t more = head < 0x80 ? 0 : head >= 0xf0 ? 3 : head >= 0xe0 ? 2 : 1;
        if (head == 0 || (head >= 0x80 && head < 0xc2) || head > 0xf4 || at + more >= end)
            return false;
        for (at++; more; more--, at++)
            if (((unsigned char)*at & 0xc0) != 0x80)
                return false;
    }
    return true;
}

/* encode(bytes, 'hex'), convert_from(bytes, 'UTF8') */
KERNEL(encode)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i];
        enum form form;
        int rc = which_form(r, st, i, &form);
        if (rc == 0 && form == FORM_UTF8 && !is_utf8(t))
            rc = sql_run_error(r, st, -EINVAL, "the bytes are no text in UTF-8");
        char *out = rc < 0 ? NULL : sql_scratch(r, (size_t)t.size * 4 + 8);
        if (!out)
            return rc < 0 ? rc : -ENOMEM;
        st->dst->t[i] = (struct text){out, write_form(form, t, out)};
    }
    return 0;
}

/* decode(text, 'hex'), convert_to(text, 'UTF8') */
KERNEL(decode)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i];
        enum form form;
        int rc = which_form(r, st, i, &form);
        char *out = rc < 0 ? NULL : sql_scratch(r, (size_t)t.size + 1);
        if (!out)
            return rc < 0 ? rc : -ENOMEM;
        int64_t size = read_form(form, t, out);
        if (size < 0)
            return sql_run_error(r, st, -EINVAL, "the text is not written so");
        st->dst->t[i] = (struct text){out, (uint32_t)size};
    }
    return 0;
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
    char *out = sql_scratch(r, 2 * (size_t)t.size + 3);
    if (!out)
        return -ENOMEM;
    memcpy(out, "\\x", 2);
    *ret = (struct text){out, 2 + write_form(FORM_HEX, t, out + 2)};
    return 0;
}

const struct func sql_bytes_funcs[] = {{"encode", "ot", 't', 0, encode},
                                       {"convert_from", "ot", 't', 0, encode},
                                       {"decode", "tt", 'o', 0, decode},
                                       {"convert_to", "tt", 'o', 0, decode},
                                       {NULL, NULL, 0, 0, NULL}};
