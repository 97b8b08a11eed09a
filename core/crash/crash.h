/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/crash.h - what a process did when it crashed: every thread's stack, written before it
 * dies, and read afterwards.
 *
 * Alive: handlers for the signals of a crash, each before what the program itself has there, and
 * one thread, "probing/crash", that does the looking: the thread that crashed only waits for it,
 * for CRASH_WAIT_NS at most.  Then the program's own handler or the default action does its work as
 * if we were not here: same signal, same siginfo, same core dump.
 *
 * Who goes first?  A handler of the program's may mend the fault (a virtual machine, a garbage
 * collector): so it runs first, and only when it leaves the default action behind is there a crash
 * to report.  Python's faulthandler never mends, so it runs after us; with no handler there is
 * nobody to ask.
 *
 * Never: malloc, a lock or stdio between a fault and its report; an alternate signal stack in place
 * of one that a thread has; a handler over one that was ignored (exec would tell the difference).
 *
 * The report is the text file `crash` of the data directory, drawn in core/crash/report_reader.c.
 * When the thread of ours does not answer, what the handler can write by itself is there instead.
 */
#ifndef CORE_CRASH_CRASH_H
#define CORE_CRASH_CRASH_H

#include <probing/plugin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the living ---- */

#define CRASH_WAIT_NS UINT64_C(2000000000) /* for the stacks of all threads; then without them */

struct crash;

struct crash_options {
    const char *directory;                               /* of the data; copied */
    void (*log)(void *arg, int level, const char *text); /* may be NULL */
    const void *(*extension)(void *arg, const char *id); /* of plugins; may be NULL */
    /* Name of the plugin whose file is mapped so: `bias` of its stack_module.  NULL: none.  Called
     * while threads stand still anywhere: it locks and allocates nothing.  May be NULL. */
    const char *(*plugin_at)(void *arg, uint64_t bias);
    void *arg;
};

int crash_new(const struct crash_options *o, struct crash **ret);
/* Take the signals, or give them back: where ours is not on top any more it stays, and only hands
 * on.  0 or -errno.  Any thread, one at a time. */
int crash_switch(struct crash *c, bool on);
/* Lend an alternate signal stack to threads that have none, so that an overflow of their stack is
 * caught. */
int crash_alt_stack(struct crash *c, bool on);
void crash_free(struct crash *c);  /* off first; the code of the handlers stays */
void crash_disable_in_child(void); /* [child] */
void crash_begin_in_child(void);   /* before a child makes one of its own */

/* One row of crash.status: item, state, detail. */
int crash_status(struct crash *c, int (*row)(void *arg, const char *const text[3]), void *arg);

/* ---- the dead ---- */

struct crash_frame {
    bool python;
    uint64_t ip, offset;      /* native; offset in the module: what addr2line wants */
    uint64_t function_offset; /* of ip in the function */
    const char *module;       /* "": in none */
    const char *func;         /* "": unknown */
    const char *file;         /* python */
    int line;                 /* python; 0: unknown */
};

struct crash_thread {
    int32_t tid;
    const char *name;
    const char *state; /* "crashed", "running", "waiting" */
    const char *note;  /* what is incomplete; "" */
    struct crash_frame *frames;
    uint32_t n_frames;
};

struct crash_report {
    uint32_t number; /* from 1 */
    int64_t utc_ns;
    int32_t pid, tid;
    int signo, code;
    bool has_address;
    uint64_t address;
    int32_t sender, sender_uid; /* 0: nobody sent it */
    const char *signal, *code_name, *meaning;
    const char *thread_name;
    const char *plugin;           /* whose function the thread ran; "": none's */
    const char *function;         /* which: "every()", "scan() of table t"; "" */
    const char *registers;        /* "rax=0x1 ..."; "" */
    const char *message;          /* one line for people */
    const char *note;             /* what is missing; "" */
    bool whole;                   /* the report has its end */
    bool survived;                /* the process went on after it */
    struct crash_thread *threads; /* the one that crashed first */
    uint32_t n_threads;
};

struct crash_reports {
    struct crash_report *list; /* oldest first */
    uint32_t n;
    void *memory;
};

struct datadir;
/* Read a data directory's reports.  0 reports is no error; -errno when the file cannot be read. */
int crash_read(const struct datadir *d, struct crash_reports *ret);
/* Likewise, but only how the process crashed: no file that a report names is opened. */
int crash_read_signals(const struct datadir *d, struct crash_reports *ret);
void crash_reports_done(struct crash_reports *r);

/* "SIGSEGV"; "SEGV_MAPERR" and "address not mapped to object".  NULL: not known.     [signal] */
const char *crash_signal_name(int signo);
const char *crash_code_name(int signo, int code, const char **ret_meaning);

struct tables;
/* Add crash.reports and crash.frames, which read `directory` when asked (kept, not copied). */
int crash_tables_add(struct tables *t, const char *directory);
int crash_status_add(struct tables *t, struct crash *c); /* crash.status, of the living */

#endif
