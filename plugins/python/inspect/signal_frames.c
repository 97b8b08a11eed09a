/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/signal_frames.c - "python.frames/1": Python frames for profilers.
 *
 * here() runs in handlers on any thread, without a lock (signal_look.c).  The others run on workers
 * under one lock.  The functions of an extension carry no context, so what they use is static.
 */
#include "inspect/signal_frames.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inspect/code_names.h"
#include "inspect/interpreter.h"
#include "inspect/native_roles.h"
#include "inspect/signal_look.h"
#include "inspect/thread_names.h"
#include "probing_sdk.h"

#define LIST_NS UINT64_C(100000000)

static struct {
    struct plugin *plugin; /* NULL: closed; written on [control] while nobody uses the part */
    _Atomic bool usable;   /* walk is open */
    pthread_mutex_t lock;  /* for the list of threads, frames, and codes_name() */
    struct walk walk;      /* its offsets and py are read by handlers, and do not change */
    _Atomic uint64_t gil;  /* address of the main interpreter's GIL, 0: not known */
    char interpreter[256];
    struct walk_thread *threads; /* WALK_THREADS; as of listed_ns */
    int n_threads;
    uint64_t listed_ns;
    struct thread_names names; /* as of the list */
    struct walk_frame *frames; /* WALK_FRAMES */
} f = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int part_here(struct probing_python_look *l)
{
    look_empty(l);
    if (!atomic_load_explicit(&f.usable, memory_order_acquire))
        return -ENOTSUP;
    look_here(l, &f.walk, atomic_load_explicit(&f.gil, memory_order_relaxed));
    return 0;
}

/* ---- from outside ---- */

