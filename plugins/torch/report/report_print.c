/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/report_print.c - what `torch` has found out, as lines for a person or as
 * JSON.
 *
 * One thread.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

#define PAIRS_MIN 10    /* fewer steps without rows say nothing about what rows cost */
#define FIGURE_ERRORS 2 /* of its own errors that a figure has to be, to be one */
#define FEW_STEPS 100
#define NAME_WIDTH 36u /* where all names are shorter */
#define NAME_LEAST 12u
#define BESIDE_WIDTH 44u /* columns right of a module's name */
#define SHOWN_SHARE 0.01 /* of all modules: less is not among the slowest */

static const struct part {
    const char *name, *key;
    int at;
} parts[] = {{"waiting for data", "data_sec", TORCH_DATA},
             {"forward", "forward_sec", TORCH_FORWARD},
             {"backward", "backward_sec", TORCH_BACKWARD},
             {"optimizer", "optimizer_sec", TORCH_OPTIMIZER},
             {"communication", "communication_sec", TORCH_COMM},
             {"other", "other_sec", TORCH_OTHER}};
#define N_PARTS (sizeof(parts) / sizeof(parts[0]))

static bool is_number(double v)
{
    return v == v;
}

static void show_steps(const struct torch_report *r)
{
    const double *f = r->steps.value;
    report_printf(r->api, "steps %.0f to %.0f: %.2f a second, %.3f ms each\n", f[TORCH_FIRST],
                  f[TORCH_LAST], f[TORCH_N] / f[TORCH_SPAN], f[TORCH_MEAN] * 1e3);
    report_printf(r->api, "  %-18s %9.3f ms, %s within %.3f\n", "median", f[TORCH_MEDIAN] * 1e3,
                  f[TORCH_N] < FEW_STEPS ? "all" : "99 of 100", f[TORCH_P99] * 1e3);
    for (size_t i = 0; i < N_PARTS; i++)
        if (is_number(f[parts[i].at]))
            report_printf(r->api, "  %-18s %9.3f ms  %5.1f %%\n", parts[i].name,
                          f[parts[i].at] * 1e3, 100 * f[parts[i].at] / f[TORCH_MEAN]);
    if (is_number(f[TORCH_OVERHEAD]))
        report_printf(r->api, "  %-18s %9.3f ms  %5.2f %%, included above\n", "probing itself",
                      f[TORCH_OVERHEAD] * 1e3, 100 * f[TORCH_OVERHEAD] / f[TORCH_MEAN]);
}

/* In percent of a step without rows, with its 95 % interval. */
static void show_cost(const struct torch_report *r)
{
    const double *f = r->cost.value;
    double percent = 100 * (f[COST_WITH] - f[COST_WITHOUT]) / f[COST_WITHOUT];
    double about = 100 * 1.96 * f[COST_STDDEV] / sqrt(f[COST_N]) / f[COST_WITHOUT];
    if (!(f[COST_N] >= 1))
        return;
    report_printf(r->api, "  %-18s %9.3f ms without rows (%.0f steps), %.3f with:", "compared",
                  f[COST_WITHOUT] * 1e3, f[COST_N], f[COST_WITH] * 1e3);
    if (f[COST_N] < PAIRS_MIN || !is_number(about))
        report_printf(r->api, " too few to tell\n");
    else if (fabs(percent) < FIGURE_ERRORS * about)
        report_printf(r->api, "\n  %-18s not measurable: below %.2g %%\n", "",
                      fmax(percent, 0) + about);
    else
        report_printf(r->api, " %+.2f %% +- %.2f\n", percent, about);
}

/* As it is shown: of several models with the model's before it. */
static void name_of(const struct torch_report *r, const struct slow_module *m,
                    char name[TORCH_NAME_BYTES])
{
    size_t n = strlen(m->root);
    bool told = strncmp(m->name, m->root, n) == 0 && (m->name[n] == '\0' || m->name[n] == '.');
    bool below = r->n_roots > 1 && !told;
    (void)snprintf(name, TORCH_NAME_BYTES, "%s%s%s", below ? m->root : "", below ? ": " : "",
                   m->name);
}

