/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_regexp.c - ~ ~* !~ !~*, regexp_like, regexp_match, regexp_replace,
 * regexp_count, regexp_substr, regexp_instr.
 *
 * The query's thread only.  A pattern is compiled once while it stays the same from row to row.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/value/regexp.h"

#define PROGRAM_BYTES ((size_t)8 << 20) /* of one compiled pattern */

struct compiled {
    struct arena mem;
    struct text pattern; /* in mem */
    uint32_t flags;
    struct regexp *r; /* NULL: none yet */
};

static void forget_regexps(void *arg)
{
    struct compiled *c = arg;
    arena_done(&c->mem);
}

static int check_work(void *arg)
{
    return sql_check(arg);
}

static int compile_pattern(struct run *r, struct step *st, struct text pattern, uint32_t flags,
                           struct regexp **ret)
{
    struct compiled *c = st->state;
    if (!c) {
        if (!(c = sql_get(r->q, 1, sizeof(*c))) || sql_defer(r->q, forget_regexps, c) < 0)
            return -ENOMEM;
        arena_init(&c->mem, PROGRAM_BYTES);
        st->state = c;
    }
    if (!c->r || c->flags != flags || sql_compare_text(c->pattern, pattern) != 0) {
        arena_done(&c->mem);
        arena_init(&c->mem, PROGRAM_BYTES);
        c->r = NULL;
        c->flags = flags;
        c->pattern = (struct text){arena_text(&c->mem, pattern.data, pattern.size), pattern.size};
        int rc = c->pattern.data ? 0 : -ENOMEM;
        if (rc == 0)
            rc = regexp_new(&c->mem, c->pattern.data, pattern.size, flags, &c->r);
        if (rc < 0) {
            char why[ERR_TEXT_BYTES / 2];
            (void)snprintf(why, sizeof(why), "%s", err_why(rc));
            return sql_run_error(r, st, rc, why);
        }
    }
    *ret = c->r;
    return 0;
}

/* The letters of a flags argument; *ret_all: g. */
static int read_flags(struct run *r, struct step *st, struct text t, uint32_t *ret, bool *ret_all)
{
    *ret = 0;
    *ret_all = false;
    for (uint32_t i = 0; i < t.size; i++) {
        if (t.data[i] == 'i')
            *ret |= REGEXP_FOLD;
        else if (t.data[i] == 'n' || t.data[i] == 'm')
            *ret |= REGEXP_LINES;
        else if (t.data[i] == 'g')
            *ret_all = true;
        else if (t.data[i] == 'q')
            *ret |= REGEXP_PLAIN;
        else if (t.data[i] != 'c' && t.data[i] != 's')
            return sql_run_error(r, st, -EINVAL,
                                 "the flags of a regular expression are i (case), n (lines), "
                                 "q (only letters), g (all)");
    }
    return 0;
}

/* x ~ 'pattern', regexp_like(x, 'pattern'[, flags]) */
KERNEL(matches)
{
    const char *name = st->expr->func->name;
    bool negated = name[0] == '!', all;
    uint32_t flags = strchr(name, '*') ? REGEXP_FOLD : 0;
    int rc = 0;
    for (uint32_t k = 0; k < n && rc >= 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->args[0]->t[i];
        struct regexp *re;
        if (st->n_args > 2)
            rc = read_flags(r, st, st->args[2]->t[i], &flags, &all);
        if (rc == 0)
            rc = compile_pattern(r, st, st->args[1]->t[i], flags, &re);
        if (rc == 0)
            rc = regexp_find(re, t.data, t.size, 0, NULL, check_work, r->q);
        st->dst->i[i] = (rc > 0) != negated;
        rc = rc > 0 ? 0 : rc;
    }
    return rc;
}

/* regexp_match(x, pattern[, group or flags]): the group, else the first one if any, else all;
 * regexp_extract() gives the whole match where no group is asked for, as DuckDB's. */
