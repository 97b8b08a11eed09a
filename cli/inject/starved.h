/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/starved.h - whether a process that does not answer has had a processor.
 *
 * One thread at a time; reads /proc.
 *
 *     struct starved s;
 *     starved_begin(&s, pid, 0, false);
 *     while (...)
 *         starved_look(&s, clock_monotonic());
 *     starved_words(&s, waited_ns, text, sizeof(text));
 */
#ifndef CLI_INJECT_STARVED_H
#define CLI_INJECT_STARVED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sdk/lib/proc/task.h"

#define STARVED_WORDS_BYTES 300
/* The most threads of probing looked at in one process: the core has five, plugins few. */
#define STARVED_THREADS 64

struct starved_thread {
    pid_t tid;
    uint64_t ran_ns, waited_ns; /* by the kernel's count, at the last look */
    uint64_t seen_ns;           /* that look */
    uint64_t since_ns;          /* it has been ready since then at least and has not run; 0: no */
};

struct starved {
    pid_t pid, only; /* only: one of its threads; 0: those of probing */
    bool from_birth;
    uint32_t n;
    uint64_t looked_ns; /* CLOCK_MONOTONIC; 0: not yet */
    uint64_t waited_ns; /* waits that have ended */
    struct starved_thread threads[STARVED_THREADS];
};

/* From the first look on; from_birth: what threads have waited before counts, too. */
void starved_begin(struct starved *s, pid_t pid, pid_t only, bool from_birth);
/* The kernel counts a wait when it ends: of one that goes on only several looks tell.  Not more
 * often than each 50 ms, however often it is called. */
void starved_look(struct starved *s, uint64_t now_ns);
/* Take in the files of one thread in a look; state: R S D ..., proc(5). */
void starved_take(struct starved *s, pid_t tid, char state, const struct proc_schedstat *has,
                  uint64_t now_ns);
/* How long they have been ready to run and did not, as of the last look. */
uint64_t starved_ns(const struct starved *s);
/* For the end of a sentence about `waited_ns` without an answer: "; ..." when they have not run for
 * most of it, else "". */
void starved_words(struct starved *s, uint64_t waited_ns, char *ret, size_t size);

#endif
