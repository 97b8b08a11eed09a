/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/views.c - the bare names that the field's queries use, as views over our tables.
 *
 * memory_usage, profiling_data, training_logs, comm_metrics, gpu_metrics, memory_allocations.  A
 * name with several definitions means the first whose tables are all there; the last one's error
 * names the table that is missing.  Any thread, once, while the engine is made.
 */
#include "core/sql/value/query.h"

#include <string.h>

#define CPU_MEMORY                                                                         \
    "select ts as timestamp, rss_kb / 1024.0 as memory_mb, null::double as gpu_memory_mb " \
    "from cpu.utilization where scope = 'process'"
#define GPU_MEMORY                                                                                \
    "select ts as timestamp, null::double as memory_mb, used_bytes / 1048576.0 as gpu_memory_mb " \
    "from gpu.utilization"
#define TORCH_CALLS                                                                         \
    "select ts as timestamp, module || ' ' || stage as operation_name, duration * 1000 as " \
    "duration_ms from python.torch_trace where duration is not null"
#define SPANS                                                                           \
    "select ts as timestamp, name as operation_name, duration_ns / 1e6 as duration_ms " \
    "from python.trace_event where duration_ns is not null"

/* Names of variables: train_loss, losses.val, losses[-1], metrics["train/loss"]; of which are not
 * val_loss, metrics["test/loss"]; self.epoch.  Where `loss` itself is kept, that is the one. */
#define LOSS                                                                                   \
    "'loss(es)?(_(step|item|value|scalar|mean|avg|sum))?(\\.(mean|val|avg))?(\\[-?[0-9]+\\])?" \
    "[\"'']?\\]?$'"
#define NO_TRAINING "'(^|[^a-z])(val|valid|validation|eval|test|dev)[^a-z].*loss'"
#define IS_LOSS                                                                             \
    "v.name = 'loss' or (v.name ~* " LOSS " and v.name !~* " NO_TRAINING " and not exists " \
    "(select 1 from python.variables where name = 'loss'))"
#define RATE "'^learning_rate$|(^|[^a-z])lr[\"'']?\\]?$'"
#define NORM "'(^|[^a-z])(grad|gradient|total)_norm[\"'']?\\]?$'"
#define SPEED(what) "'(^|[^a-z])(" what ")_(per_|p)(sec|second|s)[\"'']?\\]?$'"
#define TOKENS SPEED("tok|token|tokens")
#define SAMPLES SPEED("sample|samples|example|examples|image|images|img|imgs")
#define EPOCH "'(^|[^a-z])epoch[\"'']?\\]?$'"

#define CAPTURE                                                                                 \
    "select epoch_us(ended)::text as capture_id, first_step as local_step, s.global_step, "     \
    "s.rank, s.world_size, s.role, 'manual' as trigger, steps as steps_profiled, "              \
    "round(captured_sec * 1e6)::bigint as wall_us, "                                            \
    "epoch_us(ended) - round(captured_sec * 1e6)::bigint as started_at_us, "                    \
    "epoch_us(ended) as ended_at_us, 'completed' as status, (note is not null)::bigint as "     \
    "truncated, events as event_count, null::text as error, note from torch.capture c left "    \
    "join lateral (select max(global_step) as global_step, max(rank) as rank, max(world_size) " \
    "as world_size, max(role) as role from python.torch_step_timing t where t.local_step = "    \
    "c.first_step) s on true"
#define BUCKET                                                                               \
    "case when name ~ '^(nccl|c10d|gloo)' then 'collective' when kind in ('kernel', "        \
    "'cpu_op') then kind when kind in ('gpu_memcpy', 'gpu_memset') then 'memcpy' when kind " \
    "in ('cuda_runtime', 'cuda_driver') then 'cuda_runtime' else 'other' end"

