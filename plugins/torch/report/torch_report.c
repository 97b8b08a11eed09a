/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/torch_report.c - `probing torch`: how a training or inference loop does, on
 * one screen.
 *
 * One thread.  All of it comes from the tables that the torch plugin fills, of the living and the
 * dead; what is not measured is not shown.
 */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "stragglers/stragglers.h"

#define WINDOW_NS UINT64_C(60000000000)
#define WATCH_NS UINT64_C(2000000000)
#define CAPTURE_NS UINT64_C(600000000000)
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

struct query {
    struct torch_figures now;
    void (*each)(struct torch_report *r, const struct torch_figures *f);
    struct torch_report *report;
};

static int take_row(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    struct query *q = arg;
    uint32_t rows = q->now.rows + 1;
    q->now = (struct torch_figures){.rows = rows};
    for (uint32_t i = 0; i < n && i < TORCH_FIGURES; i++) {
        q->now.value[i] = cell_number(&cells[i]);
        if (q->now.text[0] == '\0')
            (void)snprintf(q->now.text, sizeof(q->now.text), "%s", cell_text(&cells[i]));
    }
    if (q->each != NULL)
        q->each(q->report, &q->now);
    return 0;
}

/* Ask; each row goes to `each`, the last one stays in ret. */
static int ask_rows(struct torch_report *r, const char *sql,
                    void (*each)(struct torch_report *, const struct torch_figures *),
                    struct torch_figures *ret)
{
    struct query q = {.each = each, .report = r};
    int rc = r->api->ask(r->api, sql, take_row, &q);
    if (ret != NULL)
        *ret = q.now;
    return rc;
}

/* ---- what is asked ---- */

static int read_steps(struct torch_report *r, const char *since)
{
    char sql[1400];
    (void)snprintf(sql, sizeof(sql),
                   "select count(*), avg(step_duration_sec), median(step_duration_sec), "
                   "approx_percentile(step_duration_sec, 0.99), "
                   "sum(dataloader_sec) / count(*), sum(forward_sec) / count(*), "
                   "sum(backward_sec) / count(*), sum(optimizer_sec) / count(*), "
                   "sum(comm_sec) / count(*), sum(other_sec) / count(*), "
                   "avg(overhead_sec), min(local_step), max(local_step), sum(step_duration_sec), "
                   "count(*) filter (where step_end = 'forward') "
                   "from python.torch_step_timing where %s",
                   since);
    return ask_rows(r, sql, NULL, &r->steps);
}

/* A step without rows against the mean of its two neighbours: drift goes out of the difference. */
static int read_cost(struct torch_report *r)
{
    return ask_rows(
        r,
        "select count(*), avg(around), avg(d), stddev(around - d) from (select sampled, "
        "step_duration_sec as d, (lag(step_duration_sec) over (order by ts) + "
        "lead(step_duration_sec) over (order by ts)) / 2 as around, "
        "lag(sampled) over (order by ts) + lead(sampled) over (order by ts) as neighbours "
        "from python.torch_step_timing) x where sampled = 0 and neighbours = 2",
        NULL, &r->cost);
}

/* Read so many of the newest steps that the answer stays small. */
static int read_modules(struct torch_report *r, const char *since)
{
    struct torch_figures f;
    char sql[400], where[120];
    (void)snprintf(sql, sizeof(sql),
                   "select count(*), min(local_step), max(local_step) from python.torch_trace "
                   "where %s and stage in ('post forward', 'post backward')",
                   since);
    int rc = ask_rows(r, sql, NULL, &f);
    if (rc < 0 || !(f.value[0] > 0))
        return rc;
    double steps = f.value[2] - f.value[1] + 1, most = CALLS_MAX * steps / f.value[0];
    double first = most < steps ? f.value[2] - floor(most) : f.value[1], last = f.value[2];
    if (r->steps.value[TORCH_N] >= 1) { /* whole ones: of others only some modules were called */
        first = fmax(first, r->steps.value[TORCH_FIRST]);
        last = fmin(last, r->steps.value[TORCH_LAST]);
    }
    (void)snprintf(where, sizeof(where), " and local_step between %.0f and %.0f", first, last);
    return slow_modules_read(r, where);
}

/* On the device at steps' ends: the least of the newer half against that of the older one. */
static int read_memory(struct torch_report *r, const char *since)
{
    char sql[1000];
    (void)snprintf(
        sql, sizeof(sql),
        "select max(max_allocated), max(max_cached), "
        "min(allocated) filter (where newer = 0 and ended), "
        "min(allocated) filter (where newer = 1 and ended) from "
        "(select max_allocated, max_cached, allocated, stage = 'post step' as ended, case when ts "
        "> (select min(ts) + (max(ts) - min(ts)) / 2 from python.torch_trace where %s) "
        "then 1 else 0 end as newer from python.torch_trace where max_allocated is not null "
        "and %s) x",
        since, since);
    return ask_rows(r, sql, NULL, &r->memory);
}

