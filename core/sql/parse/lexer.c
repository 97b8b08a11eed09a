/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/lexer.c - a statement's text cut into words, numbers, strings and signs.
 *
 * Runs on the query's thread.  It knows no keywords: a word is a word.
 */
#include "core/sql/parse/ast.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/sql/value/unicode.h"

struct cutter {
    struct arena *arena;
    const char *text;
    uint32_t size, at;
    struct token *tokens;
    uint32_t n;
};

int sql_error(const char *text, size_t size, uint32_t pos, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)err_vset(code, format, args);
    va_end(args);
    uint32_t line = 1, column = 1;
    for (uint32_t i = 0; i < pos && i < size; i++) {
        if (text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)text[i] & 0xc0) != 0x80) { /* UTF-8: count letters, not bytes */
            column++;
        }
    }
    return err_set(code, "line %u, column %u: %s", line, column, err_text());
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char peek_char(const struct cutter *c, uint32_t ahead)
{
    return c->at + ahead < c->size ? c->text[c->at + ahead] : '\0';
}

static int skip_blanks(struct cutter *c)
{
    while (c->at < c->size) {
        char ch = peek_char(c, 0);
        if (ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r' || ch == '\f' || ch == '\v') {
            c->at++;
        } else if (ch == '-' && peek_char(c, 1) == '-') {
            while (c->at < c->size && c->text[c->at] != '\n')
                c->at++;
        } else if (ch == '/' && peek_char(c, 1) == '*') {
            uint32_t begin = c->at, depth = 0; /* they nest, as in PostgreSQL */
            do {
                bool opens = peek_char(c, 0) == '/' && peek_char(c, 1) == '*';
                bool closes = peek_char(c, 0) == '*' && peek_char(c, 1) == '/';
                depth += opens;
                depth -= closes;
                c->at += opens || closes ? 2 : 1;
            } while (depth && c->at < c->size);
            if (depth)
                return sql_error(c->text, c->size, begin, -EINVAL,
                                 "the comment that begins here is not closed with */");
        } else {
            break;
        }
    }
    return 0;
}

static int add_token(struct cutter *c, enum token_type type, uint32_t pos, const char *text,
                     uint32_t size)
{
    if (!text)
        return -ENOMEM;
    c->tokens[c->n++] = (struct token){type, pos, c->at, text, size};
    return 0;
}

