/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/control_thread.c - the control thread: calls that others wait for, events,
 * timers, the door.
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
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/guest/thread.h"
#include "core/plugin_host/internal.h"
#include "sdk/lib/proc/task.h"

#define CONTROL_STACK ((size_t)1 << 20) /* bytes: plugins' init and start run here, dlopen too */
#define STRAY_NS (NS_PER_S / 5) /* for a thread that came back to find that it was replaced */
#define REFUSED_MS 100          /* until we look again where the kernel refuses to wait for us */

int control_init(struct host *h)
{
    struct control *c = &h->control;
    pthread_condattr_t attr;

    atomic_store_explicit(&c->wake_fd, -1, memory_order_relaxed);
    (void)pthread_mutex_init(&c->mutex, NULL);
    if (pthread_condattr_init(&attr))
        return err_set(-ENOMEM, "no memory for the control thread");
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(&c->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    return rc ? err_set(-rc, "no condition for the control thread") : 0;
}

bool control_is_here(struct host *h)
{
    pid_t tid = atomic_load_explicit(&h->control.tid, memory_order_acquire);
    return tid != 0 && tid == (pid_t)syscall(SYS_gettid);
}

void control_wake(struct host *h)
{
    static const uint64_t one = 1;
    int fd = atomic_load_explicit(&h->control.wake_fd, memory_order_acquire);
    if (fd != -1)
        (void)!write(fd, &one, sizeof(one)); /* full: it will wake anyhow */
}

void control_watch(struct host *h)
{
    if (file_is_closed(atomic_load_explicit(&h->control.wake_fd, memory_order_acquire)))
        socket_knock(h->door.path, SOCK_SEQPACKET);
}

void control_wake_for(struct host *h, uint64_t deadline)
{
    if (deadline < atomic_load_explicit(&h->control.sleeps_until, memory_order_acquire))
        control_wake(h);
}

/* Append to the queue.  -ESHUTDOWN: nobody would take it out again. */
int control_push(struct host *h, struct message *m)
{
    struct control *c = &h->control;
    int rc = 0;

    m->next = NULL;
    (void)pthread_mutex_lock(&c->mutex);
    if (c->stop || !c->started) {
        rc = -ESHUTDOWN;
    } else if (!m->fn && c->n_events >= HOST_EVENTS_MAX) {
        rc = -ENOBUFS;
    } else {
        c->n_events += m->fn ? 0 : 1;
        if (c->last)
            c->last->next = m;
        else
            c->first = m;
        c->last = m;
    }
    (void)pthread_mutex_unlock(&c->mutex);
    if (rc == 0)
        control_wake(h);
    return rc;
}

int host_on_control(struct host *h, int (*fn)(void *arg), void *arg)
{
    struct control *c = &h->control;
    struct err_kept why = {0};
    struct message m = {.fn = fn, .arg = arg, .why = &why};

    if (host_is_off(h))
        return -ESHUTDOWN;
    (void)pthread_mutex_lock(&c->mutex);
    bool started = c->started;
    (void)pthread_mutex_unlock(&c->mutex);
    if (!started || control_is_here(h))
        return fn(arg); /* before the start the caller is alone */
    int rc = control_push(h, &m);
    if (rc < 0)
        return err_set(rc, "the core is being stopped");
    (void)pthread_mutex_lock(&c->mutex);
    while (!m.done)
        (void)pthread_cond_wait(&c->changed, &c->mutex);
    (void)pthread_mutex_unlock(&c->mutex);
    return m.result < 0 ? err_restore(&why) : m.result;
}

/* ---- calls with a limit ---- */

struct limited {
    struct message m; /* first */
    struct err_kept why;
};

static void limited_free(struct message *m)
{
    m->drop(m->arg);
    free(m);
}

/* lock held.  It has not begun: nobody will run it now. */
static void take_back(struct control *c, struct message *m)
{
    struct message *previous = NULL;
    for (struct message *at = c->first; at && at != m; at = at->next)
        previous = at;
    if (previous)
        previous->next = m->next;
    else
        c->first = m->next;
    if (c->last == m)
        c->last = previous;
}

static void *control_loop(void *arg);

/* "probing/..." is a thread that eject ends; this one is the plugin's now. */
void thread_left(pid_t tid)
{
    static const char name[] = "plugin-left";
    (void)proc_comm_set(tid, name); /* it is only a name */
}

/* lock held.  The thread that is inside ends when it comes back; nobody joins it. */
static int replace_thread(struct host *h)
{
    struct control *c = &h->control;
    pthread_t next;

    pid_t old = atomic_load_explicit(&c->tid, memory_order_acquire);
    c->turn++;
    int rc = thread_start(&next, "probing/control", CONTROL_STACK, control_loop, h);
    if (rc < 0) {
        c->turn--;
        return rc;
    }
    (void)pthread_detach(c->thread);
    c->strays++;
    thread_left(old);
    c->thread = next;
    c->current = NULL;
    return 0;
}

int control_leave_handler(struct host *h)
{
    struct control *c = &h->control;
    (void)pthread_mutex_lock(&c->mutex);
    int rc = c->stop ? -ESHUTDOWN : replace_thread(h);
    if (rc == 0) {
        c->handling = 0; /* nobody waits for it any more */
        (void)pthread_cond_broadcast(&c->changed);
    }
    (void)pthread_mutex_unlock(&c->mutex);
    return rc;
}

/* lock held.  Gives 0 when it was answered in time. */
static int wait_limited(struct host *h, struct message *m, uint64_t limit_ns)
{
    struct control *c = &h->control;
    struct timespec limit;
    int r = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_sec += (time_t)(limit_ns / NS_PER_S);
    limit.tv_nsec += (long)(limit_ns % NS_PER_S);
    limit.tv_sec += limit.tv_nsec / (long)NS_PER_S;
    limit.tv_nsec %= (long)NS_PER_S;
    while (!m->done && r == 0)
        r = pthread_cond_timedwait(&c->changed, &c->mutex, &limit);
    if (m->done)
        return 0;
    if (c->current != m) {
        take_back(c, m);
        return -EBUSY;
    }
    /* Without a thread to go on we can only go on waiting. */
    while (!m->done && replace_thread(h) < 0)
        (void)pthread_cond_timedwait(&c->changed, &c->mutex, &limit);
    m->abandoned = !m->done;
    return m->done ? 0 : -ETIMEDOUT;
}

int control_call(struct host *h, int (*fn)(void *arg), void *arg, void (*drop)(void *arg),
                 uint64_t limit_ns, bool *ret_inside)
{
    struct control *c = &h->control;
    struct limited *l = calloc(1, sizeof(*l));

    *ret_inside = false;
    if (!l) {
        drop(arg);
        return err_set(-ENOMEM, "no memory for a call on the control thread");
    }
    l->m = (struct message){.fn = fn, .arg = arg, .drop = drop, .why = &l->why};
    (void)pthread_mutex_lock(&c->mutex);
    bool started = c->started;
    (void)pthread_mutex_unlock(&c->mutex);
    if (!started || control_is_here(h)) {
        int rc = fn(arg);
        limited_free(&l->m);
        return rc;
    }
    int rc = control_push(h, &l->m);
    if (rc < 0) {
        limited_free(&l->m);
        return err_set(rc, "the core is being stopped");
    }
    (void)pthread_mutex_lock(&c->mutex);
    rc = wait_limited(h, &l->m, limit_ns);
    int result = l->m.result;
    (void)pthread_mutex_unlock(&c->mutex);
    *ret_inside = rc == -ETIMEDOUT;
    if (rc == -ETIMEDOUT)
        return rc; /* the message is its runner's now */
    if (rc == -EBUSY)
        (void)err_set(
            rc, "another plugin is being loaded or stopped, which takes a long time; plugin list "
                "shows which one; try again later");
    else
        rc = result < 0 ? err_restore(&l->why) : result;
    limited_free(&l->m);
    return rc;
}

static void answer_message(struct control *c, struct message *m, int result)
{
    (void)pthread_mutex_lock(&c->mutex);
    bool abandoned = m->abandoned;
    if (!abandoned) {
        if (result < 0)
            err_keep(m->why, result);
        c->current = NULL;
        m->result = result;
        m->done = true;
        (void)pthread_cond_broadcast(&c->changed);
    }
    (void)pthread_mutex_unlock(&c->mutex);
    if (abandoned)
        limited_free(m);
}

/* NULL: nothing waits, or somebody else is the control thread now (then *ret_stop is set). */
static struct message *take_message(struct control *c, uint32_t turn, bool *ret_stop)
{
    (void)pthread_mutex_lock(&c->mutex);
    bool mine = c->turn == turn;
    struct message *m = mine ? c->first : NULL;
    if (m) {
        c->first = m->next;
        if (!c->first)
            c->last = NULL;
        c->n_events -= m->fn ? 0 : 1;
    }
    if (mine)
        c->current = m;
    *ret_stop = c->stop || !mine;
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

static int make_wake_fd(struct control *c)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd == -1)
        return err_set(-errno, "no eventfd for the control thread: %s", strerror(errno));
    atomic_store_explicit(&c->wake_fd, fd, memory_order_release);
    return 0;
}

