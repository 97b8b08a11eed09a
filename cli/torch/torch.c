/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/torch/torch.c - `torch`: how a training or inference loop does, on one screen.
 *
 * One thread.  All of it comes from the tables that the torch plugin fills, of the living and the
 * dead; what is not measured is not shown.
 */
#include "cli/torch/torch.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/target/query_client.h"
#include "cli/ui/terminal.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define WINDOW_NS UINT64_C(60000000000)
#define WATCH_NS UINT64_C(2000000000)
#define CAPTURE_NS UINT64_C(600000000000)
#define LINES_MAX ((size_t)1 << 16)
#define CALLS_MAX 40000 /* rows of modules' calls that are read: those of the newest steps */
#define DATA_SHARE 0.2  /* of a step: from there on a part is told as suspicious */
#define COMM_SHARE 0.3
#define OTHER_SHARE 0.4
#define JITTER 2.0       /* the slowest of a hundred, in medians */
#define JITTER_STEPS 100 /* fewer say nothing about one in a hundred */
#define STANDS_SEC 3.0   /* without a step's end, and JITTER times 5 the slowest of a hundred */
#define GROWTH_SHARE 0.05
#define GROWTH_BYTES 20e6 /* a minute */
#define GROWTH_SEC 10.0   /* watched for less than twice that: nothing is said */
#define MB 1048576.0

static int begin(void *self, const struct export_column *columns, uint32_t n, struct buf *out)
{
    (void)columns;
    (void)out;
    return n <= TORCH_FIGURES ? 0 : err_set(-E2BIG, "too many columns for %p", self);
}

static int end(void *self, struct buf *out)
{
    (void)self;
    (void)out;
    return 0;
}

static void take_cell(struct torch_figures *f, uint32_t i, const struct json *c)
{
    f->value[i] = c->type != JSON_NUMBER ? (double)NAN
                  : c->is_integer        ? (double)c->integer
                                         : c->number;
    if (c->type == JSON_STRING && f->text[0] == '\0')
        (void)snprintf(f->text, sizeof f->text, "%s", c->text);
}

struct query {
    uint32_t n; /* columns */
    struct torch_figures now;
    void (*each)(struct torch_report *r, const struct torch_figures *f);
    struct torch_report *report;
};

static int row(void *self, const struct json *const *cells, struct buf *out)
{
    struct query *q = self;
    uint32_t rows = q->now.rows + 1;
    (void)out;
    q->now = (struct torch_figures){.rows = rows};
    for (uint32_t i = 0; i < q->n; i++)
        take_cell(&q->now, i, cells[i]);
    if (q->each != NULL)
        q->each(q->report, &q->now);
    return 0;
}

/* Ask; each row goes to `each`, the last one stays in ret. */
static int ask(struct torch_report *r, uint32_t n, const char *sql,
               void (*each)(struct torch_report *, const struct torch_figures *),
               struct torch_figures *ret)
{
    struct query q = {.n = n, .each = each, .report = r};
    struct export_writer w = {.begin = begin, .row = row, .end = end, .self = &q};
    int rc = answer_rows(r->t, sql, &w);
    if (ret != NULL)
        *ret = q.now;
    return rc;
}

/* ---- what is asked ---- */

static int read_steps(struct torch_report *r, const char *since)
{
    char sql[1400];
    (void)snprintf(sql, sizeof sql,
                   "select count(*), avg(step_duration_sec), median(step_duration_sec), "
                   "approx_percentile(step_duration_sec, 0.99), "
                   "sum(dataloader_sec) / count(*), sum(forward_sec) / count(*), "
                   "sum(backward_sec) / count(*), sum(optimizer_sec) / count(*), "
                   "sum(comm_sec) / count(*), sum(other_sec) / count(*), "
                   "avg(overhead_sec), min(local_step), max(local_step), sum(step_duration_sec), "
                   "count(*) filter (where step_end = 'forward') "
                   "from python.torch_step_timing where %s",
                   since);
    return ask(r, N_TORCH_STEPS, sql, NULL, &r->steps);
}

