/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/printable.c - see printable.h.
 *
 * Any thread; keeps nothing.
 */
#include "core/base/printable.h"

#include <stdint.h>
#include <string.h>

#define LETTER_BYTES 4 /* of UTF-8 at most */

struct range {
    uint32_t first, last;
};

/* Unicode 15: the categories Cc, Cf, Zl, Zp and Cs, the fillers and the characters that nothing may
 * be (noncharacters).  In order. */
static const struct range hidden[] = {
    {0x7f, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},     {0x600, 0x605},
    {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
    {0x8e2, 0x8e2},     {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},
    {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},   {0x3164, 0x3164},
    {0xfdd0, 0xfdef},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xfffb},
    {0xfffe, 0xffff},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},
    {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0x1fffe, 0x1ffff}, {0xe0000, 0xe0fff}};

static bool is_hidden(uint32_t code)
{
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]) && code >= hidden[i].first; i++)
        if (code <= hidden[i].last)
            return true;
    return false;
}

/* The shortest form only (RFC 3629).  Gives its bytes, 0 where the rest is missing, 1 with
 * *ret_code UINT32_MAX for a byte that begins no letter. */
static size_t decode_letter(const unsigned char *p, size_t n, uint32_t *ret_code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;

    *ret_code = UINT32_MAX;
    if (size == 0)
        return 1;
    uint32_t code = size == 1 ? *p : *p & (0xffu >> (size + 1));
    for (size_t i = 1; i < size; i++) {
        if (i == n)
            return 0;
        if ((p[i] & 0xc0) != 0x80)
            return 1;
        code = code << 6 | (p[i] & 0x3fu);
    }
    if (code >= least[size] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff))
        *ret_code = code;
    return *ret_code == code ? size : 1;
}

size_t printable_letter(const char *text, size_t n, bool *ret_plain)
{
    uint32_t code;
    size_t size = decode_letter((const unsigned char *)text, n, &code);

    *ret_plain = code >= 0x20 && code != UINT32_MAX && !is_hidden(code);
    return size;
}

size_t printable_open_end(const char *text, size_t n)
{
    bool plain;

    for (size_t back = 1; back < LETTER_BYTES && back <= n; back++)
        if (printable_letter(text + n - back, back, &plain) == 0)
            return back;
    return 0;
}

static void add_escape(struct buf *b, const char *text, size_t n)
{
    uint32_t code;

    (void)decode_letter((const unsigned char *)text, n, &code);
    if (code == '\n' || code == '\r' || code == '\t')
        (void)buf_adds(b, code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t");
    else if (code < 0x80 || code == UINT32_MAX)
        (void)buf_addf(b, "\\x%02x", (unsigned)(unsigned char)*text);
    else
        (void)buf_addf(b, code < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)code);
}

int printable_add(struct buf *b, const char *text, size_t n, const char *keep)
{
    size_t plain = 0; /* bytes at the end of what was looked at that can be added at once */
    size_t at = 0;

    while (at < n) {
        bool shown;
        size_t size = printable_letter(text + at, n - at, &shown);
        shown = shown || (size == 1 && text[at] != '\0' && strchr(keep, text[at]) != NULL);
        if (shown) {
            plain += size;
            at += size;
            continue;
        }
        size = size > 0 ? size : 1;
        (void)buf_add(b, text + at - plain, plain);
        plain = 0;
        add_escape(b, text + at, size);
        at += size;
    }
    return buf_add(b, text + at - plain, plain);
}
