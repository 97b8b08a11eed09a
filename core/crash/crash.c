/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/crash.c - switching reports of crashes on and off, and what is said of it meanwhile.
 * [control], but for the tending, which is the thread of the reports'; one lock for both.
 */
#include "core/crash/crash.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/crash/internal.h"
#include "core/guest/headroom_table.h"
#include "core/guest/mmap_guard.h"

/* For crash_state.signals but what a handler reads, and struct crash.on. */
static pthread_mutex_t switching = PTHREAD_MUTEX_INITIALIZER;

static const int numbers[CRASH_SIGNALS] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                           SIGABRT, SIGTRAP, SIGSYS};

void crash_log(struct crash *c, int level, const char *format, ...)
{
    char text[400];
    va_list args;
    if (!c->options.log)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    c->options.log(c->options.arg, level, text);
}

int crash_new(const struct crash_options *o, struct crash **ret)
{
    struct crash *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(-ENOMEM, "no memory for crash reports");
    c->options = *o;
    (void)snprintf(c->directory, sizeof(c->directory), "%s", o->directory);
    c->options.directory = c->directory;
    c->lends = true;
    *ret = c;
    return 0;
}

/* ---- the program's own handlers ---- */

static const void *code_of(const struct sigaction *a)
{
    const void *code;
    memcpy(&code,
           a->sa_flags & SA_SIGINFO ? (const void *)&a->sa_sigaction : (const void *)&a->sa_handler,
           sizeof(code));
    return code;
}

/* Python's faulthandler: a handler of the interpreter's that may be interrupted by its own signal.
 * Python's other one, behind signal.signal(), does not ask for that. */
static bool is_faulthandler(const struct sigaction *a)
{
    Dl_info handler, python;
    const void *version = dlsym(RTLD_DEFAULT, "Py_GetVersion");
    return version && (a->sa_flags & SA_NODEFER) && dladdr(code_of(a), &handler) &&
           dladdr(version, &python) && handler.dli_fbase == python.dli_fbase;
}

static void describe_action(const struct sigaction *a, char *ret, size_t size)
{
    Dl_info info;
    if (!(a->sa_flags & SA_SIGINFO) && a->sa_handler == SIG_DFL)
        (void)snprintf(ret, size, "the default action");
    else if (!(a->sa_flags & SA_SIGINFO) && a->sa_handler == SIG_IGN)
        (void)snprintf(ret, size, "nothing: the signal is ignored");
    else if (is_faulthandler(a))
        (void)snprintf(ret, size, "Python's faulthandler");
    else if (dladdr(code_of(a), &info) && info.dli_fname && info.dli_fname[0])
        (void)snprintf(ret, size, "%s in %s", info.dli_sname ? info.dli_sname : "a handler",
                       info.dli_fname);
    else
        (void)snprintf(ret, size, "a handler at %p", code_of(a));
}

/* lock held */
static void take_signal(struct crash *c, struct crash_signal *s)
{
    if (s->number == SIGTRAP || s->number == SIGSYS) {
        /* To an init they cannot be sent again, and the program would go on behind them. */
        if (getpid() == 1)
            return;
    }
    int rc = handler_take(s);
    atomic_store_explicit(&s->ends, is_faulthandler(&s->before), memory_order_relaxed);
    s->said = rc < 0;
    if (rc == -EBUSY)
        crash_log(c, PROBING_INFO, "%s is ignored by the program, so probing does not handle it",
                  crash_signal_name(s->number));
}

/* lock held */
static int take_all(struct crash *c)
{
    (void)snprintf(crash_state.path, sizeof(crash_state.path), "%s/crash", c->directory);
    atomic_store_explicit(&crash_state.pid, getpid(), memory_order_relaxed);
    int rc = reporter_start(c, &c->reporter);
    if (rc < 0)
        return rc;
    atomic_store_explicit(&crash_state.request, CRASH_IDLE, memory_order_relaxed);
    atomic_store_explicit(&crash_state.on, true, memory_order_release);
    for (int i = 0; i < CRASH_SIGNALS; i++) {
        crash_state.signals[i].number = numbers[i];
        take_signal(c, &crash_state.signals[i]);
    }
    return 0;
}

/* lock held */
static void give_all_back(struct crash *c)
{
    atomic_store_explicit(&crash_state.on, false, memory_order_release);
    for (int i = 0; i < CRASH_SIGNALS; i++) {
        struct crash_signal *s = &crash_state.signals[i];
        handler_give_back(s);
        if (s->number == SIGBUS)
            mapped_inspect();
        if (s->taken)
            crash_log(c, PROBING_WARN,
                      "%s: the program has installed a handler over the one of probing, which "
                      "stays below it and only passes the signal on",
                      crash_signal_name(s->number));
    }
}

