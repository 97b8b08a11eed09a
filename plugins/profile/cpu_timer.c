/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/cpu_timer.c - timers on the CPU clock of each thread, and the signal's handler.
 *
 * The handler runs on any thread: no lock, no allocation, no thread-local storage, little stack
 * (it may be a small alternate one).  It copies registers and stack, lets the python plugin note
 * its frames, and hands the slot over; all else is done by the profiler's thread.
 *
 * Periods are drawn by chance around the asked one, or a program that works in step with them would
 * be hit in the same place again and again: each signal sets the timer for the next.
 *
 * The kernel looks at CPU timers at its tick, 100 to 1,000 times a second (sample_period.h).  For
 * higher rates there are finer clocks (perf_timer.h), where they are permitted.  A sample carries
 * the CPU time that its thread used since the one before, so sums are right at any rate.
 */
#include "cpu_timer.h"

#include <errno.h>
#include <probing/ext/draft/signal.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "lib/hash.h"
#include "lib/proc/patience.h"
#include "lib/proc/task.h"
#include "lib/proc/thread_clock.h"
#include "lib/sparse_map.h"
#include "probing_sdk.h"
#include "proc_tasks.h"
#include "sample_period.h"

#define FDS_MAX 65536             /* descriptors above are not used */
#define LEAVE_NS PATIENCE_MOST_NS /* for handlers to end, however long they get no processor */
#define PERF_TIMER_SIGNAL SIGURG  /* ignored by default: nobody is harmed by one too many */
#define TIMED 8u       /* one handler in so many asks for its own CPU time, which costs 0.4 us */
#define TIMERS_KEPT 16 /* queued signals and timers that stay the program's: probing.limits */
#define WHOLE_NS (10 * PROBING_NS_PER_S) /* a scan at least as often, where threads come and go */

/* The handler's.  Static because it has no other way to find it. */
static struct {
    _Atomic(struct cpu_timers *) timers; /* NULL: do nothing */
    _Atomic uint32_t inside;             /* threads in the handler */
} g;

struct cpu_timers {
    const struct probing_host *host;
    const struct probing_signal_1 *signals;
    struct sample_pool *slots;
    struct watched *watched; /* WATCHED_MAX */
    _Atomic uint32_t room;
    _Atomic(const struct probing_python_frames_1 *) python;
    _Atomic(const struct probing_torch_step_1 *) torch;
    _Atomic bool only_gil;
    _Atomic uint64_t lost, handled, timed, timed_ns; /* one in TIMED */
    _Atomic uint32_t threads, refused;
    uint64_t scan, scanned_ns;
    struct tasks tasks;
    uint32_t over;       /* threads beyond WATCHED_MAX, in this scan */
    int64_t timers_left; /* as this scan began, less what it has made */
    _Atomic uint64_t period_ns;
    _Atomic uint16_t *by_fd; /* FDS_MAX: number of the record, + 1 */
    _Atomic bool fine;       /* PERF_TIMER_SIGNAL is ours, and clocks are fine ones */
    bool perf_timer_refused;
    uint64_t tick_ns; /* the kernel's */
    int signal;
    bool forked;
};

/* ---- the handler ---- */

static void copy_registers(const ucontext_t *context, struct registers *r) /* [signal] */
{
#if defined(__x86_64__)
    static const uint8_t order[16] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                      REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                      REG_R12, REG_R13, REG_R14, REG_R15};
    for (int i = 0; i < 16; i++)
        r->value[i] = (uint64_t)context->uc_mcontext.gregs[order[i]];
    r->known = (UINT64_C(1) << 16) - 1;
    r->ip = (uint64_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    for (int i = 0; i < 31; i++)
        r->value[i] = context->uc_mcontext.regs[i];
    r->value[CFI_SP] = context->uc_mcontext.sp;
    r->known = (UINT64_C(1) << 32) - 1;
    r->ip = context->uc_mcontext.pc;
#endif
}

/* The next signal after half to one and a half periods of CPU time, but for the tick. [signal] */
static void timer_arm(const struct cpu_timers *c, struct watched *w)
{
    uint64_t period = atomic_load_explicit(&c->period_ns, memory_order_relaxed);
    w->chance = w->chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t next = period_draw(w->chance, period, c->tick_ns);
    struct itimerspec at = {
        .it_value = {(time_t)(next / PROBING_NS_PER_S), (int64_t)(next % PROBING_NS_PER_S)}};
    (void)syscall(SYS_timer_settime, w->timer, 0, &at, NULL);
}

