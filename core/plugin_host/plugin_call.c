/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_call.c - calls into a plugin whose result somebody waits for: scans,
 * commands and parts of extensions, each on a thread that can be left to the plugin.
 *
 * Threads: "probing/plugin", made when a call finds none that is idle, gone after ten idle seconds.
 * The caller (a worker, a query's or a script's thread) waits.  When it does not want the result
 * any more, or the call has a limit of its own, it waits a moment longer and then leaves: the
 * plugin's thread keeps the struct plugin_call and touches nothing else of the caller, because
 * emit() and reply() reach the caller only under the call's mutex and only while it has not left.
 * The watch (plugin_timeout.c) switches the plugin off when a call that was left does not return.
 *
 * One plugin cannot have all threads: HOST_PLUGIN_CALLS of a kind are inside at once.
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/guest/thread.h"
#include "core/plugin_host/internal.h"

#define CALL_STACK ((size_t)1 << 20) /* bytes: as the workers' */
#define IDLE_MOST 2                  /* threads that wait for a call */
#define IDLE_NS (10 * NS_PER_S)      /* then they end, as the extra workers do */
#define LOOK_NS (50 * NS_PER_MS)     /* between looks at whether the result is still wanted */
#define ANSWER_NS (300 * NS_PER_MS)  /* for a plugin to hear that it was cancelled */
#define PLACE_NS (NS_PER_S / 2)      /* then a worker that waits gives its place to another */
#define SHARE_NS NS_PER_S            /* calls that last longer are not waited for by others */
#define END_NS (NS_PER_S / 5)        /* for threads that are not inside a plugin to end */
#define REFUSED_FREE (1u << 20) /* rows: a scan that does not look at emit() ends within these */
#define REFUSED_MS 10           /* ms: for each further one */

static int init_cond(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc == 0) {
        (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        rc = pthread_cond_init(cond, &attr);
        (void)pthread_condattr_destroy(&attr);
    }
    return rc;
}

int calls_init(struct host *h)
{
    struct plugin_calls *all = &h->calls;
    int rc = pthread_mutex_init(&all->mutex, NULL);
    rc = rc ? rc : init_cond(&all->waiting);
    rc = rc ? rc : init_cond(&all->changed);
    return rc ? err_set(-rc, "no condition for calls into plugins") : 0;
}

void calls_done(struct host *h)
{
    (void)pthread_cond_destroy(&h->calls.waiting);
    (void)pthread_cond_destroy(&h->calls.changed);
    (void)pthread_mutex_destroy(&h->calls.mutex);
}

/* ---- the list of those inside; all->mutex is held ---- */

static void link_inside(struct plugin_calls *all, struct plugin_call *c)
{
    c->previous = NULL;
    c->next = all->inside;
    if (all->inside)
        all->inside->previous = c;
    all->inside = c;
    all->n_inside++;
}

static void unlink_inside(struct plugin_calls *all, struct plugin_call *c)
{
    if (c->previous)
        c->previous->next = c->next;
    else
        all->inside = c->next;
    if (c->next)
        c->next->previous = c->previous;
    all->n_inside--;
    (void)pthread_cond_broadcast(&all->changed);
}

static bool is_left(const struct plugin_call *c)
{
    return atomic_load_explicit(&c->left, memory_order_relaxed);
}

/* ---- the plugin's side ---- */

/* It was left, and has come back: undo the plugin where it was switched off meanwhile.  The host
 * may have gone by now, but not its memory. */
static void came_back(struct plugin_call *c)
{
    struct plugin *p = c->plugin;
    struct plugin_calls *all = &p->host->calls;

    (void)pthread_mutex_lock(&all->mutex);
    c->is_back = true;
    (void)pthread_mutex_unlock(&all->mutex);
    plugin_leave(p, NULL);
    plugin_came_back(p);
    (void)pthread_mutex_lock(&all->mutex);
    unlink_inside(all, c); /* last: from here on the host may be freed */
    (void)pthread_mutex_unlock(&all->mutex);
    (void)pthread_mutex_destroy(&c->mutex);
    (void)pthread_cond_destroy(&c->ended_cond);
    free(c);
}

