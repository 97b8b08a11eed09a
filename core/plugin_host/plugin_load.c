/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_load.c - the file of a plugin: where it is, and that the same bytes are
 * mapped once.
 *
 * Threads: mapping on the control thread; what is known is asked from any.  Code that was mapped
 * stays mapped (RTLD_NODELETE): other threads may still return into it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/rights.h"
#include "core/guest/headroom_table.h"
#include "core/guest/loaded_name.h"
#include "core/plugin_file/declared.h"
#include "core/plugin_file/sealed_copy.h"
#include "core/plugin_host/internal.h"
#include "sdk/lib/hash.h"

#define FILE_MAX_BYTES ((off_t)1 << 30)                /* a plugin larger than this is no plugin */
#define FILE_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK) /* a pipe of that name holds nobody up */
#define KNOWN_MAX 256 /* different plugin files in the life of a process */

/* Plugin files that are mapped, by content: the same bytes again (from another memfd, or by a
 * core that was started afresh) must give the same code, not one copy more. */
static struct code_cache {
    uint64_t hash, size;
    void *handle;
    bool inside;                /* a call into it was given up and has not come back */
    char name[HOST_NAME_BYTES]; /* of the plugin in it, "": not known */
} known_files[KNOWN_MAX];
static uint32_t known_count;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER; /* for the two above */

static uint64_t hash_of(int fd, uint64_t *ret_size)
{
    unsigned char bytes[16384];
    uint64_t hash = HASH_FNV;
    off_t at = 0;
    ssize_t n;

    while ((n = pread(fd, bytes, sizeof(bytes), at)) > 0) {
        hash = hash_bytes(hash, bytes, (size_t)n);
        at += n;
    }
    *ret_size = (uint64_t)at;
    return hash;
}

static bool is_same_file(const char *path, int fd)
{
    struct stat a, b;
    return stat(path, &a) == 0 && fstat(fd, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* A name for an open file that ld.so has never seen: it compares names before it looks at files,
 * and the number of a descriptor comes back.  48 bits of the clock, written as "/" or "./".  By the
 * process's number where it is known here: of "self" a debugger would open a descriptor of its own,
 * and read from a pipe for ever. */
static void unique_name(int fd, char ret[160])
{
    char known[48];
    (void)snprintf(known, sizeof(known), "/proc/%d/fd/%d", (int)getpid(), fd);
    char *at = ret + (is_same_file(known, fd) ? snprintf(ret, 48, "/proc/%d/fd/", (int)getpid())
                                              : snprintf(ret, 48, "/proc/self/fd/"));
    uint64_t now = clock_monotonic();
    for (int bit = 0; bit < 48; bit++) {
        if (now >> bit & 1)
            *at++ = '.';
        *at++ = '/';
    }
    (void)snprintf(at, 16, "%d", fd);
}

static void *find_known(uint64_t hash, uint64_t size)
{
    void *handle = NULL;

    (void)pthread_mutex_lock(&known_lock);
    for (uint32_t i = 0; i < known_count && !handle; i++)
        if (known_files[i].hash == hash && known_files[i].size == size)
            handle = known_files[i].handle;
    (void)pthread_mutex_unlock(&known_lock);
    return handle;
}

static int map_plugin(int fd, const char *path, void **ret_handle)
{
    uint64_t size = 0, hash = hash_of(fd, &size);
    char name[160];

    *ret_handle = find_known(hash, size);
    if (*ret_handle)
        return 0;
    /* By its path when ld.so has no older file under that name; it is nicer to debuggers. */
    void *old = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) : NULL;
    if (old)
        (void)dlclose(old);
    if (!path || old) {
        unique_name(fd, name);
        path = name;
    }
    *ret_handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!*ret_handle) {
        const char *why = dlerror();
        return err_set(-ENOEXEC, "%s", why ? why : "unknown reason");
    }
    loaded_name_forget(dlsym(*ret_handle, PLUGIN_SYMBOL));
    (void)pthread_mutex_lock(&known_lock);
    if (known_count < KNOWN_MAX)
        known_files[known_count++] =
            (struct code_cache){.hash = hash, .size = size, .handle = *ret_handle};
    (void)pthread_mutex_unlock(&known_lock);
    return 0;
}

