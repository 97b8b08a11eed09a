/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind/bind_zone.c - x at time zone 'Europe/Berlin': which way it goes.
 *
 * There is one type of timestamps, and they are moments, in UTC: PostgreSQL's timestamptz.  What
 * the clocks of a zone show of a moment is marked, as is what is cast to `timestamp` (without time
 * zone): at time zone makes a moment of such again.  The query's thread only.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/sql/bind/bind.h"

uint8_t sql_clock_of(const struct node *n, struct expr *const *args, const enum sql_type *types)
{
    static const char *const names[] = {"date_trunc", "date_bin", "time_bucket", "+",
                                        "-",          "round",    "greatest",    "least"};
    bool known = false, any = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !known; i++)
        known = strcmp(n->text, names[i]) == 0;
    for (uint32_t i = 0; i < n->n_args && known; i++) {
        bool day = types[i] == SQL_DATE && (n->text[0] == '+' || n->text[0] == '-');
        any = any || day || args[i]->mark == MARK_CLOCK;
        known = types[i] != SQL_TIMESTAMP || args[i]->mark == MARK_CLOCK;
    }
    return known && any ? MARK_CLOCK : MARK_NONE;
}

static bool is_utc(const struct expr *zone)
{
    static const char *const names[] = {"utc", "gmt", "z", "zulu", "etc/utc", "etc/gmt"};
    const struct sql_value *v = &zone->value;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (zone->kind == EXPR_CONST && v->type == SQL_TEXT && v->text.size == strlen(names[i]) &&
            strncasecmp(v->text.data, names[i], v->text.size) == 0)
            return true;
    return false;
}

/* date_trunc('day', x, zone): of what the clocks there show, and back. */
static int bind_trunc(struct query *q, const struct node *n, struct expr **args, struct expr **ret)
{
    struct node zone = *n;
    struct expr *pair[2] = {args[2], args[1]};
    zone.text = "timezone";
    zone.n_args = 2;
    int rc = sql_coerce(q, &pair[1], SQL_TIMESTAMP, n->text);
    rc = rc < 0 ? rc : sql_mark(q, &pair[1], MARK_NONE);
    rc = rc < 0 ? rc : sql_bind_zone(q, &zone, pair, &pair[1]);
    rc = rc < 0 ? rc : sql_call_named(q, n, n->text, args[0], pair[1], &pair[1]);
    return rc < 0 ? rc : sql_bind_zone(q, &zone, pair, ret);
}

int sql_bind_zone(struct query *q, const struct node *n, struct expr **args, struct expr **ret)
{
    if (n->n_args == 3 && strcmp(n->text, "date_trunc") == 0)
        return bind_trunc(q, n, args, ret);
    if (n->n_args != 2 || strcmp(n->text, "timezone") != 0)
        return 0;
    bool back = args[1]->mark == MARK_CLOCK;
    int rc = sql_coerce(q, &args[1], SQL_TIMESTAMP, "at time zone");
    if (rc < 0)
        return rc;
    if (args[0]->type == SQL_CALENDAR)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "a time zone is away from UTC by hours, not by months or years");
    if (args[0]->type == SQL_INTERVAL)
        rc = sql_call_named(q, n, back ? "-" : "+", args[1], args[0], ret);
    else if (is_utc(args[0]))
        *ret = args[1];
    else
        rc = sql_call_named(q, n, back ? "zone time" : "zone clock", args[0], args[1], ret);
    rc = rc < 0 ? rc : sql_mark(q, ret, back ? MARK_NONE : MARK_CLOCK);
    return rc < 0 ? rc : 1;
}
