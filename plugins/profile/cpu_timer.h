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
#include "sample_pool.h"

#define WATCHED_MAX 4096 /* threads at a time */

struct watched {
    _Atomic uint64_t cpu_ns; /* at its last sample; the handler's, on the thread itself */
    uint64_t chance;         /* for the next period; the handler's, then */
    uint64_t inode;          /* of /proc/self/task/TID: another one is another thread */
    uint64_t seen;           /* number of the scan that saw it last */
    int32_t tid;             /* 0: free */
    int32_t timer;           /* -1: none */
    struct fine fine;        /* instead of a timer at high rates */
    uint64_t last[PROBING_PYTHON_LAST / 8]; /* what the python plugin keeps of it; the handler's */
    bool ours;                              /* a thread of probing's: not sampled */
    bool refused;                           /* no timer could be made */
    /* sampler.c's */
    uint64_t name_id, named_ns;    /* what it is called, and since when we know */
    uint8_t n_names;               /* how often that was asked, until it is often enough */
    uint64_t seen_cpu_ns, seen_ns; /* as of the last look from outside; 0: none */
    int64_t last_stack;            /* of its last sample; 0: none */
    int64_t still_stack;           /* where it waits; 0: it does not, or is not known */
    int64_t still_gil;
    uint64_t still_ns; /* waited there and not yet told */
};

struct clocks;

/* Take a signal and prepare; nothing runs yet.  -EBUSY: the program uses every real-time signal.
 *                                                                                  [control] */
int clocks_new(const struct probing_host *host, struct boxes *boxes, struct clocks **ret);
/* Put the signal back; 0, or -EBUSY: a thread is still inside the handler.        [control] */
int clocks_free(struct clocks *c);

/* Sample from now on with this part of the python plugin (NULL: none). */
void clocks_begin(struct clocks *c, const struct probing_python_frames_1 *python, bool only_gil);
/* Samples carry this part's step from now on (NULL: none). */
void clocks_count_steps(struct clocks *c, const struct probing_torch_step_1 *torch);
/* Timers go; nothing more is handed over. */
void clocks_end(struct clocks *c);

/* Look which threads there are; new ones get a timer, that of ended ones goes.  0, or -EOWNERDEAD:
 * the program has taken our signal, all timers are gone. */
int clocks_scan(struct clocks *c);
/* Another rate may want other clocks: those come with the next scan. */
void clocks_set_rate(struct clocks *c, uint32_t rate_hz);

struct watched *clocks_watched(struct clocks *c, uint32_t number); /* NULL: none */
uint32_t clocks_room(const struct clocks *c);                      /* numbers are below this */

struct clocks_about {
    uint32_t threads, refused;    /* with a timer; without, because the kernel gave none */
    uint64_t lost;                /* samples for which no box was free */
    bool fine;                    /* finer clocks than the kernel's tick are in use */
    uint64_t handled, handler_ns; /* signals, and the CPU time of their handlers */
};
void clocks_about(struct clocks *c, struct clocks_about *ret); /* [any], about right */

/* A forked child: the timers are the parent's; the handler does nothing any more.     [child] */
void clocks_forked(struct clocks *c);

/* CPU time that a thread of this process has used; 0: it is gone.                     [any] */
uint64_t clocks_cpu_ns(int32_t tid);
/* The step of now; PROBING_NULL_I64: not counted.                                  [signal] */
int64_t clocks_step(const struct clocks *c);

#endif