/* A step without rows against the mean of its two neighbours: drift goes out of the difference. */
static int read_cost(struct torch_report *r)
{
    return ask(r, N_COST,
               "select count(*), avg(around), avg(d), stddev(around - d) from (select sampled, "
               "step_duration_sec as d, (lag(step_duration_sec) over (order by ts) + "
               "lead(step_duration_sec) over (order by ts)) / 2 as around, "
               "lag(sampled) over (order by ts) + lead(sampled) over (order by ts) as neighbours "
               "from python.torch_step_timing) x where sampled = 0 and neighbours = 2",
               NULL, &r->cost);
}

/* Of so many of the newest steps that the answer stays small. */
static int read_modules(struct torch_report *r, const char *since)
{
    struct torch_figures f;
    char sql[400], where[120];
    (void)snprintf(sql, sizeof sql,
                   "select count(*), min(local_step), max(local_step) from python.torch_trace "
                   "where %s and stage in ('post forward', 'post backward')",
                   since);
    int rc = ask(r, 3, sql, NULL, &f);
    if (rc < 0 || !(f.value[0] > 0))
        return rc;
    double steps = f.value[2] - f.value[1] + 1, most = CALLS_MAX * steps / f.value[0];
    double first = most < steps ? f.value[2] - floor(most) : f.value[1], last = f.value[2];
    if (r->steps.value[TORCH_N] >= 1) { /* whole ones: of others only some modules were called */
        first = fmax(first, r->steps.value[TORCH_FIRST]);
        last = fmin(last, r->steps.value[TORCH_LAST]);
    }
    (void)snprintf(where, sizeof where, " and local_step between %.0f and %.0f", first, last);
    rc = flame_sum_modules(&r->flame, r->t, where, r->modules, TORCH_MODULES, &r->n_roots,
                           &r->module_steps);
    r->n_modules = rc > 0 ? (uint32_t)rc : 0;
    return rc < 0 ? rc : 0;
}

/* On the device at steps' ends: the least of the newer half against that of the older one. */
static int read_memory(struct torch_report *r, const char *since)
{
    char sql[1000];
    (void)snprintf(
        sql, sizeof sql,
        "select max(max_allocated), max(max_cached), "
        "min(allocated) filter (where newer = 0 and ended), "
        "min(allocated) filter (where newer = 1 and ended) from "
        "(select max_allocated, max_cached, allocated, stage = 'post step' as ended, case when ts "
        "> (select min(ts) + (max(ts) - min(ts)) / 2 from python.torch_trace where %s) "
        "then 1 else 0 end as newer from python.torch_trace where max_allocated is not null "
        "and %s) x",
        since, since);
    return ask(r, N_MEMORY, sql, NULL, &r->memory);
}

static void read_loop(struct torch_report *r)
{
    if (r->t->kind != TARGET_LIVE ||
        ask(r, N_LOOP,
            "select step_sec, phase_sec, rss, rss_since - rss_before, rss_sec, phase from "
            "torch.loop",
            NULL, &r->loop) < 0)
        r->loop = (struct torch_figures){.rows = 0};
}

/* ---- what is odd ---- */

static bool is_number(double v)
{
    return v == v;
}

static void suspect(struct torch_report *r, const char *format, double a, const char *text)
{
    char line[512];
    (void)snprintf(line, sizeof line, format, a, text);
    (void)buf_addf(&r->suspicions, "%s\n", line);
}

static void wait_for_worker(struct torch_report *r, const struct torch_figures *f)
{
    (void)buf_addf(&r->waits,
                   "  the next batch is to come from worker %.0f (pid %.0f), which is %s\n"
                   "  where: probing -t %.0f backtrace --external\n",
                   f->value[0], f->value[1], f->text, f->value[1]);
}

