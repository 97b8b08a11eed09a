/* SPDX-License-Identifier: Apache-2.0
 *
 * core/builtin/builtin.h - what a whole core can be asked beside what its parts add themselves:
 * commands, tables and settings over a host with store, SQL and server.
 *
 * Each is called once, when the parts are there; 0 or a negative errno with err_set().
 */
#ifndef CORE_BUILTIN_BUILTIN_H
#define CORE_BUILTIN_BUILTIN_H

#include "core/core.h"
#include "core/plugin_host/plugin_host.h"

/* builtin.c: query, tables, plugin ..., config ..., info, eject */
int commands_add(struct core *c);
int metrics_command_add(struct core *c);           /* metrics.c: metrics */
int metrics_text(struct core *c, struct buf *ret); /* as OpenMetrics; caller buf_done()s it */
int metrics_table_add(struct core *c);             /* metrics_table.c: probing.metrics */
int flamegraph_command_add(struct core *c);        /* flamegraph.c: flamegraph */
/* process_tables.c: cpu.tasks, process.memory, process.info, process.envs, probing.overhead,
 * probing.clients */
int process_tables_add(struct core *c);
/* declarations.c: probing.flame_modes; and what the host does with what plugins declare. */
int declarations_add(struct core *c);
int limits_table_add(struct core *c); /* headroom.c: probing.limits */
struct host_declares declarations_of(struct core *c);
int queries_settings_add(struct core *c); /* query_settings.c: query.max_memory ... */

#endif
