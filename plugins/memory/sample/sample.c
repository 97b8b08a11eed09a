/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/sample.c - a sample is taken, and ends: the uncommon parts of sample.h.
 *
 * On any thread of the program, wherever it allocates: no lock, no allocation, nothing that could
 * call back into an allocator.  While a sample is taken, which is some microseconds, the thread's
 * signals wait: no handler can leave it by longjmp(), and a cancellation comes later.
 *
 * Static because an allocator's caller gives no context.
 */
#include "sample.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "estimate.h"
#include "lib/hash.h"
#include "lib/proc/patience.h"
#include "probing_sdk.h"
#include "registers.h"
#include "sampling.h"
#include "unsampled.h"
#include "usdt.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#define TIMED 8u       /* one sample in so many asks for its own CPU time, which is a call more */
#define TIMED_ENDS 32u /* and one end, which is shorter than that */
#define NAMED_NS PROBING_NS_PER_S /* a thread's name is asked for again after this */
#define LAST_LOOKS 32             /* threads whose last look at Python is kept: 25 KiB */
/* From so many slots in use on the mean doubles with each CROWD more: the reader does not come, and
 * the rest of them lasts for 65,536 times as many bytes as the same number did before. */
#define CROWDED (SAMPLE_SLOTS_MAX / 2)
#define CROWD 16

_Thread_local struct memory_thread memory_thread;
_Atomic uint8_t memory_filter[1u << MEMORY_FILTER_BITS];

static struct {
    _Atomic uint32_t round;  /* of the settings; 0: nothing is sampled */
    _Atomic uint32_t rounds; /* so far */
    _Atomic uint32_t inside;
    _Atomic uint64_t mean, set_mean; /* now; as it was set, before threads raised it */
    _Atomic uint64_t asked;          /* the mean that somebody has set, below which it never is */
    _Atomic uint64_t widest, widest_since;
    _Atomic uint64_t seeds, next_id;
    _Atomic(struct live_table *) live;
    _Atomic(struct sample_pool *) slots;
    _Atomic(const struct probing_python_frames_1 *) python;
    _Atomic(const struct probing_torch_step_1 *) torch;
    uint64_t (*_Atomic now)(void);
    _Atomic int32_t pid;
    _Atomic(_Atomic uint32_t *) home; /* 1 in this process; NULL: not known */
    _Atomic uint32_t begun;           /* how often */
    _Atomic uint64_t takes, ends, taken, means, bare, dropped, skipped, spent_ns;
    /* A thread's last look, kept for the python plugin: the thread's own while `busy`. */
    struct last_look {
        _Atomic bool busy;
        int32_t tid;
        uint64_t comm[2], comm_ns; /* what the kernel calls it, as of then; 0: not asked */
        uint64_t last[PROBING_PYTHON_LAST / 8];
    } looks[LAST_LOOKS];
} g;

