/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_stop.c - stopping plugins: one, or all of them or none.
 *
 * Threads: a worker or the core's main thread, which waits; stop() and destroy() run on the control
 * thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "core/plugin_host/internal.h"

#define STOP_NS (5 * NS_PER_S) /* how long a plugin's commands may take to end */
#define LATE_NS (STOP_NS / 2)  /* those that were told to so long ago get a second more */
#define AGAIN_NS (NS_PER_S + NS_PER_S / 2) /* plugins that refuse to stop are asked again so long */

/* It was begun, and is not wanted.  false: nobody waits for this thread any more, and the plugin is
 * undone. */
bool plugin_destroy(struct plugin *p)
{
    plugin_call_begin(p);
    plugin_call_destroy(p);
    bool in_time = plugin_call_end(p);
    if (!in_time)
        (void)plugin_undo(p, /* started= */ false, /* made= */ false);
    return in_time;
}

static int close_on_control(void *arg)
{
    struct plugin *p = arg;
    struct host *h = p->host;
    uint64_t users = atomic_load_explicit(&p->users, memory_order_acquire);

    if (plugin_state_of(p) != PLUGIN_RUNNING)
        return err_set(-ENOENT, "plugin '%s' does not run (%s)", p->name,
                       plugin_state_name(plugin_state_of(p)));
    for (uint32_t i = 0; i < HOST_PLUGINS_MAX; i++) {
        if (!(users >> i & 1))
            continue;
        struct plugin *user = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        return err_set(-EBUSY, "plugin '%s' is used by plugin '%s': plugin stop %s first", p->name,
                       user->name, user->name);
    }
    plugin_state_set(p, PLUGIN_STOPPING);
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
    bool late = timers_late(h, p) || calls_late(h, p, LATE_NS);
    limit.tv_sec += late ? 1 : (time_t)(STOP_NS / NS_PER_S);
    (void)pthread_mutex_lock(&h->plugins_lock);
    while (r == 0 && (atomic_load_explicit(&p->running, memory_order_seq_cst) ||
                      atomic_load_explicit(&p->forks, memory_order_seq_cst)))
        r = pthread_cond_timedwait(&h->plugins_changed, &h->plugins_lock, &limit);
    bool empty = !atomic_load_explicit(&p->running, memory_order_seq_cst) &&
                 !atomic_load_explicit(&p->forks, memory_order_seq_cst);
    (void)pthread_mutex_unlock(&h->plugins_lock);
    return !empty ? err_set(-EBUSY,
                            "plugin '%s' is still running a command or a query; try again when "
                            "that has ended",
                            p->name)
                  : 0;
}

/* It has not become empty: what was told to end and does not return is left to it.  -ETIMEDOUT: it
 * was; else it stays as it was. */
static int leave_inside(struct plugin *p)
{
    char why[ERR_TEXT_BYTES];
    (void)snprintf(why, sizeof(why), "%s", err_text());
    if (calls_leave(p, NS_PER_S / 2) == -ETIMEDOUT || plugin_give_up_tick(p) == -ETIMEDOUT) {
        (void)timers_leave(p->host, p); /* where both are inside */
        return -ETIMEDOUT;
    }
    plugin_state_set(p, PLUGIN_RUNNING);
    return err_set(-EBUSY, "%s", why);
}

static int stop_on_control(void *arg)
{
    struct plugin *p = arg;
    struct host *h = p->host;

    err_clear();
    plugin_call_begin(p);
    int rc = plugin_call_stop(p);
    contract_look(h);
    if (!plugin_call_end(p))
        return plugin_undo(p, /* started= */ false, /* made= */ rc >= 0);
    if (rc < 0) {
        char why[ERR_TEXT_BYTES - 128];
        (void)snprintf(why, sizeof(why), "%s", plugin_why(rc));
        plugin_text_set(p, &p->reason, why);
        plugin_state_set(p, PLUGIN_RUNNING);
        return err_set(rc, "plugin '%s' could not be stopped and keeps running: %s", p->name, why);
    }
    plugin_api_stop(p);
    if (!plugin_destroy(p))
        return -ETIMEDOUT;
    p->self = NULL;
    plugin_release_others(p);
    leak_stopped(p, rc);
    plugin_state_set(p, PLUGIN_STOPPED);
    host_log(h, PROBING_INFO, "plugin %s has stopped", p->name);
    return 0;
}

/* Plugins live as long as the host. */
static void keep_plugin(void *arg)
{
    (void)arg;
}

/* leave: what is inside and does not return is left to it; else -EBUSY.  *ret_refused: its own
 * stop() has said no. */
