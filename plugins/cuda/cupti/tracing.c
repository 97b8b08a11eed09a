/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/tracing.c - the life of a trace, and the records that come meanwhile.
 *
 * Threads: as tracing.h says.
 *
 * From CUPTI 13.2 on several may trace at once, if all of them say so (subscriber.h): that is done
 * where nobody in the process is shut out by it.  Else only activities are used, which need no
 * subscriber: there is one for the whole process, and older versions of torch keep it from the
 * start.  But there is one pair of callbacks for buffers, too, and whoever registers last has them:
 * so another profiler is let alone (others.c).  cuptiFinalize() is never called: it ends CUPTI for
 * everybody, and has crashed in programs with graphs.  Nor is CUPTI's kind GRAPH_TRACE (a graph's
 * launch as one record) ever switched on: with CUPTI 11.8 to 13.1 (driver 580) the program dies in
 * its next launch of a graph that was made before; with 13.5 there is no record of such a one.
 */
#include "cupti/tracing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cupti/buffer_pool.h"
#include "cupti/cupti_inside.h"
#include "cupti/intercept.h"
#include "cupti/others.h"
#include "probing_sdk.h"

#define AGAIN_NS PROBING_NS_PER_S              /* between tries */
#define REFUSED_MOST_NS (60 * AGAIN_NS)        /* between tries of what was refused */
#define OTHERS_EVERY_NS (PROBING_NS_PER_S / 2) /* between looks for other profilers */
#define BACK_TRIES 100                         /* with 1 ms between */
#define AWAY_NS (30 * PROBING_NS_PER_S)        /* for which buffers are out and none comes back */
#define BATCH 32u                              /* records that are told at a time */