static void count_one(_Atomic uint64_t *n) /* [signal] */
{
    (void)atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

/* ---- how many samples have an address of a bucket ---- */

static void filter_up(const void *p) /* [signal] */
{
    _Atomic uint8_t *n = &memory_filter[memory_bucket(p)];
    uint8_t now = atomic_load_explicit(n, memory_order_relaxed);
    while (now < UINT8_MAX &&
           !atomic_compare_exchange_weak_explicit(n, &now, (uint8_t)(now + 1), memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

/* One that is full is not known any more, and stays. */
static void filter_down(const void *p) /* [signal] */
{
    _Atomic uint8_t *n = &memory_filter[memory_bucket(p)];
    uint8_t now = atomic_load_explicit(n, memory_order_relaxed);
    while (now > 0 && now < UINT8_MAX &&
           !atomic_compare_exchange_weak_explicit(n, &now, (uint8_t)(now - 1), memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

/* ---- the way to the next sample ---- */

static uint64_t draw_distance(struct memory_thread *t) /* [signal] */
{
    if (t->chance == 0)
        t->chance = hash_spread((uint64_t)(uintptr_t)t) ^
                    atomic_fetch_add_explicit(&g.seeds, HASH_GOLDEN, memory_order_relaxed);
    t->mean = atomic_load_explicit(&g.mean, memory_order_relaxed);
    return estimate_distance(estimate_random(&t->chance), t->mean);
}

static void go_on(struct memory_thread *t, uint64_t distance) /* [signal] */
{
    t->left = distance < (uint64_t)MEMORY_LOOK_BYTES ? (int64_t)distance : MEMORY_LOOK_BYTES;
    t->rest = distance - (uint64_t)t->left;
    t->set = (uint32_t)t->left;
}

/* The thread has allocated n bytes more, which took `left` below 0: is this one a sample?  It is
 * judged by the distance that was drawn before it, if there is one.  After it, one that was drawn
 * by other settings is drawn anew: what is left of a distance is distributed as a whole one, so
 * nothing is lost. */
static bool is_due(struct memory_thread *t, size_t n, uint32_t round) /* [signal] */
{
    bool drawn = t->round != 0, old = t->round != round;
    uint64_t distance = drawn ? t->rest : draw_distance(t);
    uint64_t passed = drawn ? -(uint64_t)t->left : n;
    bool due = distance < passed;
    t->round = round;
    if (!due)
        go_on(t, drawn && old ? draw_distance(t) : distance - passed);
    return due;
}

/* ---- how far samples are from each other ---- */

static void raise_to(_Atomic uint64_t *to, uint64_t value) /* [signal] */
{
    uint64_t now = atomic_load_explicit(to, memory_order_relaxed);
    while (now < value && !atomic_compare_exchange_weak_explicit(
                              to, &now, value, memory_order_relaxed, memory_order_relaxed))
        ;
}

static void note_mean(uint64_t mean) /* [signal] */
{
    raise_to(&g.widest, mean);
    raise_to(&g.widest_since, mean);
}

static uint32_t next_round(void) /* [signal] */
{
    uint32_t next = 0;
    while (next == 0) /* 4 billion later it comes by */
        next = atomic_fetch_add_explicit(&g.rounds, 1, memory_order_relaxed) + 1;
    return next;
}

/* Threads draw anew; not where sampling has ended. */
static void tell_threads(void) /* [signal] */
{
    uint32_t round = atomic_load_explicit(&g.round, memory_order_relaxed);
    while (round && !atomic_compare_exchange_weak_explicit(
                        &g.round, &round, next_round(), memory_order_seq_cst, memory_order_relaxed))
        ;
}

/* If the reader does not come for long, samples thin out at once rather than go without a stack.
 * Each weighs what its own distance says, so estimates stay right, and their errors grow. */
static void thin_out(uint32_t used) /* [signal] */
{
    if (used <= CROWDED)
        return;
    uint32_t doublings = (used - CROWDED - 1) / CROWD + 1;
    uint64_t set = atomic_load_explicit(&g.set_mean, memory_order_relaxed);
    uint64_t wanted = set < SAMPLING_MEAN_MAX >> doublings ? set << doublings : SAMPLING_MEAN_MAX;
    if (atomic_load_explicit(&g.mean, memory_order_relaxed) >= wanted)
        return;
    raise_to(&g.mean, wanted);
    note_mean(wanted);
    tell_threads();
}

/* ---- a sample ---- */

struct taking {
    struct live_table *live;
    uint64_t ts, address, size, mean;
    int64_t step;
    int32_t tid;
    uint32_t entry, domain;
    const void *frame;
};

static struct last_look *claim_look(int32_t tid) /* [signal] */
{
    struct last_look *l = &g.looks[hash_spread((uint32_t)tid) >> 59];
    if (atomic_exchange_explicit(&l->busy, true, memory_order_acquire))
        return NULL;
    if (l->tid != tid) {
        memset(l->last, 0, sizeof(l->last));
        l->comm_ns = 0;
    }
    l->tid = tid;
    return l;
}
_Static_assert(LAST_LOOKS == 1u << (64 - 59), "claim_look() spreads threads over all");

/* 16 bytes.  look: NULL where it is another thread's now. */
static void name_thread(struct last_look *look, uint64_t ts, uint64_t *ret) /* [signal] */
{
    uint64_t own[2] = {0, 0}, *comm = look ? look->comm : own;
    if (!look || look->comm_ns == 0 || ts - look->comm_ns > NAMED_NS) {
        comm[0] = comm[1] = 0;
        (void)prctl(PR_GET_NAME, comm);
        if (look)
            look->comm_ns = ts;
    }
    memcpy(ret, comm, sizeof(own));
}

/* Stack and thread go to the reader; not inlined: its frame is the innermost of the stack. */
__attribute__((noinline)) static void send_stack(const struct taking *s) /* [signal] */
{
    struct sample_pool *slots = atomic_load_explicit(&g.slots, memory_order_acquire);
    struct sample_slot *x = sample_slot_take(slots);
    thin_out(sample_slots_used(slots, x));
    if (!x) {
        count_one(&g.bare);
        live_tell(s->live, s->entry);
        return;
    }
    struct last_look *look = claim_look(s->tid);
    x->ts = s->ts;
    x->tid = s->tid;
    x->step = s->step;
    x->user[OF_ENTRY] = s->entry;
    x->user[OF_FRAME] = (uint64_t)(uintptr_t)s->frame;
    name_thread(look, s->ts, &x->user[OF_COMM]);
    registers_here(&x->registers);
    sample_slot_fill(slots, x, atomic_load_explicit(&g.python, memory_order_relaxed),
                     look ? look->last : NULL);
    if (look)
        atomic_store_explicit(&look->busy, false, memory_order_release);
    sample_slot_submit(slots, x);
}

/* ---- for tools outside ---- */

/* As OpenTelemetry's eBPF profiler expects them (its design document 3, memory profiling): blocks
 * of allocators that are samples, with the bytes that each stands for, and their frees.  Mappings
 * are to have probes of their own, and device memory is another tool's. */
static bool is_heap(uint32_t domain) /* [signal] */
{
    return domain == MEMORY_MALLOC || domain == MEMORY_PYTHON;
}

__attribute__((noinline)) static void tell_allocated(const struct taking *s) /* [signal] */
{
    double bytes = (double)s->size * estimate_weight(s->size, s->mean);
    if (is_heap(s->domain))
        USDT_PROBE_3("otel_memory", "alloc", s->address, s->size,
                     bytes < 9e18 ? (uint64_t)(bytes + 0.5) : INT64_MAX);
}

/* The entry has come to its end, by this thread. */
__attribute__((noinline)) static void end_of(struct live_table *live, uint32_t entry, uint64_t now,
                                             int32_t tid) /* [signal] */
{
    const struct live_entry *e = live_at(live, entry);
    if (is_heap(atomic_load_explicit(&e->domain, memory_order_relaxed)))
        USDT_PROBE_1("otel_memory", "free",
                     atomic_load_explicit(&e->address, memory_order_relaxed));
    live_end(live, entry, now, tid);
}

/* ---- a sample is taken ---- */

/* Take the sample at p out of the table and out of the filter. */
static uint32_t take_out(struct live_table *live, const void *p) /* [signal] */
{
    uint32_t taken = live_take(live, (uint64_t)(uintptr_t)p);
    if (taken)
        filter_down(p);
    return taken;
}

/* End the sample that was at this address before: it was freed in a way that is not seen. */
static void end_unseen(const struct taking *s) /* [signal] */
{
    const void *p = (const void *)(uintptr_t)s->address;
    uint32_t before = memory_is_sampled(p) ? take_out(s->live, p) : 0;
    if (before)
        end_of(s->live, before, s->ts, 0);
}

static void take_sample(struct taking *s) /* [signal] */
{
    s->entry = live_new(s->live);
    if (s->entry == 0) {
        count_one(&g.dropped);
        return;
    }
    struct live_entry *e = live_at(s->live, s->entry);
    uint64_t id = atomic_fetch_add_explicit(&g.next_id, 1, memory_order_relaxed);
    atomic_store_explicit(&e->id, id, memory_order_relaxed);
    atomic_store_explicit(&e->size, s->size, memory_order_relaxed);
    atomic_store_explicit(&e->mean, s->mean, memory_order_relaxed);
    atomic_store_explicit(&e->ts, s->ts, memory_order_relaxed);
    atomic_store_explicit(&e->step, s->step, memory_order_relaxed);
    atomic_store_explicit(&e->tid, s->tid, memory_order_relaxed);
    atomic_store_explicit(&e->domain, s->domain, memory_order_relaxed);
    atomic_store_explicit(&e->origin, 0, memory_order_relaxed);
    end_unseen(s);
    if (!live_insert(s->live, s->entry, s->address)) {
        count_one(&g.dropped);
        return;
    }
    filter_up((const void *)(uintptr_t)s->address);
    tell_allocated(s);
    send_stack(s);
    count_one(&g.taken);
    (void)atomic_fetch_add_explicit(&g.means, s->mean, memory_order_relaxed);
}

/* Synchronous ones are not held back: blocked, they would end the process without its handler. */
static uint64_t all_signals(void)
{
    static const int now[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    uint64_t all = UINT64_MAX;
    for (size_t i = 0; i < PROBING_LENGTH(now); i++)
        all &= ~(UINT64_C(1) << (now[i] - 1));
    return all;
}

/* By the system call, as libc's functions leave its own signals, of cancellation, alone. */
static void mask_signals(const uint64_t *set, uint64_t *ret_before) /* [signal] */
{
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, set, ret_before, sizeof(*set));
}

/* false: in another process, one that forked without telling us.  The page is of zeros there. */
static bool is_home(void) /* [signal] */
{
    const _Atomic uint32_t *home = atomic_load_explicit(&g.home, memory_order_relaxed);
    return home
               ? atomic_load_explicit(home, memory_order_relaxed) != 0
               : (int32_t)syscall(SYS_getpid) == atomic_load_explicit(&g.pid, memory_order_relaxed);
}

static int32_t own_tid(struct memory_thread *t) /* [signal] */
{
    uint32_t begun = atomic_load_explicit(&g.begun, memory_order_relaxed);
    if (t->begun != begun) {
        t->tid = (int32_t)syscall(SYS_gettid);
        t->begun = begun;
    }
    return t->tid;
}

static void take_if_on(struct memory_thread *t, struct taking *s) /* [signal] */
{
    const struct probing_torch_step_1 *torch = atomic_load_explicit(&g.torch, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&g.inside, 1, memory_order_seq_cst);
    /* off: since the thread looked */
    if (atomic_load_explicit(&g.round, memory_order_seq_cst) != 0 && is_home()) {
        uint64_t (*now)(void) = atomic_load_explicit(&g.now, memory_order_relaxed);
        s->live = atomic_load_explicit(&g.live, memory_order_relaxed);
        s->ts = now();
        s->tid = own_tid(t);
        s->step = torch ? torch->now() : -1;
        s->step = s->step >= 0 ? s->step : PROBING_NULL_I64;
        take_sample(s);
    }
    (void)atomic_fetch_sub_explicit(&g.inside, 1, memory_order_seq_cst);
}

/* One in so many of them is timed, and stands for as many: a number for end_timed(), 0: not this.
 * It counts the call that asks for the time, too, for what is not seen: caches that are cold. */
static uint64_t begin_timed(_Atomic uint64_t *n, uint32_t each) /* [signal] */
{
    return atomic_fetch_add_explicit(n, 1, memory_order_relaxed) % each == 0
               ? probing_clock_ns(CLOCK_THREAD_CPUTIME_ID)
               : 0;
}

static void end_timed(uint64_t begun, uint32_t each) /* [signal] */
{
    if (begun)
        (void)atomic_fetch_add_explicit(&g.spent_ns,
                                        each * (probing_clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun),
                                        memory_order_relaxed);
}

void memory_sample(void *p, size_t n, enum memory_domain domain, const void *frame)
{
    struct memory_thread *t = &memory_thread;
    uint32_t round = atomic_load_explicit(&g.round, memory_order_acquire);
    if (round == 0) {
        go_on(t, (uint64_t)MEMORY_LOOK_BYTES);
        t->round = 0;
        return;
    }
    if (t->inside) {
        count_one(&g.skipped);
        t->left = (int64_t)((uint64_t)t->left + n); /* as if it had not been */
        return;
    }
    bool drawn = t->round != 0;
    uint64_t passed = t->set - (uint64_t)t->left, mean = t->mean;
    bool due = is_due(t, n, round);
    unsampled_add(drawn ? mean : t->mean, due ? passed - n : passed);
    if (!due)
        return;
    struct taking s = {.address = (uint64_t)(uintptr_t)p,
                       .size = n,
                       .mean = t->mean,
                       .domain = domain,
                       .frame = frame};
    int before = errno;
    uint64_t all = all_signals(), signals, timed = begin_timed(&g.takes, TIMED);
    mask_signals(&all, &signals);
    t->inside++;
    go_on(t, draw_distance(t));
    take_if_on(t, &s);
    t->inside--;
    mask_signals(&signals, NULL);
    end_timed(timed, TIMED);
    errno = before;
}

/* ---- the end of one ---- */

static struct live_table *table_if_on(void) /* [signal] */
{
    return atomic_load_explicit(&g.round, memory_order_acquire)
               ? atomic_load_explicit(&g.live, memory_order_relaxed)
               : NULL;
}

static uint64_t now_ns(void) /* [signal] */
{
    return atomic_load_explicit(&g.now, memory_order_relaxed)();
}

uint32_t memory_moving(void *p)
{
    struct live_table *live = table_if_on();
    return live ? take_out(live, p) : 0;
}

/* The sample is given on even if sampling has ended since: the table is there still, and waits for
 * it. */
void memory_moved(uint32_t moving)
{
    if (!moving)
        return;
    uint64_t timed = begin_timed(&g.ends, TIMED_ENDS);
    end_of(sampling_table(), moving, now_ns(), own_tid(&memory_thread));
    end_timed(timed, TIMED_ENDS);
}

void memory_unmoved(void *p, uint32_t moving)
{
    if (!moving)
        return;
    filter_up(p); /* before somebody may look for it */
    if (!live_put_back(sampling_table(), moving, (uint64_t)(uintptr_t)p, now_ns()))
        filter_down(p);
}

void memory_sample_freed(void *p)
{
    memory_moved(memory_moving(p));
}

/* ---- begin and end ---- */

/* Threads may be in the middle of an end: what they hold they count down and give back by
 * themselves, and what is full in the filter is emptied only where nobody holds anything. */
static void forget_samples(struct live_table *live)
{
    uint64_t address;
    live_next_round(live);
    for (uint32_t i = 1; i < live_room(live); i++)
        if (live_drop(live, i, &address))
            filter_down((const void *)(uintptr_t)address);
    if (!live_give_back(live))
        return;
    for (size_t i = 0; i < PROBING_LENGTH(memory_filter); i++)
        atomic_store_explicit(&memory_filter[i], 0, memory_order_relaxed);
}

struct live_table *sampling_table(void)
{
    return atomic_load_explicit(&g.live, memory_order_relaxed);
}

/* A page that is emptied in forked children by the kernel, Linux 4.14, so that nobody has to ask
 * which process it is. */
static void mark_home(void)
{
    _Atomic uint32_t *home = atomic_load_explicit(&g.home, memory_order_relaxed);
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page =
        home ? home : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return;
    if (!home && madvise(page, size, MADV_WIPEONFORK) != 0) {
        (void)munmap(page, size);
        return;
    }
    atomic_store_explicit((_Atomic uint32_t *)page, 1, memory_order_relaxed);
    atomic_store_explicit(&g.home, page, memory_order_relaxed);
}

void sampling_begin(const struct sampling *with)
{
    uint64_t utc = probing_clock_ns(CLOCK_REALTIME); /* other numbers than of any sample before */
    atomic_store_explicit(&g.seeds, hash_spread(utc ^ with->host->now()), memory_order_relaxed);
    atomic_store_explicit(&g.next_id, utc / 1000, memory_order_relaxed);
    atomic_store_explicit(&g.set_mean, with->mean, memory_order_relaxed);
    atomic_store_explicit(&g.mean, with->mean, memory_order_relaxed);
    atomic_store_explicit(&g.widest, with->mean, memory_order_relaxed);
    atomic_store_explicit(&g.widest_since, with->mean, memory_order_relaxed);
    atomic_store_explicit(&g.live, with->live, memory_order_relaxed);
    atomic_store_explicit(&g.slots, with->slots, memory_order_relaxed);
    atomic_store_explicit(&g.python, with->python, memory_order_relaxed);
    atomic_store_explicit(&g.torch, NULL, memory_order_relaxed);
    atomic_store_explicit(&g.now, with->host->now, memory_order_relaxed);
    atomic_store_explicit(&g.pid, (int32_t)getpid(), memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&g.begun, 1, memory_order_relaxed);
    unsampled_begin();
    unsampled_ask(with->mean);
    mark_home();
    forget_samples(with->live);
    for (size_t i = 0; i < LAST_LOOKS; i++)
        g.looks[i].tid = 0; /* what they hold is of the python plugin that was there then */
    atomic_store_explicit(&g.round, next_round(), memory_order_seq_cst);
}

void sampling_set_mean(uint64_t mean)
{
    atomic_store_explicit(&g.set_mean, mean, memory_order_relaxed);
    if (atomic_exchange_explicit(&g.mean, mean, memory_order_relaxed) == mean)
        return;
    note_mean(mean);
    tell_threads();
}

uint64_t sampling_mean(void)
{
    return atomic_load_explicit(&g.mean, memory_order_relaxed);
}

uint64_t sampling_widest(void)
{
    return atomic_load_explicit(&g.widest, memory_order_relaxed);
}

uint64_t sampling_widest_since(void)
{
    uint64_t widest = atomic_exchange_explicit(&g.widest_since, 0, memory_order_relaxed);
    uint64_t now = sampling_mean();
    note_mean(now); /* and so it is of the next time, too */
    return widest > now ? widest : now;
}

void sampling_count_steps(const struct probing_torch_step_1 *torch)
{
    atomic_store_explicit(&g.torch, torch, memory_order_relaxed);
}

int sampling_end(void)
{
    atomic_store_explicit(&g.round, 0, memory_order_seq_cst);
    struct patience p = {0}; /* nothing there waits, but its threads may get no processor */
    while (atomic_load_explicit(&g.inside, memory_order_seq_cst) != 0)
        if (!patience_rest(&p, /* tid= */ 0))
            return -EBUSY;
    forget_samples(sampling_table());
    return 0;
}

void sampling_forked(void)
{
    atomic_store_explicit(&g.round, 0, memory_order_seq_cst);
    atomic_store_explicit(&g.inside, 0, memory_order_seq_cst); /* of the parent's threads */
}

void sampling_counts(struct sampling_counts *ret)
{
    *ret = (struct sampling_counts){
        .taken = atomic_load_explicit(&g.taken, memory_order_relaxed),
        .means = atomic_load_explicit(&g.means, memory_order_relaxed),
        .bare = atomic_load_explicit(&g.bare, memory_order_relaxed),
        .dropped = atomic_load_explicit(&g.dropped, memory_order_relaxed),
        .inside = atomic_load_explicit(&g.skipped, memory_order_relaxed),
        .spent_ns = atomic_load_explicit(&g.spent_ns, memory_order_relaxed)};
}
