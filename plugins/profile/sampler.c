/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/sampler.c - the thread that empties the slots, unwinds, merges and appends.
 *
 * One thread of the plugin's own, with all signals blocked.  [control] starts and stops it and sets
 * what it reads at its next turn.  It takes no lock that the program's threads may hold.
 */
#include "sampler.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cpu_timer.h"
#include "lib/own_thread.h"
#include "lib/proc/patience.h"
#include "lib/proc/task.h"
#include "lib/proc/thread_clock.h"
#include "offcpu.h"
#include "probing_sdk.h"
#include "sample_table.h"
#include "sampling/mixed_stack.h"
#include "sampling/sample_pool.h"
#include "sampling/stack_table.h"
#include "sampling/unwind.h"

#define SCAN_NS UINT64_C(100000000)      /* between looks for new threads */
#define SCAN_IDLE_NS (4 * SCAN_NS)       /* the same while the process hardly runs */
#define IDLE_CPU_NS UINT64_C(1000000)    /* ran less than this since the last look: ours, too */
#define MODULES_NS UINT64_C(500000000)   /* between looks for new modules */
#define NAMES_NS (60 * PROBING_NS_PER_S) /* a name is read again after this: some hundred reads */
#define YOUNG_NS PROBING_NS_PER_S        /* the first ones: many threads get theirs late */
#define YOUNG_NAMES 3
#define STOP_NS (2 * PROBING_NS_PER_S) /* in which the thread does nothing */
#define STACK_BYTES ((size_t)256 << 10)
#define WAIT_READ_NS (300 * PROBING_NS_PER_S) /* a wait's stack is old then, and stored anew */
#define TELL_NS PROBING_NS_PER_S              /* a wait is told after this, and when it ends */

struct reader {
    const struct probing_host *host;
    struct stacks *stacks;
    struct probing_table *samples_table, *unsampled_table;
    struct sample_pool *slots;
    struct cpu_timers *timers;
    struct code *code;
    const struct probing_python_frames_1 *python;
    const struct probing_stack_1 *symbols;
    pthread_t thread;
    bool running;                   /* [control] only */
    _Atomic uint32_t rate_hz, mode; /* asked for */
    uint32_t rate_now, mode_now;    /* the thread's */
    _Atomic bool stop, ended, signal_gone, forked;
    _Atomic uint64_t samples;
    _Atomic int32_t tid;
    uint64_t started_ns; /* [control] */
    uint64_t scanned_ns, modules_ns, tick_ns, chance;
    uint64_t unsampled_ns;         /* when threads without a timer were told */
    uint64_t scan_each_ns, cpu_ns; /* until the next look; of the process at the last one */
    struct sample_slot *desk;      /* for looks from outside: a slot that no handler sees */
    struct merge_native native;
    uint32_t frames[MERGE_FRAMES];
};

/* ---- samples ---- */

static int64_t stack_of(struct reader *r, const struct registers *registers,
                        const struct stack_copy *copy, const struct probing_python_look *look,
                        uint64_t now)
{
    enum unwind_end end;
    r->native.n =
        unwind_stack(r->code, registers, copy, r->native.ips, r->native.sps, MERGE_NATIVE, &end);
    uint32_t n_frames = merge_stacks(r->stacks, look, &r->native, end, r->frames);
    return stacks_number(r->stacks, r->frames, n_frames, now);
}

static uint64_t name_of(struct reader *r, struct watched *w, int32_t tid, uint64_t now)
{
    char name[128] = "";
    if (w->name_id && now - w->named_ns < (w->n_names < YOUNG_NAMES ? YOUNG_NS : NAMES_NS))
        return w->name_id;
    w->n_names += w->n_names < YOUNG_NAMES;
    if (!r->python || r->python->thread_name(tid, name, sizeof(name)) < 0) {
        (void)proc_comm_of(0, tid, name, sizeof(name));
        /* one that had no name yet when it was found */
        w->ours = w->ours || strncmp(name, "probing/", strlen("probing/")) == 0;
    }
    uint64_t id = probing_intern_text(r->host, name[0] ? name : NULL);
    w->name_id = id != PROBING_NULL_ID ? id : w->name_id;
    w->named_ns = now;
    return w->name_id;
}

