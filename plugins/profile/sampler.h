/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/sampler.h - the profiler's thread: keeps the timers, makes rows of samples.
 */
#ifndef PROFILE_SAMPLER_H
#define PROFILE_SAMPLER_H

#include <probing/plugin.h>
#include <stdbool.h>
#include <stdint.h>

enum mode { MODE_CPU = 0, MODE_WALL = 1, MODE_GIL = 2 };

struct reader;

/* Make the tables; nothing runs yet.                                                [control] */
int reader_new(const struct probing_host *host, struct reader **ret);
void reader_free(struct reader *r); /* after a stop, or never started               [control] */

int reader_start(struct reader *r); /*                   [control] */
int reader_stop(struct reader *r);  /* -EBUSY: not yet   [control] */
void reader_set(struct reader *r, uint32_t rate_hz, enum mode mode); /*             [control] */
void reader_forked(struct reader *r); /*                     [child] */

struct reader_about {
    uint32_t rate_hz, threads, refused;
    enum mode mode;
    uint64_t samples, lost;
    uint64_t handled, handler_ns;  /* signals, and the time they took from the program's threads */
    uint64_t own_cpu_ns, since_ns; /* CPU time of the profiler's thread, since when */
    bool python, signal_gone, fine;
};
void reader_about(struct reader *r, struct reader_about *ret); /*                     [any] */

#endif
