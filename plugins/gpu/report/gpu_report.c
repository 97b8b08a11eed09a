/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/report/gpu_report.c - `probing gpu`: which GPUs there are, what they do, and who uses
 * them.
 *
 * One thread, of the command: nothing in this folder ever runs in a target.  All of it comes from
 * the plugin's tables; of a dead process, from what it stored.
 */
#include <errno.h>
#include <stdlib.h>

#include "report_sdk.h"

#define WINDOW_NS UINT64_C(60000000000)
#define DEVICES_MAX 128
#define PROCESSES_SHOWN 8 /* of a device */
#define GB 1073741824.0

enum figure { /* columns of the select in read_figures(), from the third on */
              BUSY,
              BUSY_MEAN,
              USED,
              USED_MOST,
              TOTAL,
              OWN,
              POWER,
              TEMPERATURE,
              TEMPERATURE_MOST,
              CLOCK,
              BUS_IN,
              BUS_OUT,
              LINK_IN,
              LINK_OUT,
              CORRECTED,
              UNCORRECTED,
              ROWS,
              FIGURES
};

static const struct {
    const char *sql, *key; /* key: of JSON */
} figures[FIGURES] = {{"arg_max(gpu_util_pct, ts)", "gpu_util_pct"},
                      {"avg(gpu_util_pct)", "gpu_util_mean_pct"},
                      {"arg_max(used_bytes, ts)", "used_bytes"},
                      {"max(used_bytes)", "used_max_bytes"},
                      {"arg_max(total_bytes, ts)", "total_bytes"},
                      {"arg_max(process_bytes, ts)", "process_bytes"},
                      {"avg(power_w)", "power_w"},
                      {"arg_max(temperature_c, ts)", "temperature_c"},
                      {"max(temperature_c)", "temperature_max_c"},
                      {"arg_max(sm_clock_mhz, ts)", "sm_clock_mhz"},
                      {"avg(pcie_rx_bytes_per_sec)", "pcie_rx_bytes_per_sec"},
                      {"avg(pcie_tx_bytes_per_sec)", "pcie_tx_bytes_per_sec"},
                      {"avg(nvlink_rx_bytes_per_sec)", "nvlink_rx_bytes_per_sec"},
                      {"avg(nvlink_tx_bytes_per_sec)", "nvlink_tx_bytes_per_sec"},
                      {"max(ecc_corrected)", "ecc_corrected"},
                      {"max(ecc_uncorrected)", "ecc_uncorrected"},
                      {"count(*)", "rows"}};

struct gpu {
    int64_t index;
    char name[100], uuid[100], state[80], throttle[100];
    double visible, ordinal, limit_w; /* NAN: not known */
    double throttled;                 /* of the rows, with `throttle` */
    double figure[FIGURES];
    char processes[1024], partitions[1024];
    uint32_t n_processes, n_partitions;
};

struct gpu_report {
    const struct probing_report_api *api;
    uint64_t window_ns;
    bool json, all;
    struct gpu gpus[DEVICES_MAX];
    uint32_t n;
    char driver[100], cuda[24];
};

static bool is_number(double v)
{
    return v == v;
}

/* ---- what is asked ---- */

static struct gpu *gpu_of(struct gpu_report *r, int64_t index)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->gpus[i].index == index)
            return &r->gpus[i];
    if (r->n == DEVICES_MAX)
        return NULL;
    struct gpu *g = &r->gpus[r->n++];
    g->index = index;
    g->visible = g->ordinal = g->limit_w = g->throttled = (double)NAN;
    for (uint32_t i = 0; i < FIGURES; i++)
        g->figure[i] = (double)NAN;
    return g;
}

__attribute__((format(printf, 3, 4))) static void add(char *text, size_t size, const char *format,
                                                      ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + n, size - n, format, args);
    va_end(args);
}

static void keep_text(char *ret, size_t size, const struct probing_report_cell *c)
{
    if (cell_text(c)[0])
        (void)snprintf(ret, size, "%s", cell_text(c));
}

