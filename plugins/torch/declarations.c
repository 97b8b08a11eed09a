/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/declarations.c - what the plugin declares: views under the names that the field's
 * queries use, metrics, the field's names of settings, and modes of flame graphs.
 *
 * Constants only: the core reads them out of the file, too, where the plugin is not loaded.
 */
#include "declarations.h"

/* ---- views ---- */

#define TORCH_CALLS                                                                         \
    "select ts as timestamp, module || ' ' || stage as operation_name, duration * 1000 as " \
    "duration_ms from python.torch_trace where duration is not null"
#define SPANS                                                                           \
    "select ts as timestamp, name as operation_name, duration_ns / 1e6 as duration_ms " \
    "from python.trace_event where duration_ns is not null"

/* Names of variables: train_loss, losses.val, losses[-1], metrics["train/loss"]; of which are not
 * val_loss, metrics["test/loss"]; self.epoch.  If `loss` itself is kept, it is the one. */
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
    "select epoch_us(ended_at)::text as capture_id, first_step as local_step, s.global_step, "  \
    "s.rank, s.world_size, s.role, 'manual' as trigger, steps as steps_profiled, "              \
    "round(captured_sec * 1e6)::bigint as wall_us, "                                            \
    "epoch_us(ended_at) - round(captured_sec * 1e6)::bigint as started_at_us, "                 \
    "epoch_us(ended_at) as ended_at_us, 'completed' as status, (note is not null)::bigint as "  \
    "truncated, events as event_count, null::text as error, note from torch.capture c left "    \
    "join lateral (select max(global_step) as global_step, max(rank) as rank, max(world_size) " \
    "as world_size, max(role) as role from python.torch_step_timing t where t.local_step = "    \
    "c.first_step) s on true"
#define BUCKET                                                                               \
    "case when name ~ '^(nccl|c10d|gloo)' then 'collective' when kind in ('kernel', "        \
    "'cpu_op') then kind when kind in ('gpu_memcpy', 'gpu_memset') then 'memcpy' when kind " \
    "in ('cuda_runtime', 'cuda_driver') then 'cuda_runtime' else 'other' end"

#define COMM_TORCH                                                                        \
    "select ts as timestamp, case when op = 'recv_anysource' then src_rank else "         \
    "coalesce(src_rank, rank) end as src_rank, dst_rank, op, duration_ms as latency_ms, " \
    "bytes from python.comm_collective"

/* Samples of plugin memory, by the step that they were taken in.  The variance of the bytes of one
 * that stands for `count` allocations of a size is (count - 1) * count * size * size. */
#define SAMPLED_BYTES                                                                     \
    "count(*) as samples, sum(count) as count, sum(bytes) as bytes, "                     \
    "sqrt(sum((count - 1) * count * size * size))::bigint as bytes_error, sum(case when " \
    "freed is null then bytes else 0 end) as live_bytes"
#define STEPS_OF(of)                                                                            \
    "(select s.*, f.freed from memory.samples s left join (select sample_id, ts as freed from " \
    "memory.frees) f on s.sample_id = f.sample_id where s.step is not null" of ")"
#define BY_STEP                                                                                  \
    "select step, min(a.ts) as ts, " SAMPLED_BYTES                                               \
    ", case when max(e.ended) is not null then sum(case when freed is null or freed > e.ended "  \
    "then bytes else 0 end) end as live_at_end_bytes from " STEPS_OF(                            \
        "") " a left join (select "                                                              \
            "local_step, max(ts) as ended from python.torch_step_timing group by local_step) e " \
            "on "                                                                                \
            "e.local_step = a.step group by step"
/* The last steps whose calls have rows, as far as samples have been read: each sample is the
 * innermost call's that was under way on its thread.  Without one it is the Python function's. */
#define LAST_STEPS                                                                     \
    "(select local_step from python.torch_step_timing where sampled = 1 and "          \
    "local_step between (select min(step) from memory.samples) and (select max(step) " \
    "from memory.samples) order by local_step desc limit 100)"
