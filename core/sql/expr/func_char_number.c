/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_char_number.c - to_char(number, '9G999D00'): PostgreSQL's patterns for
 * numbers, in its C locale.
 *
 * A pattern is read once into elements; then each of them that stands for a digit takes the next
 * one of the number, which was rounded to the places that the pattern has.  The host's locale does
 * not count.  The query's thread only.
 */
#include "core/sql/expr/kernel.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PATTERN_BYTES 1000 /* what is longer is no pattern for a number */
#define DIGITS_BYTES (DBL_MAX_10_EXP + 32 + 2 * PATTERN_BYTES)
#define ROMAN_WIDTH 15

enum element {
    DIGIT,
    ZERO,
    POINT,
    COMMA,
    GROUP,
    CURRENCY,
    MINUS,
    PLUS,
    SIGN,
    BRACKET,
    S_SIGN,
    ROMAN,
    ROMAN_SMALL,
    TH,
    TH_SMALL,
    FILL_MODE,
    SHIFT,
    EXPONENT,
    NOTHING,
    LITERAL
};

/* A word that begins with another stands before it; other cases than these mean nothing. */
static const struct {
    const char *word;
    enum element what;
} words[] = {{"EEEE", EXPONENT}, {"eeee", EXPONENT}, {"FM", FILL_MODE}, {"fm", FILL_MODE},
             {"MI", MINUS},      {"mi", MINUS},      {"PL", PLUS},      {"pl", PLUS},
             {"PR", BRACKET},    {"pr", BRACKET},    {"RN", ROMAN},     {"rn", ROMAN_SMALL},
             {"SG", SIGN},       {"sg", SIGN},       {"SP", NOTHING},   {"sp", NOTHING},
             {"TH", TH},         {"th", TH_SMALL},   {"9", DIGIT},      {"0", ZERO},
             {".", POINT},       {"D", POINT},       {"d", POINT},      {",", COMMA},
             {"G", GROUP},       {"g", GROUP},       {"L", CURRENCY},   {"l", CURRENCY},
             {"S", S_SIGN},      {"s", S_SIGN},      {"V", SHIFT},      {"v", SHIFT},
             {"B", NOTHING},     {"b", NOTHING},     {"C", NOTHING},    {"c", NOTHING}};

struct layout { /* of a pattern */
    struct {
        uint8_t what;
        char letter; /* LITERAL */
    } elements[PATTERN_BYTES];
    uint32_t n;
    int pre, post;                    /* digits before and behind the point */
    int zero_start, zero_end;         /* places: of the first 0, behind the last */
    int shift;                        /* V: digits behind it */
    int before_sign;                  /* digits before S */
    enum { S_NONE, S_PRE, S_POST } s; /* where S stands */
    bool zero, decimal, fill, minus, plus, bracket, roman, exponent, shifted;
};

/* ---- reading a pattern ---- */

static const char *add_digit(struct layout *l, bool zero)
{
    if (l->bracket)
        return "digits stand before PR";
    if (zero) {
        if (!l->zero && !l->decimal) {
            l->zero = true;
            l->zero_start = l->pre;
        }
        l->pre += !l->decimal;
        l->post += l->decimal;
        l->zero_end = l->pre + l->post;
    } else if (l->shifted) {
        l->shift++;
    } else {
        l->pre += !l->decimal;
        l->post += l->decimal;
    }
    return NULL;
}

static const char *add_sign(struct layout *l, enum element what)
{
    if (what == S_SIGN) {
        if (l->s != S_NONE || l->plus || l->minus || l->bracket)
            return "S stands once, and without PL, MI, SG and PR";
        l->s = l->decimal ? S_POST : S_PRE;
        l->before_sign = l->decimal ? 0 : l->pre;
        return NULL;
    }
    if (l->s != S_NONE || (what == BRACKET && (l->plus || l->minus)))
        return "a number has one kind of sign: S, or PL, MI, SG, or PR";
    l->minus = l->minus || what == MINUS || what == SIGN;
    l->plus = l->plus || what == PLUS || what == SIGN;
    l->bracket = l->bracket || what == BRACKET;
    return NULL;
}

