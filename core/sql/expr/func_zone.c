/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_zone.c - at time zone: what the clocks of a zone show, and when they show it.
 *
 * The query's thread only.  A zone is read once while it stays the same from row to row.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/value/time_zone.h"

#define ZONE_BYTES ((size_t)1 << 20)

struct known {
    struct arena mem;
    struct text name; /* in mem */
    struct time_zone *zone;
};

static void forget_zones(void *arg)
{
    struct known *k = arg;
    arena_done(&k->mem);
}

static int find_zone(struct run *r, struct step *st, struct text name, struct time_zone **ret)
{
    struct known *k = st->state;
    if (!k) {
        if (!(k = sql_get(r->q, 1, sizeof(*k))) || sql_defer(r->q, forget_zones, k) < 0)
            return -ENOMEM;
        arena_init(&k->mem, ZONE_BYTES);
        st->state = k;
    }
    if (!k->zone || sql_compare_text(k->name, name) != 0) {
        arena_done(&k->mem);
        arena_init(&k->mem, ZONE_BYTES);
        k->zone = NULL;
        k->name = (struct text){arena_text(&k->mem, name.data, name.size), name.size};
        int rc = k->name.data ? time_zone_new(&k->mem, name.data, name.size, &k->zone) : -ENOMEM;
        if (rc < 0) {
            char why[ERR_TEXT_BYTES / 2];
            (void)snprintf(why, sizeof(why), "%s", err_why(rc));
            k->zone = NULL;
            return sql_run_error(r, st, rc, why);
        }
    }
    *ret = k->zone;
    return 0;
}

KERNEL(at_zone)
{
    bool utc = strcmp(st->expr->func->name, "zone time") == 0;
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct time_zone *zone;
        if ((rc = find_zone(r, st, st->a[0]->t[i], &zone)) < 0)
            return rc;
        rc = utc ? time_zone_utc(zone, st->a[1]->i[i], &st->dst->i[i])
                 : time_zone_clock(zone, st->a[1]->i[i], &st->dst->i[i]);
    }
    return rc < 0 ? sql_run_error(r, st, rc, "timestamp out of range") : 0;
}

const struct func sql_zone_funcs[] = {{"zone clock", "ts", 's', 0, at_zone},
                                      {"zone time", "ts", 's', 0, at_zone},
                                      {NULL, NULL, 0, 0, NULL}};