static uint64_t monotonic_ns(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

/* Kinds to switch on; without those that are needed there is no trace.  shared: torch's profiler
 * wants them, too: a kind is on or off for the whole process, so while it runs they are its. */
static const struct {
    int kind;
    bool needed, shared;
} kinds[] = {{CUPTI_CONCURRENT_KERNEL, true, true}, {CUPTI_MEMCPY, false, true},
             {CUPTI_MEMCPY2, false, false},         {CUPTI_MEMSET, false, true},
             {CUPTI_RUNTIME, false, true},          {CUPTI_DRIVER, false, true},
             {CUPTI_SYNCHRONIZATION, false, true},  {CUPTI_MEMORY2, false, false},
             {CUPTI_OVERHEAD, false, true}};

/* ---- states ---- */

__attribute__((format(printf, 3, 4))) static void be(struct tracing *t, enum session_state state,
                                                     const char *format, ...)
{
    va_list args;
    if (t->about.state != state)
        t->about.since_ns = monotonic_ns();
    t->about.state = state;
    va_start(args, format);
    (void)vsnprintf(t->about.reason, sizeof(t->about.reason), format, args);
    va_end(args);
}

/* ---- records ---- */

struct batch {
    struct record records[BATCH];
    uint32_t n;
};

static void flush_batch(struct tracing *t, struct batch *b)
{
    if (b->n)
        t->sink.records(t->sink.arg, b->records, b->n);
    b->n = 0;
}

static void put_record(struct tracing *t, struct batch *b, struct record *r)
{
    r->start = clock_ours(&t->clock, r->start);
    r->end = clock_ours(&t->clock, r->end);
    if (!t->threads && (r->kind == CUPTI_RUNTIME || r->kind == CUPTI_DRIVER))
        r->call.thread = 0;
    if (!t->threads && r->kind == CUPTI_OVERHEAD)
        r->overhead.thread = CUPTI_NONE;
    t->about.records++;
    charge_record(&t->charge, r);
    b->records[b->n++] = *r;
    if (b->n == BATCH)
        flush_batch(t, b);
}

/* CUPTI walks from record to record; what it points to is checked before it is read. */
static void read_buffer(struct tracing *t, const struct buffer *b)
{
    uint8_t *at = NULL, *before = b->bytes;
    struct batch batch = {.n = 0};
    struct record r;
    int rc;
    while ((rc = subscriber_next_record(&t->by, b->bytes, b->valid, &at)) == CUPTI_SUCCESS) {
        bool forth = at >= before && at < b->bytes + b->valid;
        if (!forth || (at == before && at != b->bytes))
            break;
        int read = record_read(at, (size_t)(b->bytes + b->valid - at), &r);
        if (read == 0)
            put_record(t, &batch, &r);
        else if (read == -ENOENT)
            t->about.unknown++;
        else
            t->about.torn++;
        before = at + 1;
    }
    flush_batch(t, &batch);
    if (rc != CUPTI_MAX_LIMIT_REACHED)
        t->about.torn++; /* the rest is incomplete, of no kind that it knows, or no way leads on */
}

static void read_all(struct tracing *t)
{
    struct buffer b;
    for (uint32_t i = 0; i < 2 * BUFFERS && buffer_next(&b); i++) {
        read_buffer(t, &b);
        buffer_free(&b);
    }
}

/* Buffers that came after the end: nobody knows any more which clock they had. */
static void drop_late(struct tracing *t)
{
    struct buffer b;
    for (uint32_t i = 0; i < 2 * BUFFERS && buffer_next(&b); i++) {
        t->about.late++;
        buffer_free(&b);
    }
}

/* Lost records have cost as much as the others. */
static void weigh_lost(struct tracing *t, uint64_t lost)
{
    struct window_seen seen = {.calls = charge_take(&t->charge) + lost};
    uint64_t now_ns = monotonic_ns();
    t->sink.spare(t->sink.arg, &seen);
    (void)window_look(&t->window, now_ns, &seen);
    window_rates(&t->window, now_ns, &t->about.calls, &t->about.cost);
}

static void flush_and_look(struct tracing *t, uint32_t flush)
{
    clock_compare(&t->clock, &t->by);
    (void)CUPTI(&t->cupti, ActivityFlushAll,
                flush); /* its result says nothing that could be acted on */
    read_all(t);
    uint64_t lost = subscriber_dropped(&t->by);
    t->about.lost += lost;
    t->about.refused = subscriber_refused();
    t->sink.looked(t->sink.arg, lost);
    weigh_lost(t, lost);
}

/* ---- on and off ---- */

static int enable_kinds(struct tracing *t)
{
    for (size_t i = 0; i < PROBING_LENGTH(kinds); i++) {
        int rc = subscriber_enable(&t->by, kinds[i].kind);
        if (rc && kinds[i].needed)
            return rc;
    }
    if (!t->named)
        calls_read(&t->cupti, &t->names);
    t->named = true;
    if (!t->by.handle)
        calls_choose(&t->cupti, &t->names, CALLS_WORK);
    (void)subscriber_enable_and_dump(&t->by, CUPTI_CONTEXT); /* those that are there already, too */
    return 0;
}

enum leave {
    LEAVE_ALL,   /* nobody else has CUPTI: it is as it was before */
    LEAVE_FIRST, /* another is about to take it: what is ours is off, and comes back to us */
    LEAVE_LATE,  /* another has it already: what it wants, too, stays on */
};

static void disable_kinds(struct tracing *t, enum leave how)
{
    for (size_t i = PROBING_LENGTH(kinds); i-- > 0;)
        if (!(how == LEAVE_LATE && kinds[i].shared) && !intercept_enabled(kinds[i].kind))
            (void)subscriber_disable(&t->by, kinds[i].kind);
    if (!t->by.handle)
        calls_choose(&t->cupti, &t->names, how == LEAVE_ALL ? CALLS_NONE : CALLS_ALL);
    (void)subscriber_disable(&t->by, CUPTI_CONTEXT);
    t->left_on = how != LEAVE_ALL;
}

static void number_threads_as_before(struct tracing *t)
{
    if (t->thread_type >= 0)
        (void)subscriber_set_thread_type(&t->by, t->thread_type);
    t->thread_type = -1;
}

/* A thread of the program may have been about to ask for a buffer, which would come back to whoever
 * registers next. */
static void get_all_back(struct tracing *t)
{
    uint32_t taken, full, none = 0;
    for (int i = 0; i < BACK_TRIES && none < 2; i++) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        buffer_counts(&taken, &full);
        none = taken ? 0 : none + 1;
        if (taken)
            (void)CUPTI(&t->cupti, ActivityFlushAll, CUPTI_FLUSH_FORCED);
    }
}

static void end_tracing(struct tracing *t, enum leave how)
{
    if (t->about.state != SESSION_TRACING)
        return;
    disable_kinds(t, how);
    number_threads_as_before(t);
    subscriber_want(false);
    if (how == LEAVE_FIRST)
        get_all_back(t);
    if (how == LEAVE_LATE) { /* CUPTI's buffers are another's */
        read_all(t);
        weigh_lost(t, /* lost= */ 0);
    } else /* forced, it would end records of others that are not complete yet */
        flush_and_look(t, subscriber_has_company(&t->by) ? 0 : CUPTI_FLUSH_FORCED);
    subscriber_leave(&t->by);
    t->about.shared = false;
    uint64_t now_ns = monotonic_ns();
    t->traced_ns += now_ns - t->window.begun_ns;
    t->next_ns = window_close(&t->window, now_ns);
    t->sink.ended(t->sink.arg);
    be(t, SESSION_OFF, "%s", "");
}

