/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/usage.c - looks at the process's memory, as rows and as events.
 *
 * usage_tick() on [worker], never two at once; memory.parts on any other [worker] at the same time.
 * What both use has one lock, which nobody holds while he reads /proc but who asks for whole looks.
 */
#include "usage.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/proc/proc_file.h"
#include "look.h"
#include "parts.h"
#include "probing_sdk.h"

#define CALM_NS (60 * PROBING_NS_PER_S)  /* a row at least so often */
#define CHANGE_PART 100                  /* a change of a hundredth is one, ... */
#define CHANGE_LEAST (UINT64_C(1) << 20) /* bytes: ... but not less than this */
#define MB 1048576.0

enum setting { INTERVAL, LIMIT, HIGH, OOM_NEAR, GROWTH, GROWTH_WITHIN, HEAP_WALK, SETTINGS };

struct usage {
    const struct probing_host *host;
    struct probing_table *rows, *events;
    _Atomic uint64_t settings[SETTINGS];
    /* Of usage_tick() alone. */
    struct looker looker;
    struct alarm alarm;
    uint64_t next_ns, row_ns;
    bool is_close;                         /* to a limit */
    uint64_t row_rss, row_used, row_kills; /* as the last row has them */
    uint64_t row_cgroup_id, boot_id;       /* of intern() */
    pthread_mutex_t mutex;                 /* one whole look at a time */
    struct looker for_askers;              /* lock: mutex */
};

/* parts_scan() is given the plugin, which is plugin.c's: there is one of us in a process. */
static _Atomic(struct usage *) the_usage;

static uint64_t setting_value(struct usage *u, enum setting s)
{
    return atomic_load_explicit(&u->settings[s], memory_order_relaxed);
}

int usage_configure(struct usage *u, const char *name, const char *value)
{
    static const char *const names[SETTINGS] = {
        "interval",     "limit",         "high_pct",          "oom_near_pct",
        "growth_bytes", "growth_within", "mallinfo_max_bytes"};
    uint64_t n;
    for (int i = 0; i < SETTINGS; i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        int rc = probing_parse_u64(value, INT64_MAX, &n); /* the core has made it a number */
        if (rc == 0)
            atomic_store_explicit(&u->settings[i], n, memory_order_relaxed);
        return rc;
    }
    return -ENOENT;
}

/* ---- rows ---- */

static const struct probing_column usage_columns[] = {
    PROBING_I64_COLUMN("rss_bytes", PROBING_BYTES, "resident memory (VmRSS of /proc/self/status)"),
    PROBING_I64_COLUMN("anon_bytes", PROBING_BYTES, "resident anonymous memory (RssAnon)"),
    PROBING_I64_COLUMN("file_bytes", PROBING_BYTES, "resident memory of mapped files (RssFile)"),
    PROBING_I64_COLUMN("shmem_bytes", PROBING_BYTES, "resident shared memory (RssShmem)"),
    PROBING_I64_COLUMN("swap_bytes", PROBING_BYTES, "memory that is swapped out (VmSwap)"),
    PROBING_I64_COLUMN("peak_rss_bytes", PROBING_BYTES, "peak of the resident memory (VmHWM)"),
    PROBING_I64_COLUMN("pss_bytes", PROBING_BYTES,
                       "resident, what is shared by its share (smaps_rollup); asked once a minute "
                       "at most, NULL between"),
    PROBING_I64_COLUMN("probing_bytes", PROBING_BYTES,
                       "of rss_bytes probing's own: its heap, and its files of rows; measured each "
                       "ten seconds"),
    PROBING_I64_COLUMN("program_bytes", PROBING_BYTES,
                       "what the program has allocated and not given back: private and shared "
                       "memory, resident or swapped, without probing_bytes and pages of files"),
    PROBING_I64_COLUMN("limit_bytes", PROBING_BYTES,
                       "the limit of which the largest share is used; NULL: there is none"),
    PROBING_I64_COLUMN("limit_used_bytes", PROBING_BYTES, "what counts against that limit"),
    PROBING_STR_COLUMN("limit_of", "whose it is: cgroup, memory.limit, RLIMIT_AS or machine"),
    PROBING_I64_COLUMN("available_bytes", PROBING_BYTES,
                       "memory available on the machine (MemAvailable)"),
    PROBING_F64_COLUMN("pressure_pct", PROBING_PERCENT,
                       "time in which somebody waited for memory, of the last ten seconds: of the "
                       "cgroup (version 2) or the machine (PSI, some avg10)"),
    PROBING_I64_COLUMN("oom_kills", PROBING_COUNT,
                       "processes of the cgroup that the kernel has killed for want of memory"),
    PROBING_STR_COLUMN("cgroup", "folder of the process's memory cgroup; NULL: none is visible"),
    PROBING_STR_COLUMN("boot_id", "which run of which machine it is")};

