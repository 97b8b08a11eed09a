/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin.c - plugins from file to running and back, and what each failure is
 * called.
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
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/plugin_file/elf_check.h"
#include "core/plugin_host/internal.h"

static const char *const state_names[] = {
    [PLUGIN_LOADING] = "loading",   [PLUGIN_READY] = "loading",   [PLUGIN_RUNNING] = "running",
    [PLUGIN_STOPPING] = "stopping", [PLUGIN_STOPPED] = "stopped", [PLUGIN_FAILED] = "failed",
};

const char *plugin_state_name(int state)
{
    return state_names[state];
}

void plugin_text_set(struct plugin *p, char **at, const char *text)
{
    char *copy = strdup(text ? text : ""); /* NULL: shown as nothing */
    (void)pthread_mutex_lock(&p->host->plugins_lock);
    char *old = *at;
    *at = copy;
    (void)pthread_mutex_unlock(&p->host->plugins_lock);
    free(old);
}

void plugin_release_others(struct plugin *p)
{
    struct host *h = p->host;
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++)
        atomic_fetch_and_explicit(&h->plugins[i]->users, ~(UINT64_C(1) << p->index),
                                  memory_order_release);
}

int plugin_refuse(struct plugin *p, const char *step, int code, const char *format, ...)
{
    char why[ERR_TEXT_BYTES - 128];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    char line[ERR_TEXT_BYTES];
    (void)snprintf(line, sizeof(line), "%s: %s", step, why);
    plugin_text_set(p, &p->reason, line);
    bool again = atomic_load_explicit(&p->later, memory_order_relaxed);
    bool later = code == -EAGAIN && settings_start_with(p->host, p->name);
    plugin_try_later(p, later); /* before it is seen as failed */
    plugin_state_set(p, PLUGIN_FAILED);
    plugin_api_stop(p);
    plugin_release_others(p);
    host_log(p->host,
             code != -EAGAIN ? PROBING_ERROR
             : again         ? PROBING_DEBUG
                             : PROBING_INFO,
             "plugin %s failed at %s", p->name, line);
    return err_set(code < 0 ? code : -EIO, "plugin '%s' failed at %s", p->name, line);
}

struct plugin *plugin_find(struct host *h, const char *name)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        if (strcmp(p->name, name) == 0)
            return p;
    }
    return NULL;
}

/* A thread that was left may add one, too: plugins_lock. */
static struct plugin *plugin_get(struct host *h, const char *name)
{
    struct plugin *p = plugin_find(h, name);
    if (p)
        return p;
    (void)pthread_mutex_lock(&h->plugins_lock);
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_relaxed);
    p = n < HOST_PLUGINS_MAX ? calloc(1, sizeof(*p)) : NULL;
    if (p) {
        p->host = h;
        p->index = n;
        (void)snprintf(p->name, sizeof(p->name), "%.*s", HOST_NAME_BYTES - 1, name);
        atomic_init(&p->state, PLUGIN_LOADING);
        atomic_store_explicit(&h->plugins[n], p, memory_order_release);
        atomic_store_explicit(&h->n_plugins, n + 1, memory_order_release);
    }
    (void)pthread_mutex_unlock(&h->plugins_lock);
    if (!p)
        (void)err_set(-ENOSPC, "no room for plugin '%s': %u are there", name, n);
    return p;
}

/* ---- what is in it ---- */

const char *plugin_why(int code)
{
    return err_text()[0] ? err_text() : strerror(code < 0 ? -code : EIO);
}

/* 0 or a negative errno; whoever gives another number may mean either, and is not gone on with. */
static int result_of(int rc, const char *step)
{
    return rc <= 0 ? rc
                   : err_set(-EPROTO,
                             "%s() returned %d: it must return 0 for success or a negative errno "
                             "for failure (-EIO, not EIO)",
                             step, rc);
}

static int begin_plugin(struct plugin *p)
{
    char why[ERR_TEXT_BYTES - 128];

    p->self = NULL;
    plugin_api_init(p);
    leak_forget(p);
    leak_begin(p);
    err_clear();
    int rc = result_of(plugin_call_init(p), "init");
    bool in_time = atomic_load_explicit(&p->call, memory_order_acquire) == CALL_INSIDE;
    leak_end(p, in_time);
    if (!in_time) /* whoever gave it up has said so: there is nothing to go on with */
        return rc;
    if (rc < 0) {
        (void)snprintf(why, sizeof(why), "%s", plugin_why(rc));
        return leak_refuse(p, "init", rc, why);
    }
    if (leak_threads(p) > 0) /* plugin.h: no threads yet */
        plugin_text_set(p, &p->reason, "its init has started threads, which belong in start");
    rc = settings_add_plugin(p->host, p);
    if (rc == 0)
        rc = settings_configure(p->host, p);
    if (rc == 0)
        rc = declared_publish(p);
    if (rc < 0) {
        (void)snprintf(why, sizeof(why), "%s", plugin_why(rc));
        plugin_call_destroy(p);
        return leak_refuse(p, "configure", rc, why);
    }
    plugin_state_set(p, PLUGIN_READY);
    return 0;
}

