/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/plugin.c - the memory plugin: what the process has allocated and where, and how
 * much memory it has.
 *
 * init, configure, start, stop, destroy on [control].  It needs no other plugin; Python frames are
 * in its stacks when the python plugin was loaded before it.
 */
#include <errno.h>
#include <probing/ext/draft/cost.h>
#include <probing/plugin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hook/hook.h"
#include "internal.h"
#include "plugin_files.h"
#include "plugin_malloc.h"
#include "probing_sdk.h"
#include "python/domains.h"
#include "sample/allocation_sampler.h"
#include "sample/tables.h"
#include "usage/usage.h"

struct plugin {
    const struct probing_host *host;
    struct sampler *sampler;
    struct usage *usage;
    struct hooks *hooks; /* NULL: not in */
    pthread_mutex_t mutex;
    pthread_cond_t stops;
    bool is_in;                /* lock: mutex */
    uint64_t since_ns;         /* lock: mutex; hooks are in since then */
    struct hooks_about about;  /* lock: mutex; as memory_tick() last saw it */
    char unseen[320];          /* lock: mutex; of it, and of Python */
    const char *unseen_python; /* of domains_unseen(), for the objects of `about` */
    _Atomic bool domains;      /* memory.python_allocator */
    _Atomic bool no_python;    /* the domains are not in, as there is no Python yet */
};

static const struct probing_config settings[] = {
    {.name = "sample_bytes",
     .value = "512KB",
     .doc = "mean number of bytes that are allocated between two samples",
     .type = PROBING_I64,
     .unit = PROBING_BYTES,
     .flags = PROBING_LIVE,
     .min = 1024,
     .max = INT64_C(1) << 40},
    {.name = "max_overhead_pct",
     .value = "0.5",
     .doc = "CPU time that samples may take, percent of the process's, or of a tenth of a "
            "processor where it takes less: above it, or above 2,000 a second, the distance "
            "between samples grows; 0: no limit",
     .type = PROBING_F64,
     .unit = PROBING_PERCENT,
     .flags = PROBING_LIVE},
    {.name = "snapshot_interval",
     .value = "60s",
     .doc = "time between two periodic snapshots of what is alive; 0: none",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .flags = PROBING_LIVE,
     .min = 0,
     .max = INT64_MAX},
    USAGE_SETTINGS,
    {.name = "python_allocator",
     .value = "off",
     .doc = "on: sample Python's small blocks as well (up to 512 bytes), of which malloc() never "
            "hears",
     .type = PROBING_STR,
     .flags = PROBING_LIVE},
    {.name = NULL}};

/* hooks_about() is for who may also take them out. */
static void keep_about(struct plugin *p) /* [control] [worker] */
{
    struct hooks_about about;
    hooks_about(p->hooks, &about);
    (void)pthread_mutex_lock(&p->mutex);
    bool same = about.objects == p->about.objects;
    (void)pthread_mutex_unlock(&p->mutex);
    const char *python = same ? p->unseen_python : domains_unseen();
    const char *between = about.unseen[0] && python[0] ? "; " : "";
    (void)pthread_mutex_lock(&p->mutex);
    p->about = about;
    p->unseen_python = python;
    (void)snprintf(p->unseen, sizeof(p->unseen), "%s%s%s", about.unseen, between, python);
    (void)pthread_mutex_unlock(&p->mutex);
}

static void set_in(struct plugin *p, bool is_in) /* [control] */
{
    (void)pthread_mutex_lock(&p->mutex);
    p->is_in = is_in;
    p->since_ns = p->host->now();
    (void)pthread_cond_broadcast(&p->stops);
    (void)pthread_mutex_unlock(&p->mutex);
}

static void measure_memory(struct plugin *p, uint64_t now) /* [worker] */
{
    uint32_t events = usage_tick(p->usage, now);
    /* The snapshot is in the rings before a limit kills the process, and rings outlive a
     * SIGKILL. */
    if (events & ALARM_OOM_NEAR)
        sampler_snapshot(p->sampler, "memory.oom_near");
    else if (events & ALARM_HIGH)
        sampler_snapshot(p->sampler, "memory.high");
    else if (events & ALARM_GROWTH)
        sampler_snapshot(p->sampler, "memory.growth");
}

