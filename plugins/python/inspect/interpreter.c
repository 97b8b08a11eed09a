/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/interpreter.c - thread states of a running interpreter, and where their
 * fields are.
 *
 * One thread at a time per struct walk; the threads that are read know nothing of it.  What is read
 * may change or be freed meanwhile.  So: guarded reads only, each list has a limit and is read
 * twice, each object's type is compared before its fields are believed.  It does not lock, signal
 * or stop anybody.  Their stacks are frame_chain.c's.
 */
#include "inspect/interpreter.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "probing_sdk.h"

#define ROOT_CFRAME 4096 /* bytes of a thread state: one that nobody runs has its cframe in it */
#define CHECK_NS UINT64_C(500000000) /* for threads to be seen where their frames are right */
#define CHECK_PAUSE_NS 1000000
#define LIST_TRIES 50      /* tries for a list of threads that stands still */
#define PTHREAD_BYTES 2304 /* sizeof(struct pthread), glibc 2.17 to 2.41: at most this */

/* Before 3.11 a thread state knows only its pthread_t.  In it glibc keeps the kernel's id, at a
 * place that we find in our own. */
static int find_tid_offset(void)
{
    uint8_t copy[PTHREAD_BYTES];
    struct peek own;
    if (peek_open(&own, 0, 0))
        return -1;
    size_t n = peek_some(&own, (uint64_t)pthread_self(), copy, sizeof(copy));
    int32_t mine = (int32_t)syscall(SYS_gettid);
    peek_close(&own);
    for (size_t at = 512; at + sizeof(mine) <= n; at += sizeof(mine))
        if (i32_at(copy, (int)at) == mine)
            return (int)at;
    return -1;
}

/* find: one of offsets.h's. */
static int open_with(struct walk *w, const struct cpython *py, pid_t pid,
                     int (*find)(const struct cpython *, const struct peek *, struct offsets *,
                                 char *, size_t),
                     char *why, size_t why_size)
{
    *w = (struct walk){.py = py, .peek = {.mem = -1}, .tid_offset = -1};
    int r = peek_open(&w->peek, pid, pid ? address_of(py->runtime) : 0);
    if (r < 0) {
        (void)snprintf(why, why_size,
                       pid ? "its memory cannot be read: that needs the permissions of ptrace (the "
                             "same user and Yama's ptrace_scope 0, or CAP_SYS_PTRACE)"
                           : "this process cannot read its own memory: a sandbox forbids "
                             "process_vm_readv and /proc/self/mem");
        return r;
    }
    r = find(py, &w->peek, &w->o, why, why_size);
    if (r < 0) {
        walk_close(w);
        return r;
    }
    w->main = pid ? 0 : address_of(py->PyInterpreterState_Main());
    w->tid_offset = find_tid_offset();
    w->pieces = malloc(WALK_PIECES * sizeof(*w->pieces));
    w->places = malloc(WALK_FRAMES * sizeof(*w->places));
    w->copies = malloc(WALK_COPIES);
    w->last = walk_last_new();
    w->known = code_cache_new();
    if (!w->pieces || !w->places || !w->copies || !w->last || !w->known) {
        walk_close(w);
        (void)snprintf(why, why_size, "no memory to read Python stacks");
        return -ENOMEM;
    }
    return 0;
}

int walk_open(struct walk *w, const struct cpython *py, pid_t pid, char *why, size_t why_size)
{
    return open_with(w, py, pid, offsets_find, why, why_size);
}

int walk_open_unproved(struct walk *w, const struct cpython *py, char *why, size_t why_size)
{
    return open_with(w, py, /* pid= */ 0, offsets_assume, why, why_size);
}

void walk_close(struct walk *w)
{
    peek_close(&w->peek);
    free(w->scratch);
    free(w->pieces);
    free(w->places);
    free(w->copies);
    free(w->last);
    code_cache_free(w->known);
    free(w->ids);
    w->scratch = w->copies = NULL;
    w->scratch_size = 0;
    w->pieces = NULL;
    w->places = NULL;
    w->last = NULL;
    w->known = NULL;
    w->ids = NULL;
}

/* ---- the threads ---- */

