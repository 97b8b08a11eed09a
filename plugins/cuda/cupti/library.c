/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/library.c - which libcupti a process uses, and how its functions are found.
 *
 * Threads: one at a time.
 * It is a file of CUDA's, and must be the version of the CUDA runtime that the program has: another
 * one may not know its driver.  So what is mapped already comes first, then what lies beside what
 * is mapped.
 */
#include "cupti/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cupti/cupti_inside.h"
#include "lib/library_find.h"
#include "lib/proc/identity.h"

/* ---- the driver ---- */

const char *driver_missing(bool *ret_unloaded)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    *ret_unloaded = driver == NULL;
    if (!driver)
        return "the process has not loaded CUDA's driver (libcuda.so.1)";
    int (*count)(int *) = NULL;
    *(void **)&count = dlsym(driver, "cuDeviceGetCount");
    int devices = 0;
    cupti_note("cuDeviceGetCount");
    int result = count ? count(&devices) : 0; /* it changes nothing, and says when nobody has */
    (void)dlclose(driver);                    /* who loaded it holds it */
    if (result)
        return "the process has not initialised CUDA's driver";
    return NULL;
}

/* ---- the file ---- */

struct mapped { /* paths of files that are in the process; "": none */
    char cupti[512], runtime[512];
};

static int look_at_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct mapped *m = arg;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    (void)size;
    if (strncmp(name, "libcupti.so", 11) == 0) /* the last: the program's, where we had another */
        (void)snprintf(m->cupti, sizeof(m->cupti), "%s", info->dlpi_name);
    if (!m->runtime[0] && strncmp(name, "libcudart.so", 12) == 0)
        (void)snprintf(m->runtime, sizeof(m->runtime), "%s", info->dlpi_name);
    return 0;
}

/* A directory that a variable names may be anybody's: then what lies there is no library. */
static bool may_everybody_write(const char *path)
{
    char folder[512];
    struct stat file, place;
    (void)snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || stat(path, &file) < 0)
        return false; /* it cannot be opened, either */
    *slash = '\0';
    return stat(folder, &place) < 0 || ((file.st_mode | place.st_mode) & S_IWOTH);
}

static void *open_file(struct cupti *c, const char *path, int flags)
{
    void *found = dlopen(path, RTLD_LAZY | RTLD_LOCAL | flags);
    if (found)
        (void)snprintf(c->path, sizeof(c->path), "%s", path);
    return found;
}

static void *open_by_name(struct cupti *c, const char *name, char *ret_open_to_all)
{
    char why[sizeof(c->path)];
    void *found = library_find(name, RTLD_LAZY | RTLD_LOCAL, why, sizeof(why));
    if (found)
        (void)snprintf(c->path, sizeof(c->path), "%s", name);
    else if (why[0])
        (void)snprintf(ret_open_to_all, sizeof(c->path), "%s", name);
    return found;
}

/* DIR/BETWEEN/NAME for each of the names that a libcupti of that major version has.
 * ret_open_to_all: what everybody may write is not taken but told there; NULL: it is no matter. */
static void *open_in(struct cupti *c, const char *dir, int dir_n, const char *between, int major,
                     char *ret_open_to_all)
{
    char path[sizeof(c->path)];
    const char *const ends[] = {major == 11 ? "11.8" : "", major == 11 ? "11.7" : "",
                                major == 12   ? "12"
                                : major == 13 ? "13"
                                              : "",
                                ""};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        if (!*ends[i] && i < sizeof(ends) / sizeof(ends[0]) - 1)
            continue;
        int n = snprintf(path, sizeof(path), "%.*s%s/libcupti.so%s%s", dir_n, dir, between,
                         *ends[i] ? "." : "", ends[i]);
        if (n >= (int)sizeof(path))
            continue;
        if (ret_open_to_all && may_everybody_write(path)) {
            memcpy(ret_open_to_all, path, (size_t)n + 1);
            continue;
        }
        void *found = open_file(c, path, 0);
        if (found)
            return found;
    }
    return NULL;
}

/* Give the major version: 12 of "libcudart.so.12" after "libcudart.so."; 0: none in its name. */
static int major_of(const char *path, const char *stem)
{
    const char *end = strstr(path, stem);
    int major = 0;
    for (end = end ? end + strlen(stem) : ""; *end >= '0' && *end <= '9' && major < 1000; end++)
        major = major * 10 + (*end - '0');
    return major;
}

