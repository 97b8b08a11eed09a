/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/allocation_sampler.c - the thread that names the samples' stacks and writes
 * the rows.
 *
 * One thread of the plugin's own, with all signals blocked, and workers that ask what is alive: one
 * lock between them, which no thread of the program ever waits for.
 *
 * In one turn those that have ended are taken first, then the samples: so each has its row before
 * its end has one, and no entry is given back before its stack is named.
 */
#include "allocation_sampler.h"

#include <errno.h>
#include <probing/ext/draft/stack.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "address_room.h"
#include "comm_names.h"
#include "estimate.h"
#include "lib/hash.h"
#include "lib/number.h"
#include "lib/own_thread.h"
#include "lib/proc/patience.h"
#include "lib/proc/thread_clock.h"
#include "live_snapshot.h"
#include "origin.h"
#include "peak.h"
#include "probing_sdk.h"
#include "sample_density.h"
#include "sampling.h"
#include "sampling/mixed_stack.h"
#include "tables.h"
#include "unsampled.h"

#define TURN_NS (100 * PROBING_NS_PER_MS)    /* between turns while there are samples */
#define IDLE_NS (500 * PROBING_NS_PER_MS)    /* while there are none */
#define MODULES_NS (500 * PROBING_NS_PER_MS) /* between looks for new modules */
#define STOP_NS (2 * PROBING_NS_PER_S)       /* in which the thread does nothing */
#define STACK_BYTES ((size_t)256 << 10)
#define ASK_NS (2 * PROBING_NS_PER_S) /* who asks what is alive waits so long for a turn */

struct sampler {
    const struct probing_host *host;
    struct stacks *stacks;
    struct sample_tables tables;
    struct sample_pool *slots;
    struct live_table *live;
    struct code *code;
    const struct probing_python_frames_1 *python;
    pthread_t thread;
    pthread_mutex_t lock;
    bool running, joined;          /* lock */
    struct origins *origins;       /* lock */
    struct peak *peak;             /* lock */
    uint64_t next_snapshot, marks; /* lock */
    uint64_t turned_ns;            /* lock: what happened until then is known */
    uint64_t snapshot_ns, changed; /* lock: of the last periodic one; changes since */
    struct density density;
    _Atomic uint64_t snapshot_every, turns, live_bytes;
    _Atomic bool stop, ended, forked;
    _Atomic int32_t tid;
    uint64_t modules_ns;
    struct sampling_counts before; /* [control]: of earlier starts */
    struct comm_names names;
    struct merge_native native;
    uint32_t frames[MERGE_FRAMES];
};

/* ---- one sample ---- */

/* Frames of ours lie below the one that the program called. */
static void drop_own(struct merge_native *native, uint64_t frame)
{
    uint32_t own = 0;
    while (own < native->n && native->sps[own] <= frame)
        own++;
    native->n -= own;
    memmove(native->ips, native->ips + own, native->n * sizeof(native->ips[0]));
    memmove(native->sps, native->sps + own, native->n * sizeof(native->sps[0]));
    if (own && native->n)
        native->ips[0]--; /* a return address, where merge_stacks() expects none */
}

static uint32_t origin_of(struct sampler *s, const struct sample_slot *x, uint64_t now)
{
    const struct stack_copy copy = {x->stack, x->stack_from, x->stack_bytes};
    enum unwind_end end;
    s->native.n = unwind_stack(s->code, &x->registers, &copy, s->native.ips, s->native.sps,
                               MERGE_NATIVE, &end);
    drop_own(&s->native, x->user[OF_FRAME]);
    uint32_t n = merge_stacks(s->stacks, &x->look, &s->native, end, s->frames);
    int64_t stack = stacks_number(s->stacks, s->frames, n, now);
    return origin_number(s->origins, s->stacks, s->python, stack, s->frames, n);
}

static struct sample_row row_of(const struct sampler *s, const struct live_seen *e, uint32_t origin)
{
    struct sample_row row = {.ts = e->ts,
                             .id = e->id,
                             .size = e->size,
                             .tid = e->tid,
                             .count = estimate_weight(e->size, e->mean),
                             .from = *origin_at(s->origins, origin)};
    row.from.domain = e->domain;
    return row;
}

static void write_sample(struct sampler *s, uint32_t entry, uint32_t origin, uint64_t thread_name)
{
    struct live_seen e;
    if (!live_read(s->live, entry, &e))
        return;
    struct sample_row row = row_of(s, &e, origin);
    sample_tables_sample(&s->tables, &row, thread_name, e.step);
    peak_add(s->peak, e.ts, (double)e.size * row.count);
    s->changed++;
}