/* Switch on what is wished, by `by`.  CUPTI_SUCCESS or its result: then nothing is on. */
static int switch_on(struct tracing *t)
{
    drop_late(t);
    window_open(&t->window, monotonic_ns());
    (void)charge_take(&t->charge);
    uint32_t full;
    buffer_counts(&t->away, &full);
    (void)buffer_out_ns(t->window.begun_ns, UINT32_MAX); /* from here on */
    subscriber_want(true);
    int rc = subscriber_register(&t->by);
    if (rc == CUPTI_SUCCESS) {
        t->threads = subscriber_number_threads(&t->by, &t->thread_type);
        rc = enable_kinds(t);
        if (rc != CUPTI_SUCCESS) {
            disable_kinds(t, LEAVE_ALL);
            number_threads_as_before(t);
        }
    }
    if (rc != CUPTI_SUCCESS) {
        subscriber_want(false);
        subscriber_leave(&t->by);
    }
    return rc;
}

/* Name who has CUPTI, as a clause; NULL: nobody is known to. */
static const char *who_else(struct tracing *t)
{
    const char *who = intercept_other();
    return who ? who : t->sink.other(t->sink.arg);
}

static int switch_on_shared(struct tracing *t, char *other)
{
    int rc = subscriber_join(&t->by, other);
    return rc == CUPTI_SUCCESS ? switch_on(t) : rc;
}

/* By the interface that shuts nobody out, else by the one that CUPTI allows.  CUPTI_SUCCESS;
 * CUPTI_MULTIPLE_SUBSCRIBERS and other[]; or its result.  -EBUSY: another profiler was seen. */
static int switch_on_somehow(struct tracing *t, char *other)
{
    const struct cupti *c = &t->cupti;
    const char *seen;
    other[0] = '\0';
    t->by = (struct subscriber){.cupti = c};
    bool old = others_need_old_interface();
    if (!old && subscriber_sharing(c) != SHARING_NOT) {
        int rc = switch_on_shared(t, other);
        if (rc == CUPTI_SUCCESS || rc == CUPTI_MULTIPLE_SUBSCRIBERS)
            return rc;
    } /* else its driver may be too old for it */
    intercept_look(c);
    if ((seen = who_else(t))) {
        (void)snprintf(other, SUBSCRIBER_NAME, "%s", seen);
        return -EBUSY;
    }
    int rc = switch_on(t);
    if (rc == CUPTI_MULTIPLE_SUBSCRIBERS && subscriber_sharing(c) == SHARING_ON)
        rc = switch_on_shared(t, other);
    else if (rc == CUPTI_MULTIPLE_SUBSCRIBERS)
        subscriber_who(c, other);
    return rc;
}

/* With the reason why that is not all the time. */
static void be_tracing(struct tracing *t)
{
    char words[sizeof(t->about.reason)];
    window_words(&t->window, words, sizeof(words));
    be(t, SESSION_TRACING, "%s", t->window.rule.window_ns ? "" : words);
    t->about.costs = t->about.reason[0] != '\0';
}

static void report_begun(struct tracing *t)
{
    t->left_on = false;
    t->about.shared = t->by.handle != NULL;
    t->clients = library_loads();
    clock_begin(&t->clock, &t->by);
    t->about.begun++;
    be_tracing(t);
    t->sink.begun(t->sink.arg, t->window.begun_ns);
}

static void begin_tracing(struct tracing *t)
{
    char text[96], other[SUBSCRIBER_NAME];
    if (buffer_pool_map() < 0) {
        be(t, SESSION_REFUSED, "no memory for %u MB of buffers",
           BUFFERS * (BUFFER_BYTES >> 10) >> 10);
        return;
    }
    int rc = switch_on_somehow(t, other);
    if (rc == CUPTI_SUCCESS) {
        report_begun(t);
        return;
    }
    if (rc == -EBUSY) {
        be(t, SESSION_ASIDE, "%s; its end is waited for", other);
        return;
    }
    const char *said = cupti_text(&t->cupti, rc, text, sizeof(text));
    if (rc != CUPTI_MULTIPLE_SUBSCRIBERS)
        be(t, SESSION_REFUSED, "%s: it does not trace here: %s", t->cupti.path, said);
    else if (other[0])
        be(t, SESSION_ASIDE, "%s: another profiler has CUPTI, \"%s\": %s", t->cupti.path, other,
           said);
    else
        be(t, SESSION_ASIDE, "%s: another profiler has CUPTI: %s", t->cupti.path, said);
}