/* The program has closed descriptors that it did not open.  The old number is not given back:
 * somebody may be about to write to it. */
static void open_again(struct host *h, bool wake, bool door)
{
    if (wake && make_wake_fd(&h->control) < 0)
        (void)poll(NULL, 0, REFUSED_MS);
    if (door)
        upload_socket_open_again(h);
}

static void wait_for_work(struct host *h)
{
    int wake_fd = atomic_load_explicit(&h->control.wake_fd, memory_order_relaxed);
    struct pollfd fds[2 + HOST_UPLOAD_CLIENTS] = {{.fd = wake_fd, .events = POLLIN}};
    uint64_t now = clock_now();
    /* Before the look at the limits: who adds one behind it must see this, or what comes below. */
    atomic_store_explicit(&h->control.sleeps_until, UINT64_MAX, memory_order_release);
    uint64_t next_tick = timers_run(h, now);
    commands_expire(h, now);
    uint64_t next_limit = workers_expire(h, now);
    uint32_t n = upload_socket_poll(h, fds + 1, 1 + HOST_UPLOAD_CLIENTS);
    uint64_t count;

    int timeout = wait_ms(now, next_tick, next_limit);
    if (n > 1 && timeout > 1000)
        timeout = 1000; /* somebody stands in the door: see whether he ever speaks */
    atomic_store_explicit(&h->control.sleeps_until, now + (uint64_t)timeout * NS_PER_MS,
                          memory_order_release);
    int ready = poll(fds, 1 + n, timeout);
    if (ready < 0 && errno == EINTR)
        return;
    if (ready < 0) { /* RLIMIT_NOFILE is below so few descriptors now: who comes is found late */
        (void)poll(NULL, 0, timeout < REFUSED_MS ? timeout : REFUSED_MS);
        n = 0;
    }
    bool wake_closed = fds[0].revents & POLLNVAL, door_closed = n > 0 && fds[1].revents & POLLNVAL;
    if (wake_closed || door_closed)
        open_again(h, wake_closed, door_closed);
    else if (fds[0].revents || ready < 0)
        (void)!read(wake_fd, &count, sizeof(count));
    upload_socket_serve(h, fds + 1, door_closed ? 0 : n);
}

