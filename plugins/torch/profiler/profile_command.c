/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/profiler/profile_command.c - the command torch_profile: what torch's profiler has
 * seen of some steps, as a trace for Perfetto and Chrome and as the tables torch.ops and
 * torch.capture.
 *
 * Threads: [worker]; the GIL is held only while some events are copied out of torch's list, and
 * given back between.
 * torch's own export writes everything with the GIL held, so we write it: Chrome's JSON, times in
 * microseconds from "baseTimeNanoseconds" on, as Kineto does.
 */
#include "profiler/op_totals.h"
#include "profiler/profile_run.h"
#include "steps/loop_table.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <probing/ext/draft/python.h>

#include "lib/json_text.h"

#define GIL_WAIT_NS UINT64_C(30000000000)
#define STEPS_MAX 10000
#define SECONDS 600 /* when nobody says how long */
#define SECONDS_MAX 86400
#define CHUNK 256 /* events: a third of a millisecond with the GIL held */
#define NAME_BYTES 200
#define KIND_BYTES 32
#define EVENT_BYTES 1600 /* of JSON: a name whose bytes are all escaped, and the rest */

struct event {
    char name[NAME_BYTES], kind[KIND_BYTES];
    int64_t begin_ns, duration_ns, thread, resource, device, index, correlation;
};

