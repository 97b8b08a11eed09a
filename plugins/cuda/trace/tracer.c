/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/tracer.c - what is done with records: those of work wait for those of the
 * calls that asked for it, which may stand in a later buffer.
 *
 * Threads: as tracer.h says.  A session calls on its own thread; only `counts` are read by others.
 *
 * A record waits until the next look at the buffers is over: by then its call's record has come,
 * and the module that it was inside of has most likely ended.
 */
#include "trace/tracer.h"

#include <errno.h>
#include <probing/ext/draft/torch_place.h>
#include <stdatomic.h>

#include "cupti/others.h"
#include "trace/device_time.h"
#include "trace/event_stats.h"
#include "trace/kernel_stats.h"
#include "trace/rows.h"
#include "window/spare_time.h"
#include "window/window_setting.h"

#define WRITE_NS PROBING_NS_PER_S /* between rows of sums */
#define WAITING_MOST 131072u      /* records that wait: 15 MB when it is needed */
#define CONTEXTS 256u
#define FORGET_NS (60 * PROBING_NS_PER_S) /* kernels' names are read again */

struct waiting {
    struct record *all;
    uint32_t n, room, old; /* old: those that were there at the last look */
};

struct budget { /* rows of one table in the second that began at from_ns */
    uint64_t from_ns, used;
};

struct tracer {
    const struct probing_host *host;
    struct session *session;
    struct others others;
    struct rows rows;
    struct launches launches;
    struct kernel_stats stats;
    struct event_stats events;
    struct device_time *devices;
    struct spare_time spare;
    struct waiting waiting;
    uint32_t device_of[CONTEXTS]; /* by CUPTI's number of the context; CUPTI_NONE: not known */
    const struct probing_torch_place_1 *torch; /* it was told to remember; NULL: not there */
    struct budget budgets[CUPTI_MEMORY2 + 1];  /* by kind */
    uint64_t written_ns, forgot_ns, lost;
    int64_t window; /* number of the time in which it traces now, or has last */
    uint64_t window_ns, window_kernels, window_lost; /* when it began; of it */
    bool on, running;                                /* on: cuda.kernels; [control] */
    _Atomic uint64_t rate, call_least_ns;
    struct {
        _Atomic uint64_t kernels, kernel_rows, unlaunched, unplaced;
    } counts;
};

