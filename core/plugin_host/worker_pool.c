/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/worker_pool.c - the threads that run commands and ticks, and the time limits of
 * commands.
 *
 * Threads: "probing/work", two of them; up to eight while all are busy, because a command may wait
 * for somebody (the GIL of a process that hangs) and `query` must be answered all the same.  One
 * that waits for its client to read, or for a plugin, holds a thread and no place: sixteen such at
 * most, then of those whose clients do not read the one that has waited longest ends when others
 * want its thread.
 *
 * Who is next: of the jobs that may run (a client has four at most, a stream's ticks are few) the
 * one whose client has had the fewest turns, counted from when it came (start-time fair queueing),
 * so that a client with sixty requests has no more than one with one.  What is urgent waits behind
 * nothing: a thread of its own takes it when no other is free, and two others what is urgent and
 * may take a while, as the stop of a plugin.  Of one plugin few commands and ticks run at once.
 *
 * It does not interrupt anything: a limit sets `cancelled`, and the command looks at it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/guest/thread.h"
#include "core/plugin_host/internal.h"

#define WORKER_STACK ((size_t)1 << 20) /* bytes: SQL recurses into nested expressions */
#define EXTRA_IDLE_NS (10 * NS_PER_S)  /* an extra worker with nothing to do goes home */
#define CROWDED_NS (NS_PER_S / 2)      /* a client that reads at all has read something by then */
#define END_NS (NS_PER_S / 5)          /* for one that was left, and is back, to end */
#define OWN_AT (HOST_WORKERS_ALL - HOST_WORKERS_OWN) /* threads that lanes have to themselves */

int workers_init(struct host *h)
{
    struct workers *w = &h->workers;
    pthread_condattr_t attr;

    (void)pthread_mutex_init(&w->mutex, NULL);
    if (pthread_condattr_init(&attr))
        return err_set(-ENOMEM, "no memory for the workers");
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = 0;
    for (int lane = LANE_ANY; lane <= LANE_LONG && rc == 0; lane++)
        rc = pthread_cond_init(&w->wake[lane], &attr);
    rc = rc ? rc : pthread_cond_init(&w->quiet, &attr);
    (void)pthread_condattr_destroy(&attr);
    for (int i = 0; i < HOST_WORKERS_ALL; i++)
        w->slots[i] = (struct worker){.host = h,
                                      .extra = i >= HOST_WORKERS,
                                      .lane = i < OWN_AT    ? LANE_ANY
                                              : i == OWN_AT ? LANE_SHORT
                                                            : LANE_LONG};
    return rc ? err_set(-rc, "no condition for the workers") : 0;
}

static void unlink_job(struct job **list, struct job *j)
{
    if (j->previous)
        j->previous->next = j->next;
    else
        *list = j->next;
    if (j->next)
        j->next->previous = j->previous;
    j->next = j->previous = NULL;
}

static void unlink_waiting(struct workers *w, struct job *j)
{
    if (w->last == j)
        w->last = j->previous;
    unlink_job(&w->first, j);
    w->n_queued--;
    if (!j->counted)
        return;
    w->n_waiting--;
    w->waiting_bytes -= j->bytes;
    j->client->waiting--;
    j->client->waiting_bytes -= j->bytes;
}

static void link_running(struct workers *w, struct job *j)
{
    j->previous = NULL;
    j->next = w->running;
    if (w->running)
        w->running->previous = j;
    w->running = j;
}

/* ---- who is next; the lock is held ---- */

static bool is_held_back(const struct workers *w, const struct job *j)
{
    if (w->stop || w->leaving) /* it is cancelled, and run for its done() only */
        return false;
    if (j->plugin && j->plugin->n_jobs >= HOST_PLUGIN_CALLS)
        return true;
    if (j->stream)
        return w->n_streams >= HOST_STREAMS_MAX || j->client->running > 0;
    return j->client != &w->core && j->lane == LANE_ANY && j->client->running >= HOST_CLIENT_MAX;
}

/* The job to run next, by a thread of that lane. */
static struct job *choose_job(const struct workers *w, enum job_lane lane)
{
    struct job *best = NULL;
    for (struct job *j = w->first; j; j = j->next)
        if ((lane == LANE_ANY || j->lane == lane) &&
            (!best || j->client->turn < best->client->turn) && !is_held_back(w, j))
            best = j;
    return best;
}

/* Commands go into the running list, so that they can be told to end; ticks do not, because nobody
 * owns them once they have run. */
static void take_job(struct workers *w, struct job *j)
{
    unlink_waiting(w, j);
    w->turn = j->client->turn > w->turn ? j->client->turn : w->turn;
    j->client->turn += j->lane == LANE_SHORT ? 0 : 1;
    if (!j->reply)
        return;
    link_running(w, j);
    j->client->running += j->lane == LANE_ANY ? 1 : 0;
    w->n_streams += j->stream ? 1 : 0;
}

/* It does not run any more, or waits for nobody. */
static void leave_running(struct workers *w, struct job *j)
{
    unlink_job(&w->running, j);
    w->n_blocked -= j->blocked_ns ? 1 : 0;
    w->n_streams -= j->stream ? 1 : 0;
    if (j->client && j->lane == LANE_ANY) /* NULL: workers_enter() */
        j->client->running--;
}

static int start_one(struct workers *w, enum job_lane lane);

/* A job may have become one that can run: which lanes are to be woken for it, a bit each?  None:
 * then it waits. */
static uint32_t find_worker(struct workers *w)
{
    uint32_t found = 0;
    if (!w->first || w->stop) /* then those that wait have been woken, and nobody joins new ones */
        return 0;
    if (choose_job(w, LANE_ANY)) {
        if (w->n_queued > w->n_idle)
            (void)start_one(w, LANE_ANY);
        found |= 1u << LANE_ANY;
    }
    for (int lane = LANE_SHORT; lane <= LANE_LONG && w->n_idle == 0; lane++)
        if (choose_job(w, (enum job_lane)lane)) {
            (void)start_one(w, (enum job_lane)lane);
            found |= 1u << lane;
        }
    return found;
}

static void wake_found(struct workers *w, uint32_t found)
{
    for (int lane = LANE_ANY; lane <= LANE_LONG; lane++)
        if (found & 1u << lane)
            (void)pthread_cond_signal(&w->wake[lane]);
}

static void call_worker(struct workers *w)
{
    wake_found(w, find_worker(w));
}

/* ---- commands that run ---- */

void workers_enter(struct host *h, struct job *j)
{
    (void)pthread_mutex_lock(&h->workers.mutex);
    link_running(&h->workers, j);
    (void)pthread_mutex_unlock(&h->workers.mutex);
}

void workers_ending(struct host *h, struct job *j)
{
    struct workers *w = &h->workers;
    (void)pthread_mutex_lock(&w->mutex);
    leave_running(w, j);
    w->n_ending++;
    call_worker(w); /* its done() may take its time */
    (void)pthread_mutex_unlock(&w->mutex);
}

void workers_ended(struct host *h)
{
    struct workers *w = &h->workers;
    (void)pthread_mutex_lock(&w->mutex);
    w->n_ending--;
    (void)pthread_cond_broadcast(&w->quiet); /* host_quiet() may wait for this */
    (void)pthread_mutex_unlock(&w->mutex);
}

void workers_leave(struct host *h, struct job *j)
{
    workers_ending(h, j);
    workers_ended(h);
}

/* Is there a thread for a job that waits, if one more is started?  The lock is held. */
static bool has_room(const struct workers *w)
{
    uint32_t n = 0;
    for (int i = 0; i < OWN_AT; i++)
        n += w->slots[i].state == WORKER_RUNS ? 1 : 0;
    return w->n_idle > 0 || (n < OWN_AT && n < HOST_WORKERS_MAX + w->n_blocked);
}

bool host_waits_for_client(struct host *h, struct probing_reply *r, uint64_t since_ns)
{
    struct workers *w = &h->workers;
    bool longest = true;

    (void)pthread_mutex_lock(&w->mutex);
    struct job *j = w->running;
    while (j && j->reply != r)
        j = j->next;
    if (j) {
        w->n_blocked += (since_ns ? 1u : 0u) - (j->blocked_ns ? 1u : 0u);
        j->blocked_ns = since_ns;
        call_worker(w);
    }
    for (struct job *other = w->running; other && since_ns; other = other->next)
        longest = longest && (other->blocked_ns == 0 || other->blocked_ns >= since_ns);
    bool crowded = j && since_ns && longest && clock_now() > since_ns + CROWDED_NS &&
                   choose_job(w, LANE_ANY) && !has_room(w);
    (void)pthread_mutex_unlock(&w->mutex);
    return crowded;
}

void workers_give_place(struct host *h, int n)
{
    struct workers *w = &h->workers;
    (void)pthread_mutex_lock(&w->mutex);
    w->n_blocked += (uint32_t)n;
    call_worker(w);
    (void)pthread_mutex_unlock(&w->mutex);
}

/* ---- the threads ---- */

/* lock held, and given up: it was left to a tick, which has come back. */
static void end_left(struct workers *w, struct plugin *p)
{
    (void)pthread_mutex_unlock(&w->mutex);
    plugin_came_back(p);
    (void)pthread_mutex_lock(&w->mutex);
    w->n_left--; /* the host may go from here on */
    (void)pthread_cond_broadcast(&w->quiet);
    (void)pthread_mutex_unlock(&w->mutex);
}

static void *worker_thread(void *arg)
{
    struct worker *self = arg;
    struct host *h = self->host;
    struct workers *w = &h->workers;
    pthread_cond_t *wake = &w->wake[self->lane];
    uint32_t idle = self->lane == LANE_ANY ? 1 : 0; /* as it counts among those that are */

    (void)pthread_mutex_lock(&w->mutex);
    uint32_t turn = self->turn;
    self->tid = (pid_t)syscall(SYS_gettid);
    for (;;) {
        int timed_out = 0;
        struct job *j;
        struct timespec limit = in_future(EXTRA_IDLE_NS);
        while (!(j = choose_job(w, self->lane)) && !w->stop && !(self->extra && timed_out))
            timed_out = self->extra ? pthread_cond_timedwait(wake, &w->mutex, &limit)
                                    : pthread_cond_wait(wake, &w->mutex);
        w->n_idle -= idle;
        if (!j)
            break;
        take_job(w, j);
        call_worker(w); /* of a signal only one wakes, and it may have been for two */
        struct plugin *plugin = j->plugin;
        if (plugin)
            plugin->n_jobs++;
        self->job = j;
        (void)pthread_mutex_unlock(&w->mutex);
        err_clear();
        j->run(h, j);
        (void)pthread_mutex_lock(&w->mutex);
        if (self->turn != turn) { /* somebody else has this place */
            end_left(w, plugin);
            return NULL;
        }
        self->job = NULL;
        if (plugin)
            plugin->n_jobs--;
        w->n_idle += idle;
    }
    self->state = WORKER_ENDED;
    (void)pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static int start_slot(struct workers *w, struct worker *s)
{
    if (s->state == WORKER_ENDED)
        (void)pthread_join(s->thread, NULL); /* it has left the lock for the last time */
    s->state = WORKER_NONE;
    int rc = thread_start(&s->thread, "probing/work", WORKER_STACK, worker_thread, s);
    if (rc == 0) {
        s->state = WORKER_RUNS;
        /* Counted from here, or two jobs at once would both count on it. */
        w->n_idle += s->lane == LANE_ANY ? 1 : 0;
    }
    return rc;
}

/* Start one more worker, if one may be.  Called with the lock held: the new thread waits for it, we
 * do not wait for the thread. */
static int start_one(struct workers *w, enum job_lane lane)
{
    struct worker *found = NULL;
    uint32_t running = 0;

    for (struct worker *s = w->slots; s < w->slots + HOST_WORKERS_ALL; s++) {
        running += s->lane == lane && s->state == WORKER_RUNS ? 1 : 0;
        if (s->lane == lane && s->state != WORKER_RUNS && !found)
            found = s;
    }
    bool may = lane != LANE_ANY || running < HOST_WORKERS_MAX + w->n_blocked;
    return found && may ? start_slot(w, found) : -EAGAIN;
}

bool workers_leave_to(struct host *h, const struct job *j)
{
    struct workers *w = &h->workers;
    bool found = false;

    (void)pthread_mutex_lock(&w->mutex);
    for (int i = 0; i < HOST_WORKERS_ALL && !found; i++) {
        struct worker *s = &w->slots[i];
        found = s->state == WORKER_RUNS && s->job == j;
        if (!found)
            continue;
        (void)pthread_detach(s->thread);
        thread_left(s->tid);
        if (j->plugin)
            j->plugin->n_jobs--;
        s->turn++;
        w->n_left++;
        s->job = NULL;
        s->state = WORKER_NONE;
        if (!w->stop)
            (void)start_slot(w, s);
    }
    (void)pthread_mutex_unlock(&w->mutex);
    return found;
}

int workers_start(struct host *h)
{
    struct workers *w = &h->workers;
    int rc = 0;

    (void)pthread_mutex_lock(&w->mutex);
    for (int i = 0; i < HOST_WORKERS && rc == 0; i++)
        rc = start_slot(w, &w->slots[i]);
    (void)pthread_mutex_unlock(&w->mutex);
    return rc;
}

/* Take the newest command of the client that has the most waiting (by number, or by words), for one
 * that has less even with its own.  NULL: there is none.  The lock is held. */
static struct job *push_out(struct workers *w, const struct job *newcomer, bool by_bytes)
{
    const struct host_client *c = newcomer->client;
    size_t most = by_bytes ? c->waiting_bytes + newcomer->bytes : c->waiting + 1;
    struct job *found = NULL;
    for (struct job *j = w->first; j; j = j->next) {
        size_t has = by_bytes ? j->client->waiting_bytes : j->client->waiting;
        bool same = found && j->client == found->client;
        if (!j->counted || (has <= most && !same))
            continue;
        most = has;
        found = j;
    }
    if (found) {
        unlink_waiting(w, found);
        w->n_ending++;
    }
    return found;
}

static int make_room(struct workers *w, const struct job *j, struct job **ret_out)
{
    *ret_out = NULL;
    for (;;) {
        bool by_bytes = w->n_waiting < HOST_WAITING_MAX;
        if (by_bytes && w->waiting_bytes + j->bytes <= HOST_WAITING_BYTES)
            return 0;
        struct job *out = push_out(w, j, by_bytes);
        if (!out)
            return err_set(
                -EAGAIN, "%u commands are waiting already; try again when some have been answered",
                w->n_waiting);
        out->next = *ret_out;
        *ret_out = out;
    }
}

int workers_add(struct host *h, struct job *j, struct job **ret_out)
{
    struct workers *w = &h->workers;
    int rc = 0;
    uint32_t found = 0;

    if (!j->client)
        j->client = &w->core;
    (void)pthread_mutex_lock(&w->mutex);
    if (w->stop || (w->leaving && j->reply))
        rc = err_set(-ESHUTDOWN, "the core is leaving this process");
    else if (j->counted)
        rc = make_room(w, j, ret_out);
    if (rc == 0) {
        j->next = NULL;
        j->previous = w->last;
        if (w->last)
            w->last->next = j;
        else
            w->first = j;
        w->last = j;
        w->n_queued++;
        if (j->client->turn < w->turn) /* what it did not use before is not saved up */
            j->client->turn = w->turn;
        if (j->counted) {
            w->n_waiting++;
            w->waiting_bytes += j->bytes;
            j->client->waiting++;
            j->client->waiting_bytes += j->bytes;
        }
        found = find_worker(w);
    }
    (void)pthread_mutex_unlock(&w->mutex);
    wake_found(w, found); /* who wakes up wants the lock first */
    return rc;
}

bool workers_remove(struct host *h, struct job *j)
{
    struct workers *w = &h->workers;
    bool found = false;

    (void)pthread_mutex_lock(&w->mutex);
    for (struct job *at = w->first; at && !found; at = at->next)
        found = at == j;
    if (found)
        unlink_waiting(w, j);
    (void)pthread_mutex_unlock(&w->mutex);
    return found;
}

struct job *workers_take_expired(struct host *h, uint64_t now)
{
    struct workers *w = &h->workers;
    struct job *found = NULL;

    (void)pthread_mutex_lock(&w->mutex);
    for (struct job *j = w->first, *next; j; j = next) {
        next = j->next;
        if (!j->counted || j->deadline == 0 || j->deadline > now)
            continue;
        unlink_waiting(w, j);
        w->n_ending++;
        j->next = found;
        found = j;
    }
    (void)pthread_mutex_unlock(&w->mutex);
    return found;
}

bool workers_stop(struct host *h)
{
    struct workers *w = &h->workers;

    workers_cancel(h, NULL);
    (void)pthread_mutex_lock(&w->mutex);
    w->stop = true;
    for (struct job *j = w->first; j; j = j->next)
        if (j->reply)
            reply_cancel(j->reply, HOST_GONE); /* it is still run, so that its done() is called */
    for (int lane = LANE_ANY; lane <= LANE_LONG; lane++)
        (void)pthread_cond_broadcast(&w->wake[lane]);
    for (int i = 0; i < HOST_WORKERS_ALL; i++) {
        if (w->slots[i].state == WORKER_NONE)
            continue;
        pthread_t thread = w->slots[i].thread;
        (void)pthread_mutex_unlock(&w->mutex);
        (void)pthread_join(thread, NULL);
        (void)pthread_mutex_lock(&w->mutex);
        w->slots[i].state = WORKER_NONE;
    }
    struct timespec limit = in_future(END_NS);
    int r = 0;
    while (w->n_left > 0 && r == 0)
        r = pthread_cond_timedwait(&w->quiet, &w->mutex, &limit);
    bool alone = w->n_left == 0;
    (void)pthread_mutex_unlock(&w->mutex);
    return alone;
}

void workers_done(struct host *h)
{
    for (int lane = LANE_ANY; lane <= LANE_LONG; lane++)
        (void)pthread_cond_destroy(&h->workers.wake[lane]);
    (void)pthread_cond_destroy(&h->workers.quiet);
    (void)pthread_mutex_destroy(&h->workers.mutex);
}