/* NULL: fine; else what is wrong with it. */
static const char *add_element(struct layout *l, enum element what)
{
    if (l->exponent)
        return "EEEE is the last of a pattern";
    switch (what) {
    case DIGIT:
    case ZERO:
        return add_digit(l, what == ZERO);
    case POINT:
        if (l->decimal || l->shifted)
            return l->decimal ? "a number has one point" : "V and a point exclude each other";
        l->decimal = true;
        return NULL;
    case MINUS:
    case PLUS:
    case SIGN:
    case BRACKET:
    case S_SIGN:
        return add_sign(l, what);
    case ROMAN:
    case ROMAN_SMALL:
        l->roman = true;
        return NULL;
    case FILL_MODE:
        l->fill = true;
        return NULL;
    case SHIFT:
        l->shifted = true;
        return l->decimal ? "V and a point exclude each other" : NULL;
    case EXPONENT:
        l->exponent = true;
        return l->fill || l->s != S_NONE || l->bracket || l->minus || l->plus || l->roman ||
                       l->shifted
                   ? "EEEE stands with digits and a point alone"
                   : NULL;
    case COMMA:
    case GROUP:
    case CURRENCY:
    case TH:
    case TH_SMALL:
    case NOTHING:
    case LITERAL:
        return NULL;
    }
    return NULL;
}

static void add_literal(struct layout *l, char letter)
{
    l->elements[l->n].what = LITERAL;
    l->elements[l->n++].letter = letter;
}

static const char *read_pattern(struct text t, struct layout *l)
{
    bool quoted = false;
    memset(l, 0, sizeof(*l));
    if (t.size > PATTERN_BYTES)
        return "it has more than 1000 bytes";
    for (uint32_t at = 0; at < t.size;) {
        size_t w = 0, n_words = sizeof(words) / sizeof(*words);
        char c = t.data[at];
        while (!quoted && w < n_words &&
               (t.size - at < strlen(words[w].word) ||
                memcmp(t.data + at, words[w].word, strlen(words[w].word)) != 0))
            w++;
        if (!quoted && w < n_words) {
            const char *why = add_element(l, words[w].what);
            if (why)
                return why;
            l->elements[l->n++].what = (uint8_t)words[w].what;
            at += (uint32_t)strlen(words[w].word);
        } else if (c == '"') {
            quoted = !quoted;
            at++;
        } else {
            bool escape = c == '\\' && at + 1 < t.size && (quoted || t.data[at + 1] == '"');
            at += escape;
            add_literal(l, t.data[at++]);
        }
    }
    return NULL;
}

/* ---- the number's digits ---- */

struct digits {
    char text[DIGITS_BYTES]; /* without its sign, with its point */
    char sign;
    int blanks; /* places of the pattern before its first digit */
};

/* Too many digits for the pattern are all #. */
static void fit(struct layout *l, struct digits *d)
{
    int pre = (int)strcspn(d->text, ".");
    d->blanks = pre < l->pre ? l->pre - pre : 0;
    if (pre <= l->pre)
        return;
    memset(d->text, '#', (size_t)(l->pre + l->post + 1));
    d->text[l->pre] = '.';
    d->text[l->pre + l->post + 1] = '\0';
}

static void digits_of_int(struct layout *l, int64_t x, struct digits *d)
{
    uint64_t size = x < 0 ? -(uint64_t)x : (uint64_t)x;
    int n = snprintf(d->text, sizeof(d->text), "%llu", (unsigned long long)size);
    d->sign = x < 0 ? '-' : '+';
    for (int i = 0; i < l->shift && x; i++)
        d->text[n++] = '0';
    l->pre += l->shift;
    if (l->post)
        d->text[n++] = '.';
    for (int i = 0; i < l->post; i++)
        d->text[n++] = '0';
    d->text[n] = '\0';
    fit(l, d);
}

/* The decimal digits of x with so many behind the point, of the 15 that a double surely has and
 * halves away from zero: as of a numeric. */
static double as_decimal(double x, int places)
{
    double scale = pow(10, places), scaled = x * scale;
    if (!isfinite(x) || places > 15)
        return x;
    double half = rint(scaled * 2) / 2;
    scaled = fabs(scaled - half) <= fabs(scaled) * 4.5e-16 ? half : scaled;
    return isfinite(scaled) ? round(scaled) / scale + 0.0 : x;
}

