/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/declarations.c - what the plugin declares: views under the names that the field's
 * queries use, and metrics.
 *
 * Constants only: the core reads them out of the file, too, where the plugin is not loaded.
 */
#include "declarations.h"
#include "probing_sdk.h"

/* ---- what is in flight: of the living, and of those who died with it ---- */

#define INFLIGHT                                                                                 \
    "id, rank, comm_hash, comm_name, coll_func, seq, kind, channel_id, peer, is_send, started, " \
    "age_ns, state, state_ns, culprit_rank"
#define INFLIGHT_LIVE "select now() as ts, " INFLIGHT " from nccl.inflight_now"
/* The last row of each operation that has no row of its end. */
#define INFLIGHT_DEAD                                                                             \
    "select ts, " INFLIGHT " from (select ts, " INFLIGHT ", row_number() over (partition by id "  \
    "order by ts desc) as n from nccl.inflight_log) l where n = 1 and id not in (select id from " \
    "nccl.coll_perf) and id not in (select id from nccl.proxy_ops)"
#define WHY_NO_EVENTS "select reason from nccl.profiler_state where state <> 'active'"

/* ---- collectives: NCCL's own words, else torch's ---- */

#define COLLECTIVES_NCCL                                                                          \
    "select ts as timestamp, 'nccl' as source, rank, lower(coll_func) as op, seq, "               \
    "coalesce(comm_name, comm_hash) as group_name, n_ranks as group_size, msg_size_bytes as "     \
    "bytes, exec_time_ns / 1e6 as duration_ms, queued_ns / 1e6 as queued_ms, algobw_gbps, algo, " \
    "proto from nccl.coll_perf"
#define COLLECTIVES_TORCH                                                                      \
    "select ts as timestamp, 'torch' as source, rank, op, seq, group_name, "                   \
    "group_size, bytes, duration_ms, null::double as queued_ms, null::double as algobw_gbps, " \
    "null::text as algo, null::text as proto from python.comm_collective"

/* Torch's records of the time before plugin torch hooked it; they do not give sizes as bytes. */
#define COLLECTIVES_BEFORE                                                                      \
    "select ts as timestamp, 'flight recorder' as source, null::bigint as rank, op, seq, "      \
    "group_name, null::bigint as group_size, null::bigint as bytes, duration_ms, null::double " \
    "as queued_ms, null::double as algobw_gbps, null::text as algo, null::text as proto from "  \
    "(select to_timestamp(time_created_ns / 1e9) as ts, replace(split_part(split_part("         \
    "profiling_name, ':', 2), ' ', 1), '_', '') as op, case when is_p2p = 'true' then "         \
    "p2p_seq_id else collective_seq_id end as seq, process_group ->> 0 as group_name, "         \
    "(time_completed_ns - time_started_ns) / 1e6 as duration_ms from "                          \
    "python.torch_nccl_flight_record) f where ts < (select coalesce(min(ts), now()) from "      \
    "python.comm_collective)"

#define METRICS_NCCL                                                                           \
    "select ts as timestamp, case when is_send = 1 then rank else peer end as src_rank, case " \
    "when is_send = 1 then peer else rank end as dst_rank, lower(coll_func) as op, "           \
    "duration_ns / 1e6 as latency_ms, trans_bytes as bytes from nccl.proxy_ops"
#define METRICS_TORCH                                                                     \
    "select ts as timestamp, case when op = 'recv_anysource' then src_rank else "         \
    "coalesce(src_rank, rank) end as src_rank, dst_rank, op, duration_ms as latency_ms, " \
    "bytes from python.comm_collective"