/* Does the process use CUDA?  The loader is asked again only when something was loaded since. */
static bool has_driver(struct tracing *t)
{
    uint64_t loads = library_loads();
    if (t->unloaded && loads && loads == t->loads)
        return false;
    t->loads = loads;
    const char *missing = driver_missing(&t->unloaded);
    if (missing)
        be(t, SESSION_WAITING, "%s; kernels are traced from then on", missing);
    return !missing;
}

static bool knows_version(struct tracing *t)
{
    char text[96];
    struct cupti *c = &t->cupti;
    int rc = c->version ? CUPTI_SUCCESS : CUPTI(c, GetVersion, &c->version);
    if (rc != CUPTI_SUCCESS) {
        c->version = 0;
        be(t, SESSION_REFUSED, "%s does not tell its version: %s", c->path,
           cupti_text(c, rc, text, sizeof(text)));
    } else if (c->version < CUPTI_API_LEAST) {
        be(t, SESSION_REFUSED, "%s is of API version %u, and %u (CUDA 11.6) is the oldest known",
           c->path, c->version, CUPTI_API_LEAST);
    }
    return rc == CUPTI_SUCCESS && c->version >= CUPTI_API_LEAST;
}

/* Is there a CUPTI that may be asked?  If not, the state says why. */
static bool find_cupti(struct tracing *t)
{
    char why[600];
    if (!has_driver(t))
        return false;
    if (!t->cupti.path[0] && cupti_find(&t->cupti, why, sizeof(why)) < 0) {
        t->cupti.path[0] = '\0';
        be(t, SESSION_REFUSED, "%s", why);
        return false;
    }
    return knows_version(t);
}

static void try_to_begin(struct tracing *t, uint64_t now_ns)
{
    if (now_ns < t->next_ns)
        return;
    t->next_ns = now_ns + AGAIN_NS;
    if (t->about.state == SESSION_REFUSED) { /* the program may have loaded its own by now */
        t->cupti = (struct cupti){.version = 0};
        t->named = false;
    }
    if (find_cupti(t))
        begin_tracing(t);
    (void)snprintf(t->about.library, sizeof(t->about.library), "%s", t->cupti.path);
    t->about.version = t->cupti.version;
    if (t->about.state == SESSION_REFUSED) {
        t->pause_ns = t->pause_ns ? t->pause_ns * 2 : AGAIN_NS;
        t->pause_ns = t->pause_ns < REFUSED_MOST_NS ? t->pause_ns : REFUSED_MOST_NS;
        t->next_ns = now_ns + t->pause_ns;
    } else {
        t->pause_ns = 0; /* at each tick while it waits: what comes before is not seen */
        t->next_ns = t->about.state == SESSION_WAITING ? now_ns : t->next_ns;
    }
}

/* Was a library loaded since it was looked for last? */
static bool has_one_come(struct tracing *t)
{
    uint64_t loads = library_loads();
    bool same = loads && loads == t->clients;
    t->clients = loads;
    return !same;
}

/* Buffers that CUPTI has and does not give back, not even where it must, it has given to somebody
 * else: who registered by dlsym(), or has CUPTI linked in, is not heard of otherwise. */
static bool are_buffers_away(struct tracing *t, uint64_t now_ns)
{
    if (buffer_out_ns(now_ns, t->away) < AWAY_NS)
        return false;
    get_all_back(t);
    return buffer_out_ns(now_ns, t->away) >= AWAY_NS;
}

/* To begin anew would take away the other's: that is for a person to say. */
static void give_up(struct tracing *t)
{
    end_tracing(t, LEAVE_LATE);
    be(t, SESSION_ASIDE,
       "another profiler, which was not seen to begin, has taken CUPTI's buffers; "
       "cuda.kernels=off and then on takes them back");
    t->next_ns = UINT64_MAX;
}

