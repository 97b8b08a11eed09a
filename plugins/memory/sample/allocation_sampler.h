/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/allocation_sampler.h - the samples' way into tables: memory.samples,
 * memory.frees, memory.live, memory.snapshots, memory.stacks, and the command `mark`.
 *
 * [control] unless said otherwise.
 */
#ifndef MEMORY_SAMPLE_ALLOCATION_SAMPLER_H
#define MEMORY_SAMPLE_ALLOCATION_SAMPLER_H

#include <probing/plugin.h>
#include <stdint.h>

struct sampler;

/* Make the tables and commands. */
int sampler_new(const struct probing_host *host, struct sampler **ret);
void sampler_free(struct sampler *s);
/* Sample from now on. */
int sampler_start(struct sampler *s);
/* 0, or -EBUSY: a thread is inside. */
int sampler_stop(struct sampler *s);
/* One of the settings sample_bytes, snapshot_every; -ENOENT: it is none of them. */
int sampler_configure(struct sampler *s, const char *name, const char *value);
void sampler_forked(struct sampler *s); /* [child] */

struct sampler_about {
    uint64_t samples, lost, live;  /* taken, dropped for want of a slot, not freed yet */
    uint64_t live_bytes;           /* estimated */
    uint64_t spent_ns, own_cpu_ns; /* in the program's threads; of our own thread */
};
void sampler_about(struct sampler *s, struct sampler_about *ret); /* [any] */

#endif
