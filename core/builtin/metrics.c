/* SPDX-License-Identifier: Apache-2.0
 *
 * core/builtin/metrics.c - the command "metrics": counters of the core and its process, as
 * OpenMetrics.
 *
 * Threads: workers, one answer each; counters are read as they are.  HTTP shows it as /metrics, and
 * SQL as probing.metrics (metrics_table.c).
 * A family is written whole before the next one, as the format wants it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/builtin/builtin.h"
#include "core/plugin_file/declared.h"
#include "core/plugin_host/plugin_host.h"
#include "core/server/server.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "sdk/lib/proc/task.h"

#define ANSWER_MAX_BYTES ((size_t)4 << 20)
#define QUERY_NS (2 * NS_PER_S) /* the rest is told without what takes longer */
#define THREADS_MAX 64          /* of ours */

struct metrics {
    struct buf text;
    bool open; /* OpenMetrics; else the older text format, in which a counter is its `_total` */
};

static void add_family(struct metrics *m, const char *name, const char *type, const char *unit,
                       const char *help)
{
    const char *total = !m->open && strcmp(type, "counter") == 0 ? "_total" : "";
    (void)buf_addf(&m->text, "# TYPE %s%s %s\n", name, total, type);
    if (unit && m->open)
        (void)buf_addf(&m->text, "# UNIT %s %s\n", name, unit);
    (void)buf_addf(&m->text, "# HELP %s%s %s\n", name, total, help);
}

/* A label's value; `name` comes with what stands before it: "{table" or ",reason". */
static void add_label(struct metrics *m, const char *name, const char *value)
{
    (void)buf_addf(&m->text, "%s=\"", name);
    for (const char *c = value; *c; c++)
        if (*c == '\n')
            (void)buf_adds(&m->text, "\\n");
        else if (*c == '"' || *c == '\\')
            (void)buf_addf(&m->text, "\\%c", *c);
        else
            (void)buf_addc(&m->text, *c);
    (void)buf_addc(&m->text, '"');
}

/* ---- tables ---- */

struct tables_now {
    struct table **all;
    struct store_table_stats *stats;
    uint32_t n;
};

static void table_name(struct metrics *m, const char *metric, const struct table *t)
{
    char name[160];
    (void)snprintf(name, sizeof(name), "%s.%s", t->schema, t->name);
    (void)buf_adds(&m->text, metric);
    add_label(m, "{table", name);
}

static void each_table(struct metrics *m, const struct tables_now *now, const char *metric,
                       uint64_t (*value)(const struct table *, const struct store_table_stats *))
{
    for (uint32_t i = 0; i < now->n; i++) {
        table_name(m, metric, now->all[i]);
        (void)buf_addf(&m->text, "} %llu\n",
                       (unsigned long long)value(now->all[i], &now->stats[i]));
    }
}

static uint64_t rows_of(const struct table *t, const struct store_table_stats *s)
{
    (void)t;
    return s->rows;
}

static uint64_t bytes_of(const struct table *t, const struct store_table_stats *s)
{
    (void)t;
    return s->bytes;
}

static uint64_t waiting_of(const struct table *t, const struct store_table_stats *s)
{
    (void)t;
    return s->waiting;
}

static uint64_t expired_of(const struct table *t, const struct store_table_stats *s)
{
    (void)t;
    return s->expired;
}

static uint64_t appended_of(const struct table *t, const struct store_table_stats *s)
{
    (void)s;
    return atomic_load_explicit(t->appended, memory_order_relaxed);
}

static uint64_t values_of(const struct table *t, const struct store_table_stats *s)
{
    (void)s;
    return atomic_load_explicit(&t->lost[TABLE_LOST_VALUE], memory_order_relaxed);
}