#define BY_MODULE                                                                                 \
    "select module, stage, case when module is null then function_name end as function_name, "    \
    "count(distinct step) as steps, " SAMPLED_BYTES                                               \
    ", round(sum(bytes) / (select count(*) from " LAST_STEPS                                      \
    " l))::bigint as bytes_per_step from (select a.*, t.module, t.stage, row_number() over "      \
    "(partition by a.sample_id order by t.duration) as place from " STEPS_OF(                     \
        " and s.step in " LAST_STEPS) " a left join (select local_step, tid, ts, duration, "      \
                                      "module, stage from python.torch_trace where duration is "  \
                                      "not null and local_step in " LAST_STEPS                    \
                                      ") t on t.local_step = a.step and t.tid = a.thread_id and " \
                                      "a.ts <= t.ts and "                                         \
                                      "a.ts >= t.ts - t.duration * interval '1 second') c where " \
                                      "place = 1 group by module, "                               \
                                      "stage, case when module is null then function_name end"
#define NO_STEP_SAMPLED                                                                        \
    "select 'nothing was sampled in a step: plugins memory and torch have to be loaded, and '" \
    " || 'a training loop to run' where not exists (select 1 from memory.samples where step "  \
    "is not null)"

static const struct probing_view views[] = {
    {"memory.by_step", BY_STEP,
     "what each training step allocates (estimates of plugin memory): live_at_end_bytes was "
     "still there when the step ended, live_bytes is now",
     NO_STEP_SAMPLED},
    {"memory.by_module", BY_MODULE,
     "what modules and optimizers allocate in a step (estimates of plugin memory, of the last 100 "
     "steps with rows in python.torch_trace); without a module: by the Python function",
     NO_STEP_SAMPLED},
    /* The first of this name is plugin memory's where that is loaded, too, in whatever order. */
    {"memory_usage",
     "select ts as timestamp, (rss_bytes - coalesce(probing_bytes, 0)) / 1048576.0 as memory_mb, "
     "null::double as gpu_memory_mb from memory.usage union all select ts as timestamp, "
     "null::double as memory_mb, allocated as gpu_memory_mb from python.torch_trace where "
     "allocated is not null and device like 'cuda%'",
     "resident memory of the process without probing's own, and what torch uses of GPUs", NULL},
    /* Plugins memory and system have it with what the process has of memory, which is more. */
    {"memory_usage",
     "select ts as timestamp, case when device like 'cuda%' then null else allocated end as "
     "memory_mb, case when device like 'cuda%' then allocated end as gpu_memory_mb from "
     "python.torch_trace where allocated is not null",
     "memory in use, as torch counts it",
     "select 'torch has counted no memory in a call of a module (it counts that of GPUs); plugins "
     "memory and system measure the process: plugin load memory' where not exists (select 1 from "
     "python.torch_trace where allocated is not null)"},
    {"profiling_data", TORCH_CALLS " union all " SPANS,
     "durations of operations: torch modules and spans", NULL},
    {"profiling_data", TORCH_CALLS, "durations of operations: torch modules", NULL},
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
     "steps of the training loop whose variables are recorded: the loss, else the first variable",
     "select 'no step has one of torch.variables: ' || name || ' was ' || value from "
     "python.variables "
     "where value_type is null and not exists (select 1 from python.variables where value_type is "
     "not null and name <> 'nonfinite') order by ts desc limit 1"},
    /* The first of this name is plugin nccl's where that is loaded, too, in whatever order. */
    {"comm_metrics",
     "select ts as timestamp, case when is_send = 1 then rank else peer end as src_rank, case when "
     "is_send = 1 then peer else rank end as dst_rank, lower(coll_func) as op, duration_ns / 1e6 "
     "as latency_ms, trans_bytes as bytes from nccl.proxy_ops union all " COMM_TORCH
     " where not exists (select 1 from nccl.proxy_ops)",
     "transfers on the network between two ranks of a communicator, as NCCL saw them; else torch's "
     "operations, between ranks of the job",
     NULL},
    {"comm_metrics", COMM_TORCH,
     "collective operations; dst_rank is NULL where more than one rank receives", NULL},
    /* Scripts hook these first: probing.on("torch.step", ...).  Each row is one of one table. */
    {"torch.step",
     "select ts, local_step as step, global_step, step_duration_sec * 1000 as duration_ms, "
     "dataloader_sec * 1000 as data_ms, forward_sec * 1000 as forward_ms, backward_sec * 1000 as "
     "backward_ms, optimizer_sec * 1000 as optimizer_ms, other_sec * 1000 as other_ms, sampled, "
     "rank from python.torch_step_timing",
     "steps of the training loop that have ended, and where their time went", NULL},
    {"torch.module",
     "select ts, tid, local_step as step, module, stage, duration * 1000 as duration_ms, device, "
     "allocated_delta as allocated_delta_mb from python.torch_trace where duration is not null",
     "calls of modules and optimizers that have ended, in sampled steps", NULL},
    {"torch.collective",
     "select ts, tid, local_step as step, op, duration_ms, bytes, rank from "
     "python.comm_collective",
     "collective operations, sends and receives", NULL},
    {"python.profile_capture", CAPTURE,
     "the newest capture of torch's profiler (probing torch profile); truncated: it has fewer "
     "steps than were asked for, note says why",
     NULL},
    {"python.profile_hotspot",
     "select capture_id, local_step, global_step, rank, " BUCKET
     " as bucket_kind, name as bucket_name, round(self_sec * 1e6)::bigint as self_us, "
     "round(duration * 1e6)::bigint as wall_us, calls, self_sec * 1e6 / nullif(c.wall_us, 0) as "
     "pct_of_capture, null::text as module_hint from torch.ops cross join python.profile_capture c",
     "its operations: pct_of_capture is the share of the captured time, 1 for all of it", NULL}};

