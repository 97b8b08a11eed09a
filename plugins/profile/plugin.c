/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/plugin.c - the profile plugin: samples stacks of all threads while it is loaded.
 *
 * init, configure, start, stop, destroy on [control].  It adds the tables python.samples and
 * python.stacks and the command `profile`; what is drawn of them is declared at the end.  It
 * works in any process; Python frames are there when the python plugin was loaded before it.
 */
#include <errno.h>
#include <probing/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf_timer.h"
#include "plugin_files.h"
#include "plugin_malloc.h"
#include "probing_sdk.h"
#include "sample_period.h"
#include "sample_table.h"
#include "sampler.h"

struct plugin {
    const struct probing_host *host;
    struct reader *reader;
    uint32_t rate_hz;
    enum mode mode;
};

static const char *const mode_names[] = {
    [MODE_CPU] = "cpu", [MODE_WALL] = "wall", [MODE_GIL] = "gil"};

static const struct probing_config settings[] = {
    {.name = "rate",
     .value = "100",
     .doc = "number of samples per second of each thread",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .min = 1,
     .max = 10000},
    {.name = "mode",
     .value = "cpu",
     .doc = "cpu: threads while they run; wall: also while they wait; gil: the thread that holds "
            "Python's GIL",
     .type = PROBING_STR,
     .flags = PROBING_LIVE},
    {.name = NULL}};

static int run_profile(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct plugin *p = self;
    struct reader_about a;
    char text[800];
    (void)argv;
    if (argc > 1)
        return p->host->fail(p->host, -EINVAL,
                             "profile takes no arguments; config profile.rate=100 and "
                             "profile.mode=cpu|wall|gil set it");
    reader_about(p->reader, &a);
    int n = snprintf(text, sizeof(text),
                     "mode %s, %u samples a second, %u threads, %s\n"
                     "%llu samples taken, %llu lost because the profiler's thread was too slow\n",
                     mode_names[a.mode], a.rate_hz, a.threads,
                     a.python ? "Python and native frames" : "native frames only",
                     (unsigned long long)a.samples, (unsigned long long)a.lost);
    uint64_t passed = p->host->now() - a.since_ns;
    n +=
        snprintf(text + n, sizeof(text) - (size_t)n,
                 "cost: %.1f us of its thread a sample, %.2f %% of a core for the profiler's own\n",
                 a.handled ? (double)a.handler_ns / 1e3 / (double)a.handled : 0.0,
                 passed ? 100.0 * (double)a.own_cpu_ns / (double)passed : 0.0);
    if (!a.fine && perf_timer_needed(a.rate_hz))
        n +=
            snprintf(text + n, sizeof(text) - (size_t)n,
                     "threads that run give at most %llu samples a second, one at each tick of the "
                     "kernel: it permits no finer clocks (perf_event_paranoid)\n",
                     (unsigned long long)(PROBING_NS_PER_S / period_tick_ns()));
    if (a.refused)
        n += snprintf(text + n, sizeof(text) - (size_t)n,
                      "%u threads are not sampled: " UNSAMPLED_REASON "\n", a.refused);
    if (a.signal_gone)
        n += snprintf(text + n, sizeof(text) - (size_t)n,
                      "sampling has ended: the program has taken over the profiler's signal\n");
    return p->host->reply(out, text, (size_t)n);
}

static int profile_init(const struct probing_host *host, void **ret_self)
{
    static const struct probing_command command = {.size = sizeof(command),
                                                   .name = "profile",
                                                   .usage = "",
                                                   .doc = "state of the profiler",
                                                   .run = run_profile};
    memory_take(host);
    files_take(host);
    struct plugin *p = calloc(1, sizeof(*p));
    if (!p)
        return host->fail(host, -ENOMEM, "no memory");
    p->host = host;
    p->rate_hz = 100;
    int r = reader_new(host, &p->reader);
    if (r == 0)
        r = host->command(host, &command);
    if (r < 0) {
        reader_free(p->reader);
        free(p);
        return r;
    }
    *ret_self = p;
    return 0;
}

static int profile_configure(void *self, const char *name, const char *value)
{
    struct plugin *p = self;
    if (strcmp(name, "rate") == 0) {
        uint64_t rate = p->rate_hz;
        (void)probing_parse_u64(value, UINT32_MAX, &rate); /* checked by the core */
        p->rate_hz = (uint32_t)rate;
    } else if (strcmp(name, "mode") == 0) {
        int mode = 0;
        while (mode < 3 && strcmp(mode_names[mode], value) != 0)
            mode++;
        if (mode == 3)
            return p->host->fail(p->host, -EINVAL, "profile.mode is cpu, wall or gil");
        p->mode = (enum mode)mode;
    }
    reader_set(p->reader, p->rate_hz, p->mode);
    return 0;
}