/* Of one name the last that works is wanted least. */
static const struct {
    const char *name, *definition, *doc;
} views[] = {
    {"memory_usage",
     "select ts as timestamp, case when device like 'cuda%' then null else allocated end as "
     "memory_mb, case when device like 'cuda%' then allocated end as gpu_memory_mb from "
     "python.torch_trace where allocated is not null",
     "memory in use: as torch sees it"},
    {"memory_usage", GPU_MEMORY, "memory in use: of GPUs"},
    {"memory_usage", CPU_MEMORY, "memory in use: of the process"},
    {"memory_usage", CPU_MEMORY " union all " GPU_MEMORY, "memory in use: of the process, of GPUs"},
    {"profiling_data", SPANS, "how long operations took: spans"},
    {"profiling_data", TORCH_CALLS, "how long operations took: torch modules"},
    {"profiling_data", TORCH_CALLS " union all " SPANS,
     "how long operations took: torch modules and spans"},
    {"training_logs",
     /* Windows and no groups: a row of the answer stays, and `watch` tells only new ones. */
     "select timestamp, epoch::bigint as epoch, step, case when kind = 'loss' then value end as "
     "loss, name, value, lr, grad_norm, tokens_per_sec, samples_per_sec from (select min(ts) over "
     "w as timestamp, local_step as step, name, value_f64 as value, kind, "
     "max(case when kind = 'epoch' then value_f64 end) over w as epoch, "
     "max(case when kind = 'lr' then value_f64 end) over w as lr, "
     "max(case when kind = 'norm' then value_f64 end) over w as grad_norm, "
     "max(case when kind = 'tokens' then value_f64 end) over w as tokens_per_sec, "
     "max(case when kind = 'samples' then value_f64 end) over w as samples_per_sec, "
     "row_number() over (partition by local_step order by case kind when 'loss' then 0 when "
     "'other' then 1 else 2 end, ts) as place from (select ts, local_step, name, value_f64, case "
     "when " IS_LOSS " then 'loss' when name ~ " EPOCH " then 'epoch' when name ~ " RATE
     " then 'lr' when name ~ " NORM " then 'norm' when name ~* " TOKENS
     " then 'tokens' when name ~* " SAMPLES " then 'samples' else 'other' end as kind from "
     "python.variables v where name <> 'nonfinite' and value_type is not null) k "
     "window w as (partition by local_step)) l where place = 1",
     "steps of the training loop of which variables are kept: the loss, else the first of them"},
    {"comm_metrics",
     "select ts as timestamp, case when op = 'recv_anysource' then src_rank else "
     "coalesce(src_rank, group_rank) end as src_rank, dst_rank, op, duration_ms as latency_ms, "
     "bytes from python.comm_collective",
     "collective operations; dst_rank is NULL where more than one rank gets"},
    {"gpu_metrics",
     "select ts as timestamp, device_id as gpu, gpu_util_pct as gpu_util, used_bytes / 1048576.0 "
     "as memory_mb from gpu.utilization",
     "how busy GPUs are"},
    {"memory_allocations",
     "select ts as timestamp, function_name, size as allocated_bytes, count from "
     "memory.allocations",
     "sampled allocations"},
    {"python.profile_capture", CAPTURE,
     "the newest capture of torch's profiler (probing torch profile); truncated: it has fewer "
     "steps than were asked for, note says why"},
    {"python.profile_hotspot",
     "select capture_id, local_step, global_step, rank, " BUCKET
     " as bucket_kind, name as bucket_name, round(self_sec * 1e6)::bigint as self_us, "
     "round(duration * 1e6)::bigint as wall_us, calls, self_sec * 1e6 / nullif(c.wall_us, 0) as "
     "pct_of_capture, null::text as module_hint from torch.ops cross join python.profile_capture c",
     "its operations: pct_of_capture is the share of the captured time, 1 for all of it"},
    {"probing.table_docs",
     "select table_schema, table_name, nullif(doc, '') as description, null::text as synonyms, "
     "null::text as notes, null::text as global_name from information_schema.tables",
     "what each table is"},
    {"probing.column_docs",
     "select table_schema, table_name, column_name, data_type, unit, nullif(doc, '') as "
     "description from information_schema.columns",
     "what each column is"}};

/* Why a view has no rows though its tables have: a select of one text, or of no row. */
static const struct {
    const char *name, *why;
} reasons[] = {
    {"training_logs",
     "select 'no step has one of torch.exprs: ' || name || ' was ' || value from python.variables "
     "where value_type is null and not exists (select 1 from python.variables where value_type is "
     "not null and name <> 'nonfinite') order by ts desc limit 1"}};

static const char *reason_of(const char *name)
{
    for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
        if (strcmp(reasons[i].name, name) == 0)
            return reasons[i].why;
    return NULL;
}

int sql_add_own_views(struct sql *s)
{
    int rc = 0;
    for (size_t i = 0; i < sizeof(views) / sizeof(*views) && rc == 0; i++)
        rc = sql_add_view(s, views[i].name, views[i].definition, views[i].doc);
    for (struct view *v = atomic_load_explicit(&s->views, memory_order_relaxed); v; v = v->next)
        v->why = reason_of(v->name);
    return rc;
}
