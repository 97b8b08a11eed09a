/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/report/cuda_report_print.c - what `cuda` has found out, as lines for a person or as
 * JSON.
 *
 * One thread, of the command.
 */
#include <string.h>

#include "report.h"

#define NAME_WIDTH 60u
#define NAME_LEAST 16u
#define BESIDE_WIDTH 42u /* columns beside a kernel's name */
#define GB 1073741824.0
#define STEPS_LEAST 5 /* of a kind, for a word on what tracing costs */

static const struct line {
    enum device_figure figure;
    const char *words, *key;
    bool always; /* also where it is nothing */
} lines[] = {{DEVICE_BUSY, "busy", "busy", true},
             {DEVICE_KERNEL, "  kernels", "kernel", true},
             {DEVICE_COLLECTIVE, "  collectives only", "collective_only", false},
             {DEVICE_COPY, "  copies only", "copy_only", false},
             {DEVICE_IDLE, "idle", "idle", true},
             {DEVICE_IDLE_HOST, "  the host is late", "idle_host", false},
             {DEVICE_IDLE_SYNC, "  it has waited for us", "idle_sync", false},
             {DEVICE_IDLE_COPY, "  or for a copy", "idle_copy", false},
             {DEVICE_IDLE_OTHER, "  not known", "idle_other", false}};
#define N_LINES (sizeof(lines) / sizeof(lines[0]))

static void show_device(const struct cuda_report *r, const struct device_report *d)
{
    double wall = d->figure[DEVICE_WALL];
    report_printf(r->api, "device %lld, %.2f s", (long long)d->device, wall / 1e9);
    if (d->windows > 1)
        report_printf(r->api, " in %lld windows; of the time between nothing is known",
                      (long long)d->windows);
    report_printf(r->api, "\n");
    for (size_t i = 0; i < N_LINES; i++) {
        double share = cuda_share(d->figure[lines[i].figure], wall);
        if (lines[i].always || share >= 0.0005)
            report_printf(r->api, "  %-24s %5.1f %%\n", lines[i].words, 100 * share);
    }
    if (d->figure[DEVICE_LOST] > 0)
        report_printf(r->api, "  %.0f records were lost: busy is a lower bound\n",
                      d->figure[DEVICE_LOST]);
}

static int64_t most_windows(const struct cuda_report *r)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < r->n_devices; i++)
        most = r->devices[i].windows > most ? r->devices[i].windows : most;
    return most;
}

static void show_launches(const struct cuda_report *r)
{
    char words[400];
    if (!(r->kernels > 0))
        return;
    report_printf(r->api, "\nkernels: ");
    if (r->steps >= 1)
        report_printf(r->api, "%.0f a step, %.3f ms; ", r->step_kernels / r->steps,
                      r->step_kernel_ns / r->steps / 1e6);
    report_printf(r->api, "%.0f in all%s, %.1f us each\n", r->kernels,
                  most_windows(r) > 1 ? " these windows" : "", r->kernel_ns / r->kernels / 1e3);
    cuda_launch_words(r, words, sizeof(words));
    char line[450];
    (void)snprintf(line, sizeof(line), "launch-bound? %s", words);
    r->api->print_wrapped(r->api, "", line, strlen(line));
}

static uint32_t name_width(const struct cuda_report *r)
{
    uint32_t columns = r->api->width(r->api);
    if (columns == 0 || columns >= NAME_WIDTH + BESIDE_WIDTH)
        return NAME_WIDTH;
    return columns < NAME_LEAST + BESIDE_WIDTH ? NAME_LEAST : columns - BESIDE_WIDTH;
}

static void show_cell(const struct cuda_report *r, const char *text, uint32_t width)
{
    char cell[CUDA_NAME_BYTES * 2];
    if (r->api->width(r->api) == 0 && r->api->columns(r->api, text, strlen(text)) > width)
        width = 0; /* nobody looks at a terminal */
    (void)r->api->fit(r->api, text, strlen(text), width, PROBING_FIT_MIDDLE | PROBING_FIT_FILL,
                      cell, sizeof(cell));
    report_printf(r->api, "  %s", cell);
}

