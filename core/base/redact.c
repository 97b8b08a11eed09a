/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/redact.c - see redact.h.
 *
 * Any thread; keeps nothing.  One pass from left to right: at the beginning of each word its shape
 * is looked at, and at its end whether something is assigned to it.
 */
#include "core/base/redact.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#define NAME_BYTES 64 /* the end of a longer word is its name */
#define RANDOM_BYTES 8
#define KEY_BYTES 128             /* of a long run of letters that is looked at for being a key */
#define WEB_BYTES 4096            /* of one that is looked at for being a web token */
#define NEAR_BYTES 256            /* behind a name that is a guess */
#define TYPE_BYTES 200            /* "<a type's name>" */
#define PEM_BYTES ((size_t)65536) /* of a key whose end has not come */
#define PEM_BEGIN "-----BEGIN "

struct text {
    const char *data;
    size_t n;
};

/* A secret's place in a text: text[at] to text[end]. */
struct span {
    size_t at, end;
    size_t quote; /* bytes of `around` that SECRET_SHOWN needs on both sides: JSON stays JSON */
    const char *around;
};

static bool has_word(const char *name, size_t n, const char *const *words)
{
    for (; *words; words++)
        for (size_t at = 0; at + strlen(*words) <= n; at++)
            if ((name[at] | 0x20) == **words && strncasecmp(name + at, *words, strlen(*words)) == 0)
                return true;
    return false;
}

bool secret_name_surely(const char *name, size_t n)
{
    static const char *const words[] = {"secret",     "passw",         "passphrase", "credential",
                                        "cookie",     "authorization", "private",    "apikey",
                                        "access_key", "access-key",    "api_key",    "api-key",
                                        NULL};
    return has_word(name, n, words);
}

bool secret_name(const char *name, size_t n)
{
    static const char *const words[] = {"token", "key", "auth", "license", NULL};
    return has_word(name, n, words) || secret_name_surely(name, n);
}

static char char_at(struct text t, size_t i)
{
    return i < t.n ? t.data[i] : '\0';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_word(char c)
{
    return is_letter(c) || c == '_' || c == '-' || c == '.';
}

static bool is_quote(char c)
{
    return c == '"' || c == '\'' || c == '`';
}

static size_t skip_chars(struct text t, size_t i, const char *these)
{
    while (i < t.n && t.data[i] != '\0' && strchr(these, t.data[i]))
        i++;
    return i;
}

static bool is_key(char c)
{
    return is_word(c) || c == '+' || c == '/' || c == '=' || c == '~';
}

/* ---- shapes ---- */

/* The password of "redis://user:word@host/0" stands between ':' and '@'.  The last '@' before the
 * path counts: a password may hold one. */
static bool is_password(struct text t, size_t i, struct span *ret)
{
    size_t colon = 0, end = 0;

    if (i + 3 > t.n || memcmp(t.data + i, "://", 3) != 0)
        return false;
    for (size_t p = i + 3; p < t.n && !memchr("/?# \t\n\"'", t.data[p], 9); p++) {
        colon = t.data[p] == ':' && !colon ? p : colon;
        end = t.data[p] == '@' ? p : end;
    }
    *ret = (struct span){.at = colon + 1, .end = end};
    return colon > 0 && end > colon + 1;
}

static bool is_pem(struct text t, size_t i, struct span *ret)
{
    static const char begin[] = PEM_BEGIN, kind[] = "PRIVATE KEY", last[] = "-----END ";

    if (i + sizeof(begin) > t.n || memcmp(t.data + i, begin, sizeof(begin) - 1) != 0)
        return false;
    size_t line = i + sizeof(begin) - 1, room = t.n - line < 60 ? t.n - line : 60;
    if (!memmem(t.data + line, room, kind, sizeof(kind) - 1))
        return false;
    const char *end = memmem(t.data + line, t.n - line, last, sizeof(last) - 1);
    const char *dashes = end ? memmem(end + 9, t.n - (size_t)(end + 9 - t.data), "-----", 5) : NULL;
    *ret = (struct span){.at = i, .end = dashes ? (size_t)(dashes + 5 - t.data) : t.n};
    return true;
}

/* Keys that their makers have given a beginning to be found by, so that nobody publishes them. */
static bool is_known_key(struct text t, size_t i, struct span *ret)
{
    static const struct {
        const char *begin;
        size_t least; /* bytes of the whole key */
    } keys[] = {{"AKIA", 16},     {"ASIA", 16},  {"ghp_", 20},     {"gho_", 20},
                {"ghu_", 20},     {"ghs_", 20},  {"ghr_", 20},     {"github_pat_", 30},
                {"glpat-", 20},   {"sk-", 20},   {"sk_live_", 16}, {"sk_test_", 16},
                {"rk_live_", 16}, {"xoxa-", 15}, {"xoxb-", 15},    {"xoxp-", 15},
                {"xoxr-", 15},    {"xoxs-", 15}, {"xapp-", 15},    {"hf_", 24},
                {"AIza", 30},     {"ya29.", 20}, {"npm_", 30},     {"pypi-", 40},
                {"dop_v1_", 30},  {"SG.", 40},   {"eyJ", 30}};
    if (!memchr("AghsrxynpdSe", t.data[i], 12)) /* what they begin with */
        return false;
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        size_t n = strlen(keys[k].begin), end = i;
        uint32_t dots = 0, digits = 0;
        bool web = strcmp(keys[k].begin, "eyJ") == 0; /* {" in base64: a JSON web token */
        if (i + n > t.n || memcmp(t.data + i, keys[k].begin, n) != 0)
            continue;
        for (size_t most = web ? WEB_BYTES : KEY_BYTES;
             end < t.n && is_key(t.data[end]) && end - i < most; end++) {
            dots += t.data[end] == '.';
            digits += t.data[end] >= '0' && t.data[end] <= '9';
        }
        bool is = end - i >= keys[k].least && (web ? dots >= 2 : digits > 0);
        while (is && end < t.n && is_key(t.data[end]))
            end++;
        *ret = (struct span){.at = i, .end = end};
        return is;
    }
    return false;
}

