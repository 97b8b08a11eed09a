/* SPDX-License-Identifier: Apache-2.0
 *
 * core/host/plugin.c - plugins from file to running and back, and what each failure is called.
 *
 * Threads: loading and stopping on the control thread, asked for by workers; fork phases on the
 * thread that forks.  Code that was mapped stays mapped (RTLD_NODELETE): other threads may still
 * return into it.  What a plugin does wrong here never reaches the process: it is FAILED, and why.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/host/inner.h"

#define SYMBOL "probing_plugin_v1"
#define STOP_NS (5 * NS_PER_S)          /* how long a plugin's commands may take to end */
#define FILE_MAX_BYTES ((off_t)1 << 30) /* a plugin larger than this is no plugin */
#define KNOWN_MAX 256                   /* different plugin files in the life of a process */
#define PATH_MAX_BYTES 4096

/* Plugin files that are mapped, by content: the same bytes again (from another memfd, or by a
 * core that was started afresh) must give the same code, not one copy more. */
static struct known {
    uint64_t hash, size;
    void *handle;
    bool inside;                /* a call into it was given up and has not come back */
    char name[HOST_NAME_BYTES]; /* of the plugin in it, "": not known */
} known_files[KNOWN_MAX];
static uint32_t known_count;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER; /* for the two above */

static const char *const state_names[] = {
    [PLUGIN_LOADING] = "loading",   [PLUGIN_READY] = "loading",   [PLUGIN_RUNNING] = "running",
    [PLUGIN_STOPPING] = "stopping", [PLUGIN_STOPPED] = "stopped", [PLUGIN_FAILED] = "failed",
};

const char *plugin_state_name(int state)
{
    return state_names[state];
}

static uint64_t call_limit(struct host *h)
{
    return atomic_load_explicit(&h->call_ns, memory_order_relaxed);
}

static int state_of(const struct plugin *p)
{
    return atomic_load_explicit(&p->state, memory_order_seq_cst);
}

static void state_set(struct plugin *p, int state)
{
    atomic_store_explicit(&p->state, state, memory_order_seq_cst);
}

static void text_set(struct plugin *p, char **at, const char *text)
{
    char *copy = strdup(text ? text : ""); /* NULL: shown as nothing */
    (void)pthread_mutex_lock(&p->host->plugins_lock);
    char *old = *at;
    *at = copy;
    (void)pthread_mutex_unlock(&p->host->plugins_lock);
    free(old);
}

/* It uses no other plugin's extension any more: those may stop. */
static void release_others(struct plugin *p)
{
    struct host *h = p->host;
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++)
        atomic_fetch_and_explicit(&h->plugins[i]->users, ~(UINT64_C(1) << p->index),
                                  memory_order_release);
}

/* One clear line: which plugin, which step, why.  Kept in the table and given to the caller. */
__attribute__((format(printf, 4, 5))) static int refuse(struct plugin *p, const char *step,
                                                        int code, const char *format, ...)
{
    char why[ERR_TEXT_BYTES - 128];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    char line[ERR_TEXT_BYTES];
    (void)snprintf(line, sizeof(line), "%s: %s", step, why);
    text_set(p, &p->reason, line);
    state_set(p, PLUGIN_FAILED);
    face_stop(p);
    release_others(p);
    bool again = atomic_load_explicit(&p->later, memory_order_relaxed);
    host_log(p->host,
             code != -EAGAIN ? PROBING_ERROR
             : again         ? PROBING_DEBUG
                             : PROBING_INFO,
             "plugin %s failed at %s", p->name, line);
    return err_set(code < 0 ? code : -EIO, "plugin '%s' failed at %s", p->name, line);
}

static struct plugin *plugin_find(struct host *h, const char *name)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        if (strcmp(p->name, name) == 0)
            return p;
    }
    return NULL;
}