/* false: the plugin stops. */
static bool wait_step(struct plugin *p) /* [worker] */
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (int64_t)USAGE_STEP_NS;
    until.tv_sec += until.tv_nsec / (int64_t)PROBING_NS_PER_S;
    until.tv_nsec %= (int64_t)PROBING_NS_PER_S;
    (void)pthread_mutex_lock(&p->mutex);
    int rc = 0;
    while (p->is_in && rc == 0)
        rc = pthread_cond_timedwait(&p->stops, &p->mutex, &until);
    bool is_in = p->is_in;
    (void)pthread_mutex_unlock(&p->mutex);
    return is_in;
}

/* 0, or what domains_in() gives, with its reason.  Where there is no Python yet, memory_tick()
 * tries again. */
static int put_domains_in(struct plugin *p, const char **ret_why)
{
    int rc = domains_in(ret_why);
    atomic_store_explicit(&p->no_python, rc == -ENODEV, memory_order_relaxed);
    return rc == -ENODEV ? 0 : rc;
}

static void find_python(struct plugin *p) /* [worker] */
{
    const char *why = NULL;
    if (put_domains_in(p, &why) < 0)
        p->host->log(p->host, PROBING_WARN, why);
}

/* Each second.  Where a limit is near, looks come between: a timer of a quarter of a second would
 * wake three threads four times as often for it all the time. */
static void memory_tick(void *self, uint64_t now) /* [worker] */
{
    struct plugin *p = self;
    if (p->hooks) {
        hooks_look(p->hooks);
        keep_about(p);
        if (atomic_load_explicit(&p->no_python, memory_order_relaxed))
            find_python(p);
    }
    measure_memory(p, now);
    for (int i = 1; i < (int)(PROBING_NS_PER_S / USAGE_STEP_NS); i++)
        if (usage_is_hasty(p->usage) && wait_step(p))
            measure_memory(p, p->host->now());
}

static int scan_live(void *self, struct probing_rows *out) /* [worker] */
{
    struct plugin *p = self;
    return sampler_live(p->sampler, out);
}

static int scan_peak(void *self, struct probing_rows *out) /* [worker] */
{
    struct plugin *p = self;
    return sampler_peak(p->sampler, out);
}

/* ---- how it is sampled ---- */

static const struct probing_column sampling_columns[] = {
    PROBING_COLUMN("since", PROBING_TIME, PROBING_NS,
                   "since when allocations are sampled: what was allocated before is in no stack"),
    PROBING_STR_COLUMN("allocator", "the allocator that stands behind malloc()"),
    PROBING_I64_COLUMN("hooked_files", PROBING_COUNT, "loaded files whose calls of it are seen"),
    PROBING_I64_COLUMN("hooked_pointers", PROBING_COUNT,
                       "their pointers to functions that lead to ours for that"),
    PROBING_STR_COLUMN("not_seen", "what cannot be seen here; NULL: nothing is known to be"),
    PROBING_I64_COLUMN("sample_bytes", PROBING_BYTES,
                       "mean number of bytes between two samples now: memory.sample_bytes, or more "
                       "where samples would take more than memory.max_overhead_pct, or be more "
                       "than the plugin's thread can read"),
    PROBING_I64_COLUMN("sample_bytes_setting", PROBING_BYTES, "memory.sample_bytes"),
    PROBING_I64_COLUMN("sample_bytes_max", PROBING_BYTES,
                       "largest sample_bytes since sampling began: what was allocated meanwhile in "
                       "less than some times of it may be in no sample"),
    PROBING_I64_COLUMN("unsampled_bytes", PROBING_BYTES,
                       "what a stack may have allocated that is in no sample, as samples were "
                       "farther apart than memory.sample_bytes: one standard error, which is in "
                       "each bytes_error; 0: they never were"),
    PROBING_I64_COLUMN("unsampled_since_bytes", PROBING_BYTES, "the same since the last snapshot"),
    PROBING_I64_COLUMN("samples", PROBING_COUNT, "samples taken"),
    PROBING_I64_COLUMN("lost", PROBING_COUNT, "samples dropped for want of room"),
    PROBING_I64_COLUMN("without_stack", PROBING_COUNT,
                       "samples without a stack, as the plugin's thread was too slow"),
    PROBING_I64_COLUMN("skipped", PROBING_COUNT,
                       "samples that were due while their thread took one, and were not taken"),
    PROBING_I64_COLUMN("live", PROBING_COUNT, "samples that are not freed yet"),
    PROBING_I64_COLUMN("live_bytes", PROBING_BYTES, "estimate: the bytes that they stand for"),
    PROBING_I64_COLUMN("program_cpu_ns", PROBING_NS,
                       "CPU time that samples have taken in the program's threads, in all"),
    PROBING_I64_COLUMN("probing_cpu_ns", PROBING_NS, "CPU time of the plugin's own thread")};

