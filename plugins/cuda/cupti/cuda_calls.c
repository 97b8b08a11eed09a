/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/cuda_calls.c - calls of CUDA by their names: numbers differ from version to
 * version.
 *
 * Threads: one at a time; no state.
 * Measured with CUPTI 13.0, an H200 and torch 2.11: of 334,000 records of the runtime 40,000 were
 * left.  When only the kind was switched off again, a small kernel of torch took 14.1 us; when its
 * calls were, too, 10.7 as before.  Calls that are chosen without their kind are not recorded.
 */
#include "cupti/cuda_calls.h"

#include <stdio.h>
#include <string.h>

#include "cupti/cupti_inside.h"

static bool has_one_of(const char *name, const char *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(name, parts[i]))
            return true;
    return false;
}

#define HAS_ONE_OF(name, parts) has_one_of(name, parts, sizeof(parts) / sizeof((parts)[0]))

enum call_class call_class_of(const char *name)
{
    static const char *const copies[] = {"Memcpy", "Memset"};
    static const char *const waits[] = {"Synchronize", "cudaMalloc",     "cudaFree",
                                        "cuMemAlloc",  "cuMemFree",      "cudaHostAlloc",
                                        "DeviceReset", "PrimaryCtxReset"};
    static const char *const works[] = {
        "Launch",         "StreamWaitEvent",  "MemPrefetch",  "HostAlloc",       "HostRegister",
        "HostUnregister", "MemCreate",        "MemRelease",   "MemMap",          "MemUnmap",
        "MemSetAccess",   "PoolTrim",         "ModuleLoad",   "ModuleUnload",    "LibraryLoad",
        "LibraryUnload",  "GraphInstantiate", "GraphUpload",  "GraphExecUpdate", "CtxCreate",
        "CtxDestroy",     "PrimaryCtxRetain", "StreamCreate", "StreamDestroy",   "Ipc",
        "cuInit"};
    bool returns = strstr(name, "Async") != NULL;
    if (HAS_ONE_OF(name, copies))
        return returns ? CALL_WORKS : CALL_COPIES;
    if (HAS_ONE_OF(name, waits))
        return returns ? CALL_WORKS : CALL_WAITS;
    return HAS_ONE_OF(name, works) ? CALL_WORKS : CALL_ASKS;
}

void calls_read(const struct cupti *c, struct call_names *ret)
{
    *ret = (struct call_names){.all = {{NULL}}};
    for (uint32_t id = 1; c->GetCallbackName && id < CALLS; id++)
        for (int driver = 0; driver < 2; driver++) {
            int domain = driver ? CUPTI_DOMAIN_DRIVER : CUPTI_DOMAIN_RUNTIME;
            const char *name = NULL;
            if (CUPTI(c, GetCallbackName, domain, id, &name) == CUPTI_SUCCESS)
                ret->all[driver][id] = name;
        }
}

bool calls_name(const struct call_names *n, bool driver, uint32_t id, char *ret, size_t size)
{
    const char *name = id < CALLS ? n->all[driver][id] : NULL;
    if (!name)
        return false;
    const char *end_of = strstr(name, "_v"); /* cudaLaunchKernel_v7000: since which CUDA */
    size_t length = end_of && strlen(end_of) > 5 && end_of[2] >= '1' && end_of[2] <= '9' && !driver
                        ? (size_t)(end_of - name)
                        : strlen(name);
    (void)snprintf(ret, size, "%.*s", (int)length, name);
    return true;
}

void calls_choose(const struct cupti *c, const struct call_names *n, enum calls which)
{
    char name[128];
    if (!c->ActivityEnableDriverApi || !c->ActivityEnableRuntimeApi)
        return;
    for (uint32_t id = 1; id < CALLS; id++)
        for (int driver = 0; driver < 2; driver++) {
            if (!calls_name(n, driver, id, name, sizeof(name)))
                continue;
            bool on =
                which == CALLS_ALL || (which == CALLS_WORK && call_class_of(name) != CALL_ASKS);
            /* A call that it cannot choose stays with its kind. */
            (void)(driver ? CUPTI(c, ActivityEnableDriverApi, id, on)
                          : CUPTI(c, ActivityEnableRuntimeApi, id, on));
        }
}
