/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/tracing.h - CUPTI itself switched on and off: waiting, tracing, between two
 * windows, aside, refused; and the records that come meanwhile.
 *
 * One thread, which is inside CUPTI (cupti_inside.h) and may hang there.  CUPTI's callbacks, on any
 * thread of the program or of CUPTI, only take and give back buffers.
 */
#ifndef CUDA_CUPTI_TRACING_H
#define CUDA_CUPTI_TRACING_H

#include "cupti/cuda_calls.h"
#include "cupti/cupti_clock.h"
#include "cupti/cupti_session.h"
#include "cupti/library.h"
#include "cupti/subscriber.h"
#include "window/charge.h"

struct tracing_wish {
    bool on;
    bool anew;  /* somebody has just said so: nothing that was found out before counts */
    bool aside; /* another profiler takes CUPTI when this turn is over */
    struct window_rule rule;
};

struct tracing {
    struct session_sink sink;
    bool on;
    struct session_about about; /* but what is counted elsewhere */
    struct cupti cupti;
    struct subscriber by; /* how `cupti` is called */
    struct call_names names;
    bool named; /* `names` are its */
    struct cupti_clock clock;
    struct window window;
    struct charge charge;
    uint64_t traced_ns; /* in windows that have ended */
    uint64_t next_ns;   /* not tried before */
    uint64_t pause_ns;  /* after the next refusal */
    uint64_t others_ns; /* when others were looked for */
    uint64_t loads;     /* of libraries, when the driver was looked for */
    uint64_t clients;   /* likewise, when it was looked who calls CUPTI */
    uint32_t away;      /* buffers that had not come back when it began, and may never */
    bool unloaded;      /* it was not there */
    bool left_on;       /* kinds that were ours are on for another profiler */
    int thread_type;    /* of CUPTI's thread numbers before ours; -1: not changed */
    bool threads;       /* they are the kernel's; else halves of pthread_t, of no use here */
};

void tracing_init(struct tracing *t, const struct session_sink *sink);
/* Do what is wished as far as it can be done now, and tell what came. */
void tracing_turn(struct tracing *t, const struct tracing_wish *wish);
/* Another thread of ours is still inside CUPTI: it is waited for. */
void tracing_wait(struct tracing *t, const struct tracing_wish *wish);
uint64_t tracing_next_ns(const struct tracing *t); /* when there is something to do */
void tracing_forked(void); /*                                                          [child] */

#endif
