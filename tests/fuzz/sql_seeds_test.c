/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/sql_seeds_test.c - the field's own queries, as they stand in its documentation.
 *
 * Each runs as written over tables with the columns that ours have (some rows each, NULLs among
 * them), the bare names over the engine's own views; and again where only some of the tables are
 * there, as in a process without a GPU.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/plugin_file/declared.h"
#include "core/sql/sql.h"
#include "tests/test.h"

static const char *const queries[] = {
    "SELECT * FROM memory_usage WHERE timestamp > now() - interval '5 min'",
    "\n  SELECT operation_name, avg(duration_ms), count(*)\n  FROM profiling_data \n"
    "  WHERE timestamp > now() - interval '5 minutes'\n  GROUP BY operation_name\n"
    "  ORDER BY avg(duration_ms) DESC\n",
    "\n  SELECT epoch, avg(loss), min(loss), count(*) as steps\n  FROM training_logs \n"
    "  GROUP BY epoch \n  ORDER BY epoch\n",
    "SELECT src_rank, dst_rank, avg(latency_ms) FROM comm_metrics",
    "SELECT * FROM python.backtrace",
    "SELECT avg(gpu_util) FROM gpu_metrics WHERE timestamp > now() - 60",
    "SELECT hour(timestamp), avg(memory_mb) FROM memory_usage GROUP BY hour(timestamp)",
    "\n  SELECT function_name, sum(allocated_bytes) as total_alloc\n  FROM memory_allocations \n"
    "  WHERE timestamp > now() - interval '1 hour'\n  GROUP BY function_name\n"
    "  ORDER BY total_alloc DESC\n",
    "SELECT func, file, lineno FROM python.backtrace LIMIT 5",
    "SELECT * FROM python.backtrace ORDER BY depth LIMIT 10",
    "SELECT func, file, lineno FROM python.backtrace ORDER BY depth LIMIT 3",
    "SELECT func, file, lineno, depth FROM python.backtrace ORDER BY depth LIMIT 10",
    "SELECT step, AVG(allocated) as avg_memory, MAX(allocated) as peak_memory FROM "
    "python.torch_trace WHERE step >= (SELECT MAX(step) - 20 FROM python.torch_trace) GROUP BY "
    "step ORDER BY step",
    "SELECT module, stage, AVG(allocated) as avg_memory, COUNT(*) as frequency FROM "
    "python.torch_trace WHERE step >= (SELECT MAX(step) - 5 FROM python.torch_trace) GROUP BY "
    "module, stage ORDER BY avg_memory DESC LIMIT 10",
    "SELECT name, value FROM information_schema.df_settings LIMIT 5",
    "SELECT func, file, lineno FROM python.backtrace ORDER BY depth",
    "\nSELECT \n    step,\n    module,\n    SUM(allocated) as total_memory_mb,\n    COUNT(*) as "
    "operation_count\nFROM python.torch_trace \nWHERE step > 10 \nGROUP BY step, module \n"
    "ORDER BY total_memory_mb DESC \nLIMIT 10"};

#define STR(column)                         \
    {                                       \
        .name = column, .type = PROBING_STR \
    }
#define I64(column)                         \
    {                                       \
        .name = column, .type = PROBING_I64 \
    }
#define F64(column)                         \
    {                                       \
        .name = column, .type = PROBING_F64 \
    }
#define TIME(column)                         \
    {                                        \
        .name = column, .type = PROBING_TIME \
    }

/* A name and the columns that the queries meet; ts comes first in all that are stored. */
static const struct {
    const char *schema, *name;
    struct probing_column columns[10];
    uint32_t n;
} shapes[] = {
    {"python",
     "python.torch_trace",
     {TIME("ts"), I64("local_step"), STR("module"), STR("stage"), F64("duration"), F64("allocated"),
      STR("device")},
     7},
    {"python",
     "python.backtrace",
     {I64("depth"), STR("func"), STR("file"), I64("lineno"), STR("locals")},
     5},
    {"cpu", "cpu.utilization", {TIME("ts"), STR("scope"), I64("rss_kb")}, 3},
    {"gpu",
     "gpu.utilization",
     {TIME("ts"), I64("device_id"), I64("used_bytes"), F64("gpu_util_pct")},
     4},
    {"python", "python.trace_event", {TIME("ts"), STR("name"), I64("duration_ns")}, 3},
    {"python",
     "python.variables",
     {TIME("ts"), I64("local_step"), STR("name"), F64("value_f64"), STR("value_type")},
     5},
    {"python",
     "python.comm_collective",
     {TIME("ts"), I64("group_rank"), STR("op"), F64("duration_ms"), I64("bytes"), I64("src_rank"),
      I64("dst_rank"), I64("rank")},
     8},
    {"memory", "memory.samples", {TIME("ts"), I64("bytes"), F64("count"), STR("function_name")}, 4},
    {"memory", "memory.usage", {TIME("ts"), I64("rss_bytes"), I64("probing_bytes")}, 3}};