int64_t cpu_timers_step(const struct cpu_timers *c)
{
    const struct probing_torch_step_1 *torch =
        atomic_load_explicit(&c->torch, memory_order_relaxed);
    int64_t step = torch ? torch->now() : -1;
    return step >= 0 ? step : PROBING_NULL_I64;
}

static void take_sample(struct cpu_timers *c, struct watched *w, uint64_t cpu,
                        const ucontext_t *context) /* [signal] */
{
    const struct probing_python_frames_1 *python =
        atomic_load_explicit(&c->python, memory_order_relaxed);
    struct sample_slot *x = sample_slot_take(c->slots);
    if (!x) {
        (void)atomic_fetch_add_explicit(&c->lost, 1, memory_order_relaxed);
        return; /* its CPU time goes to the next sample */
    }
    x->ts = c->host->now();
    x->tid = w->tid;
    x->step = cpu_timers_step(c);
    x->user[OF_RECORD] = (uint64_t)(w - c->watched);
    x->user[OF_CPU_NS] = cpu - atomic_exchange_explicit(&w->cpu_ns, cpu, memory_order_relaxed);
    copy_registers(context, &x->registers);
    sample_slot_fill(c->slots, x, python, w->last);
    if (x->look.gil != 1 && atomic_load_explicit(&c->only_gil, memory_order_relaxed)) {
        sample_slot_release(c->slots, x);
        return;
    }
    sample_slot_submit(c->slots, x);
}

static void handle_signal(struct cpu_timers *c, struct watched *w,
                          const ucontext_t *context) /* [signal] */
{
    uint64_t cpu = probing_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (w->fine.fd != -1)
        perf_timer_again(&w->fine);
    else
        timer_arm(c, w);
    take_sample(c, w, cpu, context);
    if (atomic_fetch_add_explicit(&c->handled, 1, memory_order_relaxed) % TIMED)
        return;
    (void)atomic_fetch_add_explicit(&c->timed, 1, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&c->timed_ns, probing_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu,
                                    memory_order_relaxed);
}

/* The record of the thread whose signal this is; NULL: the signal is not ours.      [signal] */
static struct watched *signal_thread(struct cpu_timers *c, const siginfo_t *info)
{
    if (info->si_code == SI_TIMER) {
        struct watched *w = info->si_value.sival_ptr;
        return w >= c->watched && w < c->watched + WATCHED_MAX ? w : NULL;
    }
    if ((info->si_code != POLL_IN && info->si_code != POLL_HUP) || info->si_fd < 0 ||
        info->si_fd >= FDS_MAX)
        return NULL;
    uint32_t i = atomic_load_explicit(&c->by_fd[info->si_fd], memory_order_relaxed);
    return i && c->watched[i - 1].fine.fd == info->si_fd ? &c->watched[i - 1] : NULL;
}

static bool on_signal(int kind, void *about, void *context) /* [signal] */
{
    siginfo_t *info = about;
    (void)kind;
    (void)atomic_fetch_add_explicit(&g.inside, 1, memory_order_seq_cst);
    struct cpu_timers *c = atomic_load_explicit(&g.timers, memory_order_seq_cst);
    struct watched *w = c ? signal_thread(c, info) : NULL;
    if (w)
        handle_signal(c, w, context);
    (void)atomic_fetch_sub_explicit(&g.inside, 1, memory_order_seq_cst);
    return w || (!c && (info->si_code == SI_TIMER || info->si_code == POLL_IN));
}

/* ---- begin and end ---- */

static void give_perf_timer(struct cpu_timers *c)
{
    if (atomic_exchange_explicit(&c->fine, false, memory_order_relaxed) &&
        c->signal != PERF_TIMER_SIGNAL)
        (void)c->signals->give(PERF_TIMER_SIGNAL);
}

/* By default SIGURG is ignored, and others end the process: programs put back the default of all
 * signals without asking (PyTorch Lightning at the end of fit()). */
static int take_signal(struct cpu_timers *c)
{
    int number = c->signals ? c->signals->take(SIGURG, on_signal) : -ENOSYS;
    if (number == -EBUSY)
        number = c->signals->take(0, on_signal);
    c->signal = number;
    return number < 0 ? number : 0;
}

