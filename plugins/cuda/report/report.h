/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/report/report.h - what `probing cuda` finds out about the devices of a process, and
 * how it is shown.
 *
 * One thread, of the command: nothing in this folder ever runs in a target, and nothing of the
 * plugin's other folders is there.
 */
#ifndef CUDA_REPORT_REPORT_H
#define CUDA_REPORT_REPORT_H

#include <probing/report.h>
#include <stdbool.h>
#include <stdint.h>

#include "report_sdk.h"

#define CUDA_NAME_BYTES 1024
#define CUDA_DEVICES 64
#define CUDA_KERNELS 10 /* shown */
#define CUDA_MODULES 5
#define CUDA_COPIES 4
#define CUDA_WAITS 4
#define CUDA_SUSPICIONS 8

enum device_figure { /* sums of cuda.device_time, ns but for the last two */
                     DEVICE_WALL,
                     DEVICE_BUSY,
                     DEVICE_KERNEL,
                     DEVICE_COLLECTIVE,
                     DEVICE_COPY,
                     DEVICE_IDLE,
                     DEVICE_IDLE_HOST,
                     DEVICE_IDLE_SYNC,
                     DEVICE_IDLE_COPY,
                     DEVICE_IDLE_OTHER,
                     DEVICE_LAUNCH,
                     DEVICE_KERNELS,
                     DEVICE_LOST,
                     DEVICE_FIGURES
};

struct device_report {
    int64_t device, windows; /* windows: times in which it was traced */
    double figure[DEVICE_FIGURES];
};

struct kernel_sum {
    char name[CUDA_NAME_BYTES], module[CUDA_NAME_BYTES]; /* module: of most of its time, or "" */
    double count, total_ns, modules;                     /* modules: how many different ones */
};

struct copy_sum {
    char kind[32], from[32];
    double count, bytes, total_ns, waited; /* waited: of the count, not asynchronous */
};

struct wait_sum {
    char kind[64], module[CUDA_NAME_BYTES];
    double count, total_ns;
};

struct step_times {          /* of steps of torch wholly inside windows, and wholly between them */
    double n[2], seconds[2]; /* traced, not traced; seconds: the median */
};

struct cuda_report {
    const struct probing_report_api *api;
    char state[32], reason[300]; /* of the living: cuda.tracing */
    struct device_report devices[CUDA_DEVICES];
    uint32_t n_devices, n_kernels, n_modules, n_copies, n_waits, n_suspicions;
    struct device_report all; /* all devices together */
    struct step_times steps_took;
    double steps; /* whole ones among what was read; 0: none */
    /* All kernels: number, time, and for those whose launch was seen: launching, and from launch to
     * begin. */
    double kernels, kernel_ns, launched, launch_ns, queued_ns;
    double step_kernels, step_kernel_ns; /* of the whole steps only */
    struct kernel_sum top[CUDA_KERNELS], modules[CUDA_MODULES];
    struct copy_sum copies[CUDA_COPIES];
    struct wait_sum waits[CUDA_WAITS];
    double allocations, allocation_ns, frees; /* calls that allocate and free device memory */
    double used_bytes, total_bytes;           /* of all devices; NAN: plugin gpu has not looked */
    char suspicions[CUDA_SUSPICIONS][512];
};

static inline bool is_number(double v)
{
    return v == v;
}

/* 0 where there is nothing to divide by. */
static inline double cuda_share(double part, double whole)
{
    return whole > 0 && is_number(part) ? part / whole : 0;
}

/* cuda_suspicions.c: what seems wrong, into r->suspicions; and is it the launches that hold the
 * device up?  In words. */
void cuda_suspect(struct cuda_report *r);
void cuda_launch_words(const struct cuda_report *r, char *ret, size_t size);

/* cuda_report_print.c */
void cuda_show(const struct cuda_report *r);
void cuda_show_json(const struct cuda_report *r);

/* kernel_names.c: as a person writes it, without result and parameters. */
void kernel_name(const char *name, char *ret, size_t size);

#endif
