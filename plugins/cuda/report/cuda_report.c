/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/report/cuda_report.c - `probing cuda`: what the devices of a process do, why they do
 * nothing, and which kernels take the time, on one screen.
 *
 * One thread, of the command.  All of it comes from the plugin's tables, of the living and the
 * dead; what is not measured is not shown.
 */
#include <errno.h>
#include <stdlib.h>

#include "report.h"

#define WINDOW_NS UINT64_C(60000000000)
#define STEPS_NS (10 * WINDOW_NS)
#define SQL_BYTES 1600

/* ---- what is asked ---- */

static void keep_text(char *ret, size_t size, const struct probing_report_cell *c)
{
    (void)snprintf(ret, size, "%s", cell_text(c));
}

static int take_state(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct cuda_report *r = arg;
    if (n >= 2) {
        keep_text(r->state, sizeof(r->state), &c[0]);
        keep_text(r->reason, sizeof(r->reason), &c[1]);
    }
    return 0;
}

static int take_device(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct cuda_report *r = arg;
    if (n < 2 + DEVICE_FIGURES || r->n_devices == CUDA_DEVICES)
        return 0;
    struct device_report *d = &r->devices[r->n_devices++];
    d->device = cell_int(&c[0]);
    d->windows = cell_int(&c[1 + DEVICE_FIGURES]);
    for (uint32_t i = 0; i < DEVICE_FIGURES; i++) {
        d->figure[i] = cell_number(&c[1 + i]);
        r->all.figure[i] += is_number(d->figure[i]) ? d->figure[i] : 0;
    }
    return 0;
}

static double cell_value(const struct probing_report_cell *c)
{
    double value = cell_number(c);
    return is_number(value) ? value : 0;
}

static int take_kernels(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct cuda_report *r = arg;
    if (n < 8)
        return 0;
    r->kernels = cell_value(&c[0]);
    r->kernel_ns = cell_value(&c[1]);
    r->launched = cell_value(&c[2]);
    r->launch_ns = cell_value(&c[3]);
    r->queued_ns = cell_value(&c[4]);
    r->steps = cell_value(&c[5]);
    r->step_kernels = cell_value(&c[6]);
    r->step_kernel_ns = cell_value(&c[7]);
    return 0;
}

static int take_sum(struct kernel_sum *sums, uint32_t most, uint32_t *n_sums,
                    const struct probing_report_cell *c, uint32_t n)
{
    if (n < 5 || *n_sums == most)
        return 0;
    struct kernel_sum *s = &sums[(*n_sums)++];
    keep_text(s->name, sizeof(s->name), &c[0]);
    s->count = cell_value(&c[1]);
    s->total_ns = cell_value(&c[2]);
    keep_text(s->module, sizeof(s->module), &c[3]);
    s->modules = cell_value(&c[4]);
    return 0;
}

static int take_top(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct cuda_report *r = arg;
    return take_sum(r->top, CUDA_KERNELS, &r->n_kernels, c, n);
}

static int take_module(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct cuda_report *r = arg;
    return take_sum(r->modules, CUDA_MODULES, &r->n_modules, c, n);
}

static int take_copy(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct cuda_report *r = arg;
    if (n < 6 || r->n_copies == CUDA_COPIES)
        return 0;
    struct copy_sum *s = &r->copies[r->n_copies++];
    keep_text(s->kind, sizeof(s->kind), &c[0]);
    keep_text(s->from, sizeof(s->from), &c[1]);
    s->count = cell_value(&c[2]);
    s->bytes = cell_value(&c[3]);
    s->total_ns = cell_value(&c[4]);
    s->waited = cell_value(&c[5]);
    return 0;
}

static int take_wait(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct cuda_report *r = arg;
    if (n < 4 || r->n_waits == CUDA_WAITS)
        return 0;
    struct wait_sum *s = &r->waits[r->n_waits++];
    keep_text(s->kind, sizeof(s->kind), &c[0]);
    keep_text(s->module, sizeof(s->module), &c[1]);
    s->count = cell_value(&c[2]);
    s->total_ns = cell_value(&c[3]);
    return 0;
}

static int take_memory(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct cuda_report *r = arg;
    if (n >= 3) {
        r->allocations = cell_value(&c[0]);
        r->allocation_ns = cell_value(&c[1]);
        r->frees = cell_value(&c[2]);
    }
    return 0;
}

static int take_used(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct cuda_report *r = arg;
    if (n >= 2) {
        r->used_bytes = cell_number(&c[0]);
        r->total_bytes = cell_number(&c[1]);
    }
    return 0;
}