int cpu_timers_new(const struct probing_host *host, struct sample_pool *slots,
                   struct cpu_timers **ret)
{
    struct cpu_timers *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->host = host;
    c->signals = host->extension(host, PROBING_SIGNAL_1);
    c->slots = slots;
    c->tick_ns = period_tick_ns();
    atomic_store_explicit(&c->period_ns, PROBING_NS_PER_S / 100, memory_order_relaxed);
    c->watched = sparse_map(WATCHED_MAX * sizeof(*c->watched));
    if (!c->watched) {
        free(c);
        return -ENOMEM;
    }
    c->by_fd = sparse_map(FDS_MAX * sizeof(*c->by_fd));
    int r = c->by_fd ? take_signal(c) : -ENOMEM;
    if (r < 0) {
        if (c->by_fd)
            (void)munmap((void *)c->by_fd, FDS_MAX * sizeof(*c->by_fd));
        (void)munmap(c->watched, WATCHED_MAX * sizeof(*c->watched));
        free(c);
        return r;
    }
    *ret = c;
    return 0;
}

/* Nothing in the handler waits, but its threads may get no processor. */
static bool wait_handlers(void)
{
    struct patience p = {.most_ns = LEAVE_NS};
    while (atomic_load_explicit(&g.inside, memory_order_seq_cst) != 0)
        if (!patience_rest(&p, /* tid= */ 0))
            return false;
    return true;
}

int cpu_timers_free(struct cpu_timers *c)
{
    if (!c)
        return 0;
    atomic_store_explicit(&g.timers, NULL, memory_order_seq_cst);
    if (!c->forked) {
        (void)c->signals->give(c->signal);
        give_perf_timer(c);
        if (!wait_handlers())
            return -EBUSY;
    }
    (void)munmap((void *)c->by_fd, FDS_MAX * sizeof(*c->by_fd));
    (void)munmap(c->watched, WATCHED_MAX * sizeof(*c->watched));
    free(c);
    return 0;
}

/* ---- timers ---- */

/* false: a timer is wanted, or all that can be had. */
static bool perf_timer_new(struct cpu_timers *c, struct watched *w)
{
    if (!atomic_load_explicit(&c->fine, memory_order_relaxed))
        return false;
    int r = perf_timer_open(&w->fine, w->tid, PERF_TIMER_SIGNAL,
                            atomic_load_explicit(&c->period_ns, memory_order_relaxed));
    if (r == 0 && w->fine.fd >= FDS_MAX)
        perf_timer_close(&w->fine);
    if (w->fine.fd == -1) {
        c->perf_timer_refused = c->perf_timer_refused || (r < 0 && r != -ESRCH);
        return false;
    }
    atomic_store_explicit(&c->by_fd[w->fine.fd], (uint16_t)(w - c->watched + 1),
                          memory_order_relaxed);
    perf_timer_again(&w->fine);
    return true;
}

/* How many more of the queued signals that its user may have the program does not need itself. */
static int64_t timers_left(void)
{
    struct rlimit limit;
    struct proc_status now;
    if (getrlimit(RLIMIT_SIGPENDING, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        proc_status_of(0, 0, &now) < 0 || now.queued == PROC_UNKNOWN)
        return INT64_MAX;
    return (int64_t)limit.rlim_cur - (int64_t)now.queued - TIMERS_KEPT;
}

static void timer_new(struct cpu_timers *c, struct watched *w)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = c->signal};
    event.sigev_value.sival_ptr = w;
    event._sigev_un._tid = w->tid;
    clockid_t clock = thread_cpu_clock(w->tid);
    int timer = -1;
    atomic_store_explicit(&w->cpu_ns, thread_cpu_ns(w->tid), memory_order_relaxed);
    if (perf_timer_new(c, w))
        return;
    w->refused = c->timers_left <= 0;
    if (w->refused)
        return;
    if (syscall(SYS_timer_create, clock, &event, &timer) == -1) {
        w->refused = errno == EAGAIN; /* RLIMIT_SIGPENDING; else the thread has ended */
        return;
    }
    c->timers_left--;
    w->timer = timer;
    w->chance = hash_spread((uint64_t)w->tid) ^ c->host->now();
    timer_arm(c, w);
}

static void timer_drop(struct cpu_timers *c, struct watched *w)
{
    if (w->fine.fd != -1)
        atomic_store_explicit(&c->by_fd[w->fine.fd], 0, memory_order_relaxed);
    perf_timer_close(&w->fine);
    if (w->timer != -1)
        (void)syscall(SYS_timer_delete, w->timer);
    w->timer = -1;
}

/* ---- threads ---- */