static void write_tables(struct metrics *m, const struct tables_now *now)
{
    add_family(m, "probing_table_rows", "gauge", NULL, "Rows in the store.");
    each_table(m, now, "probing_table_rows", rows_of);
    add_family(m, "probing_table_bytes", "gauge", "bytes",
               "Bytes that the rows take in the store.");
    each_table(m, now, "probing_table_bytes", bytes_of);
    add_family(m, "probing_table_waiting_rows", "gauge", NULL,
               "Rows that were appended and are still in the rings.");
    each_table(m, now, "probing_table_waiting_rows", waiting_of);
    add_family(m, "probing_table_appended_rows", "counter", NULL, "Rows taken out of the rings.");
    each_table(m, now, "probing_table_appended_rows_total", appended_of);
    add_family(m, "probing_table_expired_rows", "counter", NULL, "Rows removed by retention.");
    each_table(m, now, "probing_table_expired_rows_total", expired_of);
    add_family(m, "probing_table_lost_rows", "counter", NULL,
               "Rows that could not be stored, by reason.");
    for (uint32_t i = 0; i < now->n; i++)
        for (int k = 0; k < TABLE_LOST_ROWS; k++) {
            if ((k == TABLE_LOST_NO_TABLE) != (now->all[i]->id == 0))
                continue;
            table_name(m, "probing_table_lost_rows_total", now->all[i]);
            add_label(m, ",reason", table_loss_names[k]);
            (void)buf_addf(&m->text, "} %llu\n",
                           (unsigned long long)atomic_load_explicit(&now->all[i]->lost[k],
                                                                    memory_order_relaxed));
        }
    add_family(m, "probing_table_lost_values", "counter", NULL,
               "Values missing in rows that were stored.");
    each_table(m, now, "probing_table_lost_values_total", values_of);
}

static int add_tables(struct core *c, struct metrics *m)
{
    struct tables_now now = {.all = calloc(TABLES_MAX + 1, sizeof(struct table *)),
                             .stats = calloc(TABLES_MAX + 1, sizeof(struct store_table_stats))};
    int rc = now.all && now.stats ? 0 : err_set(-ENOMEM, "no memory to list tables");
    uint32_t n = rc == 0 ? tables_list(c->tables, now.all, TABLES_MAX) : 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        if (now.all[i]->scan)
            continue; /* computed: it has no rows of its own */
        rc = store_stats(c->store, now.all[i], &now.stats[now.n]);
        now.all[now.n++] = now.all[i];
    }
    if (rc == 0)
        now.all[now.n++] = tables_refused(c->tables); /* last: it has no rows, only losses */
    if (rc == 0)
        write_tables(m, &now);
    free(now.all);
    free(now.stats);
    return rc;
}

/* ---- the process, and our threads in it ---- */