/* Control thread only, so that nobody else adds meanwhile. */
static struct plugin *plugin_get(struct host *h, const char *name)
{
    struct plugin *p = plugin_find(h, name);
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_relaxed);
    if (p)
        return p;
    p = n < HOST_PLUGINS_MAX ? calloc(1, sizeof(*p)) : NULL;
    if (!p) {
        (void)err_set(-ENOSPC, "no room for plugin '%s': %u are there", name, n);
        return NULL;
    }
    p->host = h;
    p->index = n;
    (void)snprintf(p->name, sizeof(p->name), "%s", name);
    atomic_init(&p->state, PLUGIN_LOADING);
    atomic_store_explicit(&h->plugins[n], p, memory_order_release);
    atomic_store_explicit(&h->n_plugins, n + 1, memory_order_release);
    return p;
}

/* ---- the file ---- */

static int hash_file(int fd, uint64_t *ret_hash, uint64_t *ret_size)
{
    unsigned char bytes[16384];
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, 64 bit */
    off_t at = 0;
    ssize_t n;

    while ((n = pread(fd, bytes, sizeof(bytes), at)) > 0 && at < FILE_MAX_BYTES) {
        for (ssize_t i = 0; i < n; i++)
            hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
        at += n;
    }
    if (n < 0)
        return err_set(-errno, "cannot read the plugin's file: %s", strerror(errno));
    *ret_hash = hash;
    *ret_size = (uint64_t)at;
    return 0;
}

/* A name for an open file that ld.so has never seen: it compares names before it looks at files,
 * and the number of a descriptor comes back.  48 bits of the clock, written as "/" or "./". */
static void unique_name(int fd, char ret[160])
{
    char *at = ret + snprintf(ret, 32, "/proc/self/fd/");
    uint64_t now = clock_monotonic();
    for (int bit = 0; bit < 48; bit++) {
        if (now >> bit & 1)
            *at++ = '.';
        *at++ = '/';
    }
    (void)snprintf(at, 16, "%d", fd);
}

/* Map the file, or find that it is mapped.  `path`: how to name it when it is new; NULL: by fd. */
static void *map_file(int fd, const char *path, char *ret_why, size_t why_size)
{
    uint64_t hash = 0, size = 0;
    char name[160];
    void *handle = NULL;

    if (hash_file(fd, &hash, &size) < 0) {
        (void)snprintf(ret_why, why_size, "%s", err_text());
        return NULL;
    }
    (void)pthread_mutex_lock(&known_lock);
    for (uint32_t i = 0; i < known_count && !handle; i++)
        if (known_files[i].hash == hash && known_files[i].size == size)
            handle = known_files[i].handle;
    bool seen = handle != NULL;
    (void)pthread_mutex_unlock(&known_lock);
    if (seen)
        return handle;
    /* By its path when ld.so has no older file under that name; it is nicer to debuggers. */
    void *old = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) : NULL;
    if (old)
        (void)dlclose(old);
    if (!path || old) {
        unique_name(fd, name);
        path = name;
    }
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        const char *why = dlerror();
        (void)snprintf(ret_why, why_size, "%s", why ? why : "unknown reason");
        return NULL;
    }
    (void)pthread_mutex_lock(&known_lock);
    if (known_count < KNOWN_MAX)
        known_files[known_count++] = (struct known){.hash = hash, .size = size, .handle = handle};
    (void)pthread_mutex_unlock(&known_lock);
    return handle;
}

/* Open <name>.so or probing_<name>.so in one of the directories of the plugin path. */
static int search(struct host *h, const char *name, char ret_path[PATH_MAX_BYTES])
{
    const char *at = h->plugin_path ? h->plugin_path : "";
    while (*at) {
        size_t n = strcspn(at, ":");
        for (int form = 0; form < 2 && n > 0; form++) {
            int length = snprintf(ret_path, PATH_MAX_BYTES, "%.*s/%s%s.so", (int)n, at,
                                  form ? "probing_" : "", name);
            int fd = length < PATH_MAX_BYTES ? open(ret_path, O_RDONLY | O_CLOEXEC) : -1;
            if (fd != -1)
                return fd;
        }
        at += n + (at[n] == ':');
    }
    return err_set(-ENOENT,
                   "plugin '%s' is not in the plugin path (%s); name its file, or set "
                   "PROBING_PLUGIN_PATH",
                   name, h->plugin_path && h->plugin_path[0] ? h->plugin_path : "which is empty");
}

