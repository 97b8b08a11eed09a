/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/profiler/profile_run.c - a bounded run of torch's own profiler: from one step's end
 * to another.
 *
 * Threads: capture_step() and capture_others() on threads of the program, with the GIL; who asked
 * waits on [worker].
 *
 * torch's profiler belongs to the thread that starts it, so both its start and its stop happen
 * where a step ends.  There is one profiler in a process: while the program's own is prepared or
 * runs we refuse, and when the program starts one during ours, ours ends first.
 */
#include "profiler/profile_run.h"
#include "profiler/kineto.h"
#include "steps/call_thread.h"
#include "steps/loop_table.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include <probing/ext/draft/python.h>

#define GIL_WAIT_NS (10 * PROBING_NS_PER_S)
#define QUIT_WAIT_MS 5000
#define LOOK_MS 100                         /* has who asked gone? */
#define END_WAIT_NS (10 * PROBING_NS_PER_S) /* for the thread of the profiler to come by */
/* Memory that comes while torch records: 1.1 million events of 230 bytes (torch 2.13).  To put them
 * in order takes six times as much, and 4 s in which the loop stands. */
#define GROWTH_MAX INT64_C(268435456)

enum state {
    IDLE,
    ARMED,    /* somebody waits for a step's end */
    CHANGING, /* torch's functions run, and may give up the GIL */
    RUNNING,
    DONE /* until who asked has looked */
};

static struct {
    enum state state;
    bool unwanted; /* nobody waits any more: end it, keep nothing */
    bool quitting; /* the plugin stops: begin no other */
    bool others;   /* the program's own profiler is prepared, or runs */
    uint32_t skip, left;
    int64_t memory; /* of the process when the first step was captured; 0: none was */
    const struct thread *owner, *newest; /* whose profiler it is; who ended a step last; compared */
    PyObject *results;                   /* owned; DONE: NULL says that `reason` does */
    PyObject *at_exit;                   /* owned; a function of atexit while the profiler runs */
    struct capture_about about;
    struct profiler_reason reason;
} c; /* lock: the GIL */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool ended = true; /* lock: mutex; no profiler of ours runs, nor will at a step's end */

static void set_ended(bool value)
{
    (void)pthread_mutex_lock(&mutex);
    ended = value;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&mutex);
}

/* true: it has ended. */
static bool wait_ended(int timeout_ms)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    (void)pthread_mutex_lock(&mutex);
    int rc = 0;
    while (!ended && rc == 0)
        rc = pthread_cond_timedwait(&changed, &mutex, &until);
    bool value = ended;
    (void)pthread_mutex_unlock(&mutex);
    return value;
}

/* ---- with the GIL: torch's functions ---- */

static void finish_capture(void)
{
    struct cpython *py = &python.api;
    c.state = c.unwanted ? IDLE : DONE;
    if (c.unwanted && c.results) {
        py->Py_DecRef(c.results);
        c.results = NULL;
    }
    set_ended(true);
}

/* The interpreter ends in the middle: torch 2.13 crashes in the process's exit while its profiler
 * runs, or ran on a thread that has ended. */
static PyObject *end_at_exit(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    struct cpython *py = &python.api;
    (void)self;
    (void)args;
    (void)n;
    (void)kwnames;
    if (c.state == RUNNING && torch_on()) { /* off: this is a child, whose locks are nobody's */
        c.state = CHANGING;
        py->Py_DecRef(profiler_stop(&c.reason));
        (void)snprintf(c.reason.text, sizeof(c.reason.text), "the program has ended meanwhile");
        finish_capture();
    }
    py->Py_IncRef(py->_Py_NoneStruct);
    return py->_Py_NoneStruct;
}

/* atexit.register() or .unregister() */
static void tell_atexit(const char *what)
{
    struct cpython *py = &python.api;
    PyObject *module = py->PyImport_ImportModule("atexit"), *result = NULL;
    if (module && c.at_exit)
        result = py->PyObject_CallMethod(module, what, "O", c.at_exit);
    py->PyErr_Clear();
    py->Py_DecRef(result);
    py->Py_DecRef(module);
}

static void expect_exit(void)
{
    static struct cpython_method method = {"probing_exits", NULL, METH_FASTCALL | METH_KEYWORDS,
                                           NULL};
    memcpy(&method.call, &(PyCFunctionFastKeywords){end_at_exit}, sizeof(method.call));
    c.at_exit = python.api.PyCFunction_NewEx(&method, NULL, NULL);
    tell_atexit("register");
}