int crash_switch(struct crash *c, bool on)
{
    struct reporter *old = NULL;
    int rc = 0;
    (void)pthread_mutex_lock(&switching);
    if (on && !c->on) {
        rc = room_check_ours(&room_crash);
        if (rc == 0)
            rc = take_all(c);
        c->on = rc == 0;
    } else if (!on && c->on) {
        give_all_back(c);
        old = c->reporter;
        c->reporter = NULL;
        c->on = false;
    }
    (void)pthread_mutex_unlock(&switching);
    reporter_stop(old); /* it takes the lock too, once a second */
    return rc;
}

int crash_alt_stack(struct crash *c, bool on)
{
    (void)pthread_mutex_lock(&switching);
    c->lends = on;
    if (c->reporter)
        reporter_alt_stack(c->reporter, on);
    (void)pthread_mutex_unlock(&switching);
    return 0;
}

/* If the program has gone back to the default action, put our handler before it again; if it has
 * put a handler over ours, say so, once. */
void crash_maintain(struct crash *c)
{
    struct sigaction now;
    char text[300];
    (void)pthread_mutex_lock(&switching);
    for (int i = 0; i < CRASH_SIGNALS && c->on; i++) {
        struct crash_signal *s = &crash_state.signals[i];
        switch (handler_place(s, &now)) {
        case HANDLER_OURS:
            s->said = false;
            break;
        case HANDLER_DEFAULT:
            take_signal(c, s);
            break;
        case HANDLER_IGNORED:
        case HANDLER_OTHER:
            if (s->said)
                break;
            s->said = true;
            describe_action(&now, text, sizeof(text));
            crash_log(c, PROBING_WARN,
                      "%s now goes to %s, which was installed later: a report is written only if "
                      "it passes the signal on",
                      crash_signal_name(s->number), text);
            break;
        }
    }
    (void)pthread_mutex_unlock(&switching);
}

static int signal_row(const struct crash_signal *s, bool on,
                      int (*row)(void *arg, const char *const text[3]), void *arg)
{
    struct sigaction now;
    char what[300], detail[400];
    enum handler_place place = handler_place(s, &now);
    const char *text[3] = {crash_signal_name(s->number), "off", what};
    describe_action(place == HANDLER_OURS ? &s->before : &now, what, sizeof(what));
    if (place == HANDLER_OURS) {
        text[1] = on ? "on" : "off";
        (void)snprintf(detail, sizeof(detail), "then %s", what);
        text[2] = detail;
    } else if (on) {
        text[1] = place == HANDLER_IGNORED ? "ignored" : "displaced";
    }
    return row(arg, text);
}

int crash_status(struct crash *c, int (*row)(void *arg, const char *const text[3]), void *arg)
{
    uint32_t n[ALTSTACK_KINDS] = {0};
    char detail[200];
    const char *stacks[3] = {"stacks", "off", detail};
    int rc = 0;
    (void)pthread_mutex_lock(&switching);
    for (int i = 0; i < CRASH_SIGNALS && rc == 0; i++) {
        struct crash_signal s = crash_state.signals[i];
        s.number = numbers[i];
        rc = signal_row(&s, c->on, row, arg);
    }
    if (c->reporter)
        reporter_alt_stacks(c->reporter, n);
    if (c->on && c->lends)
        stacks[1] = "on";
    (void)pthread_mutex_unlock(&switching);
    (void)snprintf(
        detail, sizeof(detail),
        "%u threads have an alternate signal stack of probing, %u have their own, %u have none yet",
        n[ALTSTACK_GIVEN], n[ALTSTACK_OWN], n[ALTSTACK_NONE]);
    return rc == 0 ? row(arg, stacks) : rc;
}

void crash_free(struct crash *c)
{
    if (!c)
        return;
    (void)crash_switch(c, false);
    free(c);
}

/* ---- fork ---- */

void crash_disable_in_child(void)
{
    if (!atomic_load_explicit(&crash_state.on, memory_order_relaxed))
        return;
    atomic_store_explicit(&crash_state.on, false, memory_order_relaxed);
    for (int i = 0; i < CRASH_SIGNALS; i++)
        handler_give_back(&crash_state.signals[i]);
}

void crash_begin_in_child(void)
{
    switching = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_store_explicit(&crash_state.reporter, 0, memory_order_relaxed);
    atomic_store_explicit(&crash_state.request, CRASH_IDLE, memory_order_relaxed);
    atomic_store_explicit(&crash_state.n_faults, 0, memory_order_relaxed);
    atomic_store_explicit(&crash_state.reports, 0, memory_order_relaxed);
    for (int i = 0; i < CRASH_FAULTS; i++)
        atomic_store_explicit(&crash_state.faults[i].tid, 0, memory_order_relaxed);
}