static int open_file(struct host *h, const char *name, const char *path, int fd,
                     char ret_path[PATH_MAX_BYTES])
{
    struct stat st;
    int file;

    ret_path[0] = '\0';
    if (fd != -1) {
        char link[64];
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, ret_path, PATH_MAX_BYTES - 1);
        ret_path[n > 0 ? n : 0] = '\0';
        file = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    } else if (path) {
        if (strlen(path) >= PATH_MAX_BYTES)
            return err_set(-ENAMETOOLONG, "the path of plugin '%s' is too long", name);
        (void)snprintf(ret_path, PATH_MAX_BYTES, "%s", path);
        file = open(path, O_RDONLY | O_CLOEXEC);
    } else {
        file = search(h, name, ret_path);
        if (file < 0)
            return file;
    }
    if (file == -1)
        return err_set(-errno, "cannot open plugin '%s' (%s): %s", name, ret_path, strerror(errno));
    if (fstat(file, &st) == -1 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES) {
        (void)close(file);
        return err_set(-EINVAL, "plugin '%s': %s is not a file one could load", name, ret_path);
    }
    return file;
}

/* ---- calls that do not come back ---- */

static void inside_set(const void *handle, bool inside)
{
    (void)pthread_mutex_lock(&known_lock);
    for (uint32_t i = 0; i < known_count; i++)
        if (known_files[i].handle == handle)
            known_files[i].inside = inside;
    (void)pthread_mutex_unlock(&known_lock);
}

/* Whose file is mapped already, though there is none to open: it came through the door of an
 * earlier life, or of the parent of this process. */
static void *known_named(const char *name)
{
    void *handle = NULL;
    (void)pthread_mutex_lock(&known_lock);
    for (uint32_t i = 0; i < known_count; i++)
        if (strcmp(known_files[i].name, name) == 0)
            handle = known_files[i].handle; /* the newest */
    (void)pthread_mutex_unlock(&known_lock);
    return handle;
}

static void known_set_name(const void *handle, const char *name)
{
    (void)pthread_mutex_lock(&known_lock);
    for (uint32_t i = 0; i < known_count; i++)
        if (known_files[i].handle == handle)
            (void)snprintf(known_files[i].name, sizeof(known_files[i].name), "%s", name);
    (void)pthread_mutex_unlock(&known_lock);
}

static bool inside_get(const void *handle)
{
    bool inside = false;
    (void)pthread_mutex_lock(&known_lock);
    for (uint32_t i = 0; i < known_count; i++)
        inside = inside || (known_files[i].handle == handle && known_files[i].inside);
    (void)pthread_mutex_unlock(&known_lock);
    return inside;
}

static void call_begin(struct plugin *p)
{
    atomic_store_explicit(&p->call, CALL_INSIDE, memory_order_release);
}

/* false: it was given up meanwhile, nobody waits for its result, and this is not the control
 * thread any more. */
static bool call_end(struct plugin *p)
{
    int inside = CALL_INSIDE;
    return atomic_compare_exchange_strong_explicit(&p->call, &inside, CALL_NONE,
                                                   memory_order_acq_rel, memory_order_acquire);
}

/* It came back after all: what it has made is undone.  The host may have gone, but not its memory
 * (host_free() leaves it to us); tables went with it. */
static int came_back(struct plugin *p, bool started, bool made)
{
    if (started && p->api.stop)
        (void)p->api.stop(p->self);
    if (!host_is_off(p->host))
        face_stop(p);
    if (made)
        p->api.destroy(p->self);
    p->self = NULL;
    inside_set(p->handle, false);
    atomic_store_explicit(&p->call, CALL_NONE, memory_order_release);
    return -ETIMEDOUT;
}

/* The caller has waited long enough: say so, and leave the thread to the plugin. */
static int give_up(struct host *h, const char *name, const char *step)
{
    struct plugin *p = plugin_find(h, name);
    int inside = CALL_INSIDE;

    if (!p || !atomic_compare_exchange_strong_explicit(&p->call, &inside, CALL_GIVEN_UP,
                                                       memory_order_acq_rel, memory_order_acquire))
        return err_set(-EAGAIN, "plugin '%s' took long to %s; look at plugin list", name, step);
    inside_set(p->handle, true);
    return refuse(p, step, -ETIMEDOUT,
                  "it has not come back after %.3g s; its thread is left to it, nothing else waits",
                  (double)call_limit(h) / (double)NS_PER_S);
}

