/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/write/writer.c - the thread that makes rows of what has ended, and sees what has
 * not.
 *
 * All but start, stop and fork run on that thread.  It is the only one that takes what has ended,
 * and takes no lock that a callback of NCCL's may hold.
 *
 * NCCL does not say when an operation has ended, but when its parts have.  From interface 4 on it
 * says how many channels it has: the callback that ends the last one closes it (events.c).
 * is_settled() finds the others: by what is known of operations of one communicator, that they run
 * one after another.
 */
#include "write/writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/own_thread.h"
#include "lib/proc/patience.h"
#include "probing_sdk.h"
#include "write/computed.h"

#define TURN_NS (50 * PROBING_NS_PER_MS)  /* between two looks at what has ended */
#define IDLE_NS (500 * PROBING_NS_PER_MS) /* while there is no communicator */
/* A ring of the store holds some 5,000 rows, and is emptied when it is half full: so many a turn,
 * and then a rest, are 80,000 rows a second. */
#define TURN_ROWS 2000
#define MORE_NS (25 * PROBING_NS_PER_MS)
#define FULL_NS (100 * PROBING_NS_PER_MS)
#define LAST_TURNS 40 /* at the end, MORE_NS each */
#define SCAN_TURNS 4  /* looks at what has not */
#define TOLD_FIRST_NS (250 * PROBING_NS_PER_MS)
#define TOLD_LAST_NS (60 * PROBING_NS_PER_S)
#define TOLD_MAX 512 /* rows of a communicator and scan: what is left comes in the next */
#define QUIET_NS PROBING_NS_PER_S
#define COUNTERS_NS (5 * PROBING_NS_PER_S)
#define STOP_NS (2 * PROBING_NS_PER_S)
#define STACK_BYTES (256u << 10)

struct writer {
    struct tables *tables;
    struct recorder *recorder;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wakes;
    bool stop, ended; /* lock: mutex */
    bool running;     /* [control] only */
    _Atomic bool forked;
    _Atomic int32_t tid; /* 0: it has not run yet */
    uint64_t counted_ns;
    uint32_t first; /* the communicator that comes first in this turn */
    int64_t budget; /* rows of this turn that are left */
    bool full;      /* the store had no room in it */
    bool more;      /* some of what has ended is not written */
    struct comm_ids ids[COMMS_MAX];
};

/* ---- rows ---- */

/* If the ring is full, the core has counted the row as lost.  The others wait in their slots. */
static void note_result(struct writer *w, struct comm *c, int rc)
{
    comm_count(c, rc == 0 ? COUNT_ROWS : COUNT_NOT_WRITTEN);
    w->full |= rc == -ENOSPC;
    w->budget--;
}

static bool may_write(const struct writer *w)
{
    return w->budget > 0 && !w->full;
}

static const struct comm_ids *ids_of(struct writer *w, const struct comm *c)
{
    struct comm_ids *ids = &w->ids[c->index];
    uint64_t serial = atomic_load_explicit(&c->serial, memory_order_relaxed);
    uint64_t hash = atomic_load_explicit(&c->hash, memory_order_relaxed);
    char text[24];
    if (ids->serial == serial && ids->hash == hash)
        return ids;
    hash_text(hash, text);
    *ids = (struct comm_ids){.serial = serial,
                             .hash = hash,
                             .hash_id = probing_intern_text(w->tables->host, text[0] ? text : NULL),
                             .name_id =
                                 probing_intern_text(w->tables->host, c->name[0] ? c->name : NULL)};
    return ids;
}

static void write_slot(struct writer *w, struct comm *c, enum event_kind kind, const struct slot *s)
{
    const struct comm_ids *ids = ids_of(w, c);
    if (kind == EVENT_PROXY) {
        note_result(w, c,
                    row_of_proxy(w->tables, c, ids, (const struct proxy_slot *)(const void *)s));
    } else if (kind == EVENT_NET) {
        note_result(w, c, row_of_net(w->tables, (const struct net_slot *)(const void *)s));
    } else {
        const struct op_slot *op = (const struct op_slot *)(const void *)s;
        uint64_t start = field(&op->start_ns);
        if (!field(&op->aborted) &&
            start > atomic_load_explicit(&c->finished_start_ns, memory_order_relaxed))
            atomic_store_explicit(&c->finished_start_ns, start, memory_order_relaxed);
        note_result(w, c, row_of_op(w->tables, c, ids, op));
    }
}

