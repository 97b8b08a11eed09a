/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/flame_ranks.h - `flamegraph` of many members: one picture, and on its frames which ranks
 * are there.
 *
 * One thread.
 */
#ifndef CLI_MANY_FLAME_RANKS_H
#define CLI_MANY_FLAME_RANKS_H

#include "cli/many/run_each.h"

/* Each is asked as `flamegraph` asks one, all at the same time; results stand in the members.
 * 0, or -errno. */
int flame_ranks(struct members *m, const struct each_run *run);

#endif