struct export
{
    const struct probing_host *host;
    const struct probing_python_gil_1 *gil;
    struct probing_reply *out;
    PyObject *results, *list; /* owned */
    Py_ssize_t at, n;
    uint64_t base_ns, longest_hold_ns;
    struct ops *ops;
    uint32_t n_events; /* in `events` */
    struct event events[CHUNK];
    char text[CHUNK * EVENT_BYTES];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct ops *newest;          /* lock: mutex; owned */
static struct capture_about about;  /* lock: mutex */
static uint64_t export_ns, hold_ns; /* lock: mutex */
static int64_t events_seen;         /* lock: mutex; 0: nothing was captured yet */

/* ---- with the GIL ---- */

/* Call a method without arguments; gives a new reference or NULL. */
static PyObject *call_method(PyObject *object, const char *method)
{
    struct cpython *py = &python.api;
    PyObject *bound = py->PyObject_GetAttrString(object, method);
    PyObject *value = bound ? cpython_vectorcall(py, bound, NULL, 0, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(bound);
    return value;
}

static int64_t call_for_number(PyObject *object, const char *method)
{
    struct cpython *py = &python.api;
    PyObject *value = call_method(object, method);
    int64_t n = value && py->PyType_IsSubtype(object_type(value), py->PyLong_Type)
                    ? py->PyLong_AsLongLong(value)
                    : -1;
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return n;
}

/* Nanoseconds, also from a torch that tells microseconds (before 2.3). */
static int64_t call_for_ns(PyObject *object, const char *ns, const char *us)
{
    int64_t value = call_for_number(object, ns);
    if (value >= 0)
        return value;
    value = call_for_number(object, us);
    return value < 0 ? 0 : value * 1000;
}

static void text_of(PyObject *object, const char *method, char *ret, size_t size)
{
    struct cpython *py = &python.api;
    PyObject *value = call_method(object, method);
    Py_ssize_t n;
    const char *bytes = value && py->PyType_IsSubtype(object_type(value), py->PyUnicode_Type)
                            ? py->PyUnicode_AsUTF8AndSize(value, &n)
                            : NULL;
    size_t length = bytes ? strlen(bytes) : 0;
    if (length >= size)
        for (length = size - 1; length && (bytes[length] & 0xc0) == 0x80;) /* a character whole */
            length--;
    (void)snprintf(ret, size, "%.*s", (int)length, bytes ? bytes : "");
    py->PyErr_Clear();
    py->Py_DecRef(value);
}

static void look_at(PyObject *event, struct event *e)
{
    struct cpython *py = &python.api;
    PyObject *type = call_method(event, "device_type");
    e->device = type ? call_for_number(type, "__int__") : 0; /* 0: CPU */
    py->Py_DecRef(type);
    e->begin_ns = call_for_ns(event, "start_ns", "start_us");
    e->duration_ns = call_for_ns(event, "duration_ns", "duration_us");
    e->thread = call_for_number(event, "start_thread_id");
    e->resource = call_for_number(event, "device_resource_id");
    e->index = call_for_number(event, "device_index");
    e->correlation = call_for_number(event, "correlation_id");
    text_of(event, "name", e->name, sizeof(e->name));
    text_of(event, "activity_type", e->kind, sizeof(e->kind)); /* torch 2 */
    if (!e->kind[0])
        (void)snprintf(e->kind, sizeof(e->kind), "%s", e->device ? "kernel" : "cpu_op");
}

static int open_list(void *arg)
{
    struct cpython *py = &python.api;
    struct export *x = arg;
    uint64_t begin_ns = torch_state.now();
    x->base_ns = (uint64_t)call_for_ns(x->results, "trace_start_ns", "trace_start_us");
    x->list = call_method(x->results, "events");
    x->n = x->list ? py->PyList_Size(x->list) : 0;
    py->PyErr_Clear();
    x->longest_hold_ns = torch_state.now() - begin_ns;
    return x->list && x->n >= 0 ? 0 : -ENOTSUP;
}

static int take_chunk(void *arg)
{
    struct export *x = arg;
    uint64_t begin_ns = torch_state.now();
    for (x->n_events = 0; x->n_events < CHUNK && x->at < x->n; x->n_events++)
        look_at(python.api.PyList_GetItem(x->list, x->at++), &x->events[x->n_events]);
    uint64_t ns = torch_state.now() - begin_ns;
    x->longest_hold_ns = ns > x->longest_hold_ns ? ns : x->longest_hold_ns;
    return 0;
}

/* In two calls: each frees what torch has kept, and may take its time. */
static int drop_list(void *arg)
{
    struct export *x = arg;
    python.api.Py_DecRef(x->list);
    x->list = NULL;
    return 0;
}

static int drop_results(void *arg)
{
    struct export *x = arg;
    python.api.Py_DecRef(x->results);
    x->results = NULL;
    return 0;
}

/* ---- without it ---- */

/* A name as it stands inside of JSON's quotes. */
static void escape_name(const char *from, char *to, size_t size)
{
    size_t n = 0, bytes;
    for (size_t left = strlen(from); left > 0 && n + JSON_LETTER_BYTES < size;) {
        size_t took = json_letter(from, left, to + n, &bytes);
        n += bytes;
        from += took;
        left -= took;
    }
    to[n] = '\0';
}

/* Microseconds with three decimals, of nanoseconds. */
static const char *print_us(int64_t ns, char *room, size_t size)
{
    uint64_t positive = ns < 0 ? (uint64_t)-ns : (uint64_t)ns;
    (void)snprintf(room, size, "%s%llu.%03llu", ns < 0 ? "-" : "",
                   (unsigned long long)(positive / 1000), (unsigned long long)(positive % 1000));
    return room;
}

/* The stream of a device; of the CPU, the thread. */
static int64_t lane_of(const struct event *e)
{
    return e->device == 0 && e->resource <= 0 ? e->thread : e->resource;
}

static int write_chunk(struct export *x)
{
    size_t n = 0;
    for (uint32_t i = 0; i < x->n_events; i++) {
        const struct event *e = &x->events[i];
        char name[6 * NAME_BYTES], kind[6 * KIND_BYTES], begin[32], duration[32];
        escape_name(e->name, name, sizeof(name));
        escape_name(e->kind, kind, sizeof(kind));
        int k = snprintf(
            x->text + n, sizeof(x->text) - n,
            ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%lld,\"tid\":%lld,"
            "\"ts\":%s,\"dur\":%s,\"args\":{\"External id\":%lld}}",
            kind, name, (long long)(e->device ? e->index : getpid()), (long long)lane_of(e),
            print_us(e->begin_ns - (int64_t)x->base_ns, begin, sizeof(begin)),
            print_us(e->duration_ns, duration, sizeof(duration)), (long long)e->correlation);
        n += k > 0 ? (size_t)k : 0; /* EVENT_BYTES are enough for one */
    }
    return n ? x->host->reply(x->out, x->text, n) : 0;
}

static int write_head(struct export *x)
{
    char text[300];
    int n = snprintf(text, sizeof(text),
                     "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":%llu,"
                     "\n\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,"
                     "\"tid\":0,\"args\":{\"name\":\"process %d\"}}",
                     (unsigned long long)x->base_ns, getpid(), getpid());
    return x->host->reply(x->out, text, (size_t)n);
}

static int add_up(struct export *x)
{
    int rc = 0;
    for (uint32_t i = 0; i < x->n_events && rc == 0; i++) {
        const struct event *e = &x->events[i];
        uint64_t lane = (uint64_t)lane_of(e) << 8 | (uint64_t)(e->device & 0xff);
        rc = ops_add(x->ops, e->name, e->kind, lane, (uint64_t)e->begin_ns,
                     (uint64_t)e->duration_ns);
    }
    return rc;
}

static int copy_all(struct export *x)
{
    int rc = x->gil->call(open_list, x, GIL_WAIT_NS);
    if (rc == 0)
        rc = write_head(x);
    while (rc == 0 && x->at < x->n) {
        rc = x->gil->call(take_chunk, x, GIL_WAIT_NS);
        if (rc == 0)
            rc = add_up(x);
        if (rc == 0)
            rc = write_chunk(x);
        if (rc == 0 && x->host->cancelled(x->out))
            rc = -ECANCELED;
    }
    return rc == 0 ? x->host->reply(x->out, "\n]}\n", 4) : rc;
}

static void keep_ops(struct export *x, const struct capture_about *seen, uint64_t begin_ns)
{
    ops_finish(x->ops);
    (void)pthread_mutex_lock(&mutex);
    struct ops *old = newest;
    newest = x->ops;
    about = *seen;
    events_seen = x->n;
    export_ns = torch_state.now() - begin_ns;
    hold_ns = x->longest_hold_ns;
    (void)pthread_mutex_unlock(&mutex);
    x->ops = NULL;
    ops_free(old);
}

static int export_trace(struct export *x, const struct capture_about *seen)
{
    uint64_t begin_ns = torch_state.now();
    int rc = copy_all(x);
    if (x->list)
        (void)x->gil->call(drop_list, x, GIL_WAIT_NS);
    if (x->results)
        (void)x->gil->call(drop_results, x, GIL_WAIT_NS);
    if (rc == 0)
        keep_ops(x, seen, begin_ns);
    return rc;
}

static bool is_count(const char *text, uint32_t most, uint32_t *ret)
{
    uint32_t n = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9' && n <= most; p++)
        n = n * 10 + (uint32_t)(*p - '0');
    *ret = n;
    return p != text && !*p && n <= most;
}

static int run_trace(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    const struct probing_host *h = torch_state.host;
    struct capture_about seen;
    struct capture_order order = {.steps = 3, .seconds = SECONDS};
    (void)self;
    if (argc > 4 || (argc > 1 && !is_count(argv[1], STEPS_MAX, &order.steps)) || order.steps == 0 ||
        (argc > 2 && !is_count(argv[2], STEPS_MAX, &order.skip)) ||
        (argc > 3 && !is_count(argv[3], SECONDS_MAX, &order.seconds)) || order.seconds == 0)
        return h->fail(h, -EINVAL,
                       "torch_profile takes how many steps, 1 to 10000, how many to leave out "
                       "before them, and in how many seconds it has to be done, 1 to 86400");
    int64_t before = loop_private();
    struct export *x = calloc(1, sizeof(*x));
    if (x)
        x->ops = ops_new();
    int rc = x && x->ops ? capture_run(out, &order, &x->results, &seen)
                         : h->fail(h, -ENOMEM, "no memory");
    if (rc == 0) {
        x->host = h;
        x->out = out;
        x->gil = h->extension(h, PROBING_PYTHON_GIL_1);
        rc = export_trace(x, &seen);
        if (rc == -E2BIG)
            rc = h->fail(h, rc, "more than 8 million events: capture fewer steps");
        else if (rc < 0 && rc != -ECANCELED)
            rc = h->fail(h, rc, "torch's events could not be read");
    }
    if (before)
        loop_kept(loop_private() - before);
    if (x)
        ops_free(x->ops);
    free(x);
    return rc;
}

/* ---- tables ---- */

static const struct probing_column ops_columns[] = {
    PROBING_STR_COLUMN("name", "name of the operation, or of a range that the program marked"),
    PROBING_STR_COLUMN("kind", "kind as torch names it: cpu_op, kernel, user_annotation ..."),
    PROBING_I64_COLUMN("calls", PROBING_COUNT, "number of calls in all captured steps"),
    PROBING_F64_COLUMN("duration", PROBING_SECONDS,
                       "total duration of all calls, including what they called"),
    PROBING_F64_COLUMN("self_sec", PROBING_SECONDS,
                       "total duration of all calls, without the operations that they called"),
    PROBING_F64_COLUMN("max_sec", PROBING_SECONDS, "duration of the longest call"),
};

static int scan_ops(void *self, struct probing_rows *out)
{
    int rc = 0;
    (void)self;
    (void)pthread_mutex_lock(&mutex);
    for (uint32_t i = 0; newest && i < ops_count(newest) && rc == 0; i++) {
        const struct ops_sum *sum = ops_at(newest, i);
        union probing_cell cells[] = {{.s = sum->name},
                                      {.s = sum->kind},
                                      {.i = (int64_t)sum->calls},
                                      {.f = probing_seconds(sum->total_ns)},
                                      {.f = probing_seconds(sum->self_ns)},
                                      {.f = probing_seconds(sum->longest_ns)}};
        rc = torch_state.host->emit(out, cells, sizeof(cells) / sizeof(cells[0]));
    }
    (void)pthread_mutex_unlock(&mutex);
    return probing_scanned(rc);
}

const struct probing_table_desc ops_table = PROBING_COMPUTED_TABLE(
    "ops", ops_columns, scan_ops,
    "operations of the newest capture of torch's profiler (probing torch profile)");

static const struct probing_column capture_columns[] = {
    PROBING_COLUMN("ended_at", PROBING_TIME, PROBING_PLAIN, "when its last step ended"),
    PROBING_I64_COLUMN("first_step", PROBING_PLAIN, "local_step of the first captured step"),
    PROBING_I64_COLUMN("steps", PROBING_COUNT, "number of steps captured"),
    PROBING_I64_COLUMN("events", PROBING_COUNT, "number of events that torch's profiler recorded"),
    PROBING_F64_COLUMN("captured_sec", PROBING_SECONDS, "duration of the captured steps"),
    PROBING_F64_COLUMN("start_sec", PROBING_SECONDS,
                       "time that the loop stood still while torch started its profiler"),
    PROBING_F64_COLUMN(
        "stop_sec", PROBING_SECONDS,
        "time that the loop stood still while torch stopped its profiler and sorted its events"),
    PROBING_F64_COLUMN("export_sec", PROBING_SECONDS,
                       "time to write the trace, on a thread of probing, while the loop ran"),
    PROBING_F64_COLUMN(
        "max_gil_hold_sec", PROBING_SECONDS,
        "longest time within export_sec for which the GIL was held: torch lists its events"),
    PROBING_STR_COLUMN("note", "why it has fewer steps than requested"),
};

static int scan_capture(void *self, struct probing_rows *out)
{
    char note[sizeof(about.note)];
    (void)self;
    (void)pthread_mutex_lock(&mutex);
    memcpy(note, about.note, sizeof(note));
    union probing_cell cells[] = {{.i = (int64_t)about.end_ns},
                                  {.i = about.first_step},
                                  {.i = about.steps},
                                  {.i = events_seen},
                                  {.f = probing_seconds(about.end_ns - about.begin_ns)},
                                  {.f = probing_seconds(about.start_ns)},
                                  {.f = probing_seconds(about.stop_ns)},
                                  {.f = probing_seconds(export_ns)},
                                  {.f = probing_seconds(hold_ns)},
                                  {.s = note[0] ? note : NULL}};
    bool any = newest != NULL;
    (void)pthread_mutex_unlock(&mutex);
    int rc = any ? torch_state.host->emit(out, cells, sizeof(cells) / sizeof(cells[0])) : 0;
    return probing_scanned(rc);
}

const struct probing_table_desc capture_table = PROBING_COMPUTED_TABLE(
    "capture", capture_columns, scan_capture,
    "the newest capture of torch's profiler, and what it cost the training loop");

const struct probing_command trace_command = {
    .size = sizeof(trace_command),
    .flags = PROBING_WRITES,
    .name = "torch_profile",
    .usage = "[steps [skip [seconds]]]",
    .doc = "run torch's own profiler for some steps; gives its trace as Chrome's JSON",
    .run = run_trace,
};
