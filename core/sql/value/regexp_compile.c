/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/regexp_compile.c - a pattern into a small program: by descent, a step a letter.
 *
 * Repetitions are written out: {n,m} is n times the steps and m - n times the steps that may be
 * left out.  Any thread, a struct each.
 */
#include "core/sql/value/regexp_steps.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"

#define STEPS_MAX 5000  /* of a program: bounds the work for each letter */
#define DEPTH_MAX 40    /* groups within groups: our threads have 512 KiB */
#define REPEAT_MAX 1000 /* {n,m} */

struct compiler {
    struct regexp *r;
    struct arena *mem;
    const char *p, *end, *begin;
    uint32_t depth, groups;
    int error;
};

static void refuse_pattern(struct compiler *c, int code, const char *what)
{
    if (!c->error)
        c->error = err_set(code, "regular expression: %s at letter %u of '%.*s'", what,
                           (uint32_t)(c->p - c->begin) + 1,
                           (int)(c->end - c->begin > 60 ? 60 : c->end - c->begin), c->begin);
}

static void *grow_array(struct compiler *c, void *array, uint32_t n, uint32_t *room, size_t size)
{
    if (n < *room)
        return array;
    uint32_t more = *room ? 2 * *room : 32;
    void *to = arena_alloc(c->mem, more * size);
    if (!to) {
        if (!c->error)
            c->error = err_set(-ENOMEM, "no memory for a regular expression");
        return array;
    }
    if (n)
        memcpy(to, array, n * size);
    *room = more;
    return to;
}

static uint32_t emit_step(struct compiler *c, enum step_op op, uint32_t a, uint32_t b)
{
    struct regexp *r = c->r;
    if (r->n >= STEPS_MAX)
        refuse_pattern(c, -E2BIG, "the compiled expression is too long");
    if (!c->error)
        r->steps = grow_array(c, r->steps, r->n, &r->room, sizeof(*r->steps));
    if (c->error)
        return 0;
    r->steps[r->n] = (struct re_step){.op = op, .a = a, .b = b};
    return r->n++;
}

static void add_range(struct compiler *c, uint32_t low, uint32_t high)
{
    struct regexp *r = c->r;
    if (r->n_ranges >= 10 * STEPS_MAX)
        refuse_pattern(c, -E2BIG, "the compiled expression is too long");
    if (!c->error)
        r->ranges = grow_array(c, r->ranges, r->n_ranges, &r->ranges_room, sizeof(*r->ranges));
    if (!c->error)
        r->ranges[r->n_ranges++] = (struct re_range){low, high};
    if ((r->flags & REGEXP_FOLD) && low <= 'Z' && high >= 'A' && !c->error) {
        r->ranges = grow_array(c, r->ranges, r->n_ranges, &r->ranges_room, sizeof(*r->ranges));
        uint32_t from = low > 'A' ? low : 'A', to = high < 'Z' ? high : 'Z';
        if (!c->error)
            r->ranges[r->n_ranges++] = (struct re_range){from + 32, to + 32};
    }
}

struct named_class {
    const char *name;
    struct re_range ranges[4]; /* up to one that ends with 0 */
    uint8_t wide;
};
static const struct named_class classes[] = {
    {"alpha", {{'a', 'z'}, {'A', 'Z'}}, WIDE_LETTER},
    {"digit", {{'0', '9'}}, 0},
    {"alnum", {{'a', 'z'}, {'A', 'Z'}, {'0', '9'}}, WIDE_LETTER},
    {"space", {{'\t', '\r'}, {' ', ' '}}, 0},
    {"blank", {{'\t', '\t'}, {' ', ' '}}, 0},
    {"upper", {{'A', 'Z'}}, WIDE_UPPER},
    {"lower", {{'a', 'z'}}, WIDE_LOWER},
    {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}, WIDE_SIGN},
    {"cntrl", {{0, 0x1f}, {0x7f, 0x7f}}, 0},
    {"print", {{' ', '~'}}, WIDE_LETTER | WIDE_SIGN},
    {"graph", {{'!', '~'}}, WIDE_LETTER | WIDE_SIGN},
    {"xdigit", {{'0', '9'}, {'a', 'f'}, {'A', 'F'}}, 0},
    {"word", {{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'_', '_'}}, WIDE_LETTER}};