/* The last that a thread does which was replaced: the host may be gone afterwards. */
static void end_stray(struct host *h)
{
    struct control *c = &h->control;

    plugins_thread_back(h, (pid_t)syscall(SYS_gettid));
    (void)pthread_mutex_lock(&c->mutex);
    c->strays--;
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->mutex);
}

static void *control_loop(void *arg)
{
    struct host *h = arg;
    struct control *c = &h->control;
    bool stop = false;

    (void)pthread_mutex_lock(&c->mutex);
    uint32_t turn = c->turn;
    (void)pthread_mutex_unlock(&c->mutex);
    atomic_store_explicit(&c->tid, (pid_t)syscall(SYS_gettid), memory_order_release);
    while (!stop) {
        struct message *m;
        while ((m = take_message(c, turn, &stop))) {
            if (!m->fn) {
                const char *payload = (const char *)(m + 1);
                bool mine = event_handle(h, turn, payload + m->size, payload, m->size);
                free(m);
                if (!mine) {
                    end_stray(h);
                    return NULL;
                }
            } else {
                err_clear();
                answer_message(c, m, m->fn(m->arg));
            }
        }
        if (!stop)
            wait_for_work(h);
    }
    (void)pthread_mutex_lock(&c->mutex);
    bool replaced = c->turn != turn;
    (void)pthread_mutex_unlock(&c->mutex);
    if (replaced) /* in the moment in which the handler came back */
        end_stray(h);
    return NULL;
}

int control_start(struct host *h)
{
    struct control *c = &h->control;

    int rc = make_wake_fd(c);
    if (rc < 0)
        return rc;
    c->started = true; /* still alone: the thread comes next */
    rc = thread_start(&c->thread, "probing/control", CONTROL_STACK, control_loop, h);
    if (rc < 0)
        c->started = false;
    return rc;
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
    control_watch(h);
    (void)pthread_join(c->thread, NULL);
    c->started = false;
}

void control_close(struct control *c)
{
    int fd = atomic_exchange_explicit(&c->wake_fd, -1, memory_order_relaxed);
    if (fd != -1)
        (void)close(fd);
}

bool control_alone(struct host *h)
{
    struct control *c = &h->control;
    struct timespec limit = {0};
    uint64_t end = clock_monotonic() + STRAY_NS;
    int r = 0;

    limit.tv_sec = (time_t)(end / NS_PER_S);
    limit.tv_nsec = (int64_t)(end % NS_PER_S);
    (void)pthread_mutex_lock(&c->mutex);
    while (c->strays > 0 && r == 0)
        r = pthread_cond_timedwait(&c->changed, &c->mutex, &limit);
    bool alone = c->strays == 0;
    (void)pthread_mutex_unlock(&c->mutex);
    return alone;
}

void control_done(struct host *h)
{
    control_close(&h->control);
    (void)pthread_cond_destroy(&h->control.changed);
    (void)pthread_mutex_destroy(&h->control.mutex);
}