static uint64_t gil_holder(const struct walk *w, uint64_t interpreter)
{
    uint64_t gil = address_of(w->py->runtime) + (uint64_t)w->o.rt_gil, holder = 0;
    int32_t locked = 0;
    if (w->o.rt_gil < 0 && peek_u64(&w->peek, interpreter + (uint64_t)w->o.is_gil, &gil))
        return 0;
    if (peek_i32(&w->peek, gil + (uint64_t)w->o.gil_locked, &locked) || locked != 1)
        return 0;
    return peek_u64(&w->peek, gil + (uint64_t)w->o.gil_holder, &holder) ? 0 : holder;
}

static bool is_thread(const struct walk *w, int32_t tid)
{
    return tid > 0 && syscall(SYS_tgkill, w->peek.pid, tid, 0) == 0;
}

/* Our number of the thread that its process calls `tid`; 0: none of its threads. */
static int32_t thread_called(const struct walk *w, int32_t tid)
{
    if (w->n_ids > 0)
        return threads_outer(w->ids, w->n_ids, tid);
    return is_thread(w, tid) ? tid : 0;
}

static int32_t tid_of(const struct walk *w, const uint8_t *state)
{
    int32_t tid = 0;
    if (w->o.ts_native_id >= 0)
        tid = thread_called(w, (int32_t)u64_at(state, w->o.ts_native_id));
    /* in a forked child 3.11 keeps the parent's id, and glibc the right one */
    if (!tid && w->tid_offset >= 0 &&
        peek_i32(&w->peek, u64_at(state, w->o.ts_thread_id) + (uint64_t)w->tid_offset, &tid) == 0)
        tid = thread_called(w, tid);
    return tid;
}

/* The address of the local variables of the eval function that runs this state; 0: none does. */
static uint64_t running_cframe(const struct walk *w, uint64_t state, const uint8_t *copy)
{
    uint64_t cframe = w->o.ts_cframe >= 0 ? u64_at(copy, w->o.ts_cframe) : 0;
    return cframe - state < ROOT_CFRAME ? 0 : cframe;
}

/* One pass over all lists; -EAGAIN: they changed under us. */
static int list_once(const struct walk *w, struct walk_thread *ret, size_t max)
{
    uint64_t interpreter, state;
    size_t n = 0, interpreters = 0;
    if (peek_u64(&w->peek, address_of(w->py->runtime) + (uint64_t)w->o.rt_interpreters,
                 &interpreter))
        return -EFAULT;
    while (interpreter && interpreters++ < WALK_THREADS) {
        uint64_t holder = gil_holder(w, interpreter);
        if (peek_u64(&w->peek, interpreter + (uint64_t)w->o.is_threads, &state))
            return -EAGAIN;
        while (state) {
            uint8_t copy[OFFSETS_STATE];
            if (n >= max)
                return (int)n;
            if (peek_bytes(&w->peek, state, copy, sizeof(copy)) ||
                u64_at(copy, w->o.ts_interp) != interpreter)
                return -EAGAIN;
            ret[n] =
                (struct walk_thread){.state = state,
                                     .interpreter = interpreter,
                                     .thread_id = u64_at(copy, w->o.ts_thread_id),
                                     .cframe = running_cframe(w, state, copy),
                                     .base = w->o.ts_base >= 0 ? u64_at(copy, w->o.ts_base) : 0,
                                     .tid = tid_of(w, copy),
                                     .place = (int32_t)n,
                                     .holds_gil = state == holder};
            n++;
            state = u64_at(copy, w->o.ts_next);
        }
        if (peek_u64(&w->peek, interpreter + (uint64_t)w->o.is_next, &interpreter))
            return -EAGAIN;
    }
    return (int)n;
}

static bool same_list(const struct walk_thread *a, const struct walk_thread *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i].state != b[i].state || a[i].tid != b[i].tid)
            return false;
    return true;
}

int walk_threads(struct walk *w, struct walk_thread *ret, size_t max)
{
    struct walk_thread *again = malloc(max * sizeof(*again));
    if (!again)
        return -ENOMEM;
    int found = -EAGAIN;
    if (w->peek.pid != getpid()) {
        free(w->ids);
        int n = threads_ids(w->peek.pid, &w->ids);
        w->n_ids = n > 0 ? n : 0;
    }
    for (int i = 0; i < LIST_TRIES && found < 0; i++) {
        int n = list_once(w, ret, max);
        if (n >= 0 && list_once(w, again, max) == n && same_list(ret, again, n))
            found = n;
        else
            (void)sched_yield();
    }
    free(again);
    return found;
}

/* ---- frames ---- */

