/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/tables.c - the tables of samples, and their rows.
 *
 * Nothing kept.  memory.frees repeats what its sample says of place and size: who asks what is
 * alive since some moment needs no join with samples of long ago, which retention may have taken.
 */
#include "tables.h"

#include "estimate.h"
#include "probing_sdk.h"
#include "sample.h"

#define DOMAIN_COLUMN \
    PROBING_STR_COLUMN("domain", "who was asked for it: malloc, mmap, python, cuda")
#define STACK_COLUMN               \
    PROBING_I64_COLUMN(            \
        "stack_id", PROBING_PLAIN, \
        "number of the stack that allocated: see memory.stacks; NULL: not recorded")
#define PLACE_COLUMNS                                                                             \
    PROBING_STR_COLUMN("function_name",                                                           \
                       "the innermost Python function; of a stack without one the innermost "     \
                       "native function that is no allocator, C or C++ library or interpreter"),  \
        PROBING_STR_COLUMN("native_function",                                                     \
                           "the innermost such native function that the Python function called, " \
                           "or that is function_name itself; NULL: none"),                        \
        PROBING_STR_COLUMN("file", "source file of function_name; NULL: not known"),              \
        PROBING_I64_COLUMN("lineno", PROBING_PLAIN, "line in it; NULL: not known")
#define LIVE_COLUMNS                                                                               \
    PROBING_I64_COLUMN("bytes", PROBING_BYTES, "estimate: bytes alive that this stack allocated"), \
        PROBING_I64_COLUMN("bytes_error", PROBING_BYTES,                                           \
                           "standard error of this estimate, with what is in no sample where "     \
                           "samples were farther apart than asked: two of three times the truth "  \
                           "is as near"),                                                          \
        PROBING_I64_COLUMN("bytes_1m", PROBING_BYTES, "of bytes, what is older than a minute"),    \
        PROBING_I64_COLUMN("bytes_10m", PROBING_BYTES,                                             \
                           "of bytes, what is older than ten minutes"),                            \
        PROBING_F64_COLUMN("count", PROBING_COUNT, "estimate: number of those allocations"),       \
        PROBING_I64_COLUMN("samples", PROBING_COUNT, "number of samples that say so"),             \
        PROBING_I64_COLUMN("age_ns", PROBING_NS, "time since the oldest of them was allocated"),   \
        PROBING_I64_COLUMN("newest_ns", PROBING_NS, "time since the newest of them was allocated")
/* See SAMPLED_CELLS(). */
#define SAMPLED_COLUMNS                                                                        \
    DOMAIN_COLUMN,                                                                             \
        PROBING_I64_COLUMN("size", PROBING_BYTES, "bytes that this one allocation asked for"), \
        PROBING_F64_COLUMN(                                                                    \
            "count", PROBING_COUNT,                                                            \
            "estimate: number of allocations of this size that the sample stands for"),        \
        PROBING_I64_COLUMN("bytes", PROBING_BYTES, "estimate: their bytes, size * count"),     \
        STACK_COLUMN, PLACE_COLUMNS

static const struct probing_column sample_columns[] = {
    PROBING_I64_COLUMN("sample_id", PROBING_PLAIN, "number of the sample"),
    PROBING_I64_COLUMN(
        "thread_id", PROBING_PLAIN,
        "the kernel's id of the thread that allocated (tid is probing's own thread)"),
    PROBING_STR_COLUMN("thread_name", "name of the thread in threading, else in the kernel"),
    SAMPLED_COLUMNS,
    PROBING_I64_COLUMN("step", PROBING_COUNT, "local_step of plugin torch; NULL: it is not loaded"),
};

static const struct probing_column free_columns[] = {
    PROBING_I64_COLUMN("sample_id", PROBING_PLAIN, "number of the sample in memory.samples"),
    PROBING_I64_COLUMN("lifetime_ns", PROBING_NS, "time from the allocation to its end"),
    PROBING_I64_COLUMN("thread_id", PROBING_PLAIN, "the kernel's id of the thread that freed it"),
    SAMPLED_COLUMNS,
};

