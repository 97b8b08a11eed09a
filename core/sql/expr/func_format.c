/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_format.c - format('%s of %I is %L', a, b, c): PostgreSQL's.
 *
 * %[n$][-][width]type: %s the text, %I a name with quotes where it needs them, %L a literal.  All
 * arguments come as texts.  The query's thread only.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <string.h>

#include "core/sql/parse/ast.h"

#define WIDTH_MAX (1 << 20) /* characters: more is a mistake */

struct out { /* counts first, then writes */
    char *to;
    uint64_t size;
};

static void put(struct out *o, const char *data, uint64_t size)
{
    if (o->to && size)
        memcpy(o->to + o->size, data, size);
    o->size += size;
}

/* PostgreSQL 15's keywords that are not free to be names. */
static const char keywords[] =
    " all analyse analyze and any array as asc asymmetric authorization between bigint"
    " binary bit boolean both case cast char character check coalesce collate"
    " collation column concurrently constraint create cross current_catalog"
    " current_date current_role current_schema current_time current_timestamp"
    " current_user dec decimal default deferrable desc distinct do else end except"
    " exists extract false fetch float for foreign freeze from full grant greatest"
    " group grouping having ilike in initially inner inout int integer intersect"
    " interval into is isnull join lateral leading least left like limit localtime"
    " localtimestamp national natural nchar none normalize not notnull null nullif"
    " numeric offset on only or order out outer overlaps overlay placing position"
    " precision primary real references returning right row select session_user setof"
    " similar smallint some substring symmetric table tablesample then time timestamp"
    " to trailing treat trim true union unique user using values varchar variadic"
    " verbose when where window with xmlattributes xmlconcat xmlelement xmlexists"
    " xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable"
    " ";

static bool is_keyword(struct text t)
{
    char word[32];
    if (t.size + 3 > sizeof(word))
        return false;
    word[0] = ' ';
    memcpy(word + 1, t.data, t.size);
    memcpy(word + 1 + t.size, " ", 2);
    return strstr(keywords, word) != NULL;
}

static bool needs_quotes(struct text t)
{
    bool plain = t.size && (t.data[0] < '0' || t.data[0] > '9');
    for (uint32_t i = 0; i < t.size && plain; i++)
        plain = (t.data[i] >= 'a' && t.data[i] <= 'z') || (t.data[i] >= '0' && t.data[i] <= '9') ||
                t.data[i] == '_';
    return !plain || is_keyword(t) || sql_is_reserved(t.data, t.size);
}

/* In quotes, each of them doubled; of a literal with a backslash, that too, behind an E. */
static void put_quoted(struct out *o, struct text t, char quote)
{
    bool escape = quote == '\'' && t.size && memchr(t.data, '\\', t.size);
    put(o, "E", escape);
    put(o, &quote, 1);
    for (uint32_t i = 0; i < t.size; i++) {
        if (t.data[i] == quote || (escape && t.data[i] == '\\'))
            put(o, t.data + i, 1);
        put(o, t.data + i, 1);
    }
    put(o, &quote, 1);
}

struct spec {
    uint32_t argument; /* from 1; 0: the next */
    int64_t width;
    bool left;
    uint32_t width_argument; /* `*`, `*n$`: from 1; UINT32_MAX: the next */
    char type;
};

static bool read_number(struct text t, uint32_t *at, int64_t *ret)
{
    uint32_t from = *at;
    *ret = 0;
    for (; *at < t.size && t.data[*at] >= '0' && t.data[*at] <= '9' && *ret <= WIDTH_MAX; ++*at)
        *ret = *ret * 10 + (t.data[*at] - '0');
    return *at > from;
}

static bool read_position(struct text t, uint32_t *at, int64_t *ret)
{
    uint32_t from = *at;
    if (read_number(t, at, ret) && *at < t.size && t.data[*at] == '$') {
        ++*at;
        return true;
    }
    *at = from;
    return false;
}

/* Read what stands behind a %.  NULL: fine; else what is wrong. */
static const char *read_spec(struct text t, uint32_t *at, struct spec *s)
{
    int64_t n;
    *s = (struct spec){.argument = 0};
    if (read_position(t, at, &n)) {
        if (n < 1)
            return "arguments are counted from 1";
        s->argument = (uint32_t)n;
    }
    for (; *at < t.size && t.data[*at] == '-'; ++*at)
        s->left = true;
    if (*at < t.size && t.data[*at] == '*') {
        ++*at;
        s->width_argument = UINT32_MAX;
        if (read_position(t, at, &n)) {
            if (n < 1)
                return "arguments are counted from 1";
            s->width_argument = (uint32_t)n;
        }
    } else {
        (void)read_number(t, at, &s->width);
    }
    if (*at >= t.size)
        return "it ends within a %; a percent sign is %%";
    s->type = t.data[(*at)++];
    return strchr("sIL", s->type) && s->type ? NULL : "it knows %s, %I, %L and %%";
}

struct call {
    struct run *r;
    struct step *st;
    uint32_t row, next;
    const char *why;
};