int image_check_room(const char *name, int file)
{
    struct room_part part = room_undeclared;
    struct declared *d = NULL;
    char called[HOST_NAME_BYTES + 16];

    if (file >= 0)
        (void)declared_of_file(file, &d); /* what is wrong with it is found when it is loaded */
    err_clear();
    declared_takes(d, &part);
    declared_free(d);
    (void)snprintf(called, sizeof(called), "plugin %s", name);
    part.name = called;
    return room_check_ours(&part);
}

/* The loader opens descriptors by their names in /proc. */
static bool has_name(int fd)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    return access(name, R_OK) == 0;
}

int image_map(int fd, const char *name, const char *path, void **ret_handle)
{
    struct elf_facts facts = {0};
    int copied = -1;

    int rc = seal_copy(fd, name, &copied, &facts);
    if (rc == 0 && (!has_name(copied) || (facts.origin && path))) {
        (void)close(copied);
        copied = -1;
    }
    /* As a last resort the file itself: it can change under the process. */
    if (rc == -ENOTSUP)
        rc = sealed_inspect(fd, &facts);
    if (rc < 0)
        return rc;
    if (facts.plugin == 0)
        rc = err_set(-ENOEXEC, "it does not export " PLUGIN_SYMBOL "; is it a probing plugin?");
    else
        rc = copied != -1 ? map_plugin(copied, NULL, ret_handle) : map_plugin(fd, path, ret_handle);
    if (copied != -1)
        (void)close(copied);
    return rc;
}

/* A plugin in the folder of the library that runs here, or in `plugins` there, is as good as that,
 * when it has the same owner and no more others may write to it: whoever could change it has put
 * us here. */
