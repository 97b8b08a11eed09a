/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_timeout.c - calls into a plugin that do not come back: given up, said,
 * and undone when they come back after all.
 *
 * Threads: give_up functions on whoever waited or watches; what came back runs on the thread that
 * was left to the plugin, which nobody waits for any more.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/guest/thread.h"
#include "core/plugin_host/internal.h"

#define LATE_MOST 3       /* loads that come back late, of a plugin that the settings name */
#define WATCH_NS NS_PER_S /* between looks at who is inside a plugin, ... */
#define WATCH_IDLE_NS \
    (5 * NS_PER_S) /* ... and where nobody is: who has just gone in is seen late */

void plugin_try_later(struct plugin *p, bool later)
{
    bool known = atomic_exchange_explicit(&p->later, later, memory_order_relaxed);
    if (later && !known && p->host->again)
        event_wake(p->host->again);
}

void plugin_call_begin(struct plugin *p)
{
    atomic_store_explicit(&p->call, CALL_INSIDE, memory_order_release);
}

/* While it runs, when the watch may switch it off. */
bool plugin_call_try(struct plugin *p)
{
    int none = CALL_NONE;
    return atomic_compare_exchange_strong_explicit(&p->call, &none, CALL_INSIDE,
                                                   memory_order_acq_rel, memory_order_acquire);
}

bool plugin_call_end(struct plugin *p)
{
    int inside = CALL_INSIDE;
    return atomic_compare_exchange_strong_explicit(&p->call, &inside, CALL_NONE,
                                                   memory_order_acq_rel, memory_order_acquire);
}

/* It came back after all: what it has made is undone.  The host may have gone, but not its memory
 * (host_free() leaves it to us); tables went with it. */
int plugin_undo(struct plugin *p, bool started, bool made)
{
    if (started)
        (void)plugin_call_stop(p);
    if (!host_is_off(p->host))
        plugin_api_stop(p);
    if (made)
        plugin_call_destroy(p);
    plugin_state_set(p, PLUGIN_FAILED); /* it may have come as far as PLUGIN_READY */
    p->self = NULL;
    image_inside_set(p->handle, false);
    atomic_store_explicit(&p->call, CALL_NONE, memory_order_release);
    return -ETIMEDOUT;
}

/* It is FAILED from here on: nobody enters it, and who is inside is left to it. */
static int switch_off(struct plugin *p, const char *why)
{
    char line[ERR_TEXT_BYTES / 2];
    (void)snprintf(line, sizeof(line), "%s; its thread stays with it", why);
    image_inside_set(p->handle, true);
    plugin_text_set(p, &p->reason, line);
    plugin_state_set(p, PLUGIN_FAILED);
    plugin_release_others(p);
    host_log(p->host, PROBING_ERROR, "plugin %s failed at %s", p->name, line);
    return err_set(-ETIMEDOUT, "plugin '%s' failed at %s", p->name, line);
}

/* The caller has waited long enough: say so, and leave the thread to the plugin.  The image's mark
 * comes before the change of `call`, after which the thread may take it away again. */
int plugin_give_up(struct host *h, const char *name, const char *step)
{
    struct plugin *p = plugin_find(h, name);
    int inside = CALL_INSIDE;
    bool is_inside = p && atomic_load_explicit(&p->call, memory_order_acquire) == CALL_INSIDE;
    bool runs = is_inside && plugin_state_of(p) == PLUGIN_RUNNING;

    if (is_inside)
        image_inside_set(p->handle, true);
    if (!is_inside || !atomic_compare_exchange_strong_explicit(
                          &p->call, &inside, runs ? CALL_LEFT : CALL_GIVEN_UP, memory_order_acq_rel,
                          memory_order_acquire)) {
        if (is_inside)
            image_inside_set(p->handle, false);
        if (p && plugin_state_of(p) != PLUGIN_RUNNING) /* it is on its way: see load_goes_in() */
            plugin_try_later(p, settings_start_with(h, name));
        return err_set(-EAGAIN, "plugin '%s' takes a long time to %s; see plugin list", name, step);
    }
    double limit = (double)plugin_limit_ns(h) / (double)NS_PER_S;
    if (!runs)
        return plugin_refuse(
            p, step, -ETIMEDOUT,
            "it has not returned after %.3g s; its thread stays with it, and nothing else waits",
            limit);
    char why[128];
    (void)snprintf(why, sizeof(why), "%s: it has not returned after %.3g s", step, limit);
    return switch_off(p, why);
}