static int open_api(struct plugin *p, void *handle, const char *file_path)
{
    if (image_inside(handle))
        return plugin_refuse(p, "dlopen", -EBUSY,
                             "a call into this file was abandoned by an earlier core in this "
                             "process and has not returned");
    const struct probing_plugin *api = dlsym(handle, PLUGIN_SYMBOL);
    if (!api)
        return plugin_refuse(p, "symbol", -ENOEXEC,
                             "%s does not export " PLUGIN_SYMBOL "; is it a probing plugin?",
                             file_path);
    int rc = given_whole(p, api);
    if (rc < 0)
        return rc;
    p->api = (struct probing_plugin){0};
    memcpy(&p->api, api, api->size < sizeof(p->api) ? api->size : sizeof(p->api));
    image_set_name(handle, p->name);
    plugin_text_set(p, &p->version, p->api.version);
    plugin_text_set(p, &p->doc, p->api.doc);
    return begin_plugin(p);
}

static int is_there_already(const char *name)
{
    return err_set(-EALREADY, "plugin '%s' is loaded already; plugin stop %s first", name, name);
}

/* File to PLUGIN_READY.  If somebody else is between this and launch_plugin() with the same plugin,
 * theirs is used: a second begin_plugin() would meet what the first has registered. */
static int prepare_plugin(struct load *l)
{
    struct host *h = l->host;
    const char *name = l->name, *path = l->path;
    int fd = l->fd;
    char file_path[PLUGIN_PATH_BYTES], why[512];

    if (!text_is_name(name))
        return err_set(-EINVAL, "'%.80s' cannot name a plugin: [a-z][a-z0-9_]*, at most 63", name);
    struct plugin *p = plugin_find(h, name);
    if (plugin_is_inside(p) < 0)
        return -EBUSY;
    if (p && (plugin_state_of(p) == PLUGIN_RUNNING || plugin_state_of(p) == PLUGIN_STOPPING))
        return is_there_already(name);
    if (p && plugin_state_of(p) == PLUGIN_READY)
        return 0;
    void *handle = l->again && p ? p->handle : NULL;
    int file = handle ? -ENOENT : image_open(h, name, path, fd, file_path);
    bool again = p && atomic_load_explicit(&p->later, memory_order_relaxed);
    if (file == -ENOENT && !handle && !path && (h->mapped_files || again))
        handle = image_named(name);
    if (file < 0 && !handle)
        return file;
    p = plugin_get(h, name);
    if (!p) {
        if (!handle)
            (void)close(file);
        return -ENOSPC;
    }
    plugin_state_set(p, PLUGIN_LOADING);
    if (!l->again)
        plugin_text_set(p, &p->path, file_path);
    plugin_text_set(p, &p->reason, "");
    if (!load_goes_in(l, p)) {
        if (!handle)
            (void)close(file);
        return load_unwanted(p, /* made= */ false);
    }
    int full = l->again ? 0 : image_check_room(name, file), rc = full;
    if (rc == 0 && !handle)
        rc = plugin_call_constructors(p, file, fd == -1 ? file_path : NULL, &handle);
    (void)snprintf(why, sizeof(why), "%s", rc < 0 ? err_why(rc) : "");
    if (file >= 0)
        (void)close(file);
    __atomic_store_n(&p->handle, handle, __ATOMIC_RELEASE);
    if (rc == 0)
        rc = open_api(p, handle, file_path);
    else
        rc = plugin_refuse(p, full ? "limits" : "dlopen", full ? -ENOMEM : -ENOEXEC, "%s", why);
    if (!plugin_call_end(p))
        return load_undo(p, /* started= */ false, /* made= */ rc == 0);
    return rc;
}

static int launch_plugin(struct load *l, struct plugin *p)
{
    leak_begin(p);
    err_clear();
    if (!load_goes_in(l, p)) {
        leak_end(p, /* is_control= */ false);
        return load_unwanted(p, /* made= */ true);
    }
    int rc = result_of(plugin_call_start(p), "start");
    bool in_time = plugin_call_end(p);
    leak_end(p, in_time);
    if (!in_time)
        return load_undo(p, /* started= */ rc >= 0, /* made= */ true);
    if (rc < 0) {
        char why[ERR_TEXT_BYTES - 128];
        (void)snprintf(why, sizeof(why), "%s", plugin_why(rc));
        return plugin_destroy(p) ? leak_refuse(p, "start", rc, why) : -ETIMEDOUT;
    }
    plugin_state_set(p, PLUGIN_RUNNING);
    host_log(p->host, PROBING_INFO, "plugin %s %s runs", p->name,
             p->api.version ? p->api.version : "");
    return 0;
}

static void load_drop(void *arg)
{
    struct load *l = arg;
    if (l->fd != -1)
        (void)close(l->fd);
    free(l->path);
    free(l);
}