static uint64_t now_ns(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

static const struct walk_thread *listed_thread(int32_t tid)
{
    for (int i = 0; i < f.n_threads; i++)
        if (f.threads[i].tid == tid)
            return &f.threads[i];
    return NULL;
}

/* A thread's state; the list of them is read again now and then.  Locked. */
static const struct walk_thread *state_of(int32_t tid)
{
    const struct walk_thread *t = listed_thread(tid);
    uint64_t now = now_ns();
    if (now - f.listed_ns < LIST_NS || cpython_gone(f.walk.py))
        return t;
    names_done(&f.names);
    int n = walk_threads(&f.walk, f.threads, WALK_THREADS);
    f.n_threads = n > 0 ? n : 0;
    f.listed_ns = now;
    return listed_thread(tid);
}

/* Is it still the thread's own?  It may have ended and been freed since the list was read. */
static bool state_stands(const struct walk_thread *t)
{
    const struct offsets *o = &f.walk.o;
    uint64_t interpreter, id;
    return peek_u64(&f.walk.peek, t->state + (uint64_t)o->ts_interp, &interpreter) == 0 &&
           interpreter == t->interpreter &&
           peek_u64(&f.walk.peek, t->state + (uint64_t)o->ts_thread_id, &id) == 0 &&
           id == t->thread_id;
}

static int part_of(int32_t tid, struct probing_python_look *l)
{
    int r = -ESRCH;
    look_empty(l);
    if (!atomic_load_explicit(&f.usable, memory_order_acquire))
        return -ENOTSUP;
    (void)pthread_mutex_lock(&f.lock);
    const struct walk_thread *t = state_of(tid);
    if (t && state_stands(t))
        r = look_at(l, &f.walk, atomic_load_explicit(&f.gil, memory_order_relaxed), t, f.frames);
    (void)pthread_mutex_unlock(&f.lock);
    return r;
}

static int32_t part_holder(void)
{
    const struct offsets *o = &f.walk.o;
    uint64_t gil = atomic_load_explicit(&f.gil, memory_order_relaxed), holder;
    int32_t locked, tid = 0;
    if (!atomic_load_explicit(&f.usable, memory_order_acquire) || !gil ||
        peek_i32(&f.walk.peek, gil + (uint64_t)o->gil_locked, &locked) || locked != 1 ||
        peek_u64(&f.walk.peek, gil + (uint64_t)o->gil_holder, &holder))
        return 0;
    (void)pthread_mutex_lock(&f.lock);
    (void)state_of(0); /* the list is fresh enough then */
    for (int i = 0; i < f.n_threads; i++)
        if (f.threads[i].state == holder)
            tid = f.threads[i].tid;
    (void)pthread_mutex_unlock(&f.lock);
    return tid;
}

static int part_thread_name(int32_t tid, char *ret, uint32_t size)
{
    int r = -ENOENT;
    if (!atomic_load_explicit(&f.usable, memory_order_acquire))
        return -ENOENT;
    (void)pthread_mutex_lock(&f.lock);
    const struct walk_thread *t = state_of(tid);
    if (t && state_stands(t) && names_thread(&f.walk, &f.names, t, ret, size))
        r = 0;
    (void)pthread_mutex_unlock(&f.lock);
    return r;
}

/* ---- names ---- */

static int64_t part_name(const struct probing_python_look *l, uint32_t i,
                         struct probing_python_text *ret)
{
    ret->func[0] = ret->file[0] = '\0';
    ret->line = 0;
    if (!atomic_load_explicit(&f.usable, memory_order_acquire) || i >= l->n_frames)
        return -ENOENT;
    (void)pthread_mutex_lock(&f.lock);
    int64_t r = codes_name(l, &l->frames[i], ret);
    (void)pthread_mutex_unlock(&f.lock);
    return r;
}

static int part_kind(const char *function, const char *module)
{
    return native_kind(f.interpreter, function, module);
}

const struct probing_python_frames_1 frames_part = {
    .size = sizeof(struct probing_python_frames_1),
    .scratch_bytes = LOOK_SCRATCH_BYTES,
    .here = part_here,
    .of = part_of,
    .holder = part_holder,
    .name = part_name,
    .thread_name = part_thread_name,
    .kind = part_kind,
};

/* ---- begin and end ---- */

static uint64_t find_gil(void)
{
    const struct offsets *o = &f.walk.o;
    uint64_t gil = (uint64_t)(uintptr_t)f.walk.py->runtime + (uint64_t)o->rt_gil;
    uint64_t interpreter = (uint64_t)(uintptr_t)f.walk.py->PyInterpreterState_Main();
    if (o->rt_gil >= 0)
        return gil;
    return interpreter && peek_u64(&f.walk.peek, interpreter + (uint64_t)o->is_gil, &gil) == 0 ? gil
                                                                                               : 0;
}

void frames_open(struct plugin *p)
{
    char why[300];
    if (f.plugin || walk_open(&f.walk, &p->py, /* pid= */ 0, why, sizeof(why)) < 0)
        return;
    f.plugin = p;
    f.threads = malloc(WALK_THREADS * sizeof(*f.threads));
    f.frames = malloc(WALK_FRAMES * sizeof(*f.frames));
    if (codes_open(&f.walk) < 0 || !f.threads || !f.frames) {
        frames_close();
        return;
    }
    native_interpreter(p->host->extension(p->host, PROBING_STACK_1), &p->py, f.interpreter,
                       sizeof(f.interpreter));
    atomic_store_explicit(&f.gil, find_gil(), memory_order_relaxed);
    atomic_store_explicit(&f.usable, true, memory_order_release);
}

void frames_close(void)
{
    atomic_store_explicit(&f.usable, false, memory_order_release);
    codes_close();
    names_done(&f.names);
    free(f.threads);
    free(f.frames);
    f.threads = NULL;
    f.frames = NULL;
    f.n_threads = 0;
    f.listed_ns = 0;
    if (f.plugin)
        walk_close(&f.walk);
    f.plugin = NULL;
}

void frames_forked(void)
{
    atomic_store_explicit(&f.usable, false, memory_order_relaxed);
    f.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a thread of the parent may have it */
}