/* Each {when} of a select is the condition on the time. */
static int ask_rows(struct cuda_report *r, const char *since, const char *select,
                    int (*row)(void *, const struct probing_report_cell *, uint32_t))
{
    char sql[SQL_BYTES];
    size_t n = 0;
    for (const char *at = select; *at && n + 1 < sizeof(sql);) {
        const char *mark = strstr(at, "{when}");
        size_t plain = mark ? (size_t)(mark - at) : strlen(at);
        n +=
            (size_t)snprintf(sql + n, sizeof(sql) - n, "%.*s%s", (int)plain, at, mark ? since : "");
        at += plain + (mark ? 6 : 0);
    }
    return n < sizeof(sql) ? r->api->ask(r->api, sql, row, r)
                           : report_fail(r->api, -E2BIG, "a select of the report is too long");
}

static void newest_time(const struct cuda_report *r, uint64_t window_ns, char *ret, size_t size)
{
    bool live = r->api->target == PROBING_TARGET_LIVE;
    (void)snprintf(ret, size, "ts > %s - interval '%.3f seconds'",
                   live ? "now()" : "(select max(ts) from cuda.device_time)",
                   (double)window_ns / 1e9);
}

/* Steps between the first and the last that are seen of a window: those two may be cut. */
#define WHOLE "step > first and step < last"
#define EDGES                                                                                \
    "(select window_id as id, min(step) as first, max(step) as last from cuda.kernel_stats " \
    "where {when} group by 1) e"
#define BY(what, other)                                                                        \
    "select k." what ", sum(n), sum(t), arg_max(k." other ", t), count(k." other ") from "     \
    "(select " what ", " other ", sum(count) as n, sum(total_ns) as t from cuda.kernel_stats " \
    "where {when} and " what " is not null group by 1, 2) k group by 1 order by 3 desc limit "

static int read_kernels(struct cuda_report *r, const char *since)
{
    int rc =
        ask_rows(r, since,
                 "select sum(count), sum(total_ns), sum(case when launch_ns is not null then count "
                 "end), sum(launch_ns), sum(queued_ns), count(distinct case when " WHOLE
                 " then step end), sum(case when " WHOLE " then count end), sum(case when " WHOLE
                 " then total_ns end) from cuda.kernel_stats left join " EDGES
                 " on window_id = id where {when}",
                 take_kernels);
    if (rc == 0)
        rc = ask_rows(r, since, BY("name", "module") "10", take_top);
    return rc == 0 ? ask_rows(r, since, BY("module", "name") "5", take_module) : rc;
}

static int read_rest(struct cuda_report *r, const char *since)
{
    int rc = ask_rows(
        r, since,
        "select kind, memory_kind, sum(count), sum(bytes), sum(total_ns), sum(waited) from "
        "cuda.event_stats where {when} and event = 'memcpy' group by 1, 2 order by 5 desc",
        take_copy);
    if (rc == 0)
        rc = ask_rows(
            r, since,
            "select kind, module, sum(count), sum(total_ns) from cuda.event_stats where {when} "
            "and event = 'sync' and kind <> 'stream wait event' group by 1, 2 order by 4 desc",
            take_wait);
    if (rc == 0)
        rc = ask_rows(
            r, since,
            "select sum(count) filter (where kind = 'alloc'), sum(total_ns) filter (where "
            "kind = 'alloc'), sum(count) filter (where kind = 'free') from cuda.event_stats "
            "where {when} and event = 'memory' and memory_kind = 'device'",
            take_memory);
    return rc;
}

static int take_steps(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct cuda_report *r = arg;
    for (uint32_t i = 0; i < 2 && n >= 4; i++) {
        r->steps_took.n[i] = cell_value(&c[2 * i]);
        r->steps_took.seconds[i] = cell_number(&c[2 * i + 1]);
    }
    return 0;
}

/* Read what tracing costs here: the steps of each window that has ended, and those from there to
 * the next.  Windows may be minutes apart. */
static void read_steps(struct cuda_report *r, uint64_t window_ns)
{
    char since[160];
    newest_time(r, window_ns > STEPS_NS ? window_ns : STEPS_NS, since, sizeof(since));
    r->steps_took = (struct step_times){.n = {0}};
    (void)ask_rows(
        r, since,
        "select count(*) filter (where ts <= ended), median(s) filter (where ts <= ended), "
        "count(*) filter (where begun >= ended and ts <= next), median(s) filter (where "
        "begun >= ended and ts <= next) from (select ts, step_duration_sec as s, ts - "
        "step_duration_sec * interval '1 second' as begun from python.torch_step_timing "
        "where {when}) t asof join (select ts as opened, ts + duration_ns / 1e9 * interval "
        "'1 second' as ended, lead(ts) over (order by ts) as next from cuda.windows where "
        "{when}) w on t.begun >= w.opened",
        take_steps);
}