KERNEL(match)
{
    int rc = 0;
    bool all, group_given = st->n_args > 2 && st->args[2]->type == SQL_INT;
    uint32_t slots[2 * REGEXP_GROUPS], flags = 0;
    const char *name = st->expr->func->name;
    bool whole = strcmp(name, "regexp_extract") == 0 || strcmp(name, "regexp_substr") == 0;
    for (uint32_t k = 0; k < n && rc >= 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->args[0]->t[i];
        struct regexp *re;
        if (st->n_args > 2 && !group_given)
            rc = read_flags(r, st, st->args[2]->t[i], &flags, &all);
        if (rc == 0)
            rc = compile_pattern(r, st, st->args[1]->t[i], flags, &re);
        if (rc == 0)
            rc = regexp_find(re, t.data, t.size, 0, slots, check_work, r->q);
        if (rc < 0)
            return rc;
        int64_t group = group_given ? st->args[2]->i[i] : regexp_groups(re) && !whole ? 1 : 0;
        if (rc == 0 || group < 0 || group > regexp_groups(re) || slots[2 * group] == UINT32_MAX)
            sql_set_null(st->dst, i);
        else
            st->dst->t[i] =
                (struct text){t.data + slots[2 * group], slots[2 * group + 1] - slots[2 * group]};
        rc = 0;
    }
    return rc;
}

/* Give the place to look on from behind a match: an empty one must not be found again. */
static uint32_t behind_match(struct text t, const uint32_t *slots)
{
    uint32_t at = slots[1];
    if (slots[1] == slots[0])
        do
            at++;
        while (at < t.size && ((unsigned char)t.data[at] & 0xc0) == 0x80);
    return at;
}

/* Give the place of the letter numbered `first`, from 1; UINT32_MAX: behind the end. */
static uint32_t place_of(struct text t, int64_t first)
{
    uint32_t at = 0;
    for (; first > 1 && at < t.size; first--)
        do
            at++;
        while (at < t.size && !sql_is_start(t.data[at]));
    return first > 1 ? UINT32_MAX : at;
}

/* PostgreSQL's arguments behind the pattern: f(text, pattern[, first[, number ...]]) */
struct asked {
    int64_t first, number; /* letter to begin at, from 1; which match, from 1 */
    int64_t end, group;    /* regexp_instr: behind it; 0: all of it */
    uint32_t flags;
};

/* letters: the arguments behind the pattern, in order: s(tart) N e(nd) f(lags) g(roup) */
static int read_asked(struct run *r, struct step *st, uint32_t i, uint32_t at, const char *letters,
                      struct asked *ret)
{
    bool all;
    int rc = 0;
    *ret = (struct asked){.first = 1, .number = 1};
    for (; at < st->n_args && rc == 0; at++, letters++) {
        const struct vec *v = st->args[at];
        if (*letters == 'f')
            rc = read_flags(r, st, v->t[i], &ret->flags, &all);
        else if (*letters == 's')
            ret->first = v->i[i];
        else
            *(*letters == 'N' ? &ret->number : *letters == 'e' ? &ret->end : &ret->group) = v->i[i];
    }
    if (rc == 0 &&
        (ret->first < 1 || ret->number < 0 || ret->end < 0 || ret->end > 1 || ret->group < 0))
        return sql_run_error(r, st, -EINVAL,
                             "it begins at a letter from 1 on, and counts matches from 1 and "
                             "groups from 0; the end is asked for with 1, the beginning with 0");
    return rc;
}

/* The match that is asked for.  1: found, 0: there is none, or its group took no part. */
static int find_asked(struct run *r, struct step *st, uint32_t i, const struct asked *a,
                      uint32_t slots[2 * REGEXP_GROUPS])
{
    struct text t = st->args[0]->t[i];
    struct regexp *re;
    uint32_t at = place_of(t, a->first);
    int rc = compile_pattern(r, st, st->args[1]->t[i], a->flags, &re);
    if (rc == 0 && a->number < 1)
        return sql_run_error(r, st, -EINVAL, "matches are counted from 1");
    if (rc < 0 || at == UINT32_MAX || a->group > regexp_groups(re))
        return rc;
    for (int64_t k = 0; k < a->number && rc >= 0; k++) {
        if (k > 0)
            at = behind_match(t, slots);
        rc = at > t.size ? 0 : regexp_find(re, t.data, t.size, at, slots, check_work, r->q);
        if (rc == 0)
            return 0;
    }
    return rc < 0 ? rc : slots[2 * a->group] != UINT32_MAX;
}