static void take_slot(struct reader *r, struct sample_slot *x)
{
    struct watched none = {.tid = 0},
                   *w = cpu_timers_watched(r->timers, (uint32_t)x->user[OF_RECORD]);
    const struct stack_copy copy = {x->stack, x->stack_from, x->stack_bytes};
    uint64_t now = r->host->now();
    if (!w || w->tid != x->tid)
        w = &none; /* it has ended */
    const struct sample_row row = {
        .ts = x->ts,
        .stack = stack_of(r, &x->registers, &copy, &x->look, now),
        .tid = x->tid,
        .thread_name = name_of(r, w, x->tid, now),
        .gil = x->look.gil >= 0 ? x->look.gil : PROBING_NULL_I64,
        .step = x->step,
        .cpu_ns = (int64_t)x->user[OF_CPU_NS],
        .wall_ns = (int64_t)x->user[OF_CPU_NS],
    };
    if (row.stack && !w->ours)
        sample_table_add(r->host, r->samples_table, &row);
    if (!row.stack) /* there was no room: its CPU time goes to the next sample */
        (void)atomic_fetch_sub_explicit(&w->cpu_ns, x->user[OF_CPU_NS], memory_order_relaxed);
    w->last_stack = row.stack;
    (void)atomic_fetch_add_explicit(&r->samples, 1, memory_order_relaxed);
}

static void drain_slots(struct reader *r)
{
    for (struct sample_slot *x; (x = sample_slot_next(r->slots)) != NULL;) {
        take_slot(r, x);
        sample_slot_release(r->slots, x);
    }
}

/* ---- waiting ---- */

static void tell_wait(struct reader *r, struct watched *w, uint64_t now)
{
    const struct sample_row row = {.ts = now,
                                   .stack = w->still_stack,
                                   .tid = w->tid,
                                   .thread_name = name_of(r, w, w->tid, now),
                                   .gil = w->still_gil,
                                   .step = cpu_timers_step(r->timers),
                                   .wall_ns = (int64_t)w->still_ns};
    if (w->still_stack && w->still_ns && !w->ours) {
        sample_table_add(r->host, r->samples_table, &row);
        (void)atomic_fetch_add_explicit(&r->samples, 1, memory_order_relaxed);
    }
    w->still_ns = 0;
}

/* The stack in which a thread waits now, in the kernel or for a CPU; 0: it runs, or went on
 * meanwhile. */
static int64_t inspect_offcpu(struct reader *r, struct watched *w, uint64_t cpu, uint64_t now)
{
    struct sample_slot *x = r->desk;
    sample_slot_look(x);
    enum outside is = offcpu_inspect(w->tid, &x->registers, x->stack, SLOT_STACK, &x->stack_bytes);
    if (is == OFFCPU_UNKNOWN)
        return 0;
    if (r->python)
        (void)r->python->of(w->tid, &x->look);
    if (thread_cpu_ns(w->tid) != cpu)
        return 0;
    const struct stack_copy copy = {x->stack, x->registers.value[CFI_SP], x->stack_bytes};
    w->still_gil = x->look.gil >= 0 ? x->look.gil : PROBING_NULL_I64;
    if (is == OFFCPU_READY) /* and has used no CPU time: another thread has the CPU */
        return stacks_number(r->stacks, r->frames, merge_ready(r->stacks, &x->look, r->frames),
                             now);
    return stack_of(r, &x->registers, &copy, &x->look, now);
}

/* A thread's time since the look before.  What it ran of it is in the samples of its timer; the
 * rest it waited: where it waits now, for a CPU too, or, when it runs just now, where it waited
 * when it was seen waiting last.  Its last sample says where it runs, which is often the caller of
 * what it waits in. */