/* ---- handlers that do not come back ---- */

void plugin_handler_begin(struct plugin *p)
{
    call_begin(p);
    atomic_store_explicit(&p->handling_since, clock_now(), memory_order_release);
}

void plugin_handler_end(struct plugin *p)
{
    atomic_store_explicit(&p->handling_since, 0, memory_order_relaxed);
    (void)call_end(p); /* given up: its thread finds that out by itself */
}

void plugins_thread_back(struct host *h, pid_t tid)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        if (atomic_load_explicit(&p->left_tid, memory_order_relaxed) != tid)
            continue;
        atomic_store_explicit(&p->left_tid, 0, memory_order_relaxed);
        /* Somebody else in it as well: then it stays as it is. */
        if (atomic_load_explicit(&p->running, memory_order_seq_cst) == 0)
            (void)came_back(p, /* started= */ true, /* made= */ true);
        return;
    }
}

void plugin_came_back(struct plugin *p)
{
    if (atomic_load_explicit(&p->running, memory_order_seq_cst) == 0)
        (void)came_back(p, /* started= */ true, /* made= */ true);
}

/* It is to stop, and its every() does not come back. */
static int give_up_tick(struct plugin *p)
{
    struct host *h = p->host;
    int none = CALL_NONE;

    if (!atomic_compare_exchange_strong_explicit(&p->call, &none, CALL_GIVEN_UP,
                                                 memory_order_acq_rel, memory_order_acquire))
        return -EBUSY;
    if (timers_leave(h, p) == 0) { /* it has come back in this moment */
        atomic_store_explicit(&p->call, CALL_NONE, memory_order_release);
        return -EBUSY;
    }
    inside_set(p->handle, true);
    text_set(p, &p->reason, "every: it has not come back; its thread is left to it");
    release_others(p);
    state_set(p, PLUGIN_FAILED);
    host_log(h, PROBING_ERROR, "plugin %s failed at every: it has not come back", p->name);
    return err_set(-ETIMEDOUT, "plugin '%s' failed at every: it has not come back", p->name);
}

/* On the watching thread. */
static void give_up_handler(struct plugin *p)
{
    struct host *h = p->host;
    int inside = CALL_INSIDE;
    char why[128];

    if (!atomic_compare_exchange_strong_explicit(&p->call, &inside, CALL_GIVEN_UP,
                                                 memory_order_acq_rel, memory_order_acquire))
        return;
    (void)snprintf(why, sizeof(why),
                   "event: its handler has not come back after %.3g s; its thread is left to it",
                   (double)call_limit(h) / (double)NS_PER_S);
    inside_set(p->handle, true);
    text_set(p, &p->reason, why);
    state_set(p, PLUGIN_FAILED); /* from here on nobody enters it */
    release_others(p);
    pid_t tid = atomic_load_explicit(&h->control.tid, memory_order_acquire);
    atomic_store_explicit(&p->left_tid, tid, memory_order_relaxed);
    if (control_leave_handler(h) < 0)
        host_log(h, PROBING_ERROR, "no thread to go on with while plugin %s hangs", p->name);
    host_log(h, PROBING_ERROR, "plugin %s failed at %s", p->name, why);
}

void plugin_late(struct plugin *p, const char *what, uint64_t ns)
{
    char why[128] = "";
    if (what)
        (void)snprintf(why, sizeof(why), "late: its %s has not come back after %.3g s", what,
                       (double)ns / (double)NS_PER_S);
    text_set(p, &p->reason, why);
    if (what)
        host_log(p->host, PROBING_WARN, "plugin %s is %s", p->name, why);
    else
        host_log(p->host, PROBING_INFO, "plugin %s has come back", p->name);
}

void host_watch(struct host *h)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    uint64_t now = clock_now();
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        uint64_t since = atomic_load_explicit(&p->handling_since, memory_order_acquire);
        /* STOPPING: somebody waits for it to be empty, and would for ever. */
        if (since != 0 && now > since && now - since > call_limit(h))
            give_up_handler(p);
    }
    timers_watch(h, now);
}

