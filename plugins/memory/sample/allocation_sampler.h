/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/allocation_sampler.h - the samples' way into tables: memory.samples,
 * memory.frees, memory.live, memory.peak, memory.snapshots, memory.stacks.
 *
 * [control] unless said otherwise.
 */
#ifndef MEMORY_SAMPLE_ALLOCATION_SAMPLER_H
#define MEMORY_SAMPLE_ALLOCATION_SAMPLER_H

#include <probing/plugin.h>
#include <stdint.h>

struct sampler;

struct sample_scans;

/* Make the tables; the scans of memory.live and memory.peak call sampler_live() and
 * sampler_peak(). */
int sampler_new(const struct probing_host *host, const struct sample_scans *scans,
                struct sampler **ret);
void sampler_free(struct sampler *s);
/* Sample from now on. */
int sampler_start(struct sampler *s);
/* 0, or -EBUSY: a thread is inside. */
int sampler_stop(struct sampler *s);
/* One of the settings sample_bytes, snapshot_interval; -ENOENT: it is none of them. */
int sampler_configure(struct sampler *s, const char *name, const char *value);
void sampler_forked(struct sampler *s); /* [child] */

/* The rows of memory.live, and of memory.peak.                                    [worker] */
int sampler_live(struct sampler *s, struct probing_rows *out);
int sampler_peak(struct sampler *s, struct probing_rows *out);
/* The command mark [NAME]: what is alive goes into memory.snapshots.              [worker] */
int sampler_mark(struct sampler *s, int argc, const char *const *argv, struct probing_reply *out);

/* The same under that name, when something has happened.  Nothing where nothing is sampled.
 * [worker] */
void sampler_snapshot(struct sampler *s, const char *name);

struct sampler_about {
    uint64_t samples, lost, live; /* taken, dropped for want of room, not freed yet */
    uint64_t bare;                /* of those taken: without a stack, our thread was too slow */
    uint64_t skipped;             /* due while the thread took one already */
    uint64_t sample_bytes;        /* mean distance now: more than was asked for where too many
                                    * samples would come */
    uint64_t asked_bytes;         /* as it was asked for */
    uint64_t most_bytes;          /* the largest one since sampling began */
    uint64_t live_bytes;          /* estimated */
    /* unsampled_bytes(), and since the last snapshot */
    uint64_t unsampled_bytes, unsampled_since_bytes;
    uint64_t spent_ns, own_cpu_ns; /* in the program's threads; of our own thread */
};
void sampler_about(struct sampler *s, struct sampler_about *ret); /* [any] */

#endif