static void forget_thread(struct cpu_timers *c, struct watched *w)
{
    timer_drop(c, w);
    *w = (struct watched){.timer = -1, .fine = {.fd = -1}};
}

/* Let nobody be in the handler while a record goes whose thread may be alive: a signal that
 * comes meanwhile does nothing, so all timers are set again. */
static void forget_living(struct cpu_timers *c, struct watched *w)
{
    bool on = atomic_exchange_explicit(&g.timers, NULL, memory_order_seq_cst) != NULL;
    (void)wait_handlers();
    forget_thread(c, w);
    atomic_store_explicit(&g.timers, on ? c : NULL, memory_order_seq_cst);
    for (uint32_t i = 0; i < cpu_timers_room(c); i++)
        if (c->watched[i].tid && c->watched[i].fine.fd != -1)
            perf_timer_again(&c->watched[i].fine);
        else if (c->watched[i].tid && c->watched[i].timer != -1)
            timer_arm(c, &c->watched[i]);
}

/* The record of a thread, or a free one.  Threads keep their order in the folder, so the search
 * begins where the last one ended. */
static struct watched *find_thread(struct cpu_timers *c, int32_t tid, uint64_t inode,
                                   uint32_t *from)
{
    uint32_t room = cpu_timers_room(c);
    for (uint32_t n = 0; n < room; n++) {
        uint32_t i = (*from + n) % room;
        if (c->watched[i].tid == tid) {
            *from = i + 1;
            if (c->watched[i].inode == inode)
                return &c->watched[i];
            forget_living(c, &c->watched[i]); /* its number may be another thread's now */
            return &c->watched[i];
        }
    }
    for (uint32_t i = 0; i < room; i++)
        if (c->watched[i].tid == 0)
            return &c->watched[i];
    if (room == WATCHED_MAX)
        return NULL;
    c->watched[room] = (struct watched){.timer = -1, .fine = {.fd = -1}};
    atomic_store_explicit(&c->room, room + 1, memory_order_release);
    return &c->watched[room];
}

struct seeing {
    struct cpu_timers *timers;
    uint32_t from;
};

static void see_thread(void *arg, int32_t tid, uint64_t inode)
{
    struct seeing *s = arg;
    struct cpu_timers *c = s->timers;
    struct watched *w = find_thread(c, tid, inode, &s->from);
    if (!w) {
        c->over++;
        return;
    }
    w->seen = c->scan;
    if (w->tid == tid)
        return;
    w->tid = tid;
    w->inode = inode;
    w->ours = tasks_is_ours(tid);
    if (!w->ours)
        timer_new(c, w);
}

/* All timers go; the next scan makes others. */
static void forget_all(struct cpu_timers *c)
{
    struct cpu_timers *on = atomic_exchange_explicit(&g.timers, NULL, memory_order_seq_cst);
    (void)wait_handlers();
    for (uint32_t i = 0; i < cpu_timers_room(c); i++)
        if (c->watched[i].tid)
            forget_thread(c, &c->watched[i]);
    c->tasks.looked_ns = 0;
    atomic_store_explicit(&g.timers, on, memory_order_seq_cst);
}

/* A timer that runs already ends as it was set; its next period is a new one. */
void cpu_timers_set_rate(struct cpu_timers *c, uint32_t rate_hz)
{
    uint64_t period = PROBING_NS_PER_S / rate_hz;
    bool fine = perf_timer_needed(rate_hz) && !c->perf_timer_refused;
    atomic_store_explicit(&c->period_ns, period, memory_order_relaxed);
    if (fine == atomic_load_explicit(&c->fine, memory_order_relaxed)) {
        for (uint32_t i = 0; fine && i < cpu_timers_room(c); i++)
            perf_timer_set(&c->watched[i].fine, period);
        return;
    }
    if (!fine || c->signal == PERF_TIMER_SIGNAL ||
        c->signals->take(PERF_TIMER_SIGNAL, on_signal) >= 0) {
        forget_all(c);
        if (!fine)
            give_perf_timer(c);
        atomic_store_explicit(&c->fine, fine, memory_order_relaxed);
    }
}

/* The program has taken the finer clocks' signal: timers do. */
static void check_perf_timer(struct cpu_timers *c)
{
    if (!atomic_load_explicit(&c->fine, memory_order_relaxed) ||
        (c->signals->is_ours(PERF_TIMER_SIGNAL) && !c->perf_timer_refused))
        return;
    forget_all(c);
    give_perf_timer(c);
    c->perf_timer_refused = true;
}

