/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/torch/torch_print.c - what `torch` has found out, as lines for a person or as JSON.
 *
 * One thread.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/torch/torch.h"
#include "cli/ui/fit_text.h"
#include "cli/ui/screen.h"
#include "core/base/json.h"

#define PAIRS_MIN 10 /* fewer steps without rows say nothing about what rows cost */
#define FEW_STEPS 100
#define NAME_WIDTH 36u /* where all names are shorter */
#define NAME_LEAST 12u
#define BESIDE_WIDTH 44u /* columns right of a module's name */
#define SHOWN_SHARE 0.01 /* of all modules: less is not among the slowest */
#define JSON_MAX ((size_t)1 << 20)

static const struct part {
    const char *name, *key;
    int at;
} parts[] = {{"waiting for data", "data_sec", TORCH_DATA},
             {"forward", "forward_sec", TORCH_FORWARD},
             {"backward", "backward_sec", TORCH_BACKWARD},
             {"optimizer", "optimizer_sec", TORCH_OPTIMIZER},
             {"communication", "communication_sec", TORCH_COMM},
             {"other", "other_sec", TORCH_OTHER}};
#define N_PARTS (sizeof parts / sizeof parts[0])

static bool is_number(double v)
{
    return v == v;
}

static void show_steps(const double *f)
{
    printf("steps %.0f to %.0f: %.2f a second, %.3f ms each\n", f[TORCH_FIRST], f[TORCH_LAST],
           f[TORCH_N] / f[TORCH_SPAN], f[TORCH_MEAN] * 1e3);
    printf("  %-18s %9.3f ms, %s within %.3f\n", "median", f[TORCH_MEDIAN] * 1e3,
           f[TORCH_N] < FEW_STEPS ? "all" : "99 of 100", f[TORCH_P99] * 1e3);
    for (size_t i = 0; i < N_PARTS; i++)
        if (is_number(f[parts[i].at]))
            printf("  %-18s %9.3f ms  %5.1f %%\n", parts[i].name, f[parts[i].at] * 1e3,
                   100 * f[parts[i].at] / f[TORCH_MEAN]);
    if (is_number(f[TORCH_OVERHEAD]))
        printf("  %-18s %9.3f ms  %5.2f %%, in the parts above\n", "our own cost",
               f[TORCH_OVERHEAD] * 1e3, 100 * f[TORCH_OVERHEAD] / f[TORCH_MEAN]);
}

/* In percent of a step without rows, with its 95 % interval. */
static void show_cost(const double *f)
{
    double percent = 100 * (f[COST_WITH] - f[COST_WITHOUT]) / f[COST_WITHOUT];
    double about = 100 * 1.96 * f[COST_STDDEV] / sqrt(f[COST_N]) / f[COST_WITHOUT];
    if (!(f[COST_N] >= 1))
        return;
    printf("  %-18s %9.3f ms without rows (%.0f steps), %.3f with:", "compared",
           f[COST_WITHOUT] * 1e3, f[COST_N], f[COST_WITH] * 1e3);
    if (f[COST_N] < PAIRS_MIN || !is_number(about))
        printf(" too few to tell\n");
    else if (fabs(percent) < about)
        printf("\n  %-18s no difference within %.2f %%\n", "", about);
    else
        printf(" %+.2f %% +- %.2f\n", percent, about);
}

/* As it is shown: of several models with the model's before it. */
static void name_of(const struct torch_report *r, const struct flame_module *m,
                    char name[TORCH_NAME_BYTES])
{
    size_t n = strlen(m->root);
    bool told = strncmp(m->name, m->root, n) == 0 && (m->name[n] == '\0' || m->name[n] == '.');
    bool below = r->n_roots > 1 && !told;
    (void)snprintf(name, TORCH_NAME_BYTES, "%s%s%s", below ? m->root : "", below ? ": " : "",
                   m->name);
}

static bool is_shown(const struct flame_module *m, int64_t most)
{
    return (double)(m->own_ns[0] + m->own_ns[1]) >= SHOWN_SHARE * (double)most;
}

