/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/others.c - other profilers: NVIDIA's tools by the libraries that they bring,
 * torch's (Kineto) by the flag that it raises.
 *
 * Threads: one at a time; the GIL is had for a look into one dict.
 */
#include "cupti/others.h"

#include <errno.h>
#include <link.h>
#include <string.h>

#define GIL_NS UINT64_C(100000000) /* 100 ms: else what was seen last goes on */

static const struct {
    const char *file, *who;
} tools[] = {{"libToolsInjection64.so", "Nsight Systems is in the process"},
             {"libcuda-injection.so", "Nsight Compute is in the process"},
             {"libTreeLauncherTargetInjection.so", "Nsight Compute is in the process"},
             {"libsanitizer-collection.so", "compute-sanitizer is in the process"},
             {"libcupti_trace_injection.so", "a CUPTI injection is in the process"}};

static int look_at_object(struct dl_phdr_info *info, size_t size, void *ret_who)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    (void)size;
    for (size_t i = 0; i < sizeof(tools) / sizeof(tools[0]); i++)
        if (strcmp(name, tools[i].file) == 0)
            *(const char **)ret_who = tools[i].who;
    return *(const char **)ret_who != NULL;
}

/* torch.autograd.profiler._is_profiler_enabled is True between the begin and the end of a profile
 * (torch 2). */
static int look_at_torch(void *arg)
{
    struct others *o = arg;
    const struct cpython *py = &o->py;
    PyObject *module =
        py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "torch.autograd.profiler");
    PyObject *flag = module ? py->PyObject_GetAttrString(module, "_is_profiler_enabled") : NULL;
    py->PyErr_Clear();
    o->profiles = flag && flag == py->_Py_TrueStruct;
    py->Py_DecRef(flag);
    return 0;
}

void others_find(struct others *o, const struct probing_host *host)
{
    o->gil = host->extension(host, PROBING_PYTHON_GIL_1);
}

const char *others_look(struct others *o)
{
    const char *who = NULL;
    (void)dl_iterate_phdr(look_at_object, &who);
    if (who)
        return who;
    bool python = o->gil && (o->py.version || cpython_load(&o->py) == 0);
    if (!python || o->gil->call(look_at_torch, o, GIL_NS) == -ENODEV)
        o->profiles = false;
    return o->profiles ? "torch.profiler (Kineto) runs" : NULL;
}
