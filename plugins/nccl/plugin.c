/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/plugin.c - the nccl plugin: NCCL's operations, who waits for whom, and what hangs.
 *
 * init, start, stop, destroy on [control].  The same file is NCCL's profiler plugin
 * (callbacks/profiler_versions.c): there may be two copies of it in a process, and what NCCL calls
 * works without a core.  It needs no other plugin.
 */
#include <probing/ext/draft/empty.h>
#include <stdlib.h>
#include <string.h>

#include "callbacks/attach.h"
#include "declarations.h"
#include "plugin_files.h"
#include "plugin_malloc.h"
#include "probing_sdk.h"
#include "write/tables.h"
#include "write/writer.h"

struct plugin {
    const struct probing_host *host;
    struct recorder *recorder;
    struct tables tables;
    struct writer *writer;
};

struct recorder *plugin_recorder(void *self)
{
    const struct plugin *p = self;
    return p->recorder;
}

const struct probing_host *plugin_host(void *self)
{
    const struct plugin *p = self;
    return p->host;
}

static int nccl_init(const struct probing_host *host, void **ret_self)
{
    memory_take(host);
    files_take(host);
    struct plugin *p = calloc(1, sizeof(*p));
    if (!p)
        return host->fail(host, -ENOMEM, "no memory");
    p->host = host;
    p->recorder = attach_recorder(NULL);
    int rc = tables_make(&p->tables, host);
    if (rc == 0 && writer_new(&p->tables, p->recorder, &p->writer) < 0)
        rc = host->fail(host, -ENOMEM, "no memory");
    if (rc < 0) {
        free(p);
        return rc;
    }
    *ret_self = p;
    return 0;
}

/* The reader of what ends comes before the first event, and goes after the last. */
static int nccl_start(void *self)
{
    struct plugin *p = self;
    char why[512];
    int rc = writer_start(p->writer);
    if (rc < 0)
        return rc;
    if (recorder_switch(p->recorder, true) < 0)
        p->host->log(p->host, PROBING_WARN,
                     "no memory for events of some communicators of NCCL: they have none");
    enum nccl_state state = nccl_look(p->recorder, why, sizeof(why));
    if (state == NCCL_LATE || state == NCCL_REFUSED)
        p->host->log(p->host, PROBING_WARN, why);
    return 0;
}

static int nccl_stop(void *self)
{
    struct plugin *p = self;
    (void)recorder_switch(p->recorder, false);
    return writer_stop(p->writer);
}

static void nccl_fork(void *self, int phase)
{
    struct plugin *p = self;
    if (phase != PROBING_FORK_CHILD)
        return;
    recorder_forked(p->recorder);
    writer_forked(p->writer);
}

static void nccl_destroy(void *self)
{
    struct plugin *p = self;
    writer_free(p->writer);
    free(p);
}

/* ---- why a table is empty ---- */

static int why_empty(void *self, const char *table, char *text, uint32_t size)
{
    const struct plugin *p = self;
    char why[256];
    if (strncmp(table, "nccl.", strlen("nccl.")) != 0 || strcmp(table, "nccl.profiler_state") == 0)
        return -ENOENT;
    enum nccl_state state = nccl_look(p->recorder, why, sizeof(why));
    if (state != NCCL_ACTIVE) {
        (void)snprintf(text, size, "%s", why);
        return 0;
    }
    if (strcmp(table, "nccl.net_qp") == 0) {
        (void)snprintf(text, size,
                       "NCCL tells of queue pairs over InfiniBand only, and when it was built "
                       "with NCCL_ENABLE_NET_PROFILING");
        return 0;
    }
    if (strcmp(table, "nccl.proxy_ops") == 0) {
        (void)snprintf(text, size,
                       "NCCL's proxies work where a communicator spans machines; within one, "
                       "GPUs reach each other without");
        return 0;
    }
    return -ENOENT;
}

static const void *nccl_extension(void *self, const char *id)
{
    static const struct probing_empty_1 empty = {.size = sizeof(empty), .why = why_empty};
    (void)self;
    return strcmp(id, PROBING_EMPTY_1) == 0 ? &empty : NULL;
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin),
    .abi = PROBING_ABI,
    .name = "nccl",
    .version = PROBING_VERSION,
    .doc = "NCCL's operations: how long they run, who waits for whom, what is in flight",
    .init = nccl_init,
    .start = nccl_start,
    .stop = nccl_stop,
    .fork = nccl_fork,
    .destroy = nccl_destroy,
    .extension = nccl_extension,
    .declares = &nccl_declares,
};