/* Enough for all of them, if the terminal has it. */
static uint32_t name_width(const struct torch_report *r, int64_t most)
{
    uint32_t width = NAME_WIDTH, columns = cli_width();
    for (uint32_t i = 0; i < r->n_modules; i++) {
        char name[TORCH_NAME_BYTES];
        name_of(r, &r->modules[i], name);
        if (is_shown(&r->modules[i], most) && fit_columns(name, strlen(name)) > width)
            width = fit_columns(name, strlen(name));
    }
    if (columns == 0 || columns >= width + BESIDE_WIDTH)
        return width;
    return columns < NAME_LEAST + BESIDE_WIDTH ? NAME_LEAST : columns - BESIDE_WIDTH;
}

static void show_module(const struct torch_report *r, const struct flame_module *m, uint32_t width)
{
    struct buf line;
    char name[TORCH_NAME_BYTES];
    struct buf shown;
    const double mean = r->steps.value[TORCH_MEAN];
    const double steps = r->steps.value[TORCH_N] >= 1 ? (double)r->module_steps : 1;
    const double ns = (double)(m->own_ns[0] + m->own_ns[1]) / steps;
    name_of(r, m, name);
    buf_init(&line, TORCH_NAME_BYTES * 4);
    buf_init(&shown, TORCH_NAME_BYTES * 4);
    fit_add(&shown, name, strlen(name), width, FIT_FRONT); /* the end tells modules apart */
    screen_add(&line, buf_text(&shown), width, /* right= */ false);
    buf_done(&shown);
    printf("  %s %8.1f %10.3f ", buf_text(&line), (double)m->calls / steps,
           (double)m->own_ns[0] / steps / 1e6);
    buf_done(&line);
    if (m->own_ns[1] > 0)
        printf("%10.3f", (double)m->own_ns[1] / steps / 1e6);
    else
        printf("%10s", "");
    if (r->steps.value[TORCH_N] >= 1)
        printf(" %6.1f %%", ns / 1e9 / mean * 100);
    printf("\n");
}

static void show_head(const char *words, uint32_t width)
{
    struct buf cell;
    buf_init(&cell, TORCH_NAME_BYTES);
    fit_add(&cell, words, strlen(words), width, FIT_END);
    printf("  %-*s ", (int)width, buf_text(&cell));
    buf_done(&cell);
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
    printf("\n");
    show_head("slowest modules", width);
    printf("%8s %10s %10s\n", "calls", "forward ms", "backward");
    show_head("without those inside them", width);
    printf("%8s %10s %10s %8s\n", of, of, of, steps ? "of step" : "");
    for (uint32_t i = 0; i < r->n_modules; i++)
        if (is_shown(&r->modules[i], most))
            show_module(r, &r->modules[i], width);
}

static void show_lines(const char *head, const char *indent, const char *lines)
{
    if (*lines != '\0')
        printf("%s", head);
    for (const char *p = lines; *p != '\0';) {
        size_t n = strcspn(p, "\n"), deep = strspn(p, " ");
        char margin[16];
        (void)snprintf(margin, sizeof margin, "%s%.*s", indent, (int)deep, p);
        fit_say(margin, p + deep, n - deep);
        p += n + (p[n] == '\n');
    }
}

void torch_show(const struct torch_report *r)
{
    struct buf waits = r->waits, suspicions = r->suspicions;
    show_lines("", "", buf_text(&waits));
    if (r->steps.value[TORCH_N] >= 1) {
        printf("%s", r->waits.size > 0 ? "\n" : "");
        show_steps(r->steps.value);
        show_cost(r->cost.value);
    } else if (r->waits.size == 0) {
        static const char none[] =
            "no step has ended since plugin torch was loaded; where gradients "
            "are on and no optimizer steps, there are steps once the program "
            "calls probing.step()";
        fit_say("", none, sizeof none - 1);
    }
    show_modules(r);
    if (r->memory.rows > 0 && is_number(r->memory.value[MEMORY_USED]))
        printf("\ndevice memory: %.1f MB at the most, %.1f MB held by torch\n",
               r->memory.value[MEMORY_USED], r->memory.value[MEMORY_HELD]);
    show_lines("\nsuspicious:\n\n", "  ", buf_text(&suspicions));
}

