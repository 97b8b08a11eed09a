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

/* ---- who is linked with CUPTI, and how ---- */

struct imports {
    const ElfW(Sym) * symbols;
    const char *names;
    size_t n, names_size;
    bool cupti; /* it is linked with one */
};

/* glibc has made addresses of these, but not in what the kernel maps. */
static const void *place_of(const struct dl_phdr_info *info, const ElfW(Dyn) * d)
{
    return (const void *)(d->d_un.d_ptr + (d->d_un.d_ptr < info->dlpi_addr ? info->dlpi_addr : 0));
}

static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info)
{
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return NULL;
}

static struct imports imports_of(const struct dl_phdr_info *info)
{
    struct imports m = {.n = 0};
    const uint32_t *gnu_hash = NULL, *hash = NULL;
    const ElfW(Dyn) *first = dynamic_of(info);
    for (const ElfW(Dyn) *d = first; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            m.symbols = place_of(info, d);
        else if (d->d_tag == DT_STRTAB)
            m.names = place_of(info, d);
        else if (d->d_tag == DT_STRSZ)
            m.names_size = d->d_un.d_val;
        else if (d->d_tag == DT_GNU_HASH)
            gnu_hash = place_of(info, d);
        else if (d->d_tag == DT_HASH)
            hash = place_of(info, d);
    }
    for (const ElfW(Dyn) *d = first; d && m.names && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_NEEDED && d->d_un.d_val < m.names_size)
            m.cupti |= strncmp(m.names + d->d_un.d_val, "libcupti.so", 11) == 0;
    if (m.cupti && gnu_hash)
        m.n = gnu_hash[1]; /* what is not in it comes first: imports */
    else if (m.cupti && hash)
        m.n = hash[1]; /* all symbols */
    return m;
}

static bool has_import(const struct imports *m, const char *name)
{
    for (size_t i = 0; m->symbols && i < m->n; i++)
        if (m->symbols[i].st_shndx == SHN_UNDEF && m->symbols[i].st_name < m->names_size &&
            strcmp(m->names + m->symbols[i].st_name, name) == 0)
            return true;
    return false;
}

static int look_at_imports(struct dl_phdr_info *info, size_t size, void *ret_old)
{
    struct imports m = imports_of(info);
    (void)size;
    *(bool *)ret_old = m.cupti && has_import(&m, "cuptiActivityRegisterCallbacks") &&
                       !has_import(&m, "cuptiActivityRegisterCallbacks_v2");
    return *(bool *)ret_old;
}

bool others_need_old_interface(void)
{
    bool old = false;
    (void)dl_iterate_phdr(look_at_imports, &old);
    return old;
}

bool others_links_cupti(const struct dl_phdr_info *info)
{
    return imports_of(info).cupti;
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
