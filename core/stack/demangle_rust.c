/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/demangle_rust.c - both ways in which rustc writes a path as a symbol: "legacy" (a C++
 * name with a hash as its last part) and "v0" (RFC 2603).
 *
 * Any thread, nothing kept.  Hashes, disambiguators, lifetimes and the crate that instantiated a
 * generic are left out.  What does not follow the grammar is refused; depth and work are limited,
 * because in v0 a part may stand for an earlier one.
 */
#include "core/stack/demangle_rust.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define DEPTH 64     /* of types in types */
#define WORK 4096    /* paths and types, those met again counted again */
#define HASH_PART 19 /* "17h" and sixteen hexadecimal digits */

struct rust {
    const char *begin, *p; /* begin: what backward references count from */
    char *out;
    size_t size, n;
    int depth, work;
    bool bad;
};

static void put_bytes(struct rust *r, const char *text, size_t n)
{
    size_t room = r->size - 1 - r->n;
    n = n < room ? n : room;
    memcpy(r->out + r->n, text, n);
    r->n += n;
}

static void put_text(struct rust *r, const char *text)
{
    put_bytes(r, text, strlen(text));
}

static bool eat_char(struct rust *r, char c)
{
    if (*r->p != c)
        return false;
    r->p++;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The value of a small hexadecimal digit, as rustc writes them; far below 0: it is none. */
static int hex_value(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1000;
}

/* Length of the part that begins here; 0: none, or it reaches over the end. */
static size_t read_length(struct rust *r)
{
    size_t value = 0;
    while (is_digit(*r->p) && value < 100000)
        value = value * 10 + (size_t)(*r->p++ - '0');
    return value;
}

/* ---- legacy ---- */

/* "$LT$" and the like; how many bytes of the name, 0: none of them. */
static size_t put_escape(struct rust *r, const char *p, size_t n)
{
    static const char *const names[][2] = {
        {"$SP$", "@"}, {"$BP$", "*"}, {"$RF$", "&"}, {"$LT$", "<"},
        {"$GT$", ">"}, {"$LP$", "("}, {"$RP$", ")"}, {"$C$", ","},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t size = strlen(names[i][0]);
        if (size <= n && memcmp(p, names[i][0], size) == 0) {
            put_text(r, names[i][1]);
            return size;
        }
    }
    if (n < 5 || p[1] != 'u' || p[4] != '$')
        return 0;
    int code = hex_value(p[2]) * 16 + hex_value(p[3]); /* below ' ' when a digit is none */
    if (code < ' ' || code > '~')
        return 0;
    put_bytes(r, &(char){(char)code}, 1);
    return 5;
}

static void put_part(struct rust *r, const char *p, size_t n)
{
    size_t i = n > 1 && p[0] == '_' && p[1] == '$';
    while (i < n) {
        size_t escape = p[i] == '$' ? put_escape(r, p + i, n - i) : 0;
        if (escape) {
            i += escape;
        } else if (i + 1 < n && p[i] == '.' && p[i + 1] == '.') {
            put_text(r, "::");
            i += 2;
        } else {
            put_bytes(r, p + i++, 1);
        }
    }
}

static bool is_hash(const char *part)
{
    return part[0] == 'h' && strspn(part + 1, "0123456789abcdef") >= 16;
}

static bool demangle_legacy(struct rust *r)
{
    const char *last = NULL;
    for (const char *p = r->p; is_digit(*p);) { /* is the last part a hash? */
        struct rust at = {.p = p};
        size_t n = read_length(&at);
        last = p;
        if (!n || strnlen(at.p, n) < n)
            return false;
        p = at.p + n;
        if (*p == 'E' && (n != HASH_PART - 2 || !is_hash(at.p)))
            return false;
        if (*p != 'E' && !is_digit(*p))
            return false;
    }
    for (bool first = true; r->p < last; first = false) {
        size_t n = read_length(r);
        if (!first)
            put_text(r, "::");
        put_part(r, r->p, n);
        r->p += n;
    }
    return last && r->n > 0;
}

/* ---- v0 ---- */

static void put_path(struct rust *r, bool in_type);
static void put_type(struct rust *r);

/* "_" is 0, "0_" 1, ... */
static uint64_t read_base62(struct rust *r)
{
    uint64_t value = 0;
    if (eat_char(r, '_'))
        return 0;
    for (; *r->p && *r->p != '_' && value < UINT64_MAX / 64; r->p++) {
        char c = *r->p;
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'z' ? c - 'a' + 10
                    : c >= 'A' && c <= 'Z' ? c - 'A' + 36
                                           : -1;
        if (digit < 0)
            break;
        value = value * 62 + (uint64_t)digit;
    }
    r->bad = r->bad || !eat_char(r, '_');
    return value + 1;
}

static uint64_t read_disambiguator(struct rust *r)
{
    return eat_char(r, 's') ? read_base62(r) + 1 : 0;
}

/* An identifier; ones in other than ASCII letters stay in their Punycode. */
static void put_name(struct rust *r, const char *before)
{
    (void)eat_char(r, 'u');
    size_t n = read_length(r);
    (void)eat_char(r, '_');
    if (strnlen(r->p, n) < n) {
        r->bad = true;
        return;
    }
    if (n)
        put_text(r, before);
    put_bytes(r, r->p, n);
    r->p += n;
}

/* Write again the part that stands at an earlier place. */
static void put_again(struct rust *r, void (*fn)(struct rust *r))
{
    const char *from = r->p - 1;
    uint64_t at = read_base62(r);
    const char *behind = r->p;
    if (r->bad || at >= (uint64_t)(from - r->begin)) {
        r->bad = true;
        return;
    }
    r->p = r->begin + at;
    fn(r);
    r->p = behind;
}

static void path_in_type(struct rust *r)
{
    put_path(r, /* in_type= */ true);
}

static void path_in_value(struct rust *r)
{
    put_path(r, /* in_type= */ false);
}

/* Read and not said. */
static void skip_path(struct rust *r)
{
    size_t n = r->n;
    (void)read_disambiguator(r);
    put_path(r, /* in_type= */ true);
    r->n = n;
}

static void put_const(struct rust *r)
{
    char number[24];
    uint64_t value = 0;
    if (eat_char(r, 'p')) {
        put_text(r, "_");
        return;
    }
    if (eat_char(r, 'B')) {
        put_again(r, put_const);
        return;
    }
    if (!*r->p)
        r->bad = true;
    else
        r->p++; /* its type: a number's, bool or char */
    if (eat_char(r, 'n'))
        put_text(r, "-");
    for (; *r->p && *r->p != '_' && !r->bad; r->p++) {
        r->bad = !is_digit(*r->p) && (*r->p < 'a' || *r->p > 'f');
        value = value << 4 | (uint64_t)(is_digit(*r->p) ? *r->p - '0' : *r->p - 'a' + 10);
    }
    r->bad = r->bad || !eat_char(r, '_');
    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)value);
    put_text(r, number);
}

