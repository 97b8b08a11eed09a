/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/declarations.c - what the plugin declares: views under the names that the field's
 * queries use, and metrics.
 *
 * Constants only: the core reads them out of the file, too, where the plugin is not loaded.
 */
#include "declarations.h"
#include "probing_sdk.h"

#define LATEST(table) "select max(ts) from " table

#define CPU_MEMORY                                                                         \
    "select ts as timestamp, rss_kb / 1024.0 as memory_mb, null::double as gpu_memory_mb " \
    "from cpu.utilization where scope = 'process'"
#define GPU_MEMORY                                                                                \
    "select ts as timestamp, null::double as memory_mb, used_bytes / 1048576.0 as gpu_memory_mb " \
    "from gpu.utilization"

/* GPU memory that torch uses, as plugin memory has it beside its own, too. */
#define TORCH_MEMORY                                                                      \
    "select ts as timestamp, null::double as memory_mb, allocated as gpu_memory_mb from " \
    "python.torch_trace where allocated is not null and device like 'cuda%'"

static const struct probing_view views[] = {
    {"memory_usage", CPU_MEMORY " union all " GPU_MEMORY,
     "memory in use by the process and on GPUs", NULL},
    {"memory_usage", CPU_MEMORY " union all " TORCH_MEMORY,
     "memory in use by the process, and what torch uses of GPUs", NULL},
    {"memory_usage", CPU_MEMORY, "memory in use by the process", NULL},
    {"memory_usage", GPU_MEMORY, "memory in use on GPUs", NULL},
    {"rdma.mlx_hca",
     "select ts, device as hca_name, port, rcv_bytes / 4 as port_rcv_data, xmit_bytes / 4 as "
     "port_xmit_data, port_rcv_packets, port_xmit_packets, link_downed, symbol_error, np_cnp_sent, "
     "np_ecn_marked_roce_packets, rcv_packets_per_sec as rcv_pkts_rate, xmit_packets_per_sec as "
     "snd_pkts_rate, pause_tx as pfc_tx_packets, pause_rx as pfc_rx_packets, "
     "(pause_tx is not null or pause_rx is not null)::bigint as pfc_available from rdma.counters "
     "where ts = (" LATEST("rdma.counters") ")",
     "the newest look at each port; data in words of 4 bytes, as the devices count it", NULL},
    {"process.gpu_users",
     "select pid, comm, uid, gpus, cpu_pct, rss_bytes, self from process.cpu_stats where gpus is "
     "not null",
     "processes that have a GPU open", "select 'no process that may be looked at has a GPU open'"}};

#define LAST_OF(table) \
    "from " table " where ts > now() - interval '5 minutes' and ts = (" LATEST(table) ")"
#define LAST_PROCESS                                                                            \
    "from cpu.utilization where scope = 'process' and ts > now() - interval '5 minutes' order " \
    "by ts desc limit 1"

static const struct probing_metric metrics[] = {
    {"cpu_seconds", "CPU time of the process since it began.",
     "with last as (select cum_user_ns, cum_sys_ns " LAST_PROCESS
     ") select 'user' as mode, cum_user_ns / 1e9 as value from last union all select 'system' as "
     "mode, cum_sys_ns / 1e9 from last",
     PROBING_COUNTER, PROBING_SECONDS},
    {"cpu_percent", "CPU time of the process, percent of one core, at the last look.",
     "select cpu_total_pct as value " LAST_PROCESS, PROBING_GAUGE, PROBING_PLAIN},
    {"resident_memory_bytes", "Resident memory of the process.",
     "select rss_kb * 1024 as value " LAST_PROCESS, PROBING_GAUGE, PROBING_BYTES},
    {"threads", "Threads of the process.", "select thread_count as value " LAST_PROCESS,
     PROBING_GAUGE, PROBING_PLAIN},
    {"io_bytes", "Bytes read from and written to devices since the process began.",
     "with last as (select read_bytes, write_bytes from io.utilization order by ts desc limit 1) "
     "select 'read' as direction, read_bytes as value from last union all select 'write' as "
     "direction, write_bytes from last",
     PROBING_COUNTER, PROBING_BYTES},
    {"cpu_throttled_percent", "Of its periods, in which the cgroup was throttled.",
     "select 100.0 * delta_throttled / nullif(delta_periods, 0) as value from cgroup.utilization "
     "order by ts desc limit 1",
     PROBING_GAUGE, PROBING_PLAIN},
    {"runqueue_wait_seconds",
     "Time that threads of the process were ready to run and did not, in the "
     "last 5 minutes, by the second.",
     "select sum(delta_runq_wait_ns) * 1.0 / nullif(sum(wall_ns), 0) as value from "
     "cpu.utilization where scope = 'process' and ts > now() - interval '5 minutes'",
     PROBING_GAUGE, PROBING_PLAIN},
    {"machine_cpu_steal_percent", "Time of the machine's processors that a hypervisor took.",
     "select cpu_steal_pct as value " LAST_OF("host.utilization"), PROBING_GAUGE, PROBING_PLAIN},
    {"machine_tcp_retransmit_percent", "TCP segments sent again, of those sent.",
     "select tcp_retrans_pct as value " LAST_OF("host.utilization"), PROBING_GAUGE, PROBING_PLAIN},
    {"oom_kills", "Processes killed in the cgroup for want of memory.",
     "select oom_kills as value from cgroup.utilization order by ts desc limit 1", PROBING_COUNTER,
     PROBING_PLAIN},
    {"pressure_percent", "Time that tasks of the machine waited, last 10 s.",
     "select resource, kind, avg10_pct as value " LAST_OF("system.pressure") " and scope = "
                                                                             "'machine'",
     PROBING_GAUGE, PROBING_PLAIN}};

/* ---- tables ---- */

static const struct probing_table_name tables[] = {
    {"cpu.utilization"},    {"io.utilization"},   {"net.utilization"}, {"rdma.counters"},
    {"cgroup.utilization"}, {"host.utilization"}, {"system.pressure"}, {"system.numa"},
    {"process.maps"},       {"process.fds"},      {"process.limits"},  {"process.kmsg"},
    {"process.cpu_stats"},  {"net.peers"},        {"net.connections"}};

/* Measured by tests/hostile/test_limits_table.py. */
#define MIB (UINT64_C(1) << 20)
static const struct probing_resource resources[] = {
    {.name = "address_space", .takes = 8 * MIB}, {.name = "data", .takes = 4 * MIB},
    {.name = "memory", .takes = 2 * MIB},        {.name = "mappings", .takes = 20},
    {.name = "descriptors", .takes = 4},
};

const struct probing_declarations system_declares = {
    .size = sizeof(system_declares),
    .n_resources = PROBING_LENGTH(resources),
    .resource_size = sizeof(resources[0]),
    .resources = resources,
    .n_views = PROBING_LENGTH(views),
    .view_size = sizeof(views[0]),
    .n_metrics = PROBING_LENGTH(metrics),
    .metric_size = sizeof(metrics[0]),
    .alias_size = sizeof(struct probing_alias),
    .views = views,
    .metrics = metrics,
    .n_tables = PROBING_LENGTH(tables),
    .table_size = sizeof(tables[0]),
    .tables = tables,
};
