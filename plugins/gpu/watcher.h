/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/watcher.h - the thread that asks devices, and what it was told last.
 *
 * Only that thread calls the driver's library, so only it waits when the driver hangs.  Others read
 * a copy of what it knows; no lock is held while it asks.
 */
#ifndef GPU_WATCHER_H
#define GPU_WATCHER_H

#include "gpu.h"

#define WATCHER_WHY_BYTES 200
#define WATCHER_SLOW_NS (5 * PROBING_NS_PER_S) /* a question that takes longer is told */

struct watcher;

/* A copy of what is known now. */
struct known {
    bool begun;                  /* the thread has tried to find a driver */
    bool ready;                  /* and there is one */
    char why[WATCHER_WHY_BYTES]; /* else: why not */
    char driver[80], maker[16];  /* of the driver; "" : not known */
    int32_t cuda_version;        /* 13000: 13.0; 0: not known */
    uint64_t asking_ns;          /* when the question that is under way was asked; 0: none is */
    uint32_t asking;             /* of which device; >= n: of the driver */
    struct gpu_device devices[GPU_DEVICES_MAX];
    struct gpu_look looks_of[GPU_DEVICES_MAX];
    struct gpu_processes processes;
    uint32_t n;
};

/* row: called on the watcher's thread for each device at each look, `before`: its last one (ns 0:
 * none).                                                                            [control] */
int watcher_new(const struct probing_host *h,
                void (*row)(void *self, const struct gpu_device *d, const struct gpu_look *before,
                            const struct gpu_look *now),
                void *self, struct watcher **ret);
void watcher_free(struct watcher *w); /* after a stop, or never started             [control] */

int watcher_start(struct watcher *w); /*                                             [control] */
/* -EBUSY: the driver does not answer; the thread goes on looking when it does.      [control] */
int watcher_stop(struct watcher *w);
void watcher_set(struct watcher *w, uint64_t interval_ns); /*                        [control] */
void watcher_forked(struct watcher *w);                    /*                        [child] */
/* A copy, the caller frees it; NULL: no memory.                                         [any] */
struct known *watcher_known(struct watcher *w);
/* In words what it waits for, "" when nothing is wrong.                             [worker] */
void watcher_note(struct watcher *w, char *text, size_t size);

#endif