/* ---- what is assigned to a name ---- */

/* The end of a quoted text whose opening quote, with `slashes` before it, ends at i. */
static size_t find_closing_quote(struct text t, size_t i, char quote, size_t slashes, bool triple)
{
    size_t run = 0;

    for (; i < t.n; i++) {
        bool ends = t.data[i] == quote && (slashes ? run == slashes : run % 2 == 0);
        if (ends && (!triple || (char_at(t, i + 1) == quote && char_at(t, i + 2) == quote)))
            return i - (slashes ? run : 0);
        run = t.data[i] == '\\' ? run + 1 : 0;
    }
    return t.n;
}

/* Behind brackets, with what is quoted in them. */
static size_t skip_brackets(struct text t, size_t i)
{
    size_t depth = 0;

    do {
        char c = t.data[i];
        if (c == '"' || c == '\'')
            i = find_closing_quote(t, i + 1, c, 0, false);
        depth += strchr("([{", c) != NULL;
        depth -= strchr(")]}", c) != NULL;
        i++;
    } while (i < t.n && depth > 0 && t.data[i] != '\0');
    return i < t.n ? i : t.n;
}

static size_t bare_end(struct text t, size_t i, const char *stops)
{
    while (i < t.n && t.data[i] != '\0' && !strchr(stops, t.data[i])) {
        bool nested = strchr("([{", t.data[i]) != NULL;
        i = nested ? skip_brackets(t, i) : i + 1;
    }
    return i;
}

static bool is_one_of(struct text t, const char *const *words)
{
    for (; *words; words++)
        if (strlen(*words) == t.n && memcmp(*words, t.data, t.n) == 0)
            return true;
    return false;
}

/* Says nothing, whatever its name: None, a type's name; a number where the name is a guess. */
static bool is_harmless(struct text value, bool surely)
{
    static const char *const words[] = {"None", "null",  "NULL",       "nil", "True", "False",
                                        "true", "false", SECRET_SHOWN, "",    NULL};
    bool number = true;

    for (size_t i = 0; i < value.n; i++)
        number = number && strchr("0123456789+-.eExX_", value.data[i]) && value.data[i] != '\0';
    if (is_one_of(value, words))
        return true;
    bool type = value.n > 1 && value.n < TYPE_BYTES && value.data[0] == '<' &&
                value.data[value.n - 1] == '>';
    if (type)
        return !memchr(value.data, '\'', value.n) && !memchr(value.data, '=', value.n);
    return number && !surely;
}

/* In prose ("the key: to be found there") only what looks as if nobody had thought of it. */
static bool is_random(struct text value)
{
    bool digit = false;

    for (size_t i = 0; i < value.n; i++)
        digit = digit || (value.data[i] >= '0' && value.data[i] <= '9');
    return value.n >= RANDOM_BYTES && digit;
}

struct name {
    size_t at, end;
    bool surely;
    size_t slashes; /* before its quotes */
    char quote;     /* '\0': it has none */
    bool option;    /* --token */
};

