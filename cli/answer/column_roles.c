/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer/column_roles.c - see column_roles.h.
 *
 * One thread.
 */
#include "cli/answer/column_roles.h"

#include <string.h>

/* The first name that a column of such a type has wins. */
static const struct {
    const char *names[8];
    enum sql_type types[2];
} roles[ROLES] = {
    [ROLE_END] = {{"ts", "timestamp", "time"}, {SQL_TIMESTAMP}},
    [ROLE_BEGIN] = {{"begun", "start", "started", "start_ts"}, {SQL_TIMESTAMP}},
    [ROLE_DURATION] = {{"duration", "dur", "elapsed", "duration_ns", "step_duration_sec"},
                       {SQL_DOUBLE, SQL_INT}},
    [ROLE_NAME] = {{"module", "name", "kernel", "op", "operation", "function", "span"}, {SQL_TEXT}},
    [ROLE_KIND] = {{"stage", "kind", "category", "cat"}, {SQL_TEXT}},
    [ROLE_TID] = {{"tid", "thread", "stream"}, {SQL_INT, SQL_DOUBLE}},
    [ROLE_TRACK] = {{"track"}, {SQL_TEXT}},
    [ROLE_PID] = {{"pid"}, {SQL_INT, SQL_DOUBLE}},
};

static bool has_type(const struct sql_column *c, enum column_role role)
{
    return c->type != SQL_NULL &&
           (c->type == roles[role].types[0] || c->type == roles[role].types[1]);
}

int column_in_role(const struct sql_column *list, uint32_t n, enum column_role role)
{
    for (int k = 0; k < 8 && roles[role].names[k] != NULL; k++)
        for (uint32_t i = 0; i < n; i++)
            if (has_type(&list[i], role) && strcmp(list[i].name, roles[role].names[k]) == 0)
                return (int)i;
    for (uint32_t i = 0; role == ROLE_END && i < n; i++)
        if (list[i].type == SQL_TIMESTAMP)
            return (int)i;
    return -1;
}

double column_unit_ns(const struct sql_column *c)
{
    bool ns = c->unit == PROBING_NS || (c->type == SQL_INT && c->unit != PROBING_SECONDS);

    return ns ? 1 : 1e9;
}