static void tick_thread(struct reader *r, struct watched *w, uint64_t now)
{
    uint64_t cpu = thread_cpu_ns(w->tid), passed = now - w->seen_ns;
    uint64_t ran = cpu - w->seen_cpu_ns;
    bool first = w->seen_ns == 0;
    if (cpu == 0)
        return; /* it has ended */
    w->seen_cpu_ns = cpu;
    w->seen_ns = now;
    if (first)
        return;
    bool old = now - w->wait_read_ns > WAIT_READ_NS;
    if (ran || !w->still_stack || old) {
        tell_wait(r, w, now);
        w->still_stack = inspect_offcpu(r, w, cpu, now);
        if (w->still_stack || old)
            w->wait_stack = w->still_stack;
        w->wait_read_ns = w->still_stack ? now : w->wait_read_ns;
    }
    if (ran >= passed)
        return;
    if (w->still_stack) {
        w->still_ns += passed - ran;
        if (w->still_ns > TELL_NS)
            tell_wait(r, w, now);
        return;
    }
    w->still_stack = w->wait_stack ? w->wait_stack : w->last_stack;
    w->still_ns = passed - ran;
    tell_wait(r, w, now);
    w->still_stack = 0;
}

/* Look at all threads, or only at the one that holds the GIL. */
static void look_at_threads(struct reader *r, uint64_t now)
{
    int32_t holder = r->mode_now == MODE_GIL && r->python ? r->python->holder() : 0;
    for (uint32_t i = 0; i < cpu_timers_room(r->timers); i++) {
        struct watched *w = cpu_timers_watched(r->timers, i);
        if (!w || w->ours)
            continue;
        if (r->mode_now == MODE_WALL || w->tid == holder) {
            tick_thread(r, w, now);
        } else if (w->seen_ns) {
            tell_wait(r, w, now);
            w->seen_ns = 0;
            w->still_stack = 0;
        }
    }
}

/* All that was waited for goes into the tables. */
static void tell_waits(struct reader *r)
{
    uint64_t now = r->host->now();
    for (uint32_t i = 0; i < cpu_timers_room(r->timers); i++) {
        struct watched *w = cpu_timers_watched(r->timers, i);
        if (!w)
            continue;
        tell_wait(r, w, now);
        w->seen_ns = 0;
        w->still_stack = 0;
    }
}

/* Ticks come by chance around the rate, as the timers' periods do. */
static uint64_t next_tick(struct reader *r, uint64_t now)
{
    uint64_t period = PROBING_NS_PER_S / r->rate_now;
    r->chance = r->chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return now + period / 2 + (r->chance >> 33) % period;
}

/* ---- the thread's turns ---- */

static void apply_settings(struct reader *r)
{
    uint32_t rate = atomic_load_explicit(&r->rate_hz, memory_order_relaxed);
    uint32_t mode = atomic_load_explicit(&r->mode, memory_order_relaxed);
    if (rate != r->rate_now) {
        tell_waits(r); /* records may begin anew */
        cpu_timers_set_rate(r->timers, rate);
        r->scanned_ns = 0;
    }
    if (mode != r->mode_now) {
        tell_waits(r);
        cpu_timers_begin(r->timers, r->python, mode == MODE_GIL);
    }
    r->rate_now = rate;
    r->mode_now = mode;
}

/* Only threads that run make others, and all of them count here: while they hardly do, new threads
 * are looked for less often. */
static void choose_rest(struct reader *r)
{
    struct timespec cpu = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    uint64_t now = (uint64_t)cpu.tv_sec * PROBING_NS_PER_S + (uint64_t)cpu.tv_nsec;
    r->scan_each_ns = now - r->cpu_ns < IDLE_CPU_NS ? SCAN_IDLE_NS : SCAN_NS;
    r->cpu_ns = now;
}

/* Count the threads that have no timer, so that no picture is taken for a whole one. */
static void tell_unsampled(struct reader *r)
{
    struct cpu_timers_about about;
    uint64_t now = r->host->now();
    if (now - r->unsampled_ns < TELL_NS && !atomic_load_explicit(&r->stop, memory_order_relaxed))
        return;
    r->unsampled_ns = now;
    cpu_timers_about(r->timers, &about);
    if (about.refused > 0)
        unsampled_table_add(r->host, r->unsampled_table, about.refused, about.threads);
}

