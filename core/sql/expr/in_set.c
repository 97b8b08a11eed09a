/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/in_set.c - x in (constants): the constants hashed once; also rows, (a, b) in ((1,
 * 2)).
 *
 * The query's thread only.  NULL is in no set, and in one that holds NULL nothing is surely not.
 */
#include "core/sql/expr/expr.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/sql/value/keys.h"
#include "core/sql/value/timestamp_parts.h"

struct in_set {
    bool textual;
    uint32_t n, mask;
    uint32_t *slots;
    uint64_t *words;
    struct text *texts;
    /* Rows of more than one column. */
    struct keys keys; /* of those without NULL */
    const struct sql_value *values;
    uint32_t n_rows, n_cols;
    bool has_null; /* or something else that keys do not find */
};

/* 0 and -0 are one value, and so are all NaN. */
static uint64_t double_word(double d)
{
    uint64_t w;
    d = d == d ? d + 0.0 : (double)NAN;
    memcpy(&w, &d, sizeof(w));
    return w;
}

static uint64_t word_of(const struct sql_value *v)
{
    uint64_t w = 0;
    if (v->type == SQL_DOUBLE)
        w = double_word(v->number);
    else if (v->type == SQL_BOOL)
        w = v->boolean;
    else
        memcpy(&w, &v->integer, sizeof(w));
    return w;
}

/* The value that stands for the bytes: 1 mon and 30 days are equal. */
static struct text compared_value(enum sql_type type, const char *data, uint32_t size)
{
    return (struct text){data, type == SQL_CALENDAR ? INTERVAL_KEY_BYTES : size};
}

static uint32_t *set_slot(const struct in_set *s, uint64_t word, struct text t)
{
    uint64_t hash = s->textual ? sql_hash_bytes(t.data, t.size) : sql_hash_bytes(&word, 8);
    uint32_t at = (uint32_t)hash & s->mask;
    for (; s->slots[at]; at = (at + 1) & s->mask) {
        uint32_t id = s->slots[at] - 1;
        if (s->textual ? s->texts[id].size == t.size && !memcmp(s->texts[id].data, t.data, t.size)
                       : s->words[id] == word)
            break;
    }
    return &s->slots[at];
}

static int make_words(struct query *q, struct expr *in, const struct sql_value *values, uint32_t n)
{
    struct in_set *s = sql_get(q, 1, sizeof(*s));
    uint32_t room = 8;
    while (room < 2 * (uint64_t)n)
        room *= 2;
    if (!s)
        return -ENOMEM;
    s->textual = sql_is_textual(in->args[0]->type);
    s->mask = room - 1;
    s->slots = sql_get(q, room, sizeof(*s->slots));
    s->words = s->textual ? NULL : sql_get(q, n, sizeof(*s->words));
    s->texts = s->textual ? sql_get(q, n, sizeof(*s->texts)) : NULL;
    if (!s->slots || (s->textual ? !s->texts : !s->words))
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        if (values[i].type == SQL_NULL) {
            in->null_in = true;
            continue;
        }
        struct text t = {NULL, 0};
        int rc = sql_worked(q, 1);
        if (rc < 0)
            return rc;
        if (s->textual)
            t = compared_value(values[i].type, values[i].text.data, values[i].text.size);
        uint64_t word = s->textual ? 0 : word_of(&values[i]);
        uint32_t *slot = set_slot(s, word, t);
        if (*slot)
            continue;
        if (s->textual)
            s->texts[s->n] = t;
        else
            s->words[s->n] = word;
        *slot = ++s->n;
    }
    in->set = s;
    return 0;
}

/* ---- rows ---- */

