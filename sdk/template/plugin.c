/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/template/plugin.c - a whole plugin to copy: one table, one setting, one command, one timer.
 *
 *   1. Copy this file and rename "heartbeat" everywhere.
 *   2. cc -shared -fPIC -fvisibility=hidden -I<prefix>/include plugin.c -o heartbeat.so
 *   3. probing plugin check ./heartbeat.so       (in a process of its own)
 *      probing -t <pid> plugin load ./heartbeat.so
 *      probing -t <pid> query "select * from heartbeat.beats order by ts desc limit 5"
 *      probing -t <pid> config heartbeat.period=1s
 *   4. Change it in small steps; it works after each.
 *
 * It counts: every period it adds one row with its number and how late the timer was, which shows
 * how starved the machine is.  The comment on each callback says what the core wants from it in
 * general and what this one does.  [brackets]: the thread it runs on, see probing/plugin.h.
 */
#include <stdbool.h>

#include <probing_sdk.h>

struct heartbeat {
    const struct probing_host *host;
    struct probing_table *beats;
    int64_t count; /* only the timer's thread writes it */
    uint64_t due_ns;
    _Atomic uint64_t period_ns; /* the setting: written by configure(), read by beat() */
    bool running;               /* [control] only */
};

/* The settings, by the names that users write behind "heartbeat.".  The list ends with NULL. */
static const struct probing_config SETTINGS[] = {
    {.name = "period",
     .value = "100ms",
     .doc = "time between two beats",
     .type = PROBING_I64,
     .unit = PROBING_NS,
     .flags = PROBING_LIVE, /* may change while the plugin runs */
     .min = PROBING_NS_PER_MS,
     .max = 3600 * PROBING_NS_PER_S},
    {.name = NULL}};

/* The columns of a table: `ts` and `tid` stand before them by themselves. */
static const struct probing_column BEATS_COLUMNS[] = {
    PROBING_I64_COLUMN("number", PROBING_COUNT, "beats since start, from 1"),
    PROBING_I64_COLUMN("late_ns", PROBING_NS,
                       "how much later than planned this beat came; NULL for the first"),
};
static const struct probing_table_desc BEATS =
    PROBING_TABLE("beats", BEATS_COLUMNS, "one row every heartbeat.period");

/* Called every period; may block, but late ticks are dropped.  Adds one row.  [worker] */
static void beat(void *self, uint64_t now_ns)
{
    struct heartbeat *hb = self;
    union probing_cell cells[2];

    if (!hb->host->wanted(hb->beats)) /* first thing: nobody wants rows, so do no work */
        return;
    cells[0].i = ++hb->count;
    cells[1].i = hb->due_ns != 0 ? (int64_t)(now_ns - hb->due_ns) : PROBING_NULL_I64;
    hb->due_ns = now_ns + hb->period_ns;
    (void)hb->host->append(hb->beats, now_ns, cells, 2, /* tail= */ NULL, 0); /* loss is counted */
}

/* A command is what a client can call by name: its words, an answer, a status.  Says how many
 * beats there were.  [worker] */
static int run_count(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct heartbeat *hb = self;

    if (argc > 1)
        return probing_failf(hb->host, -EINVAL, "%s takes no arguments", argv[0]);
    return probing_replyf(hb->host, out, "%lld beats\n", (long long)hb->count);
}

/* Make what the plugin has: its state, tables, commands.  No threads, no hooks.  When it fails,
 * the plugin is switched off with the reason given to fail(), and nothing else happens.  [control]
 */
static int init(const struct probing_host *host, void **ret_self)
{
    static const struct probing_command COUNT = {.size = sizeof(COUNT),
                                                 .name = "heartbeat",
                                                 .usage = "",
                                                 .doc = "how many beats there were",
                                                 .run = run_count};
    struct heartbeat *hb = calloc(1, sizeof(*hb));

    if (hb == NULL)
        return host->fail(host, -ENOMEM, "no memory");
    hb->host = host;
    int r = host->table(host, &BEATS, &hb->beats);
    if (r == 0)
        r = host->command(host, &COUNT);
    if (r < 0) {
        free(hb);
        return r;
    }
    *ret_self = hb;
    return 0;
}

/* Take a setting: each of them once before start(), and those with PROBING_LIVE again whenever the
 * user changes them.  Type and range were checked; a number comes in its unit, "100ms" as
 * "100000000".  A refusal keeps the old value.  [control] */
static int configure(void *self, const char *name, const char *value)
{
    struct heartbeat *hb = self;
    uint64_t period;

    (void)name; /* there is one */
    if (probing_parse_u64(value, INT64_MAX, &period) < 0)
        return hb->host->fail(hb->host, -EINVAL, "period is no number");
    hb->period_ns = period;
    return hb->running ? hb->host->every(hb->host, period, beat) : 0; /* in place of the old one */
}

/* Begin: hooks, threads, timers.  [control] */
static int start(void *self)
{
    struct heartbeat *hb = self;

    hb->running = true;
    return hb->host->every(hb->host, hb->period_ns, beat);
}

/* Undo start(); the core itself ends the timers.  -EBUSY when code of yours may still run.
 * [control] */
static int stop(void *self)
{
    struct heartbeat *hb = self;

    hb->running = false;
    return 0;
}

/* Free everything; the code itself stays mapped.  [control] */
static void destroy(void *self)
{
    free(self);
}

/* The one exported symbol.  Left out, and so NULL: fork (nothing here runs in a child), extension
 * (nothing is offered to other plugins), declares (docs/plugins.md). */
const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin),
    .abi = PROBING_ABI,
    .name = "heartbeat",
    .version = "1.0",
    .doc = "a plugin to copy: one row every period",
    .config = SETTINGS,
    .config_size = sizeof(SETTINGS[0]),
    .min_minor = 0,
    .init = init,
    .configure = configure,
    .start = start,
    .stop = stop,
    .destroy = destroy,
};
