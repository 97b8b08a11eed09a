/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/trace/trace.c - the command `trace`: clients that watch functions, and what
 * they hear.
 *
 * [worker] follows what is told of calls through a bounded queue.  The hooks run in the user's
 * threads; trace.py puts them in and takes them out on the runner's thread.
 */
#include "trace/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "exec/bindings.h"
#include "internal.h"
#include "lib/buf.h"
#include "trace/trace_event.h"

#define LINES 1024                     /* of the queue; a power of two */
#define LOOK_NS UINT64_C(100000000)    /* how often a client is told */
#define TEXT_BYTES ((size_t)1 << 24)   /* that it is told at once: of LINES lines */
#define GIL_NS (10 * PROBING_NS_PER_S) /* to take hooks out */

struct line { /* what clients see as it comes */
    uint64_t ts, duration_ns;
    int32_t tid;
    uint32_t slot;
    enum event_phase phase;
    char text[TRACE_TEXT];
};

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static struct line queue[LINES]; /* lock: queue_lock */
static uint64_t queued;          /* lock: queue_lock; lines ever */
static _Atomic int followers;

static struct {
    pthread_mutex_t lock; /* from a client's words until its slots are known */
    uint64_t slots, duration_ns;
    bool keep;
    PyObject *finish; /* trace.py's; lock: the GIL */
} asked = {.lock = PTHREAD_MUTEX_INITIALIZER};

void trace_show(uint32_t slot, uint64_t ts, uint64_t duration_ns, enum event_phase phase,
                const char *text, size_t n)
{
    if (atomic_load_explicit(&followers, memory_order_relaxed) == 0)
        return;
    (void)pthread_mutex_lock(&queue_lock);
    struct line *l = &queue[queued++ % LINES];
    *l = (struct line){.ts = ts, .duration_ns = duration_ns, .slot = slot, .phase = phase};
    l->tid = (int32_t)syscall(SYS_gettid);
    if (n >= sizeof(l->text)) {
        n = sizeof(l->text) - 4;
        memcpy(l->text + n, "...", 4);
    }
    memcpy(l->text, text, n);
    (void)pthread_mutex_unlock(&queue_lock);
}

/* trace_follow(slots, duration ns, keep, finish): what the client's command goes on with. */
static PyObject *trace_follow(PyObject *self, PyObject *args)
{
    const struct cpython *py = &natives_py;
    (void)self;
    asked.slots = py->PyLong_AsUnsignedLongLong(py->PyTuple_GetItem(args, 0));
    asked.duration_ns = (uint64_t)py->PyLong_AsLongLong(py->PyTuple_GetItem(args, 1));
    asked.keep = py->PyObject_IsTrue(py->PyTuple_GetItem(args, 2)) == 1;
    if (!asked.finish)
        asked.finish = natives_keep(args, 3);
    return natives_none();
}

