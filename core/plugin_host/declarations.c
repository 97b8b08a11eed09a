/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/declarations.c - what plugins declare: of those that are loaded, and of those
 * that are only installed.
 *
 * Threads: taking, on the control thread; what is installed is looked at by whoever asks for a name
 * that nobody knows, one at a time.  What was taken stays as long as the host: who reads it needs
 * no lock, and the same file gives the same once more.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/plugin_file/declared.h"
#include "core/plugin_host/internal.h"

/* A file as it was when it was looked into: there is no need to do so again. */
struct seen_file {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

/* ---- loaded ---- */

static size_t read_mapped(void *arg, uint64_t address, void *ret, size_t n, bool pointers)
{
    (void)arg;
    (void)pointers; /* the loader has written them */
    return given_copy((const void *)(uintptr_t)address, ret, n);
}

/* The same as was taken before, or it from now on. */
static const struct declared *keep_declaration(struct host *h, struct declared *d)
{
    (void)pthread_mutex_lock(&h->installed.mutex);
    struct declared *old = h->installed.taken;
    while (old && !declared_same(old, d))
        old = old->next;
    if (!old) {
        d->next = h->installed.taken;
        h->installed.taken = d;
    }
    (void)pthread_mutex_unlock(&h->installed.mutex);
    if (old)
        declared_free(d);
    return old ? old : d;
}

int declared_take(struct plugin *p, const struct probing_plugin *api)
{
    const struct declared_source from = {.read = read_mapped};
    struct host *h = p->host;
    struct declared *d = NULL;

    atomic_store_explicit(&p->declared, NULL, memory_order_release);
    if (api->size < sizeof(*api) || !api->declares)
        return 0;
    int rc = declared_read(&from, (uint64_t)(uintptr_t)api->declares, p->name, &d);
    if (rc == 0)
        rc = aliases_check(p, d, api);
    if (rc == 0 && h->declares.check)
        rc = h->declares.check(h->declares.arg, d);
    if (rc < 0) {
        declared_free(d);
        return rc;
    }
    atomic_store_explicit(&p->declared, keep_declaration(h, d), memory_order_release);
    return 0;
}

int declared_publish(struct plugin *p)
{
    struct host *h = p->host;
    const struct declared *d = atomic_load_explicit(&p->declared, memory_order_relaxed);
    return d && h->declares.take ? h->declares.take(h->declares.arg, d, /* loaded= */ true) : 0;
}

int host_declared_each(struct host *h, bool stopped, int (*fn)(void *arg, const struct declared *d),
                       void *arg)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    int rc = 0;
    for (uint32_t i = 0; i < n && rc >= 0; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        const struct declared *d = atomic_load_explicit(&p->declared, memory_order_acquire);
        if (d && (stopped || plugin_state_of(p) == PLUGIN_RUNNING))
            rc = fn(arg, d);
    }
    return rc < 0 ? rc : 0;
}

/* ---- installed ---- */

/* lock: installed.mutex */
static bool is_new(void *arg, const char *file, int fd)
{
    struct host *h = arg;
    struct installed *in = &h->installed;
    struct stat st;
    uint32_t i = 0;

    (void)file;
    if (!in->seen)
        in->seen = calloc(HOST_FILES_MAX, sizeof(*in->seen));
    if (!in->seen || fstat(fd, &st) == -1)
        return false;
    while (i < in->n_seen && (in->seen[i].device != st.st_dev || in->seen[i].inode != st.st_ino))
        i++;
    if (i == HOST_FILES_MAX)
        return false;
    struct seen_file *s = &in->seen[i];
    bool same = i < in->n_seen && s->size == st.st_size && s->changed.tv_sec == st.st_mtim.tv_sec &&
                s->changed.tv_nsec == st.st_mtim.tv_nsec;
    in->n_seen += i == in->n_seen;
    *s = (struct seen_file){st.st_dev, st.st_ino, st.st_size, st.st_mtim};
    return !same;
}