static void run_turn(struct reader *r)
{
    uint64_t now = r->host->now();
    if (now - r->modules_ns > MODULES_NS) {
        r->modules_ns = now;
        cpu_timers_count_steps(r->timers, r->host->extension(r->host, PROBING_TORCH_STEP_1));
        if (code_changed(r->code))
            stacks_read_modules(r->stacks);
    }
    drain_slots(r);
    apply_settings(r);
    if (now - r->scanned_ns > SCAN_NS &&
        !atomic_load_explicit(&r->signal_gone, memory_order_relaxed)) {
        r->scanned_ns = now;
        choose_rest(r);
        if (cpu_timers_scan(r->timers) < 0) {
            atomic_store_explicit(&r->signal_gone, true, memory_order_relaxed);
            r->host->log(r->host, PROBING_WARN,
                         "the program has taken over the profiler's signal: sampling has ended");
        }
        tell_unsampled(r);
    }
}

/* How long until something must be done, if no samples come. */
static uint64_t ns_until_due(struct reader *r)
{
    uint64_t now = r->host->now();
    if (r->mode_now == MODE_CPU)
        return r->scan_each_ns;
    if (now >= r->tick_ns) {
        look_at_threads(r, now);
        r->tick_ns = next_tick(r, now);
        now = r->host->now();
    }
    uint64_t left = r->tick_ns > now ? r->tick_ns - now : 0;
    return left < SCAN_NS ? left : SCAN_NS;
}

static void *sampler_thread(void *arg)
{
    struct reader *r = arg;
    (void)prctl(PR_SET_NAME, "probing/profile");
    atomic_store_explicit(&r->tid, (int32_t)syscall(SYS_gettid), memory_order_relaxed);
    stacks_read_modules(r->stacks); /* the core's list may be of long ago */
    cpu_timers_begin(r->timers, r->python, r->mode_now == MODE_GIL);
    while (!atomic_load_explicit(&r->stop, memory_order_acquire)) {
        run_turn(r);
        sample_slot_wait(r->slots, ns_until_due(r));
    }
    tell_waits(r);
    tell_unsampled(r);
    cpu_timers_end(r->timers);
    drain_slots(r);
    atomic_store_explicit(&r->ended, true, memory_order_release);
    return NULL;
}

/* ---- begin and end ---- */

static void drop_reader(struct reader *r)
{
    sample_pool_free(r->slots);
    code_free(r->code);
    free(r->desk);
    r->slots = NULL;
    r->code = NULL;
    r->desk = NULL;
}

int reader_start(struct reader *r)
{
    const struct probing_host *h = r->host;
    r->symbols = h->extension(h, PROBING_STACK_1);
    r->python = h->extension(h, PROBING_PYTHON_FRAMES_1);
    r->rate_now = 0;
    r->scan_each_ns = SCAN_NS;
    r->mode_now = atomic_load_explicit(&r->mode, memory_order_relaxed);
    atomic_store_explicit(&r->stop, false, memory_order_relaxed);
    atomic_store_explicit(&r->ended, false, memory_order_relaxed);
    atomic_store_explicit(&r->tid, 0, memory_order_relaxed);
    atomic_store_explicit(&r->signal_gone, false, memory_order_relaxed);
    uint32_t scratch = r->python ? r->python->scratch_bytes : 0;
    int rc = sample_pool_new(SAMPLE_SLOTS, scratch, &r->slots);
    if (rc == 0 && !(r->desk = aligned_alloc(16, (sizeof(*r->desk) + scratch + 15) & ~15u)))
        rc = -ENOMEM;
    if (rc == 0)
        rc = code_open(&r->code);
    stacks_name_with(r->stacks, r->symbols, r->python, r->code);
    if (rc == 0)
        rc = cpu_timers_new(h, r->slots, &r->timers);
    if (rc == -EBUSY) {
        drop_reader(r);
        return h->fail(h, rc,
                       "the program uses every real-time signal, so none is left for sampling");
    }
    if (rc == 0)
        rc = own_thread_start(&r->thread, STACK_BYTES, sampler_thread, r);
    if (rc < 0) {
        (void)cpu_timers_free(r->timers);
        r->timers = NULL;
        drop_reader(r);
        return probing_failf(h, rc,
                             "no memory or no thread for the profiler (%s); of threads the limits "
                             "are ulimit -u, and pids.max of the cgroup",
                             strerror(-rc));
    }
    r->started_ns = h->now();
    r->running = true;
    return 0;
}

