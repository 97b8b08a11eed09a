/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/session.c - the job that runs a client's Python, and our own Python modules.
 *
 * The runner's threads come in, with the GIL.  Output goes through a bounded buffer to the worker
 * that sends it, so the GIL is never held while a client is slow.  A job may be left behind: from
 * session.py's run() on it uses only its own memory, the runner that it holds, and natives_py.
 */
#include "exec/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "commands/pack.h"
#include "exec/bindings.h"
#include "exec/entry.h"
#include "exec/pack.h"
#include "package_api/package_bridge.h"
#include "trace/pack.h"

#define LOOK_NS UINT64_C(100000000)   /* of those who wait: things change without a wake-up */
#define IMPORT_NS UINT64_C(500000000) /* for the main thread to come by and import threading */

struct session {
    struct plugin *plugin; /* not when it is left behind */
    struct runner *runner; /* held */
    struct runner_job *job;
    char *mode, *code;
    char *output;     /* SESSION_OUTPUT bytes; lock: the runner's */
    size_t n;         /* lock: the runner's */
    char reason[400]; /* of a refusal; written by the job, read when it is done */
};

/* The job that this thread runs. */
static __thread struct session *current;

enum part { ENTER, RUN, SETTLE, LEAVE, TOOL, EMIT, PARTS };
static const char *const part_names[EMIT] = {"enter", "run", "settle", "leave", "tool"};
/* session.py's functions, and session_emit(); all or none.  lock: the runner's */
static PyObject *parts[PARTS];
static PyObject *streams;  /* streams.py's names, never let go: see there; lock: the GIL */
static PyObject *builtins; /* stdlib.py's, of all our code; never let go; lock: the GIL */
static char broken[200];   /* why our Python cannot be made; "": no memory; lock: the GIL */

static void session_drop(void *arg)
{
    struct session *s = arg;
    runner_drop(s->runner);
    free(s->mode);
    free(s->code);
    free(s->output);
    free(s);
}

/* Wait with the GIL let go until the client has taken what there is. */
static void wait_for_room(struct session *s)
{
    void *saved = natives_py.PyEval_SaveThread();
    runner_lock(s->runner);
    while (s->n == SESSION_OUTPUT && !s->job->abandoned && !entry_is_over())
        runner_sleep(s->runner, LOOK_NS);
    runner_unlock(s->runner);
    entry_return(&natives_py, saved);
}

/* streams.py's emit(bytes), with the GIL on a runner's thread. */
static PyObject *session_emit(PyObject *self, PyObject *bytes)
{
    struct session *s = current; /* NULL: somebody kept this function */
    (void)self;
    const struct cpython *py = &natives_py;
    char *text;
    Py_ssize_t left;
    if (py->PyBytes_AsStringAndSize(bytes, &text, &left))
        return NULL;
    while (s && left > 0) {
        runner_lock(s->runner);
        size_t room = SESSION_OUTPUT - s->n, some = (size_t)left < room ? (size_t)left : room;
        bool gone = s->job->abandoned || (room == 0 && entry_is_over());
        if (!gone) {
            memcpy(s->output + s->n, text, some);
            s->n += some;
            runner_wake(s->runner);
        }
        runner_unlock(s->runner);
        if (gone)
            break;
        text += some;
        left -= (Py_ssize_t)some;
        if (left > 0)
            wait_for_room(s);
    }
    return natives_none();
}

static struct cpython_method emit_method = {"emit", session_emit, METH_O,
                                            "Send bytes to the client."};

/* native["refuse"](text): why a tool does not do what it was asked. */
static PyObject *session_refuse(PyObject *self, PyObject *text)
{
    size_t n;
    (void)self;
    if (current)
        (void)snprintf(current->reason, sizeof(current->reason), "%s", natives_utf8(text, &n));
    return natives_none();
}

