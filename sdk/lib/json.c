/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/json.c - a recursive reader of bounded depth, and the two writers that are not trivial.
 *
 * Owner's thread only.  It keeps numbers as written beside their values, so no digit is lost.
 */
#include "sdk/lib/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sdk/lib/json_text.h"
#include "sdk/lib/number.h"
#include "sdk/lib/utf8.h"

struct reader {
    struct arena *arena;
    const char *text;
    size_t size;
    size_t at;
    int depth;
    const char *what; /* is wrong */
};

static int refuse_text(struct reader *r, const char *what)
{
    r->what = what;
    return -EINVAL;
}

static int no_memory(struct reader *r)
{
    r->what = "no memory";
    return -ENOMEM;
}

static void skip_blanks(struct reader *r)
{
    while (r->at < r->size && (r->text[r->at] == ' ' || r->text[r->at] == '\t' ||
                               r->text[r->at] == '\n' || r->text[r->at] == '\r'))
        r->at++;
}

static int peek_byte(const struct reader *r)
{
    return r->at < r->size ? (unsigned char)r->text[r->at] : -1;
}

static int read_hex4(struct reader *r, uint32_t *ret)
{
    uint32_t value = 0;
    if (r->size - r->at < 4)
        return refuse_text(r, "\\u needs four hexadecimal digits");
    for (int i = 0; i < 4; i++, r->at++) {
        char c = r->text[r->at];
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            digit = (uint32_t)((c | 32) - 'a' + 10);
        else
            return refuse_text(r, "\\u needs four hexadecimal digits");
        value = value << 4 | digit;
    }
    *ret = value;
    return 0;
}

/* The escape after a backslash, into out. */
static int read_escape(struct reader *r, char *out, size_t *size)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = peek_byte(r);
    if (c == 'u') {
        uint32_t high, low;
        r->at++;
        if (read_hex4(r, &high))
            return -EINVAL;
        if (high >= 0xd800 && high < 0xdc00) {
            if (r->size - r->at < 2 || r->text[r->at] != '\\' || r->text[r->at + 1] != 'u')
                return refuse_text(r, "half of a surrogate pair");
            r->at += 2;
            if (read_hex4(r, &low))
                return -EINVAL;
            if (low < 0xdc00 || low > 0xdfff)
                return refuse_text(r, "half of a surrogate pair");
            high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        } else if (high >= 0xdc00 && high < 0xe000) {
            return refuse_text(r, "half of a surrogate pair");
        }
        *size += text_utf8_put(out + *size, high);
        return 0;
    }
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (!found)
        return refuse_text(r, "unknown escape");
    out[(*size)++] = to[found - from];
    r->at++;
    return 0;
}

static int read_string(struct reader *r, const char **ret, size_t *ret_size)
{
    size_t start = ++r->at, end = start, size = 0;
    while (end < r->size && r->text[end] != '"')
        end += r->text[end] == '\\' ? 2 : 1;
    if (end >= r->size)
        return refuse_text(r, "the string has no end");
    char *out = arena_alloc(r->arena, end - start + 1); /* unescaped is never longer */
    if (!out)
        return no_memory(r);
    while (r->text[r->at] != '"') {
        unsigned char c = (unsigned char)r->text[r->at];
        if (c == '\\') {
            r->at++;
            int rc = read_escape(r, out, &size);
            if (rc)
                return rc;
            continue;
        }
        size_t n = text_utf8_length(r->text + r->at, r->size - r->at);
        if (c < 0x20)
            return refuse_text(r, "a control character in a string must be escaped");
        if (n == 0)
            return refuse_text(r, "not UTF-8");
        memcpy(out + size, r->text + r->at, n);
        size += n;
        r->at += n;
        if (r->at >= r->size)
            return refuse_text(r, "the string has no end");
    }
    r->at++;
    out[size] = '\0';
    *ret = out;
    *ret_size = size;
    return 0;
}

static size_t skip_digits(struct reader *r)
{
    size_t start = r->at;
    while (peek_byte(r) >= '0' && peek_byte(r) <= '9')
        r->at++;
    return r->at - start;
}

static int read_number(struct reader *r, struct json *out)
{
    size_t start = r->at;
    bool plain = true;
    if (peek_byte(r) == '-')
        r->at++;
    bool zero = peek_byte(r) == '0';
    size_t n = skip_digits(r);
    if (n == 0 || (zero && n > 1))
        return refuse_text(r, "not a number");
    if (peek_byte(r) == '.') {
        plain = false;
        r->at++;
        if (skip_digits(r) == 0)
            return refuse_text(r, "digits must follow the decimal point");
    }
    if (peek_byte(r) == 'e' || peek_byte(r) == 'E') {
        plain = false;
        r->at++;
        if (peek_byte(r) == '+' || peek_byte(r) == '-')
            r->at++;
        if (skip_digits(r) == 0)
            return refuse_text(r, "digits must follow the exponent");
    }
    out->type = JSON_NUMBER;
    out->size = r->at - start;
    out->text = arena_text(r->arena, r->text + start, out->size);
    if (!out->text)
        return no_memory(r);
    out->is_integer = plain && number_i64(out->text, out->size, &out->integer) == 0;
    if (number_f64(out->text, out->size, &out->number))
        return refuse_text(r, "the number is too long or too large");
    return 0;
}

static int read_value(struct reader *r, struct json *out);