static int load_now(struct load *l)
{
    if (!l->start)
        return prepare_plugin(l);
    struct plugin *p = plugin_find(l->host, l->name);
    if (p && plugin_state_of(p) == PLUGIN_READY)
        return launch_plugin(l, p);
    return p && plugin_state_of(p) == PLUGIN_RUNNING /* who came between has launched it */
               ? is_there_already(l->name)
               : err_set(-ENOENT, "plugin '%s' was removed before it was started", l->name);
}

static int load_on_control(void *arg)
{
    struct load *l = arg;
    if (!load_enter(l))
        return plugin_is_inside(plugin_find(l->host, l->name)) < 0
                   ? -EBUSY
                   : err_set(-EAGAIN,
                             "plugin '%s' is still being loaded by a thread that took too long; "
                             "try again",
                             l->name);
    int rc = load_now(l);
    load_end(l);
    return rc;
}

int plugin_load_step(struct host *h, const char *name, const char *path, int fd, int how)
{
    bool start = (how & LOAD_START) != 0, again = (how & LOAD_AGAIN) != 0;
    if (!again && workers_leaving(h))
        return err_set(-ESHUTDOWN, "the core is leaving this process");
    struct load *l = calloc(1, sizeof(*l));
    if (!l)
        return err_set(-ENOMEM, "no memory to load plugin '%.64s'", name);
    *l = (struct load){.host = h, .fd = -1, .start = start, .again = again};
    (void)snprintf(l->name, sizeof(l->name), "%s", name);
    l->path = path ? strdup(path) : NULL;
    if (fd != -1)
        l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if ((path && !l->path) || (fd != -1 && l->fd == -1)) {
        load_drop(l);
        return err_set(-ENOMEM, "no memory or descriptor to load plugin '%.64s'", name);
    }
    bool inside;
    int r = control_call(h, load_on_control, l, load_drop, plugin_limit_ns(h), &inside);
    if (!inside)
        return r;
    load_leave(h, name);
    return plugin_give_up(h, name, start ? "start" : "init");
}

int host_plugin_load(struct host *h, const char *name, const char *path, int fd)
{
    if (host_is_off(h))
        return -ESHUTDOWN;
    int rc = plugin_load_step(h, name, path, fd, /* how= */ 0);
    return rc < 0 ? rc : plugin_load_step(h, name, NULL, -1, LOAD_START);
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
        int rc = plugin_load_step(h, ready[n], NULL, -1, /* how= */ 0);
        n += rc == 0 ? 1 : 0;
        if (rc < 0) /* the core may have come by memfd, and its plugins come through the door */
            host_log(h, rc == -ENOENT ? PROBING_INFO : PROBING_WARN, "%s", err_why(rc));
    }
    for (uint32_t i = 0; i < n; i++)
        if (plugin_load_step(h, ready[i], NULL, -1, LOAD_START) == -EALREADY)
            host_log(h, PROBING_INFO, "plugin %s was requested twice and loaded once", ready[i]);
    return 0;
}

uint32_t host_plugins_again(struct host *h)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire), waiting = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        if (!atomic_load_explicit(&p->later, memory_order_relaxed))
            continue;
        int r = plugin_load_step(h, p->name, NULL, -1, /* how= */ 0);
        if (r == 0)
            r = plugin_load_step(h, p->name, NULL, -1, LOAD_START);
        if (r != -ETIMEDOUT) /* else the thread that was left says so, when it comes back */
            atomic_store_explicit(&p->later, r == -EAGAIN, memory_order_relaxed);
        waiting += r == -EAGAIN ? 1 : 0;
    }
    return waiting;
}

void plugins_free(struct host *h)
{
    for (uint32_t i = 0; i < h->n_plugins; i++) {
        struct plugin *p = h->plugins[i];
        plugin_api_free(p);
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
        if (plugin_state_of(p) == PLUGIN_RUNNING)
            (void)buf_addf(ret, "%s%s", found++ ? "," : "", p->name);
    }
    return found;
}

static void plugin_forked(struct plugin *p, int phase)
{
    if (phase == PROBING_FORK_BEFORE) {
        atomic_fetch_add_explicit(&p->forks, 1, memory_order_seq_cst);
        if (plugin_state_of(p) == PLUGIN_RUNNING && p->api.fork)
            plugin_call_fork(p, phase);
        else
            atomic_fetch_sub_explicit(&p->forks, 1, memory_order_seq_cst);
    } else if (atomic_load_explicit(&p->forks, memory_order_seq_cst) != 0) {
        /* Only who was told BEFORE is told the rest; its stop waits until then. */
        plugin_call_fork(p, phase);
        atomic_fetch_sub_explicit(&p->forks, 1, memory_order_seq_cst);
        plugin_left(p);
    }
}

void plugins_fork(struct host *h, int phase)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++)
        plugin_forked(atomic_load_explicit(&h->plugins[i], memory_order_acquire), phase);
}

void plugins_disable_in_child(struct host *h)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_relaxed);
        if (atomic_load_explicit(&p->forks, memory_order_relaxed) != 0)
            plugin_call_fork(p, PROBING_FORK_CHILD);
    }
}