/* ---- what is in it ---- */

static int check_api(struct plugin *p, const struct probing_plugin *api)
{
    if (api->size < sizeof(struct probing_plugin) || api->size > 65536)
        return refuse(p, "size", -ENOEXEC,
                      "its struct says %u bytes, version 1.0 has %zu; set .size = "
                      "sizeof(struct probing_plugin) and build it again",
                      api->size, sizeof(struct probing_plugin));
    if (api->abi >> 16 != PROBING_ABI_MAJOR)
        return refuse(p, "abi", -ENOEXEC,
                      "it was built for ABI %u.%u, this core speaks %u; use a plugin "
                      "of this version",
                      api->abi >> 16, api->abi & 0xffff, PROBING_ABI_MAJOR);
    if (api->min_minor > PROBING_ABI_MINOR)
        return refuse(p, "min_minor", -ENOEXEC,
                      "it needs ABI %u.%u, this core has %u.%u; use a newer "
                      "probing",
                      PROBING_ABI_MAJOR, api->min_minor, PROBING_ABI_MAJOR, PROBING_ABI_MINOR);
    if (!api->name || !text_is_name(api->name))
        return refuse(p, "name", -EINVAL, "its name '%.80s' is not of the form [a-z][a-z0-9_]*",
                      api->name ? api->name : "(null)");
    if (strcmp(api->name, p->name) != 0)
        return refuse(p, "name", -EINVAL, "the file is plugin '%s'; load it by that name",
                      api->name);
    if (!api->init || !api->destroy)
        return refuse(p, "functions", -EINVAL, "init and destroy may not be NULL");
    if (api->config && settings_check(p->name, api->config, api->config_size) < 0)
        return refuse(p, "settings", -EINVAL, "%s", err_text());
    return 0;
}

static const char *why_of(int code)
{
    return err_text()[0] ? err_text() : strerror(code < 0 ? -code : EIO);
}

static int begin(struct plugin *p)
{
    p->self = NULL;
    face_init(p);
    err_clear();
    int r = p->api.init(&p->face, &p->self);
    if (r < 0)
        return refuse(p, "init", r, "%s", why_of(r));
    r = settings_add_plugin(p->host, p);
    if (r == 0)
        r = settings_configure(p->host, p);
    if (r < 0) {
        char why[ERR_TEXT_BYTES - 128];
        (void)snprintf(why, sizeof(why), "%s", why_of(r));
        p->api.destroy(p->self);
        return refuse(p, "configure", r, "%s", why);
    }
    state_set(p, PLUGIN_READY);
    return 0;
}

static int open_api(struct plugin *p, void *handle, const char *file_path)
{
    if (inside_get(handle))
        return refuse(p, "dlopen", -EBUSY,
                      "a call into this file was given up in an earlier life "
                      "of the core and has not come back");
    const struct probing_plugin *api = dlsym(handle, SYMBOL);
    if (!api)
        return refuse(p, "symbol", -ENOEXEC,
                      "%s does not export " SYMBOL "; is it a probing plugin?", file_path);
    int r = check_api(p, api);
    if (r < 0)
        return r;
    p->api = (struct probing_plugin){0};
    memcpy(&p->api, api, api->size < sizeof(p->api) ? api->size : sizeof(p->api));
    known_set_name(handle, p->name);
    text_set(p, &p->version, p->api.version);
    text_set(p, &p->doc, p->api.doc);
    return begin(p);
}

