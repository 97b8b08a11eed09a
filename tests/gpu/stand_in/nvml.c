/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/gpu/stand_in/nvml.c - a stand-in for NVIDIA's libnvidia-ml.so.1: no driver, no device, only
 * its public functions, which answer what a file says.
 *
 * The file is the one that NVML_STAND_IN names; it is read at each call, so that a test changes
 * what devices do.  A line is KEY=VALUE: `init=9` and `driver=...` of the library, `0.used=...` of
 * device 0, `0/2.used=...` of the partition at place 2 there; `0.power=!3` gives a code in place of
 * a value.  What is not in the file is not supported (3); `0.all=15` is what every question about
 * device 0 gives; `0.slow=FILE`: each waits while FILE is there.
 * -DSTAND_IN_OLD: without the functions that came after drivers of 2019.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugins/gpu/nvml/nvml.h"

#define EXPORT __attribute__((visibility("default")))
#define DEVICES 64
#define PLACES 16
#define FILE_BYTES 65536

struct nvml_device { /* by its address: [device][place + 1] */
    char nothing;
};
static struct nvml_device handles[DEVICES][PLACES + 1];
static _Atomic int begun;

/* ---- the file ---- */

/* The value of a key, into ret; false: there is none. */
static int find(const char *key, char *ret, size_t size)
{
    char text[FILE_BYTES];
    const char *path = getenv("NVML_STAND_IN");
    FILE *f = path ? fopen(path, "re") : NULL;
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof(text) - 1, f), length = strlen(key);
    text[n] = '\0';
    (void)fclose(f);
    for (const char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (strncmp(at, key, length) == 0 && at[length] == '=') {
            (void)snprintf(ret, size, "%.*s", (int)strcspn(at + length + 1, "\n"), at + length + 1);
            return 1;
        }
    return 0;
}

static int code_of(const char *value)
{
    return value[0] == '!' ? atoi(value + 1) : NVML_OK;
}

static int library_value(const char *key, char *ret, size_t size)
{
    if (!find(key, ret, size))
        return NVML_NOT_SUPPORTED;
    return code_of(ret);
}

static void key_of(const struct nvml_device *d, const char *what, char *ret, size_t size)
{
    long at = d - &handles[0][0], device = at / (PLACES + 1), place = at % (PLACES + 1) - 1;
    if (place < 0)
        (void)snprintf(ret, size, "%ld.%s", device, what);
    else
        (void)snprintf(ret, size, "%ld/%ld.%s", device, place, what);
}