/* regexp_substr(x, pattern, first[, number[, flags[, group]]]) */
KERNEL(match_numbered)
{
    uint32_t slots[2 * REGEXP_GROUPS];
    int rc = 0;
    for (uint32_t k = 0; k < n && rc >= 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct asked a;
        const char *data = st->args[0]->t[i].data;
        rc = read_asked(r, st, i, 2, "sNfg", &a);
        rc = rc < 0 ? rc : find_asked(r, st, i, &a, slots);
        if (rc > 0)
            st->dst->t[i] = (struct text){data + slots[2 * a.group],
                                          slots[2 * a.group + 1] - slots[2 * a.group]};
        else if (rc == 0)
            sql_set_null(st->dst, i);
    }
    return rc < 0 ? rc : 0;
}

/* regexp_instr(x, pattern[, first[, number[, end[, flags[, group]]]]]) */
KERNEL(match_place)
{
    uint32_t slots[2 * REGEXP_GROUPS];
    int rc = 0;
    for (uint32_t k = 0; k < n && rc >= 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct asked a;
        rc = read_asked(r, st, i, 2, "sNefg", &a);
        rc = rc < 0 ? rc : find_asked(r, st, i, &a, slots);
        struct text before = {st->args[0]->t[i].data, rc > 0 ? slots[2 * a.group + a.end] : 0};
        st->dst->i[i] = rc > 0 ? sql_characters(before) + 1 : 0;
    }
    return rc < 0 ? rc : 0;
}

/* regexp_count(x, pattern[, first[, flags]]) */
KERNEL(count_matches)
{
    int rc = 0;
    uint32_t slots[2 * REGEXP_GROUPS];
    for (uint32_t k = 0; k < n && rc >= 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->args[0]->t[i];
        struct regexp *re;
        struct asked a;
        int64_t count = 0;
        rc = read_asked(r, st, i, 2, "sf", &a);
        rc = rc < 0 ? rc : compile_pattern(r, st, st->args[1]->t[i], a.flags, &re);
        uint32_t at = place_of(t, a.first);
        for (; rc >= 0 && at <= t.size; at = behind_match(t, slots)) {
            rc = regexp_find(re, t.data, t.size, at, slots, check_work, r->q);
            if (rc <= 0)
                break;
            count++;
        }
        st->dst->i[i] = count;
    }
    return rc < 0 ? rc : 0;
}

/* One match's replacement: \1 a group, \& the match, \\ a backslash. */
static void add_replacement(struct buf *b, struct text t, struct text by, const uint32_t *slots,
                            uint32_t groups)
{
    for (uint32_t i = 0; i < by.size; i++) {
        char c = by.data[i], d = i + 1 < by.size ? by.data[i + 1] : '\0';
        bool group = c == '\\' && ((d >= '0' && d <= '9') || d == '&');
        if (c == '\\' && d == '\\')
            i++;
        if (!group) {
            (void)buf_addc(b, c);
            continue;
        }
        uint32_t g = d == '&' ? 0 : (uint32_t)(d - '0');
        i++;
        if (g <= groups && slots[2 * g] != UINT32_MAX)
            (void)buf_add(b, t.data + slots[2 * g], slots[2 * g + 1] - slots[2 * g]);
    }
}

/* The match numbered so of those from letter a->first on; 0: all of them. */
static int replace_one(struct run *r, struct regexp *re, struct text t, struct text by,
                       const struct asked *a, struct buf *b)
{
    uint32_t slots[2 * REGEXP_GROUPS], from = 0, at = place_of(t, a->first);
    int rc = 0;
    for (int64_t k = 1; at <= t.size && (a->number == 0 || k <= a->number) && !b->failed; k++) {
        rc = regexp_find(re, t.data, t.size, at, slots, check_work, r->q);
        if (rc <= 0)
            break;
        at = behind_match(t, slots);
        if (a->number && k < a->number)
            continue;
        (void)buf_add(b, t.data + from, slots[0] - from);
        add_replacement(b, t, by, slots, regexp_groups(re));
        from = slots[1];
    }
    (void)buf_add(b, t.data + from, t.size - from);
    return rc < 0      ? rc
           : b->failed ? err_set(-ENOMEM, "the text is too long for the memory of the query")
                       : 0;
}

