/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/report/nccl_report.c - `probing nccl`: the slowest communicators, who is waited for,
 * and what is in flight.
 *
 * One thread.  All of it comes from the plugin's tables and views, of the living and the dead.
 */
#include <errno.h>

#include "nccl_hang.h"
#include "report_sdk.h"

#define WINDOW_NS UINT64_C(600000000000)
#define ROWS 5
#define INFLIGHT_ROWS 10

struct args {
    const struct probing_report_api *api;
    bool json;
    uint64_t last_ns;
    char since[160]; /* a time in SQL */
    uint32_t shown;  /* rows, but for that of the state */
};

struct section { /* rows of one question, as they are shown */
    struct args *args;
    struct report_json json;
    uint32_t rows;
};

/* ---- words ---- */

static int parse_option(void *arg, const char *option, const char *value)
{
    struct args *w = arg;
    if (option == NULL)
        return report_fail(w->api, -EINVAL, "nccl takes no argument '%s'", value);
    if (strcmp(option, "--json") == 0)
        return w->json = true, 0;
    return w->api->parse_time(w->api, value, &w->last_ns); /* --last */
}

static void time_text(double ns, char ret[32])
{
    if (!(ns >= 0))
        (void)snprintf(ret, 32, "?");
    else if (ns < 1e6)
        (void)snprintf(ret, 32, "%.0f us", ns / 1e3);
    else if (ns < 1e9)
        (void)snprintf(ret, 32, "%.1f ms", ns / 1e6);
    else
        (void)snprintf(ret, 32, "%.1f s", ns / 1e9);
}

static const char *fitted_text(const struct args *w, const struct probing_report_cell *c,
                               char ret[128])
{
    if (w->api->fit(w->api, cell_text(c), strlen(cell_text(c)), 24, 0, ret, 128) < 0 || !ret[0])
        (void)snprintf(ret, 128, "-");
    return ret;
}

static void print_heading(struct section *s, const char *text)
{
    s->args->shown++;
    if (s->rows++ == 0)
        report_printf(s->args->api, "%s\n", text);
}

/* ---- rows, each as text or as an object ---- */

struct json_column {
    const char *name;
    bool text;
};

static void row_json(struct section *s, const struct json_column *columns, uint32_t n,
                     const struct probing_report_cell *c)
{
    json_item(&s->json);
    for (uint32_t i = 0; i < n; i++)
        if (columns[i].text)
            json_text(&s->json, columns[i].name, cell_text(&c[i]));
        else
            json_number(&s->json, columns[i].name, cell_number(&c[i]));
    json_close(&s->json, '}');
}

#define N(list) ((uint32_t)(sizeof(list) / sizeof((list)[0])))

static int show_state(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct section *s = arg;
    static const struct json_column columns[] = {{"state", true}, {"reason", true}};
    if (n < 2)
        return 0;
    if (s->args->json) {
        row_json(s, columns, N(columns), c);
        return 0;
    }
    char line[700];
    int size = snprintf(line, sizeof(line), "NCCL: %s: %s", cell_text(&c[0]), cell_text(&c[1]));
    s->args->api->print_wrapped(s->args->api, "", line, (size_t)size);
    return 0;
}

/* communicator, ranks, operations, time, the longest, GB/s, function */
static int show_communicator(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct section *s = arg;
    static const struct json_column columns[] = {
        {"communicator", true}, {"ranks", false},       {"operations", false}, {"exec_ns", false},
        {"longest_ns", false},  {"algobw_gbps", false}, {"coll_func", true}};
    char name[128], time[32], longest[32];
    if (n < N(columns))
        return 0;
    if (s->args->json) {
        row_json(s, columns, N(columns), c);
        return 0;
    }
    print_heading(
        s, "\ncommunicators and operations by their time\n"
           "  communicator              ranks       ops       time    longest     GB/s  operation");
    time_text(cell_number(&c[3]), time);
    time_text(cell_number(&c[4]), longest);
    report_printf(s->args->api, "  %-24s %6.0f %9.0f %10s %10s %8.1f  %s\n",
                  fitted_text(s->args, &c[0], name), cell_number(&c[1]), cell_number(&c[2]), time,
                  longest, cell_number(&c[5]), cell_text(&c[6]));
    return 0;
}

