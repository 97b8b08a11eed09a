/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/declarations.c - what the plugin declares: views of its tables, and modes of flame
 * graphs.
 *
 * Constants only: the core reads them out of the file, too, where the plugin is not loaded.
 */
#include "internal.h"
#include "probing_sdk.h"

/* ---- views ---- */

#define ALLOCATIONS                                                                           \
    "select s.ts, s.tid, s.thread_id, s.thread_name, s.domain, s.size, s.count, s.bytes, "    \
    "s.function_name, s.native_function, s.file, s.lineno, s.stack_id, s.step, s.sample_id, " \
    "f.lifetime_ns from memory.samples s left join (select sample_id, lifetime_ns from "      \
    "memory.frees) f on s.sample_id = f.sample_id"

#define PLACE "stack_id, function_name, native_function, file, lineno, domain"

/* For a process that has ended: its last snapshot, and what was allocated and freed since.  A
 * sample that was freed before it was written down has no row; it counts at the last moment. */
#define HEARD                                                                                \
    "(select max(ts) as heard from (select ts from memory.samples union all select ts from " \
    "memory.frees union all select ts from memory.snapshots) e) h"
#define LAST                                                                              \
    "(select max(snapshot_id) as id, coalesce(max(ts), to_timestamp(0)) as last_ts from " \
    "memory.snapshots where snapshot_id = (select max(snapshot_id) from memory.snapshots)) b"
#define SINCE " s cross join " LAST " where s.ts > last_ts"
#define AGO(ns) "ts - (" ns " / 1e9) * interval '1 second'"
#define OLDER(sec)                                                                                \
    "case when s.ts - last_ts < (lifetime_ns / 1e9 - " sec ") * interval '1 second' then -bytes " \
    "else 0 end"
#define CAME \
    PLACE ", bytes, count * (count - 1) * size * size, 0, 0, count, 1, ts, ts from memory.samples"
#define WENT                                                                       \
    PLACE ", -bytes, -count * (count - 1) * size * size, " OLDER("60") ", " OLDER( \
        "600") ", -count, -1, null, null from memory.frees"
#define AT_END                                                                                     \
    "select " PLACE ", sum(b) as bytes, sqrt(greatest(sum(v), 0))::bigint as bytes_error, "        \
    "sum(b1) as bytes_1m, sum(b10) as bytes_10m, sum(c) as count, sum(n) as samples, (max(heard) " \
    "- min(oldest))::bigint as age_ns, (max(heard) - max(newest))::bigint as newest_ns, (case "    \
    "when sum(c) > 0 then sum(b) / sum(c) end)::bigint as size from (select " PLACE                \
    ", bytes as b, bytes_error::double * bytes_error as v, bytes_1m as b1, bytes_10m as b10, "     \
    "count as c, samples as n, " AGO("age_ns") " as oldest, " AGO(                                 \
        "newest_ns") " as newest from "                                                            \
                     "memory.snapshots join " LAST                                                 \
                     " on snapshot_id = id union all select " CAME SINCE                           \
                     " union all select " WENT SINCE ") a cross join " HEARD " group by " PLACE    \
                     " having sum(n) > 0"

/* A program's end may free all that it had.  Then what was alive before that is shown, which the
 * plugin kept (kind fall): if that was in the last ten seconds, and less than a quarter of it was
 * left when the process was last heard of. */
#define ENDED                                                                                      \
    "select coalesce(max(f.ts), max(e.heard)) as ts, max(e.heard) as heard_ts, "                   \
    "max(f.snapshot_id) as snapshot_id, max(bytes) as heard_bytes from (select max(heard) as "     \
    "heard, coalesce(sum(l.bytes), 0) as bytes from " HEARD " left join (" AT_END ") l on true) "  \
    "e left join (select ts, snapshot_id, total_bytes from memory.snapshots where snapshot_id = "  \
    "(select max(snapshot_id) from memory.snapshots where kind = 'fall')) f on f.total_bytes > 4 " \
    "* e.bytes and f.ts > e.heard - interval '10 seconds' having max(e.heard) is not null"
#define LARGEST "(select max(total_bytes) from memory.snapshots)"

#define USAGE                                                                                     \
    "select ts as timestamp, (rss_bytes - coalesce(probing_bytes, 0)) / 1048576.0 as memory_mb, " \
    "null::double as gpu_memory_mb from memory.usage"
#define TORCH_DEVICES                                                                     \
    "select ts as timestamp, null::double as memory_mb, allocated as gpu_memory_mb from " \
    "python.torch_trace where allocated is not null and device like 'cuda%'"