/* To the class at the step `at`. */
static void add_class(struct compiler *c, uint32_t at, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++) {
        if (strlen(classes[i].name) != n || memcmp(classes[i].name, name, n) != 0)
            continue;
        for (int k = 0; k < 4 && classes[i].ranges[k].high; k++)
            add_range(c, classes[i].ranges[k].low, classes[i].ranges[k].high);
        uint8_t wide = classes[i].wide;
        if ((c->r->flags & REGEXP_FOLD) && (wide & (WIDE_UPPER | WIDE_LOWER)))
            wide = WIDE_LETTER; /* as PostgreSQL has it, those without a case too */
        if (!c->error)
            c->r->steps[at].wide |= wide;
        return;
    }
    refuse_pattern(c, -EINVAL, "an unknown [:class:]");
}

/* d w s of \d \w \s; NULL: none. */
static const char *class_of(char letter)
{
    return letter == 'd' ? "digit" : letter == 'w' ? "word" : letter == 's' ? "space" : NULL;
}

static int hex_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* \uXXXX, \UXXXXXXXX; p stands at the u. */
static uint32_t wide_escaped(struct compiler *c, int digits)
{
    uint32_t v = 0;
    c->p++;
    for (; digits && c->p < c->end && hex_of(*c->p) >= 0; digits--, c->p++)
        v = v << 4 | (uint32_t)hex_of(*c->p);
    if (digits || v == 0 || v >= NO_LETTER)
        refuse_pattern(c, -EINVAL, "\\u needs four digits, \\U eight");
    return v;
}