static void keep_on(struct tracing *t, uint64_t now_ns)
{
    const char *other = NULL;
    bool looks = now_ns - t->others_ns >= OTHERS_EVERY_NS;
    if (looks)
        t->others_ns = now_ns;
    bool come = has_one_come(t);
    if (come)
        intercept_look(&t->cupti);
    if (come && t->about.shared && others_need_old_interface()) { /* CUPTI would refuse it */
        end_tracing(t, LEAVE_ALL);
        be(t, SESSION_WAITING, "it begins anew, as a library was loaded that cannot share CUPTI");
        t->next_ns = now_ns;
        return;
    }
    if (looks && !t->about.shared)
        other = t->sink.other(t->sink.arg);
    if (other) {
        end_tracing(t, LEAVE_LATE);
        be(t, SESSION_ASIDE, "%s; its end is waited for", other);
        t->next_ns = now_ns + AGAIN_NS;
    } else {
        flush_and_look(t, /* flush= */ 0);
        be_tracing(t);
        if (!t->about.shared && are_buffers_away(t, now_ns))
            give_up(t);
    }
}

/* ---- windows ---- */

static void close_window(struct tracing *t)
{
    char words[sizeof(t->about.reason)];
    end_tracing(t, LEAVE_ALL);
    window_words(&t->window, words, sizeof(words));
    be(t, SESSION_BETWEEN, "%s", words);
    t->about.costs = !t->window.rule.window_ns;
}

/* ---- a turn ---- */

static void hear_wish(struct tracing *t, const struct tracing_wish *wish)
{
    bool same = wish->on == t->on;
    t->on = wish->on;
    bool other_rule = window_set(&t->window, &wish->rule, monotonic_ns());
    if (wish->anew || (other_rule && t->about.state == SESSION_BETWEEN))
        t->next_ns = t->pause_ns = 0;
    if (!same)
        end_tracing(t, LEAVE_ALL); /* and begins anew when its time has come */
    if (wish->anew && !wish->on && t->left_on && t->cupti.path[0] && !who_else(t))
        disable_kinds(t, LEAVE_ALL); /* that one has gone */
    if (!wish->on)
        be(t, SESSION_OFF, "%s", "");
    else if (t->about.state == SESSION_OFF)
        be(t, SESSION_WAITING, "it has not been tried yet");
    if (wish->aside && t->about.state == SESSION_TRACING) {
        const char *other = intercept_other();
        end_tracing(t, LEAVE_FIRST);
        be(t, SESSION_ASIDE, "%s; its end is waited for", other ? other : "another profiler runs");
        t->next_ns = monotonic_ns() + AGAIN_NS;
    }
}

void tracing_turn(struct tracing *t, const struct tracing_wish *wish)
{
    hear_wish(t, wish);
    uint64_t now_ns = monotonic_ns();
    if (t->about.state == SESSION_TRACING) {
        bool over = now_ns >= window_over_ns(&t->window);
        if (!over)
            keep_on(t, now_ns);
        if (t->about.state == SESSION_TRACING && (over || t->window.over))
            close_window(t);
    } else if (t->on && !wish->aside)
        try_to_begin(t, now_ns);
    t->about.traced_ns = t->traced_ns;
    if (t->about.state == SESSION_TRACING)
        t->about.traced_ns += monotonic_ns() - t->window.begun_ns;
    t->about.clock_error_ns = t->about.state == SESSION_TRACING ? clock_error(&t->clock) : -1;
}

void tracing_wait(struct tracing *t, const struct tracing_wish *wish)
{
    const char *function;
    uint64_t ns = cupti_inside_ns(&function);
    t->on = wish->on;
    if (!wish->on)
        be(t, SESSION_OFF, "%s", "");
    else
        be(t, SESSION_WAITING,
           "%s, which was called before this plugin was loaded, has not returned for %" PRIu64
           " s: the driver may hang; kernels are traced when it has",
           function, ns / PROBING_NS_PER_S);
}

uint64_t tracing_next_ns(const struct tracing *t)
{
    uint64_t look_ns = monotonic_ns() + SESSION_LOOK_NS, over_ns = window_over_ns(&t->window);
    switch (t->about.state) {
    case SESSION_OFF:
        return t->on ? look_ns : UINT64_MAX;
    case SESSION_TRACING:
        return over_ns < look_ns ? over_ns : look_ns;
    case SESSION_BETWEEN:
    case SESSION_ASIDE:
    case SESSION_REFUSED:
        return t->next_ns;
    case SESSION_WAITING:
    case N_SESSION_STATES:
        break;
    }
    return look_ns;
}

void tracing_init(struct tracing *t, const struct session_sink *sink)
{
    *t = (struct tracing){.sink = *sink, .thread_type = -1};
    t->about.since_ns = monotonic_ns();
    t->about.clock_error_ns = -1;
}

void tracing_forked(void)
{
    subscriber_want(false);
}
