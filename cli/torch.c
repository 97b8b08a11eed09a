/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/torch.c - `torch`: how a training or inference loop does, on one screen.
 *
 * One thread.  All of it comes from the tables that the torch plugin fills, of the living and the
 * dead; what is not measured is not shown.
 */
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/answer.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define WINDOW_NS UINT64_C(60000000000)
#define FIGURES_MAX 16
#define DATA_SHARE 0.2 /* of a step: from there on a part is told as suspicious */
#define COMM_SHARE 0.3
#define OTHER_SHARE 0.4
#define JITTER 2.0   /* the slowest of a hundred, in medians */
#define PAIRS_MIN 10 /* fewer steps without rows say nothing about what rows cost */
#define NAME_BYTES 256

struct figures {
    double value[FIGURES_MAX]; /* NAN: NULL */
    char text[NAME_BYTES];     /* the first text */
    uint32_t rows;
};

struct screen {
    const struct target *t;
    char since[160]; /* the condition on ts */
    uint32_t suspicions;
};

static int begin(void *self, const struct export_column *columns, uint32_t n, struct buf *out)
{
    (void)columns;
    (void)out;
    return n <= FIGURES_MAX ? 0 : err_set(-E2BIG, "too many columns for %p", self);
}

static int end(void *self, struct buf *out)
{
    (void)self;
    (void)out;
    return 0;
}

static void take_cell(struct figures *f, uint32_t i, const struct json *c)
{
    f->value[i] = c->type != JSON_NUMBER ? (double)NAN
                  : c->is_integer        ? (double)c->integer
                                         : c->number;
    if (c->type == JSON_STRING && f->text[0] == '\0')
        (void)snprintf(f->text, sizeof f->text, "%s", c->text);
}

struct query {
    uint32_t n; /* columns */
    struct figures now;
    void (*each)(struct screen *s, const struct figures *f);
    struct screen *screen;
};

static int row(void *self, const struct json *const *cells, struct buf *out)
{
    struct query *q = self;
    uint32_t rows = q->now.rows + 1;
    (void)out;
    q->now = (struct figures){.rows = rows};
    for (uint32_t i = 0; i < q->n; i++)
        take_cell(&q->now, i, cells[i]);
    if (q->each != NULL)
        q->each(q->screen, &q->now);
    return 0;
}

/* Ask; each row goes to `each`, the last one stays in ret. */
static int ask(struct screen *s, uint32_t n, const char *sql,
               void (*each)(struct screen *, const struct figures *), struct figures *ret)
{
    struct query q = {.n = n, .each = each, .screen = s};
    struct export_writer w = {.begin = begin, .row = row, .end = end, .self = &q};
    int r = answer_rows(s->t, sql, &w);
    if (ret != NULL)
        *ret = q.now;
    return r;
}

static bool is_number(double v)
{
    return v == v;
}

static void suspect(struct screen *s, const char *format, double a, const char *text)
{
    char line[512];
    (void)snprintf(line, sizeof line, format, a, text);
    printf("%s  %s\n", s->suspicions++ == 0 ? "\nsuspicious:\n" : "", line);
}

/* ---- parts of the screen ---- */

enum {
    N,
    MEAN,
    MEDIAN,
    P99,
    DATA,
    FORWARD,
    BACKWARD,
    OPTIMIZER,
    COMM,
    OTHER,
    OVERHEAD,
    FIRST,
    LAST,
    SPAN,
    N_STEPS
};

static int read_steps(struct screen *s, struct figures *ret)
{
    char sql[1400];
    (void)snprintf(sql, sizeof sql,
                   "select count(*), avg(step_duration_sec), median(step_duration_sec), "
                   "approx_percentile(step_duration_sec, 0.99), "
                   "sum(dataloader_sec) / count(*), sum(forward_sec) / count(*), "
                   "sum(backward_sec) / count(*), sum(optimizer_sec) / count(*), "
                   "sum(comm_sec) / count(*), sum(other_sec) / count(*), "
                   "avg(overhead_sec), min(steps), max(steps), sum(step_duration_sec) "
                   "from python.torch_step_timing where %s",
                   s->since);
    return ask(s, N_STEPS, sql, NULL, ret);
}