static void write_free(struct sampler *s, uint32_t entry)
{
    struct live_seen e;
    if (!live_read(s->live, entry, &e))
        return;
    struct sample_row row = row_of(s, &e, e.origin);
    row.ts = e.ended;
    row.tid = e.ended_by;
    sample_tables_free(&s->tables, &row, e.ended > e.ts ? e.ended - e.ts : 0);
    s->changed++;
}

/* ---- a turn ---- */

static void take_samples(struct sampler *s)
{
    uint64_t now = s->host->now();
    for (struct sample_slot *x; (x = sample_slot_next(s->slots)) != NULL;) {
        uint32_t entry = (uint32_t)x->user[OF_ENTRY], origin = origin_of(s, x, now);
        atomic_store_explicit(&live_at(s->live, entry)->origin, origin, memory_order_relaxed);
        write_sample(s, entry, origin, comm_names_of(&s->names, s->host, s->python, x, now));
        sample_slot_release(s->slots, x);
    }
    for (uint32_t next, i = live_told(s->live); i; i = next) {
        next = atomic_load_explicit(&live_at(s->live, i)->next_bare, memory_order_relaxed);
        write_sample(s, i, 0, PROBING_NULL_ID);
    }
}

static uint32_t next_ended(struct sampler *s, uint32_t entry)
{
    return atomic_load_explicit(&live_at(s->live, entry)->next, memory_order_relaxed);
}

static void store_snapshot(struct sampler *s, const struct snapshot *x, enum snapshot_kind kind,
                           const char *name)
{
    const struct snapshot_about about = {.id = s->next_snapshot++,
                                         .kind = kind,
                                         .name = probing_intern_text(s->host, name),
                                         .widest = sampling_widest_since(),
                                         .unsampled = unsampled_since(true)};
    snapshot_store(x, &s->tables, &about);
    for (uint32_t i = 0; i < x->n && i < SNAPSHOT_STACKS; i++)
        stacks_renew(s->stacks, x->rows[i].from.stack, s->host->now());
}

static void store_peak(struct sampler *s, uint64_t now, bool at_once)
{
    const struct snapshot *x = peak_due(s->peak, now, at_once);
    if (x)
        store_snapshot(s, x, SNAPSHOT_PEAK, NULL);
    x = peak_fall(s->peak, now);
    if (x)
        store_snapshot(s, x, SNAPSHOT_FALL, NULL);
}

static void take_ended(struct sampler *s, uint32_t ended)
{
    struct live_seen e;
    for (uint32_t i = ended; i; i = next_ended(s, i))
        if (live_read(s->live, i, &e))
            peak_add(s->peak, e.ended, -(double)e.size * estimate_weight(e.size, e.mean));
    /* while they are there still: what was alive before they ended can be told */
    peak_look(s->peak, s->live, s->origins, s->turned_ns);
    /* a process that ends may not get further: what it had comes before the word that it went */
    store_peak(s, s->turned_ns, /* at_once= */ false);
    for (uint32_t next, i = ended; i; i = next) {
        next = next_ended(s, i);
        write_free(s, i);
        live_release(s->live, i);
    }
}

/* A snapshot that is shown or stored is never above the peak. */
static int snapshot_now(struct sampler *s, struct snapshot *ret)
{
    struct snapshot x;
    int rc = snapshot_take(s->live, s->origins, s->turned_ns, &x);
    if (rc < 0)
        return rc;
    rc = peak_shown(s->peak, &x, s->turned_ns);
    if (rc < 0)
        snapshot_done(&x);
    else
        *ret = x;
    return rc;
}

static void run_periodic(struct sampler *s, uint64_t now)
{
    uint64_t every = atomic_load_explicit(&s->snapshot_every, memory_order_relaxed);
    struct snapshot x;
    if (!every || now - s->snapshot_ns < every)
        return;
    s->snapshot_ns = now;
    if (!s->changed || snapshot_now(s, &x) < 0)
        return;
    s->changed = 0;
    store_snapshot(s, &x, SNAPSHOT_PERIODIC, NULL);
    snapshot_done(&x);
}

static void run_turn(struct sampler *s)
{
    uint64_t now = s->host->now();
    if (now - s->modules_ns > MODULES_NS) {
        s->modules_ns = now;
        sampling_count_steps(s->host->extension(s->host, PROBING_TORCH_STEP_1));
        if (code_changed(s->code))
            stacks_read_modules(s->stacks);
    }
    density_adapt(&s->density, now);
    (void)pthread_mutex_lock(&s->lock);
    s->turned_ns = s->host->now();
    uint32_t ended = live_ended(s->live);
    take_samples(s);
    take_ended(s, ended);
    run_periodic(s, now);
    atomic_store_explicit(&s->live_bytes, (uint64_t)peak_now(s->peak), memory_order_relaxed);
    (void)pthread_mutex_unlock(&s->lock);
    (void)atomic_fetch_add_explicit(&s->turns, 1, memory_order_release);
}