/* communicator, the rank, is it this one, waits, how many */
static int show_culprit(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct section *s = arg;
    static const struct json_column columns[] = {{"communicator", true},
                                                 {"culprit_rank", false},
                                                 {"own", false},
                                                 {"wait_ns", false},
                                                 {"proxy_ops", false}};
    char name[128], time[32];
    if (n < N(columns))
        return 0;
    if (s->args->json) {
        row_json(s, columns, N(columns), c);
        return 0;
    }
    print_heading(
        s, "\nwho is waited for on the network, by ranks of the communicator (sums of waits, which "
           "overlap)");
    time_text(cell_number(&c[3]), time);
    report_printf(s->args->api, "  rank %-5.0f %-24s %10s in %.0f proxy operation%s%s\n",
                  cell_number(&c[1]), fitted_text(s->args, &c[0], name), time, cell_number(&c[4]),
                  cell_number(&c[4]) == 1 ? "" : "s",
                  cell_int(&c[2]) == 1 ? ": this rank's own GPU"
                                       : ": its data, or its leave to send");
    return 0;
}

/* age, function, number, communicator, state, standing still, peer, channels, culprit */
static int show_inflight(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct section *s = arg;
    static const struct json_column columns[] = {
        {"age_ns", false},      {"coll_func", true}, {"seq", false},
        {"communicator", true}, {"state", true},     {"state_ns", false},
        {"kind", true},         {"events", false},   {"culprit_rank", false}};
    char age[32], still[32], name[128], seq[24] = "", culprit[48] = "", events[40] = "";
    if (n < N(columns))
        return 0;
    if (s->args->json) {
        row_json(s, columns, N(columns), c);
        return 0;
    }
    print_heading(s, s->args->api->target == PROBING_TARGET_LIVE
                         ? "\nin flight, the oldest first"
                         : "\nin flight when it was last heard of, the oldest first");
    time_text(cell_number(&c[0]), age);
    time_text(cell_number(&c[5]), still);
    if (c[2].type == PROBING_I64)
        (void)snprintf(seq, sizeof(seq), " %lld", (long long)cell_int(&c[2]));
    if (c[8].type == PROBING_I64)
        (void)snprintf(culprit, sizeof(culprit), ", waits for rank %lld of it",
                       (long long)cell_int(&c[8]));
    if (strcmp(cell_text(&c[6]), "proxy_op") == 0)
        (void)snprintf(events, sizeof(events), " (%lld proxy operation%s)",
                       (long long)cell_int(&c[7]), cell_int(&c[7]) == 1 ? "" : "s");
    report_printf(s->args->api, "  %10s  %s%s of %s%s: %s for %s%s\n", age, cell_text(&c[1]), seq,
                  fitted_text(s->args, &c[3], name), events, cell_text(&c[4]), still, culprit);
    return 0;
}

static int show_lost(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct section *s = arg;
    static const struct json_column columns[] = {{"dropped", false}, {"not_written", false}};
    if (n < N(columns))
        return 0;
    if (s->args->json)
        row_json(s, columns, N(columns), c);
    else if (cell_number(&c[0]) > 0 || cell_number(&c[1]) > 0)
        report_printf(s->args->api,
                      "\n%.0f events were dropped as there was no room, and %.0f rows: numbers "
                      "above are of the rest\n",
                      cell_number(&c[0]), cell_number(&c[1]));
    return 0;
}

