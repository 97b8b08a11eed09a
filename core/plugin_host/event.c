/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/event.c - topics: anybody publishes, handlers run on the control thread; and
 * timers.
 *
 * Threads: host_publish() and the subscribing functions from any; handlers on control only; ticks
 * on workers.  Nothing is delivered on the publisher's own thread, so a handler may lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/plugin_host/internal.h"

#define TOPIC_MAX_BYTES 128
#define PAYLOAD_MAX_BYTES (1u << 20)
#define PERIOD_MIN_NS NS_PER_MS /* below this a timer is a busy loop */
#define LATE_TIMES 6 /* plugin_timeouts until a tick that is late costs the plugin its place */

struct subscription {
    struct subscription *next;
    int id;
    size_t prefix; /* bytes of topic to compare; the whole with its NUL when there is no '*' */
    void (*fn)(void *arg, const char *topic, const void *payload, uint32_t size);
    void *arg;
    char topic[TOPIC_MAX_BYTES];
};

struct timer {
    struct timer *next;
    struct job job;
    struct host *host;
    void (*fn)(void *self, uint64_t now);
    uint64_t period_ns, due;
    _Atomic bool busy;      /* the job is queued or runs: the tick is dropped */
    _Atomic uint64_t since; /* monotonic ns: it runs since then; 0: it does not */
    bool told;              /* that it is late.  lock: control mutex */
    _Atomic bool left;      /* its worker is left to the tick that runs */
};

int host_publish(struct host *h, const char *topic, const void *payload, uint32_t size)
{
    if (host_is_off(h))
        return -ESHUTDOWN;
    size_t n = topic ? strnlen(topic, TOPIC_MAX_BYTES) : 0;
    if (n == 0 || n == TOPIC_MAX_BYTES)
        return err_set(-EINVAL, "a topic has 1 to %d bytes", TOPIC_MAX_BYTES - 1);
    if (size > PAYLOAD_MAX_BYTES)
        return err_set(-E2BIG, "an event may carry %u bytes, not %u", PAYLOAD_MAX_BYTES, size);
    struct message *m = malloc(sizeof(*m) + size + n + 1);
    if (!m)
        return -ENOMEM;
    *m = (struct message){.size = size};
    if (size)
        memcpy(m + 1, payload, size);
    memcpy((char *)(m + 1) + size, topic, n + 1);
    int rc = control_push(h, m);
    if (rc < 0)
        free(m);
    return rc;
}

int host_subscribe(struct host *h, const char *topic,
                   void (*fn)(void *arg, const char *topic, const void *payload, uint32_t size),
                   void *arg)
{
    struct control *c = &h->control;

    if (host_is_off(h))
        return -ESHUTDOWN;
    size_t n = strnlen(topic, TOPIC_MAX_BYTES);
    if (n == 0 || n == TOPIC_MAX_BYTES)
        return err_set(-EINVAL, "a topic has 1 to %d bytes", TOPIC_MAX_BYTES - 1);
    struct subscription *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(-ENOMEM, "no memory to subscribe to '%s'", topic);
    memcpy(s->topic, topic, n + 1);
    s->prefix = topic[n - 1] == '*' ? n - 1 : n + 1;
    s->fn = fn;
    s->arg = arg;
    (void)pthread_mutex_lock(&c->mutex);
    struct subscription **end = &c->subscriptions;
    while (*end)
        end = &(*end)->next;
    *end = s;
    int id = s->id = ++c->next_id;
    (void)pthread_mutex_unlock(&c->mutex);
    return id;
}