/* native["source"](name): the text of one of our modules, or None. */
static PyObject *session_source(PyObject *self, PyObject *name)
{
    static const struct {
        const char *name;
        const unsigned char *text;
    } modules[] = {{"debug", pack_debug_py},   {"debug_adapter", pack_debug_adapter_py},
                   {"safe", pack_safe_py},     {"tables", pack_tables_py},
                   {"tasks", pack_tasks_py},   {"trace", pack_trace_py},
                   {"values", pack_values_py}, {"watch", pack_watch_py}};
    (void)self;
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
        if (natives_py.PyUnicode_CompareWithASCIIString(name, modules[i].name) == 0)
            return natives_py.PyUnicode_FromString((const char *)modules[i].text);
    return natives_none();
}

struct cpython_method session_natives[] = {
    {"refuse", session_refuse, METH_O, "Say why not."},
    {"source", session_source, METH_O, "The text of a module of ours."},
    {NULL, NULL, 0, NULL},
};

/* ---- session.py's beginning and end ---- */

static void let_go(PyObject **reference)
{
    if (*reference)
        natives_py.Py_DecRef(*reference);
    *reference = NULL;
}

/* Run a module of ours in `names`: 0 or -1. */
static int run_module(const unsigned char *text, PyObject *names)
{
    const struct cpython *py = &natives_py;
    PyObject *code = NULL, *done = NULL;
    PyObject *own = builtins ? builtins : py->PyEval_GetBuiltins();
    if (py->PyDict_SetItemString(names, "__builtins__", own) == 0)
        code =
            py->Py_CompileStringExFlags((const char *)text, NATIVES_FILE, Py_file_input, NULL, -1);
    if (code)
        done = py->PyEval_EvalCode(code, names, names);
    int result = done ? 0 : -1;
    let_go(&code);
    let_go(&done);
    return result;
}

static PyObject *find_function(PyObject *names, const char *name)
{
    PyObject *found = natives_py.PyDict_GetItemString(names, name);
    if (found)
        natives_py.Py_IncRef(found);
    return found;
}

static int make_streams(void)
{
    if (streams)
        return 0;
    PyObject *names = natives_py.PyDict_New();
    if (names && run_module(pack_streams_py, names) == 0)
        streams = names;
    else
        let_go(&names);
    return streams ? 0 : -1;
}

/* native: in which the program's builtins are put for all our modules. */
static int make_builtins(PyObject *native)
{
    const struct cpython *py = &natives_py;
    if (py->PyDict_SetItemString(native, "builtins", py->PyEval_GetBuiltins()))
        return -1;
    if (builtins)
        return 0;
    PyObject *names = py->PyDict_New();
    if (names && py->PyDict_SetItemString(names, "native", native) == 0 &&
        run_module(pack_stdlib_py, names) == 0)
        builtins = find_function(names, "own");
    let_go(&names);
    return builtins ? 0 : -1;
}

/* Keep the exception that is set as the reason, and clear it. */
static void note_broken(void)
{
    const struct cpython *py = &natives_py;
    PyObject *type, *value, *trace;
    size_t n;
    broken[0] = '\0';
    if (!py->PyErr_Occurred() || py->PyErr_ExceptionMatches(py->PyExc_MemoryError)) {
        py->PyErr_Clear();
        return;
    }
    py->PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value ? py->PyObject_Repr(value) : NULL;
    (void)snprintf(broken, sizeof(broken), "probing's own Python does not run here: %s",
                   text ? natives_utf8(text, &n) : "an exception that cannot be shown");
    py->PyErr_Clear();
    PyObject *held[] = {type, value, trace, text};
    for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++)
        let_go(&held[i]);
}

/* With the GIL, in the interpreter's main thread. */
static int import_threading(void *arg)
{
    PyObject *module = natives_py.PyImport_ImportModule("threading");
    natives_py.PyErr_Clear();
    let_go(&module);
    __atomic_store_n((bool *)arg, true, __ATOMIC_RELEASE);
    return 0;
}

/* threading takes the thread that imports it for the main one (its number to 3.14, all of it to
 * 3.12, where the program's end then fails).  So the main thread does it, before a client's code
 * may. */
