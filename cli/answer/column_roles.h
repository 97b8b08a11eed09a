/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer/column_roles.h - which column of an answer says when a row was, how long it took, and
 * whose it is: by name and type.
 *
 * One thread.
 */
#ifndef CLI_ANSWER_COLUMN_ROLES_H
#define CLI_ANSWER_COLUMN_ROLES_H

#include "core/sql/sql.h"

enum column_role {
    ROLE_END, /* the time: all our tables have that of the end */
    ROLE_BEGIN,
    ROLE_DURATION,
    ROLE_NAME,
    ROLE_KIND,
    ROLE_TID,
    ROLE_TRACK,
    ROLE_PID,
    ROLES
};

/* The column's place in the list; -1: none has that role. */
int column_in_role(const struct sql_column *list, uint32_t n, enum column_role role);
/* The nanoseconds of 1 in a column of durations. */
double column_unit_ns(const struct sql_column *c);

#endif