/* ---- metrics ---- */

#define LAST_STEP \
    "python.torch_step_timing where ts > now() - interval '1 hour' order by ts desc limit 1"
#define PHASE(name) " union all select '" #name "' as phase, " #name "_sec from last"

static const struct probing_metric metrics[] = {
    {"step", "Number of the last step timed.", "select local_step as value from " LAST_STEP,
     PROBING_GAUGE, PROBING_PLAIN},
    {"step_seconds", "Where the time of the last step went.",
     "with last as (select * from " LAST_STEP
     ") select 'step' as phase, step_duration_sec as value from last" PHASE(forward) PHASE(backward)
         PHASE(optimizer) PHASE(dataloader) PHASE(other) PHASE(overhead),
     PROBING_GAUGE, PROBING_SECONDS}};

static const struct probing_alias aliases[] = {
    {"probing.sample_rate", "sample_rate"},
    {"torch.exprs", "variables"}, /* PROBING_TORCH_EXPRS of the Rust probing */
};

/* ---- flame graphs ---- */

/* Calls of steps all of which is there: not of a step that was under way when the plugin came, or
 * is now, nor of the oldest one within the time asked for, nor where retention has taken rows of
 * calls.  If no step has ended all calls are taken. */
#define WHOLE                                                                                    \
    "(local_step in (select steps from python.torch_step_timing where sampled = 1 and (steps > " \
    "(select min(local_step) from python.torch_trace where {when}) or steps = (select "          \
    "min(steps) from python.torch_step_timing where sampled = 1))) or not exists (select 1 "     \
    "from python.torch_step_timing)) and {when}"
#define IS_BACKWARD "stage in ('post backward', 'recomputed forward')"

/* Forwards come in the order of their begins, by thread and stage: another thread may end a step in
 * the middle of one.  A row's time is later than its call's end, so their begins are not computed.
 * Backwards have no such order, as a module and its last part begin at the same
 * node of the graph; but all that goes on inside of one ends before it, and after it has begun: the
 * last end first.  So does a forward that a checkpoint computes again, in the backward that wanted
 * it. */
#define CALLS(given, there)                                                                        \
    "select case when " IS_BACKWARD " then 'backward' when stage = 'post forward' then 'forward' " \
    "when stage = 'post data' then 'waiting for data' else 'optimizer' end || ';' || "             \
    "replace(coalesce(module, '(unknown)'), ';', ':') as stack, " given " as value, tid::text || " \
    "case when " IS_BACKWARD " then 'b' || local_step::text when stage = 'post forward' then "     \
    "'f' when stage = 'post data' then 'd' else 'o' end as track, (extract(epoch from ts - "       \
    "(select min(ts) from python.torch_trace)) * 1000000000)::bigint as end_ns, case "             \
    "when " IS_BACKWARD " then (duration * "                                                       \
    "1000000000)::bigint end as duration_ns, case when stage = 'recomputed forward' then stage "   \
    "end "                                                                                         \
    "as via from python.torch_trace where " WHOLE " and duration is not null and " there           \
    " is not null order by case when " IS_BACKWARD                                                 \
    " then 1 else 0 end, tid, case when " IS_BACKWARD                                              \
    " then '' else stage end, local_step, case when " IS_BACKWARD " then -end_ns "                 \
    "else seq end, case when " IS_BACKWARD " then -duration_ns else 0 end, -seq"