static void wait_while(const char *path)
{
    while (access(path, F_OK) == 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* The value of a device's key, or what the question gives. */
static int value_of(const struct nvml_device *d, const char *what, char *ret, size_t size)
{
    char key[64], all[512];
    if (!atomic_load(&begun))
        return NVML_UNINITIALIZED;
    key_of(d, "slow", key, sizeof(key));
    if (find(key, all, sizeof(all)))
        wait_while(all);
    key_of(d, "all", key, sizeof(key));
    if (find(key, all, sizeof(all)))
        return atoi(all);
    key_of(d, what, key, sizeof(key));
    if (!find(key, ret, size))
        return NVML_NOT_SUPPORTED;
    return code_of(ret);
}

static int number_of(const struct nvml_device *d, const char *what, uint64_t *ret)
{
    char text[128];
    int code = value_of(d, what, text, sizeof(text));
    if (code == NVML_OK)
        *ret = strtoull(text, NULL, 10);
    return code;
}

static int number32_of(const struct nvml_device *d, const char *what, uint32_t *ret)
{
    uint64_t value = 0;
    int code = number_of(d, what, &value);
    if (code == NVML_OK)
        *ret = (uint32_t)value;
    return code;
}

static int text_of(const struct nvml_device *d, const char *what, char *ret, uint32_t size)
{
    char text[512];
    int code = value_of(d, what, text, sizeof(text));
    if (code == NVML_OK && strlen(text) >= size)
        return NVML_INSUFFICIENT_SIZE;
    if (code == NVML_OK)
        memcpy(ret, text, strlen(text) + 1);
    return code;
}

/* ---- the library ---- */

#define NAME(name) EXPORT int name

NAME(nvmlInit_v2)(void);
NAME(nvmlInit_v2)(void)
{
    char text[64];
    int code = library_value("init", text, sizeof(text));
    code = code == NVML_OK ? atoi(text) : NVML_OK;
    if (code == NVML_OK)
        atomic_fetch_add(&begun, 1);
    return code;
}

NAME(nvmlShutdown)(void);
NAME(nvmlShutdown)(void)
{
    if (!atomic_load(&begun))
        return NVML_UNINITIALIZED;
    atomic_fetch_sub(&begun, 1);
    return NVML_OK;
}

EXPORT const char *nvmlErrorString(int code);
EXPORT const char *nvmlErrorString(int code)
{
    return code == NVML_DRIVER_NOT_LOADED ? "Driver Not Loaded"
           : code == 18                   ? "Driver/library version mismatch"
           : code == NVML_UNKNOWN         ? "Unknown Error"
                                          : "Unknown Error code";
}

NAME(nvmlSystemGetDriverVersion)(char *ret, uint32_t size);
NAME(nvmlSystemGetDriverVersion)(char *ret, uint32_t size)
{
    return library_value("driver", ret, size);
}

#ifdef STAND_IN_OLD
#define CUDA_VERSION nvmlSystemGetCudaDriverVersion
#define PROCESSES_COMPUTE nvmlDeviceGetComputeRunningProcesses
#define PROCESSES_GRAPHICS nvmlDeviceGetGraphicsRunningProcesses
#define REASONS nvmlDeviceGetCurrentClocksThrottleReasons
#define PROCESS nvml_process_1
#else
#define CUDA_VERSION nvmlSystemGetCudaDriverVersion_v2
#define PROCESSES_COMPUTE nvmlDeviceGetComputeRunningProcesses_v3
#define PROCESSES_GRAPHICS nvmlDeviceGetGraphicsRunningProcesses_v3
#define REASONS nvmlDeviceGetCurrentClocksEventReasons
#define PROCESS nvml_process_2
#endif

NAME(CUDA_VERSION)(int32_t *ret);
NAME(CUDA_VERSION)(int32_t *ret)
{
    char text[64];
    int code = library_value("cuda", text, sizeof(text));
    if (code == NVML_OK)
        *ret = atoi(text);
    return code;
}

NAME(nvmlDeviceGetCount_v2)(uint32_t *ret);
NAME(nvmlDeviceGetCount_v2)(uint32_t *ret)
{
    char text[64] = "0";
    if (!atomic_load(&begun))
        return NVML_UNINITIALIZED;
    (void)library_value("devices", text, sizeof(text));
    *ret = (uint32_t)atoi(text);
    return NVML_OK;
}

NAME(nvmlDeviceGetHandleByIndex_v2)(uint32_t index, struct nvml_device **ret);
NAME(nvmlDeviceGetHandleByIndex_v2)(uint32_t index, struct nvml_device **ret)
{
    char text[64];
    if (index >= DEVICES)
        return 2;
    int code = value_of(&handles[index][0], "handle", text, sizeof(text));
    if (code == NVML_NOT_SUPPORTED)
        code = NVML_OK; /* nothing is said of it */
    *ret = &handles[index][0];
    return code;
}

/* ---- who a device is ---- */

#define TEXT_FUNCTION(name, what)                                 \
    NAME(name)(struct nvml_device * d, char *ret, uint32_t size); \
    NAME(name)(struct nvml_device * d, char *ret, uint32_t size)  \
    {                                                             \
        return text_of(d, what, ret, size);                       \
    }
#define U32_FUNCTION(name, what)                        \
    NAME(name)(struct nvml_device * d, uint32_t * ret); \
    NAME(name)(struct nvml_device * d, uint32_t * ret)  \
    {                                                   \
        return number32_of(d, what, ret);               \
    }
#define U64_FUNCTION(name, what)                        \
    NAME(name)(struct nvml_device * d, uint64_t * ret); \
    NAME(name)(struct nvml_device * d, uint64_t * ret)  \
    {                                                   \
        return number_of(d, what, ret);                 \
    }

TEXT_FUNCTION(nvmlDeviceGetUUID, "uuid")
TEXT_FUNCTION(nvmlDeviceGetName, "name")
U32_FUNCTION(nvmlDeviceGetMinorNumber, "minor")
U32_FUNCTION(nvmlDeviceGetPowerUsage, "power")
U32_FUNCTION(nvmlDeviceGetEnforcedPowerLimit, "limit")
U64_FUNCTION(REASONS, "reasons")

NAME(nvmlDeviceGetPciInfo_v3)(struct nvml_device *d, struct nvml_pci *ret);
NAME(nvmlDeviceGetPciInfo_v3)(struct nvml_device *d, struct nvml_pci *ret)
{
    memset(ret, 0x55, sizeof(*ret));
    return text_of(d, "bus_id", ret->bus_id, sizeof(ret->bus_id));
}

NAME(nvmlDeviceGetCudaComputeCapability)(struct nvml_device *d, int32_t *major, int32_t *minor);
NAME(nvmlDeviceGetCudaComputeCapability)(struct nvml_device *d, int32_t *major, int32_t *minor)
{
    char text[32];
    int code = text_of(d, "capability", text, sizeof(text));
    if (code == NVML_OK && sscanf(text, "%d.%d", major, minor) != 2)
        return NVML_UNKNOWN;
    return code;
}

/* ---- what it does ---- */

NAME(nvmlDeviceGetMemoryInfo)(struct nvml_device *d, struct nvml_memory *ret);
NAME(nvmlDeviceGetMemoryInfo)(struct nvml_device *d, struct nvml_memory *ret)
{
    uint64_t reserved = 0;
    int code = number_of(d, "total", &ret->total);
    if (code == NVML_OK)
        code = number_of(d, "used", &ret->used);
    (void)number_of(d, "reserved", &reserved);
    ret->used += reserved;
    ret->free = ret->total - ret->used;
    return code;
}

NAME(nvmlDeviceGetUtilizationRates)(struct nvml_device *d, struct nvml_utilization *ret);
NAME(nvmlDeviceGetUtilizationRates)(struct nvml_device *d, struct nvml_utilization *ret)
{
    int code = number32_of(d, "gpu", &ret->gpu);
    return code == NVML_OK ? number32_of(d, "mem", &ret->memory) : code;
}

NAME(nvmlDeviceGetTemperature)(struct nvml_device *d, uint32_t sensor, uint32_t *ret);
NAME(nvmlDeviceGetTemperature)(struct nvml_device *d, uint32_t sensor, uint32_t *ret)
{
    return sensor == 0 ? number32_of(d, "temperature", ret) : 2;
}

NAME(nvmlDeviceGetClockInfo)(struct nvml_device *d, uint32_t which, uint32_t *ret);
NAME(nvmlDeviceGetClockInfo)(struct nvml_device *d, uint32_t which, uint32_t *ret)
{
    return which == NVML_CLOCK_SM       ? number32_of(d, "sm_clock", ret)
           : which == NVML_CLOCK_MEMORY ? number32_of(d, "mem_clock", ret)
                                        : 2;
}

NAME(nvmlDeviceGetTotalEccErrors)
(struct nvml_device *d, uint32_t type, uint32_t counter, uint64_t *ret);
NAME(nvmlDeviceGetTotalEccErrors)
(struct nvml_device *d, uint32_t type, uint32_t counter, uint64_t *ret)
{
    return counter != NVML_SINCE_DRIVER ? 2
           : type == NVML_CORRECTED     ? number_of(d, "corrected", ret)
                                        : number_of(d, "uncorrected", ret);
}

NAME(nvmlDeviceGetPcieThroughput)(struct nvml_device *d, uint32_t direction, uint32_t *ret);
NAME(nvmlDeviceGetPcieThroughput)(struct nvml_device *d, uint32_t direction, uint32_t *ret)
{
    return number32_of(d, direction == NVML_BUS_RX ? "pcie_rx_kib_s" : "pcie_tx_kib_s", ret);
}

NAME(PROCESSES_COMPUTE)(struct nvml_device *d, uint32_t *n, struct PROCESS *ret);
NAME(PROCESSES_GRAPHICS)(struct nvml_device *d, uint32_t *n, struct PROCESS *ret);

/* "4242:1048576 4300:-": pid and bytes, - for not available. */
static int processes(struct nvml_device *d, const char *what, uint32_t *n, struct PROCESS *ret)
{
    char text[16384];
    uint32_t room = *n, found = 0;
    int code = value_of(d, what, text, sizeof(text));
    if (code != NVML_OK)
        return code;
    for (char *at = text; *at; found++) {
        unsigned long pid = strtoul(at, &at, 10);
        uint64_t used = *at == ':' && at[1] != '-' ? strtoull(at + 1, &at, 10) : NVML_NOT_AVAILABLE;
        at += strcspn(at, " ");
        at += strspn(at, " ");
        if (found >= room)
            continue;
        memset(&ret[found], 0xff, sizeof(ret[found]));
        ret[found].pid = (uint32_t)pid;
        ret[found].used_bytes = used;
    }
    *n = found;
    return found > room ? NVML_INSUFFICIENT_SIZE : NVML_OK;
}

NAME(PROCESSES_COMPUTE)(struct nvml_device *d, uint32_t *n, struct PROCESS *ret)
{
    return processes(d, "compute", n, ret);
}

NAME(PROCESSES_GRAPHICS)(struct nvml_device *d, uint32_t *n, struct PROCESS *ret)
{
    return processes(d, "graphics", n, ret);
}

#ifndef STAND_IN_OLD

U64_FUNCTION(nvmlDeviceGetTotalEnergyConsumption, "energy")
U32_FUNCTION(nvmlDeviceGetMaxMigDeviceCount, "places")
U32_FUNCTION(nvmlDeviceGetGpuInstanceId, "gpu_instance")
U32_FUNCTION(nvmlDeviceGetComputeInstanceId, "compute_instance")

NAME(nvmlDeviceGetMemoryInfo_v2)(struct nvml_device *d, struct nvml_memory_2 *ret);
NAME(nvmlDeviceGetMemoryInfo_v2)(struct nvml_device *d, struct nvml_memory_2 *ret)
{
    if (ret->version != (2u << 24 | 40u))
        return 25; /* argument version mismatch */
    int code = number_of(d, "total", &ret->total);
    if (code == NVML_OK)
        code = number_of(d, "used", &ret->used);
    ret->reserved = 0;
    (void)number_of(d, "reserved", &ret->reserved);
    ret->free = ret->total - ret->used - ret->reserved;
    return code;
}

NAME(nvmlDeviceGetFieldValues)(struct nvml_device *d, int32_t n, struct nvml_field *fields);
NAME(nvmlDeviceGetFieldValues)(struct nvml_device *d, int32_t n, struct nvml_field *fields)
{
    char key[32], text[64];
    for (int32_t i = 0; i < n; i++) {
        (void)snprintf(key, sizeof(key), "field_%u", fields[i].field);
        fields[i].result = value_of(d, key, text, sizeof(text));
        if (fields[i].result != NVML_OK)
            continue;
        bool link =
            fields[i].field == NVML_FIELD_LINK_TX_KIB || fields[i].field == NVML_FIELD_LINK_RX_KIB;
        if (link && fields[i].scope != NVML_SCOPE_ALL) {
            fields[i].result = 2; /* one link only */
            continue;
        }
        memset(&fields[i].value, 0x55, sizeof(fields[i].value));
        fields[i].type = fields[i].field == NVML_FIELD_LINK_COUNT ? NVML_U32 : NVML_U64;
        if (fields[i].type == NVML_U32)
            fields[i].value.u32 = (uint32_t)atoi(text);
        else
            fields[i].value.u64 = strtoull(text, NULL, 10);
    }
    return NVML_OK;
}

NAME(nvmlDeviceGetMigMode)(struct nvml_device *d, uint32_t *now, uint32_t *later);
NAME(nvmlDeviceGetMigMode)(struct nvml_device *d, uint32_t *now, uint32_t *later)
{
    *later = 0;
    return number32_of(d, "mig", now);
}

NAME(nvmlDeviceGetMigDeviceHandleByIndex)
(struct nvml_device *d, uint32_t index, struct nvml_device **ret);
NAME(nvmlDeviceGetMigDeviceHandleByIndex)
(struct nvml_device *d, uint32_t index, struct nvml_device **ret)
{
    char text[8];
    if (index >= PLACES)
        return 2;
    *ret = d + 1 + index;
    int code = text_of(*ret, "uuid", text, 1);
    return code == NVML_NOT_SUPPORTED ? 6 /* nothing there */ : NVML_OK;
}

#endif
