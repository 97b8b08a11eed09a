/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/cupti_session.h - CUPTI switched on and off: when it can be, what it
 * says while it is on, and why it is not.
 *
 * All calls of CUPTI are made on a thread of the session's own, which may hang there; others wait
 * for it, and not for long.  One session a process.
 */
#ifndef CUDA_CUPTI_CUPTI_SESSION_H
#define CUDA_CUPTI_CUPTI_SESSION_H

#include <probing/plugin.h>
#include <stdbool.h>

#include "cupti/record.h"
#include "window/trace_window.h"

enum session_state {
    SESSION_OFF,
    SESSION_WAITING, /* the process does not use CUDA yet, or not with a CUPTI that is found */
    SESSION_TRACING,
    SESSION_BETWEEN, /* two windows: cuda.window */
    SESSION_ASIDE,   /* another profiler has CUPTI; it is taken over when that one leaves */
    SESSION_REFUSED, /* CUPTI says no; it is asked again, more and more rarely */
    N_SESSION_STATES
};

/* Calls of a session.  Times are CLOCK_MONOTONIC ns, 0: not known.  All on its own thread. */
struct session_sink {
    void *arg;
    /* Anything kept from before is of no use; nothing was recorded before since_ns. */
    void (*begun)(void *arg, uint64_t since_ns);
    void (*records)(void *arg, const struct record *all, uint32_t n);
    void (*looked)(void *arg, uint64_t lost); /* all that came is told; so many were lost */
    void (*ended)(void *arg);                 /* no more at all */
    /* Name who has CUPTI, as a clause ("torch.profiler runs"), or NULL: nobody is known to. */
    const char *(*other)(void *arg);
    /* Had the program time to spare while it launched?  idle, late of struct window_seen. */
    void (*spare)(void *arg, struct window_seen *ret);
};

struct session_about {
    enum session_state state;
    char reason[512];   /* "": none */
    char library[512];  /* "": none was found yet */
    uint32_t version;   /* CUPTI_API_VERSION; 0: not known */
    bool costs;         /* it is not traced all the time, as that costs too much */
    bool shared;        /* it traces, and other profilers may do so, too */
    uint64_t since_ns;  /* it is in that state */
    uint64_t begun;     /* how often tracing has begun */
    uint64_t traced_ns; /* for how long it has */
    double calls, cost; /* a second, that are recorded; the share of time that this costs at most */
    uint64_t records, unknown, torn; /* read; of kinds that are not; cut short or wrong */
    uint64_t lost;                   /* CUPTI had no buffer, or dropped them itself */
    uint64_t late;                   /* buffers that came after it was over, not read */
    uint64_t refused;                /* times that no buffer was free */
    uint32_t taken, full;            /* buffers that CUPTI has; that wait to be read */
    int64_t clock_error_ns;          /* at most, between CUPTI's clock and ours; -1: not known */
};

struct session;

#define SESSION_LOOK_NS (PROBING_NS_PER_S / 5) /* between looks at what came */

/* 0 or -ENOMEM.                                                                     [control] */
int session_new(const struct probing_host *host, const struct session_sink *sink,
                struct session **ret);
void session_free(struct session *s); /* after session_stop(); NULL: nothing          [control] */
/* Its thread begins.  0, or -errno, said.                                           [control] */
int session_start(struct session *s, bool on);
/* Switch it on or off; what can be done at once is.  off: nothing is recorded any more when it
 * returns, and what was is told.  0, or -EBUSY, said: a call of CUPTI hangs.         [control] */
int session_switch(struct session *s, bool on);
/* When to trace, while it is on.                                                    [control] */
void session_window(struct session *s, const struct window_rule *rule);
/* Off, and its thread has ended: nothing is told any more.  false: it hangs in CUPTI and was left
 * alone, which is logged, with the session, which is not the caller's any more: when the call
 * returns it switches off what is on, frees the session, and ends.                   [control] */
bool session_stop(struct session *s);
void session_about(struct session *s, struct session_about *ret); /*                    [any] */
/* Give CUPTI's name of a function; false: it does not tell.  In the sink. */
bool session_call_name(struct session *s, bool driver, uint32_t id, char *ret, size_t size);
void session_forked(struct session *s); /* in the child: nothing of it works there     [child] */

#endif