static void begin_capture(struct thread *t)
{
    uint64_t now_ns = torch_state.now();
    c.state = CHANGING;
    c.owner = t;
    c.about = (struct capture_about){.first_step = (int64_t)steps.step, .asked = c.left};
    c.memory = 0;
    if (c.others || profiler_runs()) {
        (void)snprintf(c.reason.text, sizeof(c.reason.text),
                       "a torch profiler of the program's own is at work; there can be only one");
        finish_capture();
        return;
    }
    bool works = profiler_start(&c.reason);
    if (works)
        expect_exit();
    c.about.begin_ns = torch_state.now();
    c.about.start_ns = c.about.begin_ns - now_ns;
    c.state = RUNNING;
    if (!works)
        finish_capture();
}

static void end_capture(void)
{
    uint64_t now_ns = torch_state.now();
    c.state = CHANGING;
    c.results = profiler_stop(&c.reason);
    tell_atexit("unregister");
    python.api.Py_DecRef(c.at_exit);
    c.at_exit = NULL;
    c.about.end_ns = now_ns;
    c.about.stop_ns = torch_state.now() - now_ns;
    finish_capture();
}

/* A captured step has ended. */
static void count_step(void)
{
    int64_t memory = loop_rss();
    c.about.steps++;
    c.left--;
    if (!c.memory)
        c.memory = memory;
    if (!c.left || memory - c.memory < GROWTH_MAX)
        return;
    c.left = 0;
    (void)snprintf(c.about.note, sizeof(c.about.note),
                   "%lld of %lld steps: the process needed %lld MB more meanwhile",
                   (long long)c.about.steps, (long long)c.about.asked,
                   (long long)(memory - c.memory) >> 20);
}

/* The profiler has run for long enough, and this is its thread. */
static void capture_end(struct thread *t)
{
    steps.due_on = NULL;
    if (c.state != RUNNING || c.owner != t)
        return;
    end_capture();
    t->walks_ns += c.about.stop_ns;
}

void capture_step(struct thread *t)
{
    bool again = c.newest == t; /* other threads may end a step now and then */
    c.newest = t;
    if (c.state == ARMED && c.skip) {
        c.skip--;
    } else if (c.state == ARMED && again) {
        begin_capture(t);
        t->walks_ns += c.about.start_ns; /* our own cost, not the step's */
    } else if (c.state == RUNNING && c.left) {
        count_step();
    }
    if (c.state == RUNNING && (!c.left || c.unwanted))
        steps.due_on = c.owner;
    if (t == steps.due_on)
        capture_end(t);
}

PyObject *capture_others(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    bool ours = c.state == CHANGING && c.owner == call_thread();
    bool stops = strcmp(hook_name(hook), "_disable_profiler") == 0;
    if (!hook_works(hook) || ours)
        return hook_pass(hook, args, nargsf, kwnames);
    if (c.state == RUNNING && c.owner == call_thread() && !stops) {
        end_capture();
        python.api.Py_DecRef(c.results);
        c.results = NULL;
        (void)snprintf(c.reason.text, sizeof(c.reason.text),
                       "the program has started a torch profiler of its own: ours has ended");
    }
    c.others = !stops;
    return hook_pass(hook, args, nargsf, kwnames);
}

/* ---- who asks ---- */

struct order {
    const struct capture_order *wanted;
    PyObject *results;
    struct capture_about about;
    struct profiler_reason reason;
};

static int arm_capture(void *arg)
{
    const struct order *o = arg;
    if (!torch_on() || c.quitting)
        return -ENODEV;
    if (c.state != IDLE)
        return -EBUSY;
    c.skip = o->wanted->skip;
    c.left = o->wanted->steps;
    c.unwanted = false;
    c.reason.text[0] = '\0';
    c.state = ARMED;
    set_ended(false);
    return 0;
}

static int collect_capture(void *arg)
{
    struct order *o = arg;
    o->results = c.results;
    o->about = c.about;
    o->reason = c.reason;
    c.results = NULL;
    c.state = IDLE;
    return 0;
}

/* Nobody wants it any more. */
static int give_up(void *arg)
{
    (void)arg;
    c.unwanted = true;
    if (c.state == ARMED || c.state == DONE)
        finish_capture();
    else
        steps.due_on = c.owner;
    return 0;
}

