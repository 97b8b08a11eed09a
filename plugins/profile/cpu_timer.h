/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/cpu_timer.h - a CPU timer for each thread of the process, and what its signal
 * does.
 *
 * The kernel counts the CPU time of each thread and sends it a signal each time another period is
 * used up.  A thread that waits uses none, so no system call that waits is ever interrupted.
 * The profiler's thread only, unless tagged.
 */
#ifndef PROFILE_CPU_TIMER_H
#define PROFILE_CPU_TIMER_H

#include <probing/ext/draft/torch_step.h>
#include <probing/plugin.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "perf_timer.h"
#include "sampling/sample_pool.h"

#define WATCHED_MAX 4096 /* threads at a time */

/* Values of `user` in a sample's slot. */
enum {
    OF_CPU_NS, /* used by the thread since its sample before */
    OF_RECORD  /* number of the thread's record */
};

struct watched {
    _Atomic uint64_t cpu_ns; /* at its last sample; the handler's, on the thread itself */
    uint64_t chance;         /* for the next period; the handler's, then */
    uint64_t inode;          /* of /proc/self/task/TID: another one is another thread */
    uint64_t seen;           /* number of the scan that saw it last */
    int32_t tid;             /* 0: free */
    int32_t timer;           /* -1: none */
    struct perf_timer fine;  /* instead of a timer at high rates */
    uint64_t last[PROBING_PYTHON_LAST / 8]; /* what the python plugin keeps of it; the handler's */
    bool ours;                              /* a thread of probing's: not sampled */
    bool refused;                           /* no timer could be made */
    /* sampler.c's */
    uint64_t name_id, named_ns;    /* what it is called, and since when we know */
    uint8_t n_names;               /* how often that was asked, until it is often enough */
    uint64_t seen_cpu_ns, seen_ns; /* as of the last look from outside; 0: none */
    int64_t last_stack;            /* of its last sample; 0: none */
    int64_t still_stack;           /* where it waits; 0: it does not, or is not known */
    int64_t wait_stack;            /* where it waited last; 0: it was not seen waiting */
    uint64_t wait_read_ns;         /* when that was read */
    int64_t still_gil;
    uint64_t still_ns; /* waited there and not yet told */
};

struct cpu_timers;

/* Take a signal and prepare; nothing runs yet.  -EBUSY: the program uses every real-time signal.
 *                                                                                  [control] */
int cpu_timers_new(const struct probing_host *host, struct sample_pool *slots,
                   struct cpu_timers **ret);
/* Put the signal back; 0, or -EBUSY: a thread is still inside the handler.        [control] */
int cpu_timers_free(struct cpu_timers *c);

/* Sample from now on with this part of the python plugin (NULL: none). */
void cpu_timers_begin(struct cpu_timers *c, const struct probing_python_frames_1 *python,
                      bool only_gil);
/* Samples carry this part's step from now on (NULL: none). */
void cpu_timers_count_steps(struct cpu_timers *c, const struct probing_torch_step_1 *torch);
/* Timers go; nothing more is handed over. */
void cpu_timers_end(struct cpu_timers *c);

/* Look which threads there are; new ones get a timer, that of ended ones goes.  0, or -EOWNERDEAD:
 * the program has taken our signal, all timers are gone. */
int cpu_timers_scan(struct cpu_timers *c);
/* Another rate may want other clocks: those come with the next scan. */
void cpu_timers_set_rate(struct cpu_timers *c, uint32_t rate_hz);

struct watched *cpu_timers_watched(struct cpu_timers *c, uint32_t number); /* NULL: none */
uint32_t cpu_timers_room(const struct cpu_timers *c); /* numbers are below this */

struct cpu_timers_about {
    uint32_t threads, refused;    /* with a timer; without, because the kernel gave none */
    uint64_t lost;                /* samples for which no slot was free */
    bool fine;                    /* finer clocks than the kernel's tick are in use */
    uint64_t handled, handler_ns; /* signals, and the CPU time of their handlers */
};
void cpu_timers_about(struct cpu_timers *c, struct cpu_timers_about *ret); /* [any], about right */

/* A forked child: the timers are the parent's; the handler does nothing any more.     [child] */
void cpu_timers_forked(struct cpu_timers *c);

/* The step of now; PROBING_NULL_I64: not counted.                                  [signal] */
int64_t cpu_timers_step(const struct cpu_timers *c);

#endif