/* source, operation, how many, time */
static int show_torch(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct section *s = arg;
    static const struct json_column columns[] = {
        {"op", true}, {"group", true}, {"operations", false}, {"duration_ms", false}};
    char name[128];
    if (n < N(columns))
        return 0;
    if (s->args->json) {
        row_json(s, columns, N(columns), c);
        return 0;
    }
    print_heading(s, "\nas torch.distributed was called (NCCL told nothing)");
    report_printf(s->args->api, "  %-28s %-16s %9.0f", cell_text(&c[0]),
                  fitted_text(s->args, &c[1], name), cell_number(&c[2]));
    report_printf(s->args->api, c[3].type ? " %10.1f ms\n" : "          ?\n", cell_number(&c[3]));
    return 0;
}

/* ---- questions ---- */

static int ask_section(struct args *w, const char *name, const char *sql,
                       int (*row)(void *arg, const struct probing_report_cell *cells, uint32_t n),
                       uint32_t *ret_rows)
{
    struct section s = {.args = w, .json = {.api = w->api}};
    if (w->json)
        report_printf(w->api, ",\"%s\":[", name);
    int rc = w->api->ask(w->api, sql, row, &s);
    if (w->json)
        report_printf(w->api, "]");
    if (ret_rows)
        *ret_rows = s.rows;
    /* A process that has no table for it has nothing of it. */
    return rc == -ENOENT || rc == -EINVAL ? 0 : rc;
}

static int show_inflight_all(struct args *w)
{
    char sql[900];
    (void)snprintf(sql, sizeof(sql),
                   "select max(age_ns), coll_func, seq, coalesce(comm_name, comm_hash), state, "
                   "max(state_ns), kind, count(*), culprit_rank from nccl.inflight_ops group by "
                   "case when kind = 'proxy_op' then 0 else id end, coll_func, seq, "
                   "coalesce(comm_name, comm_hash), state, kind, culprit_rank order by max(age_ns) "
                   "desc limit %d",
                   INFLIGHT_ROWS);
    return ask_section(w, "inflight", sql, show_inflight, NULL);
}

static int show_all(struct args *w)
{
    char sql[1200];
    uint32_t communicators = 0;
    int rc = w->api->target == PROBING_TARGET_LIVE
                 ? ask_section(w, "state", "select state, reason from nccl.profiler_state",
                               show_state, NULL)
                 : 0;
    (void)snprintf(sql, sizeof(sql),
                   "select coalesce(comm_name, comm_hash), max(n_ranks), count(*), "
                   "sum(exec_time_ns), max(exec_time_ns), sum(case when exec_time_ns > 0 then "
                   "msg_size_bytes end) * 1.0 / nullif(sum(case when msg_size_bytes is not null "
                   "then exec_time_ns end), 0), coll_func from nccl.coll_perf where ts >= %s group "
                   "by coalesce(comm_name, comm_hash), coll_func order by 4 desc nulls last limit "
                   "%d",
                   w->since, ROWS);
    if (rc == 0)
        rc = ask_section(w, "communicators", sql, show_communicator, &communicators);
    (void)snprintf(sql, sizeof(sql),
                   "select coalesce(comm_name, comm_hash), culprit_rank, (culprit_rank = "
                   "rank)::bigint, sum(culprit_wait_ns), count(*) from nccl.proxy_ops where "
                   "culprit_rank is not null and ts >= %s group by 1, 2, 3 order by 4 desc "
                   "limit %d",
                   w->since, ROWS);
    if (rc == 0)
        rc = ask_section(w, "culprits", sql, show_culprit, NULL);
    if (rc == 0)
        rc = show_inflight_all(w);
    (void)snprintf(sql, sizeof(sql),
                   "select op, group_name, count(*), sum(duration_ms) from collectives where "
                   "source = 'torch' and timestamp >= %s group by 1, 2 order by 4 desc nulls last, "
                   "3 desc limit %d",
                   w->since, ROWS);
    if (rc == 0 && communicators == 0)
        rc = ask_section(w, "torch", sql, show_torch, NULL);
    if (rc == 0)
        rc = ask_section(w, "lost",
                         "select sum(d), sum(e) from (select comm_hash, max(pool_exhausted) as d, "
                         "max(write_errors) as e from nccl.profiler_counters group by 1) c",
                         show_lost, NULL);
    if (rc == 0 && !w->json && !w->shown)
        report_printf(w->api, "no operation of NCCL was seen\n");
    return rc;
}