static double ticks_to_s(uint64_t ticks)
{
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static uint64_t count_fds(void)
{
    struct proc_numbers all;
    struct proc_number one;
    uint64_t n = 0;
    (void)proc_numbers_open(&all, "/proc/self/fd");
    while (proc_numbers_next(&all, &one))
        n++;
    proc_numbers_close(&all);
    return n > 0 ? n - 1 : 0; /* the one that lists */
}

static int add_process(struct metrics *m)
{
    struct proc_stat stat;
    struct rlimit limit;
    struct rusage used;
    int rc = proc_stat_of(0, 0, &stat);
    if (rc == 0 && (getrusage(RUSAGE_SELF, &used) != 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0))
        rc = -errno;
    if (rc < 0)
        return err_set(rc, "the process' own numbers: %s", strerror(-rc));
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    add_family(m, "process_cpu_seconds", "counter", "seconds", "CPU time, user and system.");
    (void)buf_addf(&m->text, "process_cpu_seconds_total %.6f\n", cpu);
    add_family(m, "process_resident_memory_bytes", "gauge", "bytes", "Resident memory.");
    (void)buf_addf(&m->text, "process_resident_memory_bytes %llu\n",
                   (unsigned long long)stat.rss_pages * page);
    add_family(m, "process_virtual_memory_bytes", "gauge", "bytes", "Virtual memory.");
    (void)buf_addf(&m->text, "process_virtual_memory_bytes %llu\n",
                   (unsigned long long)stat.size_bytes);
    add_family(m, "process_threads", "gauge", NULL, "Threads, including those of probing.");
    (void)buf_addf(&m->text, "process_threads %llu\n", (unsigned long long)stat.threads);
    add_family(m, "process_open_fds", "gauge", NULL,
               "Open file descriptors, including those of probing.");
    (void)buf_addf(&m->text, "process_open_fds %llu\n", (unsigned long long)count_fds());
    add_family(m, "process_max_fds", "gauge", NULL, "File descriptors that the process may open.");
    (void)buf_addf(&m->text, "process_max_fds %llu\n", (unsigned long long)limit.rlim_cur);
    return 0;
}

struct our_thread {
    char name[16];
    uint32_t n;
    uint64_t ticks;
};

/* Threads of ours are told by their names, and summed by them: there are several workers. */
static void add_thread(struct our_thread *all, uint32_t *n, pid_t tid)
{
    struct proc_stat stat;
    char name[16];
    if (proc_stat_of(0, tid, &stat) < 0 || strncmp(stat.comm, "probing/", 8) != 0)
        return; /* it has ended, or is the program's */
    (void)snprintf(name, sizeof(name), "%.15s", stat.comm);
    uint32_t i = 0;
    while (i < *n && strcmp(all[i].name, name) != 0)
        i++;
    if (i == THREADS_MAX)
        return;
    if (i == *n) {
        all[(*n)++] = (struct our_thread){.n = 0};
        memcpy(all[i].name, name, sizeof(name));
    }
    all[i].n++;
    all[i].ticks += stat.user_ticks + stat.system_ticks;
}

static void add_threads(struct metrics *m)
{
    struct our_thread all[THREADS_MAX];
    uint32_t n = 0;
    struct proc_numbers tasks;
    struct proc_number one;
    (void)proc_threads_open(&tasks, 0);
    while (proc_numbers_next(&tasks, &one))
        add_thread(all, &n, (pid_t)one.value);
    proc_numbers_close(&tasks);
    add_family(m, "probing_thread_cpu_seconds", "counter", "seconds",
               "CPU time that probing itself used, by thread: probing/drain writes rows.");
    for (uint32_t i = 0; i < n; i++) {
        (void)buf_adds(&m->text, "probing_thread_cpu_seconds_total");
        add_label(m, "{thread", all[i].name);
        (void)buf_addf(&m->text, "} %.2f\n", ticks_to_s(all[i].ticks));
    }
    add_family(m, "probing_threads", "gauge", NULL, "Threads of probing itself, by name.");
    for (uint32_t i = 0; i < n; i++) {
        (void)buf_adds(&m->text, "probing_threads");
        add_label(m, "{thread", all[i].name);
        (void)buf_addf(&m->text, "} %u\n", all[i].n);
    }
}

/* ---- the server ---- */

static void add_one(struct metrics *m, const char *name, const char *type, const char *help,
                    uint64_t value)
{
    add_family(m, name, type, NULL, help);
    (void)buf_addf(&m->text, "%s%s %llu\n", name, strcmp(type, "counter") == 0 ? "_total" : "",
                   (unsigned long long)value);
}

static void add_server(struct core *c, struct metrics *m)
{
    struct server_stats s = {0};
    if (c->server)
        server_stats(c->server, &s);
    add_family(m, "probing_server_connections", "gauge", NULL, "Open connections, by transport.");
    (void)buf_addf(&m->text, "probing_server_connections{door=\"unix\"} %u\n", s.local);
    (void)buf_addf(&m->text, "probing_server_connections{door=\"tcp\"} %u\n", s.tcp);
    add_one(m, "probing_server_streams", "gauge", "Different statements that clients watch.",
            s.streams);
    add_one(m, "probing_server_queued_bytes", "gauge", "Answers that wait for clients.", s.queued);
    add_one(m, "probing_server_accepted", "counter", "Connections accepted.", s.accepted);
    add_one(m, "probing_server_turned_away", "counter", "Connections and requests refused.",
            s.refused);
    add_one(m, "probing_server_requests", "counter", "Commands and streams requested.", s.requests);
    add_one(m, "probing_server_lost_messages", "counter",
            "Messages of streams that were lost because clients were too slow.", s.lost);
}

/* ---- what is asked in SQL ---- */

struct asked {
    struct metrics *m;
    int (*row)(struct asked *a, const struct sql_rows *rows, uint32_t row);
};

static int take_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    (void)arg, (void)columns, (void)n;
    return 0;
}