/* File to PLUGIN_READY. */
static int prepare(struct host *h, const char *name, const char *path, int fd, struct plugin **ret)
{
    char file_path[PATH_MAX_BYTES], why[512];

    if (!text_is_name(name))
        return err_set(-EINVAL, "'%.80s' is no plugin's name: [a-z][a-z0-9_]*, at most 63", name);
    struct plugin *p = plugin_find(h, name);
    if (p && atomic_load_explicit(&p->call, memory_order_acquire) == CALL_GIVEN_UP)
        return err_set(-EBUSY,
                       "plugin '%s' is still inside a call that was given up; it can be "
                       "loaded when that has come back",
                       name);
    if (p && (state_of(p) == PLUGIN_RUNNING || state_of(p) == PLUGIN_STOPPING))
        return err_set(-EALREADY, "plugin '%s' is loaded already; plugin stop %s first", name,
                       name);
    int file = open_file(h, name, path, fd, file_path);
    void *handle = file == -ENOENT && !path && h->mapped_files ? known_named(name) : NULL;
    if (file < 0 && !handle)
        return file;
    p = plugin_get(h, name);
    if (!p) {
        if (!handle)
            (void)close(file);
        return -ENOSPC;
    }
    state_set(p, PLUGIN_LOADING);
    text_set(p, &p->path, file_path);
    text_set(p, &p->reason, "");
    call_begin(p);
    if (!handle) {
        handle = map_file(file, fd == -1 ? file_path : NULL, why, sizeof(why));
        (void)close(file);
    }
    p->handle = handle;
    int r = handle ? open_api(p, handle, file_path) : refuse(p, "dlopen", -ENOEXEC, "%s", why);
    if (!call_end(p))
        return came_back(p, /* started= */ false, /* made= */ r == 0);
    if (r == 0)
        *ret = p;
    return r;
}

static int launch(struct plugin *p)
{
    err_clear();
    call_begin(p);
    int r = p->api.start ? p->api.start(p->self) : 0;
    if (!call_end(p))
        return came_back(p, /* started= */ r >= 0, /* made= */ true);
    if (r < 0) {
        char why[ERR_TEXT_BYTES - 128];
        (void)snprintf(why, sizeof(why), "%s", why_of(r));
        p->api.destroy(p->self);
        return refuse(p, "start", r, "%s", why);
    }
    state_set(p, PLUGIN_RUNNING);
    host_log(p->host, PROBING_INFO, "plugin %s %s runs", p->name,
             p->api.version ? p->api.version : "");
    return 0;
}

/* A call on the control thread owns what it needs: its caller may give up before it ends. */
struct load {
    struct host *host;
    char name[HOST_NAME_BYTES * 2];
    char *path;
    int fd;
    bool start; /* prepare() has been done: launch() */
};

static void load_drop(void *arg)
{
    struct load *l = arg;
    if (l->fd != -1)
        (void)close(l->fd);
    free(l->path);
    free(l);
}

static int load_on_control(void *arg)
{
    struct load *l = arg;
    struct plugin *p = NULL;
    if (!l->start)
        return prepare(l->host, l->name, l->path, l->fd, &p);
    p = plugin_find(l->host, l->name);
    return p && state_of(p) == PLUGIN_READY ? launch(p) : -ENOENT;
}

static int load_step(struct host *h, const char *name, const char *path, int fd, bool start)
{
    if (workers_leaving(h))
        return err_set(-ESHUTDOWN, "the core is leaving this process");
    struct load *l = calloc(1, sizeof(*l));
    if (!l)
        return err_set(-ENOMEM, "no memory to load plugin '%.64s'", name);
    *l = (struct load){.host = h, .fd = -1, .start = start};
    (void)snprintf(l->name, sizeof(l->name), "%s", name);
    l->path = path ? strdup(path) : NULL;
    if (fd != -1)
        l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if ((path && !l->path) || (fd != -1 && l->fd == -1)) {
        load_drop(l);
        return err_set(-ENOMEM, "no memory or descriptor to load plugin '%.64s'", name);
    }
    bool inside;
    int r = control_call(h, load_on_control, l, load_drop, call_limit(h), &inside);
    return inside ? give_up(h, name, start ? "start" : "init") : r;
}

int host_plugin_load(struct host *h, const char *name, const char *path, int fd)
{
    if (host_is_off(h))
        return -ESHUTDOWN;
    int r = load_step(h, name, path, fd, /* start= */ false);
    return r < 0 ? r : load_step(h, name, NULL, -1, /* start= */ true);
}