static void threading_first(struct plugin *p)
{
    static bool done; /* the main thread may come much later */
    const struct cpython *py = &natives_py;
    PyObject *modules = py->PyImport_GetModuleDict();
    if (!modules || py->PyDict_GetItemString(modules, "threading"))
        return;
    __atomic_store_n(&done, false, __ATOMIC_RELEASE);
    if (py->Py_AddPendingCall(import_threading, &done))
        return;
    uint64_t until = p->host->now() + IMPORT_NS;
    void *saved = py->PyEval_SaveThread();
    runner_lock(p->runner); /* an event with a limit: nobody need wake us */
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE) && p->host->now() < until && !entry_is_over())
        runner_sleep(p->runner, 1000000);
    runner_unlock(p->runner);
    entry_return(py, saved);
}

/* References to all parts: false where session.py has not been run. */
static bool take_parts(struct runner *r, PyObject **ret)
{
    runner_lock(r);
    bool there = parts[RUN] != NULL;
    for (int i = 0; there && i < PARTS; i++) {
        ret[i] = parts[i];
        natives_py.Py_IncRef(ret[i]);
    }
    runner_unlock(r);
    return there;
}

static void let_all_go(PyObject **held)
{
    for (int i = 0; i < PARTS; i++)
        let_go(&held[i]);
}

/* session.py in a namespace of its own: its parts, or false. */
static bool make_parts(PyObject **ret)
{
    const struct cpython *py = &natives_py;
    PyObject *names = py->PyDict_New(), *native = natives_new();
    bool good = names && native && make_builtins(native) == 0 && make_streams() == 0 &&
                py->PyDict_SetItemString(names, "native", native) == 0 &&
                py->PyDict_SetItemString(names, "streams", streams) == 0 &&
                run_module(pack_session_py, names) == 0;
    for (int i = 0; good && i < EMIT; i++)
        good = (ret[i] = find_function(names, part_names[i])) != NULL;
    if (good)
        good = (ret[EMIT] = py->PyCFunction_NewEx(&emit_method, NULL, NULL)) != NULL;
    if (!good)
        note_broken();
    let_go(&native);
    let_go(&names);
    return good;
}

/* Once.  With the GIL, which others may have meanwhile: the first one's parts stay. */
static int make_session(struct plugin *p)
{
    PyObject *made[PARTS] = {NULL};
    threading_first(p);
    if (take_parts(p->runner, made)) {
        let_all_go(made);
        return 0;
    }
    bool good = make_parts(made);
    runner_lock(p->runner);
    if (good && !parts[RUN]) {
        memcpy(parts, made, sizeof(parts));
        memset(made, 0, sizeof(made));
    }
    runner_unlock(p->runner);
    let_all_go(made);
    return good ? 0 : broken[0] ? -EIO : -ENOMEM;
}

/* client: its code may append to tables of the program. */
static int begin_session(struct plugin *p, bool client)
{
    int r = natives_load(p);
    if (r == 0)
        offer_now(client);
    return r < 0 ? r : make_session(p);
}

/* With the GIL, on the interpreter's main thread. */
static int forget_later(void *arg)
{
    PyObject **held = arg;
    PyObject *leave = natives_py.PyDict_GetItemString(streams, "leave");
    PyObject *done = leave ? natives_py.PyObject_CallFunctionObjArgs(leave, NULL) : NULL;
    natives_py.PyErr_Clear();
    let_go(&done);
    let_all_go(held);
    free(held);
    return 0;
}

void session_forget(struct plugin *p)
{
    PyObject **held = malloc(sizeof(parts));
    runner_lock(p->runner);
    bool there = parts[RUN] != NULL;
    if (held)
        memcpy(held, parts, sizeof(parts));
    memset(parts, 0, sizeof(parts));
    runner_unlock(p->runner);
    /* Waiting for the GIL here could last for ever: the interpreter does it when it comes by. */
    if (!held || !there || entry_ask_main(&p->py, forget_later, held))
        free(held);
}

