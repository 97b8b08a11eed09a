/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/device_rows.h - the tables of devices, and their rows.
 */
#ifndef GPU_DEVICE_ROWS_H
#define GPU_DEVICE_ROWS_H

#include "watcher.h"

struct device_tables {
    const struct probing_host *host;
    struct probing_table *utilization, *partitions;
};

/* Make all tables.                                                                  [control] */
int device_tables_make(struct device_tables *t, const struct probing_host *h);
/* A row of what a device does; before: its last look, ns 0: none.                       [any] */
void device_row(struct device_tables *t, const struct gpu_device *d, const struct gpu_look *before,
                const struct gpu_look *now);

/* plugin.c: of the plugin's self.                                                    [worker] */
struct watcher *plugin_watcher(void *self);
const struct probing_host *plugin_host(void *self);

#endif