static const struct probing_table_desc usage_table = PROBING_TABLE(
    "usage", usage_columns,
    "memory of the process, each memory.interval while it changes, and once a minute");

static const struct probing_column event_columns[] = {
    PROBING_STR_COLUMN("event", "memory.high, memory.growth or memory.oom_near"),
    PROBING_I64_COLUMN("rss_bytes", PROBING_BYTES, "resident memory of the process"),
    PROBING_I64_COLUMN("limit_bytes", PROBING_BYTES, "the limit that is the nearest"),
    PROBING_I64_COLUMN("limit_used_bytes", PROBING_BYTES, "what counts against that limit"),
    PROBING_STR_COLUMN("limit_of", "whose it is, as in memory.usage"),
    PROBING_I64_COLUMN("available_bytes", PROBING_BYTES, "memory available on the machine")};

static const struct probing_table_desc event_table = PROBING_TEXT_TABLE(
    "events", event_columns, "message", "what has happened to the process's memory");

static union probing_cell bytes_cell(uint64_t n)
{
    return n == UINT64_MAX ? probing_null(PROBING_I64) : probing_i64((int64_t)n);
}

static bool has_changed(uint64_t before, uint64_t now)
{
    uint64_t least = before / CHANGE_PART > CHANGE_LEAST ? before / CHANGE_PART : CHANGE_LEAST;
    return now > before ? now - before >= least : before - now >= least;
}

static void append_usage(struct usage *u, const struct memory_look *l)
{
    const struct proc_status *p = &l->process;
    if (u->looker.cgroup.version)
        u->row_cgroup_id = probing_intern_text(u->host, u->looker.cgroup.own.path);
    const union probing_cell cells[] = {
        bytes_cell(p->rss_bytes),
        bytes_cell(p->anon_bytes),
        bytes_cell(p->file_bytes),
        bytes_cell(p->shmem_bytes),
        bytes_cell(p->swap_bytes),
        bytes_cell(p->peak_rss_bytes),
        bytes_cell(l->pss),
        bytes_cell(l->own),
        bytes_cell(look_kept(l)),
        bytes_cell(l->limit),
        bytes_cell(l->used),
        probing_id(probing_intern_text(u->host, l->limit_of)),
        bytes_cell(l->machine_available),
        isnan(l->cgroup.some_avg10) ? probing_null(PROBING_F64) : probing_f64(l->cgroup.some_avg10),
        bytes_cell(l->cgroup.oom_kills),
        probing_id(u->looker.cgroup.version ? u->row_cgroup_id : PROBING_NULL_ID),
        probing_id(u->boot_id)};
    (void)u->host->append(u->rows, l->now_ns, cells, PROBING_LENGTH(cells), NULL, 0);
    u->row_ns = l->now_ns;
    u->row_rss = p->rss_bytes;
    u->row_used = l->used;
    u->row_kills = l->cgroup.oom_kills;
}

static bool wants_row(const struct usage *u, const struct memory_look *l, uint32_t events)
{
    return events || u->row_ns == 0 || l->now_ns - u->row_ns >= CALM_NS ||
           has_changed(u->row_rss, l->process.rss_bytes) || has_changed(u->row_used, l->used) ||
           u->row_kills != l->cgroup.oom_kills;
}

/* ---- events ---- */

/* Payload of memory.high/1, memory.growth/1 and memory.oom_near/1. */
struct event_payload {
    uint32_t size, reserved;
    uint64_t rss, limit, used, available; /* bytes; UINT64_MAX: not known */
};