/* By its own name, as its file may be called libcupti.so; 0: it does not say. */
static int major_of_library(void *library, const char *path)
{
    struct link_map *map = NULL;
    const char *strings = NULL;
    size_t own = 0;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
        return 0;
    for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_STRTAB)
            strings = (const char *)d->d_un.d_ptr;
        if (d->d_tag == DT_SONAME)
            own = d->d_un.d_val;
    }
    int major = strings && own ? major_of(strings + own, "libcupti.so.") : 0;
    return major ? major : major_of(path, "libcupti.so.");
}

/* 12040: it is of CUDA 12.4; 0: it does not say. */
static int driver_version(void)
{
    int (*get)(int *) = NULL, version = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!driver)
        return 0;
    *(void **)&get = dlsym(driver, "cuDriverGetVersion");
    int result = get ? get(&version) : 1;
    (void)dlclose(driver);
    return result == 0 ? version : 0;
}

static void *open_beside(struct cupti *c, const char *runtime, int major)
{
    static const char *const between[] = {
        "",                              /* nvidia/cu13/lib, a toolkit's lib64 */
        "/../../cuda_cupti/lib",         /* nvidia/cuda_runtime/lib of torch's wheels */
        "/../extras/CUPTI/lib64",        /* a toolkit's lib64 */
        "/../../../extras/CUPTI/lib64"}; /* its targets/x86_64-linux/lib */
    const char *slash = strrchr(runtime, '/');
    void *found = NULL;
    if (*runtime != '/')
        return NULL; /* it was loaded from where the program was then, and may not be now */
    for (size_t i = 0; !found && i < sizeof(between) / sizeof(between[0]); i++)
        found = open_in(c, runtime, (int)(slash - runtime), between[i], major, NULL);
    return found;
}

static void *open_under_home(struct cupti *c, int major, char *ret_open_to_all)
{
    static const char *const names[] = {"CUDA_HOME", "CUDA_PATH"};
    static const char *const between[] = {"/extras/CUPTI/lib64", "/lib64", "/lib"};
    void *found = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *home = identity_getenv(names[i]);
        for (size_t j = 0;
             home && *home == '/' && !found && j < sizeof(between) / sizeof(between[0]); j++)
            found = open_in(c, home, (int)strnlen(home, sizeof(c->path)), between[j], major,
                            ret_open_to_all);
    }
    return found;
}

static void *open_library(struct cupti *c, char *ret_open_to_all)
{
    struct mapped m = {.cupti = ""};
    (void)dl_iterate_phdr(look_at_object, &m);
    if (m.cupti[0])
        return open_file(c, m.cupti, RTLD_NOLOAD);
    int major = major_of(m.runtime, "libcudart.so."), driver = driver_version() / 1000;
    void *found = open_beside(c, m.runtime, major);
    if (!found)
        found = open_under_home(c, major, ret_open_to_all);
    static const char *const system_names[] = {"libcupti.so.13", "libcupti.so.12",
                                               "libcupti.so.11.8", "libcupti.so"};
    for (size_t i = 0; !found && i < sizeof(system_names) / sizeof(system_names[0]); i++) {
        int its = i < 2 ? 13 - (int)i : 11;
        if ((major == 0 && (driver == 0 || its <= driver)) || its == major || i == 3)
            found = open_by_name(c, system_names[i], ret_open_to_all);
    }
    return found;
}

/* ---- its functions ---- */

