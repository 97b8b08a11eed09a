/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/e2e/plugins/jobs.c - a stranger's plugin that declares all that a plugin can declare: the
 * example of docs/plugins.md.
 *
 *     cc -shared -fPIC -fvisibility=hidden -I include jobs.c -o jobs.so
 *
 * Its rows are the same in each process: three jobs of worker 1, one of worker 2, as often as
 * jobs.times says.
 */
#include <errno.h>
#include <probing/plugin.h>
#include <stdlib.h>
#include <string.h>

static const struct probing_host *host;
static struct probing_table *done;
static int64_t times = 1;

/* ---- what it declares ---- */

static const struct probing_config settings[] = {
    {.name = "times", .value = "1", .doc = "how often all jobs run", .type = PROBING_I64, .max = 9},
    {.name = NULL}};

static const struct probing_view views[] = {
    {"job_totals",
     "select name, count(*) as jobs, sum(took_ns) / 1e6 as total_ms from jobs.done where name "
     "is not null group by name",
     "how long jobs of a name took together",
     "select 'only jobs without a name have ended' where not exists (select 1 from jobs.done "
     "where name is not null)"},
    {"jobs.longest", "select name, took_ns from jobs.done order by took_ns desc limit 1",
     "the job that took longest", NULL}};

static const struct probing_metric metrics[] = {
    {"done", "Jobs that have ended.",
     "select name, count(*) as value from jobs.done group by name order by name", PROBING_COUNTER,
     PROBING_COUNT},
    {"longest_seconds", "The longest job.", "select max(took_ns) / 1e9 as value from jobs.done",
     PROBING_GAUGE, PROBING_SECONDS}};

static const struct probing_alias aliases[] = {{"work.repeat", "times"}};

static const struct probing_flame flames[] = {
    {.name = "jobs",
     .doc = "jobs within jobs, by time",
     .sql = "select 'worker ' || worker || ';' || name as stack, took_ns as value, worker::text as "
            "track, end_ns, took_ns as duration_ns, null as via from jobs.done where {when} order "
            "by worker, end_ns - took_ns, took_ns desc",
     .newest = "select max(ts) from jobs.done",
     .empty = "no job has ended: plugin load jobs",
     .unit = PROBING_NS},
    {.name = "jobs_memory",
     .doc = "memory of jobs",
     .sql = "select 'all;' || name as stack, sum(bytes) as value from jobs.done where {when} group "
            "by name",
     .unit = PROBING_BYTES},
    {.name = "jobs_stacks",
     .doc = "jobs as samples of stacks",
     .stacks = "select stack_id, depth, 'python' as frame_type, func, null::text as file, "
               "null::bigint as lineno, null::text as module from (values (1, 0, 'outer'), (2, 0, "
               "'inner'), (2, 1, 'outer')) v(stack_id, depth, func) order by stack_id, depth",
     .sql = "select ts, worker as thread_id, 'worker ' || worker as thread_name, case name when "
            "'outer' then 1 else 2 end as stack_id, took_ns as value, 1 as count from jobs.done "
            "where {when}",
     .unit = PROBING_NS}};

static const struct probing_track tracks[] = {
    {.name = "workers",
     .doc = "jobs, a line for each worker",
     .sql = "select to_timestamp(1000) + (end_ns - took_ns) * interval '1 microsecond' / 1000 as "
            "begun, took_ns as duration_ns, name, 'worker ' || worker as track, bytes from "
            "jobs.done where {when} order by end_ns - took_ns, took_ns desc",
     .newest = "select max(ts) from jobs.done"},
    {.name = "hall",
     .doc = "all jobs on one line, though they overlap",
     .sql = "select to_timestamp(1000) + (end_ns - took_ns) * interval '1 microsecond' / 1000 as "
            "begun, took_ns as duration_ns, name, 'hall' as track from jobs.done order by end_ns - "
            "took_ns, took_ns desc"},
    {.name = "ends",
     .doc = "marks on threads",
     .sql = "select to_timestamp(1000) + end_ns * interval '1 microsecond' / 1000 as ts, name, "
            "worker as tid, 'end' as kind from jobs.done"},
    {.name = "later",
     .doc = "of a table that is not there yet",
     .sql = "select * from jobs.later"}};