static bool read_quoted(struct text t, size_t i, struct span *ret)
{
    size_t q = i, slashes;

    while (q < i + 2 && strchr("bBrRuUfF", char_at(t, q)) && char_at(t, q) != '\0')
        q++; /* of Python: b'...' */
    slashes = skip_chars(t, q, "\\") - q;
    char quote = char_at(t, q + slashes);
    if (!is_quote(quote))
        return false;
    q += slashes + 1;
    bool triple = char_at(t, q) == quote && char_at(t, q + 1) == quote;
    q += triple ? 2 : 0;
    *ret = (struct span){.at = q, .end = find_closing_quote(t, q, quote, slashes, triple)};
    return true;
}

/* Read a value that is not quoted; the name before it may be. */
static void read_bare(struct text t, size_t i, const struct name *name, char sign, struct span *ret)
{
    static const char *const schemes[] = {"Bearer", "Basic", "Digest", "Token", "token", NULL};
    bool line = sign == ':' && (name->quote || (name->surely && char_at(t, i - 1) != ':'));
    bool guess = sign == ':' && !name->quote && !name->surely;
    struct text near = {t.data, t.n - i < NEAR_BYTES ? t.n : i + NEAR_BYTES};
    size_t end = bare_end(guess ? near : t, i, line ? ",;)]}\r\n" : " \t\r\n,;&|)]}\"'`");
    struct text word = {t.data + i, end - i};

    if (!line && char_at(t, end) == ' ' && is_one_of(word, schemes))
        end = bare_end(t, end + 1, " \t\r\n,;&|)]}\"'`");
    while (end > i && (t.data[end - 1] == ' ' || t.data[end - 1] == '\t'))
        end--;
    if (guess && is_random((struct text){t.data + i, end - i}))
        end = bare_end(t, i, " \t\r\n,;&|)]}\"'`");
    *ret = (struct span){.at = i, .end = end};
    if (name->quote) { /* {"pin": 1234}: with the quotes of the name before it */
        ret->quote = name->slashes + 1;
        ret->around = t.data + name->end;
    }
}

/* Behind ("token", the value; behind "name": "token", "value": what that is.  0: nothing of it. */
static size_t find_paired_value(struct text t, size_t i)
{
    static const char *const values[] = {"value", "default", "repr", "text", "result", NULL};
    struct span next;

    i = skip_chars(t, i, " \t\n");
    if (!read_quoted(t, i, &next) || char_at(t, next.at) == '-')
        return 0;
    struct text word = {t.data + next.at, next.end - next.at};
    size_t colon = skip_chars(t, skip_chars(t, next.end, "\\\"'"), " ");
    if (char_at(t, colon) != ':')
        return i;
    return is_one_of(word, values) ? skip_chars(t, colon + 1, " ") : 0;
}

/* The sign behind a name, i: the first byte after it and its quotes.  '\0': there is none.
 * *ret_i: where the value begins. */
static char find_assigned_value(struct text t, size_t i, const struct name *name, size_t *ret_i)
{
    size_t p = skip_chars(t, i, name->quote ? "])" : "]"), blanks = skip_chars(t, p, " \t");
    char sign = char_at(t, blanks), next = char_at(t, blanks + 1);

    *ret_i = blanks;
    if (sign == ':' && (next == ':' || (next == '/' && char_at(t, blanks + 2) == '/')))
        return '\0'; /* auth::login, private://host */
    if (sign == '=' || sign == ':') {
        bool two = next == '=' || (sign == '=' && next == '>');
        *ret_i = skip_chars(t, blanks + (two ? 2 : 1), " \t");
        return sign;
    }
    if (name->quote && sign == ',')
        return (*ret_i = find_paired_value(t, blanks + 1)) > 0 ? sign : '\0';
    return name->option && blanks > p && sign != '-' ? ' ' : '\0';
}

/* "token.py:12" is a place. */
static bool is_file(const char *word, size_t n)
{
    static const char *const ends[] = {".py", ".pyx", ".so", ".c",   ".cc",   ".cpp", ".h",
                                       ".rs", ".go",  ".js", ".lua", ".json", NULL};
    for (const char *const *e = ends; *e; e++)
        if (n > strlen(*e) && memcmp(word + n - strlen(*e), *e, strlen(*e)) == 0)
            return true;
    return false;
}

