/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/record/recording_test.h - for tests: a recorder that is on, a host that counts the
 * rows of its writer, and NCCL's calls in the newest version's words.
 */
#ifndef NCCL_RECORDING_TEST_H
#define NCCL_RECORDING_TEST_H

#include <unistd.h>

#include "callbacks/attach.h"
#include "callbacks/profiler_abi.h"
#include "probing_sdk.h"
#include "record/recorder.h"
#include "tests/test.h"
#include "write/writer.h"

extern struct nccl_profiler_v1 ncclProfiler_v1;
extern struct nccl_profiler_v2 ncclProfiler_v2;
extern struct nccl_profiler_v3 ncclProfiler_v3;
extern struct nccl_profiler_v4 ncclProfiler_v4;
extern struct nccl_profiler_v5 ncclProfiler_v5;
extern struct nccl_profiler_v6 ncclProfiler_v6;
extern struct nccl_profiler_v7 ncclProfiler_v7;

/* ---- a host that counts rows and keeps the last of each table ---- */

struct seen {
    char name[32];
    char columns[64][32];
    uint32_t n_columns, rows;
    union probing_cell last[64];
};

static struct seen tables_seen[16];
static uint32_t n_tables;
static char texts[256][64]; /* by id - 1 */
static uint64_t n_texts;

static inline int see_table(const struct probing_host *h, const struct probing_table_desc *d,
                            struct probing_table **ret)
{
    struct seen *s = &tables_seen[n_tables++];
    (void)h;
    (void)snprintf(s->name, sizeof(s->name), "%s", d->name);
    s->n_columns = d->n_columns;
    for (uint32_t i = 0; i < d->n_columns; i++)
        (void)snprintf(s->columns[i], sizeof(s->columns[i]), "%s", d->columns[i].name);
    *ret = (struct probing_table *)s;
    return 0;
}

static inline int see_row(struct probing_table *t, uint64_t ts, const union probing_cell *cells,
                          uint32_t n, const void *tail, uint32_t tail_n)
{
    struct seen *s = (struct seen *)t;
    (void)tail, (void)tail_n;
    CHECK_INT(n, s->n_columns);
    CHECK(ts > 0);
    memcpy(s->last, cells, n * sizeof(*cells));
    s->rows++;
    return 0;
}

static inline int see_text(const struct probing_host *h, const void *p, size_t n, uint64_t *ret)
{
    (void)h;
    for (uint64_t i = 0; i < n_texts; i++)
        if (strlen(texts[i]) == n && memcmp(texts[i], p, n) == 0)
            return *ret = i + 1, 0;
    if (n_texts == 256)
        return -ENOSPC;
    (void)snprintf(texts[n_texts], 64, "%.*s", (int)n, (const char *)p);
    *ret = ++n_texts;
    return 0;
}

static inline int is_wanted(const struct probing_table *t)
{
    (void)t;
    return 1;
}

static inline int keep_reason(const struct probing_host *h, int code, const char *text)
{
    (void)h, (void)text;
    return code;
}

static const struct probing_host host = {.size = sizeof(host),
                                         .table = see_table,
                                         .append = see_row,
                                         .intern = see_text,
                                         .wanted = is_wanted,
                                         .fail = keep_reason};

static inline struct seen *table(const char *name)
{
    for (uint32_t i = 0; i < n_tables; i++)
        if (strcmp(tables_seen[i].name, name) == 0)
            return &tables_seen[i];
    CHECK_STR(name, "a table");
    return &tables_seen[0];
}

static inline union probing_cell cell(const char *of, const char *column)
{
    struct seen *s = table(of);
    for (uint32_t i = 0; i < s->n_columns; i++)
        if (strcmp(s->columns[i], column) == 0)
            return s->last[i];
    CHECK_STR(column, "a column");
    return s->last[0];
}

static inline const char *text_of(const char *of, const char *column)
{
    uint64_t id = cell(of, column).u;
    return id ? texts[id - 1] : "";
}

/* ---- a recorder that is on ---- */

static struct tables tables;
static struct writer *writer;
static struct recorder *recorder;
static int mask;

static inline void begin(void)
{
    if (!writer) {
        recorder = attach_recorder(NULL);
        CHECK_INT(tables_make(&tables, &host), 0);
        CHECK_INT(writer_new(&tables, recorder, &writer), 0);
    }
    atomic_store(&recorder->writer, true);
    CHECK_INT(recorder_switch(recorder, true), 0);
    for (uint32_t i = 0; i < n_tables; i++)
        tables_seen[i].rows = 0;
}

static inline uint64_t clock_now(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

static inline void turn_after(uint64_t ns)
{
    while (writer_turn(writer, clock_now() + ns, /* scan= */ true))
        ;
}

static inline void *comm_v6(uint64_t hash)
{
    void *context = NULL;
    CHECK_INT(ncclProfiler_v6.init(&context, hash, &mask, "tp", 2, 8, 3, NULL), 0);
    CHECK(context != NULL);
    return context;
}

static inline void *coll_v6(void *context, uint64_t seq, int channels)
{
    struct nccl_descr_v6 d = {.type = NCCL_COLL,
                              .rank = 3,
                              .coll = {.seq = seq,
                                       .func = "AllReduce",
                                       .count = 1000,
                                       .datatype = "ncclFloat32",
                                       .algo = "COLLNET_DIRECT",
                                       .proto = "LL128",
                                       .n_channels = (uint8_t)channels}};
    void *h = NULL;
    CHECK_INT(ncclProfiler_v6.start_event(context, &h, &d), 0);
    return h;
}

static inline void *kernel_v6(void *context, void *parent, uint64_t timer)
{
    struct nccl_descr_v6 d = {
        .type = NCCL_KERNEL_CH, .parent = parent, .kernel_ch = {.timer_ns = timer}};
    void *h = NULL;
    CHECK_INT(ncclProfiler_v6.start_event(context, &h, &d), 0);
    return h;
}

static inline void kernel_ends_v6(void *h, uint64_t timer)
{
    union nccl_state_v4 a = {.kernel_ch = {.timer_ns = timer}};
    CHECK_INT(ncclProfiler_v6.record_event_state(h, NCCL_KERNEL_CH_STOP, &a), 0);
    CHECK_INT(ncclProfiler_v6.stop_event(h), 0);
}

static inline void *proxy_v6(void *context, void *parent, pid_t pid, int send)
{
    struct nccl_descr_v6 d = {.type = NCCL_PROXY_OP,
                              .parent = parent,
                              .rank = 3,
                              .proxy_op = {.pid = pid, .channel = 1, .peer = 5, .is_send = send}};
    void *h = NULL;
    CHECK_INT(ncclProfiler_v6.start_event(context, &h, &d), 0);
    return h;
}

static inline void *step_v6(void *context, void *parent, int number)
{
    struct nccl_descr_v6 d = {
        .type = NCCL_PROXY_STEP, .parent = parent, .proxy_step = {.step = number}};
    void *h = NULL;
    CHECK_INT(ncclProfiler_v6.start_event(context, &h, &d), 0);
    return h;
}

static inline void state_v6(void *h, int which, size_t bytes)
{
    union nccl_state_v4 a = {.proxy_step = {.trans_size = bytes}};
    CHECK_INT(ncclProfiler_v6.record_event_state(h, which, &a), 0);
}

static inline uint64_t counted(void *context, enum counter which)
{
    return atomic_load(&((struct comm *)context)->counters[which]);
}

#endif