static void count_one(_Atomic uint64_t *n)
{
    atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

/* ---- what is done with one record ---- */

/* May another row of that kind be written?  at_ns: when the thing was. */
static bool is_within_rate(struct tracer *t, uint32_t kind, uint64_t at_ns)
{
    struct budget *b = &t->budgets[kind];
    uint64_t second = at_ns / PROBING_NS_PER_S;
    if (second > b->from_ns || second + 2 < b->from_ns) /* a straggler begins no second anew */
        *b = (struct budget){.from_ns = second};
    return b->used++ < atomic_load_explicit(&t->rate, memory_order_relaxed);
}

static void find_place(const struct tracer *t, const struct record *r, struct place *ret)
{
    struct probing_torch_place at = {.size = sizeof(at)};
    bool call = r->kind == CUPTI_RUNTIME || r->kind == CUPTI_DRIVER;
    ret->launch = launches_find(&t->launches, r->correlation);
    ret->step = PROBING_NULL_I64;
    ret->module = PROBING_NULL_ID;
    uint32_t thread = call ? r->call.thread : ret->launch ? ret->launch->thread : 0;
    uint64_t begin_ns = call ? r->start : ret->launch ? ret->launch->begin_ns : 0;
    if (t->torch && begin_ns && t->torch->at((int32_t)thread, begin_ns, &at) == 0) {
        ret->step = at.step;
        ret->module = at.module;
    }
}

static void add_work(struct tracer *t, const struct record *r, const struct place *p, int kind)
{
    const struct device_work work = {.start_ns = r->start,
                                     .end_ns = r->end,
                                     .launch_ns = p->launch ? p->launch->begin_ns : 0,
                                     .launch_end_ns = p->launch ? p->launch->end_ns : 0,
                                     .device = r->device,
                                     .thread = p->launch ? p->launch->thread : 0,
                                     .step = p->step,
                                     .kind = kind};
    device_time_worked(t->devices, &work);
    spare_worked(&t->spare, r->device, r->start, r->end, work.launch_end_ns,
                 kind == WORK_COLLECTIVE);
}

static void write_stats(struct tracer *t)
{
    kernel_stats_write(&t->stats, t->host, t->rows.tables.stats, t->window);
}

static void add_kernel(struct tracer *t, const struct record *r, const struct place *p)
{
    bool collective;
    uint64_t name = names_kernel(t->rows.names, r->kernel.name, &collective);
    bool row = is_within_rate(t, r->kind, r->start);
    const struct kernel_key key = {
        .step = p->step, .name = name, .module = p->module, .device = r->device};
    struct kernel_sum *sum = kernel_stats_of(&t->stats, &key);
    count_one(&t->counts.kernels);
    t->window_kernels++;
    if (!sum) {
        write_stats(t);
        sum = kernel_stats_of(&t->stats, &key);
    }
    uint64_t took = r->end >= r->start ? r->end - r->start : 0;
    sum->count++;
    sum->total_ns += took;
    sum->min_ns = took < sum->min_ns ? took : sum->min_ns;
    sum->max_ns = took > sum->max_ns ? took : sum->max_ns;
    sum->last_ns = r->end > sum->last_ns ? r->end : sum->last_ns;
    sum->rows += row;
    if (p->launch) {
        sum->launched++;
        sum->launch_ns += p->launch->end_ns - p->launch->begin_ns;
        sum->queued_ns += r->start > p->launch->begin_ns ? r->start - p->launch->begin_ns : 0;
    }
    if (row) {
        count_one(&t->counts.kernel_rows);
        rows_kernel(&t->rows, r, p, name);
    }
    add_work(t, r, p, collective ? WORK_COLLECTIVE : WORK_KERNEL);
}

static void sum_event(struct tracer *t, const struct record *r, const struct place *p, bool row)
{
    const struct event_key key = rows_event_key(&t->rows, r, p);
    struct event_sum *sum = event_stats_of(&t->events, &key);
    if (!sum) {
        event_stats_write(&t->events, t->host, t->rows.tables.event_stats, t->window);
        sum = event_stats_of(&t->events, &key);
    }
    bool memory = r->kind == CUPTI_MEMORY2, wait = r->kind == CUPTI_SYNCHRONIZATION;
    uint64_t took = r->end > r->start ? r->end - r->start : 0;
    sum->count++;
    sum->sizes = !wait;
    sum->bytes += memory ? r->memory.bytes : wait ? 0 : r->copy.bytes;
    sum->total_ns += !memory ? took : p->launch ? p->launch->end_ns - p->launch->begin_ns : 0;
    sum->waited += !memory && !wait && !(r->copy.flags & RECORD_ASYNC);
    sum->rows += row;
    sum->last_ns = r->end > sum->last_ns ? r->end : sum->last_ns;
    sum->last_ns = r->start > sum->last_ns ? r->start : sum->last_ns;
}

/* All but kernels. */
static void add_event(struct tracer *t, const struct record *r, const struct place *p)
{
    bool row = is_within_rate(t, r->kind, r->start);
    if (row)
        rows_add(&t->rows, r, p);
    if (r->kind != CUPTI_RUNTIME && r->kind != CUPTI_DRIVER && r->kind != CUPTI_OVERHEAD)
        sum_event(t, r, p, row);
}

/* The record of a wait tells only CUPTI's number of the context. */
static void put_device(const struct tracer *t, struct record *r)
{
    if (r->device == CUPTI_NONE && r->context < CONTEXTS)
        r->device = t->device_of[r->context];
}

static void settle_record(struct tracer *t, struct record *r)
{
    struct place p;
    find_place(t, r, &p);
    put_device(t, r);
    bool work = r->kind == CUPTI_CONCURRENT_KERNEL || r->kind == CUPTI_MEMCPY ||
                r->kind == CUPTI_MEMCPY2 || r->kind == CUPTI_MEMSET;
    if (work && !p.launch)
        count_one(&t->counts.unlaunched);
    if (r->kind == CUPTI_CONCURRENT_KERNEL)
        add_kernel(t, r, &p);
    else
        add_event(t, r, &p);
    if (work && r->kind != CUPTI_CONCURRENT_KERNEL)
        add_work(t, r, &p, WORK_COPY);
}

/* ---- those that wait ---- */

static int by_start(const void *a, const void *b)
{
    const struct record *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* They come nearly in order, a stream's completely: then each moves a few places at most.  false:
 * these do not, and still have to be sorted. */
static bool sort_nearly_sorted(struct record *all, uint32_t n)
{
    uint64_t moves = 4 * (uint64_t)n; /* beyond, sorting is quicker */
    for (uint32_t i = 1; i < n; i++) {
        uint32_t to = i;
        while (to > 0 && moves > 0 && all[to - 1].start > all[i].start) {
            to--;
            moves--;
        }
        if (to == i)
            continue;
        if (moves == 0)
            return false;
        struct record r = all[i];
        memmove(all + to + 1, all + to, (i - to) * sizeof(all[0]));
        all[to] = r;
    }
    return true;
}

/* The first n of them, in the order in which they began. */
static void settle_first(struct tracer *t, uint32_t n)
{
    struct waiting *w = &t->waiting;
    if (!sort_nearly_sorted(w->all, n))
        qsort(w->all, n, sizeof(w->all[0]), by_start);
    for (uint32_t i = 0; i < n; i++)
        settle_record(t, &w->all[i]);
    memmove(w->all, w->all + n, (w->n - n) * sizeof(w->all[0]));
    w->n -= n;
}

static void wait_for_call(struct tracer *t, const struct record *r)
{
    struct waiting *w = &t->waiting;
    if (w->n == w->room && w->room < WAITING_MOST) {
        uint32_t room = w->room ? 2 * w->room : 1024;
        struct record *more = realloc(w->all, room * sizeof(more[0]));
        if (more) {
            w->all = more;
            w->room = room;
        }
    }
    if (w->n == w->room && w->n > 0) { /* sooner than it should be */
        atomic_fetch_add_explicit(&t->counts.unplaced, w->n - w->old, memory_order_relaxed);
        settle_first(t, w->n);
        w->old = 0;
    }
    if (w->n < w->room)
        w->all[w->n++] = *r;
    else
        count_one(&t->counts.unplaced);
}

/* ---- what a session tells ---- */

static void forget_records(struct tracer *t)
{
    t->waiting.n = t->waiting.old = 0;
    for (uint32_t i = 0; i < CONTEXTS; i++)
        t->device_of[i] = CUPTI_NONE;
    launches_forget(&t->launches);
    names_forget(t->rows.names);
    kernel_stats_forget(&t->stats);
    event_stats_forget(&t->events);
    device_time_forget(t->devices);
    t->lost = 0;
    t->written_ns = t->forgot_ns = t->host->now();
}

/* The torch plugin may have come since, or come anew. */
static void find_torch(struct tracer *t)
{
    const struct probing_torch_place_1 *now = t->host->extension(t->host, PROBING_TORCH_PLACE_1);
    if (now && now != t->torch)
        now->remember(1);
    t->torch = now;
}

static void on_begun(void *arg, uint64_t since_ns)
{
    struct tracer *t = arg;
    forget_records(t);
    t->window++;
    t->window_ns = since_ns;
    spare_begin(&t->spare, since_ns);
    t->window_kernels = t->window_lost = 0;
    t->torch = NULL;
    find_torch(t);
}

static void add_call(struct tracer *t, const struct record *r)
{
    const struct call_name *name =
        names_call(t->rows.names, t->session, r->kind == CUPTI_DRIVER, r->call.id);
    const struct launch launch = {.correlation = r->correlation,
                                  .thread = r->call.thread,
                                  .begin_ns = r->start,
                                  .end_ns = r->end};
    if (!r->start || r->end < r->start)
        return;                   /* it has not returned */
    if (name->class != CALL_ASKS) /* there are many, and what launched must not be forgotten */
        launches_put(&t->launches, &launch);
    if (name->class == CALL_WAITS || name->class == CALL_COPIES) {
        const struct host_wait wait = {.begin_ns = r->start,
                                       .end_ns = r->end,
                                       .thread = r->call.thread,
                                       .copies = name->class == CALL_COPIES};
        device_time_waited(t->devices, &wait);
    }
    if (r->end - r->start >= atomic_load_explicit(&t->call_least_ns, memory_order_relaxed))
        wait_for_call(t, r);
}

static void take_record(struct tracer *t, const struct record *r)
{
    if (r->kind == CUPTI_RUNTIME || r->kind == CUPTI_DRIVER)
        add_call(t, r);
    else if (r->kind == CUPTI_CONTEXT && r->context < CONTEXTS)
        t->device_of[r->context] = r->device;
    else if (r->start) /* else it has not happened: its buffer was forced out of CUPTI */
        wait_for_call(t, r);
}

static void on_records(void *arg, const struct record *all, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        take_record(arg, &all[i]);
}

static void write_sums(struct tracer *t)
{
    write_stats(t);
    event_stats_write(&t->events, t->host, t->rows.tables.event_stats, t->window);
    device_time_write(t->devices, t->host, t->rows.tables.busy, t->lost, t->window);
    t->lost = 0;
}

static void on_looked(void *arg, uint64_t lost)
{
    struct tracer *t = arg;
    uint64_t now_ns = t->host->now();
    settle_first(t, t->waiting.old);
    t->waiting.old = t->waiting.n;
    t->lost += lost;
    t->window_lost += lost;
    if (now_ns - t->written_ns >= WRITE_NS) {
        t->written_ns = now_ns;
        write_sums(t);
        find_torch(t);
    }
    if (now_ns - t->forgot_ns >= FORGET_NS) {
        t->forgot_ns = now_ns;
        names_forget(t->rows.names);
    }
}

static void write_window(const struct tracer *t)
{
    uint64_t end_ns = t->host->now();
    const union probing_cell row[N_WINDOWS] = {
        [WINDOWS_WINDOW] = {.i = t->window},
        [WINDOWS_END] = {.i = (int64_t)end_ns},
        [WINDOWS_DURATION] = {.i = (int64_t)(end_ns - t->window_ns)},
        [WINDOWS_KERNELS] = {.i = (int64_t)t->window_kernels},
        [WINDOWS_LOST] = {.i = (int64_t)t->window_lost}};
    (void)t->host->append(t->rows.tables.windows, t->window_ns, row, N_WINDOWS, NULL, 0);
}

static void on_ended(void *arg)
{
    struct tracer *t = arg;
    settle_first(t, t->waiting.n);
    t->waiting.old = 0;
    write_sums(t);
    write_window(t);
    if (t->torch)
        t->torch->remember(0);
    t->torch = NULL;
}

static const char *other_profiler(void *arg)
{
    struct tracer *t = arg;
    return others_look(&t->others);
}

static void on_spare_asked(void *arg, struct window_seen *ret)
{
    struct tracer *t = arg;
    spare_look(&t->spare, t->host->now(), &ret->idle, &ret->late);
}

/* ---- its life ---- */

int tracer_new(const struct probing_host *host, struct tracer **ret)
{
    struct tracer *t = calloc(1, sizeof(*t));
    if (!t)
        return host->fail(host, -ENOMEM, "no memory");
    const struct session_sink sink = {.arg = t,
                                      .begun = on_begun,
                                      .records = on_records,
                                      .looked = on_looked,
                                      .ended = on_ended,
                                      .other = other_profiler,
                                      .spare = on_spare_asked};
    t->host = t->rows.host = host;
    t->on = true;
    int rc = session_new(host, &sink, &t->session);
    if (rc == 0)
        rc = launches_init(&t->launches);
    if (rc == 0)
        rc = kernel_stats_init(&t->stats);
    if (rc == 0)
        rc = device_time_new(&t->devices);
    if (rc == 0)
        rc = names_new(host, &t->rows.names);
    if (rc < 0)
        (void)host->fail(host, rc, "no memory");
    t->rows.session = t->session;
    if (rc == 0)
        rc = tables_new(host, &t->rows.tables);
    if (rc < 0) {
        tracer_free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

void tracer_free(struct tracer *t)
{
    if (!t)
        return;
    session_free(t->session);
    names_free(t->rows.names);
    device_time_free(t->devices);
    kernel_stats_done(&t->stats);
    launches_done(&t->launches);
    free(t->waiting.all);
    free(t);
}

int tracer_configure(struct tracer *t, const char *name, const char *value)
{
    uint64_t number = 0;
    (void)probing_parse_u64(value, INT64_MAX, &number); /* checked by the core */
    if (strcmp(name, "max_rows_per_second") == 0) {
        atomic_store_explicit(&t->rate, number, memory_order_relaxed);
        return 0;
    }
    if (strcmp(name, "min_call_duration") == 0) {
        atomic_store_explicit(&t->call_least_ns, number, memory_order_relaxed);
        return 0;
    }
    if (strcmp(name, "window") == 0) {
        struct window_rule rule;
        int read = window_setting(t->host, value, &rule);
        if (read == 0)
            session_window(t->session, &rule);
        return read;
    }
    if (strcmp(name, "kernels") != 0)
        return -ENOENT;
    bool on = strcmp(value, "on") == 0;
    if (!on && strcmp(value, "off") != 0)
        return probing_failf(t->host, -EINVAL, "cuda.kernels is on or off, not '%s'", value);
    int rc = t->running ? session_switch(t->session, on) : 0;
    if (rc == 0)
        t->on = on;
    return rc;
}

int tracer_start(struct tracer *t)
{
    others_find(&t->others, t->host);
    int rc = session_start(t->session, t->on);
    t->running = rc == 0;
    return rc;
}

void tracer_stop(struct tracer *t)
{
    if (!session_stop(t->session))
        t->session = NULL; /* it is its thread's own */
    t->running = false;
}

void tracer_about(struct tracer *t, struct tracer_about *ret)
{
    *ret = (struct tracer_about){.session = {.state = SESSION_OFF}};
    if (t->session) /* else it has stopped, and CUPTI hangs */
        session_about(t->session, &ret->session);
    ret->kernels = atomic_load_explicit(&t->counts.kernels, memory_order_relaxed);
    ret->kernel_rows = atomic_load_explicit(&t->counts.kernel_rows, memory_order_relaxed);
    ret->unlaunched = atomic_load_explicit(&t->counts.unlaunched, memory_order_relaxed);
    ret->unplaced = atomic_load_explicit(&t->counts.unplaced, memory_order_relaxed);
}

void tracer_forked(struct tracer *t)
{
    session_forked(t->session);
}
