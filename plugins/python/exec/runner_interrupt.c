/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/runner_interrupt.c - KeyboardInterrupt for jobs that nobody waits for any
 * more.
 *
 * It needs the GIL, which nobody may wait for on a worker: hence a thread of its own, while there
 * is something to interrupt.
 */
#include <stdlib.h>
#include <sys/prctl.h>

#include "exec/entry.h"
#include "exec/runner_internal.h"
#include "lib/own_thread.h"

#define AGAIN_NS UINT64_C(300000000) /* between two interrupts: code may clean up after the first */
#define INTERRUPTS 5
#define STACK_BYTES ((size_t)256 << 10)

struct interrupter {
    struct runner *r;
    struct entry entry;
};

/* With the GIL. */
static void interrupt_all(struct runner *r)
{
    runner_lock(r);
    for (const struct worker *w = r->workers; w; w = w->next)
        if (w->current && w->current->abandoned)
            entry_interrupt(&r->own, &w->entry);
    runner_unlock(r);
}

/* Locked. */
static bool any_abandoned(const struct runner *r)
{
    for (const struct worker *w = r->workers; w; w = w->next)
        if (w->current && w->current->abandoned && w->current->state == RUNNER_RUNS)
            return true;
    return false;
}

/* With the GIL.  To 3.12 an interrupt that has not been heard is a flag for all threads: each looks
 * for it at every turn, and 3.11 gives debuggers no events meanwhile.  One that is heard takes it
 * away, so we hear one.  A thread that comes back from its call of C puts it up again. */
static void take_flag_down(struct runner *r)
{
    const struct cpython *py = &r->own;
    PyObject *names = cpython_since(py, 13) ? NULL : py->PyDict_New();
    if (!names)
        return;
    (void)py->PyThreadState_SetAsyncExc((unsigned long)pthread_self(), py->PyExc_KeyboardInterrupt);
    PyObject *done =
        py->PyRun_StringFlags("for _ in (1, 2): pass", Py_file_input, names, names, NULL);
    py->PyErr_Clear();
    if (done)
        py->Py_DecRef(done);
    py->Py_DecRef(names);
}

static void interrupt_again(struct runner *r, struct entry *own)
{
    bool more = true;
    for (int i = 0; more && entry_take(&r->own, own); i++) {
        interrupt_all(r);
        entry_leave(&r->own, own);
        runner_lock(r);
        for (uint64_t until = runner_now_ns() + AGAIN_NS, now; any_abandoned(r) && r->running;) {
            if ((now = runner_now_ns()) >= until)
                break;
            runner_sleep(r, until - now);
        }
        more = any_abandoned(r) && r->running && i + 1 < INTERRUPTS;
        runner_unlock(r);
    }
    if (entry_take(&r->own, own)) {
        take_flag_down(r);
        entry_leave(&r->own, own);
    }
}

/* The thread ends, or the interpreter ended it. */
static void interrupter_gone(void *arg)
{
    struct interrupter *own = arg;
    struct runner *r = own->r;
    entry_gone(&own->entry);
    runner_lock(r);
    r->interrupts = false;
    runner_wake(r);
    runner_unlock(r);
    runner_drop(r);
}

static void *interrupt_thread(void *arg)
{
    struct interrupter own = {.r = arg};
    (void)prctl(PR_SET_NAME, "probing/pystop");
    pthread_cleanup_push(interrupter_gone, &own);
    interrupt_again(own.r, &own.entry);
    pthread_cleanup_pop(1);
    return NULL;
}

/* Locked.  It needs the GIL, which nobody may wait for on a worker: hence a thread of its own. */
void runner_start_interrupts(struct runner *r)
{
    if (!any_abandoned(r) || r->interrupts)
        return;
    r->own.PyExc_KeyboardInterrupt = r->py->PyExc_KeyboardInterrupt;
    runner_hold(r);
    r->interrupts =
        own_thread_start_detached(&r->interrupter, STACK_BYTES, interrupt_thread, r) == 0;
    if (!r->interrupts)
        runner_drop(r);
}

void runner_interrupt(struct runner *r, struct runner_job *job)
{
    runner_lock(r);
    job->abandoned = true;
    runner_start_interrupts(r);
    runner_hire_if_needed(r); /* for one of our own that waited for its end */
    runner_unlock(r);
}

void runner_allow_interrupt(struct runner *r, bool allow)
{
    (allow ? runner_guest_begin : runner_guest_end)(runner_me);
    entry_allow_interrupt(&runner_me->entry, allow);
    runner_lock(r);
    runner_me->loose = runner_me->loose || (allow && runner_me->current->client);
    runner_unlock(r);
}