static const struct probing_flame flames[] = {
    {.name = "torch",
     .doc = "torch modules, wall time",
     .sql = CALLS("(duration * 1000000000)::bigint", "duration"),
     .rest = "select frame, value, whole from (select sum(backward_sec) * 1000000000 as b, "
             "sum(optimizer_sec) * 1000000000 as o, sum(dataloader_sec) * 1000000000 as d, "
             "sum(comm_sec) * 1000000000 as c, sum(step_duration_sec) * 1000000000 as whole from "
             "python.torch_step_timing where sampled = 1 and step_end <> 'forward' and " WHOLE
             ") s cross join lateral (values ('backward', b, 1), ('optimizer', o, 2), ('waiting "
             "for data', d, 3), ('communication', c, 4), ('other', whole, 5)) r(frame, value, "
             "place) order by place",
     .newest = "select max(ts) from python.torch_trace",
     .empty =
         "there are no calls of modules in a step that is whole there: plugin load torch keeps "
         "them",
     .unit = PROBING_NS},
    {.name = "torch_memory",
     .doc = "torch modules by the memory that their forwards leave allocated in a step",
     .sql = CALLS("allocated_delta * 1048576.0 / (select count(distinct local_step) from "
                  "python.torch_trace where " WHOLE " and allocated_delta is not null and stage in "
                  "('post forward', 'post backward'))",
                  "allocated_delta"),
     .newest = "select max(ts) from python.torch_trace",
     .empty = "no module call left GPU memory allocated; with torch.memory=on each call is "
              "measured, where torch uses CUDA",
     .unit = PROBING_BYTES}};

/* ---- the time line ---- */

/* Collectives may overlap, as those that nobody waits for at once: they are on no thread's line. */
static const struct probing_track tracks[] = {
    {.name = "steps",
     .doc = "steps of the training loop",
     .sql = "select t.*, 'step ' || local_step as name, 'steps' as track from "
            "python.torch_step_timing t where {when} order by ts",
     .newest = "select max(ts) from python.torch_step_timing"},
    {.name = "modules",
     .doc = "calls of modules, on their threads",
     .sql = "select * from python.torch_trace where {when}",
     .newest = "select max(ts) from python.torch_trace"},
    {.name = "collectives",
     .doc = "collective operations, a line for each process group",
     .sql = "select ts, op as name, (duration_ms * 1000000)::bigint as duration_ns, 'group ' || "
            "coalesce(group_name, '?') as track, seq, bytes, tensor_shape, tensor_dtype, async_op, "
            "wait_ms, src_rank, dst_rank, local_step, error from python.comm_collective where "
            "{when} order by ts - coalesce(duration_ms, 0) * interval '1 millisecond'",
     .newest = "select max(ts) from python.comm_collective"}};

/* ---- top ---- */

#define PART(name, column)                                                                  \
    " || case when " column " > 0 then ', " name " ' || round(" column " * 1000, 1)::text " \
    "else '' end"
/* The own time of a module is that of its calls without those of modules that it calls, which are
 * known by their names, of which the last part, or two, or three are left out, as a list of layers
 * is called by nobody.  A model's own name is not in those of its modules: it is the one that takes
 * as long as all other outermost ones together, or longer.  The calls are read once: rows are
 * repeated instead, by name and names of callers, and as time of one's own and of the caller's
 * less. */