#define N_SHAPES (sizeof(shapes) / sizeof(*shapes))

static int scan(void *self, struct probing_rows *out)
{
    static const char *const words[] = {"process", "cuda:0", "loss", "pre forward", NULL};
    uint32_t which = *(const uint32_t *)self;
    for (int i = 0; i < 40; i++) {
        union probing_cell c[10];
        for (uint32_t k = 0; k < shapes[which].n; k++) {
            uint32_t type = shapes[which].columns[k].type;
            if (type == PROBING_STR)
                c[k].s = words[(uint32_t)i % (k == 1 ? 1 : 5)];
            else if (type == PROBING_F64)
                c[k].f = 0.5 * i;
            else if (type == PROBING_TIME)
                c[k].i = (int64_t)clock_monotonic() - i * 1000000;
            else
                c[k].i = i % 7 == 6 ? PROBING_NULL_I64 : i;
        }
        int rc = out->row(out, c, shapes[which].n);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int take(struct sql *s, const struct declared *d)
{
    struct sql_view views[DECLARED_MAX];
    for (uint32_t i = 0; i < d->all.n_views; i++)
        views[i] = (struct sql_view){.name = d->all.views[i].name,
                                     .definition = d->all.views[i].sql,
                                     .doc = d->all.views[i].doc,
                                     .plugin = d->plugin,
                                     .loaded = true};
    int rc = sql_declare_views(s, views, d->all.n_views);
    return rc < 0 ? rc : 0;
}

#define PLUGINS_MAX 32
static struct declared *plugins[PLUGINS_MAX];
static uint32_t n_plugins;

static int found(void *arg, const char *file, struct declared *d)
{
    (void)arg, (void)file;
    if (n_plugins < PLUGINS_MAX)
        plugins[n_plugins++] = d;
    return 0;
}

/* The plugins that lie beside this test, out of their files. */
static void look_into_plugins(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
    path[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(path, '/');
    memcpy(slash ? slash : path, "/../plugins", sizeof("/../plugins"));
    CHECK_INT(declared_search(&(struct declared_search){.path = path, .found = found}), 0);
    CHECK(n_plugins > 3);
}

static int declare(struct sql *s)
{
    int rc = 0;
    for (uint32_t i = 0; i < n_plugins && rc == 0; i++)
        rc = take(s, plugins[i]);
    return rc;
}

/* An engine without views over the tables whose bits are set. */
static struct sql *bare_engine(uint32_t which, struct tables **ret_tables)
{
    static uint32_t numbers[N_SHAPES];
    struct sql *s;
    struct table *t;
    if (tables_new(ret_tables))
        return NULL;
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        struct probing_table_desc desc = {.size = sizeof(desc),
                                          .column_size = sizeof(struct probing_column),
                                          .name = shapes[i].name,
                                          .doc = "",
                                          .columns = shapes[i].columns,
                                          .n_columns = shapes[i].n,
                                          .scan = scan};
        numbers[i] = i;
        if ((which >> i & 1) && tables_add(*ret_tables, shapes[i].schema, &desc, &numbers[i], &t))
            return NULL;
    }
    return sql_new(*ret_tables, NULL, &s) < 0 ? NULL : s;
}

static struct sql *engine_over(uint32_t which, struct tables **ret_tables)
{
    struct sql *s = bare_engine(which, ret_tables);
    return s && declare(s) < 0 ? NULL : s;
}

static int ask(struct sql *s, const char *text, uint64_t *ret_rows)
{
    struct sql_sink nothing = {.arg = NULL};
    struct sql_report report = {.rows = 0};
    int rc = sql_run(s, text, strlen(text), NULL, &nothing, &report);
    *ret_rows = report.rows;
    return rc;
}

TEST(all_run_as_written)
{
    struct tables *tables;
    uint64_t rows;
    struct sql *s = engine_over(UINT32_MAX, &tables);
    for (size_t i = 0; CHECK(s) && i < sizeof(queries) / sizeof(*queries); i++) {
        int rc = ask(s, queries[i], &rows);
        if (!CHECK_INT(rc, 0) || !CHECK(rows > 0))
            printf("# %s: %s\n", queries[i], rc < 0 ? err_text() : "no row");
    }
    sql_free(s);
    tables_free(tables);
}

TEST(views_take_what_there_is)
{
    static const struct {
        uint32_t tables; /* bits of `shapes` */
        const char *query;
    } cases[] = {{1u << 0, "select * from memory_usage"},
                 {1u << 2, "select * from memory_usage"},
                 {1u << 3, "select gpu_memory_mb from memory_usage"},
                 {1u << 2 | 1u << 3, "select * from memory_usage"},
                 {1u << 3, "select * from gpu_metrics"},
                 {1u << 4, "select * from profiling_data"},
                 {1u << 0 | 1u << 4, "select * from profiling_data"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct tables *tables;
        uint64_t rows;
        struct sql *s = engine_over(cases[i].tables, &tables);
        if (!CHECK(s))
            return;
        if (!CHECK_INT(ask(s, cases[i].query, &rows), 0) || !CHECK(rows > 0))
            printf("# %s: %s\n", cases[i].query, err_text());
        sql_free(s);
        tables_free(tables);
    }
}

/* ---- memory_usage, which three plugins have, and more tables than one ---- */

enum { TORCH = 1u << 0, CPU = 1u << 2, GPU = 1u << 3, USAGE = 1u << 8 };

static int keep_counts(void *arg, const struct sql_rows *rows)
{
    int64_t *counts = arg;
    struct sql_value v;
    for (uint32_t i = 0; i < 2; i++) {
        sql_rows_value(rows, 0, i, &v);
        counts[i] = v.integer;
    }
    return 0;
}

static int no_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    (void)arg, (void)columns, (void)n;
    return 0;
}

/* How many rows tell of the process, and of GPUs. */
static void count_usage(uint32_t which, const char *const order[3], int64_t ret[2])
{
    static const char text[] = "select count(memory_mb), count(gpu_memory_mb) from memory_usage";
    struct sql_sink sink = {.arg = ret, .columns = no_columns, .rows = keep_counts};
    struct sql_report report = {.rows = 0};
    struct tables *tables;
    struct sql *s = bare_engine(which, &tables);
    for (uint32_t k = 0; CHECK(s) && k < 3; k++)
        for (uint32_t i = 0; i < n_plugins; i++)
            if (strcmp(plugins[i]->plugin, order[k]) == 0)
                CHECK_INT(take(s, plugins[i]), 0);
    if (!CHECK_INT(sql_run(s, text, strlen(text), NULL, &sink, &report), 0))
        printf("# %s\n", err_text());
    sql_free(s);
    tables_free(tables);
}

TEST(memory_usage_is_the_same_in_every_order_of_its_plugins)
{
    static const char *const orders[6][3] = {
        {"memory", "system", "torch"}, {"memory", "torch", "system"},
        {"system", "memory", "torch"}, {"system", "torch", "memory"},
        {"torch", "memory", "system"}, {"torch", "system", "memory"}};
    static const uint32_t bits[] = {TORCH, CPU, GPU, USAGE};
    for (uint32_t set = 1; set < 16; set++) {
        int64_t first[2] = {-1, -1}, other[2];
        uint32_t which = 0;
        for (uint32_t i = 0; i < 4; i++)
            which |= set >> i & 1 ? bits[i] : 0;
        count_usage(which, orders[0], first);
        bool process = which & (CPU | USAGE), devices = which & (TORCH | GPU);
        CHECK(!process || first[0] > 0);
        CHECK(first[0] + first[1] > 0);
        CHECK(!devices || first[1] > 0 || which == (USAGE | GPU));
        for (uint32_t o = 1; o < 6; o++) {
            count_usage(which, orders[o], other);
            if (!CHECK(other[0] == first[0] && other[1] == first[1]))
                printf("# tables %x, order %u\n", which, o);
        }
    }
}

TEST(plugins_views_without_tables_are_empty)
{
    static const char *const empty[] = {"select * from memory_usage",
                                        "select loss * 2 from training_logs where loss > 3",
                                        "select * from python.profile_hotspot order by self_us"};
    struct tables *tables;
    struct sql *s = engine_over(1u << 1, &tables);
    for (size_t i = 0; CHECK(s) && i < sizeof(empty) / sizeof(*empty); i++) {
        struct sql_sink nothing = {.arg = NULL};
        struct sql_report report = {.rows = 0};
        if (!CHECK_INT(sql_run(s, empty[i], strlen(empty[i]), NULL, &nothing, &report), 0))
            printf("# %s: %s\n", empty[i], err_text());
        CHECK_INT(report.rows, 0);
        CHECK(strstr(report.empty, "there is no table '") != NULL);
    }
    sql_free(s);
    tables_free(tables);
}

int main(void)
{
    look_into_plugins();
    RUN(all_run_as_written);
    RUN(views_take_what_there_is);
    RUN(memory_usage_is_the_same_in_every_order_of_its_plugins);
    RUN(plugins_views_without_tables_are_empty);
    while (n_plugins > 0)
        declared_free(plugins[--n_plugins]);
    return test_end();
}
