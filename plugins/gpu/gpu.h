/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/gpu.h - a device and what it does now, in words that are no maker's.
 *
 * A maker's room (nvml/) fills these in; watcher.c asks it and keeps the newest; device_rows.c
 * makes rows.  Structs only, no state.
 */
#ifndef GPU_GPU_H
#define GPU_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "probing_sdk.h"

#define GPU_UNKNOWN UINT64_MAX /* a number that is not known, or that the device has not */
#define GPU_DEVICES_MAX 128    /* with their partitions; more are not looked at */
#define GPU_PROCESSES_MAX 512  /* of all devices together; more are counted only */
#define GPU_TEXT_BYTES 96      /* of names: NVML's longest */

enum gpu_state {
    GPU_OK,
    GPU_LOST,           /* it has fallen off the bus */
    GPU_RESET_REQUIRED, /* it answers no more before it is reset */
    GPU_FAILED          /* all questions failed: `error` of the look says how */
};

/* A device's properties; they change only when the driver or its partition changes. */
struct gpu_device {
    uint32_t index;    /* as the driver counts */
    int32_t partition; /* of a device that is partitioned (MIG): its number there; -1: whole */
    bool partitioned;  /* whole, and partitioned */
    bool mode_known;   /* `partitioned` is */
    int32_t visible;   /* to this process: 1, 0, or -1: not known */
    int32_t ordinal; /* as this process counts those that it sees; -1: not known, or not visible */
    uint64_t total_bytes;
    uint64_t minor;      /* of its device file */
    uint64_t slots[2];   /* of a partition: GPU and compute instance */
    uint64_t limit_mw;   /* of power */
    uint64_t link_count; /* of fast links to other devices */
    char uuid[GPU_TEXT_BYTES], name[GPU_TEXT_BYTES];
    char bus_id[32], capability[16]; /* "" : not known */
};

/* A device's state and use.  Bytes of links and of the bus are counters since any moment. */
struct gpu_look {
    enum gpu_state state;
    uint64_t ns; /* when it was asked; 0: never */
    uint64_t used_bytes, total_bytes;
    uint64_t busy_pct, memory_busy_pct;
    uint64_t power_mw, energy_mj, temperature_c;
    uint64_t sm_clock_mhz, memory_clock_mhz;
    uint64_t ecc_corrected, ecc_uncorrected; /* since the driver was loaded */
    uint64_t bus_rx_bytes, bus_tx_bytes;     /* counters; where there are none: */
    uint64_t bus_rx_rate, bus_tx_rate;       /* bytes a second, measured by the driver */
    uint64_t link_rx_bytes, link_tx_bytes;   /* all links together */
    uint64_t processes;                      /* that use it */
    uint64_t own_bytes;                      /* of its memory, that this process uses */
    char throttle[GPU_TEXT_BYTES];           /* "" : not known */
    char error[64];                          /* with GPU_FAILED */
};

struct gpu_process {
    uint32_t device; /* its place in the list of devices */
    int64_t pid;     /* as the driver sees it */
    uint64_t used_bytes;
    bool graphics; /* else it computes */
    char name[16]; /* "" : not known */
};

struct gpu_processes {
    struct gpu_process all[GPU_PROCESSES_MAX];
    uint32_t n;
    uint32_t left_out; /* there was no room for so many */
};

#endif