/* "%.*f" with a point, whatever the locale of the host has. */
static int fixed(char *out, double x, int places)
{
    int n = snprintf(out, DIGITS_BYTES, "%.*f", places, x);
    int whole = (int)strspn(out, "0123456789");
    if (!places)
        return n;
    memmove(out + whole + 1, out + n - places, (size_t)places + 1);
    out[whole] = '.';
    return whole + 1 + places;
}

static void digits_of_double(struct layout *l, double x, bool numeric, struct digits *d)
{
    x *= pow(10, l->shift);
    l->pre += l->shift;
    x = numeric ? as_decimal(x, l->post) : x;
    d->sign = signbit(x) && !isnan(x) ? '-' : '+';
    x = fabs(x);
    if (isnan(x) || isinf(x)) {
        (void)snprintf(d->text, sizeof(d->text), "%s", isnan(x) ? "NaN" : "Infinity");
    } else {
        int whole = snprintf(d->text, sizeof(d->text), "%.0f", x);
        int known = whole >= DBL_DIG ? 0 : DBL_DIG - whole, zeros = 0;
        if (l->post > known) { /* what a double cannot say: of a numeric it is zeros */
            zeros = numeric ? l->post - known : 0;
            l->post = known;
        }
        int n = fixed(d->text, x, l->post);
        if (zeros && !l->post)
            d->text[n++] = '.';
        memset(d->text + n, '0', (size_t)zeros);
        d->text[n + zeros] = '\0';
        l->post += zeros;
    }
    fit(l, d);
}

static int roman(int64_t x, bool small, bool fill, char *out)
{
    static const struct {
        int value;
        const char *letters;
    } steps[] = {{1000, "M"}, {900, "CM"}, {500, "D"}, {400, "CD"}, {100, "C"},
                 {90, "XC"},  {50, "L"},   {40, "XL"}, {10, "X"},   {9, "IX"},
                 {5, "V"},    {4, "IV"},   {1, "I"}};
    char letters[ROMAN_WIDTH + 1] = "";
    size_t n = 0;
    if (x < 1 || x > 3999)
        memset(letters, '#', ROMAN_WIDTH);
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) && x >= 1 && x <= 3999; i++)
        for (; x >= steps[i].value; x -= steps[i].value, n = strlen(letters))
            (void)snprintf(letters + n, sizeof(letters) - n, "%s", steps[i].letters);
    for (size_t i = 0; letters[i] && small; i++)
        letters[i] = (char)tolower((unsigned char)letters[i]);
    return snprintf(out, ROMAN_WIDTH + 1, "%*s", fill ? 0 : ROMAN_WIDTH, letters);
}

/* ---- writing ---- */

struct writing {
    struct layout *l;
    const struct digits *d;
    const char *at;            /* the next digit */
    const char *last_relevant; /* what is behind it is left out: FM; NULL: nothing is */
    char *to;
    int current, count; /* places */
    bool began;         /* a digit was written */
    bool signed_already;
};

static const char *last_relevant(const char *digits)
{
    const char *point = strchr(digits, '.'), *last = point;
    for (const char *p = point; p && *p; p++)
        last = *p != '0' ? p : last;
    return last;
}

static void begin(struct writing *w)
{
    struct layout *l = w->l;
    char sign = w->d->sign;
    if (l->plus || l->minus) {
        w->signed_already = l->minus; /* they write it themselves */
    } else {
        if (sign != '-' && l->fill)
            l->bracket = false;
        w->signed_already = sign == '+' && l->fill && l->s == S_NONE;
        if (l->s == S_PRE && l->pre == l->before_sign)
            l->s = S_POST;
    }
    w->count = l->post + l->pre - 1;
    if (l->fill && l->decimal)
        w->last_relevant = last_relevant(w->d->text);
    if (w->last_relevant && l->zero_end > w->d->blanks) {
        int last = (int)strlen(w->d->text) - 1, zero = l->zero_end - w->d->blanks;
        const char *zeros = w->d->text + (last < zero ? last : zero);
        w->last_relevant = w->last_relevant < zeros ? zeros : w->last_relevant;
    }
    w->count += !w->signed_already && w->d->blanks == 0;
}