static int take_device(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct gpu_report *r = arg;
    struct gpu *g = n >= 12 ? gpu_of(r, cell_int(&c[0])) : NULL;
    if (!g)
        return 0;
    keep_text(r->driver, sizeof(r->driver), &c[8]);
    keep_text(r->cuda, sizeof(r->cuda), &c[9]);
    if (c[1].type) { /* a partition */
        bool seen = cell_number(&c[5]) == 1;
        add(g->partitions, sizeof(g->partitions), "%s%lld: %s, %.1f of %.1f GB in use%s",
            g->n_partitions++ ? "; " : "", (long long)cell_int(&c[1]), cell_text(&c[2]),
            cell_number(&c[11]) / GB, cell_number(&c[10]) / GB, seen ? " (this process's)" : "");
        return 0;
    }
    keep_text(g->name, sizeof(g->name), &c[2]);
    keep_text(g->uuid, sizeof(g->uuid), &c[3]);
    keep_text(g->state, sizeof(g->state), &c[4]);
    g->visible = cell_number(&c[5]);
    g->ordinal = cell_number(&c[6]);
    g->limit_w = cell_number(&c[7]);
    return 0;
}

static int take_figures(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct gpu *g = n >= 2 + FIGURES ? gpu_of(arg, cell_int(&c[0])) : NULL;
    for (uint32_t i = 0; g && i < FIGURES; i++)
        g->figure[i] = cell_number(&c[2 + i]);
    if (g && !g->state[0])
        keep_text(g->state, sizeof(g->state), &c[1]);
    return 0;
}

static int take_throttle(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct gpu *g = n >= 3 ? gpu_of(arg, cell_int(&c[0])) : NULL;
    if (g && !g->throttle[0]) { /* the most frequent comes first */
        keep_text(g->throttle, sizeof(g->throttle), &c[1]);
        g->throttled = cell_number(&c[2]);
    }
    return 0;
}

static int take_process(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct gpu *g = n >= 5 ? gpu_of(arg, cell_int(&c[0])) : NULL;
    if (!g || ++g->n_processes > PROCESSES_SHOWN)
        return 0;
    add(g->processes, sizeof(g->processes), "%s%lld %s", g->n_processes > 1 ? "; " : "",
        (long long)cell_int(&c[1]),
        cell_text(&c[2])[0] ? cell_text(&c[2]) : "(not seen from here)");
    if (c[3].type)
        add(g->processes, sizeof(g->processes), " %.1f GB", cell_number(&c[3]) / GB);
    if (cell_int(&c[4]) == 1)
        add(g->processes, sizeof(g->processes), " (this process)");
    return 0;
}

static int read_figures(struct gpu_report *r)
{
    char sql[2048] = "select device_id, arg_max(state, ts)", since[200];
    (void)snprintf(since, sizeof(since), "ts > %s - interval '%.3f seconds'",
                   r->api->target == PROBING_TARGET_LIVE ? "now()"
                                                         : "(select max(ts) from gpu.utilization)",
                   (double)r->window_ns / 1e9);
    for (uint32_t i = 0; i < FIGURES; i++)
        add(sql, sizeof(sql), ", %s", figures[i].sql);
    add(sql, sizeof(sql), " from gpu.utilization where %s group by 1 order by 1", since);
    int rc = r->api->ask(r->api, sql, take_figures, r);
    (void)snprintf(sql, sizeof(sql),
                   "select device_id, throttle_reasons, count(*) from gpu.utilization where %s and "
                   "throttle_reasons not in ('none', 'idle') group by 1, 2 order by 3 desc",
                   since);
    return rc == 0 ? r->api->ask(r->api, sql, take_throttle, r) : rc;
}

static int read_report(struct gpu_report *r)
{
    int rc = 0;
    if (r->api->target == PROBING_TARGET_LIVE)
        rc = r->api->ask(r->api,
                         "select index, partition, name, uuid, state, visible, ordinal, "
                         "power_limit_w, driver_version, cuda_version, total_bytes, used_bytes "
                         "from gpu.devices",
                         take_device, r);
    if (rc == 0)
        rc = read_figures(r);
    if (rc == 0 && r->api->target == PROBING_TARGET_LIVE)
        rc = r->api->ask(r->api,
                         "select index, pid, comm, used_bytes, self from gpu.processes order by "
                         "used_bytes desc",
                         take_process, r);
    return rc == -ENOENT ? r->api->no_plugin(r->api) : rc;
}

