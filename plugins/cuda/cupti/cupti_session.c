/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/cupti_session.c - the life of a trace: waiting, on, aside, off; and
 * the records that come meanwhile.
 *
 * Threads: as cupti_session.h says.  The mutex is held by whoever calls CUPTI for us; its callbacks
 * take no lock.  A call may hang when the driver does: so nobody waits for that mutex for long, and
 * how it stands is told without it.
 *
 * From CUPTI 13.2 on several may trace at once, if all of them say so (subscriber.h): that is done
 * where nobody in the process is shut out by it.  Else only activities are used, which need no
 * subscriber: there is one for the whole process, and older versions of torch keep it from the
 * start.  But there is one pair of callbacks for buffers, too, and whoever registers last has them:
 * so another profiler is let alone (others.c).  cuptiFinalize() is never called: it ends CUPTI for
 * everybody, and has crashed in programs with graphs.  Nor is CUPTI's kind GRAPH_TRACE (a graph's
 * launch as one record) ever switched on: with CUPTI 11.8 to 13.1 (driver 580) the program dies in
 * its next launch of a graph that was made before; with 13.5 there is no record of such a one.
 *
 * At exit() CUDA takes itself down while our threads still run.  So a handler of atexit() that was
 * registered after CUDA's own, and runs before them, ends the trace and keeps everybody out.
 */
#include "cupti/cupti_session.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cupti/buffer_pool.h"
#include "cupti/cuda_calls.h"
#include "cupti/cupti_clock.h"
#include "cupti/library.h"
#include "cupti/others.h"
#include "cupti/subscriber.h"
#include "probing_sdk.h"

#define AGAIN_NS PROBING_NS_PER_S              /* between tries */
#define REFUSED_MOST_NS (60 * AGAIN_NS)        /* between tries of what was refused */
#define OTHERS_EVERY_NS (PROBING_NS_PER_S / 2) /* between looks for other profilers */
#define EXIT_WAIT_S 2                          /* for who is in CUPTI while the program ends */
#define WISH_WAIT_NS (2 * PROBING_NS_PER_S)    /* likewise, while somebody wishes */
#define SLOW_NS (5 * PROBING_NS_PER_S)         /* so long in CUPTI is worth a word */

struct session {
    const struct probing_host *host;
    struct session_sink sink;
    pthread_mutex_t mutex;
    bool on;                    /* it is wished; lock: mutex, as all below */
    struct session_about about; /* but what is counted in `counts` */
    struct cupti cupti;
    struct subscriber by; /* how `cupti` is called */
    struct cupti_clock clock;
    uint64_t next_ns;   /* not tried before */
    uint64_t pause_ns;  /* after the next refusal */
    uint64_t others_ns; /* when others were looked for */
    uint64_t loads;     /* of libraries, when the driver was looked for */
    uint64_t clients;   /* likewise, when it was looked who calls CUPTI */
    bool unloaded;      /* it was not there */
    bool left_on;       /* kinds that were ours are on for another profiler */
    int thread_type;    /* of CUPTI's thread numbers before ours; -1: not changed */
    bool threads;       /* they are the kernel's; else halves of pthread_t, of no use here */
    _Atomic uint64_t entered_ns; /* who holds the mutex has had it since then; 0: nobody */
    pthread_mutex_t seen_mutex;  /* held for copies only */
    struct session_about seen;   /* lock: seen_mutex; `about` when the mutex was left last */
};

/* CUPTI's callbacks have no argument, and may come at any time. */
static struct {
    _Atomic bool wanted; /* buffers are given */
    _Atomic bool closed; /* the program ends, or this is a child: CUPTI is not called any more */
    _Atomic uint64_t refused, late;
    _Atomic(struct session *) at_exit; /* whose trace ends with the program */
    _Atomic bool registered;
} shared;

/* What is switched on; without those that are needed there is no trace.  shared: torch's profiler
 * wants them, too: a kind is on or off for the whole process, so while it runs they are its. */