static int take_rows(void *arg, const struct sql_rows *rows)
{
    struct asked *a = arg;
    int rc = 0;
    for (uint32_t i = 0; i < sql_rows_count(rows) && rc == 0; i++)
        rc = a->row(a, rows, i);
    return rc;
}

static void ask_engine(struct core *c, const char *statement, struct asked *a)
{
    struct sql_sink sink = {.arg = a, .columns = take_columns, .rows = take_rows};
    struct sql_options o = {.timeout_ns = QUERY_NS, .max_rows = UINT64_MAX};
    struct sql_report report;
    if (sql_run(c->sql, statement, strlen(statement), &o, &sink, &report) < 0)
        err_clear(); /* a table that is not there is no metric */
}

static int plugin_row(struct asked *a, const struct sql_rows *rows, uint32_t row)
{
    char name[64];
    struct sql_value v[2];
    for (uint32_t k = 0; k < 2; k++)
        sql_rows_value(rows, row, k, &v[k]);
    (void)snprintf(name, sizeof(name), "%.*s", v[0].type == SQL_TEXT ? (int)v[0].text.size : 0,
                   v[0].type == SQL_TEXT ? v[0].text.data : "");
    (void)buf_adds(&a->m->text, "probing_plugin_running");
    add_label(a->m, "{plugin", name);
    return buf_addf(&a->m->text, "} %d\n", v[1].type == SQL_BOOL && v[1].boolean);
}

/* ---- what plugins declare ---- */

#define LABELS_MAX 8
#define DECLARED_ROWS 1000 /* of a metric */

struct declared_answer {
    struct metrics *m;
    const struct probing_metric *metric;
    char name[160];
    char labels[LABELS_MAX + 1][64]; /* names of the columns */
    uint32_t n, value;               /* columns; which one is the value */
    bool begun;
};

static int declared_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct declared_answer *a = arg;
    a->n = n;
    a->value = n;
    if (n > LABELS_MAX + 1)
        return err_set(-EINVAL, "more than %d labels", LABELS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(a->labels[i], sizeof(a->labels[i]), "%s", columns[i].name);
        if (strcmp(columns[i].name, "value") == 0)
            a->value = i;
        else if (!text_is_name(columns[i].name))
            return err_set(-EINVAL, "'%.60s' is no label", columns[i].name);
    }
    return a->value < n ? 0 : err_set(-EINVAL, "no column is called value");
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

/* Its head, before the first value: where there is none, there is no family.  false: others have
 * its name. */
static bool begin_declared(struct declared_answer *a)
{
    const char *unit = ends_with(a->name, "_seconds") && a->metric->unit == PROBING_SECONDS
                           ? "seconds"
                       : ends_with(a->name, "_bytes") && a->metric->unit == PROBING_BYTES ? "bytes"
                                                                                          : NULL;
    const char *kind = a->metric->kind == PROBING_COUNTER ? "counter" : "gauge";
    char head[200];
    for (int total = 0; total < 2 && !a->begun; total++) {
        (void)snprintf(head, sizeof(head), "# TYPE %s%s ", a->name, total ? "_total" : "");
        if (strstr(buf_text(&a->m->text), head))
            return false;
    }
    if (!a->begun)
        add_family(a->m, a->name, kind, unit, a->metric->help);
    a->begun = true;
    return true;
}

static void declared_label(struct declared_answer *a, const struct sql_value *v, uint32_t column,
                           const char *before)
{
    char name[66], text[256];
    size_t n = v->type == SQL_TEXT ? v->text.size : 0;
    if (v->type == SQL_TEXT)
        (void)snprintf(text, sizeof(text), "%.*s", n < 200 ? (int)n : 200, v->text.data);
    else
        (void)sql_cell_text(v, /* exact= */ true, text);
    (void)snprintf(name, sizeof(name), "%s%s", before, a->labels[column]);
    add_label(a->m, name, v->type == SQL_NULL ? "" : text);
}

