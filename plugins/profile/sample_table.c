/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/sample_table.c - the table python.samples, one row for each sample; and
 * python.unsampled, which threads have none.
 *
 * Nothing kept.
 */
#include "sample_table.h"

#include "probing_sdk.h"

static const struct probing_column SAMPLES_COLUMNS[] = {
    {.name = "stack_id", .type = PROBING_I64, .doc = "number of its stack: see python.stacks"},
    {.name = "thread_id",
     .type = PROBING_I64,
     .doc = "the kernel's id of the sampled thread (tid is the profiler's own thread)"},
    {.name = "thread_name",
     .type = PROBING_STR,
     .doc = "name of the thread in threading, else in the kernel"},
    {.name = "gil",
     .type = PROBING_I64,
     .doc = "1: the thread held the GIL; 0: it did not; NULL: it runs no Python"},
    {.name = "cpu_ns",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .doc = "CPU time that the thread used since its previous sample"},
    {.name = "wall_ns",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .doc = "time that this sample stands for, running or waiting; in mode cpu the same as cpu_ns"},
    {.name = "step",
     .type = PROBING_I64,
     .doc = "local_step of plugin torch; NULL: it is not loaded"},
};

int sample_table_new(const struct probing_host *host, struct probing_table **ret)
{
    static const struct probing_table_desc samples =
        PROBING_TABLE("python.samples", SAMPLES_COLUMNS,
                      "samples of the profiler: one row per sample, of Python and native threads");
    return host->table(host, &samples, ret);
}

void sample_table_add(const struct probing_host *host, struct probing_table *t,
                      const struct sample_row *row)
{
    const union probing_cell cells[] = {
        {.i = row->stack},  {.i = row->tid},     {.u = row->thread_name}, {.i = row->gil},
        {.i = row->cpu_ns}, {.i = row->wall_ns}, {.i = row->step},
    };
    (void)host->append(t, row->ts, cells, PROBING_LENGTH(cells), NULL, 0);
}

int unsampled_table_new(const struct probing_host *host, struct probing_table **ret)
{
    static const struct probing_column columns[] = {
        {.name = "threads", .type = PROBING_I64, .doc = "number of threads that are not sampled"},
        {.name = "sampled", .type = PROBING_I64, .doc = "number of threads that are"},
        {.name = "reason", .type = PROBING_STR, .doc = "why"}};
    static const struct probing_table_desc unsampled =
        PROBING_TABLE("python.unsampled", columns,
                      "threads that the profiler has no timer for: a row each second while there "
                      "are any");
    return host->table(host, &unsampled, ret);
}

void unsampled_table_add(const struct probing_host *host, struct probing_table *t, uint32_t threads,
                         uint32_t sampled)
{
    const union probing_cell cells[] = {
        {.i = threads}, {.i = sampled}, {.u = probing_intern_text(host, UNSAMPLED_REASON)}};
    (void)host->append(t, host->now(), cells, PROBING_LENGTH(cells), NULL, 0);
}