/* The worker that has the batch, or else who can say more. */
static void tell_where(struct torch_report *r, bool data)
{
    size_t before = r->waits.size;
    if (data)
        (void)ask(r, 3,
                  "select worker, pid, state from torch.loaders where awaited = 1 order by "
                  "cpu_sec limit 4",
                  wait_for_worker, NULL);
    if (r->waits.size == before && r->t->pid != 0)
        (void)buf_addf(&r->waits, "  where: probing -t %d backtrace\n", (int)r->t->pid);
}

/* A loop that stands has no rows to show it. */
static void read_stand(struct torch_report *r)
{
    const double *steps = r->steps.value, *loop = r->loop.value;
    if (r->loop.rows == 0)
        return;
    if (!is_number(loop[LOOP_PHASE_SEC]) && r->waits.size == 0) {
        (void)buf_adds(&r->waits, "no module has been called since plugin torch was loaded\n");
        tell_where(r, /* data= */ true);
    }
    if (!is_number(loop[LOOP_PHASE_SEC]))
        return;
    bool stepped = steps[TORCH_N] >= 1 && is_number(loop[LOOP_STEP_SEC]);
    double for_sec = stepped ? loop[LOOP_STEP_SEC] : loop[LOOP_PHASE_SEC];
    if (for_sec < STANDS_SEC || (stepped && for_sec < 5 * JITTER * steps[TORCH_P99]))
        return;
    bool data = strcmp(r->loop.text, "waiting for data") == 0;
    bool other = strcmp(r->loop.text, "other") == 0;
    (void)buf_addf(&r->waits, "no step has ended for %.1f s: the loop has %s%s for %.1f s\n",
                   for_sec,
                   data    ? "been "
                   : other ? "been in none of torch's parts"
                           : "been in ",
                   other ? "" : r->loop.text, loop[LOOP_PHASE_SEC]);
    tell_where(r, data);
}

static void suspect_steps(struct torch_report *r)
{
    const double *f = r->steps.value, mean = f[TORCH_MEAN];
    if (f[TORCH_DATA] > DATA_SHARE * mean)
        suspect(r, "waiting for data takes %.0f %% of the time; select * from torch.loaders%s",
                100 * f[TORCH_DATA] / mean, "");
    if (f[TORCH_COMM] > COMM_SHARE * mean)
        suspect(r, "communication takes %.0f %% of the time: another rank may be slower%s",
                100 * f[TORCH_COMM] / mean, "");
    if (f[TORCH_OTHER] > OTHER_SHARE * mean)
        suspect(r,
                f[TORCH_CALLED] > 0.5 * f[TORCH_N]
                    ? "%.0f %% of the time no model is called%s: nothing to do, or slow code"
                    : "%.0f %% of the time is in none of torch's parts; flamegraph --mode wall "
                      "shows where%s",
                100 * f[TORCH_OTHER] / mean, "");
    if (f[TORCH_P99] > JITTER * f[TORCH_MEDIAN] && f[TORCH_N] >= JITTER_STEPS)
        suspect(r, "one step in a hundred takes %.1f times the usual one%s",
                f[TORCH_P99] / f[TORCH_MEDIAN], "");
}

static void suspect_growth(struct torch_report *r)
{
    const double *loop = r->loop.value, *memory = r->memory.value;
    double grown = memory[MEMORY_SINCE] - memory[MEMORY_BEFORE];
    double minutes = r->loop.rows > 0 ? loop[LOOP_SEC] / 60 : (double)NAN;
    if (r->loop.rows > 0 && loop[LOOP_SEC] >= GROWTH_SEC &&
        loop[LOOP_GROWN] > GROWTH_SHARE * loop[LOOP_RSS] &&
        loop[LOOP_GROWN] > GROWTH_BYTES * minutes)
        suspect(r, "the process has grown by %.0f MB, as it keeps what it allocates%s",
                loop[LOOP_GROWN] / MB, "");
    if (r->memory.rows > 0 && grown > GROWTH_SHARE * memory[MEMORY_BEFORE] && grown > 1)
        suspect(r, "at the steps' ends %.1f MB more of the GPU are in use than before%s", grown,
                "");
}

