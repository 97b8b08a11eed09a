/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/global_query.h - one statement over the tables of many members: global.SCHEMA.TABLE.
 *
 * One thread.
 */
#ifndef CLI_MANY_GLOBAL_QUERY_H
#define CLI_MANY_GLOBAL_QUERY_H

#include "cli/many/query_members.h"

struct answer_ask;

/* As members_table(), of a statement that sql_is_global() takes.  Members that are not in the
 * answer have their result say why; with ask->strict that is an error, and nothing is written. */
int members_global(struct members *m, const struct members_ask *how, const struct answer_ask *ask,
                   int (*fn)(void *arg, const char *data, size_t size), void *arg);

#endif
