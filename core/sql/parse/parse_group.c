/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/parse_group.c - group by: expressions, rollup, cube, grouping sets.
 *
 * Several elements become one list of sets, each with what one of every element has:
 * a, rollup (b, c) is (a, b, c), (a, b), (a).  The query's thread only.
 */
#include "core/sql/parse/parse.h"

struct sets {
    uint64_t *sets; /* a bit for each expression of the select's `group` */
    uint32_t n;
};

static bool add_set(struct parser *p, struct sets *s, uint64_t set)
{
    if (s->n == SQL_SETS_MAX)
        sql_parse_fail(p, now(p)->pos, "more than 4096 grouping sets");
    if (!p->error)
        s->sets = sql_parse_grown(p, s->sets, s->n, sizeof(*s->sets));
    if (p->error)
        return false;
    s->sets[s->n++] = set;
    return true;
}

static bool is_set_of_sets(const struct parser *p)
{
    return (is_word(p, 0, "grouping") && is_word(p, 1, "sets")) ||
           (is_sign_at(p, 1, "(") && (is_word(p, 0, "rollup") || is_word(p, 0, "cube")));
}

static bool is_nothing(const struct parser *p)
{
    return is_sign(p, "(") && is_sign_at(p, 1, ")");
}

/* a, or (a, b), or (): which of `group` it is. */
static uint64_t parse_keys(struct parser *p, struct select *s)
{
    uint64_t set = 0;
    if (is_nothing(p)) {
        p->at += 2;
        return 0;
    }
    struct node *n = sql_parse_expr(p, 0);
    bool row = n && n->kind == NODE_ROW;
    for (uint32_t i = 0; i < (row ? n->n_args : 1) && !p->error; i++) {
        s->group = sql_parse_grown(p, s->group, s->n_group, sizeof(*s->group));
        if (p->error)
            break;
        if (s->n_group < 64)
            set |= UINT64_C(1) << s->n_group;
        s->group[s->n_group++] = row ? n->args[i] : n;
    }
    return set;
}

/* rollup (a, (b, c)): (a, b, c), (a), ();  cube (a, b): (a, b), (a), (b), () */
static struct sets parse_rollup(struct parser *p, struct select *s, bool cube)
{
    struct sets parts = {NULL, 0}, all = {NULL, 0};
    uint32_t pos = now(p)->pos;
    p->at += 2;
    do
        (void)add_set(p, &parts, parse_keys(p, s));
    while (take_sign(p, ",") && !p->error);
    need_sign(p, ")", ", or )");
    if (cube && parts.n > 12)
        sql_parse_fail(p, pos, "a cube of more than 12 makes more than 4096 grouping sets");
    uint32_t n = p->error ? 0 : cube ? UINT32_C(1) << parts.n : parts.n + 1;
    for (uint32_t lacks = 0; lacks < n && !p->error; lacks++) {
        uint64_t set = 0;
        for (uint32_t i = 0; i < parts.n; i++)
            if (cube ? !(lacks >> (parts.n - 1 - i) & 1) : i + lacks < parts.n)
                set |= parts.sets[i];
        (void)add_set(p, &all, set);
    }
    return all;
}

static struct sets parse_element(struct parser *p, struct select *s)
{
    struct sets all = {NULL, 0};
    if (!sql_parse_enter(p))
        return all;
    if (!is_set_of_sets(p)) {
        (void)add_set(p, &all, parse_keys(p, s));
    } else if (!is_word(p, 0, "grouping")) {
        all = parse_rollup(p, s, is_word(p, 0, "cube"));
    } else {
        p->at += 2;
        need_sign(p, "(", "( after grouping sets");
        do {
            struct sets one = parse_element(p, s);
            for (uint32_t i = 0; i < one.n && !p->error; i++)
                (void)add_set(p, &all, one.sets[i]);
        } while (take_sign(p, ",") && !p->error);
        need_sign(p, ")", ", or )");
    }
    p->depth--;
    return all;
}

/* Each of `a` with each of `b`. */
static struct sets combine_sets(struct parser *p, const struct sets *a, const struct sets *b)
{
    struct sets all = {NULL, 0};
    for (uint32_t i = 0; i < a->n && !p->error; i++)
        for (uint32_t k = 0; k < b->n && !p->error; k++)
            (void)add_set(p, &all, a->sets[i] | b->sets[k]);
    return all;
}

void sql_parse_group(struct parser *p, struct select *s)
{
    struct sets all = {NULL, 0};
    bool sets = false;
    need_word(p, "by", "by after group");
    bool distinct = take_word(p, "distinct");
    if (!distinct && take_word(p, "all") && !is_name(p) && !is_sign(p, "(")) {
        s->group_all = true;
        return;
    }
    uint32_t pos = now(p)->pos;
    (void)add_set(p, &all, 0);
    do {
        sets = sets || is_set_of_sets(p);
        struct sets one = parse_element(p, s);
        all = combine_sets(p, &all, &one);
    } while (take_sign(p, ",") && !p->error);
    if (p->error || sql_parse_other_group(p))
        return;
    s->group_none = !s->n_group && !sets;
    if (!sets)
        return;
    if (s->n_group > SQL_SET_KEYS_MAX) {
        sql_parse_fail(p, pos, "grouping sets of more than 31 expressions");
        return;
    }
    s->sets = all.sets;
    s->sets_distinct = distinct;
    s->n_sets = all.n;
}