static int is_there(void *arg, const struct probing_report_cell *cells, uint32_t n)
{
    (void)arg, (void)cells, (void)n;
    return 0;
}

static int report_run(const struct probing_report_api *a, int argc, const char *const *argv)
{
    struct args w = {.api = a, .last_ns = WINDOW_NS};
    int rc = a->parse(a, argc, argv, parse_option, &w);
    if (rc < 0)
        return rc;
    if (a->target == PROBING_TARGET_BARE)
        return a->no_plugin(a);
    (void)snprintf(w.since, sizeof(w.since), "%s - interval '%.3f seconds'",
                   a->target == PROBING_TARGET_LIVE
                       ? "now()"
                       : "(select max(ts) from (select ts from nccl.coll_perf union all select ts "
                         "from nccl.inflight_log) e)",
                   (double)w.last_ns / 1e9);
    /* The living compute it, the dead have stored it: without either the plugin was not there. */
    rc = a->ask(a,
                a->target == PROBING_TARGET_LIVE ? "select state from nccl.profiler_state"
                                                 : "select id from nccl.coll_perf limit 1",
                is_there, NULL);
    if (rc < 0)
        return rc == -ENOENT ? a->no_plugin(a) : rc;
    if (w.json) {
        a->exact(a);
        report_printf(a, "{\"last_ns\":%llu", (unsigned long long)w.last_ns);
    }
    rc = show_all(&w);
    if (w.json)
        report_printf(a, "}\n");
    return rc;
}

/* ---- what the command shows of it ---- */

static const struct probing_report_option options[] = {
    {"--last", NULL, "TIME", "what ended in this time; 10m by default"},
    {"--json", NULL, NULL, "the same as one line of JSON"}};

static const char *const examples[] = {"-t 4242 nccl", "-t 4242 nccl --last 1m"};

static const struct probing_report_option hang_options[] = {
    {"--json", NULL, NULL, "the same as one line of JSON, with all ranks"}};

static const char *const hang_examples[] = {"-t job:4711 nccl_hang",
                                            "cluster nccl_hang --job 4711"};

static const struct probing_report_command commands[] = {
    {.name = "nccl",
     .arguments = "",
     .doc = "NCCL: the slowest communicators, who waits for whom, what is in flight",
     .text =
         "Of a live process or of one that has ended, including what was in flight at its end. "
         "NCCL reports its operations only if the plugin was there before the first communicator: "
         "use probing launch --plugin nccl, PROBING=1, or NCCL_PROFILER_PLUGIN with the path of "
         "nccl.so. Otherwise the report says so, and shows the calls of torch.distributed.",
     PROBING_REPORT_LISTS(options, examples),
     .flags = PROBING_REPORT_TARGET,
     .run = report_run},
    {.name = "nccl_hang",
     .arguments = "",
     .doc = "NCCL's operations that a job's ranks stand in: who has not come, who waits for whom",
     .text = "Compares what is in flight on all ranks that the target names, oldest first. A rank "
             "that has not called a collective has another place in the program: look at its "
             "backtrace. Waits on the network are told by NCCL's proxy threads; the last one in "
             "the chain is the one that the others wait for.",
     PROBING_REPORT_LISTS(hang_options, hang_examples),
     .flags = PROBING_REPORT_TARGET | PROBING_REPORT_JOB,
     .run = nccl_hang_run}};

PROBING_REPORT_ENTRY("nccl", commands);
