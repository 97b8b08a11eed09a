/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/window/trace_window.h - when CUDA is traced, and for how long: all the time, for
 * so long of each period, or as much as a share of the program's time pays for.
 *
 * Threads: one at a time; no clock is read, and nothing else is called.
 *
 * A share pays for what tracing costs while the program runs, traced or not; what it has paid too
 * much is forgotten within a second, so a quiet hour buys nothing.  The pause before the next
 * window pays what is still owed when one ends: when a window begins, tracing has cost no more than
 * that share of the time since it was first switched on.
 */
#ifndef CUDA_WINDOW_TRACE_WINDOW_H
#define CUDA_WINDOW_TRACE_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ns that a call takes longer if CUPTI makes a record of it: the most that the measured steps leave
 * room for; single launches took 1.5 to 5.6 us longer (docs/cuda.md, "What it costs"). */
#define WINDOW_CALL_NS 8000u
#define WINDOW_JUDGED_NS UINT64_C(200000000) /* before a program is known to be expensive */
#define WINDOW_LONG_NS UINT64_C(2000000000)  /* and then: several steps */
#define WINDOW_PAUSE_MOST_NS UINT64_C(3600000000000)
#define WINDOW_SHARE_LEAST \
    0.001 /* pays for a second's worth of calls and nothing else in an hour */
#define WINDOW_SHARE_MOST 0.5

struct window_rule {
    uint64_t window_ns, period_ns; /* trace so long of each period; 0: no such thing */
    double share;                  /* of the program's time that it may cost; 0: any */
};

/* Calls and spare time that were seen since the last look. */
struct window_seen {
    uint64_t calls; /* that cost something (charge.h) */
    /* Time that the cost can have held up: shares of the last seconds in which the device ran
     * nothing, and of its work that had not stood in its queue (spare_time.h).  1: not known. */
    double idle, late;
};

struct window {
    struct window_rule rule;
    uint64_t begun_ns; /* of the one that is open, or was last */
    uint64_t paid_ns;  /* up to here the share has paid; 0: nothing was ever traced */
    double debt_ns;    /* what it owed then */
    struct {
        uint64_t since_ns, calls;
        double cost_ns;
    } part, before; /* of the open window: up to a second, and what lies before that */
    bool over;      /* the open one, by the rule */
    bool heavy;     /* the last one has cost too much: the next is a long one, */
    bool is_long;   /* if it does not begin in debt (by hand) */
    /* The last window that has cost too much; period_ns 0: none. */
    struct {
        double traced_ns, period_ns, calls, share; /* calls: a second; share: that they cost */
        bool late;                                 /* not even the longest pause pays for it */
    } last;
};

/* false: it is the same as before. */
bool window_set(struct window *w, const struct window_rule *rule, uint64_t now_ns);
void window_open(struct window *w, uint64_t now_ns);
/* Count what was seen.  true: it is over by the rule, and has to be closed. */
bool window_look(struct window *w, uint64_t now_ns, const struct window_seen *seen);
/* It has ended, for whatever reason.  If it was over: when the next one begins. */
uint64_t window_close(struct window *w, uint64_t now_ns);
/* When it is to be looked at at the latest, while it is open; UINT64_MAX: no need. */
uint64_t window_over_ns(const struct window *w);
/* Why there are windows, as a clause; "": there are none. */
void window_words(const struct window *w, char *ret, size_t size);
/* Give calls a second, and the share that they cost, in the last second or two of the open one. */
void window_rates(const struct window *w, uint64_t now_ns, double *ret_calls, double *ret_share);

#endif
