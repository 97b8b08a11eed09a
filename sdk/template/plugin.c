/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/template/plugin.c - a whole plugin to copy: one table, one setting, one command, one timer.
 *
 *   1. Copy this file and rename "heartbeat" everywhere.
 *   2. cc -shared -fPIC -fvisibility=hidden -I<prefix>/include plugin.c -o heartbeat.so
 *   3. probing plugin check ./heartbeat.so       (in a process of its own)
 *      probing -t <pid> plugin load ./heartbeat.so
 *      probing -t <pid> query "select * from heartbeat.beats order by ts desc limit 5"
 *   4. Change it in small steps; it works after each.
 *
 * It counts: every period it adds one row with its number and how late the timer was, which shows
 * how starved the machine is.  The comment on each callback says what the core wants from it in
 * general and what this one does.  [brackets]: the thread it runs on, see probing/plugin.h.
 */
#include <probing_sdk.h>

#define PERIOD_NS (100 * PROBING_NS_PER_MS)

struct heartbeat {
    const struct probing_host *host;
    struct probing_table *beats;
    int64_t count; /* only the timer's thread writes it */
    uint64_t due_ns;
};

/* The columns of a table: `ts` and `tid` stand before them by themselves. */
static const struct probing_column BEATS_COLUMNS[] = {
    PROBING_I64_COLUMN("number", PROBING_COUNT, "beats since start, from 1"),
    PROBING_I64_COLUMN("late_ns", PROBING_NS,
                       "how much later than planned this beat came; NULL for the first"),
};
static const struct probing_table_desc BEATS =
    PROBING_TABLE("beats", BEATS_COLUMNS, "one row every 100 ms");

/* Called every period; may block, but late ticks are dropped.  Adds one row.  [worker] */
static void beat(void *self, uint64_t now_ns)
{
    struct heartbeat *hb = self;
    union probing_cell cells[2];

    if (!hb->host->wanted(hb->beats)) /* first thing: nobody wants rows, so do no work */
        return;
    cells[0].i = ++hb->count;
    cells[1].i = hb->due_ns != 0 ? (int64_t)(now_ns - hb->due_ns) : PROBING_NULL_I64;
    hb->due_ns = now_ns + PERIOD_NS;
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

/* Begin: hooks, threads, timers.  [control] */
static int start(void *self)
{
    struct heartbeat *hb = self;

    return hb->host->every(hb->host, PERIOD_NS, beat);
}

/* Undo start(); the core itself ends the timers.  -EBUSY when code of yours may still run.
 * [control] */
static int stop(void *self)
{
    (void)self;
    return 0;
}

/* Free everything; the code itself stays mapped.  [control] */
static void destroy(void *self)
{
    free(self);
}

/* The one exported symbol.  Left out, and so NULL: config and configure (settings), fork (nothing
 * here runs in a child), extension (nothing is offered to other plugins). */
const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin),
    .abi = PROBING_ABI,
    .name = "heartbeat",
    .version = "1.0",
    .doc = "a plugin to copy: one row every 100 ms",
    .config_size = sizeof(struct probing_config),
    .min_minor = 0,
    .init = init,
    .start = start,
    .stop = stop,
    .destroy = destroy,
};
