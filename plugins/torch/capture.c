/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/capture.c - a bounded run of torch's own profiler: from one step's end to another.
 *
 * Threads: capture_step() and capture_others() on threads of the program, with the GIL; who asked
 * waits on [worker].
 *
 * torch's profiler belongs to the thread that starts it, so both its start and its stop happen
 * where a step ends.  Of torch.autograd.profiler.profile only the first half is used: its
 * __exit__() turns every event into a Python object while the loop waits.  There is one profiler in
 * a process: while the program's own is prepared or runs we refuse, and when the program starts one
 * during ours, ours ends first.  (Both halves: torch 1.12 to 2.13, torch/autograd/profiler.py.)
 */
#include "capture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include <probing/ext/draft/python.h>

#define GIL_WAIT_NS UINT64_C(10000000000)
#define QUIT_WAIT_MS 5000
#define LOOK_MS 100 /* has who asked gone? */
#define REASON_BYTES 200

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
    const struct thread *owner, *newest; /* whose profiler it is; who ended a step last; compared */
    PyObject *results;                   /* owned; DONE: NULL says that `reason` does */
    struct capture_about about;
    char reason[REASON_BYTES];
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

static PyObject *profiler_part(const char *name)
{
    struct cpython *py = &torch_state.py;
    PyObject *module =
        py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "torch.autograd.profiler");
    PyObject *part = module ? py->PyObject_GetAttrString(module, name) : NULL;
    py->PyErr_Clear();
    return part;
}

/* Keep what Python raised as the reason. */
static void take_reason(const char *what)
{
    struct cpython *py = &torch_state.py;
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    py->PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value ? py->PyObject_Str(value) : NULL;
    Py_ssize_t n = 0;
    const char *bytes = text ? py->PyUnicode_AsUTF8AndSize(text, &n) : NULL;
    (void)snprintf(c.reason, sizeof(c.reason), "torch's profiler did not %s: %.*s", what,
                   bytes ? (int)strcspn(bytes, "\n") : 0, bytes ? bytes : "");
    py->PyErr_Clear();
    py->Py_DecRef(text);
    py->Py_DecRef(type);
    py->Py_DecRef(value);
    py->Py_DecRef(trace);
}

static bool call_method(PyObject *object, const char *name)
{
    PyObject *result = torch_state.py.PyObject_CallMethod(object, name, NULL);
    torch_state.py.Py_DecRef(result);
    return result != NULL;
}

/* Is there a GPU that this process uses?  It is not asked for: that would make it be used. */
static bool uses_cuda(void)
{
    struct cpython *py = &torch_state.py;
    PyObject *cuda = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "torch.cuda");
    PyObject *answer = cuda ? py->PyObject_CallMethod(cuda, "is_initialized", NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(answer); /* a constant of the interpreter */
    return answer && answer == py->_Py_TrueStruct;
}

/* torch.autograd.profiler.profile(use_kineto=True), with the GPU where there is one. */
static PyObject *make_profile(void)
{
    static const char *const device[] = {NULL, "use_device", "use_cuda"}; /* from 2.1; before */
    struct cpython *py = &torch_state.py;
    PyObject *class = profiler_part("profile"), *none = py->PyTuple_New(0), *made = NULL;
    PyObject *words = py->PyDict_New(), *cuda = py->PyUnicode_FromString("cuda");
    bool ready = class && none && words && cuda &&
                 py->PyDict_SetItemString(words, "use_kineto", py->_Py_TrueStruct) == 0;
    bool gpu = uses_cuda();
    for (int i = gpu ? 1 : 0; ready && !made && i < (gpu ? 3 : 1); i++) {
        py->PyErr_Clear();
        if (device[i])
            (void)py->PyDict_SetItemString(words, device[i], i == 1 ? cuda : py->_Py_TrueStruct);
        made = py->PyObject_Call(class, none, words);
        if (device[i])
            (void)py->PyDict_DelItemString(words, device[i]);
    }
    py->Py_DecRef(cuda);
    py->Py_DecRef(words);
    py->Py_DecRef(none);
    py->Py_DecRef(class);
    return made;
}