static void put_arguments(struct rust *r)
{
    for (bool first = true; !r->bad && !eat_char(r, 'E');) {
        if (eat_char(r, 'L')) {
            (void)read_base62(r);
            continue;
        }
        put_text(r, first ? "" : ", ");
        first = false;
        if (eat_char(r, 'K'))
            put_const(r);
        else
            put_type(r);
    }
}

static void put_nested(struct rust *r, bool in_type)
{
    char space = *r->p, text[32];
    r->bad = r->bad || !space;
    r->p += !r->bad;
    put_path(r, in_type);
    uint64_t number = read_disambiguator(r);
    if (space >= 'a' && space <= 'z') {
        put_name(r, "::");
        return;
    }
    put_text(r, space == 'C' ? "::{closure" : space == 'S' ? "::{shim" : "::{");
    put_name(r, ":");
    (void)snprintf(text, sizeof(text), "#%llu}", (unsigned long long)number);
    put_text(r, text);
}

static bool enter_level(struct rust *r)
{
    r->bad = r->bad || ++r->work > WORK || r->depth >= DEPTH;
    r->depth++;
    return !r->bad;
}

static void put_path(struct rust *r, bool in_type)
{
    char tag = *r->p;
    if (enter_level(r)) {
        r->p += tag != '\0';
        switch (tag) {
        case 'C':
            (void)read_disambiguator(r);
            put_name(r, "");
            break;
        case 'M': /* <T> */
        case 'X': /* <T as trait> */
        case 'Y':
            if (tag != 'Y')
                skip_path(r);
            put_text(r, "<");
            put_type(r);
            if (tag != 'M') {
                put_text(r, " as ");
                put_path(r, /* in_type= */ true);
            }
            put_text(r, ">");
            break;
        case 'N':
            put_nested(r, in_type);
            break;
        case 'I':
            put_path(r, in_type);
            put_text(r, in_type ? "<" : "::<");
            put_arguments(r);
            put_text(r, ">");
            break;
        case 'B':
            put_again(r, in_type ? path_in_type : path_in_value);
            break;
        default: /* bytes from outside: no other is a path */
            r->bad = true;
        }
    }
    r->depth--;
}