static int profile_start(void *self)
{
    struct plugin *p = self;
    return reader_start(p->reader);
}

static int profile_stop(void *self)
{
    struct plugin *p = self;
    return reader_stop(p->reader);
}

static void profile_fork(void *self, int phase)
{
    struct plugin *p = self;
    if (phase == PROBING_FORK_CHILD)
        reader_forked(p->reader);
}

static void profile_destroy(void *self)
{
    struct plugin *p = self;
    reader_free(p->reader);
    free(p);
}

static const struct probing_table_name tables[] = {
    {"python.samples"}, {"python.stacks"}, {"python.unsampled"}};

#define STACKS                                                                                 \
    "select stack_id, depth, frame_type, func, file, lineno, module from python.stacks "       \
    "where stack_id in (select stack_id from python.samples where {when}) order by stack_id, " \
    "depth"
#define SAMPLES(value)                                                                  \
    "select ts, thread_id, thread_name, stack_id, " value " as value, 1 as count from " \
    "python.samples where {when}"
#define NEWEST                                                      \
    "select max(ts) from (select ts from python.samples union all " \
    "select ts from python.unsampled) as both"
#define UNSAMPLED "select threads || ' threads are not sampled: ' || reason from python.unsampled"
#define MISSING UNSAMPLED " where {when} order by threads desc limit 1"
#define EMPTY "the process used no such time, or the profiler was not running; --seconds 10 runs it"

/* The flame graph of each setting of `mode`.  A sample that has waited has no cpu_ns. */
static const struct probing_flame flames[] = {{.name = "cpu",
                                               .doc = "cpu time",
                                               .stacks = STACKS,
                                               .sql = SAMPLES("cpu_ns"),
                                               .newest = NEWEST,
                                               .empty = EMPTY,
                                               .missing = MISSING,
                                               .unit = PROBING_NS,
                                               .setting = "mode=cpu",
                                               .flags = PROBING_FLAME_DEFAULT},
                                              {.name = "wall",
                                               .doc = "wall time: also while threads wait",
                                               .stacks = STACKS,
                                               .sql = SAMPLES("wall_ns"),
                                               .newest = NEWEST,
                                               .empty = EMPTY,
                                               .missing = MISSING,
                                               .unit = PROBING_NS,
                                               .setting = "mode=wall"},
                                              {.name = "gil",
                                               .doc = "time that threads held Python's GIL",
                                               .stacks = STACKS,
                                               .sql = SAMPLES("wall_ns") " and gil = 1",
                                               .newest = NEWEST,
                                               .empty = EMPTY,
                                               .missing = MISSING,
                                               .unit = PROBING_NS,
                                               .setting = "mode=gil"}};

static const struct probing_panel panels[] = {
    {.name = "unsampled",
     .doc = "threads that the profiler does not sample, and why",
     .sql = UNSAMPLED " where ts > now() - interval '3 seconds' order by ts desc limit 1",
     .kind = PROBING_LINES,
     .rows = 1}};

/* Measured by tests/hostile/test_limits_table.py. */
#define MIB (UINT64_C(1) << 20)
static const struct probing_resource resources[] = {
    {.name = "address_space", .takes = 32 * MIB}, {.name = "data", .takes = 16 * MIB},
    {.name = "memory", .takes = 4 * MIB},         {.name = "mappings", .takes = 24},
    {.name = "descriptors", .takes = 2},          {.name = "threads", .takes = 1},
    {.name = "signals", .each_thread = 1},
};

static const struct probing_declarations declares = {
    .size = sizeof(declares),
    .n_resources = PROBING_LENGTH(resources),
    .resource_size = sizeof(resources[0]),
    .resources = resources,
    .n_flames = PROBING_LENGTH(flames),
    .flame_size = sizeof(flames[0]),
    .flames = flames,
    .n_tables = PROBING_LENGTH(tables),
    .table_size = sizeof(tables[0]),
    .tables = tables,
    .n_panels = PROBING_LENGTH(panels),
    .panel_size = sizeof(panels[0]),
    .panels = panels,
};

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin),
    .abi = PROBING_ABI,
    .name = "profile",
    .version = PROBING_VERSION,
    .doc = "samples Python and native stacks for flame graphs",
    .config = settings,
    .config_size = sizeof(struct probing_config),
    .init = profile_init,
    .configure = profile_configure,
    .start = profile_start,
    .stop = profile_stop,
    .fork = profile_fork,
    .destroy = profile_destroy,
    .declares = &declares,
};
