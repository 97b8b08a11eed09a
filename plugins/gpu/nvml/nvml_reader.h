/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/nvml/nvml_reader.h - NVIDIA's devices, asked through the driver's own library.
 *
 * The watcher's thread only: a call may hang for as long as the driver does.  Nothing is linked, no
 * context is made on a device, no other process is started.
 */
#ifndef GPU_NVML_NVML_READER_H
#define GPU_NVML_NVML_READER_H

#include "gpu.h"
#include "nvml/nvml.h"

#define NVML_WHY_BYTES 200

struct nvml {
    const struct probing_host *host;
    struct nvml_functions f;
    bool found, ready; /* the library is mapped; it is initialised */
    int64_t own_pid;
    char driver[NVML_VERSION_BYTES]; /* "" : not known */
    int32_t cuda_version;            /* the newest that the driver can; 0: not known */
    struct nvml_device *handles[GPU_DEVICES_MAX];
    int refused[GPU_DEVICES_MAX];      /* where there is no handle: what NVML said */
    bool partitioned[GPU_DEVICES_MAX]; /* its partitions are in the list, and have its processes */
    uint32_t n;
};

/* Find the library and begin.  0, or -ENOENT, -ENODEV with the reason in why[NVML_WHY_BYTES]: try
 * again later. */
int nvml_begin(struct nvml *n, char *why);
void nvml_end(struct nvml *n);
/* List the devices that are there now, up to GPU_DEVICES_MAX.  Gives how many, or -errno with the
 * reason in `why`. */
int nvml_list(struct nvml *n, struct gpu_device *devices, char *why);
/* Look at what device i of the list does, and add its processes to `processes`.  measure_bus: also
 * what takes 40 ms of waiting, where the device has no counters.  -ENODEV: begin NVML again. */
int nvml_look(struct nvml *n, uint32_t i, bool measure_bus, struct gpu_look *ret,
              struct gpu_processes *processes);

/* ---- visible_devices.c: any thread ---- */

/* Set visible and ordinal of devices as CUDA will for a process with this CUDA_VISIBLE_DEVICES
 * (NULL: it has none) and CUDA_DEVICE_ORDER (NULL likewise). */
void cuda_visible(const char *list, const char *order, struct gpu_device *devices, uint32_t n);
/* The words of clocks' reasons, "none" for 0. */
void nvml_reason_words(uint64_t reasons, char *ret, size_t size);

#endif