static bool is_shown(const struct slow_module *m, int64_t most)
{
    return (double)(m->own_ns[0] + m->own_ns[1]) >= SHOWN_SHARE * (double)most;
}

/* Enough for all of them, if the terminal has it. */
static uint32_t name_width(const struct torch_report *r, int64_t most)
{
    uint32_t width = NAME_WIDTH, columns = r->api->width(r->api);
    for (uint32_t i = 0; i < r->n_modules; i++) {
        char name[TORCH_NAME_BYTES];
        name_of(r, &r->modules[i], name);
        if (is_shown(&r->modules[i], most) && r->api->columns(r->api, name, strlen(name)) > width)
            width = r->api->columns(r->api, name, strlen(name));
    }
    if (columns == 0 || columns >= width + BESIDE_WIDTH)
        return width;
    return columns < NAME_LEAST + BESIDE_WIDTH ? NAME_LEAST : columns - BESIDE_WIDTH;
}

static void show_module(const struct torch_report *r, const struct slow_module *m, uint32_t width)
{
    char name[TORCH_NAME_BYTES], shown[TORCH_NAME_BYTES * 4];
    const double mean = r->steps.value[TORCH_MEAN];
    const double steps = r->steps.value[TORCH_N] >= 1 ? (double)r->module_steps : 1;
    const double ns = (double)(m->own_ns[0] + m->own_ns[1]) / steps;
    name_of(r, m, name);
    (void)r->api->fit(r->api, name, strlen(name), width, /* the end tells modules apart */
                      PROBING_FIT_FRONT | PROBING_FIT_FILL, shown, sizeof(shown));
    report_printf(r->api, "  %s %8.1f %10.3f ", shown, (double)m->calls / steps,
                  (double)m->own_ns[0] / steps / 1e6);
    if (m->own_ns[1] > 0)
        report_printf(r->api, "%10.3f", (double)m->own_ns[1] / steps / 1e6);
    else
        report_printf(r->api, "%10s", "");
    if (r->steps.value[TORCH_N] >= 1)
        report_printf(r->api, " %6.1f %%", ns / 1e9 / mean * 100);
    report_printf(r->api, "\n");
}

static void show_head(const struct torch_report *r, const char *words, uint32_t width)
{
    char cell[TORCH_NAME_BYTES];
    (void)r->api->fit(r->api, words, strlen(words), width, PROBING_FIT_END | PROBING_FIT_FILL, cell,
                      sizeof(cell));
    report_printf(r->api, "  %s ", cell);
}

static void show_modules(const struct torch_report *r)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < r->n_modules; i++)
        most += r->modules[i].own_ns[0] + r->modules[i].own_ns[1];
    if (r->n_modules == 0)
        return;
    uint32_t width = name_width(r, most);
    bool steps = r->steps.value[TORCH_N] >= 1;
    const char *of = steps ? "a step" : "in all";
    report_printf(r->api, "\n");
    show_head(r, "slowest modules", width);
    report_printf(r->api, "%8s %10s %10s\n", "calls", "forward ms", "backward");
    show_head(r, "without those inside them", width);
    report_printf(r->api, "%8s %10s %10s %8s\n", of, of, of, steps ? "of step" : "");
    for (uint32_t i = 0; i < r->n_modules; i++)
        if (is_shown(&r->modules[i], most))
            show_module(r, &r->modules[i], width);
}

static void show_lines(const struct torch_report *r, const char *head, const char *indent,
                       const char *lines)
{
    if (*lines != '\0')
        report_printf(r->api, "%s", head);
    for (const char *p = lines; *p != '\0';) {
        size_t n = strcspn(p, "\n"), deep = strspn(p, " ");
        char margin[16];
        (void)snprintf(margin, sizeof(margin), "%s%.*s", indent, (int)deep, p);
        r->api->print_wrapped(r->api, margin, p + deep, n - deep);
        p += n + (p[n] == '\n');
    }
}