static int scan_sampling(void *self, struct probing_rows *out) /* [worker] */
{
    struct plugin *p = self;
    struct sampler_about a;
    (void)pthread_mutex_lock(&p->mutex);
    struct hooks_about h = p->about;
    char unseen[sizeof(p->unseen)];
    memcpy(unseen, p->unseen, sizeof(unseen));
    uint64_t since = p->since_ns;
    bool is_in = p->is_in;
    (void)pthread_mutex_unlock(&p->mutex);
    if (!is_in)
        return 0;
    sampler_about(p->sampler, &a);
    const union probing_cell cells[] = {probing_i64((int64_t)since),
                                        probing_str(h.allocator),
                                        probing_i64(h.objects),
                                        probing_i64(h.slots),
                                        probing_str(*unseen ? unseen : NULL),
                                        probing_i64((int64_t)a.sample_bytes),
                                        probing_i64((int64_t)a.asked_bytes),
                                        probing_i64((int64_t)a.most_bytes),
                                        probing_i64((int64_t)a.unsampled_bytes),
                                        probing_i64((int64_t)a.unsampled_since_bytes),
                                        probing_i64((int64_t)a.samples),
                                        probing_i64((int64_t)a.lost),
                                        probing_i64((int64_t)a.bare),
                                        probing_i64((int64_t)a.skipped),
                                        probing_i64((int64_t)a.live),
                                        probing_i64((int64_t)a.live_bytes),
                                        probing_i64((int64_t)a.spent_ns),
                                        probing_i64((int64_t)a.own_cpu_ns)};
    return probing_scanned(p->host->emit(out, cells, PROBING_LENGTH(cells)));
}

static const struct probing_table_desc sampling_table = PROBING_COMPUTED_TABLE(
    "sampling", sampling_columns, scan_sampling,
    "how allocations are sampled, and what that costs: no row while nothing is");

/* Rows of probing.overhead. */
static int cost_of(void *self, uint32_t i, struct probing_cost *ret) /* [worker] */
{
    struct plugin *p = self;
    struct sampler_about a;
    (void)pthread_mutex_lock(&p->mutex);
    uint64_t since = p->since_ns;
    (void)pthread_mutex_unlock(&p->mutex);
    if (i > 0)
        return -ENOENT;
    sampler_about(p->sampler, &a);
    ret->name = "samples of allocations";
    ret->cpu_ns = (int64_t)a.spent_ns;
    ret->since_ns = (int64_t)(p->host->now() - since);
    ret->bytes = PROBING_NULL_I64;
    return 0;
}

static const void *memory_extension(void *self, const char *id)
{
    static const struct probing_cost_1 part = {.size = sizeof(part), .cost = cost_of};
    (void)self;
    return strcmp(id, PROBING_COST_1) == 0 ? &part : NULL;
}

static int run_mark(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct plugin *p = self;
    return sampler_mark(p->sampler, argc, argv, out);
}

static void memory_destroy(void *self)
{
    struct plugin *p = self;
    usage_free(p->usage);
    sampler_free(p->sampler);
    (void)pthread_cond_destroy(&p->stops);
    (void)pthread_mutex_destroy(&p->mutex);
    free(p);
}