static int cut_word(struct cutter *c)
{
    uint32_t pos = c->at;
    while (c->at < c->size &&
           (is_letter(peek_char(c, 0)) || is_digit(peek_char(c, 0)) || peek_char(c, 0) == '$'))
        c->at++;
    char *text = arena_text(c->arena, c->text + pos, c->at - pos);
    for (char *p = text; p && *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    return add_token(c, TOKEN_WORD, pos, text, c->at - pos);
}

static int cut_number(struct cutter *c)
{
    uint32_t pos = c->at;
    while (is_digit(peek_char(c, 0)))
        c->at++;
    if (peek_char(c, 0) == '.') {
        c->at++;
        while (is_digit(peek_char(c, 0)))
            c->at++;
    }
    char e = peek_char(c, 0);
    char sign = peek_char(c, 1);
    if ((e == 'e' || e == 'E') &&
        (is_digit(sign) || ((sign == '+' || sign == '-') && is_digit(peek_char(c, 2))))) {
        c->at += 2;
        while (is_digit(peek_char(c, 0)))
            c->at++;
    }
    if (is_letter(peek_char(c, 0)))
        return sql_error(c->text, c->size, pos, -EINVAL,
                         "a number is followed by a letter; names that begin with a digit need "
                         "double quotes");
    return add_token(c, TOKEN_NUMBER, pos, arena_text(c->arena, c->text + pos, c->at - pos),
                     c->at - pos);
}

/* 'text', "name", `name`; the quote itself is written twice. */
static int cut_quoted(struct cutter *c, char quote)
{
    uint32_t pos = c->at++;
    uint32_t end = c->at; /* where it may end at the latest */
    while (end < c->size &&
           (c->text[end] != quote || (end + 1 < c->size && c->text[end + 1] == quote)))
        end += c->text[end] == quote ? 2 : 1;
    char *out = arena_alloc(c->arena, end - pos + 1);
    uint32_t n = 0;
    if (!out)
        return -ENOMEM;
    for (;; c->at++) {
        if (c->at >= c->size)
            return sql_error(c->text, c->size, pos, -EINVAL,
                             "the %s that begins here is not closed with %c",
                             quote == '\'' ? "text" : "name", quote);
        char ch = c->text[c->at];
        if (ch == quote) {
            if (peek_char(c, 1) != quote)
                break;
            c->at++;
        }
        if (ch == '\0')
            return sql_error(c->text, c->size, c->at, -EINVAL, "a text contains a zero byte");
        out[n++] = ch;
    }
    c->at++;
    out[n] = '\0';
    if (n == 0 && quote != '\'')
        return sql_error(c->text, c->size, pos, -EINVAL, "a name is empty");
    return add_token(c, quote == '\'' ? TOKEN_STRING : TOKEN_QUOTED, pos, out, n);
}

/* One letter of e'...' at a backslash: \\n, \\x41, \\101, \\u00e4, \\U0001f600.  Its bytes. */
static uint32_t cut_escape(struct cutter *c, char out[UNICODE_BYTES])
{
    static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
    char ch = peek_char(c, 1);
    const char *letter = ch ? strchr(letters, ch) : NULL;
    bool wide = ch == 'u' || ch == 'U', octal = ch >= '0' && ch <= '7';
    uint32_t most = ch == 'U' ? 8 : ch == 'u' ? 4 : octal ? 3 : 2, value = 0, n = 0;
    const char *digits = octal ? "01234567" : "0123456789abcdef", *digit;
    c->at += octal ? 1 : 2;
    if (letter)
        out[0] = meant[letter - letters];
    if (letter || !(wide || octal || ch == 'x')) {
        out[0] = letter ? out[0] : ch;
        return ch != '\0';
    }
    for (; n < most && (digit = memchr(digits, peek_char(c, 0) | (octal ? 0 : 32), strlen(digits)));
         n++, c->at++)
        value = value * (uint32_t)strlen(digits) + (uint32_t)(digit - digits);
    if ((wide && n < most) || n == 0 || value == 0 || value > 0x10ffff ||
        (value >= 0xd800 && value < 0xe000) || (!wide && value > 0x7f))
        return 0;
    return unicode_put(value, out);
}

/* e'it\'s\n' */
static int cut_escaped(struct cutter *c)
{
    uint32_t pos = c->at, n = 0, end = pos + 2; /* where it may end at the latest */
    while (end < c->size && (c->text[end] != '\'' || peek_char(c, end + 1 - pos) == '\''))
        end += c->text[end] == '\\' || c->text[end] == '\'' ? 2 : 1;
    char *out = arena_alloc(c->arena, end - pos + 1);
    if (!out)
        return -ENOMEM;
    for (c->at += 2; c->at < c->size;) {
        char ch = peek_char(c, 0);
        uint32_t made = 1;
        if (ch == '\\') {
            uint32_t at = c->at;
            if ((made = cut_escape(c, out + n)) == 0)
                return sql_error(c->text, c->size, at, -EINVAL, "no letter is written so");
        } else if (ch == '\'' && peek_char(c, 1) != '\'') {
            c->at++;
            out[n] = '\0';
            return add_token(c, TOKEN_STRING, pos, out, n);
        } else if (ch == '\0') {
            break;
        } else {
            out[n] = ch;
            c->at += ch == '\'' ? 2 : 1;
        }
        n += made;
    }
    return sql_error(c->text, c->size, pos, -EINVAL,
                     "the text that begins here is not closed with '");
}

/* $$text$$, $word$text$word$: as it stands.  1: none begins here. */
static int cut_dollars(struct cutter *c)
{
    uint32_t pos = c->at, tag = 1;
    while (is_letter(peek_char(c, tag)) || (tag > 1 && is_digit(peek_char(c, tag))))
        tag++;
    if (peek_char(c, tag) != '$')
        return 1;
    tag++;
    const char *from = c->text + pos + tag;
    const char *end = memmem(from, c->size - pos - tag, c->text + pos, tag);
    if (!end)
        return sql_error(c->text, c->size, pos, -EINVAL,
                         "the text that begins here is not closed with %.*s",
                         (int)(tag < 60 ? tag : 60), c->text + pos);
    if (memchr(from, '\0', (size_t)(end - from)))
        return sql_error(c->text, c->size, pos, -EINVAL, "a text contains a zero byte");
    c->at = (uint32_t)(end - c->text) + tag;
    return add_token(c, TOKEN_STRING, pos, arena_text(c->arena, from, (size_t)(end - from)),
                     (uint32_t)(end - from));
}

/* Refuse a sign that means nothing here, with a hint where it means something elsewhere. */
static int refuse_char(const struct cutter *c, char ch)
{
    const char *hint = "";
    if (ch == '\\')
        hint =
            ": psql's commands are for the shell, `probing -t PID query`; in SQL write `show "
            "tables`"
            " for \\d and \\dt, `describe TABLE` for \\d TABLE, `show views`, `show schemas` and "
            "`show functions`";
    else if (ch == '$')
        hint = ": this begins a text ($$like this$$) or a macro of Grafana's PostgreSQL source, "
               "which nobody has replaced: write ts >= now() - interval '1 hour'";
    else if (ch == '?' || ch == '@' || ch == ':')
        hint = ": a statement has no parameters, write the value";
    if (ch > ' ' && ch < 127)
        return sql_error(c->text, c->size, c->at, -EINVAL, "unexpected '%c'%s", ch, hint);
    return sql_error(c->text, c->size, c->at, -EINVAL, "unexpected byte 0x%02x", (unsigned char)ch);
}

static int cut_sign(struct cutter *c)
{
    static const char *const signs[] = {"!~~*", "!~~", "~~*", "~~", "||/", "|/", "^@", "!~*",
                                        "::",   "<=",  ">=",  "<>", "!=",  "==", "||", "!~",
                                        "~*",   "->>", "->",  "<<", "#>>", "#>", ">>"};
    uint32_t pos = c->at;
    char ch = peek_char(c, 0);
    for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++) {
        size_t n = strlen(signs[i]);
        if (c->size - c->at >= n && memcmp(c->text + c->at, signs[i], n) == 0) {
            c->at += (uint32_t)n;
            return add_token(c, TOKEN_SIGN, pos, signs[i], (uint32_t)n);
        }
    }
    bool absolute =
        ch == '@' && !is_letter(peek_char(c, 1)); /* @ -5 is abs(-5); @name a parameter */
    if (ch == '\0' || (!absolute && !strchr("()+-*/%^=<>,.;~[]&|#", ch)))
        return refuse_char(c, ch);
    c->at++;
    return add_token(c, TOKEN_SIGN, pos, arena_text(c->arena, &ch, 1), 1);
}