static void suspect_module(struct torch_report *r, const struct torch_figures *f)
{
    suspect(r,
            f->value[1] > 0
                ? "step %.0f: the first NaN or infinity is in the gradients of module %s"
                : "step %.0f: the first NaN or infinity came out of module %s",
            f->value[0], f->text);
}

static void suspect_failure(struct torch_report *r, const struct torch_figures *f)
{
    suspect(r, "step %.0f: %s", f->value[0], f->text);
}

/* Without rc: an older directory's table has no such column. */
static void suspect_communication(struct torch_report *r)
{
    (void)ask(
        r, 2,
        "select local_step, op || ' of group ' || coalesce(group_name, '?') || ' failed: ' "
        "|| error from python.comm_collective where error is not null order by ts desc limit 1",
        suspect_failure, NULL);
}

static void suspect_missing(struct torch_report *r, const struct torch_figures *f)
{
    (void)buf_addf(&r->suspicions,
                   "torch.exprs: %s was not there at the end of ten steps, so it is not kept\n",
                   f->text);
}

/* A name that was never there; of the living only while the setting has it. */
static int suspect_names(struct torch_report *r)
{
    char sql[700];
    (void)snprintf(sql, sizeof sql,
                   "select case when func is null then name else name || ' of ' || func end from "
                   "python.variables v group by name, func having count(value_type) = 0 and "
                   "max(value) like 'not there at the end of %%'%s order by max(ts) desc limit 4",
                   r->t->kind != TARGET_LIVE
                       ? ""
                       : " and strpos((select max(value) from probing.settings where name = "
                         "'torch.exprs'), case when func is null then name else name || '@' || "
                         "func end) > 0");
    return ask(r, 1, sql, suspect_missing, NULL);
}

static int suspect_numbers(struct torch_report *r, const char *since)
{
    struct torch_figures f;
    char sql[400];
    (void)snprintf(sql, sizeof sql,
                   "select count(*) from python.torch_trace where stage = 'skipped step' and %s",
                   since);
    int rc = ask(r, 1, sql, NULL, &f);
    if (rc == 0 && f.value[0] > 0)
        suspect(r, "%.0f optimizer steps were skipped: gradients had overflown%s", f.value[0], "");
    if (rc == 0)
        rc = ask(r, 3,
                 "select local_step, case when value_type = 'gradient' then 1 else 0 end, func "
                 "from python.variables where name = 'nonfinite' order by ts desc limit 3",
                 suspect_module, NULL);
    return rc;
}

int torch_err_no_plugin(const struct target *t)
{
    if (t->kind == TARGET_BARE)
        return launch_no_core(t->pid, " --plugin torch");
    if (t->kind == TARGET_FILES)
        return err_set(-ENODATA, "%s had no torch plugin in it: there is nothing to show", t->text);
    return err_set(-ENODATA, "%s has no torch plugin: probing -t %s plugin load torch", t->text,
                   t->text);
}

static int read_report(struct torch_report *r, uint64_t window_ns)
{
    static const char within[] = "ts > (select max(ts) from %s) - interval '%.3f seconds'";
    char steps[160], since[160];
    (void)snprintf(steps, sizeof steps, within, "python.torch_step_timing",
                   (double)window_ns / 1e9);
    (void)snprintf(since, sizeof since, within, "python.torch_trace", (double)window_ns / 1e9);
    int rc = read_steps(r, steps);
    if (rc == -ENOENT || rc == -EINVAL)
        return torch_err_no_plugin(r->t);
    read_loop(r);
    if (rc == 0 && r->t->kind == TARGET_LIVE)
        torch_read_waits(r->t, &r->waits, &r->suspicions);
    if (rc == 0)
        read_stand(r);
    if (rc == 0)
        rc = read_cost(r);
    if (rc == 0)
        rc = read_modules(r, since);
    if (rc == 0)
        rc = read_memory(r, since);
    if (rc == 0 && r->steps.value[TORCH_N] >= 1)
        suspect_steps(r);
    if (rc == 0) {
        suspect_growth(r);
        suspect_communication(r);
    }
    if (rc == 0)
        rc = suspect_names(r);
    return rc == 0 ? suspect_numbers(r, since) : rc;
}