/* ---- how it is shown ---- */

static void show_head(const struct gpu_report *r, const struct gpu *g)
{
    report_printf(r->api, "GPU %lld", (long long)g->index);
    if (g->name[0])
        report_printf(r->api, "  %s", g->name);
    if (is_number(g->ordinal))
        report_printf(r->api, "  cuda:%.0f of this process", g->ordinal);
    else if (g->visible == 0)
        report_printf(r->api, "  not visible to this process");
    if (g->state[0] && strcmp(g->state, "ok") != 0)
        report_printf(r->api, "  %s%s", strcmp(g->state, "lost") == 0 ? "LOST: off the bus" : "",
                      strcmp(g->state, "lost") == 0 ? "" : g->state);
    report_printf(r->api, "\n");
}

static void show_busy(const struct gpu_report *r, const struct gpu *g)
{
    const double *f = g->figure;
    if (is_number(f[BUSY_MEAN]))
        report_printf(r->api, "  busy         %.0f %% on average, %.0f %% last\n", f[BUSY_MEAN],
                      f[BUSY]);
    if (is_number(f[USED]) && is_number(f[TOTAL])) {
        report_printf(r->api, "  memory       %.1f of %.1f GB, at most %.1f", f[USED] / GB,
                      f[TOTAL] / GB, f[USED_MOST] / GB);
        if (is_number(f[OWN]))
            report_printf(r->api, "; %.1f of this process", f[OWN] / GB);
        report_printf(r->api, "\n");
    }
    if (is_number(f[POWER])) {
        report_printf(r->api, "  power        %.0f W", f[POWER]);
        if (is_number(g->limit_w))
            report_printf(r->api, " of %.0f", g->limit_w);
        if (is_number(f[TEMPERATURE]))
            report_printf(r->api, ", %.0f C, at most %.0f", f[TEMPERATURE], f[TEMPERATURE_MOST]);
        if (is_number(f[CLOCK]))
            report_printf(r->api, "; %.0f MHz", f[CLOCK]);
        report_printf(r->api, "\n");
    }
    if (g->throttle[0] && f[ROWS] > 0)
        report_printf(r->api, "  held down    by %s in %.0f %% of the looks\n", g->throttle,
                      100 * g->throttled / f[ROWS]);
}

static void show_rest(const struct gpu_report *r, const struct gpu *g)
{
    const double *f = g->figure;
    if (f[BUS_IN] + f[BUS_OUT] >= 1e6)
        report_printf(r->api, "  PCIe         %.2f GB/s to it, %.2f from it\n", f[BUS_IN] / 1e9,
                      f[BUS_OUT] / 1e9);
    if (f[LINK_IN] + f[LINK_OUT] >= 1e6)
        report_printf(r->api, "  NVLink       %.2f GB/s to it, %.2f from it\n", f[LINK_IN] / 1e9,
                      f[LINK_OUT] / 1e9);
    if (f[UNCORRECTED] > 0)
        report_printf(r->api, "  ECC          %.0f memory errors NOT corrected, %.0f corrected\n",
                      f[UNCORRECTED], f[CORRECTED]);
    else if (f[CORRECTED] > 0)
        report_printf(r->api, "  ECC          %.0f memory errors corrected\n", f[CORRECTED]);
    if (g->n_partitions)
        report_printf(r->api, "  partitions   %s\n", g->partitions);
    if (g->n_processes > PROCESSES_SHOWN)
        report_printf(r->api, "  used by      %s; and %u more\n", g->processes,
                      g->n_processes - PROCESSES_SHOWN);
    else if (g->n_processes)
        report_printf(r->api, "  used by      %s\n", g->processes);
}

static void show_devices(const struct gpu_report *r)
{
    uint32_t hidden = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        const struct gpu *g = &r->gpus[i];
        bool theirs = g->visible == 0 && g->n_partitions == 0 && !(g->figure[OWN] > 0);
        hidden += theirs && !r->all;
        if (theirs && !r->all)
            continue;
        show_head(r, g);
        if (!g->state[0] || strcmp(g->state, "ok") == 0)
            show_busy(r, g); /* else these are of before */
        show_rest(r, g);
    }
    if (hidden)
        report_printf(r->api, "%u GPU%s not visible to this process; --all shows %s\n", hidden,
                      hidden == 1 ? " is" : "s are", hidden == 1 ? "it" : "them");
    if (r->driver[0])
        report_printf(r->api, "driver %s, CUDA up to %s\n", r->driver, r->cuda[0] ? r->cuda : "?");
}