static void append_event(struct usage *u, const struct memory_look *l, const char *event,
                         const char *what)
{
    char topic[64];
    const union probing_cell cells[] = {probing_id(probing_intern_text(u->host, event)),
                                        bytes_cell(l->process.rss_bytes),
                                        bytes_cell(l->limit),
                                        bytes_cell(l->used),
                                        probing_id(probing_intern_text(u->host, l->limit_of)),
                                        bytes_cell(l->machine_available)};
    struct event_payload payload = {.size = sizeof(payload),
                                    .rss = l->process.rss_bytes,
                                    .limit = l->limit,
                                    .used = l->used,
                                    .available = l->machine_available};
    (void)u->host->append(u->events, l->now_ns, cells, PROBING_LENGTH(cells), what,
                          (uint32_t)strlen(what));
    (void)snprintf(topic, sizeof(topic), "%s/1", event);
    (void)u->host->publish(u->host, topic, &payload, sizeof(payload));
    (void)snprintf(topic, sizeof(topic), "%s: ", event);
    char line[320];
    (void)snprintf(line, sizeof(line), "%s%s", topic, what);
    u->host->log(u->host, PROBING_WARN, line);
}

static double used_percent(const struct memory_look *l)
{
    return 100.0 * (double)l->used / (double)l->limit;
}

static void tell_events(struct usage *u, const struct memory_look *l, uint32_t events,
                        uint64_t grown)
{
    char what[256];
    if (events & ALARM_HIGH) {
        (void)snprintf(what, sizeof(what), "%.0f %% of the limit are used: %.0f of %.0f MB (%s)",
                       used_percent(l), (double)l->used / MB, (double)l->limit / MB, l->limit_of);
        append_event(u, l, "memory.high", what);
    }
    if (events & ALARM_OOM_NEAR) {
        (void)snprintf(what, sizeof(what),
                       "%.0f MB are left of the limit of %.0f MB (%s), and it changes by %+.0f "
                       "MB a second",
                       (double)(l->limit > l->used ? l->limit - l->used : 0) / MB,
                       (double)l->limit / MB, l->limit_of, u->alarm.speed / MB);
        append_event(u, l, "memory.oom_near", what);
    }
    if (events & ALARM_GROWTH) {
        (void)snprintf(
            what, sizeof(what),
            "the program keeps %.0f MB more than it did in the last %.0f s; probing's own part "
            "is not counted",
            (double)grown / MB, probing_seconds(setting_value(u, GROWTH_WITHIN)));
        append_event(u, l, "memory.growth", what);
    }
}

uint32_t usage_tick(struct usage *u, uint64_t now)
{
    struct memory_look l;
    uint64_t grown = 0;
    if (now < u->next_ns || look_at_memory(&u->looker, now, setting_value(u, LIMIT), false, &l) < 0)
        return 0;
    const struct alarm_settings s = {.high_pct = (uint32_t)setting_value(u, HIGH),
                                     .near_pct = (uint32_t)setting_value(u, OOM_NEAR),
                                     .growth = setting_value(u, GROWTH),
                                     .growth_within_ns = setting_value(u, GROWTH_WITHIN)};
    const struct alarm_look a = {.now_ns = now,
                                 .kept = look_kept(&l),
                                 .limit = l.limit,
                                 .used = l.used,
                                 .full_avg10 = l.cgroup.full_avg10};
    uint32_t events = alarm_look(&u->alarm, &s, &a, &grown);
    u->is_close = alarm_is_close(&u->alarm, &a);
    /* A tick that is a little early is the one that was meant. */
    u->next_ns = now + (u->is_close ? 0 : setting_value(u, INTERVAL) - USAGE_STEP_NS / 2);
    if (u->host->wanted(u->rows) && wants_row(u, &l, events))
        append_usage(u, &l);
    tell_events(u, &l, events, grown);
    return events;
}

bool usage_is_hasty(struct usage *u)
{
    return u->is_close || setting_value(u, INTERVAL) < PROBING_NS_PER_S;
}

/* ---- as it is now ---- */

static int scan_parts(void *self, struct probing_rows *out)
{
    struct usage *u = atomic_load_explicit(&the_usage, memory_order_acquire);
    struct alloc_stats heap;
    struct memory_look l;
    (void)self;
    if (!u || u->host->emit(out, NULL, 0) < 0)
        return 0;
    (void)pthread_mutex_lock(&u->mutex);
    int rc = look_at_memory(&u->for_askers, u->host->now(), setting_value(u, LIMIT), true, &l);
    struct cgroup g = u->for_askers.cgroup;
    (void)pthread_mutex_unlock(&u->mutex);
    if (rc < 0)
        return probing_failf(u->host, rc, "/proc/self/status cannot be read: %s", strerror(-rc));
    alloc_stats(setting_value(u, HEAP_WALK), &heap);
    return parts_emit(u->host, out, &l, &g, &heap);
}