static void read_loop(struct torch_report *r)
{
    if (r->api->target != PROBING_TARGET_LIVE ||
        ask_rows(r,
                 "select step_sec, phase_sec, rss_bytes, rss_after_bytes - rss_before_bytes, "
                 "rss_span_sec, phase from "
                 "torch.loop",
                 NULL, &r->loop) < 0)
        r->loop = (struct torch_figures){.rows = 0};
}

/* ---- problems ---- */

static bool is_number(double v)
{
    return v == v;
}

static void add_suspicion(struct torch_report *r, const char *format, double a, const char *text)
{
    char line[512];
    (void)snprintf(line, sizeof(line), format, a, text);
    lines_add(&r->suspicions, "%s\n", line);
}

static void wait_for_worker(struct torch_report *r, const struct torch_figures *f)
{
    lines_add(&r->waits,
              "  the next batch is to come from worker %.0f (pid %.0f), which is %s\n"
              "  where: probing -t %.0f backtrace --external\n",
              f->value[0], f->value[1], f->text, f->value[1]);
}

/* The worker that has the batch, or else who can say more. */
static void tell_where(struct torch_report *r, bool data)
{
    size_t before = r->waits.size;
    if (data)
        (void)ask_rows(
            r,
            "select worker, pid, state from torch.loaders where next_batch_pending = 1 order by "
            "cpu_sec limit 4",
            wait_for_worker, NULL);
    if (r->waits.size == before && r->api->target_pid != 0)
        lines_add(&r->waits, "  where: probing -t %d backtrace\n", (int)r->api->target_pid);
}