static bool same_text(struct text a, struct text b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

static bool same_value(const struct sql_value *a, const struct sql_value *b)
{
    if (sql_is_textual(a->type))
        return same_text(compared_value(a->type, a->text.data, a->text.size),
                         compared_value(b->type, b->text.data, b->text.size));
    if (a->type == SQL_DOUBLE)
        return a->number == b->number || (a->number != a->number && b->number != b->number);
    return a->type == SQL_BOOL ? a->boolean == b->boolean : a->integer == b->integer;
}

struct sql_value sql_is_among(const struct sql_value *probe, const struct sql_value *rows,
                              uint32_t n, uint32_t n_cols)
{
    struct sql_value answer = {.type = SQL_BOOL, .boolean = false};
    for (uint32_t r = 0; r < n; r++) {
        const struct sql_value *row = &rows[(uint64_t)r * n_cols];
        bool differs = false, null = false;
        for (uint32_t i = 0; i < n_cols && !differs; i++) {
            bool one = probe[i].type == SQL_NULL || row[i].type == SQL_NULL;
            null = null || one;
            differs = !one && !same_value(&probe[i], &row[i]);
        }
        if (!differs && !null)
            return (struct sql_value){.type = SQL_BOOL, .boolean = true};
        if (!differs)
            answer = (struct sql_value){.type = SQL_NULL};
    }
    return answer;
}

static int make_rows(struct query *q, struct expr *in, const struct sql_value *values, uint32_t n)
{
    struct in_set *s = in->set;
    enum sql_type types[SQL_CALL_ARGS];
    struct vec v[SQL_CALL_ARGS], *pointers[SQL_CALL_ARGS];
    uint32_t columns = in->n_args, number;
    int rc = 0;
    s->values = values;
    s->n_rows = n;
    s->n_cols = columns;
    for (uint32_t c = 0; c < columns && rc == 0; c++) {
        types[c] = in->args[c]->type;
        pointers[c] = &v[c];
        s->has_null = s->has_null || types[c] == SQL_CALENDAR; /* keys tell 1 mon from 30 days */
        rc = sql_vec_room(q, &v[c], types[c]);
        v[c].stable = true;
    }
    if (rc == 0)
        rc = sql_keys_init(&s->keys, q, types, NULL, columns);
    for (uint32_t r = 0; r < n && rc == 0; r++) {
        bool null = false;
        for (uint32_t c = 0; c < columns; c++) {
            const struct sql_value *x = &values[(uint64_t)r * columns + c];
            null = null || x->type == SQL_NULL;
            sql_put_value(&v[c], 0, x);
        }
        s->has_null = s->has_null || null;
        rc = sql_worked(q, 1);
        if (!null && rc == 0)
            rc = sql_keys_add(&s->keys, pointers, NULL, 1, &number);
        for (uint32_t c = 0; c < columns; c++)
            v[c].has_null = false;
    }
    return rc;
}

int sql_make_set(struct query *q, struct expr *in, const struct sql_value *values, uint32_t n)
{
    if (in->n_args == 1)
        return make_words(q, in, values, n);
    in->set = sql_get(q, 1, sizeof(struct in_set));
    return in->set ? make_rows(q, in, values, n) : -ENOMEM;
}

bool sql_same_set(const struct expr *a, const struct expr *b)
{
    const struct in_set *x = a->set, *y = b->set;
    bool same = a->null_in == b->null_in && x->textual == y->textual && x->n == y->n &&
                x->n_rows == y->n_rows && x->n_cols == y->n_cols;
    for (uint32_t i = 0; same && i < x->n; i++)
        same = x->textual ? same_text(x->texts[i], y->texts[i]) : x->words[i] == y->words[i];
    for (uint64_t i = 0; same && i < (uint64_t)x->n_rows * x->n_cols; i++)
        same = x->values[i].type == y->values[i].type &&
               (x->values[i].type == SQL_NULL || same_value(&x->values[i], &y->values[i]));
    return same;
}

static int run_rows(struct run *r, struct step *st, const uint16_t *sel, uint32_t n)
{
    struct in_set *s = st->expr->set;
    struct sql_value probe[SQL_CALL_ARGS];
    for (uint32_t k = 0; k < n; k++) {
        uint16_t i = sel ? sel[k] : (uint16_t)k;
        bool null = false;
        for (uint32_t c = 0; c < s->n_cols; c++) {
            probe[c] = sql_vec_value(r->q, st->args[c], i);
            null = null || probe[c].type == SQL_NULL;
        }
        uint32_t number = UINT32_MAX;
        int rc = null ? 0 : sql_keys_find(&s->keys, st->args, &i, 1, &number);
        if (rc < 0)
            return rc;
        struct sql_value v = {.type = SQL_BOOL, .boolean = number != UINT32_MAX};
        if (number == UINT32_MAX && (null || s->has_null))
            rc = sql_worked(r->q, s->n_rows);
        if (rc < 0)
            return rc;
        if (number == UINT32_MAX && (null || s->has_null))
            v = sql_is_among(probe, s->values, s->n_rows, s->n_cols);
        if (v.type == SQL_NULL)
            sql_set_null(st->dst, i);
        st->dst->i[i] = v.boolean != st->expr->negated;
    }
    return 0;
}

int sql_run_in(struct run *r, struct step *st, const uint16_t *sel, uint32_t n)
{
    const struct in_set *s = st->expr->set;
    const struct vec *a = st->a[0];
    if (st->n_args > 1)
        return run_rows(r, st, sel, n);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        uint64_t word = 0;
        if (a->type == SQL_DOUBLE)
            word = double_word(a->d[i]);
        else if (!s->textual)
            memcpy(&word, &a->i[i], sizeof(word));
        struct text t = {NULL, 0};
        if (s->textual)
            t = compared_value(a->type, a->t[i].data, a->t[i].size);
        bool found = *set_slot(s, word, t) != 0;
        if (!found && st->expr->null_in)
            sql_set_null(st->dst, i);
        st->dst->i[i] = found != st->expr->negated;
    }
    return 0;
}