void host_unsubscribe(struct host *h, int id)
{
    struct control *c = &h->control;
    struct subscription *found = NULL;

    if (host_is_off(h))
        return;
    bool here = control_is_here(h);
    (void)pthread_mutex_lock(&c->mutex);
    for (struct subscription **at = &c->subscriptions; *at; at = &(*at)->next) {
        if ((*at)->id == id) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    while (c->handling == id && !here)
        (void)pthread_cond_wait(&c->changed, &c->mutex);
    (void)pthread_mutex_unlock(&c->mutex);
    free(found);
}

/* Give one event to everybody who wants it.  The list may change while a handler runs, so the walk
 * goes by id: ids only grow. */
bool event_handle(struct host *h, uint32_t turn, const char *topic, const void *payload,
                  uint32_t size)
{
    struct control *c = &h->control;
    int last = 0;

    for (;;) {
        struct subscription *s;
        (void)pthread_mutex_lock(&c->mutex);
        if (c->turn != turn) {
            (void)pthread_mutex_unlock(&c->mutex);
            return false;
        }
        c->handling = 0;
        (void)pthread_cond_broadcast(&c->changed);
        for (s = c->subscriptions; s; s = s->next)
            if (s->id > last && strncmp(s->topic, topic, s->prefix) == 0)
                break;
        if (!s) {
            (void)pthread_mutex_unlock(&c->mutex);
            return true;
        }
        last = c->handling = s->id;
        void (*fn)(void *, const char *, const void *, uint32_t) = s->fn;
        void *arg = s->arg;
        (void)pthread_mutex_unlock(&c->mutex);
        fn(arg, topic, payload, size);
    }
}

void events_free(struct host *h)
{
    struct control *c = &h->control;

    while (c->first) {
        struct message *m = c->first;
        c->first = m->next;
        if (!m->fn)
            free(m);
    }
    while (c->subscriptions) {
        struct subscription *s = c->subscriptions;
        c->subscriptions = s->next;
        free(s);
    }
    while (c->timers) {
        struct timer *t = c->timers;
        c->timers = t->next;
        free(t);
    }
}

/* ---- timers ---- */

static void run_timer(struct host *h, struct job *j)
{
    struct timer *t = (struct timer *)((char *)j - offsetof(struct timer, job));
    struct call_mark mark = {.function = "every"};
    (void)h;
    if (plugin_enter(j->plugin, &mark)) {
        uint64_t now = clock_now();
        atomic_store_explicit(&t->left, false, memory_order_relaxed);
        atomic_store_explicit(&t->since, now, memory_order_relaxed);
        t->fn(j->plugin->self, now);
        atomic_store_explicit(&t->since, 0, memory_order_relaxed);
        plugin_leave(j->plugin, &mark);
    }
    /* Last: from here the plugin's stop may free the timer. */
    atomic_store_explicit(&t->busy, false, memory_order_release);
}

/* The timer that calls fn already gets another period; false: there is none. */
static bool timer_change(struct host *h, struct plugin *p, uint64_t period_ns,
                         void (*fn)(void *, uint64_t))
{
    (void)pthread_mutex_lock(&h->control.mutex);
    struct timer *t = h->control.timers;
    while (t && (t->job.plugin != p || t->fn != fn))
        t = t->next;
    if (t) {
        t->period_ns = period_ns;
        t->due = clock_now() + period_ns;
    }
    (void)pthread_mutex_unlock(&h->control.mutex);
    if (t)
        control_wake(h);
    return t != NULL;
}

int timer_add(struct host *h, struct plugin *p, uint64_t period_ns, void (*fn)(void *, uint64_t))
{
    if (period_ns < PERIOD_MIN_NS)
        return err_set(-ERANGE, "plugin '%s': every() needs a period of 1 ms or more", p->name);
    if (timer_change(h, p, period_ns, fn))
        return 0;
    struct timer *t = calloc(1, sizeof(*t));
    if (!t)
        return err_set(-ENOMEM, "no memory for a timer");
    t->host = h;
    t->fn = fn;
    t->period_ns = period_ns;
    t->due = clock_now() + period_ns;
    t->job = (struct job){.run = run_timer, .plugin = p};
    (void)pthread_mutex_lock(&h->control.mutex);
    t->next = h->control.timers;
    h->control.timers = t;
    (void)pthread_mutex_unlock(&h->control.mutex);
    control_wake(h);
    return 0;
}

void timers_remove(struct host *h, struct plugin *p)
{
    struct control *c = &h->control;

    (void)pthread_mutex_lock(&c->mutex);
    for (struct timer **at = &c->timers; *at;) {
        struct timer *t = *at;
        if (t->job.plugin != p) {
            at = &t->next;
            continue;
        }
        /* Running, it has found the plugin closed and ends at once; waiting, it is taken out. */
        if (workers_remove(h, &t->job))
            atomic_store_explicit(&t->busy, false, memory_order_relaxed);
        while (atomic_load_explicit(&t->busy, memory_order_acquire)) {
            struct timespec limit;
            (void)clock_gettime(CLOCK_MONOTONIC, &limit);
            limit.tv_nsec += (long)NS_PER_MS;
            limit.tv_sec += limit.tv_nsec / (long)NS_PER_S;
            limit.tv_nsec %= (long)NS_PER_S;
            (void)pthread_cond_timedwait(&c->changed, &c->mutex, &limit);
        }
        *at = t->next;
        free(t);
        at = &c->timers; /* the lock was open meanwhile: begin again */
    }
    (void)pthread_mutex_unlock(&c->mutex);
}

/* lock: control mutex.  Nobody waits for the tick any more, and another worker takes the place of
 * its.  false: it has come back. */
static bool leave_to(struct host *h, struct timer *t)
{
    if (atomic_load_explicit(&t->since, memory_order_relaxed) == 0)
        return false;
    if (!atomic_load_explicit(&t->left, memory_order_relaxed))
        atomic_store_explicit(&t->left, workers_leave_to(h, &t->job), memory_order_relaxed);
    return atomic_load_explicit(&t->left, memory_order_relaxed);
}

bool timers_watch(struct host *h, uint64_t now)
{
    struct control *c = &h->control;
    uint64_t limit = atomic_load_explicit(&h->call_ns, memory_order_relaxed);
    struct plugin *too_late = NULL;
    bool inside = false;

    (void)pthread_mutex_lock(&c->mutex);
    for (struct timer *t = c->timers; t; t = t->next) {
        uint64_t since = atomic_load_explicit(&t->since, memory_order_relaxed);
        inside |= since != 0;
        bool late = since != 0 && now > since && now - since > limit;
        if (late != t->told)
            plugin_late(t->job.plugin, late ? "every() function" : NULL, limit);
        t->told = late;
        if (late && leave_to(h, t) && now - since > LATE_TIMES * limit &&
            plugin_state_of(t->job.plugin) == PLUGIN_RUNNING)
            too_late = t->job.plugin;
    }
    (void)pthread_mutex_unlock(&c->mutex);
    if (too_late)
        (void)plugin_give_up_tick(too_late);
    return inside;
}

bool timers_late(struct host *h, struct plugin *p)
{
    bool late = false;
    (void)pthread_mutex_lock(&h->control.mutex);
    for (struct timer *t = h->control.timers; t; t = t->next)
        late = late || (t->job.plugin == p && t->told);
    (void)pthread_mutex_unlock(&h->control.mutex);
    return late;
}

/* The timer stays: whoever is inside will look at it when it comes back. */
uint32_t timers_leave(struct host *h, struct plugin *p)
{
    uint32_t n = 0;
    (void)pthread_mutex_lock(&h->control.mutex);
    for (struct timer *t = h->control.timers; t; t = t->next)
        if (t->job.plugin == p && leave_to(h, t))
            n++;
    (void)pthread_mutex_unlock(&h->control.mutex);
    return n;
}

uint64_t timers_run(struct host *h, uint64_t now)
{
    struct control *c = &h->control;
    uint64_t next = 0;

    (void)pthread_mutex_lock(&c->mutex);
    for (struct timer *t = c->timers; t; t = t->next) {
        if (atomic_load_explicit(&t->job.plugin->state, memory_order_acquire) != PLUGIN_RUNNING)
            continue;
        if (t->due <= now) {
            /* Ticks that were missed are dropped, and the rhythm stays. */
            t->due += ((now - t->due) / t->period_ns + 1) * t->period_ns;
            if (!atomic_exchange_explicit(&t->busy, true, memory_order_acq_rel) &&
                workers_add(h, &t->job, /* ret_out= */ NULL) < 0)
                atomic_store_explicit(&t->busy, false, memory_order_release);
        }
        if (next == 0 || t->due < next)
            next = t->due;
    }
    (void)pthread_mutex_unlock(&c->mutex);
    return next;
}