static void print_split(const struct figures *f)
{
    static const struct {
        const char *name;
        int at;
    } parts[] = {{"waiting for data", DATA}, {"forward", FORWARD},    {"backward", BACKWARD},
                 {"optimizer", OPTIMIZER},   {"communication", COMM}, {"other", OTHER}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (is_number(f->value[parts[i].at]))
            printf("  %-18s %9.3f ms  %5.1f %%\n", parts[i].name, f->value[parts[i].at] * 1e3,
                   100 * f->value[parts[i].at] / f->value[MEAN]);
}

static void print_steps(const struct figures *f)
{
    printf("steps %.0f to %.0f: %.2f a second; %.3f ms each, median %.3f, 99 of 100 within %.3f\n",
           f->value[FIRST], f->value[LAST], f->value[N] / f->value[SPAN], f->value[MEAN] * 1e3,
           f->value[MEDIAN] * 1e3, f->value[P99] * 1e3);
    print_split(f);
    if (is_number(f->value[OVERHEAD]))
        printf("  %-18s %9.3f ms  %5.2f %%, in the parts above; measured on one call in 61\n",
               "our own cost", f->value[OVERHEAD] * 1e3, 100 * f->value[OVERHEAD] / f->value[MEAN]);
}

/* A step without rows against the mean of its two neighbours: drift goes out of the difference. */
static int print_cost(struct screen *s)
{
    struct figures f;
    int r = ask(s, 4,
                "select count(*), avg(around), avg(d), stddev(around - d) from (select sampled, "
                "step_duration_sec as d, (lag(step_duration_sec) over (order by ts) + "
                "lead(step_duration_sec) over (order by ts)) / 2 as around, "
                "lag(sampled) over (order by ts) + lead(sampled) over (order by ts) as neighbours "
                "from python.torch_step_timing) x where sampled = 0 and neighbours = 2",
                NULL, &f);
    if (r < 0 || f.rows == 0 || !(f.value[0] >= 1))
        return r;
    printf("  %-18s %9.3f ms with rows, %.3f without (%.0f steps left out on purpose): ",
           "the same, compared", f.value[1] * 1e3, f.value[2] * 1e3, f.value[0]);
    if (f.value[0] < PAIRS_MIN || !is_number(f.value[3]))
        printf("too few to tell\n");
    else
        printf("%+.2f %% +- %.2f\n", 100 * (f.value[1] - f.value[2]) / f.value[2],
               100 * 1.96 * f.value[3] / sqrt(f.value[0]) / f.value[2]);
    return 0;
}

static void print_module(struct screen *s, const struct figures *f)
{
    (void)s;
    if (f->rows == 1)
        printf("\n  %-44s %8s %11s %11s\n", "slowest modules, innermost only", "calls",
               "forward ms", "backward ms");
    printf("  %-44s %8.0f %11.3f ", f->text[0] != '\0' ? f->text : "(unknown)", f->value[1],
           f->value[2] * 1e3);
    if (is_number(f->value[3]))
        printf("%11.3f\n", f->value[3] * 1e3);
    else
        printf("%11s\n", "");
}

/* Of a module and what it consists of, only the innermost is shown: the others are their sum.
 * Parts have names below it, but not those of a root: so also what began after it and ended before
 * it, in the last step that has ended. */
static int print_modules(struct screen *s)
{
    char sql[1800];
    (void)snprintf(sql, sizeof sql,
                   "with calls as (select *, stage = 'post forward' as f from python.torch_trace "
                   "where stage in ('post forward', 'post backward') and %s and local_step <= "
                   "(select max(steps) from python.torch_step_timing)), "
                   "m as (select module, count(*) filter (where f) as n, "
                   "avg(duration) filter (where f) as forward, "
                   "avg(duration) filter (where not f) as backward, "
                   "arg_max(tid, ts) filter (where f) as thread, "
                   "arg_max(local_step, ts) filter (where f) as step, "
                   "arg_max(seq, ts) filter (where f) as began, "
                   "arg_max(time_offset, ts) filter (where f) as ended, "
                   "sum(duration) as total from calls group by module) "
                   "select module, n, forward, backward from m where not exists (select 1 from m "
                   "inside where inside.module like m.module || '.%%' or inside.thread = m.thread "
                   "and inside.step = m.step and inside.began > m.began and inside.ended < m.ended)"
                   " and total is not null order by total desc limit 10",
                   s->since);
    return ask(s, 4, sql, print_module, NULL);
}

static int print_memory(struct screen *s)
{
    struct figures f;
    int r = ask(s, 2,
                "select max(max_allocated), max(max_cached) from python.torch_trace "
                "where max_allocated is not null",
                NULL, &f);
    if (r == 0 && f.rows > 0 && is_number(f.value[0]))
        printf("\ndevice memory: %.1f MB at the most, %.1f MB held by torch\n", f.value[0],
               f.value[1]);
    return r;
}

static void suspect_steps(struct screen *s, const struct figures *f)
{
    double mean = f->value[MEAN];
    if (f->value[DATA] > DATA_SHARE * mean)
        suspect(s, "waiting for data takes %.0f %% of the time; select * from torch.loaders%s",
                100 * f->value[DATA] / mean, "");
    if (f->value[COMM] > COMM_SHARE * mean)
        suspect(s, "communication takes %.0f %% of the time: another rank may be slower%s",
                100 * f->value[COMM] / mean, "");
    if (f->value[OTHER] > OTHER_SHARE * mean)
        suspect(s, "%.0f %% of the time is in none of torch's parts; flamegraph shows where%s",
                100 * f->value[OTHER] / mean, "");
    if (f->value[P99] > JITTER * f->value[MEDIAN])
        suspect(s, "one step in a hundred takes %.1f times the usual one%s",
                f->value[P99] / f->value[MEDIAN], "");
}

static void print_nonfinite(struct screen *s, const struct figures *f)
{
    suspect(s, "step %.0f: the first NaN or infinity came out of module %s", f->value[0], f->text);
}

static int suspect_numbers(struct screen *s)
{
    struct figures f;
    char sql[400];
    (void)snprintf(sql, sizeof sql,
                   "select count(*) from python.torch_trace where stage = 'skipped step' and %s",
                   s->since);
    int r = ask(s, 1, sql, NULL, &f);
    if (r == 0 && f.value[0] > 0)
        suspect(s, "%.0f optimizer steps were skipped: gradients had overflown%s", f.value[0], "");
    if (r == 0)
        r = ask(s, 2,
                "select local_step, func from python.variables where name = 'nonfinite' "
                "order by ts desc limit 3",
                print_nonfinite, NULL);
    return r;
}

struct words {
    uint64_t window_ns;
    bool profile;
    const char *steps, *skip, *path;
};

static int take(void *arg, const char *option, const char *value)
{
    struct words *w = arg;
    uint64_t n;
    if (option == NULL && strcmp(value, "profile") == 0) {
        w->profile = true;
        return 0;
    }
    if (option == NULL)
        return err_set(-EINVAL, "torch takes no argument '%s'; did you mean profile?", value);
    if (strcmp(option, "--last") == 0)
        return parse_ns(value, &w->window_ns);
    if (strcmp(option, "--output") == 0) {
        w->path = value;
        return 0;
    }
    if (parse_u64(value, &n) < 0)
        return err_set(-EINVAL, "%s wants a number of steps, not '%s'", option, value);
    *(strcmp(option, "--steps") == 0 ? &w->steps : &w->skip) = value;
    return 0;
}

int command_torch(struct target *t, int argc, char **argv)
{
    struct screen s = {.t = t};
    struct figures steps;
    struct words words = {.window_ns = WINDOW_NS, .steps = NULL};
    int r = cli_parse(argc, argv, take, &words);
    if (r == 0 && !words.profile && (words.steps != NULL || words.skip != NULL || words.path))
        r = err_set(-EINVAL, "--steps, --skip and -o belong to torch profile");
    if (r < 0)
        return cli_misuse(r);
    if (words.profile)
        return torch_capture(t, words.steps, words.skip, words.path);
    (void)snprintf(s.since, sizeof s.since,
                   "ts > (select max(ts) from python.torch_step_timing) - interval '%.3f seconds'",
                   (double)words.window_ns / 1e9);
    r = read_steps(&s, &steps);
    if (r == -ENOENT || r == -EINVAL)
        return err_set(-ENODATA, "%s has no torch plugin: probing -t %s plugin load torch", t->text,
                       t->text);
    bool waits = r == 0 && t->kind == TARGET_LIVE && torch_print_waits(t);
    if (waits && !(steps.value[N] >= 1))
        return EXIT_DONE;
    if (waits)
        printf("\n");
    if (r == 0 && !(steps.value[N] >= 1))
        return err_set(-ENODATA,
                       "no step has ended yet; a loop without an optimizer that is called with "
                       "gradients on has none, until it calls probing.step()");
    if (r < 0)
        return r;
    print_steps(&steps);
    r = print_cost(&s);
    if (r == 0)
        r = print_modules(&s);
    if (r == 0)
        r = print_memory(&s);
    if (r < 0)
        return r;
    suspect_steps(&s, &steps);
    r = suspect_numbers(&s);
    return r < 0 ? r : EXIT_DONE;
}