/* Tell what has become of a capture whose steps do not end. */
static void tell_none(const struct capture_order *wanted)
{
    char since[80] = "none has since the plugin was loaded";
    if (steps.begin_ns)
        (void)snprintf(since, sizeof(since), "the last one did %.1f s ago",
                       probing_seconds(torch_state.now() - steps.begin_ns));
    (void)snprintf(c.reason.text, sizeof(c.reason.text),
                   "no step to begin with has ended in %u s: %s, %u of %u to leave out are still "
                   "to come; see `probing torch`, and --timeout for more",
                   wanted->seconds, since, c.skip, wanted->skip);
}

/* The time is over: end with what there is. */
static int run_out(void *arg)
{
    const struct capture_order *wanted = arg;
    if (c.state == ARMED) {
        tell_none(wanted);
        finish_capture();
    } else if (c.state == RUNNING && c.left) {
        c.left = 0;
        steps.due_on = c.owner;
        (void)snprintf(c.about.note, sizeof(c.about.note), "%lld of %lld steps ended in %u s",
                       (long long)c.about.steps, (long long)c.about.asked, wanted->seconds);
    }
    return 0;
}

static const struct probing_python_gil_1 *find_gil(void)
{
    return torch_state.host->extension(torch_state.host, PROBING_PYTHON_GIL_1);
}

/* Tell the failure that python.gil/1 gave. */
static int fail_of_gil(int rc)
{
    const struct probing_host *h = torch_state.host;
    return rc == 0            ? 0
           : rc == -ETIMEDOUT ? h->fail(h, rc, "the interpreter did not give up the GIL for 10 s")
                              : h->fail(h, rc, "the program has ended meanwhile");
}

/* 0: it has ended.  -errno after fail(): it has not, and nobody wants it any more. */
static int wait_for_steps(const struct probing_reply *out, const struct capture_order *wanted,
                          const struct probing_python_gil_1 *gil)
{
    const struct probing_host *h = torch_state.host;
    struct capture_order copy = *wanted;
    uint64_t until_ns = torch_state.now() + (uint64_t)wanted->seconds * PROBING_NS_PER_S;
    bool late = false;
    int rc = 0;
    while (!wait_ended(LOOK_MS) && rc == 0) {
        bool over = torch_state.now() >= until_ns;
        if (h->cancelled(out))
            rc = -ECANCELED;
        else if (over && late)
            rc = h->fail(h, -ETIMEDOUT,
                         "torch's profiler has begun, and its thread has called no model and ended "
                         "no step since the time is over: it ends when that does, and nothing of "
                         "it is kept; see `probing torch`");
        else if (over)
            rc = fail_of_gil(gil->call(run_out, &copy, GIL_WAIT_NS));
        if (over && !late)
            until_ns = torch_state.now() + END_WAIT_NS;
        late = late || over;
    }
    if (rc < 0)
        (void)gil->call(give_up, NULL, GIL_WAIT_NS);
    return rc;
}

int capture_run(const struct probing_reply *out, const struct capture_order *wanted,
                PyObject **ret_results, struct capture_about *ret_about)
{
    const struct probing_host *h = torch_state.host;
    const struct probing_python_gil_1 *gil = find_gil();
    struct order order = {.wanted = wanted};
    int rc = gil ? gil->call(arm_capture, &order, GIL_WAIT_NS) : -ENODEV;
    if (rc == -EBUSY)
        return h->fail(h, rc,
                       "another capture is under way; or one that was cancelled waits for "
                       "its step to end");
    if (rc < 0)
        return h->fail(h, rc, "the interpreter cannot be asked now; is the plugin torch at work?");
    rc = wait_for_steps(out, wanted, gil);
    if (rc < 0)
        return rc;
    rc = gil->call(collect_capture, &order, GIL_WAIT_NS);
    if (rc < 0)
        return fail_of_gil(rc);
    if (!order.results)
        return h->fail(h, -EBUSY, order.reason.text);
    *ret_results = order.results;
    *ret_about = order.about;
    return 0;
}

/* ---- the plugin ---- */

void capture_begin(void)
{
    c.quitting = c.others = false;
    steps.due = capture_end;
}

static int quit_capture(void *arg)
{
    (void)arg;
    c.quitting = true;
    if (c.state == ARMED) {
        (void)snprintf(c.reason.text, sizeof(c.reason.text), "the plugin torch was stopped");
        finish_capture();
    } else if (c.state == RUNNING) {
        c.left = 0;
        steps.due_on = c.owner;
    }
    return 0;
}

int capture_quit(void)
{
    const struct probing_python_gil_1 *gil = find_gil();
    if (!gil || gil->call(quit_capture, NULL, GIL_WAIT_NS) < 0 || wait_ended(QUIT_WAIT_MS))
        return 0;
    return -EBUSY;
}