static bool wait_ended(struct reader *r, struct patience *p)
{
    while (!atomic_load_explicit(&r->ended, memory_order_acquire)) {
        sample_slot_notify(r->slots);
        if (!patience_rest(p, atomic_load_explicit(&r->tid, memory_order_relaxed)))
            return false;
    }
    return true;
}

int reader_stop(struct reader *r)
{
    if (!r->running)
        return 0;
    if (atomic_load_explicit(&r->forked, memory_order_relaxed))
        return 0; /* the thread is the parent's */
    atomic_store_explicit(&r->stop, true, memory_order_release);
    struct patience p = {.limit_ns = STOP_NS};
    if (!wait_ended(r, &p))
        return probing_failf(r->host, -EBUSY, "the profiler's thread %s", patience_end(&p));
    int rc = cpu_timers_free(r->timers);
    if (rc < 0)
        return r->host->fail(r->host, rc,
                             "a thread that is inside the profiler's signal handler is held by a "
                             "debugger or gets no processor; try again");
    (void)pthread_join(r->thread, NULL);
    r->timers = NULL;
    r->running = false;
    drop_reader(r);
    return 0;
}

void reader_set(struct reader *r, uint32_t rate_hz, enum mode mode)
{
    atomic_store_explicit(&r->rate_hz, rate_hz, memory_order_relaxed);
    atomic_store_explicit(&r->mode, mode, memory_order_relaxed);
    if (r->running)
        sample_slot_notify(r->slots);
}

void reader_forked(struct reader *r)
{
    atomic_store_explicit(&r->forked, true, memory_order_relaxed);
    if (r->timers)
        cpu_timers_forked(r->timers);
}

void reader_about(struct reader *r, struct reader_about *ret)
{
    struct cpu_timers_about about = {.threads = 0};
    int32_t tid = atomic_load_explicit(&r->tid, memory_order_relaxed);
    if (r->timers)
        cpu_timers_about(r->timers, &about);
    *ret = (struct reader_about){.rate_hz = atomic_load_explicit(&r->rate_hz, memory_order_relaxed),
                                 .mode = atomic_load_explicit(&r->mode, memory_order_relaxed),
                                 .samples = atomic_load_explicit(&r->samples, memory_order_relaxed),
                                 .signal_gone =
                                     atomic_load_explicit(&r->signal_gone, memory_order_relaxed),
                                 .threads = about.threads,
                                 .refused = about.refused,
                                 .lost = about.lost,
                                 .fine = about.fine,
                                 .handled = about.handled,
                                 .handler_ns = about.handler_ns,
                                 .own_cpu_ns = thread_cpu_ns(tid),
                                 .since_ns = r->started_ns,
                                 .python = r->python != NULL};
}

int reader_new(const struct probing_host *host, struct reader **ret)
{
    struct reader *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->host = host;
    atomic_store_explicit(&r->rate_hz, 100, memory_order_relaxed);
    int rc = stacks_new(host, "python.stacks",
                        "frames of the stacks of python.samples, by stack_id", &r->stacks);
    if (rc == 0)
        rc = sample_table_new(host, &r->samples_table);
    if (rc == 0)
        rc = unsampled_table_new(host, &r->unsampled_table);
    if (rc < 0) {
        stacks_free(r->stacks);
        free(r);
        return rc;
    }
    *ret = r;
    return 0;
}

void reader_free(struct reader *r)
{
    if (!r)
        return;
    stacks_free(r->stacks);
    free(r);
}