static const char *basic_type(char c)
{
    static const char *const names[26] = {"i8",   "bool",  "char",  "f64", "str", "f32", NULL,
                                          "u8",   "isize", "usize", NULL,  "i32", "u32", "i128",
                                          "u128", "_",     NULL,    NULL,  "i16", "u16", "()",
                                          "...",  NULL,    "i64",   "u64", "!"};
    return c >= 'a' && c <= 'z' ? names[c - 'a'] : NULL;
}

/* "(A, B) -> C"; the way it is called is left out. */
static void put_function(struct rust *r)
{
    if (eat_char(r, 'G'))
        (void)read_base62(r);
    put_text(r, eat_char(r, 'U') ? "unsafe fn(" : "fn(");
    if (eat_char(r, 'K') && !eat_char(r, 'C')) {
        size_t n = r->n;
        put_name(r, "");
        r->n = n;
    }
    put_arguments(r);
    put_text(r, ")");
    if (eat_char(r, 'u'))
        return;
    put_text(r, " -> ");
    put_type(r);
}

static void put_dyn(struct rust *r)
{
    if (eat_char(r, 'G'))
        (void)read_base62(r);
    put_text(r, "dyn ");
    for (bool first = true; !r->bad && !eat_char(r, 'E'); first = false) {
        put_text(r, first ? "" : " + ");
        put_path(r, /* in_type= */ true);
        while (!r->bad && eat_char(r, 'p')) {
            size_t n = r->n; /* associated types are left out */
            put_name(r, "");
            put_type(r);
            r->n = n;
        }
    }
    r->bad = r->bad || !eat_char(r, 'L');
    if (!r->bad)
        (void)read_base62(r);
}

static void put_list(struct rust *r, char tag)
{
    put_text(r, tag == 'T' ? "(" : "[");
    if (tag == 'T') {
        put_arguments(r);
    } else {
        put_type(r);
        if (tag == 'A') {
            put_text(r, "; ");
            put_const(r);
        }
    }
    put_text(r, tag == 'T' ? ")" : "]");
}

static void put_pointer(struct rust *r, char tag)
{
    put_text(r, tag == 'R' ? "&" : tag == 'Q' ? "&mut " : tag == 'P' ? "*const " : "*mut ");
    if ((tag == 'R' || tag == 'Q') && eat_char(r, 'L'))
        (void)read_base62(r);
    put_type(r);
}

static void put_type(struct rust *r)
{
    char tag = *r->p;
    if (enter_level(r)) {
        const char *name = basic_type(tag);
        if (name || (tag && strchr("ASTRQPOFDB", tag)))
            r->p++;
        if (name)
            put_text(r, name);
        else if (tag == 'A' || tag == 'S' || tag == 'T')
            put_list(r, tag);
        else if (tag == 'R' || tag == 'Q' || tag == 'P' || tag == 'O')
            put_pointer(r, tag);
        else if (tag == 'F')
            put_function(r);
        else if (tag == 'D')
            put_dyn(r);
        else if (tag == 'B')
            put_again(r, put_type);
        else
            put_path(r, /* in_type= */ true);
    }
    r->depth--;
}

bool rust_demangle(const char *name, char *ret, size_t size)
{
    struct rust r = {.out = ret, .size = size};
    bool found = false;
    if (size == 0)
        return false;
    if (strncmp(name, "_ZN", 3) == 0) {
        r.p = name + 3;
        found = demangle_legacy(&r);
    } else if (strncmp(name, "_R", 2) == 0 && !is_digit(name[2])) {
        r.begin = r.p = name + 2;
        put_path(&r, /* in_type= */ false);
        found = !r.bad && r.n > 0;
    }
    ret[r.n] = '\0';
    return found;
}
