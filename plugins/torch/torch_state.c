/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/torch_state.c - the plugin's life in the process, and what stands in the host's
 * place when it has ended.
 *
 * Threads: any; torch_leave_host() with the GIL.
 */
#include "internal.h"

#include <errno.h>

struct torch torch_state;

static uint64_t no_now(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

static void no_log(const struct probing_host *h, int level, const char *text)
{
    (void)h;
    (void)level;
    (void)text;
}

static int no_table(const struct probing_table *t)
{
    (void)t;
    return 0;
}

static int no_append(struct probing_table *t, uint64_t ts, const union probing_cell *cells,
                     uint32_t n, const void *tail, uint32_t tail_n)
{
    (void)t;
    (void)ts;
    (void)cells;
    (void)n;
    (void)tail;
    (void)tail_n;
    return -ESHUTDOWN;
}

static int no_intern(const struct probing_host *h, const void *p, size_t n, uint64_t *ret_id)
{
    (void)h;
    (void)p;
    (void)n;
    (void)ret_id;
    return -ESHUTDOWN;
}

static int no_emit(struct probing_rows *out, const union probing_cell *cells, uint32_t n)
{
    (void)out;
    (void)cells;
    (void)n;
    return -ESHUTDOWN;
}

static const void *no_extension(const struct probing_host *h, const char *id)
{
    (void)h;
    (void)id;
    return NULL;
}

/* A call in flight may still ask when we have ended, and the core with us. */
static const struct probing_host no_host = {.size = sizeof(no_host),
                                            .abi = PROBING_ABI,
                                            .version = "",
                                            .log = no_log,
                                            .wanted = no_table,
                                            .append = no_append,
                                            .intern = no_intern,
                                            .emit = no_emit,
                                            .now = no_now,
                                            .extension = no_extension};

void torch_leave_host(void)
{
    torch_state.host = &no_host;
    torch_state.now = no_now;
    torch_state.append = no_append;
}