static const struct probing_column snapshot_columns[] = {
    PROBING_I64_COLUMN("snapshot_id", PROBING_PLAIN,
                       "number of the snapshot: its rows are one moment"),
    PROBING_STR_COLUMN("kind", "periodic: each memory.snapshot_interval; peak: more than ever was "
                               "alive; fall: most of it has been freed since; mark: a client "
                               "asked (mark NAME)"),
    PROBING_STR_COLUMN("name", "of a mark"),
    PROBING_I64_COLUMN("total_bytes", PROBING_BYTES, "estimate: all that was alive at that moment"),
    PROBING_I64_COLUMN("sample_bytes_max", PROBING_BYTES,
                       "largest mean number of bytes between two samples since the snapshot "
                       "before: what was allocated in less than some times of it may be missing"),
    PROBING_I64_COLUMN("unsampled_bytes", PROBING_BYTES,
                       "of what was allocated since the snapshot before, what a stack may have in "
                       "no sample, as samples were farther apart than memory.sample_bytes: one "
                       "standard error"),
    PROBING_STR_COLUMN("domain", "malloc, mmap, python, cuda; NULL: several"),
    LIVE_COLUMNS,
    PROBING_I64_COLUMN("stacks", PROBING_COUNT,
                       "number of stacks in this row: 1; of the last row all that have none of "
                       "their own"),
    STACK_COLUMN,
    PLACE_COLUMNS,
};

static const struct probing_column live_columns[] = {
    STACK_COLUMN,
    PLACE_COLUMNS,
    DOMAIN_COLUMN,
    LIVE_COLUMNS,
    PROBING_I64_COLUMN("size", PROBING_BYTES, "bytes of one of them, on average"),
};

static const struct probing_column peak_columns[] = {
    PROBING_COLUMN("ts", PROBING_TIME, PROBING_NS, "when the most was alive"),
    STACK_COLUMN,
    PLACE_COLUMNS,
    DOMAIN_COLUMN,
    PROBING_I64_COLUMN("bytes", PROBING_BYTES, "estimate: bytes alive that this stack allocated"),
    PROBING_I64_COLUMN("bytes_error", PROBING_BYTES, "standard error of this estimate"),
    PROBING_F64_COLUMN("count", PROBING_COUNT, "estimate: number of those allocations"),
    PROBING_I64_COLUMN("samples", PROBING_COUNT, "number of samples that say so"),
    PROBING_I64_COLUMN("stacks", PROBING_COUNT, "number of stacks in this row"),
    PROBING_I64_COLUMN("age_ns", PROBING_NS, "time since the oldest of them was allocated, then"),
    PROBING_I64_COLUMN("total_bytes", PROBING_BYTES, "estimate: all that was alive then"),
};

static const char *const domains[MEMORY_DOMAINS] = {[MEMORY_MALLOC] = "malloc",
                                                    [MEMORY_MMAP] = "mmap",
                                                    [MEMORY_PYTHON] = "python",
                                                    [MEMORY_CUDA] = "cuda"};

static union probing_cell or_null(int64_t value)
{
    return probing_i64(value ? value : PROBING_NULL_I64);
}

/* A double that is no count of more than what fits. */
static union probing_cell whole_number(double value)
{
    return probing_i64(value < 9e18 ? (int64_t)(value + 0.5) : INT64_MAX);
}

static union probing_cell domain_of(const struct sample_tables *t, const struct origin *from)
{
    return probing_id(from->domain < MEMORY_DOMAINS ? t->domains[from->domain] : PROBING_NULL_ID);
}

/* As SAMPLED_COLUMNS. */
#define SAMPLED_CELLS(t, row)                                                                     \
    domain_of(t, &(row)->from), {.u = (row)->size}, {.f = (row)->count},                          \
        whole_number((double)(row)->size *(row)->count), or_null((row)->from.stack),              \
        {.u = (row)->from.function}, {.u = (row)->from.native_function}, {.u = (row)->from.file}, \
        or_null((row)->from.line)

void sample_tables_sample(const struct sample_tables *t, const struct sample_row *row,
                          uint64_t thread_name, int64_t step)
{
    const union probing_cell cells[] = {
        {.u = row->id}, {.i = row->tid}, {.u = thread_name}, SAMPLED_CELLS(t, row), {.i = step}};
    (void)t->host->append(t->samples, row->ts, cells, PROBING_LENGTH(cells), NULL, 0);
}

void sample_tables_free(const struct sample_tables *t, const struct sample_row *row,
                        uint64_t lifetime_ns)
{
    const union probing_cell cells[] = {
        {.u = row->id}, {.u = lifetime_ns}, {.i = row->tid}, SAMPLED_CELLS(t, row)};
    (void)t->host->append(t->frees, row->ts, cells, PROBING_LENGTH(cells), NULL, 0);
}

