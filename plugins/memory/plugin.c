/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/plugin.c - the memory plugin: what the process has allocated and where, and how
 * much memory it has.
 *
 * init, configure, start, stop, destroy on [control].  It needs no other plugin; Python frames are
 * in its stacks when the python plugin was loaded before it.
 */
#include <errno.h>
#include <probing/plugin.h>
#include <stdlib.h>
#include <string.h>

#include "hook/hook.h"
#include "internal.h"
#include "plugin_malloc.h"
#include "probing_sdk.h"
#include "sample/allocation_sampler.h"
#include "usage/usage.h"

struct plugin {
    const struct probing_host *host;
    struct sampler *sampler;
    struct usage *usage;
    struct hooks *hooks; /* NULL: not in */
    uint64_t ticks;      /* of memory_tick() alone */
};

static const struct probing_config settings[] = {
    {.name = "sample_bytes",
     .value = "512KB",
     .doc = "mean number of bytes that are allocated between two samples",
     .type = PROBING_I64,
     .unit = PROBING_BYTES,
     .flags = PROBING_LIVE,
     .min = 1024,
     .max = INT64_C(1) << 40},
    {.name = "snapshot_every",
     .value = "60s",
     .doc = "time between two periodic snapshots of what is alive; 0: none",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .flags = PROBING_LIVE,
     .min = 0,
     .max = INT64_MAX},
    USAGE_SETTINGS,
    {.name = NULL}};

static void memory_tick(void *self, uint64_t now) /* [worker] */
{
    struct plugin *p = self;
    (void)usage_tick(p->usage, now);
    if (p->hooks && p->ticks++ % (PROBING_NS_PER_S / USAGE_TICK_NS) == 0)
        hooks_look(p->hooks);
}

static int scan_live(void *self, struct probing_rows *out) /* [worker] */
{
    struct plugin *p = self;
    return sampler_live(p->sampler, out);
}

static int run_mark(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct plugin *p = self;
    return sampler_mark(p->sampler, argc, argv, out);
}

static void memory_destroy(void *self)
{
    struct plugin *p = self;
    usage_free(p->usage);
    sampler_free(p->sampler);
    free(p);
}

static int memory_init(const struct probing_host *host, void **ret_self)
{
    static const struct probing_command mark = {.size = sizeof(mark),
                                                .flags = PROBING_WRITES,
                                                .name = "mark",
                                                .usage = "[NAME]",
                                                .doc = "keep what is alive now in memory.snapshots",
                                                .run = run_mark};
    memory_take(host);
    struct plugin *p = calloc(1, sizeof(*p));
    if (!p)
        return host->fail(host, -ENOMEM, "no memory");
    p->host = host;
    int rc = sampler_new(host, scan_live, &p->sampler);
    if (rc == 0)
        rc = usage_new(host, &p->usage);
    if (rc == 0)
        rc = host->command(host, &mark);
    if (rc == 0)
        rc = host->every(host, USAGE_TICK_NS, memory_tick);
    if (rc < 0) {
        memory_destroy(p);
        return rc;
    }
    *ret_self = p;
    return 0;
}

static int memory_configure(void *self, const char *name, const char *value)
{
    struct plugin *p = self;
    int rc = sampler_configure(p->sampler, name, value);
    return rc == -ENOENT ? usage_configure(p->usage, name, value) : rc;
}

static int memory_start(void *self)
{
    struct plugin *p = self;
    int rc = sampler_start(p->sampler);
    if (rc < 0)
        return rc;
    rc = hooks_in(p->host, &p->hooks);
    if (rc < 0)
        (void)sampler_stop(p->sampler);
    return rc;
}

static int memory_stop(void *self)
{
    struct plugin *p = self;
    if (p->hooks)
        hooks_out(p->hooks);
    p->hooks = NULL;
    return sampler_stop(p->sampler);
}

static void memory_fork(void *self, int phase)
{
    struct plugin *p = self;
    if (phase == PROBING_FORK_CHILD) {
        hooks_forked();
        sampler_forked(p->sampler);
    }
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin),
    .abi = PROBING_ABI,
    .name = "memory",
    .version = PROBING_VERSION,
    .doc = "samples allocations: what grows, and where it was allocated",
    .config = settings,
    .config_size = sizeof(struct probing_config),
    .init = memory_init,
    .configure = memory_configure,
    .start = memory_start,
    .stop = memory_stop,
    .fork = memory_fork,
    .destroy = memory_destroy,
    .declares = &memory_declares,
};