/* A flag of torch's that says that a profiler runs goes down again (torch 2). */
static void lower_flag(void)
{
    struct cpython *py = &torch_state.py;
    PyObject *function = profiler_part("_run_on_profiler_stop");
    PyObject *result = function ? py->PyObject_CallFunctionObjArgs(function, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(result);
    py->Py_DecRef(function);
}

static void finish(void)
{
    struct cpython *py = &torch_state.py;
    c.state = c.unwanted ? IDLE : DONE;
    if (c.unwanted && c.results) {
        py->Py_DecRef(c.results);
        c.results = NULL;
    }
    set_ended(true);
}

static bool is_profiled_already(void)
{
    struct cpython *py = &torch_state.py;
    PyObject *function = profiler_part("_profiler_enabled");
    if (!function) {
        PyObject *autograd =
            py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "torch.autograd");
        function = autograd ? py->PyObject_GetAttrString(autograd, "_profiler_enabled") : NULL;
    }
    py->PyErr_Clear();
    PyObject *answer = function ? py->PyObject_CallFunctionObjArgs(function, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(function);
    py->Py_DecRef(answer); /* a constant of the interpreter */
    return c.others || (answer && answer == py->_Py_TrueStruct);
}

static void begin(struct thread *t)
{
    struct cpython *py = &torch_state.py;
    uint64_t now_ns = torch_state.now();
    c.state = CHANGING;
    c.owner = t;
    c.about = (struct capture_about){.first_step = (int64_t)torch_state.step};
    if (is_profiled_already()) {
        (void)snprintf(c.reason, sizeof(c.reason),
                       "a torch profiler of the program's own is at work; there can be only one");
        finish();
        return;
    }
    PyObject *profile = make_profile();
    bool works =
        profile && call_method(profile, "_prepare_trace") && call_method(profile, "_start_trace");
    if (!works) {
        take_reason("start");
        lower_flag();
    }
    py->Py_DecRef(profile);
    c.about.begin_ns = torch_state.now();
    c.about.start_ns = c.about.begin_ns - now_ns;
    c.state = RUNNING;
    if (!works)
        finish();
}

static void end(void)
{
    struct cpython *py = &torch_state.py;
    uint64_t now_ns = torch_state.now();
    c.state = CHANGING;
    PyObject *function = profiler_part("_disable_profiler");
    c.results = function ? py->PyObject_CallFunctionObjArgs(function, NULL) : NULL;
    if (!c.results)
        take_reason("stop");
    lower_flag();
    py->Py_DecRef(function);
    c.about.end_ns = now_ns;
    c.about.stop_ns = torch_state.now() - now_ns;
    finish();
}

void capture_step(struct thread *t)
{
    bool again = c.newest == t; /* other threads may end a step now and then */
    c.newest = t;
    if (c.state == ARMED && c.skip) {
        c.skip--;
    } else if (c.state == ARMED && again) {
        begin(t);
        t->walks_ns += c.about.start_ns; /* our own cost, not the step's */
    } else if (c.state == RUNNING && c.left) {
        c.about.steps++;
        c.left--;
    }
    if (c.state == RUNNING && (!c.left || c.unwanted))
        torch_state.capture_due = c.owner;
    if (t == torch_state.capture_due)
        capture_end(t);
}

void capture_end(struct thread *t)
{
    torch_state.capture_due = NULL;
    if (c.state != RUNNING || c.owner != t)
        return;
    end();
    t->walks_ns += c.about.stop_ns;
}

PyObject *capture_others(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    bool ours = c.state == CHANGING && c.owner == call_thread();
    bool stops = strcmp(hook_name(hook), "_disable_profiler") == 0;
    if (!hook_works(hook) || ours)
        return hook_pass(hook, args, nargsf, kwnames);
    if (c.state == RUNNING && c.owner == call_thread() && !stops) {
        end();
        torch_state.py.Py_DecRef(c.results);
        c.results = NULL;
        (void)snprintf(c.reason, sizeof(c.reason),
                       "the program has started a torch profiler of its own: ours has ended");
    }
    c.others = !stops;
    return hook_pass(hook, args, nargsf, kwnames);
}

/* ---- who asks ---- */

struct order {
    uint32_t skip, n;
    PyObject *results;
    struct capture_about about;
    char reason[REASON_BYTES];
};

static int arm(void *arg)
{
    const struct order *o = arg;
    if (!torch_on() || c.quitting)
        return -ENODEV;
    if (c.state != IDLE)
        return -EBUSY;
    c.skip = o->skip;
    c.left = o->n;
    c.unwanted = false;
    c.reason[0] = '\0';
    c.state = ARMED;
    set_ended(false);
    return 0;
}

static int collect(void *arg)
{
    struct order *o = arg;
    o->results = c.results;
    o->about = c.about;
    memcpy(o->reason, c.reason, sizeof(o->reason));
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
        finish();
    else
        torch_state.capture_due = c.owner;
    return 0;
}

static const struct probing_python_gil_1 *python(void)
{
    return torch_state.host->extension(torch_state.host, PROBING_PYTHON_GIL_1);
}

int capture_run(const struct probing_reply *out, uint32_t skip, uint32_t n, PyObject **ret_results,
                struct capture_about *ret_about)
{
    const struct probing_host *h = torch_state.host;
    const struct probing_python_gil_1 *gil = python();
    struct order order = {.skip = skip, .n = n};
    int rc = gil ? gil->call(arm, &order, GIL_WAIT_NS) : -ENODEV;
    if (rc == -EBUSY)
        return h->fail(h, rc,
                       "another capture is under way; or one that was cancelled waits for "
                       "its step to end");
    if (rc < 0)
        return h->fail(h, rc, "the interpreter cannot be asked now; is the plugin torch at work?");
    while (!wait_ended(LOOK_MS))
        if (h->cancelled(out)) {
            (void)gil->call(give_up, NULL, GIL_WAIT_NS);
            return -ECANCELED;
        }
    rc = gil->call(collect, &order, GIL_WAIT_NS);
    if (rc < 0)
        return h->fail(h, rc, "the interpreter did not give up the GIL for 10 s");
    if (!order.results)
        return h->fail(h, -EBUSY, order.reason);
    *ret_results = order.results;
    *ret_about = order.about;
    return 0;
}

/* ---- the plugin ---- */

void capture_begin(void)
{
    c.quitting = c.others = false;
}

static int quit(void *arg)
{
    (void)arg;
    c.quitting = true;
    if (c.state == ARMED) {
        (void)snprintf(c.reason, sizeof(c.reason), "the plugin torch was stopped");
        finish();
    } else if (c.state == RUNNING) {
        c.left = 0;
        torch_state.capture_due = c.owner;
    }
    return 0;
}

int capture_quit(void)
{
    const struct probing_python_gil_1 *gil = python();
    if (!gil || gil->call(quit, NULL, GIL_WAIT_NS) < 0 || wait_ended(QUIT_WAIT_MS))
        return 0;
    return -EBUSY;
}
