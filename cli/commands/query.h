/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/query.h - what `query` does for `tables` and `describe`, which are statements.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_QUERY_H
#define CLI_COMMANDS_QUERY_H

#include "cli/target/query_client.h"

/* The value of --format.  0 or -errno. */
int query_parse_format(struct answer_ask *ask, const char *value);
/* Prints the answer of one statement in the format that `ask` has. */
int query_print(const struct target *t, const struct answer_ask *ask);

#endif
