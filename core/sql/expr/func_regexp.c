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

KERNEL(count_matches)
{
    int rc = 0;
    uint32_t slots[2 * REGEXP_GROUPS];
    for (uint32_t k = 0; k < n && rc >= 0; k++) {
        uint32_t i = sel ? sel[k] : k, at = 0;
        struct text t = st->args[0]->t[i];
        struct regexp *re;
        int64_t count = 0;
        rc = compile_pattern(r, st, st->args[1]->t[i], 0, &re);
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

/* The first match, or all of them. */
static int replace_in(struct run *r, struct regexp *re, struct text t, struct text by, bool all,
                      struct buf *b)
{
    uint32_t slots[2 * REGEXP_GROUPS], from = 0, at = 0;
    int rc = 0;
    for (bool more = true; more && at <= t.size && !b->failed; more = all) {
        rc = regexp_find(re, t.data, t.size, at, slots, check_work, r->q);
        if (rc <= 0)
            break;
        at = behind_match(t, slots);
        (void)buf_add(b, t.data + from, slots[0] - from);
        add_replacement(b, t, by, slots, regexp_groups(re));
        from = slots[1];
    }
    (void)buf_add(b, t.data + from, t.size - from);
    return rc < 0      ? rc
           : b->failed ? err_set(-ENOMEM, "the text is too long for the memory of the query")
                       : 0;
}

/* regexp_replace(x, pattern, by[, flags]): one match, or all of them with g. */
KERNEL(replace)
{
    struct buf b;
    int rc = 0;
    bool all = false;
    buf_init(&b, (size_t)64 << 20);
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        uint32_t flags = 0;
        struct regexp *re;
        if (st->n_args > 3)
            rc = read_flags(r, st, st->args[3]->t[i], &flags, &all);
        if (rc == 0)
            rc = compile_pattern(r, st, st->args[1]->t[i], flags, &re);
        buf_reset(&b);
        if (rc == 0)
            rc = replace_in(r, re, st->args[0]->t[i], st->args[2]->t[i], all, &b);
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
                                        {"regexp_count", "tt", 'i', 0, count_matches},
                                        {"regexp_replace", "ttt", 't', 0, replace},
                                        {"regexp_replace", "tttt", 't', 0, replace},
                                        {NULL, NULL, 0, 0, NULL}};