static bool read_name(struct text t, size_t i, size_t end, struct name *ret)
{
    size_t from = end - i > NAME_BYTES ? end - NAME_BYTES : i, slashes = 0;

    if (!secret_name(t.data + from, end - from) || is_file(t.data + from, end - from))
        return false;
    *ret = (struct name){.at = i,
                         .end = end,
                         .surely = secret_name_surely(t.data + from, end - from),
                         .option = t.data[i] == '-'};
    if (i > 0 && is_quote(t.data[i - 1])) {
        while (slashes + 1 < i && t.data[i - 2 - slashes] == '\\')
            slashes++;
        if (char_at(t, end + slashes) == t.data[i - 1]) {
            ret->quote = t.data[i - 1];
            ret->slashes = slashes;
        }
    }
    return true;
}

/* Is the word from i to end a secret's name, and what is assigned to it? */
static bool is_assigned(struct text t, size_t i, size_t end, struct span *ret)
{
    struct name name;
    size_t value;

    if (!read_name(t, i, end, &name))
        return false;
    char sign = find_assigned_value(t, name.quote ? end + name.slashes + 1 : end, &name, &value);
    if (sign == '\0' || value >= t.n)
        return false;
    bool quoted = read_quoted(t, value, ret);
    if (!quoted)
        read_bare(t, value, &name, sign, ret);
    struct text found = {t.data + ret->at, ret->end - ret->at};
    if (is_harmless(found, name.surely))
        return false;
    return quoted || name.quote || name.surely || sign != ':' || is_random(found);
}

/* ---- all together ---- */

/* Does a word begin at i?  "\npassword" in a repr has a letter before it. */
static bool begins_word(struct text t, size_t i)
{
    bool escape = i > 1 && t.data[i - 2] == '\\' && strchr("nrt", t.data[i - 1]) != NULL;
    return is_word(t.data[i]) && (i == 0 || escape || !is_word(t.data[i - 1]));
}

/* The next secret from there on. */
static bool next_secret(struct text t, size_t from, struct span *ret)
{
    for (size_t i = from; i < t.n; i++) {
        *ret = (struct span){.at = i};
        if (t.data[i] == ':' && is_password(t, i, ret))
            return true;
        if (!is_word(t.data[i]) || (i > 0 && is_letter(t.data[i - 1]) && !begins_word(t, i)))
            continue;
        if (is_pem(t, i, ret) || is_known_key(t, i, ret))
            return true;
        size_t end = i;
        while (begins_word(t, i) && end < t.n && is_word(t.data[end]))
            end++;
        char sign = char_at(t, skip_chars(t, end, "\\\"'`]) \t"));
        bool may = sign == '=' || sign == ':' || sign == ',' || t.data[i] == '-';
        if (may && end > i && is_assigned(t, i, end, ret))
            return true;
    }
    return false;
}

size_t secret_whole(const char *text, size_t n)
{
    const char *last = n > 0 ? memrchr(text, '\n', n) : NULL, *from = text;
    size_t whole = last ? (size_t)(last + 1 - text) : 0;

    for (const char *begin;
         (begin = memmem(from, n - (size_t)(from - text), PEM_BEGIN, strlen(PEM_BEGIN))) != NULL;) {
        struct span key = {.at = 0};
        size_t i = (size_t)(begin - text);
        from = begin + strlen(PEM_BEGIN);
        bool near = i < whole && n - i < PEM_BYTES;
        if (near && is_pem((struct text){text, n}, i, &key) && key.end == n)
            return i;
    }
    return whole;
}

int secret_text(const char *text, size_t n, struct buf *ret)
{
    struct text t = {text, n};
    struct span found;
    size_t done = 0;
    int hidden = 0;

    while (next_secret(t, done, &found)) {
        (void)buf_add(ret, text + done, found.at - done);
        (void)buf_add(ret, found.around, found.quote);
        (void)buf_adds(ret, SECRET_SHOWN);
        (void)buf_add(ret, found.around, found.quote);
        done = found.end;
        hidden = 1;
    }
    int rc = buf_add(ret, text + done, n - done);
    return rc < 0 ? rc : hidden;
}

/* MYSQL_PWD, SMTP_PASS: names of settings only, as in a text "forward_pass" is none. */
static bool ends_as_password(const char *name, size_t n)
{
    static const char *const ends[] = {"_pass", "_pwd", "_pw", ".pass", "-pass", NULL};
    for (const char *const *end = ends; *end; end++) {
        size_t k = strlen(*end);
        if (n > k && strncasecmp(name + n - k, *end, k) == 0)
            return true;
    }
    return false;
}

int secret_show(const char *name, size_t name_n, const char *value, struct buf *ret)
{
    if (secret_name(name, name_n) || ends_as_password(name, name_n))
        return buf_adds(ret, value[0] ? SECRET_SHOWN : "");
    int rc = secret_text(value, strlen(value), ret);
    return rc < 0 ? rc : 0;
}