static void show_json(const struct gpu_report *r)
{
    struct report_json j = {.api = r->api};
    r->api->exact(r->api);
    json_open(&j, '{');
    json_text(&j, "driver_version", r->driver);
    json_text(&j, "cuda_version", r->cuda);
    json_list(&j, "gpus");
    for (uint32_t i = 0; i < r->n; i++) {
        const struct gpu *g = &r->gpus[i];
        json_item(&j);
        json_number(&j, "index", (double)g->index);
        json_text(&j, "name", g->name);
        json_text(&j, "uuid", g->uuid);
        json_text(&j, "state", g->state);
        json_number(&j, "visible", g->visible);
        json_number(&j, "ordinal", g->ordinal);
        json_number(&j, "power_limit_w", g->limit_w);
        json_text(&j, "throttle_reasons", g->throttle);
        for (uint32_t k = 0; k < FIGURES; k++)
            json_number(&j, figures[k].key, g->figure[k]);
        json_number(&j, "processes", g->n_processes);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
    report_printf(r->api, "\n");
}

/* ---- the command ---- */

static int parse_option(void *arg, const char *option, const char *value)
{
    struct gpu_report *r = arg;
    if (option == NULL)
        return report_fail(r->api, -EINVAL, "gpu takes no argument '%s'", value);
    if (strcmp(option, "--last") == 0)
        return r->api->parse_time(r->api, value, &r->window_ns);
    *(strcmp(option, "--json") == 0 ? &r->json : &r->all) = true;
    return 0;
}

static int keep_reason(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    if (n)
        (void)snprintf(arg, 400, "%s", cell_text(&c[0]));
    return 0;
}

static int report_nobody(const struct gpu_report *r)
{
    char text[400] = "";
    if (r->api->target == PROBING_TARGET_LIVE)
        (void)r->api->ask(r->api, "select reason from probing.plugins where name = 'gpu'",
                          keep_reason, text);
    return report_fail(r->api, -ENODATA, "no GPU was seen%s%s", text[0] ? ": " : "", text);
}

static int show_report(struct gpu_report *r)
{
    int rc = read_report(r);
    if (rc < 0)
        return rc;
    if (r->json)
        show_json(r);
    else if (r->n == 0)
        return report_nobody(r);
    else
        show_devices(r);
    return 0;
}

static int report_run(const struct probing_report_api *a, int argc, const char *const *argv)
{
    struct gpu_report *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return report_fail(a, -ENOMEM, "no memory for the report");
    r->api = a;
    r->window_ns = WINDOW_NS;
    int rc = a->parse(a, argc, argv, parse_option, r);
    if (rc == 0)
        rc = a->target == PROBING_TARGET_BARE ? a->no_plugin(a) : show_report(r);
    free(r);
    return rc;
}

static const struct probing_report_option options[] = {
    {"--last", NULL, "TIME", "use the newest data of this length; 60s by default"},
    {"--all", NULL, NULL, "also GPUs that the process does not see (CUDA_VISIBLE_DEVICES)"},
    {"--json", NULL, NULL, "print one line of JSON"}};

static const char *const examples[] = {"-t 4242 gpu", "-t 4242 gpu --last 10m --all"};

static const struct probing_report_command commands[] = {
    {.name = "gpu",
     .arguments = "",
     .doc = "GPUs: how busy they are, what holds their clocks down, who uses them",
     .text = "Reads the driver's own counters (NVML), which plugin gpu samples once a second. It "
             "starts no tool of the driver and makes no context on a device. Busy means that a "
             "kernel ran, not that it filled the device.",
     PROBING_REPORT_LISTS(options, examples),
     .flags = PROBING_REPORT_TARGET,
     .run = report_run}};

PROBING_REPORT_ENTRY("gpu", commands);