/* 9.9 of 0.1 is " .1" */
static bool is_blank_zero(const struct writing *w)
{
    return !w->l->zero && w->at == w->d->text && *w->at == '0' && w->l->post != 0;
}

static bool ends_at_point(const struct writing *w)
{
    return w->last_relevant && *w->last_relevant == '.';
}

static void write_sign(struct writing *w)
{
    const struct layout *l = w->l;
    char sign = w->d->sign;
    bool here = w->current >= w->d->blanks || (l->zero && l->zero_start == w->current);
    if (w->signed_already || !here || (is_blank_zero(w) && !ends_at_point(w)))
        return;
    if (l->s != S_NONE) {
        if (l->s == S_PRE) {
            *w->to++ = sign;
            w->signed_already = true;
        }
        return;
    }
    if (l->bracket)
        *w->to++ = sign == '+' ? ' ' : '<';
    else if (sign == '-')
        *w->to++ = '-';
    else if (!l->fill)
        *w->to++ = ' ';
    w->signed_already = true;
}

static void write_place(struct writing *w, enum element what)
{
    const struct layout *l = w->l;
    if (w->current < w->d->blanks && (l->zero_start > w->current || !l->zero)) {
        if (!l->fill)
            *w->to++ = ' ';
        return;
    }
    if (w->current < w->d->blanks) {
        *w->to++ = '0';
        w->began = true;
        return;
    }
    if (*w->at == '.') {
        if (!ends_at_point(w) || l->fill)
            *w->to++ = '.';
    } else if (w->last_relevant && w->at > w->last_relevant && what != ZERO) {
        /* left out */
    } else if (is_blank_zero(w)) {
        if (!l->fill)
            *w->to++ = ' ';
        else if (ends_at_point(w))
            *w->to++ = '0';
    } else if (*w->at) {
        *w->to++ = *w->at;
        w->began = true;
    }
    w->at += *w->at != '\0';
}

static void write_digit(struct writing *w, enum element what)
{
    const struct layout *l = w->l;
    w->began = false;
    write_sign(w);
    write_place(w, what);
    int end = w->count + (w->d->blanks ? 1 : 0) + l->decimal;
    if (w->last_relevant && w->last_relevant == w->at)
        end = w->current;
    if (w->current + 1 == end) {
        if (w->signed_already && l->bracket)
            *w->to++ = w->d->sign == '+' ? ' ' : '>';
        else if (l->s == S_POST)
            *w->to++ = w->d->sign;
    }
    w->current++;
}

static void write_th(struct writing *w, bool small)
{
    const struct layout *l = w->l;
    const char *text = w->d->text;
    size_t n = strlen(text);
    if (l->roman || *text == '#' || w->d->sign == '-' || l->decimal || !isdigit((int)text[n - 1]))
        return;
    char last = n > 1 && text[n - 2] == '1' ? '0' : text[n - 1];
    const char *th = last == '1' ? "ST" : last == '2' ? "ND" : last == '3' ? "RD" : "TH";
    *w->to++ = (char)(small ? tolower((unsigned char)th[0]) : th[0]);
    *w->to++ = (char)(small ? tolower((unsigned char)th[1]) : th[1]);
}

static void write_element(struct writing *w, enum element what, char letter, int64_t whole)
{
    const struct layout *l = w->l;
    char sign = w->d->sign;
    switch (what) {
    case DIGIT:
    case ZERO:
    case POINT:
        if (!l->roman)
            write_digit(w, what);
        return;
    case COMMA:
    case GROUP:
        if (w->began || !l->fill)
            *w->to++ = w->began ? ',' : ' ';
        return;
    case CURRENCY:
        *w->to++ = ' ';
        return;
    case MINUS:
    case PLUS:
        if (sign == (what == MINUS ? '-' : '+') && !l->roman)
            *w->to++ = sign;
        else if (!l->fill)
            *w->to++ = ' ';
        return;
    case SIGN:
        if (!l->roman)
            *w->to++ = sign;
        return;
    case ROMAN:
    case ROMAN_SMALL:
        w->to += roman(whole, what == ROMAN_SMALL, l->fill, w->to);
        return;
    case TH:
    case TH_SMALL:
        write_th(w, what == TH_SMALL);
        return;
    case LITERAL:
        *w->to++ = letter;
        return;
    case BRACKET:
    case S_SIGN:
    case FILL_MODE:
    case SHIFT:
    case EXPONENT:
    case NOTHING:
        return;
    }
}