static void run_call(struct plugin_call *c)
{
    atomic_store_explicit(&c->tid, (pid_t)syscall(SYS_gettid), memory_order_relaxed);
    struct call_mark mark = {.plugin = c->plugin->name,
                             .function = c->function,
                             .name = c->subject,
                             .object = c->object};
    uint64_t begin_cpu = thread_cpu();
    err_clear();
    call_begin(&mark);
    int code = c->run(c);
    call_end(&mark);
    (void)pthread_mutex_lock(&c->mutex);
    bool left = is_left(c);
    if (!left) {
        c->code = code;
        c->cpu_ns = thread_cpu() - begin_cpu;
        err_keep(&c->why, err_text()[0] ? (code < 0 ? code : -EIO) : 0);
        c->ended = true;
        (void)pthread_cond_signal(&c->ended_cond);
    }
    (void)pthread_mutex_unlock(&c->mutex); /* else the caller's, who frees it */
    if (left)
        came_back(c);
}

/* lock: all->mutex.  NULL: nobody wants this thread any more. */
static struct plugin_call *wait_for_call(struct plugin_calls *all)
{
    struct timespec limit = in_future(IDLE_NS);
    int timed_out = 0;

    if (!all->queue && all->n_idle >= IDLE_MOST)
        return NULL;
    all->n_idle++;
    while (!all->queue && !all->stop && !timed_out)
        timed_out = pthread_cond_timedwait(&all->waiting, &all->mutex, &limit);
    all->n_idle--;
    struct plugin_call *c = all->queue;
    if (c) {
        all->queue = c->queue_next;
        all->n_queued--;
    }
    return c;
}

static void *serve_calls(void *arg)
{
    struct plugin_call *c = arg;
    struct plugin_calls *all = &c->plugin->host->calls;

    (void)pthread_detach(pthread_self());
    while (c) {
        run_call(c);
        (void)pthread_mutex_lock(&all->mutex);
        c = wait_for_call(all);
        if (!c) {
            all->n_threads--;
            (void)pthread_cond_broadcast(&all->changed);
        }
        (void)pthread_mutex_unlock(&all->mutex);
    }
    return NULL;
}

/* ---- the caller's side ---- */

void *plugin_call_new(size_t size, struct plugin *p, const char *function, const char *subject)
{
    struct plugin_call *c = calloc(1, size);
    if (!c || init_cond(&c->ended_cond) != 0 || pthread_mutex_init(&c->mutex, NULL) != 0) {
        free(c);
        (void)err_set(-ENOMEM, "no memory for a call of %s of plugin '%s'", function, p->name);
        return NULL;
    }
    c->plugin = p;
    c->function = function;
    (void)snprintf(c->subject, sizeof(c->subject), "%s", subject);
    return c;
}

void plugin_call_free(struct plugin_call *c)
{
    (void)pthread_mutex_destroy(&c->mutex);
    (void)pthread_cond_destroy(&c->ended_cond);
    free(c);
}

/* lock: all->mutex.  How many calls of that kind are inside the plugin; *ret_last: since when the
 * one that came last. */
static uint32_t count_inside(const struct plugin_calls *all, const struct plugin_call *c,
                             uint64_t *ret_last)
{
    uint32_t n = 0;
    *ret_last = 0;
    for (const struct plugin_call *at = all->inside; at; at = at->next) {
        if (at->plugin != c->plugin || strcmp(at->function, c->function) != 0)
            continue;
        *ret_last = at->since > *ret_last ? at->since : *ret_last;
        n++;
    }
    return n;
}

/* lock: all->mutex.  Wait for a place among the plugin's calls, unless all that are inside last
 * long: then whoever waits would take a place from others for nothing. */
static int wait_for_share(struct plugin_calls *all, const struct plugin_call *c)
{
    uint64_t begin = clock_now(), last;
    for (;;) {
        uint32_t n = count_inside(all, c, &last);
        uint64_t now = clock_now();
        if (n < HOST_PLUGIN_CALLS && all->n_inside < HOST_CALLS_MAX)
            return 0;
        if (n >= HOST_PLUGIN_CALLS && (now > last + SHARE_NS || now > begin + SHARE_NS))
            return err_set(-EBUSY,
                           "plugin '%s' is inside %u calls of %s that have not returned, and "
                           "may have no more; see probing.plugins, or plugin stop %s",
                           c->plugin->name, n, c->function, c->plugin->name);
        if (now > begin + SHARE_NS)
            return err_set(-EBUSY,
                           "%u calls are inside plugins and have not returned, so %s of plugin "
                           "'%s' is not called; see probing.plugins",
                           all->n_inside, c->function, c->plugin->name);
        struct timespec limit = in_future(LOOK_NS);
        (void)pthread_cond_timedwait(&all->changed, &all->mutex, &limit);
    }
}