static const struct probing_view views[] = {
    {"nccl.inflight_ops", INFLIGHT_LIVE,
     "operations of NCCL that have begun and not ended, and their parts on the network, with ages",
     WHY_NO_EVENTS},
    {"nccl.inflight_ops", INFLIGHT_DEAD,
     "operations of NCCL that had not ended when the process was last heard of, as they were then",
     NULL},
    {"collectives",
     COLLECTIVES_NCCL
     " union all " COLLECTIVES_TORCH
     " where not exists (select 1 from nccl.coll_perf) union all " COLLECTIVES_BEFORE
     " and not exists (select 1 from nccl.coll_perf)",
     "collective operations: as NCCL saw them, else as torch.distributed was called and, of "
     "before, "
     "as torch's flight recorder has them",
     WHY_NO_EVENTS},
    {"collectives",
     COLLECTIVES_NCCL " union all " COLLECTIVES_TORCH
                      " where not exists (select 1 from nccl.coll_perf)",
     "collective operations: as NCCL saw them, rank is that in the communicator, else as "
     "torch.distributed was called, and rank is that in the job",
     WHY_NO_EVENTS},
    {"collectives", COLLECTIVES_NCCL, "collective operations, as NCCL saw them", WHY_NO_EVENTS},
    {"collectives", COLLECTIVES_TORCH, "collective operations, as torch.distributed was called",
     NULL},
    /* Plugin torch has the first of these, too: whichever of the two was loaded last. */
    {"comm_metrics",
     METRICS_NCCL " union all " METRICS_TORCH " where not exists (select 1 from nccl.proxy_ops)",
     "transfers on the network between two ranks of a communicator, as NCCL saw them; else torch's "
     "operations, between ranks of the job",
     NULL},
    {"comm_metrics", METRICS_NCCL, "transfers on the network between two ranks of a communicator",
     WHY_NO_EVENTS}};

static const struct probing_metric metrics[] = {
    {"inflight_ops", "Operations of NCCL that have begun and not ended.",
     "select count(*) as value from nccl.inflight_now where kind <> 'proxy_op'", PROBING_GAUGE,
     PROBING_PLAIN},
    {"oldest_inflight_seconds", "Age of the oldest of them.",
     "select max(age_ns) / 1e9 as value from nccl.inflight_now where kind <> 'proxy_op'",
     PROBING_GAUGE, PROBING_SECONDS},
    {"ops_total", "Operations of NCCL that were seen, by communicator.",
     "select comm_hash, sum(ops) as value from nccl.communicators group by comm_hash",
     PROBING_COUNTER, PROBING_PLAIN},
    {"events_dropped_total", "Events of NCCL for which there was no room, by communicator.",
     "select comm_hash, sum(pool_exhausted) as value from nccl.communicators group by comm_hash",
     PROBING_COUNTER, PROBING_PLAIN}};

static const struct probing_table_name tables[] = {
    {"nccl.coll_perf"},         {"nccl.proxy_ops"},     {"nccl.net_qp"},
    {"nccl.profiler_counters"}, {"nccl.inflight_log"},  {"nccl.inflight_now"},
    {"nccl.communicators"},     {"nccl.profiler_state"}};

/* Measured by tests/hostile/test_limits_table.py. */
#define MIB (UINT64_C(1) << 20)
static const struct probing_resource resources[] = {
    {.name = "address_space", .takes = 16 * MIB}, {.name = "data", .takes = 8 * MIB},
    {.name = "memory", .takes = 4 * MIB},         {.name = "mappings", .takes = 16},
    {.name = "descriptors", .takes = 4},          {.name = "threads", .takes = 1},
};

const struct probing_declarations nccl_declares = {
    .size = sizeof(nccl_declares),
    .n_resources = PROBING_LENGTH(resources),
    .resource_size = sizeof(resources[0]),
    .resources = resources,
    .n_views = PROBING_LENGTH(views),
    .view_size = sizeof(views[0]),
    .n_metrics = PROBING_LENGTH(metrics),
    .metric_size = sizeof(metrics[0]),
    .views = views,
    .metrics = metrics,
    .n_tables = PROBING_LENGTH(tables),
    .table_size = sizeof(tables[0]),
    .tables = tables,
};