static const struct probing_column part_columns[] = {
    PROBING_STR_COLUMN("part", "rss, pss, heap_used, probing, limit, ..."),
    PROBING_I64_COLUMN("bytes", PROBING_BYTES, "how much; NULL: not known, the note says why"),
    PROBING_STR_COLUMN("note", "what it is, or why it is not known")};

static const struct probing_table_desc parts_table = PROBING_COMPUTED_TABLE(
    "parts", part_columns, scan_parts,
    "what the memory of the process is made of, measured when asked: parts overlap");

static void json_bytes(char ret[24], uint64_t n)
{
    (void)snprintf(ret, 24, n == ALLOC_UNKNOWN ? "null" : "%" PRIu64, n);
}

/* Its free lists are walked, whatever their size. */
static int run_heap(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct usage *u = atomic_load_explicit(&the_usage, memory_order_acquire);
    struct alloc_stats heap;
    char used[24], held[24];
    (void)self, (void)argv;
    if (argc > 1)
        return u->host->fail(u->host, -EINVAL, "heap takes no arguments");
    alloc_stats(UINT64_MAX, &heap);
    json_bytes(used, heap.used);
    json_bytes(held, heap.held);
    return probing_replyf(u->host, out,
                          "{\"allocator\":\"%s\",\"used_bytes\":%s,\"held_bytes\":%s,"
                          "\"took_ns\":%" PRIu64 "}\n",
                          heap.name, used, held, heap.took_ns);
}

static int run_trim(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct usage *u = atomic_load_explicit(&the_usage, memory_order_acquire);
    struct proc_status before, after;
    (void)self, (void)argv;
    if (argc > 1)
        return u->host->fail(u->host, -EINVAL, "trim takes no arguments");
    uint64_t begin = u->host->now();
    int rc = proc_status_of(0, 0, &before);
    if (rc == 0)
        rc = alloc_trim();
    if (rc == -ENOSYS)
        return u->host->fail(u->host, rc, "this program's allocator cannot be told to trim");
    if (rc == 0)
        rc = proc_status_of(0, 0, &after);
    if (rc < 0)
        return probing_failf(u->host, rc, "cannot trim: %s", strerror(-rc));
    return probing_replyf(u->host, out,
                          "resident: %.1f MB before, %.1f MB after; it took %.1f ms\n",
                          (double)before.rss_bytes / MB, (double)after.rss_bytes / MB,
                          (double)(u->host->now() - begin) / 1e6);
}

static const struct probing_command commands[] = {
    {.size = sizeof(struct probing_command),
     .flags = PROBING_WRITES, /* it keeps the program waiting */
     .name = "heap",
     .usage = "",
     .doc = "ask the allocator what is in use; glibc walks its free lists, and who allocates waits",
     .run = run_heap},
    {.size = sizeof(struct probing_command),
     .flags = PROBING_WRITES,
     .name = "trim",
     .usage = "",
     .doc = "have the allocator give back to the kernel what nobody uses; who allocates waits",
     .run = run_trim}};

/* ---- its life ---- */

static uint64_t read_boot_id(const struct probing_host *host)
{
    char text[64];
    int64_t n = proc_read_path("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    return n > 0 ? probing_intern(host, text, strcspn(text, "\n")) : PROBING_NULL_ID;
}

int usage_new(const struct probing_host *host, struct usage **ret)
{
    struct usage *u = calloc(1, sizeof(*u));
    if (!u)
        return host->fail(host, -ENOMEM, "no memory");
    u->host = host;
    u->looker.core = u->for_askers.core = host->extension(host, PROBING_MEMORY_1);
    (void)pthread_mutex_init(&u->mutex, NULL);
    u->boot_id = read_boot_id(host);
    struct probing_table *parts;
    int rc = host->table(host, &usage_table, &u->rows);
    if (rc == 0)
        rc = host->table(host, &event_table, &u->events);
    if (rc == 0)
        rc = host->table(host, &parts_table, &parts);
    for (size_t i = 0; i < PROBING_LENGTH(commands) && rc == 0; i++)
        rc = host->command(host, &commands[i]);
    if (rc < 0) {
        usage_free(u);
        return rc;
    }
    atomic_store_explicit(&the_usage, u, memory_order_release);
    *ret = u;
    return 0;
}

void usage_free(struct usage *u)
{
    if (!u)
        return;
    atomic_store_explicit(&the_usage, NULL, memory_order_release);
    (void)pthread_mutex_destroy(&u->mutex);
    free(u);
}