/* lock: all->mutex.  false: no thread can be had. */
static bool give_to_thread(struct plugin_calls *all, struct plugin_call *c)
{
    pthread_t thread;
    if (all->n_idle > all->n_queued) {
        struct plugin_call **end = &all->queue;
        while (*end)
            end = &(*end)->queue_next;
        *end = c;
        all->n_queued++;
        (void)pthread_cond_signal(&all->waiting);
        return true;
    }
    if (thread_start(&thread, "probing/plugin", CALL_STACK, serve_calls, c) < 0)
        return false;
    all->n_threads++;
    return true;
}

static bool is_unwanted(struct plugin_call *c)
{
    int state = plugin_state_of(c->plugin);
    return (state != PLUGIN_RUNNING && state != PLUGIN_READY) || (c->unwanted && c->unwanted(c));
}

/* false: it has not ended, and was left; why it was to end, "": not known.  Workers' deadlines are
 * looked at from here too: the control thread may be inside a plugin. */
static bool wait_for_end(struct plugin_call *c, char reason[ERR_TEXT_BYTES / 2])
{
    struct host *h = c->plugin->host;
    uint64_t begin = clock_now(), unwanted = 0, now = begin;
    bool has_place = true;

    (void)pthread_mutex_lock(&c->mutex);
    while (!c->ended && !is_left(c)) {
        struct timespec limit = in_future(LOOK_NS);
        if (pthread_cond_timedwait(&c->ended_cond, &c->mutex, &limit) == 0)
            continue;
        now = clock_now();
        if (has_place && now > begin + PLACE_NS) {
            has_place = false;
            workers_give_place(h, 1);
        }
        (void)workers_expire(h, now);
        err_clear();
        if (!unwanted && is_unwanted(c)) {
            unwanted = now;
            (void)snprintf(reason, ERR_TEXT_BYTES / 2, "%s", err_text());
            atomic_store_explicit(&c->unwanted_ns, now, memory_order_relaxed);
        }
        bool leave = (unwanted && now >= unwanted + ANSWER_NS) ||
                     (c->limit_ns && now >= begin + c->limit_ns);
        atomic_store_explicit(&c->left, leave, memory_order_relaxed); /* lock: c->mutex */
    }
    bool ended = c->ended;
    (void)pthread_mutex_unlock(&c->mutex);
    if (!has_place)
        workers_give_place(h, -1);
    return ended;
}

/* The call itself may have been freed by its thread by now. */
static int say_left(const struct plugin *p, const char *function, const char *subject,
                    const char *reason)
{
    if (p->host->again)
        event_wake(p->host->again); /* the watch looks at it from now on */
    return err_set(-ETIME,
                   "%s%splugin '%s' did not return from its %s (%s), and the thread is left to it",
                   reason, reason[0] ? "; " : "", p->name, function, subject);
}

int plugin_call(struct plugin_call *c, bool *ret_left)
{
    struct plugin *p = c->plugin;
    struct plugin_calls *all = &p->host->calls;
    char function[16], subject[sizeof(c->subject)], reason[ERR_TEXT_BYTES / 2] = "";

    *ret_left = false;
    (void)pthread_mutex_lock(&all->mutex);
    int rc = c->always ? 0 : wait_for_share(all, c);
    if (rc == 0)
        rc = (c->ready_too ? plugin_enter_ready(p, NULL) : plugin_enter(p, NULL)) ? 0 : -ESHUTDOWN;
    if (rc < 0) {
        (void)pthread_mutex_unlock(&all->mutex);
        return rc;
    }
    c->since = clock_now();
    link_inside(all, c);
    bool given = !all->stop && give_to_thread(all, c);
    (void)pthread_mutex_unlock(&all->mutex);
    if (!given) /* as a plugin is called where there is no thread for it: without a limit */
        run_call(c);
    (void)snprintf(function, sizeof(function), "%s", c->function);
    (void)snprintf(subject, sizeof(subject), "%s", c->subject);
    if (!wait_for_end(c, reason)) {
        *ret_left = true; /* c is the thread's now */
        return say_left(p, function, subject, reason);
    }
    (void)pthread_mutex_lock(&all->mutex);
    unlink_inside(all, c);
    (void)pthread_mutex_unlock(&all->mutex);
    plugin_leave(p, NULL);
    if (given)
        thread_cpu_add(c->cpu_ns);
    (void)err_restore(&c->why);
    return c->code;
}