/* Have all threads with a clock theirs still?  Then as many threads as before are the same ones. */
static bool all_live(struct cpu_timers *c)
{
    for (uint32_t i = 0; i < cpu_timers_room(c); i++)
        if (c->watched[i].tid && thread_cpu_ns(c->watched[i].tid) == 0)
            return false;
    return c->over == 0;
}

/* Take the signal again: somebody has put the default action back, so nobody else wants it.  Clocks
 * whose signal was lost meanwhile would not go on. */
static bool take_again(struct cpu_timers *c)
{
    if (c->signals->take(c->signal, on_signal) < 0)
        return false;
    forget_all(c);
    return true;
}

int cpu_timers_scan(struct cpu_timers *c)
{
    uint32_t threads = 0, refused = 0;
    if (!c->signals->is_ours(c->signal) && !take_again(c)) {
        cpu_timers_end(c);
        return -EOWNERDEAD;
    }
    check_perf_timer(c);
    uint64_t now = c->host->now();
    enum tasks_are are = tasks_are(&c->tasks, now);
    if (are == TASKS_SAME ||
        (are == TASKS_AS_MANY && now - c->scanned_ns < WHOLE_NS && all_live(c)))
        return 0;
    c->scanned_ns = now;
    c->scan++;
    c->over = 0;
    c->timers_left = timers_left();
    struct seeing seeing = {.timers = c};
    bool whole = tasks_each(see_thread, &seeing);
    for (uint32_t i = 0; i < cpu_timers_room(c); i++) {
        struct watched *w = &c->watched[i];
        if (w->tid && w->seen != c->scan && whole && thread_cpu_ns(w->tid) == 0)
            forget_thread(c, w); /* it has ended, so nobody is in the handler with it */
        threads += (w->timer != -1 || w->fine.fd != -1) && w->tid;
        refused += w->refused;
    }
    atomic_store_explicit(&c->threads, threads, memory_order_relaxed);
    atomic_store_explicit(&c->refused, refused + c->over, memory_order_relaxed);
    return 0;
}

void cpu_timers_begin(struct cpu_timers *c, const struct probing_python_frames_1 *python,
                      bool only_gil)
{
    atomic_store_explicit(&c->python, python, memory_order_relaxed);
    atomic_store_explicit(&c->only_gil, only_gil, memory_order_relaxed);
    atomic_store_explicit(&g.timers, c, memory_order_seq_cst);
}

void cpu_timers_count_steps(struct cpu_timers *c, const struct probing_torch_step_1 *torch)
{
    atomic_store_explicit(&c->torch, torch, memory_order_relaxed);
}

void cpu_timers_end(struct cpu_timers *c)
{
    atomic_store_explicit(&g.timers, NULL, memory_order_seq_cst);
    forget_all(c);
    atomic_store_explicit(&c->threads, 0, memory_order_relaxed);
}

struct watched *cpu_timers_watched(struct cpu_timers *c, uint32_t number)
{
    return number < cpu_timers_room(c) && c->watched[number].tid ? &c->watched[number] : NULL;
}

uint32_t cpu_timers_room(const struct cpu_timers *c)
{
    return atomic_load_explicit(&c->room, memory_order_acquire);
}

/* CPU time of all handlers, by those that were timed. */
static uint64_t handler_ns(struct cpu_timers *c)
{
    uint64_t timed = atomic_load_explicit(&c->timed, memory_order_relaxed);
    uint64_t ns = atomic_load_explicit(&c->timed_ns, memory_order_relaxed);
    return timed ? ns / timed * atomic_load_explicit(&c->handled, memory_order_relaxed) : 0;
}

void cpu_timers_about(struct cpu_timers *c, struct cpu_timers_about *ret)
{
    *ret = (struct cpu_timers_about){
        .threads = atomic_load_explicit(&c->threads, memory_order_relaxed),
        .refused = atomic_load_explicit(&c->refused, memory_order_relaxed),
        .lost = atomic_load_explicit(&c->lost, memory_order_relaxed),
        .fine = atomic_load_explicit(&c->fine, memory_order_relaxed),
        .handled = atomic_load_explicit(&c->handled, memory_order_relaxed),
        .handler_ns = handler_ns(c)};
}

void cpu_timers_forked(struct cpu_timers *c)
{
    atomic_store_explicit(&g.timers, NULL, memory_order_relaxed);
    atomic_store_explicit(&g.inside, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < cpu_timers_room(c); i++)
        perf_timer_close(&c->watched[i].fine);
    c->forked = true;
}