/* regexp_replace(x, pattern, by[, flags]), or (x, pattern, by, first[, number[, flags]]):
 * one match, or all of them with g or the number 0. */
KERNEL(replace)
{
    struct buf b;
    int rc = 0;
    bool all = false, counts = st->n_args > 3 && st->args[3]->type == SQL_INT;
    struct asked a = {.first = 1, .number = 1};
    buf_init(&b, (size_t)64 << 20);
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct regexp *re;
        if (counts)
            rc = read_asked(r, st, i, 3, "sNf", &a);
        else if (st->n_args > 3)
            rc = read_flags(r, st, st->args[3]->t[i], &a.flags, &all);
        if (!counts)
            a.number = !all;
        if (rc == 0)
            rc = compile_pattern(r, st, st->args[1]->t[i], a.flags, &re);
        buf_reset(&b);
        if (rc == 0)
            rc = replace_one(r, re, st->args[0]->t[i], st->args[2]->t[i], &a, &b);
        char *copy = rc == 0 ? sql_scratch(r, b.size) : NULL;
        if (rc == 0 && !copy)
            rc = -ENOMEM;
        if (rc == 0 && b.size)
            memcpy(copy, b.data, b.size);
        st->dst->t[i] = (struct text){copy ? copy : "", (uint32_t)b.size};
    }
    buf_done(&b);
    return rc;
}

const struct func sql_regexp_funcs[] = {{"~", "tt", 'b', 0, matches},
                                        {"~*", "tt", 'b', 0, matches},
                                        {"!~", "tt", 'b', 0, matches},
                                        {"!~*", "tt", 'b', 0, matches},
                                        {"regexp_like", "tt", 'b', 0, matches},
                                        {"regexp_like", "ttt", 'b', 0, matches},
                                        {"regexp_matches", "tt", 'b', 0, matches},
                                        {"regexp_matches", "ttt", 'b', 0, matches},
                                        {"regexp_match", "tt", 't', 0, match},
                                        {"regexp_match", "tti", 't', 0, match},
                                        {"regexp_match", "ttt", 't', 0, match},
                                        {"regexp_extract", "tt", 't', 0, match},
                                        {"regexp_extract", "tti", 't', 0, match},
                                        {"regexp_substr", "tt", 't', 0, match},
                                        {"substring", "tt", 't', 0, match},
                                        {"regexp_substr", "tti", 't', 0, match_numbered},
                                        {"regexp_substr", "ttii", 't', 0, match_numbered},
                                        {"regexp_substr", "ttiit", 't', 0, match_numbered},
                                        {"regexp_substr", "ttiiti", 't', 0, match_numbered},
                                        {"regexp_instr", "tt", 'i', 0, match_place},
                                        {"regexp_instr", "tti", 'i', 0, match_place},
                                        {"regexp_instr", "ttii", 'i', 0, match_place},
                                        {"regexp_instr", "ttiii", 'i', 0, match_place},
                                        {"regexp_instr", "ttiiit", 'i', 0, match_place},
                                        {"regexp_instr", "ttiiiti", 'i', 0, match_place},
                                        {"regexp_count", "tt", 'i', 0, count_matches},
                                        {"regexp_count", "tti", 'i', 0, count_matches},
                                        {"regexp_count", "ttit", 'i', 0, count_matches},
                                        {"regexp_replace", "ttt", 't', 0, replace},
                                        {"regexp_replace", "tttt", 't', 0, replace},
                                        {"regexp_replace", "ttti", 't', 0, replace},
                                        {"regexp_replace", "tttii", 't', 0, replace},
                                        {"regexp_replace", "tttiit", 't', 0, replace},
                                        {NULL, NULL, 0, 0, NULL}};