/* The one that was given up last comes first: they are turned round. */
static uint32_t take_list(struct pool *p)
{
    uint32_t at = pool_take_done(p), first = 0;
    while (at) {
        struct slot *s = pool_slot(p, at - 1);
        uint32_t next = atomic_load_explicit(&s->next, memory_order_relaxed);
        atomic_store_explicit(&s->next, first, memory_order_relaxed);
        first = at;
        at = next;
    }
    return first;
}

static void drain_pool(struct writer *w, struct comm *c, struct pool *p, enum event_kind kind,
                       uint32_t *pending)
{
    if (!*pending)
        *pending = take_list(p);
    while (*pending && may_write(w)) {
        uint32_t number = *pending - 1;
        struct slot *s = pool_slot(p, number);
        *pending = atomic_load_explicit(&s->next, memory_order_relaxed);
        write_slot(w, c, kind, s);
        pool_free(p, number);
    }
}

/* false: some must wait. */
static bool drain_all(struct writer *w, struct comm *c, struct pools *p)
{
    drain_pool(w, c, &p->proxy, EVENT_PROXY, &c->pending[0]);
    drain_pool(w, c, &p->op, EVENT_OP, &c->pending[1]);
    drain_pool(w, c, &p->net, EVENT_NET, &c->pending[2]);
    bool all = !c->pending[0] && !c->pending[1] && !c->pending[2];
    w->more |= !all;
    return all;
}

/* ---- what has not ended ---- */

/* Nothing of it is under way, and it is known to have ended: a later one has, or nothing more is
 * ever said of it. */
static bool is_settled(const struct comm *c, const struct inflight *f, uint64_t now)
{
    if (f->state != INFLIGHT_ENQUEUED && f->state != INFLIGHT_ENDING)
        return false;
    if (now < f->moved_ns || now - f->moved_ns < QUIET_NS)
        return false;
    if (f->enqueued_ns < atomic_load_explicit(&c->finished_start_ns, memory_order_relaxed))
        return true;
    if (f->channels) /* its channels' kernels tell */
        return false;
    return f->state == INFLIGHT_ENDING || c->version < 3;
}

static bool is_due(_Atomic uint64_t *told, const struct inflight *f, uint64_t now)
{
    uint64_t age = now > f->start_ns ? now - f->start_ns : 0;
    uint64_t due = f->told_ns ? f->told_ns : TOLD_FIRST_NS;
    if (age < due)
        return false;
    while (due <= age)
        due = due < TOLD_FIRST_NS * 4 ? TOLD_FIRST_NS * 4
                                      : due + (due < TOLD_LAST_NS ? due : TOLD_LAST_NS);
    field_set(told, due);
    return true;
}

static void append_inflight(struct writer *w, struct comm *c, const struct inflight *f,
                            uint64_t now)
{
    note_result(w, c, row_of_inflight(w->tables, c, ids_of(w, c), f, now));
}

/* How many are under way. */
static uint64_t scan_ops(struct writer *w, struct comm *c, struct pool *p, uint64_t now,
                         uint32_t *told)
{
    uint32_t fresh = atomic_load_explicit(&p->fresh, memory_order_acquire);
    uint64_t live = 0;
    for (uint32_t i = 0; i < fresh; i++) {
        struct op_slot *op = (struct op_slot *)(void *)pool_slot(p, i);
        struct inflight f;
        if (!inflight_op(p, i, &f) || (is_settled(c, &f, now) && op_close(c, i, f.generation)))
            continue;
        live++;
        if (*told < TOLD_MAX && may_write(w) && is_due(&op->told_ns, &f, now)) {
            append_inflight(w, c, &f, now);
            ++*told;
        }
    }
    return live;
}

static uint64_t scan_proxies(struct writer *w, struct comm *c, struct pool *p, uint64_t now,
                             uint32_t *told)
{
    uint32_t fresh = atomic_load_explicit(&p->fresh, memory_order_acquire);
    uint64_t live = 0;
    for (uint32_t i = 0; i < fresh; i++) {
        struct inflight f;
        if (!inflight_proxy(p, i, &f))
            continue;
        live++;
        if (*told < TOLD_MAX && may_write(w) &&
            is_due(&((struct proxy_slot *)(void *)pool_slot(p, i))->told_ns, &f, now)) {
            append_inflight(w, c, &f, now);
            ++*told;
        }
    }
    return live;
}