struct cpython_method trace_natives[] = {
    {"trace_follow", trace_follow, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- the command ---- */

struct finish {
    uint64_t slots;
    char told[600]; /* of trace.py's finish_set() */
};

/* With the GIL, on the runner's thread. */
static int finish_job(void *arg)
{
    struct finish *f = arg;
    const struct cpython *py = &natives_py;
    PyObject *set = asked.finish ? py->PyLong_FromUnsignedLongLong(f->slots) : NULL;
    PyObject *done = set ? py->PyObject_CallFunctionObjArgs(asked.finish, set, NULL) : NULL;
    int result = done || !asked.finish ? 0 : -EIO;
    size_t n;
    if (done)
        (void)snprintf(f->told, sizeof(f->told), "%s", natives_utf8(done, &n));
    py->PyErr_Clear();
    if (set)
        py->Py_DecRef(set);
    if (done)
        py->Py_DecRef(done);
    if (asked.finish && f->slots == UINT64_MAX && result == 0) {
        py->Py_DecRef(asked.finish);
        asked.finish = NULL;
    }
    return result;
}

/* out: who is told what trace.py has to say; NULL: nobody. */
static int finish_set(struct plugin *p, uint64_t set, struct probing_reply *out)
{
    for (uint32_t i = 0; i < TRACE_SLOTS;
         i++) /* whatever comes of the rest: no work for it any more */
        if (set >> i & 1)
            atomic_store_explicit(&trace_slots[i].live, false, memory_order_relaxed);
    struct finish f = {.slots = set};
    int r = runner_call(p->runner, finish_job, &f, GIL_NS);
    if (r == 0 && out && f.told[0])
        (void)natives_host->reply(out, f.told, strlen(f.told));
    return r;
}

static const char *unit_of(double ns, double *ret_value)
{
    *ret_value = ns / (ns >= 1e9 ? 1e9 : ns >= 1e6 ? 1e6 : 1e3);
    return ns >= 1e9 ? "s" : ns >= 1e6 ? "ms" : "us";
}

static void put_time(struct buf *b, uint64_t ns)
{
    double value;
    const char *unit = unit_of((double)ns, &value);
    (void)buf_addf(b, "%9.3f %-2s", value, unit);
}

static void put_line(struct buf *b, const struct line *l)
{
    struct tm t;
    uint64_t utc = probing_clock_ns(CLOCK_REALTIME) - (natives_host->now() - l->ts);
    time_t seconds = (time_t)(utc / PROBING_NS_PER_S);
    if (!gmtime_r(&seconds, &t))
        return;
    (void)buf_addf(b, "%02d:%02d:%02d.%06d %7d  ", t.tm_hour, t.tm_min, t.tm_sec,
                   (int)(utc % PROBING_NS_PER_S / 1000), l->tid);
    const struct trace_slot *s = &trace_slots[l->slot];
    if (s->variable[0]) {
        (void)buf_addf(b, "%s", s->name);
        if ((int64_t)l->duration_ns != PROBING_NULL_I64)
            (void)buf_addf(b, ":%lld", (long long)l->duration_ns);
        (void)buf_addf(b, "  %s\n", l->text);
        return;
    }
    put_time(b, l->duration_ns);
    (void)buf_addf(b, "  %-6s  %s%s%s\n", event_phase_names[l->phase], s->name,
                   l->text[0] ? "  " : "", l->text);
}

struct follower {
    uint64_t set, at, lost;
};

/* Send what has come for this client since the last time. */
static int send_lines(struct follower *w, struct probing_reply *out)
{
    struct buf text;
    buf_init(&text, TEXT_BYTES);
    (void)pthread_mutex_lock(&queue_lock);
    if (queued - w->at > LINES) {
        w->lost += queued - w->at - LINES;
        w->at = queued - LINES;
    }
    for (; w->at < queued; w->at++)
        if (w->set >> queue[w->at % LINES].slot & 1)
            put_line(&text, &queue[w->at % LINES]);
    (void)pthread_mutex_unlock(&queue_lock);
    int r = text.failed;
    if (r == 0 && text.size)
        r = natives_host->reply(out, text.data, text.size);
    buf_done(&text);
    return r;
}

static bool all_done(uint64_t set)
{
    for (uint32_t i = 0; i < TRACE_SLOTS; i++)
        if (set >> i & 1 && trace_is_live(i))
            return false;
    return true;
}

static void put_summary(struct buf *b, const struct trace_slot *s)
{
    int64_t n = atomic_load_explicit(&s->calls, memory_order_relaxed);
    int64_t ns = atomic_load_explicit(&s->total_ns, memory_order_relaxed);
    int64_t costs = atomic_load_explicit(&s->costs, memory_order_relaxed);
    double value;
    if (s->variable[0])
        (void)buf_addf(b, "%s in %s: %lld value%s", s->variable, s->name, (long long)n,
                       n == 1 ? "" : "s");
    else
        (void)buf_addf(b, "%s: %lld calls, %lld raised", s->name, (long long)n,
                       (long long)atomic_load_explicit(&s->raised, memory_order_relaxed));
    if (n && !s->variable[0]) {
        const char *unit = unit_of((double)ns / (double)n, &value);
        (void)buf_addf(b, ", mean %.3f %s", value, unit);
    }
    if (costs) {
        double each = (double)atomic_load_explicit(&s->cost_ns, memory_order_relaxed);
        const char *unit = unit_of(each / (double)costs, &value);
        (void)buf_addf(b, "; watching cost %.3g %s per %s", value, unit,
                       s->variable[0] ? "line" : "call");
    }
    (void)buf_addc(b, '\n');
}

static void send_summary(const struct follower *w, struct probing_reply *out)
{
    struct buf text;
    buf_init(&text, TEXT_BYTES);
    for (uint32_t i = 0; i < TRACE_SLOTS; i++)
        if (w->set >> i & 1 && trace_slots[i].life)
            put_summary(&text, &trace_slots[i]);
    if (w->lost)
        (void)buf_addf(&text,
                       "%llu calls came too fast to be shown here; look for them in "
                       "python.trace_event\n",
                       (unsigned long long)w->lost);
    (void)natives_host->reply(out, buf_text(&text), text.size);
    buf_done(&text);
}

/* Until the client goes, its time is over, or all limits are reached. */
static void stream_events(struct plugin *p, struct follower *w, uint64_t duration_ns,
                          struct probing_reply *out)
{
    uint64_t until = duration_ns ? natives_host->now() + duration_ns : UINT64_MAX;
    for (;;) {
        uint64_t now = natives_host->now();
        bool last = now >= until || all_done(w->set);
        if (send_lines(w, out) < 0 || natives_host->cancelled(out) || last)
            return;
        runner_lock(p->runner); /* an event with a limit: nobody need wake us */
        runner_sleep(p->runner, until - now < LOOK_NS ? until - now : LOOK_NS);
        runner_unlock(p->runner);
    }
}

/* Our Python runs in the main interpreter: functions of others are other ones. */
static int tell_subinterpreters(struct plugin *p, struct probing_reply *out)
{
    char text[120];
    int n = backtrace_subinterpreters(p);
    if (n == 0)
        return 0;
    (void)snprintf(text, sizeof(text),
                   "calls in the main interpreter only: this process has %d other%s, which cannot "
                   "be watched\n",
                   n, n > 1 ? "s" : "");
    return natives_host->reply(out, text, strlen(text));
}

static int trace_run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct plugin *p = self;
    (void)pthread_mutex_lock(&asked.lock);
    asked.slots = 0;
    (void)atomic_fetch_add_explicit(&followers, 1, memory_order_relaxed);
    (void)pthread_mutex_lock(&queue_lock);
    struct follower w = {.at = queued};
    (void)pthread_mutex_unlock(&queue_lock);
    int r = eval_tool(p, argc, argv, out);
    w.set = asked.slots;
    uint64_t duration_ns = asked.duration_ns;
    bool stays = asked.keep;
    (void)pthread_mutex_unlock(&asked.lock);
    if (r < 0 || w.set)
        (void)tell_subinterpreters(p, out);
    if (r == 0 && w.set && stays) {
        static const char text[] = "watched until `trace --stop`; calls become rows of "
                                   "python.trace_event, variables rows of python.watched\n";
        r = natives_host->reply(out, text, sizeof(text) - 1);
    } else if (r == 0 && w.set) {
        stream_events(p, &w, duration_ns, out);
        send_summary(&w, out);
    }
    (void)atomic_fetch_sub_explicit(&followers, 1, memory_order_relaxed);
    if (w.set && !stays && finish_set(p, w.set, out) < 0)
        r = natives_host->fail(
            natives_host, -ETIMEDOUT,
            "the hooks could not be removed because the GIL is not available; nothing is recorded "
            "any more, and `trace --stop` removes them later");
    return r;
}

const struct probing_command trace_command = {
    .size = sizeof(struct probing_command),
    .flags = PROBING_WRITES,
    .name = "trace",
    .usage = "[--args] [--watch VARIABLE] [--duration TIME] [--limit N] [--keep] "
             "MODULE.FUNCTION... | --list | --stop [NAME]",
    .doc = "watch calls of Python functions, or a variable in one; rows go to python.trace_event "
           "and python.watched",
    .run = trace_run,
};

/* ---- in and out ---- */

int trace_stop(struct plugin *p)
{
    if (!trace_any() && !asked.finish)
        return 0;
    return finish_set(p, UINT64_MAX, /* out= */ NULL);
}

void trace_forked(void)
{
    for (uint32_t i = 0; i < TRACE_SLOTS; i++)
        atomic_store_explicit(&trace_slots[i].live, false, memory_order_relaxed);
}