/* ---- what the plugin does to its caller ---- */

bool plugin_call_enter(struct plugin_call *c)
{
    (void)pthread_mutex_lock(&c->mutex);
    int state = plugin_state_of(c->plugin);
    if (!is_left(c) && (state == PLUGIN_RUNNING || state == PLUGIN_READY))
        return true;
    (void)pthread_mutex_unlock(&c->mutex);
    /* A scan that ignores this for ever must not take a processor of the program's. */
    if (++c->n_refused > REFUSED_FREE)
        (void)poll(NULL, 0, REFUSED_MS);
    return false;
}

void plugin_call_exit(struct plugin_call *c)
{
    (void)pthread_mutex_unlock(&c->mutex);
}

/* ---- calls that were left ---- */

uint32_t calls_inside(struct host *h, const struct plugin *p, uint32_t *ret_left)
{
    struct plugin_calls *all = &h->calls;
    uint32_t n = 0;
    *ret_left = 0;
    (void)pthread_mutex_lock(&all->mutex);
    for (struct plugin_call *c = all->inside; c; c = c->next) {
        bool mine = c->plugin == p;
        n += mine ? 1 : 0;
        *ret_left += mine && is_left(c) ? 1 : 0;
    }
    (void)pthread_mutex_unlock(&all->mutex);
    return n;
}

/* lock: all->mutex.  The call of the plugin that was told to end longest ago and is still inside.
 * NULL: there is none that was told so before `before`. */
static struct plugin_call *find_late(struct plugin_calls *all, const struct plugin *p,
                                     uint64_t before)
{
    struct plugin_call *found = NULL;
    for (struct plugin_call *c = all->inside; c; c = c->next) {
        uint64_t unwanted = atomic_load_explicit(&c->unwanted_ns, memory_order_relaxed);
        uint64_t since = unwanted ? unwanted : c->since;
        if (c->plugin != p || c->is_back || !is_left(c) || since > before)
            continue;
        before = since;
        found = c;
    }
    return found;
}

bool calls_late(struct host *h, const struct plugin *p, uint64_t ns)
{
    uint64_t now = clock_now();
    (void)pthread_mutex_lock(&h->calls.mutex);
    bool late = find_late(&h->calls, p, now > ns ? now - ns : 0) != NULL;
    (void)pthread_mutex_unlock(&h->calls.mutex);
    return late;
}

/* `all->mutex` is held from the look to the end, so that a thread that comes back meanwhile finds
 * the plugin either as it was or wholly switched off. */
int calls_leave(struct plugin *p, uint64_t ns)
{
    struct plugin_calls *all = &p->host->calls;
    uint64_t now = clock_now();
    char why[160 + sizeof(((struct plugin_call *)0)->subject)];
    int rc = -ENOENT;

    (void)pthread_mutex_lock(&all->mutex);
    struct plugin_call *late = find_late(all, p, now > ns ? now - ns : 0);
    if (late) {
        uint64_t unwanted = atomic_load_explicit(&late->unwanted_ns, memory_order_relaxed);
        (void)snprintf(why, sizeof(why), "%s (%s): it has not returned %.3g s after it was %s",
                       late->function, late->subject,
                       (double)(now - (unwanted ? unwanted : late->since)) / (double)NS_PER_S,
                       unwanted ? "told to end" : "called");
        rc = plugin_switch_off(p, why);
    }
    (void)pthread_mutex_unlock(&all->mutex);
    if (rc == -ETIMEDOUT)
        calls_name_left(p);
    return rc;
}

void calls_name_left(struct plugin *p)
{
    struct plugin_calls *all = &p->host->calls;
    (void)pthread_mutex_lock(&all->mutex);
    for (struct plugin_call *c = all->inside; c; c = c->next) {
        pid_t tid = atomic_load_explicit(&c->tid, memory_order_relaxed);
        if (c->plugin == p && !c->is_back && tid != 0)
            thread_left(tid);
    }
    (void)pthread_mutex_unlock(&all->mutex);
}

/* A process that was stopped meanwhile wakes up late: the thread gets a second to run. */
static bool is_late_again(struct plugin *p, uint64_t ns)
{
    struct plugin_calls *all = &p->host->calls;
    uint64_t now = clock_now();
    (void)pthread_mutex_lock(&all->mutex);
    struct plugin_call *late = find_late(all, p, now > ns ? now - ns : 0);
    bool again = late && late->looks++ > 0;
    (void)pthread_mutex_unlock(&all->mutex);
    return again;
}