int host_plugin_load_all(struct host *h, const char *names)
{
    char ready[HOST_PLUGINS_MAX][HOST_NAME_BYTES];
    uint32_t n = 0;

    for (const char *at = names; *at && n < HOST_PLUGINS_MAX; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ", ");
        (void)snprintf(ready[n], sizeof(ready[n]), "%.*s", (int)length, at);
        at += length;
        if (!ready[n][0])
            continue;
        int r = load_step(h, ready[n], NULL, -1, /* start= */ false);
        n += r == 0 ? 1 : 0;
        if (r < 0) /* the core may have come by memfd, and its plugins come through the door */
            host_log(h, r == -ENOENT ? PROBING_INFO : PROBING_WARN, "%s", err_why(r));
    }
    for (uint32_t i = 0; i < n; i++) {
        int r = load_step(h, ready[i], NULL, -1, /* start= */ true);
        atomic_store_explicit(&plugin_find(h, ready[i])->later, r == -EAGAIN, memory_order_relaxed);
    }
    return 0;
}

uint32_t host_plugins_again(struct host *h)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire), waiting = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        if (!atomic_load_explicit(&p->later, memory_order_relaxed))
            continue;
        int r = load_step(h, p->name, NULL, -1, /* start= */ false);
        if (r == 0)
            r = load_step(h, p->name, NULL, -1, /* start= */ true);
        atomic_store_explicit(&p->later, r == -EAGAIN, memory_order_relaxed);
        waiting += r == -EAGAIN ? 1 : 0;
    }
    return waiting;
}

/* ---- stopping ---- */

static int close_on_control(void *arg)
{
    struct plugin *p = arg;
    struct host *h = p->host;
    uint64_t users = atomic_load_explicit(&p->users, memory_order_acquire);

    if (state_of(p) != PLUGIN_RUNNING)
        return err_set(-ENOENT, "plugin '%s' does not run (%s)", p->name, state_names[state_of(p)]);
    for (uint32_t i = 0; i < HOST_PLUGINS_MAX; i++) {
        if (!(users >> i & 1))
            continue;
        struct plugin *user = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        return err_set(-EBUSY, "plugin '%s' is used by plugin '%s': plugin stop %s first", p->name,
                       user->name, user->name);
    }
    state_set(p, PLUGIN_STOPPING);
    return 0;
}

/* Everybody out of its code.  On the caller's thread: the control thread must go on answering, or
 * a command of the plugin that waits for it could not end. */
static int wait_empty(struct plugin *p)
{
    struct host *h = p->host;
    struct timespec limit;
    int r = 0;

    workers_cancel(h, p);
    (void)clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_sec += timers_late(h, p) ? 1 : (time_t)(STOP_NS / NS_PER_S);
    (void)pthread_mutex_lock(&h->plugins_lock);
    while (r == 0 && (atomic_load_explicit(&p->running, memory_order_seq_cst) ||
                      atomic_load_explicit(&p->forks, memory_order_seq_cst)))
        r = pthread_cond_timedwait(&h->plugins_changed, &h->plugins_lock, &limit);
    bool empty = !atomic_load_explicit(&p->running, memory_order_seq_cst) &&
                 !atomic_load_explicit(&p->forks, memory_order_seq_cst);
    (void)pthread_mutex_unlock(&h->plugins_lock);
    return !empty
               ? err_set(-EBUSY,
                         "plugin '%s' still runs a command or a query; try again when it has ended",
                         p->name)
               : 0;
}

static int stop_on_control(void *arg)
{
    struct plugin *p = arg;
    struct host *h = p->host;

    err_clear();
    call_begin(p);
    int r = p->api.stop ? p->api.stop(p->self) : 0;
    if (!call_end(p))
        return came_back(p, /* started= */ false, /* made= */ r >= 0);
    if (r < 0) {
        char why[ERR_TEXT_BYTES - 128];
        (void)snprintf(why, sizeof(why), "%s", why_of(r));
        text_set(p, &p->reason, why);
        state_set(p, PLUGIN_RUNNING);
        return err_set(r, "plugin '%s' could not stop and goes on: %s", p->name, why);
    }
    face_stop(p);
    p->api.destroy(p->self);
    p->self = NULL;
    release_others(p);
    text_set(p, &p->reason, "");
    state_set(p, PLUGIN_STOPPED);
    host_log(h, PROBING_INFO, "plugin %s has stopped", p->name);
    return 0;
}

/* Plugins live as long as the host. */
static void keep(void *arg)
{
    (void)arg;
}