/* ---- JSON ---- */

static void add_key(struct buf *b, const char *key)
{
    if (b->size > 0 && strchr("{[", b->data[b->size - 1]) == NULL)
        (void)buf_addc(b, ',');
    (void)buf_addf(b, "\"%s\":", key);
}

static void add_number(struct buf *b, const char *key, double value)
{
    add_key(b, key);
    (void)json_add_f64(b, value); /* null when it is none */
}

static void add_text(struct buf *b, const char *key, const char *text)
{
    add_key(b, key);
    (void)json_add_text(b, text, strlen(text));
}

static void add_lines(struct buf *b, const char *key, const char *lines)
{
    add_key(b, key);
    (void)buf_addc(b, '[');
    for (const char *p = lines; *p != '\0';) {
        size_t n = strcspn(p, "\n"), blanks = strspn(p, " ");
        (void)buf_adds(b, p != lines ? "," : "");
        (void)json_add_text(b, p + blanks, n - blanks);
        p += n + (p[n] == '\n');
    }
    (void)buf_addc(b, ']');
}

static void add_steps(struct buf *b, const double *f)
{
    add_key(b, "steps");
    (void)buf_addc(b, '{');
    add_number(b, "count", f[TORCH_N]);
    add_number(b, "first", f[TORCH_FIRST]);
    add_number(b, "last", f[TORCH_LAST]);
    add_number(b, "mean_sec", f[TORCH_MEAN]);
    add_number(b, "median_sec", f[TORCH_MEDIAN]);
    add_number(b, "p99_sec", f[TORCH_P99]);
    for (size_t i = 0; i < N_PARTS; i++)
        add_number(b, parts[i].key, f[parts[i].at]);
    add_number(b, "overhead_sec", f[TORCH_OVERHEAD]);
    (void)buf_addc(b, '}');
}

static void add_modules(struct buf *b, const struct torch_report *r)
{
    const double steps = (double)r->module_steps;
    add_key(b, "modules");
    (void)buf_addc(b, '[');
    for (uint32_t i = 0; i < r->n_modules; i++) {
        const struct flame_module *m = &r->modules[i];
        (void)buf_adds(b, i > 0 ? ",{" : "{");
        add_text(b, "root", m->root);
        add_text(b, "module", m->name);
        add_number(b, "calls", (double)m->calls / steps);
        add_number(b, "forward_sec", (double)m->own_ns[0] / steps / 1e9);
        add_number(b, "backward_sec",
                   m->own_ns[1] > 0 ? (double)m->own_ns[1] / steps / 1e9 : (double)NAN);
        (void)buf_addc(b, '}');
    }
    (void)buf_addc(b, ']');
}

void torch_show_json(const struct torch_report *r)
{
    struct buf b, waits = r->waits, suspicions = r->suspicions;
    bool loop = r->loop.rows > 0, memory = r->memory.rows > 0;
    buf_init(&b, JSON_MAX);
    (void)buf_addc(&b, '{');
    add_steps(&b, r->steps.value);
    add_key(&b, "loop");
    (void)buf_addc(&b, '{');
    if (loop && r->loop.text[0] != '\0')
        add_text(&b, "phase", r->loop.text);
    add_number(&b, "phase_sec", loop ? r->loop.value[LOOP_PHASE_SEC] : (double)NAN);
    add_number(&b, "step_sec", loop ? r->loop.value[LOOP_STEP_SEC] : (double)NAN);
    (void)buf_addc(&b, '}');
    add_modules(&b, r);
    add_number(&b, "device_mb", memory ? r->memory.value[MEMORY_USED] : (double)NAN);
    add_number(&b, "device_held_mb", memory ? r->memory.value[MEMORY_HELD] : (double)NAN);
    add_lines(&b, "waiting", buf_text(&waits));
    add_lines(&b, "suspicious", buf_text(&suspicions));
    printf("%s}\n", buf_text(&b));
    buf_done(&b);
}
