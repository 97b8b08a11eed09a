/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/plugin.c - the system plugin: what the process and its machine do, once a second.
 *
 * init, configure, start, stop and destroy on [control], tick on one worker at a time.  It has no
 * thread and no open file of its own, and needs neither Python nor another plugin.
 */
#include <probing/ext/draft/empty.h>

#include "computed.h"
#include "declarations.h"
#include "empty_reason.h"
#include "plugin_files.h"
#include "plugin_malloc.h"
#include "tcp_sockets.h"

#define INTERVAL_DEFAULT_NS PROBING_NS_PER_S
#define INTERVAL_LEAST_NS (10 * PROBING_NS_PER_MS)

struct plugin {
    const struct probing_host *host;
    struct cpu_usage cpu;
    struct io_usage io;
    struct net_usage net;
    struct tcp_peers peers;
    struct rdma_usage rdma;
    struct cgroup_usage cgroup;
    struct host_usage machine;
    struct pressure pressure;
    _Atomic bool ticked;
    _Atomic uint64_t interval_ns;
    bool running; /* [control] only */
};

static const struct probing_config settings[] = {
    {.name = "interval",
     .value = "1s",
     .doc = "time between two looks at the process and the machine",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .flags = PROBING_LIVE,
     .min = (int64_t)INTERVAL_LEAST_NS,
     .max = (int64_t)(3600 * PROBING_NS_PER_S)},
    {.name = NULL}};

static void measure_all(void *self, uint64_t now)
{
    struct plugin *p = self;
    uint64_t interval = atomic_load_explicit(&p->interval_ns, memory_order_relaxed);
    cpu_look(&p->cpu, now, interval);
    io_look(&p->io, now, interval);
    net_look(&p->net, now, interval);
    peers_look(&p->peers, now, interval);
    cgroup_look(&p->cgroup, now, interval);
    host_look(&p->machine, now, interval);
    pressure_look(&p->pressure, cgroup_folder_of(&p->cgroup), now, interval);
    rdma_look(&p->rdma, now, interval);
    atomic_store_explicit(&p->ticked, true, memory_order_relaxed);
}

static int system_configure(void *self, const char *name, const char *value)
{
    struct plugin *p = self;
    uint64_t interval = INTERVAL_DEFAULT_NS;
    (void)name;                                            /* there is one */
    (void)probing_parse_u64(value, UINT64_MAX, &interval); /* checked by the core */
    atomic_store_explicit(&p->interval_ns, interval, memory_order_relaxed);
    return p->running ? p->host->every(p->host, interval, measure_all) : 0;
}

static int system_start(void *self)
{
    struct plugin *p = self;
    cpu_start(&p->cpu, p->host->now());
    p->running = true;
    return p->host->every(p->host, atomic_load_explicit(&p->interval_ns, memory_order_relaxed),
                          measure_all);
}

static int system_stop(void *self)
{
    struct plugin *p = self;
    p->running = false;
    return 0;
}

static void system_destroy(void *self)
{
    struct plugin *p = self;
    cpu_done(&p->cpu);
    net_done(&p->net);
    peers_done(&p->peers);
    rdma_done(&p->rdma);
    free(p);
}

const struct probing_host *plugin_host(void *self)
{
    const struct plugin *p = self;
    return p->host;
}

static int make_tables(struct plugin *p)
{
    static const struct probing_table_desc *const computed[] = {
        &maps_table, &fds_table,       &limits_table,     &kmsg_table,
        &numa_table, &cpu_stats_table, &connections_table};
    const struct probing_host *h = p->host;
    struct probing_table *made;
    int r;
    if ((r = cpu_init(&p->cpu, h)) < 0 || (r = io_init(&p->io, h)) < 0 ||
        (r = net_init(&p->net, h)) < 0 || (r = peers_init(&p->peers, h)) < 0 ||
        (r = rdma_init(&p->rdma, h)) < 0 || (r = cgroup_init(&p->cgroup, h)) < 0 ||
        (r = host_init(&p->machine, h)) < 0 || (r = pressure_init(&p->pressure, h)) < 0)
        return r;
    for (size_t i = 0; i < PROBING_LENGTH(computed) && r == 0; i++)
        r = h->table(h, computed[i], &made);
    return r;
}

static int system_init(const struct probing_host *host, void **ret_self)
{
    memory_take(host);
    files_take(host);
    struct plugin *p = calloc(1, sizeof(*p));
    if (!p)
        return host->fail(host, -ENOMEM, "no memory");
    p->host = host;
    p->interval_ns = INTERVAL_DEFAULT_NS;
    int r = make_tables(p);
    if (r < 0) {
        free(p);
        return r;
    }
    *ret_self = p;
    return 0;
}

static int why_empty(void *self, const char *table, char *text, uint32_t size)
{
    const struct plugin *p = self;
    const struct system_state state = {.io = &p->io,
                                       .net = &p->net,
                                       .peers = &p->peers,
                                       .rdma = &p->rdma,
                                       .cgroup = &p->cgroup,
                                       .pressure = &p->pressure,
                                       .ticked =
                                           atomic_load_explicit(&p->ticked, memory_order_relaxed)};
    return system_why_empty(&state, table, text, size);
}

static const void *system_extension(void *self, const char *id)
{
    static const struct probing_empty_1 empty = {.size = sizeof(empty), .why = why_empty};
    (void)self;
    return strcmp(id, PROBING_EMPTY_1) == 0 ? &empty : NULL;
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin),
    .abi = PROBING_ABI,
    .name = "system",
    .version = PROBING_VERSION,
    .doc = "CPU, I/O, network and limits of the process and its machine, once a second",
    .config = settings,
    .config_size = sizeof(struct probing_config),
    .init = system_init,
    .configure = system_configure,
    .start = system_start,
    .stop = system_stop,
    .destroy = system_destroy,
    .extension = system_extension,
    .declares = &system_declares,
};