static int declared_row(struct declared_answer *a, const struct sql_rows *rows, uint32_t row)
{
    struct sql_value v, cell;
    sql_rows_value(rows, row, a->value, &v);
    if (v.type != SQL_INT && v.type != SQL_DOUBLE)
        return 0; /* not known */
    if (!begin_declared(a))
        return err_set(-EEXIST, "%s is there already", a->name);
    (void)buf_addf(&a->m->text, "%s%s", a->name,
                   a->metric->kind == PROBING_COUNTER ? "_total" : "");
    const char *before = "{";
    for (uint32_t i = 0; i < a->n; i++) {
        if (i == a->value)
            continue;
        sql_rows_value(rows, row, i, &cell);
        declared_label(a, &cell, i, before);
        before = ",";
    }
    if (before[0] == ',')
        (void)buf_addc(&a->m->text, '}');
    if (v.type == SQL_INT)
        return buf_addf(&a->m->text, " %lld\n", (long long)v.integer);
    return buf_addf(&a->m->text, " %.9g\n", v.number);
}

static int declared_rows(void *arg, const struct sql_rows *rows)
{
    int rc = 0;
    for (uint32_t i = 0; i < sql_rows_count(rows) && rc == 0; i++)
        rc = declared_row(arg, rows, i);
    return rc;
}

struct declared_metrics {
    struct core *c;
    struct metrics *m;
};

/* A metric that cannot be asked for (its table is not there yet) is left out. */
static int add_declared(void *arg, const struct declared *d)
{
    const struct declared_metrics *of = arg;
    for (uint32_t i = 0; i < d->all.n_metrics; i++) {
        struct declared_answer a = {.m = of->m, .metric = &d->all.metrics[i]};
        struct sql_sink sink = {.arg = &a, .columns = declared_columns, .rows = declared_rows};
        struct sql_options o = {.timeout_ns = QUERY_NS, .max_rows = DECLARED_ROWS};
        struct sql_report report;
        (void)snprintf(a.name, sizeof(a.name), "probing_%s_%s", d->plugin, a.metric->name);
        if (sql_run(of->c->sql, a.metric->sql, strlen(a.metric->sql), &o, &sink, &report) < 0)
            err_clear();
    }
    return 0;
}

static void add_asked(struct core *c, struct metrics *m)
{
    struct asked plugins = {.m = m, .row = plugin_row};
    struct declared_metrics declared = {c, m};
    add_family(m, "probing_plugin_running", "gauge", NULL, "1 while the plugin runs, 0 otherwise.");
    ask_engine(c, "select name, state = 'running' from probing.plugins order by 1", &plugins);
    (void)host_declared_each(c->host, /* stopped= */ false, add_declared, &declared);
}

static int write_all(struct core *c, struct metrics *m)
{
    add_family(m, "probing_build_info", "gauge", NULL, "Version of the core.");
    (void)buf_adds(&m->text, "probing_build_info");
    add_label(m, "{version", c->version);
    (void)buf_adds(&m->text, "} 1\n");
    int rc = add_process(m);
    if (rc == 0)
        rc = add_tables(c, m);
    if (rc < 0)
        return rc;
    add_threads(m);
    add_server(c, m);
    add_asked(c, m);
    if (m->open)
        (void)buf_adds(&m->text, "# EOF\n");
    return m->text.failed
               ? err_set(m->text.failed, "the metrics are longer than %zu bytes", ANSWER_MAX_BYTES)
               : 0;
}

int metrics_text(struct core *c, struct buf *ret)
{
    struct metrics m = {.open = true};
    buf_init(&m.text, ANSWER_MAX_BYTES);
    int rc = write_all(c, &m);
    *ret = m.text;
    return rc;
}

static int run_metrics(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct metrics m = {.open = argc == 1};
    if (argc > 2 || (argc == 2 && strcmp(argv[1], "--text") != 0))
        return err_set(-EINVAL, "metrics takes no arguments but --text");
    buf_init(&m.text, ANSWER_MAX_BYTES);
    int rc = write_all(self, &m);
    out->clean = true; /* figures, and names of ours */
    if (rc == 0)
        rc = out->write(out, m.text.data, m.text.size);
    buf_done(&m.text);
    return rc;
}

int metrics_command_add(struct core *c)
{
    static const struct probing_command command = {
        .size = sizeof(command),
        .name = "metrics",
        .usage = "[--text]",
        .doc = "counters of the core and its process, as OpenMetrics; --text: for Prometheus "
               "before 2.5",
        .run = run_metrics};
    return host_command_add(c->host, "probing", &command, c);
}