static int read_report(struct cuda_report *r, uint64_t window_ns)
{
    char since[160];
    bool live = r->api->target == PROBING_TARGET_LIVE;
    newest_time(r, window_ns, since, sizeof(since));
    r->used_bytes = r->total_bytes = (double)NAN;
    if (live)
        (void)r->api->ask(r->api, "select state, reason from cuda.tracing", take_state, r);
    int rc =
        ask_rows(r, since,
                 "select device, sum(wall_ns), sum(busy_ns), sum(kernel_ns), sum(collective_ns), "
                 "sum(copy_ns), sum(idle_ns), sum(idle_host_ns), sum(idle_sync_ns), "
                 "sum(idle_copy_ns), sum(idle_other_ns), sum(launch_ns), sum(kernels), sum(lost), "
                 "count(distinct window_id) "
                 "from cuda.device_time where {when} group by 1 order by 1",
                 take_device);
    if (rc == 0)
        rc = read_kernels(r, since);
    if (rc == 0)
        rc = read_rest(r, since);
    if (rc == -ENOENT)
        return r->api->no_plugin(r->api);
    if (rc == 0) /* plugin torch's, if it is there */
        read_steps(r, window_ns);
    if (rc == 0) /* plugin gpu's, if it is there */
        (void)ask_rows(
            r, since,
            "select sum(used), sum(total) from (select arg_max(used_bytes, ts) as used, "
            "arg_max(total_bytes, ts) as total from gpu.utilization where {when} group by "
            "device_id) d",
            take_used);
    return rc;
}

/* ---- the command ---- */

struct args {
    const struct probing_report_api *api;
    uint64_t window_ns;
    bool json;
};

static int parse_option(void *arg, const char *option, const char *value)
{
    struct args *w = arg;
    if (option == NULL)
        return report_fail(w->api, -EINVAL, "cuda takes no argument '%s'", value);
    if (strcmp(option, "--last") == 0)
        return w->api->parse_time(w->api, value, &w->window_ns);
    return w->json = true, 0;
}

static int report_nothing(const struct cuda_report *r)
{
    bool denied = strcmp(r->state, "aside") == 0 || strcmp(r->state, "refused") == 0;
    return report_fail(r->api, -ENODATA, "no kernel and no copy was seen%s%s%s%s%s",
                       r->state[0] ? "; tracing: " : "", r->state, r->reason[0] ? ", " : "",
                       r->reason,
                       denied ? "; meanwhile config torch.device_times=on times modules by CUDA's "
                                "events"
                              : "");
}

static int show_report(const struct args *w)
{
    struct cuda_report *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return report_fail(w->api, -ENOMEM, "no memory for the report");
    r->api = w->api;
    int rc = read_report(r, w->window_ns);
    if (rc == 0)
        cuda_suspect(r);
    if (rc == 0 && r->n_devices == 0 && !w->json)
        rc = report_nothing(r);
    if (rc == 0)
        (w->json ? cuda_show_json : cuda_show)(r);
    free(r);
    return rc;
}

static int report_run(const struct probing_report_api *a, int argc, const char *const *argv)
{
    struct args words = {.api = a, .window_ns = WINDOW_NS};
    int rc = a->parse(a, argc, argv, parse_option, &words);
    if (rc < 0)
        return rc;
    return a->target == PROBING_TARGET_BARE ? a->no_plugin(a) : show_report(&words);
}

static const struct probing_report_option options[] = {
    {"--last", NULL, "TIME", "use the newest data of this length; 60s by default"},
    {"--json", NULL, NULL, "print one line of JSON"}};

static const char *const examples[] = {"-t 4242 cuda", "-t 4242 cuda --last 10m"};

static const struct probing_report_command commands[] = {
    {.name = "cuda",
     .arguments = "",
     .doc = "CUDA devices: how busy, why idle, the slowest kernels, copies and waits",
     .text = "From the tables of plugin cuda, of a live process or of one that has ended. A device "
             "is idle because the host is late (it launched only after the device had nothing "
             "left), because the host was waiting for the device (.item(), synchronize) and could "
             "not launch earlier, or because it was waiting for a copy. `flamegraph cuda` draws "
             "modules and their kernels.",
     PROBING_REPORT_LISTS(options, examples),
     .flags = PROBING_REPORT_TARGET,
     .run = report_run}};

PROBING_REPORT_ENTRY("cuda", commands);
