/* SPDX-License-Identifier: Apache-2.0
 *
 * core/host/control.c - the control thread: calls that others wait for, events, timers, the door.
 *
 * Threads: anybody may push a message; the loop runs on "probing/control", which blocks in poll()
 * and is woken by an eventfd.  It does no work of its own: what a message asks for is elsewhere.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/thread.h"
#include "core/host/inner.h"

#define CONTROL_STACK ((size_t)1 << 20) /* bytes: plugins' init and start run here, dlopen too */

int control_init(struct host *h)
{
    struct control *c = &h->control;
    pthread_condattr_t attr;

    c->wake_fd = -1;
    (void)pthread_mutex_init(&c->mutex, NULL);
    if (pthread_condattr_init(&attr))
        return err_set(-ENOMEM, "no memory for the control thread");
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int r = pthread_cond_init(&c->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    return r ? err_set(-r, "no condition for the control thread") : 0;
}

bool control_is_here(struct host *h)
{
    pid_t tid = atomic_load_explicit(&h->control.tid, memory_order_acquire);
    return tid != 0 && tid == (pid_t)syscall(SYS_gettid);
}

void control_wake(struct host *h)
{
    static const uint64_t one = 1;
    if (h->control.wake_fd != -1)
        (void)!write(h->control.wake_fd, &one, sizeof(one)); /* full: it will wake anyhow */
}

/* Append to the queue.  -ESHUTDOWN: nobody would take it out again. */
int control_push(struct host *h, struct message *m)
{
    struct control *c = &h->control;
    int r = 0;

    m->next = NULL;
    (void)pthread_mutex_lock(&c->mutex);
    if (c->stop || !c->started) {
        r = -ESHUTDOWN;
    } else if (!m->fn && c->n_events >= HOST_EVENTS_MAX) {
        r = -ENOBUFS;
    } else {
        c->n_events += m->fn ? 0 : 1;
        if (c->last)
            c->last->next = m;
        else
            c->first = m;
        c->last = m;
    }
    (void)pthread_mutex_unlock(&c->mutex);
    if (r == 0)
        control_wake(h);
    return r;
}

int host_on_control(struct host *h, int (*fn)(void *arg), void *arg)
{
    struct control *c = &h->control;
    char why[ERR_TEXT_BYTES] = "";
    struct message m = {.fn = fn, .arg = arg, .why = why};

    if (host_is_off(h))
        return -ESHUTDOWN;
    (void)pthread_mutex_lock(&c->mutex);
    bool started = c->started;
    (void)pthread_mutex_unlock(&c->mutex);
    if (!started || control_is_here(h))
        return fn(arg); /* before the start the caller is alone */
    int r = control_push(h, &m);
    if (r < 0)
        return err_set(r, "the core is being stopped");
    (void)pthread_mutex_lock(&c->mutex);
    while (!m.done)
        (void)pthread_cond_wait(&c->changed, &c->mutex);
    (void)pthread_mutex_unlock(&c->mutex);
    if (m.result < 0)
        return err_set(m.result, "%s", why); /* the reason was kept on another thread */
    return m.result;
}

static void answer(struct control *c, struct message *m, int result)
{
    if (result < 0)
        (void)snprintf(m->why, ERR_TEXT_BYTES, "%s", err_why(result));
    (void)pthread_mutex_lock(&c->mutex);
    m->result = result;
    m->done = true;
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->mutex);
}

static struct message *take(struct control *c, bool *ret_stop)
{
    (void)pthread_mutex_lock(&c->mutex);
    struct message *m = c->first;
    if (m) {
        c->first = m->next;
        if (!c->first)
            c->last = NULL;
        c->n_events -= m->fn ? 0 : 1;
    }
    *ret_stop = c->stop;
    (void)pthread_mutex_unlock(&c->mutex);
    return m;
}

static int wait_ms(uint64_t now, uint64_t a, uint64_t b)
{
    uint64_t next = a == 0 || (b != 0 && b < a) ? b : a;
    if (next == 0)
        return 60000; /* the door's silent peers are looked at now and then */
    if (next <= now)
        return 0;
    uint64_t ms = (next - now + NS_PER_MS - 1) / NS_PER_MS;
    return ms < 60000 ? (int)ms : 60000;
}

static void wait_for_work(struct host *h)
{
    struct pollfd fds[2 + HOST_DOOR_PEERS] = {{.fd = h->control.wake_fd, .events = POLLIN}};
    uint64_t now = clock_now();
    uint64_t next_tick = timers_run(h, now);
    uint64_t next_limit = workers_expire(h, now);
    uint32_t n = door_poll(h, fds + 1, 1 + HOST_DOOR_PEERS);
    uint64_t count;

    int timeout = wait_ms(now, next_tick, next_limit);
    if (n > 1 && timeout > 1000)
        timeout = 1000; /* somebody stands in the door: see whether he ever speaks */
    if (poll(fds, 1 + n, timeout) < 0)
        return;
    if (fds[0].revents)
        (void)!read(h->control.wake_fd, &count, sizeof(count));
    door_serve(h, fds + 1, n);
}

static void *control_loop(void *arg)
{
    struct host *h = arg;
    struct control *c = &h->control;
    bool stop = false;

    atomic_store_explicit(&c->tid, (pid_t)syscall(SYS_gettid), memory_order_release);
    while (!stop) {
        struct message *m;
        while ((m = take(c, &stop))) {
            if (!m->fn) {
                const char *payload = (const char *)(m + 1);
                event_handle(h, payload + m->size, payload, m->size);
                free(m);
            } else {
                err_clear();
                answer(c, m, m->fn(m->arg));
            }
        }
        if (!stop)
            wait_for_work(h);
    }
    return NULL;
}

int control_start(struct host *h)
{
    struct control *c = &h->control;

    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake_fd == -1)
        return err_set(-errno, "no eventfd for the control thread: %s", strerror(errno));
    c->started = true; /* still alone: the thread comes next */
    int r = thread_start(&c->thread, "probing/control", CONTROL_STACK, control_loop, h);
    if (r < 0)
        c->started = false;
    return r;
}

void control_stop(struct host *h)
{
    struct control *c = &h->control;

    (void)pthread_mutex_lock(&c->mutex);
    bool started = c->started;
    c->stop = true;
    (void)pthread_mutex_unlock(&c->mutex);
    if (!started)
        return;
    control_wake(h);
    (void)pthread_join(c->thread, NULL);
    c->started = false;
}

void control_done(struct host *h)
{
    if (h->control.wake_fd != -1)
        (void)close(h->control.wake_fd);
    h->control.wake_fd = -1;
    (void)pthread_cond_destroy(&h->control.changed);
    (void)pthread_mutex_destroy(&h->control.mutex);
}
