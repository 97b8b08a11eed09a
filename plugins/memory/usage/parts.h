/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/parts.h - the table memory.parts: what the process's memory is made of, as
 * it is when somebody asks; and the command `trim`.
 */
#ifndef MEMORY_USAGE_PARTS_H
#define MEMORY_USAGE_PARTS_H

#include <probing/plugin.h>
#include <stdint.h>

#include "alloc_stats.h"
#include "look.h"

/* Rows of one look; heap: what the allocator said.  0 or what emit() gives.         [worker] */
int parts_emit(const struct probing_host *host, struct probing_rows *out,
               const struct memory_look *l, const struct cgroup *g, const struct alloc_stats *heap);

#endif
