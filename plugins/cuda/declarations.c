/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/declarations.c - what the plugin declares: its tables, views and modes of flame
 * graphs.
 *
 * Constants only: the core reads them out of the file, too, where the plugin is not loaded.
 */
#include "internal.h"

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

#define N(list) (sizeof(list) / sizeof((list)[0]))

/* ---- tables ---- */

static const struct probing_table_name tables[] = {
    {"cuda.kernels"},  {"cuda.kernel_stats"}, {"cuda.device_time"}, {"cuda.memcpy"},
    {"cuda.memory"},   {"cuda.runtime"},      {"cuda.sync"},        {"cuda.graphs"},
    {"cuda.overhead"}, {"cuda.tracing"}};

const struct probing_declarations cuda_declares = {
    .size = sizeof(cuda_declares),
    .n_flames = N(flames),
    .flame_size = sizeof(flames[0]),
    .flames = flames,
    .n_tables = N(tables),
    .table_size = sizeof(tables[0]),
    .tables = tables,
};
