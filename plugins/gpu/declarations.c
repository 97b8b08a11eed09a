/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/declarations.c - what the plugin declares: the view under the name that the field's
 * queries use, facts of devices, metrics, and lines of top.
 *
 * Constants only: the core reads them out of the file, too, where the plugin is not loaded.
 */
#include "declarations.h"
#include "probing_sdk.h"

/* Facts that two machines of one make have alike, device by device; each one's own (uuid, place on
 * the bus, use) are not compared. */
#define FACT(what, value)                                                                          \
    " union all select 'device ' || index || coalesce(' partition ' || partition, '') || ', " what \
    "', " value " from gpu.devices"

static const struct probing_view views[] = {
    {"gpu.facts",
     "select 'driver' as name, max(driver_version) as value from gpu.devices union all select "
     "'CUDA of the driver', max(cuda_version) from gpu.devices union all select 'devices', "
     "count(*)::text from gpu.devices" FACT("name", "name") FACT("state", "state")
         FACT("memory", "format_bytes(total_bytes)") FACT("power limit", "power_limit_w || ' W'")
             FACT("compute capability", "compute_capability")
                 FACT("partition mode", "partition_mode") FACT("NVLinks", "nvlinks::text"),
     "devices and their driver, as `cluster diff` compares them", NULL},
    {"gpu_metrics",
     "select ts as timestamp, device_id as gpu, gpu_util_pct as gpu_util, used_bytes / 1048576.0 "
     "as memory_mb from gpu.utilization",
     "how busy GPUs are, and memory in use on them", NULL}};

/* The newest row of each device; of none that has had none for five minutes. */
#define LAST(column)                                                                           \
    "select device_id::text as device, arg_max(" column ", ts) as value from gpu.utilization " \
    "where ts > now() - interval '5 minutes' and " column " is not null group by 1"

static const struct probing_metric metrics[] = {
    {"utilization_percent", "Time in which a kernel ran on the GPU, of its last sample period.",
     LAST("gpu_util_pct"), PROBING_GAUGE, PROBING_PLAIN},
    {"memory_used_bytes", "Device memory in use, by all processes.", LAST("used_bytes"),
     PROBING_GAUGE, PROBING_BYTES},
    {"memory_bytes", "Device memory.", LAST("total_bytes"), PROBING_GAUGE, PROBING_BYTES},
    {"power_watts", "Power that the GPU takes.", LAST("power_w"), PROBING_GAUGE, PROBING_PLAIN},
    {"temperature_celsius", "Temperature of the GPU.", LAST("temperature_c"), PROBING_GAUGE,
     PROBING_PLAIN},
    {"ecc_uncorrected_errors", "Memory errors not corrected, since the driver was loaded.",
     LAST("ecc_uncorrected"), PROBING_COUNTER, PROBING_PLAIN}};

/* ---- top ---- */

static const struct probing_panel panels[] = {
    {.name = "gpus",
     .doc = "each GPU",
     .sql = "select 'gpu ' || device_id || ': ' || case when state <> 'ok' then state else "
            "coalesce(round(busy)::text || '%', '-') || ', ' || coalesce(format_bytes(used), '-') "
            "|| ' of ' || coalesce(format_bytes(total), '-') || ', ' || "
            "coalesce(round(celsius)::text, '-') || ' C, ' || coalesce(round(watts)::text, '-') || "
            "' W' || case when reasons in ('none', 'idle') then '' else coalesce(', held down: ' "
            "|| reasons, '') end end as line from (select device_id, arg_max(state, ts) as state, "
            "arg_max(gpu_util_pct, ts) as busy, arg_max(used_bytes, ts) as used, "
            "arg_max(total_bytes, ts) as total, arg_max(temperature_c, ts) as celsius, "
            "arg_max(power_w, ts) as watts, arg_max(throttle_reasons, ts) as reasons from "
            "gpu.utilization where ts > now() - interval '1 minute' group by device_id) g order by "
            "device_id",
     .kind = PROBING_LINES,
     .rows = 16}};

/* ---- tables ---- */

static const struct probing_table_name tables[] = {
    {"gpu.devices"}, {"gpu.processes"}, {"gpu.utilization"}, {"gpu.partition_utilization"}};

/* Measured by tests/hostile/test_limits_table.py. */
#define MIB (UINT64_C(1) << 20)
static const struct probing_resource resources[] = {
    {.name = "address_space", .takes = 136 * MIB}, {.name = "data", .takes = 8 * MIB},
    {.name = "memory", .takes = 8 * MIB},          {.name = "mappings", .takes = 48},
    {.name = "descriptors", .takes = 16},          {.name = "threads", .takes = 2},
};

const struct probing_declarations gpu_declares = {
    .size = sizeof(gpu_declares),
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
    .n_panels = PROBING_LENGTH(panels),
    .panel_size = sizeof(panels[0]),
    .panels = panels,
};