static const struct {
    int kind;
    bool needed, shared;
} kinds[] = {{CUPTI_CONCURRENT_KERNEL, true, true}, {CUPTI_MEMCPY, false, true},
             {CUPTI_MEMCPY2, false, false},         {CUPTI_MEMSET, false, true},
             {CUPTI_RUNTIME, false, true},          {CUPTI_DRIVER, false, true},
             {CUPTI_SYNCHRONIZATION, false, true},  {CUPTI_MEMORY2, false, false},
             {CUPTI_OVERHEAD, false, true}};

/* ---- CUPTI's callbacks ---- */

static void requested(uint8_t **buffer, size_t *size, size_t *max_records)
{
    bool wanted = atomic_load_explicit(&shared.wanted, memory_order_acquire);
    uint8_t *free_one = wanted ? buffer_take() : NULL;
    if (wanted && !free_one)
        atomic_fetch_add_explicit(&shared.refused, 1, memory_order_relaxed);
    *buffer = free_one;
    *size = free_one ? BUFFER_BYTES : 0;
    *max_records = 0; /* as many as fit */
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context;
    (void)stream;
    (void)size;
    (void)buffer_complete(buffer, valid);
}

static void requested_v2(uint8_t **buffer, size_t *size, size_t *max_records, void *info)
{
    (void)info;
    requested(buffer, size, max_records);
}

static void completed_v2(uint8_t *buffer, size_t size, size_t valid, void *info)
{
    (void)info;
    completed(NULL, 0, buffer, size, valid);
}

static const struct subscriber_callbacks callbacks = {requested, completed, requested_v2,
                                                      completed_v2};

/* ---- who is in ---- */

static void see(struct session *s)
{
    (void)pthread_mutex_lock(&s->seen_mutex);
    s->seen = s->about;
    s->seen.clock_error_ns = s->about.state == SESSION_TRACING ? clock_error(&s->clock) : -1;
    (void)pthread_mutex_unlock(&s->seen_mutex);
}

/* With the mutex. */
static void entered(struct session *s)
{
    atomic_store_explicit(&s->entered_ns, s->host->now(), memory_order_relaxed);
}