static const struct probing_view views[] = {
    {"memory_usage", USAGE " union all " TORCH_DEVICES,
     "resident memory of the process without probing's own, and what torch uses of GPUs", NULL},
    {"memory_usage", USAGE, "resident memory of the process without probing's own", NULL},
    {"memory.allocations", ALLOCATIONS,
     "sampled allocations, each with the time until it was freed; NULL: it was not",
     "select 'nothing was allocated that was sampled' where not exists (select 1 from "
     "memory.samples)"},
    {"memory.ended",
     /* where there are computed tables it lives; the definition with most tables is tried first */
     "select now() as ts, now() as heard_ts, 0 as snapshot_id, 0 as heard_bytes from "
     "(select 1 from memory.sampling limit 0) a, (select 1 from memory.samples limit 0) b, (select "
     "1 from memory.frees limit 0) c, (select 1 from memory.snapshots limit 0) d",
     "of a process that has ended", NULL},
    {"memory.ended", ENDED,
     "of a process that has ended: the moment that memory.live shows, and what was alive when it "
     "was last heard of",
     NULL},
    {"memory.live",
     "select " PLACE ", bytes, bytes_error, bytes_1m, bytes_10m, count, samples, age_ns, "
     "newest_ns, (case when count > 0 then bytes / count end)::bigint as size from "
     "memory.snapshots where snapshot_id = (select snapshot_id from memory.ended) union all "
     "select l.* from (" AT_END ") l where (select snapshot_id from memory.ended) is null",
     "what was alive when the process was last heard of, or before it freed that on its way to its "
     "end, by stack",
     NULL},
    {"memory.peak",
     "select ts, " PLACE ", bytes, bytes_error, count, samples, stacks, age_ns, total_bytes from "
     "memory.snapshots where snapshot_id = (select max(snapshot_id) from memory.snapshots where "
     "total_bytes = " LARGEST ") and total_bytes >= (select heard_bytes from memory.ended) union "
     "all select e.heard_ts, " PLACE ", bytes, bytes_error, count, samples, 1, age_ns, "
     "heard_bytes from (" AT_END
     ") l cross join memory.ended e where heard_bytes > coalesce(" LARGEST ", 0)",
     "what was alive when the most was, since the plugin was loaded", NULL},
    {"memory_allocations",
     "select ts as timestamp, function_name, bytes as allocated_bytes, count from memory.samples",
     "sampled allocations: bytes and number that each stands for", NULL}};

/* ---- flame graphs ---- */

/* A stack may be stored more than once. */
#define STACKS(wanted)                                                                             \
    "(select stack_id, string_agg(frame, ';' order by depth desc) as stack from (select distinct " \
    "stack_id, depth, replace(case when frame_type = 'python' then func || ' (' || "               \
    "regexp_replace(coalesce(file, '?'), '^.*/', '') || ')' else func end, ';', ':') as frame "    \
    "from memory.stacks where stack_id in (" wanted ")) d group by stack_id) t"
#define FLAME(value, from)                                                                 \
    "select coalesce(t.stack, l.function_name, '[stack not recorded]') as stack, l.value " \
    "from (select stack_id, max(function_name) as function_name, sum(" value ") as value " \
    "from " from " group by stack_id) l left join " STACKS(                                \
        "select stack_id from " from) " on l.stack_id = t.stack_id where l.value > 0"
#define NOTHING                                                                                    \
    "nothing was sampled yet: plugin memory samples from when it is loaded (plugin load memory), " \
    "once in memory.sample_bytes that are allocated"
/* A note for a process that freed what it had on its way to its end. */
#define BEFORE_END                                                                            \
    "select 'the process has ended: this is what was alive at ' || ts::text || ', before it " \
    "freed "                                                                                  \
    "most of it on its way to its end' from memory.ended where ts < heard_ts"

static const struct probing_flame flames[] = {
    {.name = "memory",
     .doc =
         "memory that is allocated and not freed, of what was allocated since plugin memory came",
     .sql = FLAME("bytes", "memory.live"),
     .empty = NOTHING,
     .missing = BEFORE_END,
     .unit = PROBING_BYTES},
    {.name = "memory_leaked",
     .doc = "memory that has been allocated for more than a minute and is not freed",
     .sql = FLAME("bytes_1m", "memory.live"),
     .empty = "nothing is older than a minute of what was allocated since plugin memory came",
     .missing = BEFORE_END,
     .unit = PROBING_BYTES},
    {.name = "memory_peak",
     .doc = "memory that was allocated when the most was, since plugin memory came",
     .sql = FLAME("bytes", "memory.peak"),
     .empty = NOTHING,
     .unit = PROBING_BYTES},
    {.name = "memory_allocated",
     .doc = "memory that was allocated, whether it was freed or not",
     .sql = FLAME("bytes", "memory.samples where {when}"),
     .newest = "select max(ts) from memory.samples",
     .empty = NOTHING,
     .unit = PROBING_BYTES}};

/* ---- tables ---- */

static const struct probing_table_name tables[] = {
    {"memory.samples"}, {"memory.frees"},   {"memory.snapshots"}, {"memory.live"},
    {"memory.peak"},    {"memory.stacks"},  {"memory.usage"},     {"memory.events"},
    {"memory.parts"},   {"memory.sampling"}};

/* Measured by tests/hostile/test_limits_table.py. */
#define MIB (UINT64_C(1) << 20)
static const struct probing_resource resources[] = {
    {.name = "address_space", .takes = 80 * MIB}, {.name = "data", .takes = 16 * MIB},
    {.name = "memory", .takes = 8 * MIB},         {.name = "mappings", .takes = 24},
    {.name = "descriptors", .takes = 2},          {.name = "threads", .takes = 1},
};

const struct probing_declarations memory_declares = {
    .size = sizeof(memory_declares),
    .n_resources = PROBING_LENGTH(resources),
    .resource_size = sizeof(resources[0]),
    .resources = resources,
    .n_views = PROBING_LENGTH(views),
    .view_size = sizeof(views[0]),
    .n_flames = PROBING_LENGTH(flames),
    .flame_size = sizeof(flames[0]),
    .views = views,
    .flames = flames,
    .n_tables = PROBING_LENGTH(tables),
    .table_size = sizeof(tables[0]),
    .tables = tables,
    .alias_size = sizeof(struct probing_alias),
};