static bool is_beside_us(int fd)
{
    char link[64], file[PATH_MAX], own[PATH_MAX];
    struct stat st, ours;
    Dl_info info;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, file, sizeof(file) - 1);
    file[n > 0 ? n : 0] = '\0';
    if (!dladdr(known_files, &info) || !info.dli_fname || !realpath(info.dli_fname, own) ||
        stat(own, &ours) == -1 || fstat(fd, &st) == -1)
        return false;
    size_t folder = (size_t)(strrchr(own, '/') - own) + 1; /* bytes, with its slash */
    if (strncmp(file, own, folder) != 0)
        return false;
    const char *rest = file + folder;
    rest += strncmp(rest, "plugins/", 8) == 0 ? 8 : 0;
    return !strchr(rest, '/') && st.st_uid == ours.st_uid &&
           (st.st_mode & ~ours.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Nobody gets code into the process by a file who could not get it there otherwise. */
static int check_file(int fd, const char *name)
{
    int rc = is_beside_us(fd) ? 0 : rights_file_check(fd);
    return rc < 0 ? err_set(rc,
                            "plugin '%s' is not loaded by its path: %s; let it be root's or this "
                            "user's alone, or load it by the command: probing -t PID plugin load "
                            "FILE",
                            name, err_text())
                  : 0;
}

/* Open <name>.so or probing_<name>.so in one of the directories of the plugin path. */
static int search_path(struct host *h, const char *name, char ret_path[PLUGIN_PATH_BYTES])
{
    const char *at = h->plugin_path ? h->plugin_path : "";
    while (*at) {
        size_t n = strcspn(at, ":");
        for (int form = 0; form < 2 && n > 0; form++) {
            int length = snprintf(ret_path, PLUGIN_PATH_BYTES, "%.*s/%s%s.so", (int)n, at,
                                  form ? "probing_" : "", name);
            int fd = length < PLUGIN_PATH_BYTES ? open(ret_path, FILE_FLAGS) : -1;
            if (fd != -1)
                return fd;
        }
        at += n + (at[n] == ':');
    }
    return err_set(-ENOENT,
                   "no plugin '%s' is installed beside probing or in the folders of "
                   "PROBING_PLUGIN_PATH (%s); a plugin of your own is loaded by its file: "
                   "plugin load ./%s.so",
                   name, h->plugin_path && h->plugin_path[0] ? h->plugin_path : "it is empty",
                   name);
}

bool image_is_there(struct host *h, const char *name)
{
    char path[PLUGIN_PATH_BYTES];
    int fd = search_path(h, name, path);
    if (fd >= 0)
        (void)close(fd);
    err_clear();
    return fd >= 0;
}

int image_open(struct host *h, const char *name, const char *path, int fd,
               char ret_path[PLUGIN_PATH_BYTES])
{
    struct stat st;
    int file;

    ret_path[0] = '\0';
    if (fd != -1) {
        char link[64];
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, ret_path, PLUGIN_PATH_BYTES - 1);
        ret_path[n > 0 ? n : 0] = '\0';
        file = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    } else if (path) {
        if (strlen(path) >= PLUGIN_PATH_BYTES)
            return err_set(-ENAMETOOLONG,
                           "the path of plugin '%s' is too long: %zu bytes, at most %d", name,
                           strlen(path), PLUGIN_PATH_BYTES - 1);
        (void)snprintf(ret_path, PLUGIN_PATH_BYTES, "%s", path);
        file = open(path, FILE_FLAGS);
    } else {
        file = search_path(h, name, ret_path);
        if (file < 0)
            return file;
    }
    if (file == -1)
        return err_set(-errno, "cannot open plugin '%s' (%s): %s", name, ret_path, strerror(errno));
    if (fstat(file, &st) == -1 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES) {
        (void)close(file);
        return err_set(-EINVAL, "plugin '%s': %s is not a file one could load", name, ret_path);
    }
    int rc = fd == -1 ? check_file(file, name) : 0; /* a client's is his who may ask */
    if (rc < 0)
        (void)close(file);
    return rc < 0 ? rc : file;
}

void image_inside_set(const void *handle, bool inside)
{
    (void)pthread_mutex_lock(&known_lock);
    for (uint32_t i = 0; i < known_count; i++)
        if (known_files[i].handle == handle)
            known_files[i].inside = inside;
    (void)pthread_mutex_unlock(&known_lock);
}

void *image_named(const char *name)
{
    void *handle = NULL;
    (void)pthread_mutex_lock(&known_lock);
    for (uint32_t i = 0; i < known_count; i++)
        if (strcmp(known_files[i].name, name) == 0)
            handle = known_files[i].handle; /* the newest */
    (void)pthread_mutex_unlock(&known_lock);
    return handle;
}

void image_set_name(const void *handle, const char *name)
{
    (void)pthread_mutex_lock(&known_lock);
    for (uint32_t i = 0; i < known_count; i++)
        if (known_files[i].handle == handle)
            (void)snprintf(known_files[i].name, sizeof(known_files[i].name), "%s", name);
    (void)pthread_mutex_unlock(&known_lock);
}

bool image_inside(const void *handle)
{
    bool inside = false;
    (void)pthread_mutex_lock(&known_lock);
    for (uint32_t i = 0; i < known_count; i++)
        inside = inside || (known_files[i].handle == handle && known_files[i].inside);
    (void)pthread_mutex_unlock(&known_lock);
    return inside;
}

/* glibc's handle of a file is its link map, which stays: files are never unmapped. */
const char *host_plugin_at(struct host *h, uint64_t bias)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++) {
        const struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        const struct link_map *map = __atomic_load_n(&p->handle, __ATOMIC_ACQUIRE);
        if (map && map->l_addr == bias)
            return p->name;
    }
    return NULL;
}

/* The files stay known: they are mapped here too. */
void plugins_begin_in_child(void)
{
    known_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