static bool enter_within(struct session *s, uint64_t ns)
{
    uint64_t begun = s->host->now();
    while (pthread_mutex_trylock(&s->mutex) != 0) {
        if (s->host->now() - begun >= ns)
            return false;
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    entered(s);
    return true;
}

static void leave(struct session *s)
{
    see(s);
    atomic_store_explicit(&s->entered_ns, 0, memory_order_relaxed);
    (void)pthread_mutex_unlock(&s->mutex);
}

/* ---- states ---- */

__attribute__((format(printf, 3, 4))) static void be(struct session *s, enum session_state state,
                                                     const char *format, ...)
{
    va_list args;
    if (s->about.state != state)
        s->about.since_ns = s->host->now();
    s->about.state = state;
    va_start(args, format);
    (void)vsnprintf(s->about.reason, sizeof(s->about.reason), format, args);
    va_end(args);
}

/* ---- records ---- */

static void tell(struct session *s, struct record *r)
{
    r->start = clock_ours(&s->clock, r->start);
    r->end = clock_ours(&s->clock, r->end);
    if (!s->threads && (r->kind == CUPTI_RUNTIME || r->kind == CUPTI_DRIVER))
        r->call.thread = 0;
    if (!s->threads && r->kind == CUPTI_OVERHEAD)
        r->overhead.thread = CUPTI_NONE;
    s->about.records++;
    s->sink.record(s->sink.arg, r);
}

/* CUPTI walks from record to record; what it points to is checked before it is read. */
static void read_buffer(struct session *s, const struct buffer *b)
{
    uint8_t *at = NULL, *before = b->bytes;
    struct record r;
    int rc;
    while ((rc = subscriber_next_record(&s->by, b->bytes, b->valid, &at)) == CUPTI_SUCCESS) {
        bool forth = at >= before && at < b->bytes + b->valid;
        if (!forth || (at == before && at != b->bytes)) {
            s->about.torn++;
            return;
        }
        int read = record_read(at, (size_t)(b->bytes + b->valid - at), &r);
        if (read == 0)
            tell(s, &r);
        else if (read == -ENOENT)
            s->about.unknown++;
        else
            s->about.torn++;
        before = at + 1;
    }
    if (rc != CUPTI_MAX_LIMIT_REACHED)
        s->about.torn++; /* the rest is incomplete or of no kind that it knows */
}

static void read_all(struct session *s)
{
    struct buffer b;
    for (uint32_t i = 0; i < 2 * BUFFERS && buffer_next(&b); i++) {
        read_buffer(s, &b);
        buffer_free(&b);
    }
}

/* Buffers that came after the end: nobody knows any more which clock they had. */
static void drop_late(struct session *s)
{
    struct buffer b;
    for (uint32_t i = 0; i < 2 * BUFFERS && buffer_next(&b); i++) {
        s->about.late++;
        buffer_free(&b);
    }
}

static void look(struct session *s, uint32_t flush)
{
    clock_compare(&s->clock, &s->by);
    (void)s->cupti.ActivityFlushAll(flush); /* its result says nothing that could be acted on */
    read_all(s);
    uint64_t lost = subscriber_dropped(&s->by);
    s->about.lost += lost;
    s->about.refused = atomic_load_explicit(&shared.refused, memory_order_relaxed);
    s->sink.looked(s->sink.arg, lost);
}

/* ---- on and off ---- */

static int enable_kinds(struct session *s)
{
    for (size_t i = 0; i < PROBING_LENGTH(kinds); i++) {
        int rc = subscriber_enable(&s->by, kinds[i].kind);
        if (rc && kinds[i].needed)
            return rc;
    }
    if (!s->by.handle)
        calls_choose(&s->cupti, CALLS_WORK);
    (void)subscriber_enable_and_dump(&s->by, CUPTI_CONTEXT); /* those that are there already, too */
    return 0;
}

/* all: also those that another profiler may want. */
static void disable_kinds(struct session *s, bool all)
{
    for (size_t i = PROBING_LENGTH(kinds); i-- > 0;)
        if (all || !kinds[i].shared)
            (void)subscriber_disable(&s->by, kinds[i].kind);
    if (!s->by.handle)
        calls_choose(&s->cupti, all ? CALLS_NONE : CALLS_ALL);
    (void)subscriber_disable(&s->by, CUPTI_CONTEXT);
    s->left_on = !all;
}

static void number_threads_as_before(struct session *s)
{
    if (s->thread_type >= 0)
        (void)subscriber_set_thread_type(&s->by, s->thread_type);
    s->thread_type = -1;
}

/* mine: our callbacks are still CUPTI's: what it holds comes back to us.  Else it is another's, who
 * must not lose what it has switched on. */
static void end(struct session *s, bool mine)
{
    if (s->about.state != SESSION_TRACING)
        return;
    disable_kinds(s, /* all= */ mine);
    number_threads_as_before(s);
    atomic_store_explicit(&shared.wanted, false, memory_order_release);
    if (mine) /* forced, it would end records of others that are not complete yet */
        look(s, subscriber_has_company(&s->by) ? 0 : CUPTI_FLUSH_FORCED);
    else
        read_all(s);
    subscriber_leave(&s->by);
    s->about.shared = false;
    s->sink.ended(s->sink.arg);
    be(s, SESSION_OFF, "%s", "");
}

static void at_exit(void)
{
    struct session *s = atomic_load_explicit(&shared.at_exit, memory_order_acquire);
    struct timespec until;
    if (atomic_load_explicit(&shared.closed, memory_order_acquire))
        return; /* a child */
    atomic_store_explicit(&shared.closed, true, memory_order_release);
    if (!s)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += EXIT_WAIT_S;
    if (pthread_mutex_timedlock(&s->mutex, &until) != 0)
        return;
    entered(s);
    end(s, /* mine= */ true);
    leave(s);
}

/* Switch on what is wished, by `by`.  CUPTI_SUCCESS or its result: then nothing is on. */
static int switch_on(struct session *s)
{
    drop_late(s);
    atomic_store_explicit(&shared.wanted, true, memory_order_release);
    int rc = subscriber_register(&s->by, &callbacks);
    if (rc == CUPTI_SUCCESS) {
        s->threads = subscriber_number_threads(&s->by, &s->thread_type);
        rc = enable_kinds(s);
        if (rc != CUPTI_SUCCESS) {
            disable_kinds(s, /* all= */ true);
            number_threads_as_before(s);
        }
    }
    if (rc != CUPTI_SUCCESS) {
        atomic_store_explicit(&shared.wanted, false, memory_order_release);
        subscriber_leave(&s->by);
    }
    return rc;
}

static int switch_on_shared(struct session *s, char *other)
{
    int rc = subscriber_join(&s->by, other);
    return rc == CUPTI_SUCCESS ? switch_on(s) : rc;
}

/* By the interface that shuts nobody out, else by the one that CUPTI allows.  CUPTI_SUCCESS;
 * CUPTI_MULTIPLE_SUBSCRIBERS and other[]; or its result.  -EBUSY: another profiler was seen. */
static int switch_on_somehow(struct session *s, char *other)
{
    const struct cupti *c = &s->cupti;
    const char *seen;
    other[0] = '\0';
    s->by = (struct subscriber){.cupti = c};
    bool old = others_need_old_interface();
    if (!old && subscriber_sharing(c) != SHARING_NOT) {
        int rc = switch_on_shared(s, other);
        if (rc == CUPTI_SUCCESS || rc == CUPTI_MULTIPLE_SUBSCRIBERS)
            return rc;
    } /* else its driver may be too old for it */
    if ((seen = s->sink.other(s->sink.arg))) {
        (void)snprintf(other, SUBSCRIBER_NAME, "%s", seen);
        return -EBUSY;
    }
    int rc = switch_on(s);
    if (rc == CUPTI_MULTIPLE_SUBSCRIBERS && subscriber_sharing(c) == SHARING_ON)
        rc = switch_on_shared(s, other);
    else if (rc == CUPTI_MULTIPLE_SUBSCRIBERS)
        subscriber_who(c, other);
    return rc;
}

static void begun(struct session *s)
{
    s->left_on = false;
    s->about.shared = s->by.handle != NULL;
    s->clients = library_loads();
    clock_begin(&s->clock, &s->by);
    s->about.begun++;
    be(s, SESSION_TRACING, "%s", "");
    s->sink.begun(s->sink.arg);
    bool registered = false;
    atomic_store_explicit(&shared.at_exit, s, memory_order_release);
    if (atomic_compare_exchange_strong_explicit(&shared.registered, &registered, true,
                                                memory_order_acq_rel, memory_order_acquire))
        (void)atexit(at_exit);
}

static void begin(struct session *s)
{
    char text[96], other[SUBSCRIBER_NAME];
    if (buffer_pool_map() < 0) {
        be(s, SESSION_REFUSED, "no memory for %u MB of buffers",
           BUFFERS * (BUFFER_BYTES >> 10) >> 10);
        return;
    }
    int rc = switch_on_somehow(s, other);
    if (rc == CUPTI_SUCCESS) {
        begun(s);
        return;
    }
    if (rc == -EBUSY) {
        be(s, SESSION_ASIDE, "%s; its end is waited for", other);
        return;
    }
    const char *said = cupti_text(&s->cupti, rc, text, sizeof(text));
    if (rc != CUPTI_MULTIPLE_SUBSCRIBERS)
        be(s, SESSION_REFUSED, "%s: it does not trace here: %s", s->cupti.path, said);
    else if (other[0])
        be(s, SESSION_ASIDE, "%s: another profiler has CUPTI, \"%s\": %s", s->cupti.path, other,
           said);
    else
        be(s, SESSION_ASIDE, "%s: another profiler has CUPTI: %s", s->cupti.path, said);
}

/* Does the process use CUDA?  The loader is asked again only when something was loaded since. */
static bool has_driver(struct session *s)
{
    uint64_t loads = library_loads();
    if (s->unloaded && loads && loads == s->loads)
        return false;
    s->loads = loads;
    const char *missing = driver_missing(&s->unloaded);
    if (missing)
        be(s, SESSION_WAITING, "%s; kernels are traced from then on", missing);
    return !missing;
}

static bool knows_version(struct session *s)
{
    char text[96];
    struct cupti *c = &s->cupti;
    int rc = c->version ? CUPTI_SUCCESS : c->GetVersion(&c->version);
    if (rc != CUPTI_SUCCESS) {
        c->version = 0;
        be(s, SESSION_REFUSED, "%s does not tell its version: %s", c->path,
           cupti_text(c, rc, text, sizeof(text)));
    } else if (c->version < CUPTI_API_LEAST) {
        be(s, SESSION_REFUSED, "%s is of API version %u, and %u (CUDA 11.6) is the oldest known",
           c->path, c->version, CUPTI_API_LEAST);
    }
    return rc == CUPTI_SUCCESS && c->version >= CUPTI_API_LEAST;
}

/* Is there a CUPTI that may be asked?  If not, the state says why. */
static bool find(struct session *s)
{
    char why[600];
    if (!has_driver(s))
        return false;
    if (!s->cupti.path[0] && cupti_find(&s->cupti, why, sizeof(why)) < 0) {
        s->cupti.path[0] = '\0';
        be(s, SESSION_REFUSED, "%s", why);
        return false;
    }
    return knows_version(s);
}

static void try_to_begin(struct session *s, uint64_t now_ns)
{
    if (now_ns < s->next_ns)
        return;
    s->next_ns = now_ns + AGAIN_NS;
    if (s->about.state == SESSION_REFUSED) /* the program may have loaded its own by now */
        s->cupti = (struct cupti){.version = 0};
    if (find(s))
        begin(s);
    (void)snprintf(s->about.library, sizeof(s->about.library), "%s", s->cupti.path);
    s->about.version = s->cupti.version;
    if (s->about.state == SESSION_REFUSED) {
        s->pause_ns = s->pause_ns ? s->pause_ns * 2 : AGAIN_NS;
        s->pause_ns = s->pause_ns < REFUSED_MOST_NS ? s->pause_ns : REFUSED_MOST_NS;
        s->next_ns = now_ns + s->pause_ns;
    } else {
        s->pause_ns = 0; /* at each tick while it waits: what comes before is not seen */
        s->next_ns = s->about.state == SESSION_WAITING ? now_ns : s->next_ns;
    }
}

/* Has one come that our way of sharing would shut out?  It is looked for when something was
 * loaded. */
static bool shuts_out(struct session *s)
{
    uint64_t loads = library_loads();
    bool same = loads && loads == s->clients;
    s->clients = loads;
    return !same && others_need_old_interface();
}

static void keep_on(struct session *s, uint64_t now_ns)
{
    const char *other = NULL;
    bool looks = now_ns - s->others_ns >= OTHERS_EVERY_NS;
    if (looks)
        s->others_ns = now_ns;
    if (looks && s->about.shared && shuts_out(s)) {
        end(s, /* mine= */ true);
        be(s, SESSION_WAITING, "it begins anew, as a library was loaded that cannot share CUPTI");
        s->next_ns = now_ns;
        return;
    }
    if (looks && !s->about.shared)
        other = s->sink.other(s->sink.arg);
    if (other) {
        end(s, /* mine= */ false);
        be(s, SESSION_ASIDE, "%s; its end is waited for", other);
        s->next_ns = now_ns + AGAIN_NS;
    } else {
        look(s, /* flush= */ 0);
    }
}

void session_tick(struct session *s, uint64_t now_ns)
{
    (void)pthread_mutex_lock(&s->mutex);
    entered(s);
    bool closed = atomic_load_explicit(&shared.closed, memory_order_acquire);
    if (!closed && s->about.state == SESSION_TRACING)
        keep_on(s, now_ns);
    else if (!closed && s->on)
        try_to_begin(s, now_ns);
    leave(s);
}

int session_switch(struct session *s, bool on)
{
    if (!enter_within(s, WISH_WAIT_NS))
        return probing_failf(
            s->host, -EBUSY,
            "CUPTI does not answer, as its driver may not; try again when it does");
    bool same = on == s->on;
    s->on = on;
    s->next_ns = s->pause_ns = 0;
    if (!atomic_load_explicit(&shared.closed, memory_order_acquire) && !(same && on))
        end(s, /* mine= */ true); /* and begins anew with the next tick */
    if (s->left_on && s->cupti.path[0] && !on && !s->sink.other(s->sink.arg))
        disable_kinds(s, /* all= */ true); /* that one has gone */
    if (!on)
        be(s, SESSION_OFF, "%s", "");
    else if (s->about.state == SESSION_OFF)
        be(s, SESSION_WAITING, "it has not been tried yet");
    leave(s);
    return 0;
}

/* ---- the rest ---- */

int session_new(const struct probing_host *host, const struct session_sink *sink,
                struct session **ret)
{
    struct session *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->host = host;
    s->sink = *sink;
    s->thread_type = -1;
    s->about.since_ns = host->now();
    /* After a fork the child may have a life of its own: CUDA of before the fork is of no use
     * there, and says so. */
    atomic_store_explicit(&shared.closed, false, memory_order_relaxed);
    (void)pthread_mutex_init(&s->mutex, NULL);
    (void)pthread_mutex_init(&s->seen_mutex, NULL);
    see(s);
    *ret = s;
    return 0;
}

void session_free(struct session *s)
{
    struct session *same = s;
    if (!s)
        return;
    (void)atomic_compare_exchange_strong_explicit(&shared.at_exit, &same, NULL,
                                                  memory_order_acq_rel, memory_order_acquire);
    (void)pthread_mutex_destroy(&s->mutex);
    (void)pthread_mutex_destroy(&s->seen_mutex);
    free(s);
}

void session_about(struct session *s, struct session_about *ret)
{
    uint64_t entered_ns = atomic_load_explicit(&s->entered_ns, memory_order_relaxed);
    uint64_t in_ns = entered_ns ? s->host->now() - entered_ns : 0;
    (void)pthread_mutex_lock(&s->seen_mutex);
    *ret = s->seen;
    (void)pthread_mutex_unlock(&s->seen_mutex);
    if (in_ns >= SLOW_NS)
        (void)snprintf(ret->reason, sizeof(ret->reason),
                       "CUPTI has not answered for %" PRIu64 " s: its driver may hang",
                       in_ns / PROBING_NS_PER_S);
    buffer_counts(&ret->taken, &ret->full);
}

bool session_call_name(struct session *s, bool driver, uint32_t id, char *ret, size_t size)
{
    return cupti_call_name(&s->cupti, driver, id, ret, size);
}

void session_forked(struct session *s)
{
    (void)s; /* its mutex may be held for ever: nothing of it is touched any more */
    atomic_store_explicit(&shared.at_exit, NULL, memory_order_relaxed);
    atomic_store_explicit(&shared.wanted, false, memory_order_relaxed);
    atomic_store_explicit(&shared.closed, true, memory_order_relaxed);
}