/* NULL in *ret.data: it is NULL. */
static bool argument(struct call *c, uint32_t number, struct text *ret)
{
    uint32_t n = number ? number : c->next++;
    c->next = number ? number + 1 : c->next;
    if (n >= c->st->n_args) {
        c->why = "there are fewer arguments than it asks for";
        return false;
    }
    const struct vec *v = c->st->args[n];
    bool null = sql_is_null(v, c->row);
    *ret = null ? (struct text){NULL, 0} : v->t[c->row];
    if (!null && !ret->data)
        ret->data = "";
    return true;
}

static bool find_width(struct call *c, struct spec *s)
{
    struct text t;
    uint32_t at = 0;
    if (!s->width_argument)
        return true;
    if (!argument(c, s->width_argument == UINT32_MAX ? 0 : s->width_argument, &t))
        return false;
    bool minus = t.size && t.data[0] == '-';
    at = minus;
    if (t.data && (!read_number(t, &at, &s->width) || at < t.size)) {
        c->why = "a width of * is a whole number";
        return false;
    }
    s->left = s->left || minus;
    return true;
}

static void put_blanks(struct out *o, int64_t n)
{
    for (; n > 0; n--)
        put(o, " ", 1);
}

static void put_as(struct out *o, char type, struct text t)
{
    if (type == 'L' && !t.data)
        put(o, "NULL", 4);
    else if (type == 'L' || (type == 'I' && needs_quotes(t)))
        put_quoted(o, t, type == 'L' ? '\'' : '"');
    else
        put(o, t.data, t.size);
}

static void put_value(struct call *c, struct out *o, const struct spec *s, struct text t)
{
    struct out counted = {NULL, 0};
    if (!t.data && s->type == 'I') {
        c->why = "NULL is no name: %I needs one";
        return;
    }
    int64_t blanks = 0;
    if (s->width) { /* of characters; what quotes add are single bytes */
        put_as(&counted, s->type, t);
        blanks = s->width - (int64_t)counted.size + (int64_t)t.size - sql_characters(t);
    }
    if (!s->left)
        put_blanks(o, blanks);
    put_as(o, s->type, t);
    if (s->left)
        put_blanks(o, blanks);
}

static int format_row(struct call *c, struct text format, struct out *o)
{
    o->size = 0;
    c->next = 1;
    for (uint32_t at = 0; at < format.size && !c->why;) {
        struct spec s;
        struct text t = {NULL, 0};
        const char *percent = memchr(format.data + at, '%', format.size - at);
        uint32_t end = percent ? (uint32_t)(percent - format.data) : format.size;
        put(o, format.data + at, end - at);
        at = end + 1;
        if (!percent)
            break;
        if (at < format.size && format.data[at] == '%') {
            put(o, "%", 1);
            at++;
            continue;
        }
        c->why = read_spec(format, &at, &s);
        if (c->why || !find_width(c, &s) || !argument(c, s.argument, &t))
            break;
        if (s.width > WIDTH_MAX)
            c->why = "a width is at most 1048576";
        else
            put_value(c, o, &s, t);
        if (o->size > UINT32_MAX / 2)
            c->why = "the text would be too long";
    }
    if (c->why)
        return sql_error(c->r->q->text, c->r->q->size, c->st->expr->pos, -EINVAL, "format(): %s",
                         c->why);
    return 0;
}

KERNEL(format)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct call c = {.r = r, .st = st, .row = i};
        struct out o = {NULL, 0};
        const struct vec *f = st->args[0];
        if (sql_is_null(f, i)) {
            st->dst->t[i] = (struct text){"", 0};
            sql_set_null(st->dst, i);
            continue;
        }
        int rc = format_row(&c, f->t[i], &o);
        if (rc == 0 && !(o.to = sql_scratch(r, o.size + 1)))
            rc = -ENOMEM;
        if (rc == 0)
            rc = format_row(&c, f->t[i], &o);
        if (rc < 0)
            return rc;
        st->dst->t[i] = (struct text){o.to, (uint32_t)o.size};
    }
    return 0;
}

/* quote_ident(text), quote_literal(text), quote_nullable(text): as %I and %L write it */
KERNEL(quote)
{
    char type = st->expr->func->name[6] == 'i' ? 'I' : 'L';
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct out o = {NULL, 0};
        const struct vec *v = st->args[0];
        bool null = sql_is_null(v, i);
        struct text t = null ? (struct text){NULL, 0} : v->t[i];
        put_as(&o, type, t);
        if (!(o.to = sql_scratch(r, o.size + 1)))
            return -ENOMEM;
        o.size = 0;
        put_as(&o, type, t);
        st->dst->t[i] = (struct text){o.to, (uint32_t)o.size};
    }
    return 0;
}

KERNEL(bool_letter)
{
    ROWS(st->dst->t[i] = (struct text){st->a[0]->i[i] ? "t" : "f", 1};);
    return 0;
}

const struct func sql_format_funcs[] = {
    {"format", "t*", 't', FUNC_NULLS, format}, {"quote_ident", "t", 't', 0, quote},
    {"quote_literal", "t", 't', 0, quote},     {"quote_nullable", "t", 't', FUNC_NULLS, quote},
    {"bool letter", "b", 't', 0, bool_letter}, {NULL, NULL, 0, 0, NULL}};
