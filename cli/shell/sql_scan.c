/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/shell/sql_scan.c - see sql_scan.h.  Texts and comments open and close as in
 * core/sql/parse/lexer.c; sql_scan_test.c asks the engine whether that is still so.
 */
#include "cli/shell/sql_scan.h"

#include <string.h>

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || (unsigned char)c >= 0x80;
}

/* "$$" or "$tag$": its size, 0: none begins here. */
static size_t tag_size(const char *text, size_t size)
{
    size_t n = 1;

    while (n < size && is_word(text[n]) && text[n] != '$' && !(n == 1 && text[n] <= '9'))
        n++;
    return n < size && text[n] == '$' && n + 1 < SQL_TAG_BYTES ? n + 1 : 0;
}

/* Inside of something: bytes up to its end, or all. */
static size_t skip_inside(struct sql_scan *s, const char *text, size_t size)
{
    size_t tag = strlen(s->tag), n = 1;

    switch (s->in) {
    case SCAN_COMMENT:
        if (size > 1 && memcmp(text, "/*", 2) == 0)
            s->depth++;
        else if (size < 2 || memcmp(text, "*/", 2) != 0)
            return 1;
        else if (--s->depth == 0)
            s->in = SCAN_PLAIN;
        return 2;
    case SCAN_ESCAPED:
        if (*text == '\\')
            return size > 1 ? 2 : 1;
        /* fall through */
    case SCAN_QUOTED:
        if (*text != s->quote)
            return 1;
        if (size > 1 && text[1] == s->quote)
            return 2;
        s->in = SCAN_PLAIN;
        return 1;
    case SCAN_DOLLARS:
        if (size >= tag && memcmp(text, s->tag, tag) == 0) {
            s->in = SCAN_PLAIN;
            n = tag;
        }
        return n;
    case SCAN_PLAIN:
        break;
    }
    return n;
}

/* Give the size of what begins at a place in plain text; before: the bytes in front of it. */
static size_t skip_plain(struct sql_scan *s, const char *text, size_t size, size_t before)
{
    char prefix = before > 0 ? text[-1] : '\0';
    bool in_word = before > 0 && is_word(prefix), escapes = prefix == 'e' || prefix == 'E';
    size_t tag = *text == '$' && !in_word ? tag_size(text, size) : 0;

    if (size > 1 && memcmp(text, "--", 2) == 0) {
        const char *end = memchr(text, '\n', size);
        return end != NULL ? (size_t)(end - text) : size;
    }
    if (size > 1 && memcmp(text, "/*", 2) == 0) {
        s->in = SCAN_COMMENT;
        s->depth = 1;
        return 2;
    }
    s->begun = s->begun || strchr(" \t\r\n\f\v", *text) == NULL;
    if (*text == '\'' || *text == '"' || *text == '`') {
        escapes = escapes && *text == '\'' && (before < 2 || !is_word(text[-2]));
        s->in = escapes ? SCAN_ESCAPED : SCAN_QUOTED;
        s->quote = *text;
    } else if (tag > 0) {
        s->in = SCAN_DOLLARS;
        memcpy(s->tag, text, tag);
        s->tag[tag] = '\0';
        return tag;
    }
    return 1;
}

size_t sql_scan_next(struct sql_scan *s, const char *text, size_t size)
{
    size_t at = 0;

    while (at < size) {
        if (s->in == SCAN_PLAIN && (text[at] == ';' || text[at] == '\\'))
            return at;
        at += s->in == SCAN_PLAIN ? skip_plain(s, text + at, size - at, at)
                                  : skip_inside(s, text + at, size - at);
    }
    return size;
}

char sql_scan_open(const struct sql_scan *s)
{
    switch (s->in) {
    case SCAN_COMMENT:
        return '*';
    case SCAN_QUOTED:
    case SCAN_ESCAPED:
        return s->quote;
    case SCAN_DOLLARS:
        return '$';
    case SCAN_PLAIN:
        break;
    }
    return '\0';
}