static const struct probing_panel panels[] = {
    {.name = "count",
     .doc = "how many jobs",
     .sql = "select 'jobs: ' || count(*) || ' done' as line from jobs.done",
     .kind = PROBING_LINES,
     .rows = 1},
    {.name = "longest",
     .doc = "of all workers",
     .sql = "select took_ns / 1000.0 as took_us, bytes, case when worker = 1 then worker end as "
            "worker_1, name as job from jobs.done order by took_ns desc",
     .kind = PROBING_COLUMNS,
     .rows = 2},
    {.name = "later",
     .doc = "of a table that is not there yet",
     .sql = "select * from jobs.later",
     .kind = PROBING_COLUMNS,
     .rows = 2}};

#define N(list) (sizeof(list) / sizeof((list)[0]))

static const struct probing_table_name tables[] = {{"jobs.done"}};

static const struct probing_declarations declarations = {.size = sizeof(declarations),
                                                         .n_views = N(views),
                                                         .view_size = sizeof(views[0]),
                                                         .n_metrics = N(metrics),
                                                         .metric_size = sizeof(metrics[0]),
                                                         .n_aliases = N(aliases),
                                                         .alias_size = sizeof(aliases[0]),
                                                         .n_flames = N(flames),
                                                         .flame_size = sizeof(flames[0]),
                                                         .views = views,
                                                         .metrics = metrics,
                                                         .aliases = aliases,
                                                         .n_tables = N(tables),
                                                         .table_size = sizeof(tables[0]),
                                                         .tables = tables,
                                                         .n_tracks = N(tracks),
                                                         .track_size = sizeof(tracks[0]),
                                                         .tracks = tracks,
                                                         .n_panels = N(panels),
                                                         .panel_size = sizeof(panels[0]),
                                                         .panels = panels,
                                                         .flames = flames};

/* ---- the table, and its rows ---- */

static int init(const struct probing_host *h, void **ret_self)
{
    static const struct probing_column columns[] = {
        {.name = "name", .type = PROBING_STR, .doc = "the job"},
        {.name = "worker", .type = PROBING_I64, .doc = "who did it"},
        {.name = "end_ns", .type = PROBING_I64, .unit = PROBING_NS, .doc = "when it ended"},
        {.name = "took_ns", .type = PROBING_I64, .unit = PROBING_NS, .doc = "how long it took"},
        {.name = "bytes", .type = PROBING_I64, .unit = PROBING_BYTES, .doc = "what it kept"}};
    static const struct probing_table_desc table = {.size = sizeof(table),
                                                    .column_size = sizeof(columns[0]),
                                                    .name = "done",
                                                    .doc = "jobs that have ended",
                                                    .columns = columns,
                                                    .n_columns = N(columns)};
    host = h;
    *ret_self = NULL;
    return h->table(h, &table, &done);
}

static int configure(void *self, const char *name, const char *value)
{
    (void)self;
    if (strcmp(name, "times") == 0)
        times = strtoll(value, NULL, 10);
    return 0;
}

static int start(void *self)
{
    static const struct {
        const char *name;
        int64_t worker, end_ns, took_ns, bytes;
    } jobs[] = {{"outer", 1, 100000, 100000, 1024},
                {"inner", 1, 40000, 30000, 2048},
                {"inner", 1, 60000, 10000, 4096},
                {"outer", 2, 30000, 30000, 8192}};
    int rc = 0;
    (void)self;
    for (int64_t round = 0; round < times && rc >= 0; round++)
        for (size_t i = 0; i < N(jobs) && rc >= 0; i++) {
            union probing_cell cells[5] = {{.u = PROBING_NULL_ID},
                                           {.i = jobs[i].worker},
                                           {.i = round * 1000000 + jobs[i].end_ns},
                                           {.i = jobs[i].took_ns},
                                           {.i = jobs[i].bytes}};
            rc = host->intern(host, jobs[i].name, strlen(jobs[i].name), &cells[0].u);
            if (rc >= 0)
                rc = host->append(done, host->now(), cells, 5, NULL, 0);
        }
    return rc;
}

static void destroy(void *self)
{
    (void)self;
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {.size = sizeof(probing_plugin_v1),
                                                                .abi = PROBING_ABI,
                                                                .name = "jobs",
                                                                .version = "1",
                                                                .doc = "jobs of a program",
                                                                .config = settings,
                                                                .config_size = sizeof(settings[0]),
                                                                .init = init,
                                                                .configure = configure,
                                                                .start = start,
                                                                .destroy = destroy,
                                                                .declares = &declarations};