/* ---- the command ---- */

struct words {
    uint64_t window_ns, interval_ns;
    bool profile, json, watch;
    const char *steps, *skip, *path;
    uint64_t timeout_ns; /* of profile; 0: not said */
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
    if (strcmp(option, "--timeout") == 0) {
        int rc = parse_ns(value, &w->timeout_ns);
        return rc < 0 ? rc : w->timeout_ns ? 0 : err_set(-EINVAL, "--timeout must be more than 0");
    }
    if (strcmp(option, "--json") == 0)
        return w->json = true, 0;
    if (strcmp(option, "--watch") == 0)
        return w->watch = true, 0;
    if (strcmp(option, "--interval") == 0)
        return w->watch = true, parse_ns(value, &w->interval_ns);
    if (strcmp(option, "--output") == 0) {
        w->path = value;
        return 0;
    }
    if (parse_u64(value, &n) < 0)
        return err_set(-EINVAL, "%s wants a number of steps, not '%s'", option, value);
    *(strcmp(option, "--steps") == 0 ? &w->steps : &w->skip) = value;
    return 0;
}

static int look(const struct target *t, const struct words *w)
{
    static struct torch_report r; /* too large for a stack */
    r = (struct torch_report){.t = t};
    buf_init(&r.waits, LINES_MAX);
    buf_init(&r.suspicions, LINES_MAX);
    flame_init(&r.flame, FLAME_MAX_BYTES);
    r.flame.mode = "time";
    int rc = read_report(&r, w->window_ns);
    if (rc == 0 && r.steps.value[TORCH_N] < 1 && r.n_modules == 0 && r.waits.size == 0 && !w->json)
        rc = err_set(-ENODATA, "no module has been called since plugin torch was loaded");
    if (rc == 0 && w->watch && !w->json)
        terminal_clear();
    if (w->json)
        terminal_exact();
    if (rc == 0)
        (w->json ? torch_show_json : torch_show)(&r);
    flame_done(&r.flame);
    buf_done(&r.waits);
    buf_done(&r.suspicions);
    return rc < 0 ? rc : EXIT_DONE;
}

static int look_again(const struct target *t, const struct words *w)
{
    while (!cli_interrupted) {
        int rc = look(t, w);
        if (rc != EXIT_DONE)
            return rc;
        if (fflush(stdout) != 0)
            return EXIT_DONE; /* nobody reads any more */
        (void)poll(NULL, 0, (int)(w->interval_ns / 1000000));
    }
    return EXIT_DONE;
}

static int capture(const struct target *t, const struct words *w)
{
    struct torch_capture wanted = {.steps = w->steps != NULL ? w->steps : "3",
                                   .skip = w->skip != NULL ? w->skip : "0",
                                   .timeout_ns = w->timeout_ns ? w->timeout_ns : CAPTURE_NS};
    return torch_capture(t, &wanted, w->path);
}

int command_torch(struct target *t, int argc, char **argv)
{
    struct words words = {.window_ns = WINDOW_NS, .interval_ns = WATCH_NS};
    int rc = cli_parse(argc, argv, take, &words);
    if (rc == 0 && !words.profile &&
        (words.steps != NULL || words.skip != NULL || words.path || words.timeout_ns != 0))
        rc = err_set(-EINVAL, "--steps, --skip, --timeout and -o belong to torch profile");
    if (rc == 0 && words.profile && (words.json || words.watch))
        rc = err_set(-EINVAL, "--json and --watch do not belong to torch profile");
    if (rc < 0)
        return cli_misuse(rc);
    if (t->kind == TARGET_BARE && !target_is_files(t))
        return launch_no_core(t->pid, " --plugin torch");
    if (words.profile)
        return capture(t, &words);
    return words.watch ? look_again(t, &words) : look(t, &words);
}