int sample_tables_snapshot(const struct sample_tables *t, const struct snapshot_about *about,
                           const struct live_row *row)
{
    static const char *const kinds[SNAPSHOT_KINDS] = {[SNAPSHOT_PERIODIC] = "periodic",
                                                      [SNAPSHOT_PEAK] = "peak",
                                                      [SNAPSHOT_FALL] = "fall",
                                                      [SNAPSHOT_MARK] = "mark"};
    const union probing_cell cells[] = {
        {.u = about->id},
        {.u = probing_intern_text(t->host, kinds[about->kind])},
        {.u = about->name},
        whole_number(about->total),
        {.u = about->widest},
        whole_number(about->unsampled),
        domain_of(t, &row->from),
        whole_number(row->bytes),
        whole_number(estimate_root(row->bytes_variance)),
        whole_number(row->bytes_1m),
        whole_number(row->bytes_10m),
        {.f = row->count},
        {.u = row->samples},
        {.u = about->ts - row->oldest},
        {.u = about->ts - row->newest},
        {.u = row->stacks},
        or_null(row->from.stack),
        {.u = row->from.function},
        {.u = row->from.native_function},
        {.u = row->from.file},
        or_null(row->from.line),
    };
    return t->host->append(t->snapshots, about->ts, cells, PROBING_LENGTH(cells), NULL, 0);
}

/* Cells that a row of memory.live and one of memory.peak share: place, bytes and their error. */
#define PLACE_CELLS(row, texts)                                                                  \
    or_null((row)->from.stack), {.s = (texts)->function}, {.s = (texts)->native_function},       \
        {.s = (texts)->file}, or_null((row)->from.line), {.s = domain_name((row)->from.domain)}, \
        whole_number((row)->bytes), whole_number(estimate_root((row)->bytes_variance))

static const char *domain_name(uint32_t domain)
{
    return domain < MEMORY_DOMAINS ? domains[domain] : NULL;
}

int sample_tables_live(const struct probing_host *host, struct probing_rows *out, uint64_t now,
                       const struct live_row *row, const struct origin_texts *texts)
{
    const union probing_cell cells[] = {
        PLACE_CELLS(row, texts),      whole_number(row->bytes_1m),
        whole_number(row->bytes_10m), {.f = row->count},
        {.u = row->samples},          {.u = now - row->oldest},
        {.u = now - row->newest},     whole_number(row->count > 0 ? row->bytes / row->count : 0),
    };
    return host->emit(out, cells, PROBING_LENGTH(cells));
}

int sample_tables_peak(const struct probing_host *host, struct probing_rows *out,
                       const struct snapshot_about *about, const struct live_row *row,
                       const struct origin_texts *texts)
{
    const union probing_cell cells[] = {
        {.u = about->ts},           PLACE_CELLS(row, texts), {.f = row->count},
        {.u = row->samples},        {.u = row->stacks},      {.u = about->ts - row->oldest},
        whole_number(about->total),
    };
    return host->emit(out, cells, PROBING_LENGTH(cells));
}

int sample_tables_new(const struct probing_host *host, const struct sample_scans *scans,
                      struct sample_tables *ret)
{
    static const struct probing_table_desc samples =
        PROBING_TABLE("memory.samples", sample_columns,
                      "samples of allocations, one in memory.sample_bytes: one row per sample");
    static const struct probing_table_desc frees =
        PROBING_TABLE("memory.frees", free_columns, "ends of the allocations in memory.samples");
    static const struct probing_table_desc snapshots =
        PROBING_TABLE("memory.snapshots", snapshot_columns,
                      "what was alive at some moments, by stack: the 200 largest and one row for "
                      "all others");
    const struct probing_table_desc live =
        PROBING_COMPUTED_TABLE("memory.live", live_columns, scans->live,
                               "what is allocated now and not freed, by stack, of what was "
                               "allocated since the plugin was loaded");
    const struct probing_table_desc peak =
        PROBING_COMPUTED_TABLE("memory.peak", peak_columns, scans->peak,
                               "what was alive when the most was, by stack, of what was allocated "
                               "since the plugin was loaded");
    struct probing_table *computed;
    struct sample_tables t = {.host = host};
    int rc = host->table(host, &samples, &t.samples);
    if (rc == 0)
        rc = host->table(host, &frees, &t.frees);
    if (rc == 0)
        rc = host->table(host, &snapshots, &t.snapshots);
    if (rc == 0)
        rc = host->table(host, &live, &computed);
    if (rc == 0)
        rc = host->table(host, &peak, &computed);
    for (int i = 0; i < MEMORY_DOMAINS; i++)
        t.domains[i] = probing_intern_text(host, domains[i]);
    if (rc == 0)
        *ret = t;
    return rc;
}
