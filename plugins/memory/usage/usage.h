/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/usage.h - how much memory the process has, what it is made of, and what the
 * limit is: memory.usage and the events memory.high, memory.growth, memory.oom_near.
 *
 * [control] unless said otherwise.
 */
#ifndef MEMORY_USAGE_USAGE_H
#define MEMORY_USAGE_USAGE_H

#include <probing/plugin.h>
#include <stdint.h>

struct usage;

int usage_new(const struct probing_host *host, struct usage **ret); /* makes the tables */
void usage_free(struct usage *u);
/* One of the settings below; -ENOENT: it is none of them. */
int usage_configure(struct usage *u, const char *name, const char *value);
void usage_tick(struct usage *u, uint64_t now); /* [worker], each second */

#endif
