/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/bench.h - what the benchmarks in C share: rows like those of python.torch_trace, the
 * best and the median of several runs, and the line in which each figure is said.
 */
#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/catalog/catalog.h"
#include "core/catalog/dictionary.h"

#define BENCH_CELLS 5
#define BENCH_MODULES 100
#define BENCH_MADE (1u << 20) /* rows made beforehand and used over and over */

struct bench_row {
    uint64_t ns; /* after the row before */
    union probing_cell cells[BENCH_CELLS];
};

static const struct probing_column bench_columns[BENCH_CELLS] = {
    {.name = "step", .type = PROBING_I64},     {.name = "module", .type = PROBING_STR},
    {.name = "stage", .type = PROBING_STR},    {.name = "allocated", .type = PROBING_I64},
    {.name = "duration", .type = PROBING_F64},
};

static uint64_t bench_seed = UINT64_C(88172645463325252);

static inline uint64_t bench_random(void)
{
    bench_seed ^= bench_seed << 13;
    bench_seed ^= bench_seed >> 7;
    bench_seed ^= bench_seed << 17;
    return bench_seed;
}

static inline double bench_uniform(void)
{
    return (double)(bench_random() >> 11) * (1.0 / 9007199254740992.0);
}

static inline double bench_normal(void)
{
    double u = bench_uniform() + 1e-12, v = bench_uniform();
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* 100 modules forward and backward, and one row a step; durations with 8 % noise.  NULL: no memory
 * or no names.  Caller frees. */
static inline struct bench_row *bench_rows(struct interns *names)
{
    static const char *const stages[] = {"post forward", "post backward", "post step"};
    double base[BENCH_MODULES];
    uint64_t module[BENCH_MODULES], stage[3];
    int64_t size[BENCH_MODULES], allocated = (int64_t)2 << 30;
    char name[32];
    struct bench_row *made = malloc(sizeof(*made) * BENCH_MADE);
    for (int m = 0; made && m < BENCH_MODULES; m++) {
        base[m] = 20000 + bench_uniform() * 400000;
        size[m] = (int64_t)(1 + bench_uniform() * 4000) * 512;
        int n = snprintf(name, sizeof(name), "layers.%d.attention", m);
        if (intern(names, name, (size_t)n, &module[m]) != 0)
            return free(made), NULL;
    }
    for (int i = 0; made && i < 3; i++) {
        if (intern(names, stages[i], 9, &stage[i]) != 0)
            return free(made), NULL;
    }
    for (uint32_t i = 0; made && i < BENCH_MADE; i++) {
        uint32_t k = i % (2 * BENCH_MODULES + 1);
        uint32_t m = k < BENCH_MODULES ? k : k < 2 * BENCH_MODULES ? 2 * BENCH_MODULES - 1 - k : 0;
        uint32_t st = k < BENCH_MODULES ? 0 : k < 2 * BENCH_MODULES ? 1 : 2;
        double d = base[m] * (st == 1 ? 2 : 1) * (1 + 0.08 * bench_normal());
        int64_t ns = d < 1000 ? 1000 : (int64_t)d;
        allocated += st == 0 ? size[m] : st == 1 ? -size[m] : 0;
        int64_t jitter = (bench_random() & 15) == 0 ? (int64_t)(bench_uniform() * 64) * 512 : 0;
        made[i].ns = (uint64_t)ns + 4000 + (uint64_t)(bench_uniform() * 8000);
        made[i].cells[0].i = i / (2 * BENCH_MODULES + 1);
        made[i].cells[1].u = module[m];
        made[i].cells[2].u = stage[st];
        made[i].cells[3].i = allocated + jitter;
        made[i].cells[4].f = (double)ns * 1e-9;
    }
    return made;
}

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts v: v[0] is the least, this the median. */
static inline double bench_median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), bench_compare);
    return v[n / 2];
}

/* One figure, as figures.py says: "figure", name, unit, then what `format` makes, key=value pairs
 * with tabs between. */
__attribute__((format(printf, 3, 4))) static inline void
bench_figure(const char *name, const char *unit, const char *format, ...)
{
    va_list values;
    printf("figure\t%s\t%s\t", name, unit);
    va_start(values, format);
    (void)vprintf(format, values);
    va_end(values);
    printf("\n");
    (void)fflush(stdout);
}

/* Least or best of several, and the median; goal: "" where there is none. */
static inline void bench_best(const char *name, double best, double median, const char *unit,
                              const char *goal)
{
    bench_figure(name, unit, "best=%.6g\tmedian=%.6g%s%s", best, median, goal[0] ? "\tgoal=" : "",
                 goal);
}

#endif