PyObject *session_function(struct plugin *p, const char *module, const char *name)
{
    const struct cpython *py = &natives_py;
    PyObject *held[PARTS];
    if (begin_session(p, /* client= */ false) < 0 || !take_parts(p->runner, held))
        return NULL;
    PyObject *key = py->PyUnicode_FromString(module);
    PyObject *names = key ? py->PyObject_CallFunctionObjArgs(held[TOOL], key, NULL) : NULL;
    PyObject *found = names ? find_function(names, name) : NULL;
    let_go(&names);
    let_go(&key);
    let_all_go(held);
    py->PyErr_Clear();
    return found;
}

/* ---- a job ---- */

static PyObject *text_of(const char *utf8)
{
    return natives_py.PyUnicode_DecodeUTF8(utf8, (Py_ssize_t)strlen(utf8), "strict");
}

/* NULL: it raised. */
static PyObject *without_exception(PyObject *done)
{
    natives_py.PyErr_Clear();
    return done;
}

static int run_code(struct session *s, PyObject *const *held, PyObject *code, PyObject *mode)
{
    const struct cpython *py = &natives_py;
    int result = 1; /* an interrupt after the code's end */
    runner_allow_interrupt(s->runner, true);
    PyObject *answer = py->PyObject_CallFunctionObjArgs(held[RUN], code, held[EMIT], mode, NULL);
    runner_allow_interrupt(s->runner, false);
    if (answer)
        result = (int)py->PyLong_AsLongLong(answer);
    py->PyErr_Clear();
    let_go(&answer);
    answer = without_exception(py->PyObject_CallFunctionObjArgs(held[SETTLE], NULL));
    let_go(&answer);
    return result;
}

/* Call run() of session.py: its result, or -errno.  Only a client's code hears what it prints: our
 * own tools have it by hand. */
static int session_job(void *arg)
{
    struct session *s = arg;
    const struct cpython *py = &natives_py;
    PyObject *held[PARTS];
    int result = begin_session(s->plugin, s->job->client);
    if (result == -EIO)
        (void)snprintf(s->reason, sizeof(s->reason), "%s", broken);
    if (result < 0 || !take_parts(s->runner, held))
        return result < 0 ? result : -ENODEV;
    PyObject *code = text_of(s->code), *mode = text_of(s->mode), *done = NULL;
    result = code ? -ENOMEM : -EILSEQ;
    current = s;
    if (code && mode && s->job->client)
        done = without_exception(py->PyObject_CallFunctionObjArgs(held[ENTER], held[EMIT], NULL));
    if (code && mode && (done || !s->job->client))
        result = run_code(s, held, code, mode);
    let_go(&done);
    if (s->job->client)
        done = without_exception(py->PyObject_CallFunctionObjArgs(held[LEAVE], NULL));
    current = NULL;
    let_go(&done);
    let_all_go(held);
    py->PyErr_Clear();
    let_go(&code);
    let_go(&mode);
    return result;
}

struct runner_job *session_new(struct plugin *p, const char *mode, const char *code, bool client)
{
    struct runner_job *job = calloc(1, sizeof(*job));
    struct session *s = job ? calloc(1, sizeof(*s)) : NULL;
    if (!s) {
        free(job);
        return NULL;
    }
    *s = (struct session){.plugin = p,
                          .runner = p->runner,
                          .job = job,
                          .mode = strdup(mode),
                          .code = strdup(code),
                          .output = malloc(SESSION_OUTPUT)};
    runner_hold(p->runner);
    *job = (struct runner_job){.fn = session_job, .drop = session_drop, .arg = s, .client = client};
    if (s->mode && s->code && s->output)
        return job;
    session_free(job);
    return NULL;
}

void session_free(struct runner_job *job)
{
    session_drop(job->arg);
    free(job);
}

size_t session_take(struct runner_job *job, char *copy)
{
    struct session *s = job->arg;
    runner_lock(s->runner);
    size_t n = s->n;
    memcpy(copy, s->output, n);
    s->n = 0;
    runner_wake(s->runner);
    runner_unlock(s->runner);
    return n;
}

bool session_has(const struct runner_job *job)
{
    const struct session *s = job->arg;
    return s->n > 0;
}

const char *session_reason(const struct runner_job *job)
{
    const struct session *s = job->arg;
    return s->reason;
}