static int stop_plugin(struct plugin *p, bool leave, bool *ret_refused)
{
    struct host *h = p->host;
    bool inside;

    *ret_refused = false;
    int rc = host_on_control(h, close_on_control, p);
    if (rc < 0)
        return rc;
    rc = wait_empty(p);
    if (rc < 0 && leave)
        return leave_inside(p);
    if (rc < 0) {
        plugin_state_set(p, PLUGIN_RUNNING);
        return rc;
    }
    rc = control_call(h, stop_on_control, p, keep_plugin, plugin_limit_ns(h), &inside);
    *ret_refused = !inside && rc < 0;
    if (!inside)
        return rc;
    rc = plugin_give_up(h, p->name, "stop");
    if (plugin_state_of(p) == PLUGIN_STOPPING) /* between two calls of it, and it will end */
        plugin_state_set(p, PLUGIN_FAILED);
    return rc;
}

int host_plugin_stop(struct host *h, const char *name)
{
    const char *names[HOST_PLUGINS_MAX];
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);

    if (host_is_off(h))
        return -ESHUTDOWN;
    struct plugin *p = plugin_find(h, name);
    bool refused;
    if (p)
        return stop_plugin(p, /* leave= */ true, &refused);
    for (uint32_t i = 0; i < n; i++)
        names[i] = h->plugins[i]->name;
    const char *near = text_nearest(name, names, n);
    return near ? err_set(-ENOENT, "no plugin '%.80s' is loaded; did you mean '%s'?", name, near)
                : err_set(-ENOENT, "no plugin '%.80s' is loaded; plugin list shows those that are",
                          name);
}

/* ---- all of them: all or none ---- */

struct stop_all {
    struct plugin *stopped[HOST_PLUGINS_MAX]; /* in order */
    uint32_t n;
    bool refused; /* the stop() of one has said no in this round */
    int code;     /* of the first that did not stop in this round, or refused, and why */
    char why[ERR_TEXT_BYTES];
};

/* Last come, first gone.  true: some have stopped. */
static bool stop_round(struct host *h, struct stop_all *all, bool leave)
{
    bool stopped = false, refused;

    all->code = 0;
    all->refused = false;
    for (uint32_t i = atomic_load_explicit(&h->n_plugins, memory_order_acquire); i > 0; i--) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i - 1], memory_order_acquire);
        if (plugin_state_of(p) != PLUGIN_RUNNING)
            continue;
        int rc = stop_plugin(p, leave, &refused);
        bool to_say = all->code == 0 || (refused && !all->refused);
        all->refused |= refused;
        if (rc >= 0 && all->n < HOST_PLUGINS_MAX)
            all->stopped[all->n++] = p;
        if (rc >= 0 || plugin_state_of(p) == PLUGIN_FAILED) {
            stopped =
                true; /* failed: nothing more can be done about it, and nothing waits for it */
        } else if (to_say) {
            all->code = rc;
            (void)snprintf(all->why, sizeof(all->why), "%s", err_why(rc));
        }
    }
    return stopped;
}

/* Again while it helps: one that came late may be used by one that came before. */
static void stop_rounds(struct host *h, struct stop_all *all, bool leave)
{
    while (stop_round(h, all, leave) && all->code < 0)
        ;
}

/* The plugins that are still there refuse to stop: their code and hooks stay as they are. */
static void stay_behind(struct host *h)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        if (plugin_state_of(p) != PLUGIN_RUNNING)
            continue;
        atomic_store_explicit(&p->stays, true, memory_order_relaxed);
        image_inside_set(p->handle, true);
        plugin_text_set(p, &p->reason, "it refused to stop when the core left");
        plugin_state_set(p, PLUGIN_FAILED);
    }
}

uint32_t host_plugins_staying(struct host *h, struct buf *ret)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire), found = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        if (atomic_load_explicit(&p->stays, memory_order_relaxed))
            (void)buf_addf(ret, "%s%s", found++ ? ", " : "", p->name);
    }
    return found;
}

static void start_again(struct host *h, struct stop_all *all)
{
    while (all->n > 0) {
        struct plugin *p = all->stopped[--all->n];
        int rc = plugin_load_step(h, p->name, NULL, -1, LOAD_AGAIN);
        rc = rc < 0 ? rc : plugin_load_step(h, p->name, NULL, -1, LOAD_AGAIN | LOAD_START);
        if (rc < 0)
            host_log(h, PROBING_ERROR, "plugin %s does not run again: %s", p->name, err_why(rc));
    }
}

int host_plugins_stop(struct host *h, bool force)
{
    struct stop_all all = {.n = 0};

    stop_rounds(h, &all, /* leave= */ false);
    /* A thread of it that waits for the GIL of a busy program gets it soon. */
    uint64_t until = clock_now() + AGAIN_NS;
    while (all.refused && all.code == -EBUSY && clock_now() < until)
        stop_rounds(h, &all, /* leave= */ false);
    /* A plugin with calls inside is left only where no other refuses, or that does not matter. */
    if (all.code < 0 && (force || !all.refused))
        stop_rounds(h, &all, /* leave= */ true);
    if (all.code == 0)
        return 0;
    if (force) {
        stay_behind(h);
        return 0;
    }
    start_again(h, &all);
    return err_set(all.code, "%s", all.why);
}
