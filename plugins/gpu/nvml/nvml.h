/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/nvml/nvml.h - the part of NVML's binary interface that we use, in our own words.
 *
 * NVML (libnvidia-ml.so.1) comes with the driver.  Its interface only grows: a function whose
 * struct changed has a new name (_v2, _v3), and the old one stays.  So an older driver lacks
 * functions, which are NULL here; a newer one has all of these.  Checked against NVIDIA's own
 * header by tests/gpu/test_nvml_abi.py.
 */
#ifndef GPU_NVML_NVML_H
#define GPU_NVML_NVML_H

#include <stdint.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"

struct nvml_device; /* opaque */

/* Results of functions; others stand in NVML's own words. */
enum {
    NVML_OK = 0,
    NVML_UNINITIALIZED = 1,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_GPU_IS_LOST = 15,
    NVML_RESET_REQUIRED = 16,
    NVML_GPU_NOT_FOUND = 28,
    NVML_UNKNOWN = 999
};

#define NVML_NAME_BYTES 96    /* NVML_DEVICE_NAME_V2_BUFFER_SIZE, and of an UUID */
#define NVML_VERSION_BYTES 80 /* NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE */

struct nvml_pci {
    char legacy_bus_id[16];
    uint32_t domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct nvml_utilization {
    uint32_t gpu, memory; /* percent of the last sample period, 1/6 to 1 s */
};

struct nvml_memory { /* used: what the driver keeps for itself, too */
    uint64_t total, free, used;
};

struct nvml_memory_2 { /* used: without that; as nvidia-smi shows it */
    uint32_t version;  /* NVML_MEMORY_2 */
    uint64_t total, reserved, free, used;
};
#define NVML_MEMORY_2 ((uint32_t)sizeof(struct nvml_memory_2) | 2u << 24)

#define NVML_NOT_AVAILABLE UINT64_MAX /* used_bytes */
struct nvml_process_1 {               /* of functions without a version */
    uint32_t pid;
    uint64_t used_bytes;
};
struct nvml_process_2 { /* of _v2 and _v3 */
    uint32_t pid;
    uint64_t used_bytes;
    uint32_t gpu_instance, compute_instance; /* UINT32_MAX: none */
};

enum {
    NVML_FIELD_LINK_COUNT = 91,
    NVML_FIELD_LINK_TX_KIB = 138, /* NVLink, data only; scope: a link, or all */
    NVML_FIELD_LINK_RX_KIB = 139,
    NVML_FIELD_BUS_TX_BYTES = 197, /* PCIe */
    NVML_FIELD_BUS_RX_BYTES = 198
};
#define NVML_SCOPE_ALL UINT32_MAX

/* The member of `value` that counts. */
enum {
    NVML_DOUBLE = 0,
    NVML_U32 = 1,
    NVML_ULONG = 2,
    NVML_U64 = 3,
    NVML_I64 = 4,
    NVML_I32 = 5,
    NVML_U16 = 6
};
struct nvml_field {
    uint32_t field, scope; /* in */
    int64_t timestamp_us, latency_us;
    uint32_t type;
    int32_t result; /* of this field */
    union {
        double f64;
        int32_t i32;
        uint32_t u32;
        uint64_t u64;
        int64_t i64;
        uint16_t u16;
    } value;
};

enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2 };
enum { NVML_CORRECTED = 0, NVML_UNCORRECTED = 1 };
enum { NVML_SINCE_DRIVER = 0 }; /* of errors: the volatile counters */
enum { NVML_BUS_TX = 0, NVML_BUS_RX = 1 };

/* Why clocks are not at their highest. */
enum {
    NVML_REASON_IDLE = 0x1,
    NVML_REASON_APPLICATION_CLOCKS = 0x2,
    NVML_REASON_POWER_CAP = 0x4,
    NVML_REASON_HARDWARE = 0x8,
    NVML_REASON_SYNC_BOOST = 0x10,
    NVML_REASON_THERMAL = 0x20,
    NVML_REASON_HARDWARE_THERMAL = 0x40,
    NVML_REASON_POWER_BRAKE = 0x80,
    NVML_REASON_DISPLAY = 0x100,
    NVML_REASON_BOARD_LIMIT = 0x200,
    NVML_REASON_RELIABILITY = 0x400
};

/* NULL: this driver does not have it.  All but the first six may be NULL. */
struct nvml_functions {
    int (*init)(void);
    int (*shutdown)(void);
    int (*device_count)(uint32_t *);
    int (*device)(uint32_t index, struct nvml_device **);
    int (*uuid)(struct nvml_device *, char *, uint32_t);
    int (*name)(struct nvml_device *, char *, uint32_t);

    const char *(*error_text)(int);
    int (*driver_version)(char *, uint32_t);
    int (*cuda_version)(int32_t *); /* 13000: 13.0 */
    int (*pci)(struct nvml_device *, struct nvml_pci *);
    int (*minor)(struct nvml_device *, uint32_t *);
    int (*capability)(struct nvml_device *, int32_t *, int32_t *);
    int (*memory)(struct nvml_device *, struct nvml_memory *);
    int (*memory_2)(struct nvml_device *, struct nvml_memory_2 *);
    int (*utilization)(struct nvml_device *, struct nvml_utilization *);
    int (*power_mw)(struct nvml_device *, uint32_t *);
    int (*power_limit_mw)(struct nvml_device *, uint32_t *);
    int (*energy_mj)(struct nvml_device *, uint64_t *);
    int (*temperature)(struct nvml_device *, uint32_t sensor, uint32_t *);
    int (*clock_mhz)(struct nvml_device *, uint32_t which, uint32_t *);
    int (*clock_reasons)(struct nvml_device *, uint64_t *);
    int (*ecc_errors)(struct nvml_device *, uint32_t type, uint32_t counter, uint64_t *);
    int (*bus_kib_a_second)(struct nvml_device *, uint32_t direction, uint32_t *);
    int (*fields)(struct nvml_device *, int32_t n, struct nvml_field *);
    int (*mig_mode)(struct nvml_device *, uint32_t *now, uint32_t *after_reset);
    int (*mig_count)(struct nvml_device *, uint32_t *);
    int (*mig_device)(struct nvml_device *, uint32_t index, struct nvml_device **);
    int (*gpu_instance)(struct nvml_device *, uint32_t *);
    int (*compute_instance)(struct nvml_device *, uint32_t *);
    /* Processes that compute, and that draw: of the newest form that is there. */
    int (*processes[2])(struct nvml_device *, uint32_t *n, struct nvml_process_2 *);
    int (*processes_1[2])(struct nvml_device *, uint32_t *n, struct nvml_process_1 *);
};

#endif