/* ---- the function ---- */

struct char_number {
    struct layout layout, one; /* as it was read; as the number at hand changes it */
    struct digits digits;
    struct text pattern; /* that was read */
    bool read;
};

static int bad_pattern(struct run *r, const struct step *st, const char *why)
{
    return sql_error(r->q->text, r->q->size, st->expr->pos, -EINVAL, "to_char(): %s", why);
}

static int write_exponent(const struct layout *l, const struct step *st, uint32_t i, char *out)
{
    bool whole = st->a[0]->type == SQL_INT;
    double x = whole ? (double)st->a[0]->i[i] : st->a[0]->d[i];
    if (isfinite(x)) { /* " 1.5e+02", with a point whatever the locale has */
        int n = snprintf(out, DIGITS_BYTES, "% .*e", l->post, x);
        int tail = l->post + n - (int)(strrchr(out, 'e') - out);
        if (l->post) {
            memmove(out + 3, out + n - tail, (size_t)tail + 1);
            out[2] = '.';
        }
        return l->post ? 3 + tail : n;
    }
    memset(out, '#', (size_t)(l->pre + l->post + 6));
    out[0] = ' ';
    out[l->pre + 1] = '.';
    return l->pre + l->post + 6;
}

static int write_number(struct run *r, struct step *st, struct char_number *c, uint32_t i)
{
    bool whole = st->a[0]->type == SQL_INT;
    struct layout *l = &c->one;
    char *out = sql_scratch(r, DIGITS_BYTES + (size_t)c->layout.n * (ROMAN_WIDTH + 2));
    if (!out)
        return -ENOMEM;
    *l = c->layout;
    if (l->exponent) {
        st->dst->t[i] = (struct text){out, (uint32_t)write_exponent(l, st, i, out)};
        return 0;
    }
    struct writing w = {.l = l, .d = &c->digits, .at = c->digits.text, .to = out};
    double x = whole ? 0 : st->a[0]->d[i];
    int64_t rounded = whole ? st->a[0]->i[i] : fabs(x) < 1e9 ? (int64_t)rint(x) : -1;
    double size = whole ? (double)rounded : x;
    if (l->roman && !(fabs(size) < 2147483648.0))
        return sql_run_error(r, st, -ERANGE, "RN: out of range of an integer; it writes 1 to 3999");
    if (!whole && st->expr->args[0]->numeric && fabs(x) < 1e9)
        rounded = (int64_t)as_decimal(x, 0);
    if (whole)
        digits_of_int(l, st->a[0]->i[i], &c->digits);
    else
        digits_of_double(l, x, st->expr->args[0]->numeric, &c->digits);
    begin(&w);
    for (uint32_t k = 0; k < l->n; k++)
        write_element(&w, (enum element)l->elements[k].what, l->elements[k].letter, rounded);
    st->dst->t[i] = (struct text){out, (uint32_t)(w.to - out)};
    return 0;
}

KERNEL(to_char_number)
{
    struct char_number *c = st->state;
    if (!c && !(c = st->state = sql_get(r->q, 1, sizeof(*c))))
        return -ENOMEM;
    c->read = false; /* the pattern's bytes may be others' by now */
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text pattern = st->a[1]->t[i];
        bool same = c->read && pattern.data == c->pattern.data && pattern.size == c->pattern.size;
        const char *why = same ? NULL : read_pattern(pattern, &c->layout);
        if (why)
            return bad_pattern(r, st, why);
        c->pattern = pattern;
        c->read = true;
        int rc = write_number(r, st, c, i);
        if (rc < 0)
            return rc;
    }
    return 0;
}

const struct func sql_char_number_funcs[] = {{"to_char", "it", 't', 0, to_char_number},
                                             {"to_char", "dt", 't', 0, to_char_number},
                                             {NULL, NULL, 0, 0, NULL}};