int cupti_find(struct cupti *ret, char *why, size_t size)
{
    *ret = (struct cupti){.version = 0};
    const struct {
        const char *name;
        void *to; /* a pointer to a function */
        bool needed;
    } functions[] = {
        {"cuptiGetVersion", &ret->GetVersion, true},
        {"cuptiGetTimestamp", &ret->GetTimestamp, true},
        {"cuptiGetResultString", &ret->GetResultString, false},
        {"cuptiGetCallbackName", &ret->GetCallbackName, false},
        {"cuptiActivityEnable", &ret->ActivityEnable, true},
        {"cuptiActivityDisable", &ret->ActivityDisable, true},
        {"cuptiActivityRegisterCallbacks", &ret->ActivityRegisterCallbacks, true},
        {"cuptiActivityGetNextRecord", &ret->ActivityGetNextRecord, true},
        {"cuptiActivityGetNumDroppedRecords", &ret->ActivityGetNumDroppedRecords, true},
        {"cuptiActivityFlushAll", &ret->ActivityFlushAll, true},
        {"cuptiActivityEnableAndDump", &ret->ActivityEnableAndDump, false},
        {"cuptiSetThreadIdType", &ret->SetThreadIdType, false},
        {"cuptiGetThreadIdType", &ret->GetThreadIdType, false},
        {"cuptiActivityEnableDriverApi", &ret->ActivityEnableDriverApi, false},
        {"cuptiActivityEnableRuntimeApi", &ret->ActivityEnableRuntimeApi, false},
        {"cuptiUnsubscribe", &ret->Unsubscribe, false},
        {"cuptiSubscribe_v2", &ret->Subscribe_v2, false},
        {"cuptiActivityEnable_v2", &ret->ActivityEnable_v2, false},
        {"cuptiActivityDisable_v2", &ret->ActivityDisable_v2, false},
        {"cuptiActivityEnableAndDump_v2", &ret->ActivityEnableAndDump_v2, false},
        {"cuptiActivityRegisterCallbacks_v2", &ret->ActivityRegisterCallbacks_v2, false},
        {"cuptiActivityGetAttribute_v2", &ret->ActivityGetAttribute_v2, false},
        {"cuptiActivitySetAttribute_v2", &ret->ActivitySetAttribute_v2, false},
        {"cuptiActivityGetEnabledKinds", &ret->ActivityGetEnabledKinds, false},
        {"cuptiGetTimestamp_v2", &ret->GetTimestamp_v2, false},
        {"cuptiActivityGetNextRecord_v2", &ret->ActivityGetNextRecord_v2, false},
        {"cuptiActivityGetNumDroppedRecords_v2", &ret->ActivityGetNumDroppedRecords_v2, false}};
    char open_to_all[sizeof(ret->path)] = "";
    void *library = open_library(ret, open_to_all); /* never closed: CUPTI cannot be unloaded */
    if (!library && open_to_all[0]) {
        (void)snprintf(why, size, "%s is not loaded: everybody may write it or its folder",
                       open_to_all);
        return -ENOENT;
    }
    if (!library) {
        (void)snprintf(why, size,
                       "no libcupti was found: not in the process, beside its CUDA runtime, under "
                       "CUDA_HOME, or by the loader; install the one of its CUDA "
                       "(nvidia-cuda-cupti), or set CUDA_HOME");
        return -ENOENT;
    }
    /* Without a driver that it knows, 13.2 crashes in its first call: an older one is not tried. */
    int major = major_of_library(library, ret->path), driver = driver_version();
    if (driver && major > driver / 1000) {
        (void)snprintf(why, size,
                       "%s is of CUDA %d, and the driver of %d.%d: it needs a newer driver, or "
                       "install the CUPTI of the driver's CUDA (nvidia-cuda-cupti)",
                       ret->path, major, driver / 1000, driver % 1000 / 10);
        return -ENOENT;
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *found = dlsym(library, functions[i].name);
        memcpy(functions[i].to, &found, sizeof(found));
        if (!found && functions[i].needed) {
            (void)snprintf(why, size, "%s has no %s", ret->path, functions[i].name);
            (void)dlclose(library);
            return -ENOENT;
        }
    }
    return 0;
}

const char *cupti_text(const struct cupti *c, int result, char *text, size_t size)
{
    const char *name = NULL;
    bool told =
        c->GetResultString && CUPTI(c, GetResultString, result, &name) == CUPTI_SUCCESS && name;
    if (told)
        (void)snprintf(text, size, "%s (%d)", name, result);
    else
        (void)snprintf(text, size, "error %d", result);
    return text;
}

/* ---- what the process has loaded ---- */

static int count_loads(struct dl_phdr_info *info, size_t size, void *ret_loads)
{
    (void)size;
    *(uint64_t *)ret_loads = info->dlpi_adds;
    return 1;
}

uint64_t library_loads(void)
{
    uint64_t loads = 0;
    (void)dl_iterate_phdr(count_loads, &loads);
    return loads;
}