/* A loop that stands has no rows to show it. */
static void read_stand(struct torch_report *r)
{
    const double *steps = r->steps.value, *loop = r->loop.value;
    if (r->loop.rows == 0)
        return;
    if (!is_number(loop[LOOP_PHASE_SEC]) && r->waits.size == 0) {
        lines_add(&r->waits, "no module has been called since plugin torch was loaded\n");
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
    lines_add(&r->waits, "no step has ended for %.1f s: the loop has %s%s for %.1f s\n", for_sec,
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
        add_suspicion(r,
                      "waiting for data takes %.0f %% of the time; select * from torch.loaders%s",
                      100 * f[TORCH_DATA] / mean, "");
    if (f[TORCH_COMM] > COMM_SHARE * mean)
        add_suspicion(r, "communication takes %.0f %% of the time: another rank may be slower%s",
                      100 * f[TORCH_COMM] / mean, "");
    if (f[TORCH_OTHER] > OTHER_SHARE * mean)
        add_suspicion(
            r,
            f[TORCH_CALLED] > 0.5 * f[TORCH_N]
                ? "%.0f %% of the time no model is called%s: nothing to do, or slow code"
                : "%.0f %% of the time is in none of torch's parts; flamegraph --mode wall "
                  "shows where%s",
            100 * f[TORCH_OTHER] / mean, "");
    if (f[TORCH_P99] > JITTER * f[TORCH_MEDIAN] && f[TORCH_N] >= JITTER_STEPS)
        add_suspicion(r, "one step in a hundred takes %.1f times the usual one%s",
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
        add_suspicion(r, "the process has grown by %.0f MB, as it keeps what it allocates%s",
                      loop[LOOP_GROWN] / MB, "");
    if (r->memory.rows > 0 && grown > GROWTH_SHARE * memory[MEMORY_BEFORE] && grown > 1)
        add_suspicion(r, "at the steps' ends %.1f MB more of the GPU are in use than before%s",
                      grown, "");
}

static void suspect_module(struct torch_report *r, const struct torch_figures *f)
{
    add_suspicion(r,
                  f->value[1] > 0
                      ? "step %.0f: the first NaN or infinity is in the gradients of module %s"
                      : "step %.0f: the first NaN or infinity came out of module %s",
                  f->value[0], f->text);
}

static void suspect_failure(struct torch_report *r, const struct torch_figures *f)
{
    add_suspicion(r, "step %.0f: %s", f->value[0], f->text);
}

/* Without rc: an older directory's table has no such column. */
static void suspect_communication(struct torch_report *r)
{
    (void)ask_rows(
        r,
        "select local_step, op || ' of group ' || coalesce(group_name, '?') || ' failed: ' "
        "|| error from python.comm_collective where error is not null order by ts desc limit 1",
        suspect_failure, NULL);
}

static void suspect_missing(struct torch_report *r, const struct torch_figures *f)
{
    lines_add(&r->suspicions,
              "torch.variables: %s was not there at the end of ten steps, so it is not kept\n",
              f->text);
}

/* A name that was never there; of the living only while the setting has it. */
static int suspect_names(struct torch_report *r)
{
    char sql[700];
    (void)snprintf(sql, sizeof(sql),
                   "select case when func is null then name else name || ' of ' || func end from "
                   "python.variables v group by name, func having count(value_type) = 0 and "
                   "max(value) like 'not there at the end of %%'%s order by max(ts) desc limit 4",
                   r->api->target != PROBING_TARGET_LIVE
                       ? ""
                       : " and strpos((select max(value) from probing.settings where name = "
                         "'torch.variables'), case when func is null then name else name || '@' || "
                         "func end) > 0");
    return ask_rows(r, sql, suspect_missing, NULL);
}

static int suspect_numbers(struct torch_report *r, const char *since)
{
    struct torch_figures f;
    char sql[400];
    (void)snprintf(sql, sizeof(sql),
                   "select count(*) from python.torch_trace where stage = 'skipped step' and %s",
                   since);
    int rc = ask_rows(r, sql, NULL, &f);
    if (rc == 0 && f.value[0] > 0)
        add_suspicion(r, "%.0f optimizer steps were skipped: gradients had overflown%s", f.value[0],
                      "");
    if (rc == 0)
        rc =
            ask_rows(r,
                     "select local_step, case when value_type = 'gradient' then 1 else 0 end, func "
                     "from python.variables where name = 'nonfinite' order by ts desc limit 3",
                     suspect_module, NULL);
    return rc;
}

static int read_report(struct torch_report *r, uint64_t window_ns)
{
    static const char within[] = "ts > (select max(ts) from %s) - interval '%.3f seconds'";
    char steps[160], since[160];
    (void)snprintf(steps, sizeof(steps), within, "python.torch_step_timing",
                   (double)window_ns / 1e9);
    (void)snprintf(since, sizeof(since), within, "python.torch_trace", (double)window_ns / 1e9);
    int rc = read_steps(r, steps);
    if (rc == -ENOENT || rc == -EINVAL)
        return r->api->no_plugin(r->api);
    read_loop(r);
    if (rc == 0 && r->api->target == PROBING_TARGET_LIVE)
        torch_read_waits(r->api, &r->waits, &r->suspicions);
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

struct args {
    const struct probing_report_api *api;
    uint64_t window_ns, interval_ns;
    bool profile, json, watch;
    const char *steps, *skip, *path;
    uint64_t timeout_ns; /* of profile; 0: not said */
};

static int take_timeout(struct args *w, const char *value)
{
    int rc = w->api->parse_time(w->api, value, &w->timeout_ns);
    return rc < 0          ? rc
           : w->timeout_ns ? 0
                           : report_fail(w->api, -EINVAL, "--timeout must be more than 0");
}

static int parse_option(void *arg, const char *option, const char *value)
{
    struct args *w = arg;
    uint64_t n;
    if (option == NULL && strcmp(value, "profile") == 0)
        return w->profile = true, 0;
    if (option == NULL)
        return report_fail(w->api, -EINVAL, "torch takes no argument '%s'; did you mean profile?",
                           value);
    if (strcmp(option, "--last") == 0)
        return w->api->parse_time(w->api, value, &w->window_ns);
    if (strcmp(option, "--timeout") == 0)
        return take_timeout(w, value);
    if (strcmp(option, "--json") == 0)
        return w->json = true, 0;
    if (strcmp(option, "--watch") == 0)
        return w->watch = true, 0;
    if (strcmp(option, "--interval") == 0)
        return w->watch = true, w->api->parse_time(w->api, value, &w->interval_ns);
    if (strcmp(option, "--output") == 0)
        return w->path = value, 0;
    if (w->api->parse_count(w->api, value, &n) < 0)
        return report_fail(w->api, -EINVAL, "%s wants a number of steps, not '%s'", option, value);
    *(strcmp(option, "--steps") == 0 ? &w->steps : &w->skip) = value;
    return 0;
}

static int show_report(struct torch_report *r, const struct args *w)
{
    const struct probing_report_api *a = r->api;
    int rc = read_report(r, w->window_ns);
    if (rc == 0 && r->steps.value[TORCH_N] < 1 && r->n_modules == 0 && r->waits.size == 0 &&
        !w->json)
        rc = report_fail(a, -ENODATA, "no module has been called since plugin torch was loaded");
    if (rc == 0 && w->watch && !w->json)
        a->clear(a);
    if (w->json)
        a->exact(a);
    if (rc == 0)
        (w->json ? torch_show_json : torch_show)(r);
    return rc;
}

static int look_once(const struct args *w)
{
    struct torch_report *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return report_fail(w->api, -ENOMEM, "no memory for the report");
    r->api = w->api;
    int rc = show_report(r, w);
    slow_modules_free(r);
    free(r->waits.text);
    free(r->suspicions.text);
    free(r);
    return rc;
}

static int look_again(const struct args *w)
{
    while (!w->api->interrupted(w->api)) {
        int rc = look_once(w);
        if (rc < 0)
            return rc;
        if (w->api->flush(w->api) < 0)
            return 0; /* nobody reads any more */
        (void)poll(NULL, 0, (int)(w->interval_ns / 1000000));
    }
    return 0;
}

static int run_capture(const struct args *w)
{
    struct torch_capture wanted = {.steps = w->steps != NULL ? w->steps : "3",
                                   .skip = w->skip != NULL ? w->skip : "0",
                                   .timeout_ns = w->timeout_ns ? w->timeout_ns : CAPTURE_NS};
    return torch_capture(w->api, &wanted, w->path);
}

static int run_report(const struct probing_report_api *a, int argc, const char *const *argv)
{
    struct args words = {.api = a, .window_ns = WINDOW_NS, .interval_ns = WATCH_NS};
    int rc = a->parse(a, argc, argv, parse_option, &words);
    if (rc < 0)
        return rc;
    if (!words.profile &&
        (words.steps != NULL || words.skip != NULL || words.path || words.timeout_ns != 0))
        return a->misuse(a, -EINVAL, "--steps, --skip, --timeout and -o belong to torch profile");
    if (words.profile && (words.json || words.watch))
        return a->misuse(a, -EINVAL, "--json and --watch do not belong to torch profile");
    if (a->target == PROBING_TARGET_BARE)
        return a->no_plugin(a);
    if (words.profile)
        return run_capture(&words);
    return words.watch ? look_again(&words) : look_once(&words);
}

/* ---- what the command shows of it ---- */

static const struct probing_report_option options[] = {
    {"--last", NULL, "TIME", "use the newest data of this length; 60s by default"},
    {"--json", NULL, NULL, "print one line of JSON"},
    {"--watch", NULL, NULL, "repeat every two seconds, or every --interval"},
    {"--interval", NULL, "TIME", "how often to repeat: 500ms, 5s"},
    {"--steps", NULL, "N", "profile: how many steps to capture; 3 by default"},
    {"--skip", NULL, "N", "profile: how many steps to skip first; 0 by default"},
    {"--timeout", NULL, "TIME",
     "profile: end after this long with the steps so far; 10m by default"},
    {"--output", "-o", "FILE", "profile: write the trace to this file; none by default"}};

static const struct probing_report_option straggler_options[] = {
    {"--last", NULL, "N|TIME", "compare so many steps, or those of so long: 500, 10m"},
    {"--json", NULL, NULL, "print one line of JSON"}};

static const char *const straggler_examples[] = {"cluster stragglers",
                                                 "cluster stragglers --job 4711 --last 10m",
                                                 "-t job:4711 stragglers --json"};

static const char *const examples[] = {"-t 4242 torch", "-t 4242 torch --last 10m",
                                       "-t 4242 torch --watch",
                                       "-t 4242 torch profile --steps 3 -o trace.json"};

static const struct probing_report_command commands[] = {
    {.name = "torch",
     .arguments = "[profile]",
     .doc = "summary of a torch training loop: step time, its parts, slow modules, problems",
     .text = "Made of the newest minute of data of plugin torch, of a live process or of one that "
             "has ended. The cost of probing is shown twice: as it was measured, and as the "
             "difference between steps with rows and steps without (torch.baseline_every). `torch "
             "profile` runs torch's own profiler for some steps and writes a trace that Perfetto "
             "and Chrome open; table torch.ops has the totals.",
     PROBING_REPORT_LISTS(options, examples),
     .flags = PROBING_REPORT_TARGET,
     .run = run_report},
    {.name = "stragglers",
     .arguments = "",
     .doc = "the rank of a torch job that the others wait for, since when, and what stands out",
     .text = "Compares the steps of all ranks part by part. A rank that is behind the others "
             "before they wait for each other is late, in the part in which it fell behind. It is "
             "named if it is late by 5 % of a step in most steps of a stretch, or now and then by "
             "25 % and more than all others. Jobs whose ranks differ only by chance get no name. "
             "Without --last these are the newest 1000 steps, and of the hour before them those "
             "that took long. Load plugin system as well: it has the signs of processes and hosts.",
     PROBING_REPORT_LISTS(straggler_options, straggler_examples),
     .flags = PROBING_REPORT_TARGET | PROBING_REPORT_JOB,
     .run = straggler_run}};

PROBING_REPORT_ENTRY("torch", commands);
