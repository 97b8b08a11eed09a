/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/one_table.h - the answers of many members as one answer: a column that says whose a row
 * is, then theirs.
 *
 * One thread.
 */
#ifndef CLI_MANY_ONE_TABLE_H
#define CLI_MANY_ONE_TABLE_H

#include "cli/answer/columns.h"
#include "cli/many/query_members.h"

struct answer_ask;

/* As answer_bytes(), of all members at once: in the order of the list, each member's rows in its
 * own order.  A member that fails is left out, and its result says why; one whose answer was so
 * long that it went out before its end, and then failed, is named as incomplete.  `ask->limit` is
 * of all rows together. */
int members_table(struct members *m, const struct members_ask *how, const struct answer_ask *ask,
                  int (*fn)(void *arg, const char *data, size_t size), void *arg);

/* Say on stderr where the columns of those that answered differ.  of: a member's columns, placed;
 * NULL: it has told none. */
void members_say_differences(const struct members *m, const struct joined_columns *columns,
                             const struct own_columns *(*of)(const void *arg, uint32_t i),
                             const void *arg);

#endif