static bool is_left(const struct plugin *p)
{
    return atomic_load_explicit(&p->call, memory_order_acquire) >= CALL_GIVEN_UP;
}

int plugin_is_inside(const struct plugin *p)
{
    return p && is_left(p)
               ? err_set(-EBUSY,
                         "plugin '%s' is still inside a call that was abandoned; it can be loaded "
                         "when the call has returned",
                         p->name)
               : 0;
}

uint32_t host_plugins_inside(struct host *h, struct buf *ret)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire), found = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        if (is_left(p))
            (void)buf_addf(ret, "%s%s", found++ ? ", " : "", p->name);
    }
    return found;
}

/* ---- loads that somebody has given up ---- */

/* Enter a load, only one of a plugin at a time: a starved thread may have been left at any place of
 * a load, and its plugin knows nothing of two that are inside at once.  false: there is one. */
bool load_enter(struct load *l)
{
    struct host *h = l->host;
    bool alone = true;

    (void)pthread_mutex_lock(&h->plugins_lock);
    for (const struct load *at = h->loads; at; at = at->next)
        alone = alone && strcmp(at->name, l->name) != 0;
    if (alone) {
        l->next = h->loads;
        h->loads = l;
    }
    (void)pthread_mutex_unlock(&h->plugins_lock);
    return alone;
}

void load_end(struct load *l)
{
    struct host *h = l->host;

    (void)pthread_mutex_lock(&h->plugins_lock);
    struct load **at = &h->loads;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    (void)pthread_mutex_unlock(&h->plugins_lock);
}

/* By the caller: the load may have ended, and be freed. */
void load_leave(struct host *h, const char *name)
{
    (void)pthread_mutex_lock(&h->plugins_lock);
    for (struct load *at = h->loads; at; at = at->next)
        if (strcmp(at->name, name) == 0)
            atomic_store_explicit(&at->left, true, memory_order_seq_cst);
    (void)pthread_mutex_unlock(&h->plugins_lock);
}

/* Into the plugin, unless the caller has left: either we see that here, or he sees where we are. */
bool load_goes_in(struct load *l, struct plugin *p)
{
    plugin_call_begin(p);
    return !atomic_load_explicit(&l->left, memory_order_seq_cst);
}

/* Late, and undone: the machine may only have been starved. */
int load_undo(struct plugin *p, bool started, bool made)
{
    bool again =
        !host_is_off(p->host) && p->n_late++ < LATE_MOST && settings_start_with(p->host, p->name);
    int rc = plugin_undo(p, started, made);
    plugin_try_later(p, again);
    return rc;
}

int load_unwanted(struct plugin *p, bool made)
{
    (void)plugin_call_end(p);
    plugin_text_set(p, &p->reason, "nobody waited for it any more when its turn came");
    return load_undo(p, /* started= */ false, made);
}

/* ---- handlers that do not come back ---- */

bool plugin_handler_begin(struct plugin *p)
{
    bool may = plugin_call_try(p);
    if (may)
        atomic_store_explicit(&p->handling_since, clock_now(), memory_order_release);
    return may;
}

void plugin_handler_end(struct plugin *p)
{
    atomic_store_explicit(&p->handling_since, 0, memory_order_relaxed);
    (void)plugin_call_end(p); /* given up: its thread finds that out by itself */
}

void plugins_thread_back(struct host *h, pid_t tid)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        if (atomic_load_explicit(&p->left_tid, memory_order_relaxed) != tid)
            continue;
        atomic_store_explicit(&p->left_tid, 0, memory_order_relaxed);
        plugin_came_back(p);
        return;
    }
}

