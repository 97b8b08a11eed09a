/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/function_times.h - which Python functions run: their own time and all that is spent
 * below them, out of stacks that are looked at again and again.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_FUNCTION_TIMES_H
#define CLI_COMMANDS_FUNCTION_TIMES_H

#include <stdint.h>

#include "sdk/lib/json.h"

struct tally_function {
    char *name, *file;
    uint64_t own_ns, total_ns;         /* since the screen was drawn last */
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
    uint64_t last_ns, span_ns; /* the sample before; of those since the screen was drawn last */
    uint32_t samples;          /* likewise */
    uint64_t left_out;         /* samples of functions that there was no room for */
};

void tally_done(struct tally *t); /* of a zeroed one, too */
/* The threads of `backtrace --json`, at `now_ns` (CLOCK_MONOTONIC), and the processor time of the
 * process's threads, in order of tid.  A thread that runs Python, or code that it calls, gives its
 * stack the processor time that it has used since it last did so.  Waiting for a processor counts
 * for nobody, so that all own times together are at most what the process used. */
void tally_add(struct tally *t, const struct json *threads, const struct tally_thread *used,
               uint32_t n, uint64_t now_ns);
/* In order of their own time since the screen was drawn last, then of all; borrowed until the next
 * tally_add().  Gives how many there are. */
uint32_t tally_sort(struct tally *t, const struct tally_function **ret);
void tally_next(struct tally *t); /* the screen has been drawn */

#endif
