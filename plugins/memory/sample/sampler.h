/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/sampler.h - the samples' way into tables: memory.allocations, memory.live,
 * memory.snapshots, memory.stacks.
 *
 * [control] unless said otherwise.
 */
#ifndef MEMORY_SAMPLE_SAMPLER_H
#define MEMORY_SAMPLE_SAMPLER_H

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
void sampler_set_mean(struct sampler *s, uint64_t bytes); /* between two samples */
void sampler_forked(struct sampler *s);                   /* [child] */

struct sampler_about {
    uint64_t samples, lost, live;  /* taken, dropped for want of a slot, not freed yet */
    uint64_t live_bytes;           /* estimated */
    uint64_t spent_ns, own_cpu_ns; /* in the program's threads; of our own thread */
};
void sampler_about(struct sampler *s, struct sampler_about *ret); /* [any] */

#endif