int host_plugin_stop(struct host *h, const char *name)
{
    const char *names[HOST_PLUGINS_MAX];
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);

    if (host_is_off(h))
        return -ESHUTDOWN;
    struct plugin *p = plugin_find(h, name);
    if (!p) {
        for (uint32_t i = 0; i < n; i++)
            names[i] = h->plugins[i]->name;
        const char *near = text_nearest(name, names, n);
        return err_set(-ENOENT, "no plugin '%.80s' is loaded%s%s%s", name,
                       near ? "; did you mean '" : "", near ? near : "",
                       near ? "'?" : "; plugin list shows those that are");
    }
    int r = host_on_control(h, close_on_control, p);
    if (r < 0)
        return r;
    r = wait_empty(p);
    if (r < 0 && timers_late(h, p) && give_up_tick(p) == -ETIMEDOUT)
        return -ETIMEDOUT;
    if (r < 0) {
        state_set(p, PLUGIN_RUNNING);
        return r;
    }
    bool inside;
    r = control_call(h, stop_on_control, p, keep, call_limit(h), &inside);
    return inside ? give_up(h, name, "stop") : r;
}

int host_plugins_stop(struct host *h)
{
    int r = 0;
    char why[ERR_TEXT_BYTES] = "";

    for (uint32_t i = atomic_load_explicit(&h->n_plugins, memory_order_acquire); i > 0; i--) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i - 1], memory_order_acquire);
        if (state_of(p) != PLUGIN_RUNNING)
            continue;
        int e = host_plugin_stop(h, p->name);
        if (e < 0 &&
            state_of(p) ==
                PLUGIN_FAILED) /* nothing more can be done about it, and nothing waits for it */
            continue;
        if (e < 0 && r == 0) {
            r = e;
            (void)snprintf(why, sizeof(why), "%s", err_why(e));
        }
    }
    return r < 0 ? err_set(r, "%s", why) : 0;
}

uint32_t host_plugins_inside(struct host *h, struct buf *ret)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire), found = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        if (atomic_load_explicit(&p->call, memory_order_acquire) == CALL_GIVEN_UP)
            (void)buf_addf(ret, "%s%s", found++ ? ", " : "", p->name);
    }
    return found;
}

void plugins_free(struct host *h)
{
    for (uint32_t i = 0; i < h->n_plugins; i++) {
        struct plugin *p = h->plugins[i];
        face_free(p);
        free(p->version);
        free(p->doc);
        free(p->path);
        free(p->reason);
        free(p);
    }
}

/* ---- fork ---- */

uint32_t host_plugins_of_parent(struct host *h, struct buf *ret)
{
    uint32_t n = h ? atomic_load_explicit(&h->n_plugins, memory_order_acquire) : 0, found = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        if (state_of(p) == PLUGIN_RUNNING)
            (void)buf_addf(ret, "%s%s", found++ ? "," : "", p->name);
    }
    return found;
}

/* The files stay known: they are mapped here too. */
void plugins_begin_in_child(void)
{
    known_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void forked(struct plugin *p, int phase)
{
    if (phase == PROBING_FORK_BEFORE) {
        atomic_fetch_add_explicit(&p->forks, 1, memory_order_seq_cst);
        if (state_of(p) == PLUGIN_RUNNING && p->api.fork)
            p->api.fork(p->self, phase);
        else
            atomic_fetch_sub_explicit(&p->forks, 1, memory_order_seq_cst);
    } else if (atomic_load_explicit(&p->forks, memory_order_seq_cst) != 0) {
        /* Only who was told BEFORE is told the rest; its stop waits until then. */
        p->api.fork(p->self, phase);
        atomic_fetch_sub_explicit(&p->forks, 1, memory_order_seq_cst);
        plugin_left(p);
    }
}

void plugins_fork(struct host *h, int phase)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++)
        forked(atomic_load_explicit(&h->plugins[i], memory_order_acquire), phase);
}

void plugins_disable_in_child(struct host *h)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_relaxed);
        if (atomic_load_explicit(&p->forks, memory_order_relaxed) != 0)
            p->api.fork(p->self, PROBING_FORK_CHILD);
    }
}