/* The last of those that were left and are counted in `running`. */
void plugin_came_back(struct plugin *p)
{
    int left = CALL_LEFT;
    if (atomic_load_explicit(&p->running, memory_order_seq_cst) == 0 &&
        atomic_compare_exchange_strong_explicit(&p->call, &left, CALL_BACK, memory_order_acq_rel,
                                                memory_order_acquire))
        (void)plugin_undo(p, /* started= */ true, /* made= */ true);
}

int plugin_switch_off(struct plugin *p, const char *why)
{
    int none = CALL_NONE;
    if (!atomic_compare_exchange_strong_explicit(&p->call, &none, CALL_LEFT, memory_order_acq_rel,
                                                 memory_order_acquire))
        return -EBUSY;
    return switch_off(p, why);
}

int plugin_give_up_tick(struct plugin *p)
{
    static const char why[] = "every: it has not returned";
    int none = CALL_NONE;

    if (!atomic_compare_exchange_strong_explicit(&p->call, &none, CALL_LEFT, memory_order_acq_rel,
                                                 memory_order_acquire))
        return -EBUSY;
    if (timers_leave(p->host, p) == 0) { /* it has come back in this moment */
        atomic_store_explicit(&p->call, CALL_NONE, memory_order_release);
        return -EBUSY;
    }
    int rc = switch_off(p, why);
    calls_name_left(p);
    return rc;
}

int plugin_configure(struct plugin *p, const char *name, const char *value)
{
    bool in_time = true;
    int rc = -ESHUTDOWN;
    if (plugin_call_try(p)) {
        rc = plugin_call_configure(p, name, value);
        in_time = plugin_call_end(p);
    }
    plugin_leave(p, NULL);
    if (!in_time)
        plugin_came_back(p);
    return in_time ? rc : -ETIMEDOUT;
}

/* On the watching thread. */
static void give_up_handler(struct plugin *p)
{
    struct host *h = p->host;
    int inside = CALL_INSIDE;
    char why[128];

    if (!atomic_compare_exchange_strong_explicit(&p->call, &inside, CALL_LEFT, memory_order_acq_rel,
                                                 memory_order_acquire))
        return;
    (void)snprintf(why, sizeof(why), "event: its handler has not returned after %.3g s",
                   (double)plugin_limit_ns(h) / (double)NS_PER_S);
    (void)switch_off(p, why);
    calls_name_left(p);
    pid_t tid = atomic_load_explicit(&h->control.tid, memory_order_acquire);
    atomic_store_explicit(&p->left_tid, tid, memory_order_relaxed);
    if (control_leave_handler(h) < 0)
        host_log(h, PROBING_ERROR, "cannot create a thread to continue while plugin %s hangs",
                 p->name);
}

void plugin_late(struct plugin *p, const char *what, uint64_t ns)
{
    char why[128] = "";
    if (what)
        (void)snprintf(why, sizeof(why), "late: its %s has not returned after %.3g s", what,
                       (double)ns / (double)NS_PER_S);
    plugin_text_set(p, &p->reason, why);
    if (what)
        host_log(p->host, PROBING_WARN, "plugin %s is %s", p->name, why);
    else
        host_log(p->host, PROBING_INFO, "plugin %s has returned", p->name);
}

uint64_t host_watch(struct host *h)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    uint64_t now = clock_now(), limit = plugin_limit_ns(h);
    bool inside = false;
    contract_look(h);
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        uint64_t since = atomic_load_explicit(&p->handling_since, memory_order_acquire);
        /* STOPPING: somebody waits for it to be empty, and would for ever. */
        if (since != 0 && now > since && now - since > limit)
            give_up_handler(p);
        inside |= since != 0;
    }
    inside |= timers_watch(h, now);
    inside |= calls_watch(h);
    control_watch(h);
    return inside || limit < WATCH_IDLE_NS ? WATCH_NS : WATCH_IDLE_NS;
}
