/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/top/function_times.h - which Python functions run: their own time and all that is
 * spent below them, out of stacks that are looked at again and again.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_TOP_FUNCTION_TIMES_H
#define CLI_COMMANDS_TOP_FUNCTION_TIMES_H

#include <stdint.h>

#include "sdk/lib/json.h"

struct tally_function {
    char *name, *file;
    uint64_t own_ns, total_ns;         /* in the span that is shown */
    uint64_t new_own_ns, new_total_ns; /* since that span ended */
    uint64_t all_own_ns, all_total_ns; /* since the beginning */
    uint32_t sample;                   /* the last one it was in: recursion counts once */
};

struct tally_thread {
    int64_t tid;
    uint64_t cpu_ns; /* processor time since it began */
};

struct tally {
    struct tally_thread *threads; /* what of their time has been given to functions; by tid */
    uint32_t n_threads;
    struct tally_function *functions;
    uint32_t n, room;
    uint32_t *slots, mask; /* number + 1 by name and file; 0: free */
    uint32_t sample;
    uint64_t last_ns, begin_ns; /* of the newest sample; of the end of the span that is shown */
    uint64_t span_ns;           /* the span that is shown, and its samples */
    uint32_t samples, new_samples;
    uint64_t left_out; /* samples of functions that there was no room for */
};

void tally_done(struct tally *t); /* of a zeroed one, too */
/* The threads of `backtrace --json`, at `now_ns` (CLOCK_MONOTONIC), and the processor time of the
 * process's threads, in order of tid.  A thread that runs Python, or code that it calls, gives its
 * stack the processor time that it has used since it last did so.  Waiting for a processor counts
 * for nobody, so that all own times together are at most what the process used. */
void tally_add(struct tally *t, const struct json *threads, const struct tally_thread *used,
               uint32_t n, uint64_t now_ns);
/* Show the span from the last call of this to the newest sample, and begin the next one. */
void tally_next(struct tally *t);
/* In order of their own time in the span that is shown, then of all; borrowed until the next
 * tally_add().  Gives how many there are. */
uint32_t tally_sort(struct tally *t, const struct tally_function **ret);

#endif
