/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/declarations.c - what the plugin declares: its tables, views and modes of flame
 * graphs.
 *
 * Constants only: the core reads them out of the file, too, where the plugin is not loaded.
 */
#include "internal.h"

#define N(list) (sizeof(list) / sizeof((list)[0]))

/* ---- tables ---- */

static const struct probing_table_name tables[] = {
    {"cuda.kernels"},  {"cuda.kernel_stats"}, {"cuda.device_time"}, {"cuda.memcpy"},
    {"cuda.memory"},   {"cuda.runtime"},      {"cuda.sync"},        {"cuda.graphs"},
    {"cuda.overhead"}, {"cuda.tracing"}};

const struct probing_declarations cuda_declares = {
    .size = sizeof(cuda_declares),
    .n_tables = N(tables),
    .table_size = sizeof(tables[0]),
    .tables = tables,
};
