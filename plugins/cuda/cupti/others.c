/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/others.c - other profilers: NVIDIA's tools by the libraries that they bring,
 * torch's (Kineto) by the flag that it raises.
 *
 * Threads: one at a time; the GIL is had for a look into one dict.
 */
#include "cupti/others.h"

#include <errno.h>
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

/* ---- who is linked with CUPTI, and how ---- */

bool others_links_cupti(const struct object *o)
{
    ElfW(Dyn) d;
    for (uint64_t i = 0; elf_view_entry(&o->view, i, &d); i++)
        if (d.d_tag == DT_NEEDED && d.d_un.d_val < o->strings_size &&
            strncmp(o->strings + d.d_un.d_val, "libcupti.so", 11) == 0)
            return true;
    return false;
}

static bool has_import(const struct object *o, const char *name)
{
    bool gnu = elf_has(&o->view, DT_GNU_HASH); /* the imports come before what is in it */
    uint64_t table = elf_view_address(&o->view, gnu ? DT_GNU_HASH : DT_HASH);
    uint32_t n = 0;
    ElfW(Sym) s;
    (void)o->view.read(&o->view, table + sizeof(n), &n, sizeof(n));
    for (uint32_t i = 0; i < n && elf_view_symbol(&o->view, i, &s); i++)
        if (s.st_shndx == SHN_UNDEF && elf_view_has_name(&o->view, s.st_name, name))
            return true;
    return false;
}

static int look_at_imports(struct dl_phdr_info *info, size_t size, void *ret_old)
{
    struct object o;
    (void)size;
    *(bool *)ret_old = object_read(info, &o) && others_links_cupti(&o) &&
                       has_import(&o, "cuptiActivityRegisterCallbacks") &&
                       !has_import(&o, "cuptiActivityRegisterCallbacks_v2");
    return *(bool *)ret_old;
}

bool others_need_old_interface(void)
{
    bool old = false;
    (void)dl_iterate_phdr(look_at_imports, &old);
    return old;
}

/* ---- torch ---- */

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