/* The letters behind a backslash of u&'...' become what they stand for: \00e4, \+01f600. */
static int spell_unicode(struct cutter *c, struct token *t, char escape)
{
    char *out = arena_alloc(c->arena, t->size + 1), *to = out;
    const char *at = t->text, *end = t->text + t->size;
    if (!out)
        return -ENOMEM;
    while (at < end) {
        if (*at != escape) {
            *to++ = *at++;
            continue;
        }
        if (++at < end && *at == escape) {
            *to++ = *at++;
            continue;
        }
        int most = at < end && *at == '+' ? 6 : 4, n = 0;
        uint32_t value = 0;
        const char *digits = "0123456789abcdef", *digit;
        at += most == 6;
        for (; n < most && at < end && *at && (digit = strchr(digits, *at | 32)); n++, at++)
            value = value * 16 + (uint32_t)(digit - digits);
        if (n < most || value == 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
            return sql_error(c->text, c->size, t->pos, -EINVAL,
                             "a letter of u&'...' is written \\XXXX or \\+XXXXXX");
        to += unicode_put(value, to);
    }
    *to = '\0';
    t->text = out;
    t->size = (uint32_t)(to - out);
    return 0;
}

/* u&'d\0061ta', u&"d!0061ta" uescape '!' */
static int cut_unicode(struct cutter *c)
{
    uint32_t pos = c->at;
    char escape = '\\';
    c->at += 2;
    int rc = cut_quoted(c, peek_char(c, 0));
    if (rc < 0)
        return rc;
    struct token *t = &c->tokens[c->n - 1];
    t->pos = pos;
    uint32_t end = c->at;
    if ((rc = skip_blanks(c)) < 0)
        return rc;
    if (c->size - c->at > 7 && strncasecmp(c->text + c->at, "uescape", 7) == 0) {
        c->at += 7;
        if ((rc = skip_blanks(c)) < 0)
            return rc;
        escape = peek_char(c, 1);
        if (peek_char(c, 0) != '\'' || peek_char(c, 2) != '\'' || !escape || escape == '+')
            return sql_error(c->text, c->size, c->at, -EINVAL,
                             "uescape takes one character in quotes");
        end = c->at + 3;
    }
    c->at = t->end = end;
    return spell_unicode(c, t, escape);
}

static int cut_token(struct cutter *c)
{
    char ch = peek_char(c, 0);
    if ((ch == 'u' || ch == 'U') && peek_char(c, 1) == '&' &&
        (peek_char(c, 2) == '\'' || peek_char(c, 2) == '"'))
        return cut_unicode(c);
    if ((ch == 'n' || ch == 'N') && peek_char(c, 1) == '\'') { /* a text of national letters */
        c->at++;
        return cut_quoted(c, '\'');
    }
    if (strchr("bBxX", ch) && ch && peek_char(c, 1) == '\'')
        return sql_error(c->text, c->size, c->at, -EINVAL,
                         "bit strings are not supported: bits are those of a bigint (& | # ~ << "
                         ">>), and bytes are '\\x1f'::bytea");
    if ((ch == 'e' || ch == 'E') && peek_char(c, 1) == '\'')
        return cut_escaped(c);
    if (is_letter(ch))
        return cut_word(c);
    if (is_digit(ch) || (ch == '.' && is_digit(peek_char(c, 1))))
        return cut_number(c);
    if (ch == '\'' || ch == '"' || ch == '`')
        return cut_quoted(c, ch);
    int rc = ch == '$' ? cut_dollars(c) : 1;
    if (rc <= 0)
        return rc;
    return cut_sign(c);
}

int sql_tokens(struct arena *a, const char *text, size_t size, struct token **ret, uint32_t *ret_n)
{
    if (size > SQL_TEXT_BYTES)
        return err_set(-EINVAL, "the statement has %zu bytes; at most %d are read", size,
                       SQL_TEXT_BYTES);
    struct cutter c = {.arena = a, .text = text, .size = (uint32_t)size};
    uint32_t room = 64;
    c.tokens = arena_alloc(a, room * sizeof(*c.tokens));
    for (;;) {
        int rc = c.tokens ? skip_blanks(&c) : -ENOMEM;
        if (rc == 0 && c.n + 5 >= room) {
            struct token *more = arena_alloc(a, 2 * room * sizeof(*more));
            if (!more)
                return -ENOMEM;
            memcpy(more, c.tokens, c.n * sizeof(*more));
            c.tokens = more;
            room *= 2;
        }
        if (rc == 0 && c.at >= c.size)
            break;
        if (rc == 0)
            rc = cut_token(&c);
        if (rc < 0)
            return rc;
    }
    for (int i = 0; i < 4; i++) /* more than one, so that looking ahead stays inside */
        c.tokens[c.n++] = (struct token){TOKEN_END, c.size, c.size, "", 0};
    *ret = c.tokens;
    *ret_n = c.n;
    return 0;
}