bool calls_watch(struct host *h)
{
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);
    bool inside = false;
    for (uint32_t i = 0; i < n; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        uint32_t left;
        (void)calls_inside(h, p, &left);
        if (left == 0)
            continue;
        inside = true;
        if (plugin_state_of(p) == PLUGIN_RUNNING && is_late_again(p, plugin_limit_ns(h)))
            (void)calls_leave(p, plugin_limit_ns(h));
    }
    return inside;
}

bool calls_stop(struct host *h)
{
    struct plugin_calls *all = &h->calls;
    struct timespec limit = in_future(END_NS);
    int r = 0;

    (void)pthread_mutex_lock(&all->mutex);
    all->stop = true;
    (void)pthread_cond_broadcast(&all->waiting);
    while (all->n_threads > all->n_inside && r == 0)
        r = pthread_cond_timedwait(&all->changed, &all->mutex, &limit);
    bool alone = all->n_threads == 0 && all->n_inside == 0;
    (void)pthread_mutex_unlock(&all->mutex);
    return alone;
}

/* ---- commands ---- */

/* The plugin has a reply of its own and its own copy of the words: it may have them for longer than
 * the client is there. */
struct command_call {
    struct plugin_call call;   /* first */
    struct probing_reply face; /* what the plugin is given */
    struct probing_reply *reply;
    int (*run)(void *self, int argc, const char *const *argv, struct probing_reply *out);
    int argc;
    const char *argv[]; /* then the bytes */
};

static struct command_call *call_of(const struct probing_reply *face)
{
    return (struct command_call *)((char *)(uintptr_t)face - offsetof(struct command_call, face));
}

static int write_through(struct probing_reply *face, const void *data, size_t size)
{
    struct command_call *c = call_of(face);
    if (!plugin_call_enter(&c->call))
        return -ECANCELED;
    int rc = c->reply->write(c->reply, data, size);
    plugin_call_exit(&c->call);
    return rc;
}

static bool is_cancelled(const struct probing_reply *reply)
{
    return atomic_load_explicit(&reply->cancelled, memory_order_acquire) != 0;
}

bool command_is_cancelled(const struct probing_reply *out)
{
    if (out->write != write_through)
        return is_cancelled(out);
    struct command_call *c = call_of(out);
    if (!plugin_call_enter(&c->call))
        return true;
    bool cancelled = is_cancelled(c->reply);
    plugin_call_exit(&c->call);
    return cancelled;
}

static bool reply_unwanted(struct plugin_call *call)
{
    return is_cancelled(((struct command_call *)call)->reply);
}

static int run_in_plugin(struct plugin_call *call)
{
    struct command_call *c = (struct command_call *)call;
    int rc = c->run(call->plugin->self, c->argc, c->argv, &c->face);
    return contract_result(call->plugin, "run()", call->subject, rc, 125);
}

static struct command_call *command_call_new(const struct command *command, int argc,
                                             const char *const *argv, struct probing_reply *reply)
{
    size_t at = sizeof(struct command_call) + ((size_t)argc + 1) * sizeof(char *), bytes = 0;
    for (int i = 0; i < argc; i++)
        bytes += strlen(argv[i]) + 1;
    struct command_call *c = plugin_call_new(at + bytes, command->plugin, "command", command->name);
    if (!c)
        return NULL;
    c->call.run = run_in_plugin;
    c->call.object = &c->face;
    c->call.unwanted = reply_unwanted;
    c->face = (struct probing_reply){.write = write_through,
                                     .remote = reply->remote,
                                     .read_only = reply->read_only,
                                     .takes_bytes = reply->takes_bytes};
    c->reply = reply;
    char *text = (char *)c + at;
    for (; c->argc < argc; c->argc++) {
        size_t n = strlen(argv[c->argc]) + 1;
        memcpy(text, argv[c->argc], n);
        c->argv[c->argc] = text;
        text += n;
    }
    return c;
}

int command_call(const struct command *command, int argc, const char *const *argv,
                 struct probing_reply *reply)
{
    bool left;
    struct command_call *c = command_call_new(command, argc, argv, reply);
    if (!c)
        return -ENOMEM;
    c->run = command->run;
    int rc = plugin_call(&c->call, &left);
    if (!left)
        plugin_call_free(&c->call);
    return rc == -ESHUTDOWN && !err_text()[0]
               ? err_set(-ENOENT, "plugin %s has just stopped", command->owner)
               : rc;
}
