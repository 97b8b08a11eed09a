/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/placeholder.c - finds `?` and `$1` in a statement, so that a client can put values
 * there before it is parsed.
 *
 * Any thread.  Texts, quoted names and comments are passed over as the lexer reads them; what is
 * not closed ends the search, and the lexer will say so.
 */
#include <string.h>

#include "core/sql/sql.h"

static bool is_name(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           ch == '_';
}

static bool is_digit(char ch)
{
    return ch >= '0' && ch <= '9';
}

/* Where a text or name that begins at `at` ends.  A doubled quote closes and opens again, which
 * comes to the same; in E'...' a backslash hides the next character. */
static size_t end_of_quoted(const char *text, size_t size, size_t at)
{
    char quote = text[at];
    bool escapes = quote == '\'' && at > 0 && (text[at - 1] == 'e' || text[at - 1] == 'E') &&
                   (at == 1 || !is_name(text[at - 2]));

    for (at++; at < size && text[at] != quote; at++)
        at += escapes && text[at] == '\\' ? 1 : 0;
    return at < size ? at + 1 : size;
}

/* Comments nest, as in the lexer. */
static size_t end_of_comment(const char *text, size_t size, size_t at)
{
    int depth = 0;

    if (text[at] == '-') {
        const char *end = memchr(text + at, '\n', size - at);
        return end ? (size_t)(end - text) : size;
    }
    for (; at + 1 < size; at++) {
        if (text[at] == '/' && text[at + 1] == '*') {
            depth++;
            at++;
        } else if (text[at] == '*' && text[at + 1] == '/') {
            at++;
            if (--depth == 0)
                return at + 1;
        }
    }
    return size;
}

/* $$text$$ or $tag$text$tag$; `at` itself where none begins there. */
static size_t end_of_dollars(const char *text, size_t size, size_t at)
{
    size_t tag = at + 1;

    while (tag < size && is_name(text[tag]) && (tag > at + 1 || !is_digit(text[tag])))
        tag++;
    if (tag >= size || text[tag] != '$')
        return at;
    tag++;
    const char *end = memmem(text + tag, size - tag, text + at, tag - at);
    return end ? (size_t)(end - text) + tag - at : size;
}

/* The number of `$12`; 0: none, or more than 999. */
static uint32_t read_number(const char *text, size_t size, size_t *at)
{
    uint32_t number = 0;
    size_t i = *at + 1;

    while (i < size && is_digit(text[i]) && number < 1000)
        number = number * 10 + (uint32_t)(text[i++] - '0');
    if (number == 0 || number >= 1000 || (i < size && is_name(text[i])))
        return 0;
    *at = i;
    return number;
}

bool sql_next_placeholder(const char *text, size_t size, struct sql_placeholder *p)
{
    size_t at = p->end;

    while (at < size) {
        char ch = text[at], next = at + 1 < size ? text[at + 1] : '\0';
        bool in_name = at > 0 && is_name(text[at - 1]);
        size_t end = at;
        if (ch == '\'' || ch == '"')
            at = end_of_quoted(text, size, at);
        else if ((ch == '-' && next == '-') || (ch == '/' && next == '*'))
            at = end_of_comment(text, size, at);
        else if (ch == '?') {
            uint32_t number = p->counted + 1;
            *p = (struct sql_placeholder){at, at + 1, number, number};
            return true;
        } else if (ch == '$' && !in_name && is_digit(next) &&
                   (p->number = read_number(text, size, &end)) > 0) {
            *p = (struct sql_placeholder){at, end, p->number, p->counted};
            return true;
        } else if (ch == '$' && !in_name && (end = end_of_dollars(text, size, at)) > at)
            at = end;
        else
            at++;
    }
    return false;
}
