/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/plugin.c - the gpu plugin: what GPUs there are and what they do, once a second.
 *
 * init, configure, start, stop and destroy on [control], tick on one worker at a time, tables'
 * scans on several.  The driver is asked by the watcher's thread only; no context is made on any
 * device.
 */
#include <probing/ext/draft/empty.h>
#include <probing/ext/draft/note.h>

#include "declarations.h"
#include "device_rows.h"
#include "plugin_files.h"

#define INTERVAL_DEFAULT_NS PROBING_NS_PER_S
#define INTERVAL_LEAST_NS (50 * PROBING_NS_PER_MS)
#define TICK_NS PROBING_NS_PER_S

struct plugin {
    const struct probing_host *host;
    struct device_tables tables;
    struct watcher *watcher;
    char note[WATCHER_WHY_BYTES * 2]; /* tick only */
};

static const struct probing_config settings[] = {{.name = "interval",
                                                  .value = "1s",
                                                  .doc = "time between two looks at the GPUs",
                                                  .type = PROBING_I64,
                                                  .unit = PROBING_NS,
                                                  .flags = PROBING_LIVE,
                                                  .min = (int64_t)INTERVAL_LEAST_NS,
                                                  .max = (int64_t)(3600 * PROBING_NS_PER_S)},
                                                 {.name = NULL}};

/* ---- what others call ---- */

struct watcher *plugin_watcher(void *self)
{
    const struct plugin *p = self;
    return p->watcher;
}

const struct probing_host *plugin_host(void *self)
{
    const struct plugin *p = self;
    return p->host;
}

static void append_device(void *self, const struct gpu_device *d, const struct gpu_look *before,
                          const struct gpu_look *now)
{
    struct plugin *p = self;
    device_row(&p->tables, d, before, now);
}

/* The watcher's thread may hang, so what it waits for is told by another. */
static void set_note(void *self, uint64_t now)
{
    struct plugin *p = self;
    const struct probing_note_1 *note = p->host->extension(p->host, PROBING_NOTE_1);
    char text[sizeof(p->note)];
    (void)now;
    watcher_note(p->watcher, text, sizeof(text));
    if (!note || strcmp(text, p->note) == 0)
        return;
    (void)snprintf(p->note, sizeof(p->note), "%s", text);
    note->set(p->host, text);
}

/* ---- the plugin ---- */

static int gpu_configure(void *self, const char *name, const char *value)
{
    struct plugin *p = self;
    uint64_t interval = INTERVAL_DEFAULT_NS;
    (void)name;                                            /* there is one */
    (void)probing_parse_u64(value, UINT64_MAX, &interval); /* checked by the core */
    watcher_set(p->watcher, interval);
    return 0;
}

static int gpu_start(void *self)
{
    struct plugin *p = self;
    int r = p->host->every(p->host, TICK_NS, set_note);
    return r == 0 ? watcher_start(p->watcher) : r;
}

static int gpu_stop(void *self)
{
    struct plugin *p = self;
    return watcher_stop(p->watcher);
}

static void gpu_fork(void *self, int phase)
{
    struct plugin *p = self;
    if (phase == PROBING_FORK_CHILD)
        watcher_forked(p->watcher);
}

static void gpu_destroy(void *self)
{
    struct plugin *p = self;
    watcher_free(p->watcher);
    free(p);
}

static int gpu_init(const struct probing_host *host, void **ret_self)
{
    files_take(host);
    struct plugin *p = calloc(1, sizeof(*p));
    if (!p)
        return host->fail(host, -ENOMEM, "no memory");
    p->host = host;
    int r = watcher_new(host, append_device, p, &p->watcher);
    if (r == 0)
        r = device_tables_make(&p->tables, host);
    if (r < 0) {
        watcher_free(p->watcher);
        free(p);
        return r;
    }
    *ret_self = p;
    return 0;
}

/* The clause after a table's name: what the watcher waits for, or that nobody is there. */
static int why_empty(void *self, const char *table, char *text, uint32_t size)
{
    const struct plugin *p = self;
    struct known *k = watcher_known(p->watcher);
    bool devices = k && k->n > 0;
    bool begun = k && k->begun;
    free(k);
    watcher_note(p->watcher, text, size);
    if (text[0])
        return 0;
    if (!begun)
        (void)snprintf(text, size, "%s", "the driver has not been asked yet");
    else if (devices && strcmp(table, "gpu.processes") == 0)
        (void)snprintf(text, size, "%s", "no process uses a GPU");
    else if (devices && strcmp(table, "gpu.partition_utilization") == 0)
        (void)snprintf(text, size, "%s", "no GPU is partitioned (MIG)");
    else
        return -ENOENT;
    return 0;
}

static const void *gpu_extension(void *self, const char *id)
{
    static const struct probing_empty_1 empty = {.size = sizeof(empty), .why = why_empty};
    (void)self;
    return strcmp(id, PROBING_EMPTY_1) == 0 ? &empty : NULL;
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin),
    .abi = PROBING_ABI,
    .name = "gpu",
    .version = PROBING_VERSION,
    .doc = "which GPUs there are, what they do and who uses them, once a second",
    .config = settings,
    .config_size = sizeof(struct probing_config),
    .init = gpu_init,
    .configure = gpu_configure,
    .start = gpu_start,
    .stop = gpu_stop,
    .fork = gpu_fork,
    .destroy = gpu_destroy,
    .extension = gpu_extension,
    .declares = &gpu_declares,
};