void walk_parse(const struct walk *w, uint64_t address, const uint8_t *copy, struct walk_frame *ret)
{
    const struct offsets *o = &w->o;
    *ret = (struct walk_frame){
        .address = address,
        .code = u64_at(copy, o->f_code) & ~OFFSETS_MARKS,
        .back = u64_at(copy, o->f_back),
        .instr = o->co_bytecode >= 0 ? u64_at(copy, o->f_instr)
                                     : (uint64_t)(int64_t)i32_at(copy, o->f_instr),
        .copy = o->f_copy >= 0 ? i32_at(copy, o->f_copy) : 0,
        .owner = o->f_owner >= 0 ? copy[o->f_owner] : 0,
        .entry = o->f_entry >= 0 ? copy[o->f_entry] : 0,
    };
}

bool walk_still(const struct walk *w, const struct walk_frame *f)
{
    uint8_t copy[WALK_FRAME_BYTES];
    struct walk_frame now;
    if (peek_bytes(&w->peek, f->address, copy, (size_t)w->o.frame_size))
        return false;
    walk_parse(w, f->address, copy, &now);
    return now.code == f->code && now.back == f->back && now.owner == f->owner &&
           now.instr == f->instr;
}

bool walk_is_shim(const struct walk *w, const struct walk_frame *f)
{
    return w->o.owner_shim >= 0 && f->owner >= w->o.owner_shim;
}

bool walk_is_entry(const struct walk *w, const struct walk_frame *f)
{
    return w->o.minor < 11 || (w->o.f_entry >= 0 && f->entry != 0);
}

/* The offsets of this process: once right, they stay so.  Nobody waits for the lock. */
static pthread_mutex_t proved_lock = PTHREAD_MUTEX_INITIALIZER;
static struct offsets proved; /* lock: proved_lock */

static bool is_proved(const struct walk *w)
{
    bool own = w->peek.pid == getpid();
    if (!own || pthread_mutex_trylock(&proved_lock) != 0)
        return false;
    bool same = memcmp(&proved, &w->o, sizeof(proved)) == 0;
    (void)pthread_mutex_unlock(&proved_lock);
    return same;
}

static void prove_offsets(const struct walk *w)
{
    if (w->peek.pid != getpid() || pthread_mutex_trylock(&proved_lock) != 0)
        return;
    memcpy(&proved, &w->o, sizeof(proved));
    (void)pthread_mutex_unlock(&proved_lock);
}

/* One look: true: they do, or nobody runs Python just now. */
static bool look_right(struct walk *w, const struct walk_thread *threads, int n)
{
    struct walk_frame frames[8];
    struct walk_text text;
    bool main_seen = false, tried = false;
    for (int i = 0; i < n; i++) {
        enum walk_end end;
        main_seen = main_seen || !w->main || threads[i].interpreter == w->main;
        /* any frame that can be read shows that the places are right */
        int depth = walk_stack(w, &threads[i], frames, 8, &end);
        for (int k = 0; k < depth; k++) {
            if (walk_is_shim(w, &frames[k]))
                continue;
            tried = true;
            walk_text(w, &frames[k], &text);
            if (text.readable && main_seen) {
                prove_offsets(w);
                return true;
            }
        }
    }
    return main_seen && !tried;
}

/* A thread may have got no processor for a while where its innermost frame is not said right: 3.11
 * and 3.12 say where that will stand before it stands there. */
int walk_check(struct walk *w, const struct walk_thread *threads, int n, char *why, size_t why_size)
{
    static const struct timespec pause = {0, CHECK_PAUSE_NS};
    uint64_t until = probing_clock_ns(CLOCK_MONOTONIC) + CHECK_NS;
    bool right = n > 0 && is_proved(w);
    while (!right && n > 0) {
        right = look_right(w, threads, n);
        if (!right && probing_clock_ns(CLOCK_MONOTONIC) > until)
            break;
        if (!right)
            (void)nanosleep(&pause, NULL);
    }
    if (right)
        return 0;
    if (n == 0) {
        (void)snprintf(why, why_size,
                       "the Python interpreter is ending or has not begun: it has no threads");
        return -EAGAIN;
    }
    (void)snprintf(why, why_size,
                   "Python's structures are not where CPython 3.%u has them: a build "
                   "with other options?  Python stacks are not read; eval works",
                   w->o.minor);
    return -ENOTSUP;
}