/* ---- communicators ---- */

static void abort_pool(struct comm *c, struct pool *p, enum event_kind kind, uint64_t now)
{
    uint32_t fresh = atomic_load_explicit(&p->fresh, memory_order_acquire);
    for (uint32_t i = 0; i < fresh; i++) {
        struct slot *s = pool_slot(p, i);
        uint32_t head = atomic_load_explicit(&s->head, memory_order_acquire);
        if (slot_state(head) != SLOT_LIVE || !slot_end(s, slot_generation(head)))
            continue;
        comm_count(c, COUNT_STOPS_MISSING);
        if (kind == EVENT_PROXY)
            field_set(&((struct proxy_slot *)(void *)s)->end_ns, now);
        if (kind == EVENT_OP)
            field_set(&((struct op_slot *)(void *)s)->aborted, 1);
        if (kind == EVENT_OP || kind == EVENT_PROXY)
            pool_give_up(p, i);
        else
            pool_free(p, i);
    }
}

static void count_comm(struct writer *w, struct comm *c, uint64_t now)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < COUNT_ROWS; i++)
        sum += atomic_load_explicit(&c->counters[i], memory_order_relaxed);
    if (sum == c->told_counters || sum == 0)
        return;
    c->told_counters = sum;
    note_result(w, c, row_of_counters(w->tables, c, ids_of(w, c), now, c->told_live));
}

/* Its communicator has ended: nothing of it will. */
static void end_comm(struct writer *w, struct comm *c, struct pools *p, uint64_t now)
{
    if (p) {
        abort_pool(c, &p->op, EVENT_OP, now);
        abort_pool(c, &p->proxy, EVENT_PROXY, now);
        abort_pool(c, &p->kernel, EVENT_KERNEL, now);
        abort_pool(c, &p->net, EVENT_NET, now);
        if (!drain_all(w, c, p) || !drain_all(w, c, p)) /* what waited, then what was added */
            return;
    }
    c->told_live = 0;
    count_comm(w, c, now);
    comm_release(c);
}

static void visit_comm(struct writer *w, struct comm *c, uint64_t now, bool scan, bool count)
{
    uint32_t state = atomic_load_explicit(&c->state, memory_order_acquire), told = 0;
    struct pools *p = atomic_load_explicit(&c->pools, memory_order_acquire);
    if (p)
        (void)drain_all(w, c, p);
    if (p && scan && state == COMM_OPEN)
        c->told_live =
            scan_ops(w, c, &p->op, now, &told) + scan_proxies(w, c, &p->proxy, now, &told);
    if (count && state == COMM_OPEN)
        count_comm(w, c, now);
    if (state == COMM_CLOSED)
        end_comm(w, c, p, now);
}

/* How many communicators there are.  Each is the first one in its turn: rows are few. */
static uint32_t take_turn(struct writer *w, uint64_t now, bool scan)
{
    struct recorder *r = w->recorder;
    uint32_t places = 0, comms = 0;
    bool count = now - w->counted_ns >= COUNTERS_NS;
    while (places < COMMS_MAX &&
           atomic_load_explicit(&r->comms[places], memory_order_acquire) != NULL)
        places++; /* they are taken in order */
    w->budget = TURN_ROWS;
    w->full = w->more = false;
    w->first++;
    for (uint32_t i = 0; i < places; i++) {
        struct comm *c =
            atomic_load_explicit(&r->comms[(w->first + i) % places], memory_order_acquire);
        if (atomic_load_explicit(&c->state, memory_order_acquire) == COMM_FREE)
            continue;
        comms++;
        visit_comm(w, c, now, scan, count);
    }
    if (count)
        w->counted_ns = now;
    return comms;
}

bool writer_turn(struct writer *w, uint64_t now, bool scan)
{
    (void)take_turn(w, now, scan);
    return w->more;
}

/* ---- the thread ---- */

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / PROBING_NS_PER_S),
                             .tv_nsec = (long)(ns % PROBING_NS_PER_S)};
}