static int memory_init(const struct probing_host *host, void **ret_self)
{
    static const struct probing_command mark = {.size = sizeof(mark),
                                                .flags = PROBING_WRITES,
                                                .name = "mark",
                                                .usage = "[NAME]",
                                                .doc = "keep what is alive now in memory.snapshots",
                                                .run = run_mark};
    static const struct sample_scans scans = {scan_live, scan_peak};
    memory_take(host);
    files_take(host);
    struct plugin *p = calloc(1, sizeof(*p));
    if (!p)
        return host->fail(host, -ENOMEM, "no memory");
    p->host = host;
    p->unseen_python = "";
    (void)pthread_mutex_init(&p->mutex, NULL);
    (void)pthread_cond_init(&p->stops, NULL);
    struct probing_table *sampling;
    int rc = sampler_new(host, &scans, &p->sampler);
    if (rc == 0)
        rc = usage_new(host, &p->usage);
    if (rc == 0)
        rc = host->table(host, &sampling_table, &sampling);
    if (rc == 0)
        rc = host->command(host, &mark);
    if (rc == 0)
        rc = host->every(host, PROBING_NS_PER_S, memory_tick);
    if (rc < 0) {
        memory_destroy(p);
        return rc;
    }
    *ret_self = p;
    return 0;
}

static int configure_python(struct plugin *p, const char *value)
{
    bool on = strcmp(value, "on") == 0;
    if (!on && strcmp(value, "off") != 0)
        return probing_failf(p->host, -EINVAL, "memory.python_allocator is on or off, not '%s'",
                             value);
    const char *why = NULL;
    int rc = on && p->hooks ? put_domains_in(p, &why) : 0;
    if (rc < 0)
        return probing_failf(p->host, rc, "memory.python_allocator stays off: %s", why);
    if (!on)
        domains_out();
    atomic_store_explicit(&p->domains, on, memory_order_relaxed);
    if (!on)
        atomic_store_explicit(&p->no_python, false, memory_order_relaxed);
    return 0;
}

static int memory_configure(void *self, const char *name, const char *value)
{
    struct plugin *p = self;
    if (strcmp(name, "python_allocator") == 0)
        return configure_python(p, value);
    int rc = sampler_configure(p->sampler, name, value);
    return rc == -ENOENT ? usage_configure(p->usage, name, value) : rc;
}

static int memory_start(void *self)
{
    struct plugin *p = self;
    int rc = sampler_start(p->sampler);
    if (rc < 0)
        return rc;
    rc = hooks_in(p->host, &p->hooks);
    if (rc == 0 && atomic_load_explicit(&p->domains, memory_order_relaxed)) {
        const char *why = NULL;
        rc = put_domains_in(p, &why);
        if (rc < 0) {
            (void)probing_failf(p->host, rc, "memory.python_allocator cannot be on: %s", why);
            hooks_out(p->hooks);
            p->hooks = NULL;
        }
    }
    if (rc < 0) {
        (void)sampler_stop(p->sampler);
        return rc;
    }
    (void)pthread_mutex_lock(&p->mutex);
    p->about.objects = 0; /* what there is may be other than when it stopped */
    (void)pthread_mutex_unlock(&p->mutex);
    keep_about(p);
    set_in(p, true);
    return 0;
}

static int memory_stop(void *self)
{
    struct plugin *p = self;
    set_in(p, false);
    atomic_store_explicit(&p->no_python, false, memory_order_relaxed);
    domains_out();
    if (p->hooks)
        hooks_out(p->hooks);
    p->hooks = NULL;
    return sampler_stop(p->sampler);
}

static void memory_fork(void *self, int phase)
{
    struct plugin *p = self;
    if (phase == PROBING_FORK_CHILD) {
        hooks_forked();
        domains_forked();
        sampler_forked(p->sampler);
    }
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin),
    .abi = PROBING_ABI,
    .name = "memory",
    .version = PROBING_VERSION,
    .doc = "samples allocations: what grows, and where it was allocated",
    .config = settings,
    .config_size = sizeof(struct probing_config),
    .init = memory_init,
    .configure = memory_configure,
    .start = memory_start,
    .stop = memory_stop,
    .fork = memory_fork,
    .destroy = memory_destroy,
    .extension = memory_extension,
    .declares = &memory_declares,
};