static void show_sums(const struct cuda_report *r, const char *head, const struct kernel_sum *sums,
                      uint32_t n, bool modules)
{
    double wall = r->all.figure[DEVICE_WALL];
    uint32_t width = name_width(r);
    if (n == 0)
        return;
    report_printf(r->api, "\n");
    show_cell(r, head, width);
    report_printf(r->api, " %9s %10s %8s%s\n", "kernels", "ms", "of time",
                  modules ? "  module" : "");
    for (uint32_t i = 0; i < n; i++) {
        char name[CUDA_NAME_BYTES];
        kernel_name(sums[i].name, name, sizeof(name));
        show_cell(r, name, width);
        report_printf(r->api, " %9.0f %10.3f %6.1f %%", sums[i].count, sums[i].total_ns / 1e6,
                      100 * cuda_share(sums[i].total_ns, wall));
        if (modules && sums[i].module[0] && sums[i].modules > 1)
            report_printf(r->api, "  %s and %.0f more", sums[i].module, sums[i].modules - 1);
        else if (modules && sums[i].module[0])
            report_printf(r->api, "  %s", sums[i].module);
        report_printf(r->api, "\n");
    }
}

static void show_copies(const struct cuda_report *r)
{
    double wall = r->all.figure[DEVICE_WALL];
    if (r->n_copies)
        report_printf(r->api, "\ncopies\n");
    for (uint32_t i = 0; i < r->n_copies; i++) {
        const struct copy_sum *c = &r->copies[i];
        report_printf(r->api, "  %-8s%s%-10s %9.0f  %10.1f MB  %9.3f ms  %5.1f %%", c->kind,
                      c->from[0] ? " from " : "      ", c->from, c->count, c->bytes / 1e6,
                      c->total_ns / 1e6, 100 * cuda_share(c->total_ns, wall));
        if (c->total_ns > 0)
            report_printf(r->api, "  %.1f GB/s", c->bytes / c->total_ns);
        if (c->waited > 0)
            report_printf(r->api, "; %.0f waited for", c->waited);
        report_printf(r->api, "\n");
    }
}

static void show_waits(const struct cuda_report *r)
{
    if (r->n_waits)
        report_printf(r->api, "\nwaits of the host for the device\n");
    for (uint32_t i = 0; i < r->n_waits; i++)
        report_printf(r->api, "  %-18s %9.0f  %10.3f ms%s%s\n", r->waits[i].kind, r->waits[i].count,
                      r->waits[i].total_ns / 1e6, r->waits[i].module[0] ? "  in " : "",
                      r->waits[i].module);
}

/* Not of a few: their median is nobody's. */
static bool compares_steps(const struct step_times *t)
{
    return t->n[0] >= STEPS_LEAST && t->n[1] >= STEPS_LEAST && is_number(t->seconds[0]) &&
           is_number(t->seconds[1]);
}

static void show_steps(const struct cuda_report *r)
{
    const struct step_times *t = &r->steps_took;
    if (compares_steps(t))
        report_printf(r->api,
                      "\nsteps took %.3g ms while it traced, %.3g ms between (medians of %.0f and "
                      "%.0f steps)\n",
                      t->seconds[0] * 1e3, t->seconds[1] * 1e3, t->n[0], t->n[1]);
}

static void show_memory(const struct cuda_report *r)
{
    if (is_number(r->used_bytes) && r->total_bytes > 0)
        report_printf(r->api, "\nmemory: %.1f of %.1f GB in use on the devices, by all processes\n",
                      r->used_bytes / GB, r->total_bytes / GB);
    if (r->allocations > 0 || r->frees > 0)
        report_printf(r->api, "%smemory was allocated by %.0f calls and freed by %.0f\n",
                      is_number(r->used_bytes) ? "" : "\n", r->allocations, r->frees);
}

void cuda_show(const struct cuda_report *r)
{
    if (r->reason[0] || (r->state[0] && strcmp(r->state, "tracing") != 0))
        report_printf(r->api, "tracing is %s%s%s\n", r->state, r->reason[0] ? ": " : "", r->reason);
    for (uint32_t i = 0; i < r->n_devices; i++)
        show_device(r, &r->devices[i]);
    show_launches(r);
    show_sums(r, "most time", r->top, r->n_kernels, /* modules= */ true);
    show_sums(r, "by module", r->modules, r->n_modules, /* modules= */ false);
    show_copies(r);
    show_waits(r);
    show_memory(r);
    show_steps(r);
    if (r->n_suspicions)
        report_printf(r->api, "\nsuspicious\n");
    for (uint32_t i = 0; i < r->n_suspicions; i++)
        r->api->print_wrapped(r->api, "  ", r->suspicions[i], strlen(r->suspicions[i]));
}

