/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/declarations.c - what the plugin declares: its tables, views and modes of flame
 * graphs.
 *
 * Constants only: the core reads them out of the file, too, where the plugin is not loaded.
 */
#include "internal.h"
#include "probing_sdk.h"

/* ---- flame graphs ---- */

/* From the sums, which have all kernels: above a rate not each has a row of its own.  A module's
 * name is its path, whose parts are frames; names of functions are as they are. */
#define NAME "replace(name, ';', ':')"
static const struct probing_flame flames[] = {
    {.name = "cuda",
     .doc = "kernels below the torch modules that launched them, time on the device",
     .sql = "select coalesce(replace(replace(module, ';', ':'), '.', ';'), '(no module)') || ';' "
            "|| " NAME " as stack, sum(total_ns) as value from cuda.kernel_stats where {when} "
            "group by 1",
     .newest = "select max(ts) from cuda.kernel_stats",
     .empty = "no kernel was seen: plugin load cuda traces them from then on, and cuda.tracing "
              "says whether it does",
     .unit = PROBING_NS}};

/* ---- traces ---- */

/* A stream's work is on a line of its own, calls on those of their threads.  A column `module`
 * would be taken for the event's name. */
#define STREAM "'GPU ' || device || ', stream ' || coalesce(stream::text, '?') as track"
#define PLACE "module as in_module, step, thread_id, correlation_id"
static const struct probing_track tracks[] = {
    {.name = "kernels",
     .doc = "kernels on the device, a line for each stream; those of NCCL are of kind collective",
     .sql = "select ts as begun, duration_ns, name, case when name ilike '%nccl%' then "
            "'collective' else 'kernel' end as kind, " STREAM ", grid, block, registers, "
            "shared_bytes, queued_ns, graph_id, " PLACE " from cuda.kernels where {when} order by "
            "begun",
     .newest = "select max(ts) from cuda.kernels"},
    {.name = "copies",
     .doc = "copies and sets of memory, on the lines of their streams",
     .sql = "select ts as begun, duration_ns, kind as name, 'copy' as kind, " STREAM ", bytes, "
            "src_kind, dst_kind, async, " PLACE " from cuda.memcpy where {when} order by begun",
     .newest = "select max(ts) from cuda.memcpy"},
    {.name = "cuda_calls",
     .doc = "calls of CUDA's runtime and driver that took long, on their threads",
     .sql =
         "select ts as begun, duration_ns, name, api as kind, thread_id as tid, result, module as "
         "in_module, step, correlation_id from cuda.runtime where {when} and thread_id is not null "
         "order "
         "by begun",
     .newest = "select max(ts) from cuda.runtime"}};

/* ---- tables ---- */

static const struct probing_table_name tables[] = {
    {"cuda.kernels"},  {"cuda.kernel_stats"}, {"cuda.device_time"}, {"cuda.memcpy"},
    {"cuda.memory"},   {"cuda.runtime"},      {"cuda.sync"},        {"cuda.event_stats"},
    {"cuda.overhead"}, {"cuda.windows"},      {"cuda.tracing"}};

/* Measured by tests/hostile/test_limits_table.py. */
#define MIB (UINT64_C(1) << 20)
static const struct probing_resource resources[] = {
    {.name = "address_space", .takes = 264 * MIB}, {.name = "data", .takes = 32 * MIB},
    {.name = "memory", .takes = 32 * MIB},         {.name = "mappings", .takes = 64},
    {.name = "descriptors", .takes = 8},           {.name = "threads", .takes = 3},
};

const struct probing_declarations cuda_declares = {
    .size = sizeof(cuda_declares),
    .n_resources = PROBING_LENGTH(resources),
    .resource_size = sizeof(resources[0]),
    .resources = resources,
    .alias_size = sizeof(struct probing_alias),
    .n_flames = PROBING_LENGTH(flames),
    .flame_size = sizeof(flames[0]),
    .flames = flames,
    .n_tracks = PROBING_LENGTH(tracks),
    .track_size = sizeof(tracks[0]),
    .tracks = tracks,
    .n_tables = PROBING_LENGTH(tables),
    .table_size = sizeof(tables[0]),
    .tables = tables,
};