/* Members up to `close`; an object's have keys. */
static int read_members(struct reader *r, struct json *out, char close)
{
    struct json **last = &out->first;
    r->at++;
    skip_blanks(r);
    if (peek_byte(r) == close) {
        r->at++;
        return 0;
    }
    for (;;) {
        struct json *member = arena_zalloc(r->arena, 1, sizeof(*member));
        size_t key_size;
        if (!member)
            return no_memory(r);
        skip_blanks(r);
        if (close == '}') {
            if (peek_byte(r) != '"')
                return refuse_text(r, "a key in double quotes was expected");
            int rc = read_string(r, &member->key, &key_size);
            if (rc)
                return rc;
            skip_blanks(r);
            if (peek_byte(r) != ':')
                return refuse_text(r, "':' was expected after the key");
            r->at++;
        }
        int rc = read_value(r, member);
        if (rc)
            return rc;
        *last = member;
        last = &member->next;
        out->size++;
        skip_blanks(r);
        int c = peek_byte(r);
        if (c != ',' && c != close)
            return refuse_text(r, close == '}' ? "',' or '}' was expected"
                                               : "',' or ']' was expected");
        r->at++;
        if (c == close)
            return 0;
    }
}

static int read_word(struct reader *r, const char *word, struct json *out)
{
    size_t n = strlen(word);
    if (r->size - r->at < n || memcmp(r->text + r->at, word, n) != 0)
        return refuse_text(r, "not a JSON value");
    out->type = word[0] == 'n' ? JSON_NULL : JSON_BOOL;
    out->boolean = word[0] == 't';
    r->at += n;
    return 0;
}

static int read_value(struct reader *r, struct json *out)
{
    skip_blanks(r);
    int c = peek_byte(r);
    switch (c) {
    case '{':
    case '[': {
        if (r->depth == JSON_DEPTH)
            return refuse_text(r, "nested too deeply (at most 64 levels)");
        r->depth++;
        out->type = c == '{' ? JSON_OBJECT : JSON_ARRAY;
        int rc = read_members(r, out, c == '{' ? '}' : ']');
        r->depth--;
        return rc;
    }
    case '"':
        out->type = JSON_STRING;
        return read_string(r, &out->text, &out->size);
    case 't':
        return read_word(r, "true", out);
    case 'f':
        return read_word(r, "false", out);
    case 'n':
        return read_word(r, "null", out);
    case -1:
        return refuse_text(r, "the text ends where a value was expected");
    }
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(r, out);
    return refuse_text(r, "not a JSON value");
}

int json_read(struct arena *a, const char *text, size_t size, struct json **ret,
              struct json_error *ret_error)
{
    struct reader r = {.arena = a, .text = text, .size = size};
    struct json *root = arena_zalloc(a, 1, sizeof(*root));
    int rc = root ? read_value(&r, root) : no_memory(&r);
    if (rc == 0)
        skip_blanks(&r);
    if (rc == 0 && r.at != size)
        rc = refuse_text(&r, "there is more after the value");
    if (rc == 0)
        *ret = root;
    else
        *ret_error = (struct json_error){.at = r.at, .what = r.what};
    return rc;
}

const struct json *json_get(const struct json *object, const char *key)
{
    if (!object || object->type != JSON_OBJECT)
        return NULL;
    for (const struct json *m = object->first; m; m = m->next) {
        if (strcmp(m->key, key) == 0)
            return m;
    }
    return NULL;
}

const char *json_text(const struct json *object, const char *key, const char *otherwise)
{
    const struct json *m = json_get(object, key);
    return m && m->type == JSON_STRING ? m->text : otherwise;
}

int64_t json_int(const struct json *object, const char *key, int64_t otherwise)
{
    const struct json *m = json_get(object, key);
    return m && m->type == JSON_NUMBER && m->is_integer ? m->integer : otherwise;
}

int json_add_text(struct buf *b, const char *text, size_t size)
{
    size_t run = 0; /* bytes before `i` that go out as they are */
    (void)buf_addc(b, '"');
    for (size_t i = 0; i < size;) {
        char letter[JSON_LETTER_BYTES];
        size_t bytes = 1, n = 1;
        bool plain = text[i] >= ' ' && text[i] < 0x7f && text[i] != '"' && text[i] != '\\';
        if (!plain) {
            n = json_letter(text + i, size - i, letter, &bytes);
            plain = n == bytes && memcmp(text + i, letter, n) == 0;
        }
        if (plain) {
            run += n;
        } else {
            (void)buf_add(b, text + i - run, run);
            (void)buf_add(b, letter, bytes);
            run = 0;
        }
        i += n;
    }
    (void)buf_add(b, text + size - run, run);
    return buf_addc(b, '"');
}

int json_add_f64(struct buf *b, double value)
{
    char text[32];
    if (isnan(value) || isinf(value))
        return buf_adds(b, "null");
    if (value == 0 && signbit(value)) /* many take -0 for an integer, which has no such */
        return buf_adds(b, "-0.0");
    return buf_add(b, text, format_f64(value, text));
}

void json_add_member_text(struct buf *b, const char *key, const char *text)
{
    (void)buf_addf(b, "\"%s\": ", key);
    if (text[0] != '\0')
        (void)json_add_text(b, text, strlen(text));
    else
        (void)buf_adds(b, "null");
    (void)buf_adds(b, ", ");
}

void json_add_member_int(struct buf *b, const char *key, int64_t value, int64_t none)
{
    if (value == none)
        (void)buf_addf(b, "\"%s\": null, ", key);
    else
        (void)buf_addf(b, "\"%s\": %" PRId64 ", ", key, value);
}