/* The letter behind a backslash; p stands at it. */
static uint32_t read_escape(struct compiler *c)
{
    if (c->p == c->end) {
        refuse_pattern(c, -EINVAL, "a \\ at the end");
        return 0;
    }
    char e = *c->p;
    switch (e) {
    case 'n':
        c->p++;
        return '\n';
    case 't':
        c->p++;
        return '\t';
    case 'r':
        c->p++;
        return '\r';
    case 'u':
    case 'U':
        return wide_escaped(c, e == 'u' ? 4 : 8);
    case 'x':
        if (c->end - c->p >= 3 && hex_of(c->p[1]) >= 0 && hex_of(c->p[2]) >= 0) {
            uint32_t v = (uint32_t)(16 * hex_of(c->p[1]) + hex_of(c->p[2]));
            c->p += 3;
            return v;
        }
        refuse_pattern(c, -EINVAL, "\\x needs two digits");
        return 0;
    default:
        break;
    }
    if ((e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z') || (e >= '0' && e <= '9'))
        refuse_pattern(c, -EINVAL,
                       e >= '1' && e <= '9' ? "back-references are not supported"
                                            : "an unknown escape");
    return unicode_next(&c->p, c->end);
}

/* [...]; p stands behind [ */
static void compile_class(struct compiler *c)
{
    uint32_t at = emit_step(c, OP_CLASS, c->r->n_ranges, 0);
    bool negated = c->p < c->end && *c->p == '^', first = true;
    c->p += negated;
    for (; !c->error; first = false) {
        if (c->p == c->end) {
            refuse_pattern(c, -EINVAL, "there is a [ that is not closed");
            return;
        }
        if (*c->p == ']' && !first)
            break;
        const char *close = c->end - c->p > 3 && c->p[0] == '[' && c->p[1] == ':'
                                ? memmem(c->p + 2, (size_t)(c->end - c->p - 2), ":]", 2)
                                : NULL;
        if (close) {
            add_class(c, at, c->p + 2, (size_t)(close - c->p - 2));
            c->p = close + 2;
            continue;
        }
        const char *named = c->end - c->p > 1 && *c->p == '\\' ? class_of(c->p[1]) : NULL;
        if (named) {
            add_class(c, at, named, strlen(named));
            c->p += 2;
            continue;
        }
        bool escape = *c->p == '\\';
        c->p += escape;
        uint32_t low = escape ? read_escape(c) : unicode_next(&c->p, c->end), high = low;
        if (c->end - c->p > 1 && c->p[0] == '-' && c->p[1] != ']') {
            c->p++;
            escape = *c->p == '\\';
            c->p += escape;
            high = escape ? read_escape(c) : unicode_next(&c->p, c->end);
        }
        if (high < low)
            refuse_pattern(c, -EINVAL, "a range ends before it begins");
        add_range(c, low, high);
    }
    c->p++;
    if (c->error)
        return;
    c->r->steps[at].b = c->r->n_ranges - c->r->steps[at].a;
    c->r->steps[at].negated = negated;
}

/* Find the step of a letter behind a backslash for a place between letters; OP_MATCH: none. */
static enum step_op place_of(char e)
{
    static const struct {
        char letter;
        enum step_op op;
    } places[] = {{'b', OP_WORD_EDGE},    {'y', OP_WORD_EDGE},  {'B', OP_NO_WORD_EDGE},
                  {'Y', OP_NO_WORD_EDGE}, {'m', OP_WORD_BEGIN}, {'M', OP_WORD_END},
                  {'A', OP_TEXT_BEGIN},   {'Z', OP_TEXT_END}};
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        if (places[i].letter == e)
            return places[i].op;
    return OP_MATCH;
}

static void compile_escape(struct compiler *c)
{
    char e = c->p < c->end ? *c->p : '\0';
    bool upper = e >= 'A' && e <= 'Z';
    const char *named = class_of((char)(upper ? e - 'A' + 'a' : e));
    enum step_op place = place_of(e);
    if (place != OP_MATCH) {
        c->p++;
        (void)emit_step(c, place, 0, 0);
        return;
    }
    if (named) {
        c->p++;
        uint32_t at = emit_step(c, OP_CLASS, c->r->n_ranges, 0);
        add_class(c, at, named, strlen(named));
        if (c->error)
            return;
        c->r->steps[at].b = c->r->n_ranges - c->r->steps[at].a;
        c->r->steps[at].negated = upper;
        return;
    }
    uint32_t letter = read_escape(c);
    (void)emit_step(c, OP_LETTER, c->r->flags & REGEXP_FOLD ? unicode_lower(letter) : letter, 0);
}

static void compile_either(struct compiler *c);

static void compile_group(struct compiler *c)
{
    bool plain = c->end - c->p > 1 && c->p[0] == '?' && c->p[1] == ':';
    if (!plain && c->p < c->end && *c->p == '?') {
        refuse_pattern(c, -EINVAL, "lookaround is not supported, only (?:...)");
        return;
    }
    c->p += plain ? 2 : 0;
    uint32_t group = plain ? REGEXP_GROUPS : ++c->groups;
    if (++c->depth > DEPTH_MAX)
        refuse_pattern(c, -E2BIG, "groups are nested too deeply");
    if (group < REGEXP_GROUPS)
        (void)emit_step(c, OP_SAVE, 2 * group, 0);
    compile_either(c);
    if (group < REGEXP_GROUPS)
        (void)emit_step(c, OP_SAVE, 2 * group + 1, 0);
    c->depth--;
    if (c->p == c->end || *c->p != ')')
        refuse_pattern(c, -EINVAL, "there is a ( that is not closed");
    else
        c->p++;
}

static void compile_atom(struct compiler *c)
{
    uint32_t letter;
    switch (*c->p) {
    case '(':
        c->p++;
        compile_group(c);
        return;
    case '[':
        if (c->end - c->p >= 7 &&
            (memcmp(c->p, "[[:<:]]", 7) == 0 || memcmp(c->p, "[[:>:]]", 7) == 0)) {
            (void)emit_step(c, c->p[3] == '<' ? OP_WORD_BEGIN : OP_WORD_END, 0, 0);
            c->p += 7;
            return;
        }
        c->p++;
        compile_class(c);
        return;
    case '.':
        c->p++;
        (void)emit_step(c, OP_ANY, 0, 0);
        return;
    case '^':
        c->p++;
        (void)emit_step(c, OP_BEGIN, 0, 0);
        return;
    case '$':
        c->p++;
        (void)emit_step(c, OP_END, 0, 0);
        return;
    case '\\':
        c->p++;
        compile_escape(c);
        return;
    case '*':
    case '+':
    case '?':
        refuse_pattern(c, -EINVAL, "there is nothing to repeat");
        return;
    default:
        letter = unicode_next(&c->p, c->end);
        (void)emit_step(c, OP_LETTER, c->r->flags & REGEXP_FOLD ? unicode_lower(letter) : letter,
                        0);
    }
}

static bool read_number(struct compiler *c, uint32_t *ret)
{
    const char *begin = c->p;
    uint32_t v = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9' && v <= REPEAT_MAX; c->p++)
        v = v * 10 + (uint32_t)(*c->p - '0');
    if (v > REPEAT_MAX)
        refuse_pattern(c, -E2BIG, "more than 1000 repetitions");
    *ret = v;
    return c->p > begin;
}

/* * + ? {n,m}: false when none stands here. */
static bool read_repetition(struct compiler *c, uint32_t *low, uint32_t *high)
{
    char e = c->p < c->end ? *c->p : '\0';
    *low = e == '+';
    *high = e == '?' ? 1 : UINT32_MAX;
    if (e == '*' || e == '+' || e == '?') {
        c->p++;
        return true;
    }
    const char *begin = c->p;
    if (e != '{')
        return false;
    c->p++;
    if (!read_number(c, low)) {
        c->p = begin; /* a { that is just a letter */
        return false;
    }
    *high = *low;
    if (c->p < c->end && *c->p == ',') {
        c->p++;
        if (!read_number(c, high))
            *high = UINT32_MAX;
    }
    if (c->p == c->end || *c->p != '}' || *high < *low)
        refuse_pattern(c, -EINVAL, "a repetition is {n}, {n,} or {n,m}");
    else
        c->p++;
    return true;
}

/* Make room for a step before those from `first` on, which belong together. */
static void insert_step(struct compiler *c, uint32_t first)
{
    struct regexp *r = c->r;
    (void)emit_step(c, OP_SPLIT, 0, 0);
    if (c->error)
        return;
    memmove(&r->steps[first + 1], &r->steps[first], (r->n - 1 - first) * sizeof(*r->steps));
    for (uint32_t i = first + 1; i < r->n; i++) {
        bool leads = r->steps[i].op == OP_SPLIT || r->steps[i].op == OP_JUMP;
        r->steps[i].a += leads;
        r->steps[i].b += leads;
    }
    r->steps[first].op = OP_SPLIT;
}

/* The steps first to first + n - 1 once more, at the end. */
static void repeat_steps(struct compiler *c, uint32_t first, uint32_t n)
{
    uint32_t by = c->r->n - first;
    for (uint32_t i = first; i < first + n && !c->error; i++) {
        struct re_step s = c->r->steps[i];
        bool leads = s.op == OP_SPLIT || s.op == OP_JUMP;
        uint32_t at = emit_step(c, s.op, s.a + (leads ? by : 0), s.b + (leads ? by : 0));
        if (!c->error)
            c->r->steps[at] =
                (struct re_step){s.op, c->r->steps[at].a, c->r->steps[at].b, s.negated, s.wide};
    }
}

static void emit_split(struct compiler *c, uint32_t at, uint32_t into, uint32_t past, bool lazy)
{
    if (c->error)
        return;
    c->r->steps[at].op = OP_SPLIT;
    c->r->steps[at].a = lazy ? past : into;
    c->r->steps[at].b = lazy ? into : past;
}

/* The steps from `first` on, between low and high times. */
static void multiply_steps(struct compiler *c, uint32_t first, uint32_t low, uint32_t high,
                           bool lazy)
{
    struct regexp *r = c->r;
    uint32_t n = r->n - first, last = first;
    if (high == 0)
        r->n = first;
    if (high == 0 || n == 0)
        return;
    for (uint32_t i = 1; i < low && !c->error; i++) {
        last = r->n;
        repeat_steps(c, first, n);
    }
    if (low > 0 && high == UINT32_MAX) { /* back to the last one */
        uint32_t at = emit_step(c, OP_SPLIT, 0, 0);
        emit_split(c, at, last, r->n, lazy);
        return;
    }
    uint32_t begin = low ? r->n : first;
    if (low == 0)
        insert_step(c, first);
    if (high == UINT32_MAX) {
        (void)emit_step(c, OP_JUMP, first, 0);
        emit_split(c, first, first + 1, r->n, lazy);
        return;
    }
    uint32_t block = low ? first : first + 1;
    for (uint32_t i = low ? low : 1; i < high && !c->error; i++) {
        (void)emit_step(c, OP_SPLIT, 0, 0);
        repeat_steps(c, block, n);
    }
    for (uint32_t at = begin; at < r->n && !c->error; at += n + 1)
        emit_split(c, at, at + 1, r->n, lazy);
}

/* ^ $ \A \Z \b \B \m \M: between two letters */
static bool is_place(enum step_op op)
{
    return op >= OP_BEGIN && op <= OP_WORD_END;
}

static void compile_repeated(struct compiler *c)
{
    uint32_t first = c->r->n, low, high;
    bool group = *c->p == '(';
    if (*c->p == '{' && c->end - c->p > 1 && c->p[1] >= '0' && c->p[1] <= '9')
        refuse_pattern(c, -EINVAL, "there is nothing to repeat");
    else
        compile_atom(c);
    bool place = !c->error && !group && c->r->n > first && is_place(c->r->steps[first].op);
    if (!c->error && !place && read_repetition(c, &low, &high)) {
        bool lazy = c->p < c->end && *c->p == '?';
        c->p += lazy;
        multiply_steps(c, first, low, high, lazy);
    } else if (!place) {
        return;
    }
    const char *at = c->p;
    if (c->error || !read_repetition(c, &low, &high))
        return;
    c->p = at; /* a{2}{3}, ^* */
    refuse_pattern(c, -EINVAL, "there is nothing to repeat");
}

/* a|b|c: split to a or the rest; each but the last ends with a jump to the end. */
static void compile_either(struct compiler *c)
{
    uint32_t jumps = UINT32_MAX; /* chained through their targets until the end is known */
    for (;;) {
        uint32_t first = c->r->n;
        while (!c->error && c->p < c->end && *c->p != '|' && *c->p != ')')
            compile_repeated(c);
        if (c->error || c->p == c->end || *c->p == ')')
            break;
        c->p++;
        insert_step(c, first);
        jumps = emit_step(c, OP_JUMP, jumps, 0);
        emit_split(c, first, first + 1, c->r->n, false);
    }
    while (jumps != UINT32_MAX && !c->error) {
        uint32_t before = c->r->steps[jumps].a;
        c->r->steps[jumps].a = c->r->n;
        jumps = before;
    }
}

static bool make_lists(struct regexp *r, struct arena *mem)
{
    uint32_t n = r->n;
    for (int i = 0; i < 2; i++) {
        r->lists[i].dense = arena_zalloc(mem, n, sizeof(uint32_t));
        r->lists[i].sparse = arena_zalloc(mem, n, sizeof(uint32_t));
        r->lists[i].slots = arena_zalloc(mem, (size_t)n * 2 * REGEXP_GROUPS, sizeof(uint32_t));
        if (!r->lists[i].dense || !r->lists[i].sparse || !r->lists[i].slots)
            return false;
    }
    r->stack = arena_zalloc(mem, 2 * (size_t)n + 2, sizeof(uint32_t));
    r->old = arena_zalloc(mem, 3 * ((size_t)n + 1), sizeof(uint32_t));
    return r->stack && r->old;
}

/* (?i), (?n) ... and ***= before all else, as PostgreSQL has them. */
static void read_options(struct compiler *c, uint32_t *flags)
{
    static const char letters[] = "icnmsw";
    if (*flags & REGEXP_PLAIN)
        return;
    if (c->end - c->p >= 4 && memcmp(c->p, "***=", 4) == 0) {
        *flags |= REGEXP_PLAIN;
        c->p += 4;
        return;
    }
    const char *p = c->p + 2;
    if (c->end - c->p < 4 || memcmp(c->p, "(?", 2) != 0)
        return;
    while (p < c->end && strchr(letters, *p) && *p)
        p++;
    if (p == c->p + 2 || p == c->end || *p != ')')
        return;
    for (const char *f = c->p + 2; f < p; f++) {
        if (*f == 'i' || *f == 'c')
            *flags = *f == 'i' ? *flags | REGEXP_FOLD : *flags & ~(uint32_t)REGEXP_FOLD;
        else if (*f == 'w')
            refuse_pattern(c, -EINVAL, "the options are (?i), (?c), (?n), (?m) and (?s)");
        else
            *flags = *f == 's' ? *flags & ~(uint32_t)REGEXP_LINES : *flags | REGEXP_LINES;
    }
    c->p = p + 1;
}

/* Nothing but letters. */
static void compile_letters(struct compiler *c)
{
    while (!c->error && c->p < c->end) {
        uint32_t letter = unicode_next(&c->p, c->end);
        (void)emit_step(c, OP_LETTER, c->r->flags & REGEXP_FOLD ? unicode_lower(letter) : letter,
                        0);
    }
}

int regexp_new(struct arena *mem, const char *pattern, size_t size, uint32_t flags,
               struct regexp **ret)
{
    struct regexp *r = arena_zalloc(mem, 1, sizeof(*r));
    struct compiler c = {.r = r, .mem = mem, .p = pattern, .begin = pattern, .end = pattern + size};
    if (!r)
        return err_set(-ENOMEM, "no memory for a regular expression");
    read_options(&c, &flags);
    r->flags = flags;
    (void)emit_step(&c, OP_SAVE, 0, 0);
    if (flags & REGEXP_PLAIN)
        compile_letters(&c);
    else
        compile_either(&c);
    if (!c.error && c.p < c.end)
        refuse_pattern(&c, -EINVAL, "there is a ) without its (");
    (void)emit_step(&c, OP_SAVE, 1, 0);
    (void)emit_step(&c, OP_MATCH, 0, 0);
    if (c.error)
        return c.error;
    const struct re_step *first = &r->steps[1];
    while (first->op == OP_SAVE && first->a != 1)
        first++;
    bool known = first->op == OP_LETTER && first->a < 0x80 && !(flags & REGEXP_FOLD);
    r->first = known ? (int)first->a : -1;
    r->n_groups = c.groups < REGEXP_GROUPS ? c.groups : REGEXP_GROUPS - 1;
    if (!make_lists(r, mem))
        return err_set(-ENOMEM, "no memory for a regular expression");
    *ret = r;
    return 0;
}
