/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/tables.h - the stored tables memory.samples, memory.frees and
 * memory.snapshots and the computed ones memory.live and memory.peak, and their rows.
 *
 * Texts are ids of intern() but for the computed ones.  Any thread may append.
 */
#ifndef MEMORY_SAMPLE_TABLES_H
#define MEMORY_SAMPLE_TABLES_H

#include <probing/plugin.h>
#include <stdint.h>

struct sample_tables {
    const struct probing_host *host;
    struct probing_table *samples, *frees, *snapshots;
    uint64_t domains[4]; /* words for enum memory_domain */
};

/* The place that a sample or a group of them comes from. */
struct origin {
    int64_t stack; /* 0: not known */
    uint64_t function, native_function, file;
    int32_t line;    /* 0: not known */
    uint32_t domain; /* enum memory_domain; MEMORY_DOMAINS: several */
};

/* A sample, or its end. */
struct sample_row {
    uint64_t ts, id, size;
    int32_t tid;  /* of the thread that allocated it, or freed it */
    double count; /* how many allocations it stands for */
    struct origin from;
};

enum snapshot_kind {
    SNAPSHOT_PERIODIC,
    SNAPSHOT_PEAK,
    SNAPSHOT_FALL,
    SNAPSHOT_MARK,
    SNAPSHOT_KINDS
};

/* Cells that all rows of a snapshot have. */
struct snapshot_about {
    uint64_t ts, id, name; /* name: of intern() */
    enum snapshot_kind kind;
    double total;     /* bytes of all its rows */
    uint64_t widest;  /* largest mean between samples since the snapshot before */
    double unsampled; /* since then: unsampled_since() */
};

/* One group of live allocations: of a stack and a domain, or all those that are in no row. */
struct live_row {
    struct origin from;
    uint64_t samples, stacks; /* stacks: 1, or how many are in this row */
    uint64_t oldest, newest;  /* CLOCK_MONOTONIC ns of their allocation */
    double bytes, count, bytes_variance;
    double bytes_1m, bytes_10m; /* of `bytes` what is older than a minute, than ten */
};

/* The plugin's scans; `self` is the plugin's. */
struct sample_scans {
    int (*live)(void *self, struct probing_rows *out),
        (*peak)(void *self, struct probing_rows *out);
};

/* Make them, and memory.live and memory.peak with these scans.                   [control] */
int sample_tables_new(const struct probing_host *host, const struct sample_scans *scans,
                      struct sample_tables *ret);
/* step: PROBING_NULL_I64: not counted */
void sample_tables_sample(const struct sample_tables *t, const struct sample_row *row,
                          uint64_t thread_name, int64_t step);
void sample_tables_free(const struct sample_tables *t, const struct sample_row *row,
                        uint64_t lifetime_ns);
/* 0 or -errno of append(). */
int sample_tables_snapshot(const struct sample_tables *t, const struct snapshot_about *about,
                           const struct live_row *row);

/* The words of a row's origin; NULL: none. */
struct origin_texts {
    const char *function, *native_function, *file;
};
/* A row of memory.live: 0 or what emit() gives.                                  [worker] */
int sample_tables_live(const struct probing_host *host, struct probing_rows *out, uint64_t now,
                       const struct live_row *row, const struct origin_texts *texts);
/* One of memory.peak: of a moment at which `total` bytes were alive.               [worker] */
int sample_tables_peak(const struct probing_host *host, struct probing_rows *out,
                       const struct snapshot_about *about, const struct live_row *row,
                       const struct origin_texts *texts);

#endif