void torch_show(const struct torch_report *r)
{
    show_lines(r, "", "", lines_text(&r->waits));
    if (r->steps.value[TORCH_N] >= 1) {
        report_printf(r->api, "%s", r->waits.size > 0 ? "\n" : "");
        show_steps(r);
        show_cost(r);
    } else if (r->waits.size == 0) {
        static const char none[] =
            "no step has ended since plugin torch was loaded; a loop that trains without an "
            "optimizer can end its steps by probing.step()";
        r->api->print_wrapped(r->api, "", none, sizeof(none) - 1);
    }
    show_modules(r);
    if (r->memory.rows > 0 && is_number(r->memory.value[MEMORY_USED]))
        report_printf(r->api, "\ndevice memory: %.1f MB at most, %.1f MB reserved by torch\n",
                      r->memory.value[MEMORY_USED], r->memory.value[MEMORY_HELD]);
    show_lines(r, "\nsuspicious:\n\n", "  ", lines_text(&r->suspicions));
}

/* ---- JSON ---- */

static void add_lines(struct report_json *j, const char *key, const char *lines)
{
    json_list(j, key);
    for (const char *p = lines; *p != '\0';) {
        size_t n = strcspn(p, "\n"), blanks = strspn(p, " ");
        report_printf(j->api, "%s", p != lines ? "," : "");
        (void)j->api->print_json_text(j->api, p + blanks, n - blanks);
        p += n + (p[n] == '\n');
    }
    json_close(j, ']');
}

static void add_steps(struct report_json *j, const double *f)
{
    json_key(j, "steps");
    json_open(j, '{');
    json_number(j, "count", f[TORCH_N]);
    json_number(j, "first", f[TORCH_FIRST]);
    json_number(j, "last", f[TORCH_LAST]);
    json_number(j, "mean_sec", f[TORCH_MEAN]);
    json_number(j, "median_sec", f[TORCH_MEDIAN]);
    json_number(j, "p99_sec", f[TORCH_P99]);
    for (size_t i = 0; i < N_PARTS; i++)
        json_number(j, parts[i].key, f[parts[i].at]);
    json_number(j, "overhead_sec", f[TORCH_OVERHEAD]);
    json_close(j, '}');
}

static void add_modules(struct report_json *j, const struct torch_report *r)
{
    const double steps = (double)r->module_steps;
    json_list(j, "modules");
    for (uint32_t i = 0; i < r->n_modules; i++) {
        const struct slow_module *m = &r->modules[i];
        report_printf(j->api, "%s", i > 0 ? "," : "");
        json_open(j, '{');
        json_text(j, "root", m->root);
        json_text(j, "module", m->name);
        json_number(j, "calls", (double)m->calls / steps);
        json_number(j, "forward_sec", (double)m->own_ns[0] / steps / 1e9);
        json_number(j, "backward_sec",
                    m->own_ns[1] > 0 ? (double)m->own_ns[1] / steps / 1e9 : (double)NAN);
        json_close(j, '}');
    }
    json_close(j, ']');
}

void torch_show_json(const struct torch_report *r)
{
    struct report_json j = {.api = r->api};
    bool loop = r->loop.rows > 0, memory = r->memory.rows > 0;
    json_open(&j, '{');
    add_steps(&j, r->steps.value);
    json_key(&j, "loop");
    json_open(&j, '{');
    if (loop && r->loop.text[0] != '\0')
        json_text(&j, "phase", r->loop.text);
    json_number(&j, "phase_sec", loop ? r->loop.value[LOOP_PHASE_SEC] : (double)NAN);
    json_number(&j, "step_sec", loop ? r->loop.value[LOOP_STEP_SEC] : (double)NAN);
    json_close(&j, '}');
    add_modules(&j, r);
    json_number(&j, "device_mb", memory ? r->memory.value[MEMORY_USED] : (double)NAN);
    json_number(&j, "device_held_mb", memory ? r->memory.value[MEMORY_HELD] : (double)NAN);
    add_lines(&j, "waiting", lines_text(&r->waits));
    add_lines(&j, "suspicious", lines_text(&r->suspicions));
    report_printf(r->api, "}\n");
}