static bool is_known(const struct host *h, const struct declared *d)
{
    uint32_t n = 0;
    for (const struct declared *k = h->installed.found; k; k = k->next, n++)
        if (declared_same(k, d))
            return true;
    return n >= HOST_FILES_MAX;
}

/* lock: installed.mutex.  Of a plugin that is here counts what it has said itself. */
static int take_declaration(void *arg, const char *file, struct declared *d)
{
    struct host *h = arg;
    const struct plugin *p = plugin_find(h, d->plugin);
    const struct declared *own =
        p ? atomic_load_explicit(&p->declared, memory_order_acquire) : NULL;
    int rc = own || is_known(h, d) ? 1
             : h->declares.check   ? h->declares.check(h->declares.arg, d)
                                   : 0;

    if (rc == 0 && h->declares.take)
        rc = h->declares.take(h->declares.arg, d, /* loaded= */ false);
    if (rc != 0) {
        if (rc < 0)
            host_log(h, PROBING_WARN, "what %s declares is not taken: %s", file, err_text());
        declared_free(d);
        return 0;
    }
    d->next = h->installed.found;
    h->installed.found = d;
    return 0;
}

static void refuse_declaration(void *arg, const char *file, const char *why)
{
    host_log(arg, PROBING_WARN, "what %s declares is not known: %s", file, why);
}

static int take_linked_declaration(void *arg, struct declared *d)
{
    return take_declaration(arg, d->plugin, d);
}

int declared_told(struct host *h, int fd)
{
    struct stat st;
    struct buf text;

    if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode) || lseek(fd, 0, SEEK_SET) == -1)
        return err_set(-EINVAL, "known declarations come as a file");
    buf_init(&text, DECLARED_LINES_BYTES);
    int rc = file_read_fd(fd, "what is known of plugins", &text);
    (void)pthread_mutex_lock(&h->installed.mutex);
    if (rc == 0)
        rc = declared_parse_all(text.data, text.size, take_linked_declaration, h);
    (void)pthread_mutex_unlock(&h->installed.mutex);
    buf_done(&text);
    return rc;
}

void host_declared_find(void *host)
{
    struct host *h = host;
    const struct declared_search s = {.path = h->plugin_path,
                                      .found = take_declaration,
                                      .refused = refuse_declaration,
                                      .wanted = is_new,
                                      .arg = h};
    if (host_is_off(h))
        return;
    (void)pthread_mutex_lock(&h->installed.mutex);
    (void)declared_search(&s);
    (void)pthread_mutex_unlock(&h->installed.mutex);
}

int host_why_no_table(void *host, const char *plugin, const char *table, char *text, size_t size)
{
    struct host *h = host;
    struct plugin *p = host_is_off(h) ? NULL : plugin_find(h, plugin);
    int state = p ? plugin_state_of(p) : PLUGIN_STOPPED;

    if (!p) {
        (void)snprintf(text, size, "plugin %s is not loaded: probing -t %d inject --plugin %s",
                       plugin, (int)getpid(), plugin);
        return 0;
    }
    (void)pthread_mutex_lock(&h->plugins_lock);
    const char *reason = p->reason && p->reason[0] ? p->reason : NULL;
    bool waits = atomic_load_explicit(&p->later, memory_order_relaxed);
    if (state == PLUGIN_FAILED)
        (void)snprintf(text, size, "plugin %s %s: %s", plugin, waits ? "waits" : "has failed",
                       reason ? reason : "see plugin list");
    else if (state == PLUGIN_RUNNING)
        (void)snprintf(text, size, "plugin %s runs, and there is no table '%s'", plugin, table);
    else
        (void)snprintf(text, size, "plugin %s does not run (plugin load %s)", plugin, plugin);
    (void)pthread_mutex_unlock(&h->plugins_lock);
    return 0;
}

static void free_list(struct declared *d)
{
    while (d) {
        struct declared *next = d->next;
        declared_free(d);
        d = next;
    }
}

void declared_free_all(struct host *h)
{
    free_list(h->installed.taken);
    free_list(h->installed.found);
    free(h->installed.seen);
}
