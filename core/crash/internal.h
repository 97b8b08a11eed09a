/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/internal.h - what the handler and the thread of the reports share.
 *
 * Private to this folder.  There is one struct crash_state a process: a handler has no other way to
 * find it.
 */
#ifndef CORE_CRASH_INTERNAL_H
#define CORE_CRASH_INTERNAL_H

#include <signal.h>
#include <stdatomic.h>

#include "core/crash/crash.h"
#include "core/crash/safe_write.h"
#include "core/guest/call_mark.h"

#define CRASH_SIGNALS 7
#define CRASH_FAULTS 8 /* threads that crash at the same time */
#define CRASH_PATH_BYTES 1100
#define CRASH_TAKE_NS UINT64_C(300000000) /* for our thread to begin; it waits for nothing else */

/* The states of one report: the handler asks, the thread takes and is done. */
enum { CRASH_IDLE, CRASH_ASKED, CRASH_TAKEN, CRASH_DONE, CRASH_FAILED };

struct crash_fault {
    _Atomic int32_t tid; /* 0: free; release: the rest is written */
    int32_t signo;
    siginfo_t info;
    const void *context;          /* ucontext_t; stands as long as its thread waits */
    const struct call_mark *call; /* what it was inside of, on its stack; NULL: of no plugin */
};

struct crash_signal {
    int number;
    bool taken;        /* ours was put there.  lock: switching */
    bool said;         /* the log has it that another is on top.  lock: switching */
    _Atomic bool ends; /* what was there before never mends: it goes after us */
    struct sigaction before;
};

struct crash_state {
    _Atomic bool on;
    _Atomic uint32_t request;  /* enum above; futex word */
    _Atomic uint32_t finished; /* reports that have ended; futex word */
    _Atomic uint32_t n_faults; /* of faults[]; may count more than there is room for */
    _Atomic bool only_abort;   /* a report only if the thread is inside abort() */
    _Atomic bool written;      /* all but what Python was doing is in the file */
    _Atomic bool given_up;     /* the handler waits no more: write nothing */
    _Atomic int32_t reporter;  /* thread id, 0: none */
    _Atomic int32_t pid;       /* whose handlers these are */
    _Atomic uint32_t reports;  /* in the file */
    struct crash_fault faults[CRASH_FAULTS];
    struct crash_signal signals[CRASH_SIGNALS];
    char path[CRASH_PATH_BYTES];
};

extern struct crash_state crash_state;

uint64_t crash_now(void);                                                        /* [signal] */
void crash_wait(_Atomic uint32_t *word, uint32_t while_it_is, uint64_t most_ns); /* [signal] */
void crash_wake(_Atomic uint32_t *word);                                         /* [signal] */
void crash_open(struct lines *l);                                                /* [signal] */
void crash_close(struct lines *l);                                               /* [signal] */

/* handler.c: 0, or -errno. */
int handler_take(struct crash_signal *s);
void handler_give_back(struct crash_signal *s); /* [child] */
/* SIGNAL_OURS: the next such signal comes to us first. */
enum handler_place { HANDLER_OURS, HANDLER_DEFAULT, HANDLER_IGNORED, HANDLER_OTHER };
enum handler_place handler_place(const struct crash_signal *s,
                                 struct sigaction *ret_now); /* [signal] */

/* report_writer.c: the lines of a report, the same from either writer. */
void write_head(struct lines *l); /* [signal] */
/* "fault TID SIGNO CODE [at ADDRESS | from PID UID | call NUMBER]" */
void write_fault(struct lines *l, const char *word, int32_t tid,
                 const siginfo_t *info);                             /* [signal] */
void write_end(struct lines *l, uint64_t took_ns, const char *note); /* [signal] */
/* "inside PLUGIN FUNCTION [NAME]"; false: it was inside of none.                      [signal] */
bool write_call(struct lines *l, const struct crash_fault *f);
void write_inside(struct lines *l, const char *plugin, const char *function,
                  const char *name); /* [signal] */

/* fallback_report.c: what a handler can say by itself. */
void raw_report(const char *why); /* [signal] */

/* proc_tasks.c: /proc/self/task. */
uint32_t task_list(pid_t *ret, uint32_t max, bool *ret_more); /* [signal] */
void task_comm(pid_t tid, char ret[16]);                      /* [signal] */
bool task_is_ours(const char *comm);                          /* [signal] */

/* altstack_pool.c: alternate signal stacks for threads that have none.  The thread of the reports
 * only, but for altstack_pool_count(). */
enum { ALTSTACK_GIVEN, ALTSTACK_OWN, ALTSTACK_NONE, ALTSTACK_KINDS };
struct altstack_pool;
int altstack_pool_new(struct altstack_pool **ret);
void altstack_pool_free(struct altstack_pool *l); /* after altstack_pool_end() */
void altstack_pool_maintain(struct altstack_pool *l,
                            const _Atomic bool *wanted); /* once a second */
void altstack_pool_end(struct altstack_pool *l);         /* take back what can be */
void altstack_pool_count(const struct altstack_pool *l, uint32_t ret[ALTSTACK_KINDS]); /* [any] */

/* reporter.c: the thread. */
struct reporter;
int reporter_start(struct crash *c, struct reporter **ret);
void reporter_stop(struct reporter *r);
void reporter_alt_stack(struct reporter *r, bool on);
void reporter_alt_stacks(const struct reporter *r, uint32_t ret[ALTSTACK_KINDS]);

struct crash {
    struct crash_options options;
    char directory[CRASH_PATH_BYTES - 8];
    struct reporter *reporter;
    bool on, lends;
};

void crash_log(struct crash *c, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void crash_maintain(struct crash *c); /* look after the signals: called each second by the thread */

#endif
