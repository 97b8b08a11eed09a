/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/host.c - making and unmaking the host, and small parts that need no file of
 * their own.
 *
 * Threads: host_new(), _start() and _free() by the owner; host_fork() on the thread that forks.
 */
#include "core/plugin_host/plugin_host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/guest/thread.h"
#include "core/plugin_host/internal.h"
#include "core/ring/ring.h"

#define CALL_NS (10 * NS_PER_S) /* as plugin_host.h says */

static int parts_init(struct host *h)
{
    pthread_condattr_t attr;

    (void)pthread_mutex_init(&h->settings.mutex, NULL);
    (void)pthread_mutex_init(&h->log.mutex, NULL);
    (void)pthread_mutex_init(&h->commands_lock, NULL);
    (void)pthread_mutex_init(&h->plugins_lock, NULL);
    (void)pthread_mutex_init(&h->extensions_lock, NULL);
    (void)pthread_mutex_init(&h->installed.mutex, NULL);
    if (pthread_condattr_init(&attr))
        return err_set(-ENOMEM, "no memory for the host");
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(&h->plugins_changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (rc)
        return err_set(-rc, "no condition for the host");
    rc = control_init(h);
    rc = rc < 0 ? rc : calls_init(h);
    return rc < 0 ? rc : workers_init(h);
}

static void destroy_host(struct host *h)
{
    plugins_free(h);
    declared_free_all(h);
    events_free(h);
    commands_free(h);
    settings_free(h);
    log_free(h);
    control_done(h);
    workers_done(h);
    calls_done(h);
    (void)pthread_cond_destroy(&h->plugins_changed);
    (void)pthread_mutex_destroy(&h->settings.mutex);
    (void)pthread_mutex_destroy(&h->commands_lock);
    (void)pthread_mutex_destroy(&h->plugins_lock);
    (void)pthread_mutex_destroy(&h->extensions_lock);
    (void)pthread_mutex_destroy(&h->installed.mutex);
    free(h->version);
    free(h->plugin_path);
    free(h);
}

int host_new(const struct host_options *o, struct host **ret)
{
    struct host *h = calloc(1, sizeof(*h));
    if (!h)
        return err_set(-ENOMEM, "no memory for the host");
    h->tables = o->tables;
    h->store = o->store;
    h->declares = o->declares;
    atomic_init(&h->call_ns, o->call_ns ? o->call_ns : CALL_NS);
    h->begun_ns = clock_monotonic();
    h->again = o->again;
    h->mapped_files = o->mapped_files;
    h->door.listen_fd = -1;
    for (int i = 0; i < HOST_UPLOAD_CLIENTS; i++)
        h->door.peers[i] = -1;
    atomic_init(&h->log.level, PROBING_INFO);
    int rc = parts_init(h);
    if (rc < 0) {
        free(h);
        return rc;
    }
    h->version = strdup(o->version);
    h->plugin_path = strdup(o->plugin_path ? o->plugin_path : "");
    rc = h->version && h->plugin_path ? 0 : err_set(-ENOMEM, "no memory for the host");
    if (rc == 0)
        rc = commands_builtin(h);
    if (rc == 0)
        rc = about_add(h);
    if (rc == 0)
        rc = settings_offer(h);
    if (rc == 0)
        rc = memory_offer(h);
    if (rc == 0)
        rc = note_offer(h);
    if (rc == 0)
        rc = rows_offer(h);
    if (rc == 0)
        rc = descriptors_offer(h);
    if (rc < 0) {
        destroy_host(h);
        return rc;
    }
    *ret = h;
    return 0;
}

void host_call_limit(struct host *h, uint64_t call_ns)
{
    atomic_store_explicit(&h->call_ns, call_ns, memory_order_relaxed);
    if (h->again)
        event_wake(h->again);
}

int host_start(struct host *h)
{
    contract_begin(h);
    int rc = workers_start(h);
    return rc < 0 ? rc : control_start(h);
}

/* A plugin that will not stop may still call us, so what it can reach stays, and does nothing. */
static bool plugin_left_behind(struct host *h)
{
    for (uint32_t i = 0; i < h->n_plugins; i++) {
        int state = atomic_load_explicit(&h->plugins[i]->state, memory_order_acquire);
        int call = atomic_load_explicit(&h->plugins[i]->call, memory_order_acquire);
        if (state == PLUGIN_RUNNING || state == PLUGIN_STOPPING || call >= CALL_GIVEN_UP ||
            atomic_load_explicit(&h->plugins[i]->stays, memory_order_relaxed))
            return true;
    }
    return false;
}

bool host_free(struct host *h)
{
    if (!h)
        return true;
    (void)host_plugins_stop(h, /* force= */ true);
    contract_end(h);
    bool alone = workers_stop(h);
    control_stop(h);
    alone &= calls_stop(h);
    upload_socket_close(h);
    host_stack_off(h);
    if (plugin_left_behind(h) || !control_alone(h) || !alone) {
        atomic_store_explicit(&h->off, true, memory_order_release);
        control_close(&h->control);
        return false;
    }
    destroy_host(h);
    return true;
}

int host_extension_add(struct host *h, const char *id, const void *part)
{
    int rc = 0;
    (void)pthread_mutex_lock(&h->extensions_lock);
    if (h->n_extensions == HOST_EXTENSIONS_MAX) {
        rc = err_set(-ENOSPC, "no room for extension '%s'", id);
    } else {
        h->extensions[h->n_extensions].id = id;
        h->extensions[h->n_extensions++].part = part;
    }
    (void)pthread_mutex_unlock(&h->extensions_lock);
    return rc;
}

int host_table_add(struct host *h, const struct probing_table_desc *d, void *self)
{
    struct table *t;
    return tables_add(h->tables, "probing", d, self, &t);
}

int host_append(struct table *t, uint64_t ts, const union probing_cell *cells, uint32_t n,
                const void *tail, uint32_t tail_n)
{
    return ring_append(t, ts, cells, n, tail, tail_n);
}

void host_fork(struct host *h, int phase)
{
    if (!host_is_off(h))
        plugins_fork(h, phase);
}

/* In the child our threads are gone and our locks may be held by them for ever: only flags and raw
 * closes from here.  The path of the door is the parent's and stays. */
void host_disable_in_child(struct host *h)
{
    if (atomic_exchange_explicit(&h->off, true, memory_order_relaxed))
        return;
    atomic_store_explicit(&h->control.wake_fd, -1, memory_order_relaxed);
    plugins_disable_in_child(h);
}

void host_begin_in_child(void)
{
    plugins_begin_in_child();
    stack_ext_begin_in_child();
}