static void *sampler_thread(void *arg)
{
    struct sampler *s = arg;
    (void)prctl(PR_SET_NAME, "probing/memory");
    atomic_store_explicit(&s->tid, (int32_t)syscall(SYS_gettid), memory_order_relaxed);
    stacks_read_modules(s->stacks); /* the core's list may be of long ago */
    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        uint64_t before = s->changed;
        run_turn(s);
        sample_slot_wait(s->slots, s->changed != before ? TURN_NS : IDLE_NS);
    }
    atomic_store_explicit(&s->ended, true, memory_order_release);
    return NULL;
}

/* ---- what is asked ---- */

/* Wait until all that happened before the call is seen: until two turns have ended, or sampling
 * has. */
static void wait_turn(struct sampler *s)
{
    uint64_t begun = s->host->now(), turns = atomic_load_explicit(&s->turns, memory_order_acquire);
    while (s->host->now() - begun < ASK_NS &&
           !atomic_load_explicit(&s->ended, memory_order_acquire) &&
           atomic_load_explicit(&s->turns, memory_order_acquire) < turns + 2) {
        sample_slot_notify(s->slots);
        (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

static int take_now(struct sampler *s, struct snapshot *ret)
{
    int rc = -ENODEV;
    (void)pthread_mutex_lock(&s->lock);
    bool running = s->running && !atomic_load_explicit(&s->forked, memory_order_relaxed);
    (void)pthread_mutex_unlock(&s->lock);
    if (running)
        wait_turn(s);
    (void)pthread_mutex_lock(&s->lock);
    if (running && s->running)
        rc = snapshot_now(s, ret);
    if (rc == 0) /* of the dead, too, the peak is not below what somebody has seen */
        store_peak(s, s->turned_ns, /* at_once= */ true);
    (void)pthread_mutex_unlock(&s->lock);
    return rc == -ENOMEM ? s->host->fail(s->host, rc, "no memory for what is alive") : rc;
}

int sampler_live(struct sampler *s, struct probing_rows *out)
{
    struct snapshot x;
    int rc = take_now(s, &x);
    if (rc < 0)
        return rc == -ENODEV ? 0 : rc; /* stopped: nothing is known to be alive */
    for (uint32_t i = 0; i < x.n && rc == 0; i++)
        rc = sample_tables_live(s->host, out, x.at, &x.rows[i], x.texts[i]);
    snapshot_done(&x);
    return probing_scanned(rc);
}

int sampler_peak(struct sampler *s, struct probing_rows *out)
{
    struct snapshot now, x = {.n = 0};
    int rc = take_now(s, &now);
    if (rc < 0)
        return rc == -ENODEV ? 0 : rc;
    snapshot_done(&now); /* it is the peak, if it is more than the one before */
    (void)pthread_mutex_lock(&s->lock);
    rc = s->peak ? snapshot_copy(peak_found(s->peak), &x) : 0;
    (void)pthread_mutex_unlock(&s->lock);
    if (rc < 0)
        return s->host->fail(s->host, rc, "no memory for what was alive");
    const struct snapshot_about about = {.ts = x.at, .total = x.bytes};
    for (uint32_t i = 0; i < x.n && rc == 0; i++)
        rc = sample_tables_peak(s->host, out, &about, &x.rows[i], x.texts[i]);
    snapshot_done(&x);
    return probing_scanned(rc);
}

static int check_name(struct sampler *s, const char *name)
{
    size_t n = strlen(name);
    bool fine = n > 0 && n < 64;
    for (size_t i = 0; i < n && fine; i++)
        fine = (uint8_t)name[i] > ' ' && name[i] != 0x7f;
    return fine
               ? 0
               : s->host->fail(s->host, -EINVAL, "a mark's name has 1 to 63 bytes, without blanks");
}

int sampler_mark(struct sampler *s, int argc, const char *const *argv, struct probing_reply *out)
{
    char name[64];
    struct snapshot x;
    if (argc > 2)
        return s->host->fail(s->host, -EINVAL, "usage: mark [NAME]");
    int rc = argc == 2 ? check_name(s, argv[1]) : 0;
    if (rc == 0)
        rc = take_now(s, &x);
    if (rc < 0)
        return rc == -ENODEV ? s->host->fail(s->host, rc, "nothing is sampled: plugin load memory")
                             : rc;
    (void)pthread_mutex_lock(&s->lock);
    s->marks++;
    (void)snprintf(name, sizeof(name), "%llu", (unsigned long long)s->marks);
    if (s->running) /* its tables are there */
        store_snapshot(s, &x, SNAPSHOT_MARK, argc == 2 ? argv[1] : name);
    (void)pthread_mutex_unlock(&s->lock);
    rc = probing_replyf(s->host, out, "mark %s: %.1f MiB alive, of %u stacks\n",
                        argc == 2 ? argv[1] : name, x.bytes / 1048576, x.n);
    snapshot_done(&x);
    return rc;
}

void sampler_snapshot(struct sampler *s, const char *name)
{
    struct snapshot x;
    if (take_now(s, &x) < 0)
        return;
    (void)pthread_mutex_lock(&s->lock);
    if (s->running)
        store_snapshot(s, &x, SNAPSHOT_MARK, name);
    (void)pthread_mutex_unlock(&s->lock);
    snapshot_done(&x);
}

/* ---- begin and end ---- */

static void drop_sampler(struct sampler *s)
{
    sample_pool_free(s->slots);
    code_free(s->code);
    s->slots = NULL;
    s->code = NULL;
    stacks_name_with(s->stacks, NULL, NULL, NULL);
}

static int make_tables(struct sampler *s)
{
    uint32_t scratch = s->python ? s->python->scratch_bytes : 0;
    uint64_t room = address_room();
    struct table_sizes sizes;
    s->live = sampling_table();
    if (!fit_tables(room, scratch, s->live != NULL, &sizes))
        return probing_failf(s->host, -ENOMEM,
                             "the process may map only %llu MB more (ulimit -v, -d): the tables of "
                             "samples have at least %llu MB, and the program keeps three times as "
                             "much; raise the limit (prlimit --pid %d --as)",
                             (unsigned long long)(room >> 20),
                             (unsigned long long)((table_bytes(&sizes, scratch) >> 20) + 1),
                             (int)getpid());
    int rc = sample_pool_new(sizes.slots, scratch, &s->slots);
    if (rc == 0 && !s->live)
        rc = live_table_new(sizes.entries, &s->live);
    return rc < 0 ? probing_failf(s->host, rc, "no memory for the tables of samples") : 0;
}

static int fail_thread(struct sampler *s, int rc)
{
    return probing_failf(s->host, rc,
                         "no thread can be made to name samples (%s): the limits are ulimit -u, "
                         "and pids.max of the cgroup",
                         strerror(-rc));
}

int sampler_start(struct sampler *s)
{
    const struct probing_host *h = s->host;
    s->python = h->extension(h, PROBING_PYTHON_FRAMES_1);
    atomic_store_explicit(&s->stop, false, memory_order_relaxed);
    atomic_store_explicit(&s->ended, false, memory_order_relaxed);
    atomic_store_explicit(&s->tid, 0, memory_order_relaxed);
    s->snapshot_ns = h->now();
    s->changed = 0;
    int rc = make_tables(s);
    if (rc == 0 && (code_open(&s->code) < 0 || peak_new(&s->peak) < 0))
        rc = h->fail(h, -ENOMEM, "no memory to sample allocations with");
    stacks_name_with(s->stacks, h->extension(h, PROBING_STACK_1), s->python, s->code);
    if (rc == 0) {
        sampling_counts(&s->before);
        density_begin(&s->density, &s->before, h->now());
        sampling_begin(&(struct sampling){
            .host = h,
            .live = s->live,
            .slots = s->slots,
            .python = s->python,
            .mean = atomic_load_explicit(&s->density.asked, memory_order_relaxed)});
        s->running = true;
        s->joined = false;
        rc = own_thread_start(&s->thread, STACK_BYTES, sampler_thread, s);
        rc = rc < 0 ? fail_thread(s, rc) : 0;
    }
    if (rc < 0) {
        s->running = false;
        if (s->peak)
            (void)sampling_end();
        peak_free(s->peak);
        s->peak = NULL;
        drop_sampler(s);
    }
    return rc;
}

static bool wait_ended(struct sampler *s, struct patience *p)
{
    while (!atomic_load_explicit(&s->ended, memory_order_acquire)) {
        sample_slot_notify(s->slots);
        if (!patience_rest(p, atomic_load_explicit(&s->tid, memory_order_relaxed)))
            return false;
    }
    return true;
}

/* Keep what is known at the end: a process that was stopped in order can be asked, too. */
static void last_turn(struct sampler *s)
{
    struct snapshot x;
    uint64_t now = s->host->now();
    run_turn(s);
    (void)pthread_mutex_lock(&s->lock);
    if (s->changed && snapshot_now(s, &x) == 0) {
        store_snapshot(s, &x, SNAPSHOT_PERIODIC, NULL);
        snapshot_done(&x);
    }
    store_peak(s, now, /* at_once= */ true);
    s->running = false;
    (void)pthread_mutex_unlock(&s->lock);
}

int sampler_stop(struct sampler *s)
{
    if (!s->running || atomic_load_explicit(&s->forked, memory_order_relaxed))
        return 0; /* of a forked child: the thread is the parent's */
    atomic_store_explicit(&s->stop, true, memory_order_release);
    struct patience p = {.limit_ns = STOP_NS};
    if (!wait_ended(s, &p))
        return probing_failf(s->host, -EBUSY, "memory's thread %s", patience_end(&p));
    if (!s->joined) {
        (void)pthread_join(s->thread, NULL);
        s->joined = true;
        last_turn(s);
    }
    int rc = sampling_end();
    if (rc < 0)
        return s->host->fail(s->host, rc,
                             "a thread that is taking a sample is held by a debugger or gets no "
                             "processor; try again");
    peak_free(s->peak);
    s->peak = NULL;
    drop_sampler(s);
    return 0;
}

static int set_max_overhead(struct sampler *s, const char *value)
{
    double percent;
    if (number_f64(value, strlen(value), &percent) < 0 || !(percent >= 0 && percent <= 100))
        return s->host->fail(s->host, -ERANGE, "memory.max_overhead_pct is 0 to 100");
    atomic_store_explicit(&s->density.max_overhead, percent / 100, memory_order_relaxed);
    return 0;
}

int sampler_configure(struct sampler *s, const char *name, const char *value)
{
    if (strcmp(name, "max_overhead_pct") == 0)
        return set_max_overhead(s, value);
    uint64_t number = 0;
    bool mean = strcmp(name, "sample_bytes") == 0;
    if (!mean && strcmp(name, "snapshot_interval") != 0)
        return -ENOENT;
    (void)probing_parse_u64(value, UINT64_MAX, &number); /* checked by the core */
    if (!mean)
        atomic_store_explicit(&s->snapshot_every, number, memory_order_relaxed);
    else
        density_ask(&s->density, number);
    return 0;
}

void sampler_forked(struct sampler *s)
{
    atomic_store_explicit(&s->forked, true, memory_order_relaxed);
    sampling_forked();
}

void sampler_about(struct sampler *s, struct sampler_about *ret)
{
    struct sampling_counts counts;
    sampling_counts(&counts);
    *ret = (struct sampler_about){
        .samples = counts.taken - s->before.taken,
        .lost = counts.dropped - s->before.dropped,
        .bare = counts.bare - s->before.bare,
        .live = s->live ? live_count(s->live) : 0,
        .sample_bytes = sampling_mean(),
        .asked_bytes = atomic_load_explicit(&s->density.asked, memory_order_relaxed),
        .most_bytes = sampling_widest(),
        .skipped = counts.inside - s->before.inside,
        .unsampled_bytes = (uint64_t)unsampled_bytes(),
        .unsampled_since_bytes = (uint64_t)unsampled_since(false),
        .live_bytes = atomic_load_explicit(&s->live_bytes, memory_order_relaxed),
        .spent_ns = counts.spent_ns - s->before.spent_ns,
        .own_cpu_ns = thread_cpu_ns(atomic_load_explicit(&s->tid, memory_order_relaxed))};
}

int sampler_new(const struct probing_host *host, const struct sample_scans *scans,
                struct sampler **ret)
{
    struct sampler *s = calloc(1, sizeof(*s));
    if (!s)
        return host->fail(host, -ENOMEM, "no memory");
    s->host = host;
    s->next_snapshot = probing_clock_ns(CLOCK_REALTIME) / 1000;
    (void)pthread_mutex_init(&s->lock, NULL);
    int rc = stacks_new(host, "memory.stacks",
                        "frames of the stacks of memory.samples, by stack_id; a stack that is "
                        "alive for long is there more than once",
                        &s->stacks);
    if (rc == 0)
        rc = sample_tables_new(host, scans, &s->tables);
    if (rc == 0)
        rc = origins_new(&s->origins);
    if (rc < 0) {
        sampler_free(s);
        return rc;
    }
    stacks_keep_numbers(s->stacks);
    *ret = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    origins_free(s->origins);
    stacks_free(s->stacks);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}