#define OWN_TIMES                                                                            \
    "with calls as (select module, stage, count(*) as n, sum(duration) as total, "           \
    "max(allocated) as mb, nullif(regexp_replace(module, '[.][^.]*$', ''), module) as up1 "  \
    "from python.torch_trace where ts > now() - interval '10 seconds' and stage like "       \
    "'post%' and duration is not null group by 1, 2 order by 4 desc limit 1000), "           \
    "two as (select *, nullif(regexp_replace(up1, '[.][^.]*$', ''), up1) as up2 from "       \
    "calls), "                                                                               \
    "three as (select *, nullif(regexp_replace(up2, '[.][^.]*$', ''), up2) as up3 from "     \
    "two), "                                                                                 \
    "names as (select *, case l when 0 then module when 1 then up1 when 2 then up2 else "    \
    "up3 end as name from three cross join (values (0), (1), (2), (3)) v(l)), "              \
    "known as (select *, max(case when l = 0 then 1 end) over (partition by stage, name) "   \
    "as there from names where name is not null), "                                          \
    "callers as (select stage, module, max(n) as n, max(total) as total, max(mb) as mb, "    \
    "arg_min(case when l > 0 and there = 1 then name end, case when l > 0 and there = 1 "    \
    "then l end) as caller from known group by 1, 2), "                                      \
    "longest as (select *, max(case when caller is null then total end) over (partition by " \
    "stage) as most, sum(case when caller is null then total end) over (partition by "       \
    "stage) as outermost from callers), "                                                    \
    "models as (select *, max(case when caller is null and total = most and 2 * most >= "    \
    "outermost then module end) over (partition by stage) as model from longest), "          \
    "signed as (select *, case s when 1 then module else coalesce(caller, nullif(model, "    \
    "module)) end as whose from models cross join (values (1), (-1)) v(s)) "                 \
    "select max(case when s = 1 then n end) / 10.0 as \"calls/s\", case when sum(s * "       \
    "total) >= 0 then sum(s * total) * 1000 / max(case when s = 1 then n end) end as "       \
    "own_ms, max(case when s = 1 then total end) * 1000 / max(case when s = 1 then n end) "  \
    "as total_ms, max(case when s = 1 then mb end) as memory_mb, stage, whose as module "    \
    "from signed where whose is not null group by stage, whose order by sum(s * total) "     \
    "desc limit 8"

static const struct probing_panel panels[] = {
    {.name = "step",
     .doc = "the last training step",
     .sql = "select 'step ' || local_step || ': ' || coalesce(round(step_duration_sec * 1000, "
            "1)::text, '-') || ' ms'" PART("forward", "forward_sec")
                PART("backward", "backward_sec") PART("optimizer", "optimizer_sec")
                    PART("data", "dataloader_sec") " as line from python.torch_step_timing order "
                                                   "by ts desc limit 1",
     .kind = PROBING_LINES,
     .rows = 1},
    {.name = "modules",
     .doc = "of a call in the last 10 s",
     .sql = OWN_TIMES,
     .kind = PROBING_COLUMNS,
     .rows = 8}};

/* ---- tables ---- */

static const struct probing_table_name tables[] = {{"memory.torch"},
                                                   {"memory.torch_allocator"},
                                                   {"memory.torch_blocks"},
                                                   {"python.comm_collective"},
                                                   {"python.comm_stuck"},
                                                   {"python.ddp_timing"},
                                                   {"python.torch_device_time"},
                                                   {"python.torch_flight_snapshot"},
                                                   {"python.torch_nccl_flight_record"},
                                                   {"python.torch_step_timing"},
                                                   {"python.torch_trace"},
                                                   {"python.variables"},
                                                   {"torch.capture"},
                                                   {"torch.gradients"},
                                                   {"torch.groups"},
                                                   {"torch.loaders"},
                                                   {"torch.loop"},
                                                   {"torch.modules"},
                                                   {"torch.ops"},
                                                   {"torch.waiting"}};

/* Measured by tests/hostile/test_limits_table.py. */
#define MIB (UINT64_C(1) << 20)
static const struct probing_resource resources[] = {
    {.name = "address_space", .takes = 80 * MIB}, {.name = "data", .takes = 24 * MIB},
    {.name = "memory", .takes = 8 * MIB},         {.name = "mappings", .takes = 24},
    {.name = "descriptors", .takes = 2},          {.name = "threads", .takes = 2},
};

const struct probing_declarations torch_declares = {
    .size = sizeof(torch_declares),
    .n_resources = PROBING_LENGTH(resources),
    .resource_size = sizeof(resources[0]),
    .resources = resources,
    .n_views = PROBING_LENGTH(views),
    .view_size = sizeof(views[0]),
    .n_metrics = PROBING_LENGTH(metrics),
    .metric_size = sizeof(metrics[0]),
    .n_aliases = PROBING_LENGTH(aliases),
    .alias_size = sizeof(aliases[0]),
    .n_flames = PROBING_LENGTH(flames),
    .flame_size = sizeof(flames[0]),
    .views = views,
    .metrics = metrics,
    .aliases = aliases,
    .flames = flames,
    .n_tables = PROBING_LENGTH(tables),
    .table_size = sizeof(tables[0]),
    .tables = tables,
    .n_tracks = PROBING_LENGTH(tracks),
    .track_size = sizeof(tracks[0]),
    .tracks = tracks,
    .n_panels = PROBING_LENGTH(panels),
    .panel_size = sizeof(panels[0]),
    .panels = panels,
};