/* true: it is to end. */
static bool wait_for_work(struct writer *w, uint64_t ns)
{
    const struct timespec until = timespec_of(probing_clock_ns(CLOCK_MONOTONIC) + ns);
    (void)pthread_mutex_lock(&w->mutex);
    int rc = 0;
    while (!w->stop && rc == 0)
        rc = pthread_cond_timedwait(&w->wakes, &w->mutex, &until);
    bool stop = w->stop;
    (void)pthread_mutex_unlock(&w->mutex);
    return stop;
}

static uint64_t until_next(const struct writer *w, uint32_t comms)
{
    return w->full ? FULL_NS : w->more ? MORE_NS : comms ? TURN_NS : IDLE_NS;
}

static void *writer_thread(void *arg)
{
    struct writer *w = arg;
    uint32_t comms = 0;
    (void)prctl(PR_SET_NAME, "probing/nccl");
    atomic_store_explicit(&w->tid, (int32_t)syscall(SYS_gettid), memory_order_relaxed);
    for (uint32_t n = 0; !wait_for_work(w, until_next(w, comms)); n++)
        comms = take_turn(w, probing_clock_ns(CLOCK_MONOTONIC), n % SCAN_TURNS == 0);
    for (uint32_t n = 0; n < LAST_TURNS; n++) {
        (void)take_turn(w, probing_clock_ns(CLOCK_MONOTONIC), /* scan= */ true);
        if (!w->more)
            break;
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)MORE_NS}, NULL);
    }
    (void)pthread_mutex_lock(&w->mutex);
    w->ended = true;
    (void)pthread_cond_broadcast(&w->wakes);
    (void)pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Whether there is a writer decides who clears a communicator that ends: under the recorder's
 * mutex. */
static void tell_recorder(struct writer *w, bool here)
{
    (void)pthread_mutex_lock(&w->recorder->mutex);
    atomic_store_explicit(&w->recorder->writer, here, memory_order_relaxed);
    (void)pthread_mutex_unlock(&w->recorder->mutex);
}

int writer_start(struct writer *w)
{
    const struct probing_host *h = w->tables->host;
    w->stop = w->ended = false;
    atomic_store_explicit(&w->tid, 0, memory_order_relaxed);
    if (atomic_load_explicit(&w->recorder->writer, memory_order_relaxed))
        return h->fail(h, -EBUSY, "another copy of this plugin takes the events already");
    tell_recorder(w, true);
    int rc = own_thread_start(&w->thread, STACK_BYTES, writer_thread, w);
    if (rc < 0) {
        tell_recorder(w, false);
        return h->fail(h, rc, "no thread for the nccl plugin");
    }
    w->running = true;
    return 0;
}

int writer_stop(struct writer *w)
{
    const struct probing_host *h = w->tables->host;
    struct patience p = {.limit_ns = STOP_NS};
    bool ended = false;
    if (!w->running || atomic_load_explicit(&w->forked, memory_order_relaxed))
        return 0; /* after fork() the thread is the parent's */
    (void)pthread_mutex_lock(&w->mutex);
    w->stop = true;
    (void)pthread_cond_broadcast(&w->wakes);
    (void)pthread_mutex_unlock(&w->mutex);
    do {
        (void)pthread_mutex_lock(&w->mutex);
        ended = w->ended;
        (void)pthread_mutex_unlock(&w->mutex);
    } while (!ended && patience_rest(&p, atomic_load_explicit(&w->tid, memory_order_relaxed)));
    if (!ended)
        return probing_failf(h, -EBUSY, "the nccl plugin's thread %s", patience_end(&p));
    (void)pthread_join(w->thread, NULL);
    tell_recorder(w, false);
    w->running = false;
    return 0;
}

void writer_forked(struct writer *w)
{
    atomic_store_explicit(&w->forked, true, memory_order_relaxed);
}

int writer_new(struct tables *t, struct recorder *r, struct writer **ret)
{
    pthread_condattr_t attributes;
    struct writer *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->tables = t;
    w->recorder = r;
    (void)pthread_mutex_init(&w->mutex, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->wakes, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    *ret = w;
    return 0;
}

void writer_free(struct writer *w)
{
    if (!w)
        return;
    (void)pthread_cond_destroy(&w->wakes);
    (void)pthread_mutex_destroy(&w->mutex);
    free(w);
}