/* ---- JSON ---- */

static void json_device(struct report_json *j, const struct device_report *d)
{
    char key[64];
    json_item(j);
    json_number(j, "device", (double)d->device);
    json_number(j, "wall_ns", d->figure[DEVICE_WALL]);
    json_number(j, "windows", (double)d->windows);
    for (size_t i = 0; i < N_LINES; i++) {
        (void)snprintf(key, sizeof(key), "%s_ns", lines[i].key);
        json_number(j, key, d->figure[lines[i].figure]);
    }
    json_number(j, "launch_ns", d->figure[DEVICE_LAUNCH]);
    json_number(j, "lost", d->figure[DEVICE_LOST]);
    json_close(j, '}');
}

static void json_sums(struct report_json *j, const char *key, const struct kernel_sum *sums,
                      uint32_t n)
{
    json_list(j, key);
    for (uint32_t i = 0; i < n; i++) {
        json_item(j);
        json_text(j, "name", sums[i].name);
        json_text(j, "module", sums[i].module);
        json_number(j, "count", sums[i].count);
        json_number(j, "total_ns", sums[i].total_ns);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_rest(struct report_json *j, const struct cuda_report *r)
{
    json_list(j, "copies");
    for (uint32_t i = 0; i < r->n_copies; i++) {
        json_item(j);
        json_text(j, "kind", r->copies[i].kind);
        json_text(j, "src_kind", r->copies[i].from);
        json_number(j, "count", r->copies[i].count);
        json_number(j, "bytes", r->copies[i].bytes);
        json_number(j, "total_ns", r->copies[i].total_ns);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_list(j, "waits");
    for (uint32_t i = 0; i < r->n_waits; i++) {
        json_item(j);
        json_text(j, "kind", r->waits[i].kind);
        json_text(j, "module", r->waits[i].module);
        json_number(j, "count", r->waits[i].count);
        json_number(j, "total_ns", r->waits[i].total_ns);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_list(j, "suspicious");
    for (uint32_t i = 0; i < r->n_suspicions; i++) {
        json_comma(j);
        (void)j->api->print_json_text(j->api, r->suspicions[i], strlen(r->suspicions[i]));
    }
    json_close(j, ']');
}

static void json_steps(struct report_json *j, const struct step_times *t)
{
    bool compares = compares_steps(t);
    json_number(j, "step_ms_traced", compares ? t->seconds[0] * 1e3 : (double)NAN);
    json_number(j, "step_ms_between", compares ? t->seconds[1] * 1e3 : (double)NAN);
}

void cuda_show_json(const struct cuda_report *r)
{
    struct report_json j = {.api = r->api};
    char words[400];
    r->api->exact(r->api);
    json_open(&j, '{');
    json_text(&j, "state", r->state);
    json_text(&j, "reason", r->reason);
    json_number(&j, "steps", r->steps);
    json_number(&j, "kernels", r->kernels);
    json_number(&j, "kernel_ns", r->kernel_ns);
    json_number(&j, "launch_ns", r->launch_ns);
    json_number(&j, "queued_ns", r->queued_ns);
    cuda_launch_words(r, words, sizeof(words));
    json_text(&j, "launch_bound", words);
    json_list(&j, "devices");
    for (uint32_t i = 0; i < r->n_devices; i++)
        json_device(&j, &r->devices[i]);
    json_close(&j, ']');
    json_sums(&j, "top", r->top, r->n_kernels);
    json_sums(&j, "modules", r->modules, r->n_modules);
    json_number(&j, "allocations", r->allocations);
    json_number(&j, "memory_used_bytes", r->used_bytes);
    json_number(&j, "memory_bytes", r->total_bytes);
    json_steps(&j, &r->steps_took);
    json_rest(&j, r);
    report_printf(r->api, "}\n");
}
