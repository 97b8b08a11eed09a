/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/eval.c - the commands `eval` and `complete`: a client's Python in the process.
 *
 * [worker] parses, waits and sends; the runner's thread runs the code with the GIL.  Output goes
 * through a bounded buffer between the two, so the GIL is never held while a client is slow.
 * It does not limit what the code does: that is the client's right, checked by the core.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "natives.h"
#include "offer.h"
#include "pack.h"
#include "plugin.h"

#define OUTPUT_MAX (256u << 10)          /* bytes that wait for the client at most */
#define GIL_NS UINT64_C(10000000000)     /* to wait for the GIL, when --timeout does not say */
#define COMPLETE_NS UINT64_C(2000000000) /* somebody has just pressed Tab */
#define LOOK_NS UINT64_C(100000000)      /* how often a waiting worker asks for cancelled() */
#define TOOL_NS UINT64_C(30000000000)    /* for one of our own tools to do its work */
#define WORD_END '\x1f'                  /* between the words of a tool, and behind the last */
#define REFUSED 3                        /* session.py: the reason stands in `reason` */

struct eval_words {
    const char *mode; /* of session.py's run() */
    const char *code;
    const char *file;        /* the name of the file that `code` is; NULL: none */
    const char *const *args; /* the words behind it, up to a NULL */
    int n_args;
    uint64_t timeout_ns; /* 0: none */
};

struct eval {
    struct plugin *plugin;
    const char *mode; /* of session.py's run() */
    char *code;
    char *output;     /* OUTPUT_MAX bytes; lock: the runner's */
    size_t n;         /* lock: the runner's */
    bool abandoned;   /* lock: the runner's; nobody reads output any more */
    char reason[400]; /* of a refusal; written by the job, read when it is done */
};

/* The job that this thread runs; a thread that was left behind in one keeps its own. */
static __thread struct eval *current;
/* Only the runner's thread touches these, with the GIL: session.py's run(), and the function that
 * takes its output. */
static PyObject *session_run, *session_emit, *session_tool;

static void eval_drop(void *arg)
{
    struct eval *e = arg;
    free(e->code);
    free(e->output);
    free(e);
}

/* Wait with the GIL let go until the client has taken what there is. */
static void wait_for_room(struct eval *e)
{
    const struct cpython *py = &e->plugin->py;
    void *saved = py->PyEval_SaveThread();
    runner_lock(e->plugin->runner);
    while (e->n == OUTPUT_MAX && !e->abandoned)
        runner_sleep(e->plugin->runner, LOOK_NS);
    runner_unlock(e->plugin->runner);
    py->PyEval_RestoreThread(saved);
}

/* session.py's emit(bytes), with the GIL on the runner's thread. */
static PyObject *emit(PyObject *self, PyObject *bytes)
{
    struct eval *e = current;
    (void)self;
    const struct cpython *py = &natives_py;
    char *text;
    Py_ssize_t left;
    if (py->PyBytes_AsStringAndSize(bytes, &text, &left))
        return NULL;
    while (e && left > 0) { /* no job: python.gil/1's code prints through an Output that was kept */
        runner_lock(e->plugin->runner);
        size_t room = OUTPUT_MAX - e->n, some = (size_t)left < room ? (size_t)left : room;
        bool gone = e->abandoned;
        if (!gone) {
            memcpy(e->output + e->n, text, some);
            e->n += some;
            runner_wake(e->plugin->runner);
        }
        runner_unlock(e->plugin->runner);
        if (gone)
            break;
        text += some;
        left -= (Py_ssize_t)some;
        if (left > 0)
            wait_for_room(e);
    }
    py->Py_IncRef(py->_Py_NoneStruct);
    return py->_Py_NoneStruct;
}

static struct cpython_method emit_method = {"emit", emit, METH_O, "Send bytes to the client."};

/* native["refuse"](text): why a tool does not do what it was asked. */
static PyObject *refuse(PyObject *self, PyObject *text)
{
    Py_ssize_t n;
    const char *utf8 = natives_py.PyUnicode_AsUTF8AndSize(text, &n);
    (void)self;
    if (!utf8)
        return NULL;
    if (current)
        (void)snprintf(current->reason, sizeof(current->reason), "%s", utf8);
    return natives_none();
}

/* native["source"](name): the text of one of our modules, or None. */
static PyObject *source(PyObject *self, PyObject *name)
{
    static const struct {
        const char *name;
        const unsigned char *text;
    } modules[] = {{"debug", pack_debug_py}, {"safe", pack_safe_py},   {"tables", pack_tables_py},
                   {"tasks", pack_tasks_py}, {"trace", pack_trace_py}, {"values", pack_values_py},
                   {"watch", pack_watch_py}};
    (void)self;
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
        if (natives_py.PyUnicode_CompareWithASCIIString(name, modules[i].name) == 0)
            return natives_py.PyUnicode_FromString((const char *)modules[i].text);
    return natives_none();
}

struct cpython_method eval_natives[] = {
    {"refuse", refuse, METH_O, "Say why not."},
    {"source", source, METH_O, "The text of a module of ours."},
    {NULL, NULL, 0, NULL},
};

/* Compile session.py once in a namespace of its own.  With the GIL. */
static int session_begin(const struct cpython *py)
{
    if (session_run)
        return 0;
    PyObject *names = py->PyDict_New(), *native = natives_new(), *code = NULL, *done = NULL;
    if (names && native && py->PyDict_SetItemString(names, "native", native) == 0)
        code = py->Py_CompileStringExFlags((const char *)pack_session_py, "<probing>",
                                           Py_file_input, NULL, -1);
    if (code && py->PyDict_SetItemString(names, "__builtins__", py->PyEval_GetBuiltins()) == 0)
        done = py->PyEval_EvalCode(code, names, names);
    PyObject *function = done ? py->PyDict_GetItemString(names, "run") : NULL;
    PyObject *emitter = function ? py->PyCFunction_NewEx(&emit_method, NULL, NULL) : NULL;
    if (emitter) {
        py->Py_IncRef(function);
        session_run = function;
        session_emit = emitter;
        session_tool = py->PyDict_GetItemString(names, "tool");
        py->Py_IncRef(session_tool);
    }
    py->PyErr_Clear();
    if (native)
        py->Py_DecRef(native);
    if (done)
        py->Py_DecRef(done);
    if (code)
        py->Py_DecRef(code);
    if (names)
        py->Py_DecRef(names);
    return session_run ? 0 : -ENOMEM;
}

static int begin(struct plugin *p)
{
    int r = natives_load(p);
    if (r == 0)
        offer_now();
    return r < 0 ? r : session_begin(&p->py);
}

PyObject *eval_function(struct plugin *p, const char *module, const char *name)
{
    const struct cpython *py = &natives_py;
    if (begin(p) < 0)
        return NULL;
    PyObject *key = py->PyUnicode_FromString(module);
    PyObject *names = key ? py->PyObject_CallFunctionObjArgs(session_tool, key, NULL) : NULL;
    PyObject *found = names ? py->PyDict_GetItemString(names, name) : NULL;
    if (found)
        py->Py_IncRef(found);
    if (names)
        py->Py_DecRef(names);
    if (key)
        py->Py_DecRef(key);
    py->PyErr_Clear();
    return found;
}

/* The job: what run() of session.py gives, or -errno. */
static int eval_job(void *arg)
{
    struct eval *e = arg;
    struct cpython *py = &e->plugin->py;
    int result = begin(e->plugin);
    if (result < 0)
        return result;
    PyObject *code = py->PyUnicode_DecodeUTF8(e->code, (Py_ssize_t)strlen(e->code), "strict");
    if (!code) {
        py->PyErr_Clear();
        return -EILSEQ;
    }
    PyObject *mode = py->PyUnicode_DecodeUTF8(e->mode, (Py_ssize_t)strlen(e->mode), "strict");
    if (!mode) {
        py->PyErr_Clear();
        py->Py_DecRef(code);
        return -ENOMEM;
    }
    current = e;
    PyObject *answer =
        py->PyObject_CallFunctionObjArgs(session_run, code, session_emit, mode, NULL);
    current = NULL;
    py->Py_DecRef(mode);
    result =
        answer ? (int)py->PyLong_AsLongLong(answer) : 1; /* an interrupt after the code's end */
    py->PyErr_Clear();
    if (answer)
        py->Py_DecRef(answer);
    py->Py_DecRef(code);
    return result;
}

struct leftovers {
    void (*let_go)(PyObject *);
    PyObject *run, *emit, *tool;
};

/* With the GIL, on the interpreter's main thread. */
static int let_go(void *arg)
{
    struct leftovers *l = arg;
    l->let_go(l->run);
    l->let_go(l->emit);
    l->let_go(l->tool);
    free(l);
    return 0;
}

void eval_forget(void)
{
    struct leftovers *l = session_run ? malloc(sizeof(*l)) : NULL;
    /* Waiting for the GIL here could last for ever: the interpreter does it when it comes by. */
    if (l) {
        *l = (struct leftovers){natives_py.Py_DecRef, session_run, session_emit, session_tool};
        if (natives_py.Py_AddPendingCall(let_go, l))
            free(l);
    }
    session_run = session_emit = session_tool = NULL;
}

/* Take what waits, and send it without the lock.  -ECANCELED: nobody listens. */
static int send_output(struct plugin *p, struct eval *e, struct probing_reply *out, char *copy)
{
    runner_lock(p->runner);
    size_t n = e->n;
    memcpy(copy, e->output, n);
    e->n = 0;
    runner_wake(p->runner);
    runner_unlock(p->runner);
    return n ? p->host->reply(out, copy, n) : 0;
}

/* Pass output on until the code has ended: its result; or, with the code interrupted, -ECANCELED
 * when the client went and -ETIMEDOUT when it was `until` (0: no limit). */
static int follow(struct plugin *p, struct runner_job *job, struct eval *e, uint64_t until,
                  struct probing_reply *out)
{
    char *copy = malloc(OUTPUT_MAX);
    int result = copy ? 0 : -ENOMEM;
    for (bool done = false; !done && result == 0;) {
        runner_lock(p->runner);
        if (!e->n && job->state < RUNNER_DONE)
            runner_sleep(p->runner, LOOK_NS);
        done = job->state >= RUNNER_DONE;
        runner_unlock(p->runner);
        result = send_output(p, e, out, copy);
        if (!done && result == 0 && p->host->cancelled(out))
            result = -ECANCELED;
        if (!done && result == 0 && until && p->host->now() >= until)
            result = -ETIMEDOUT;
    }
    free(copy);
    if (result == 0)
        return job->result;
    runner_lock(p->runner);
    e->abandoned = true;
    runner_wake(p->runner);
    runner_unlock(p->runner);
    runner_interrupt(p->runner);
    return result;
}

/* The GIL did not come in time: who has it, and where is that thread? */
static int say_stuck(struct plugin *p, struct probing_reply *out, uint64_t timeout_ns)
{
    char line[512], reason[640];
    char *frames = backtrace_holder(p, line, sizeof(line));
    (void)snprintf(reason, sizeof(reason), "the code did not run: no GIL in %.3g s; %s",
                   (double)timeout_ns / 1e9, line);
    if (frames && *frames)
        (void)p->host->reply(out, frames, strlen(frames));
    free(frames);
    return p->host->fail(p->host, -ETIMEDOUT, reason);
}

/* One at a time; and code that waits in a call of C's, time.sleep(600), hears of no interrupt until
 * the call is over. */
static int say_behind(struct plugin *p, uint64_t timeout_ns)
{
    char reason[240];
    int tid = runner_tid(p->runner);
    (void)snprintf(reason, sizeof(reason),
                   "the code did not run in %.3g s: an earlier eval still does, in thread %d, and "
                   "cannot be interrupted where it is; see backtrace --all --thread %d",
                   (double)timeout_ns / 1e9, tid, tid);
    return p->host->fail(p->host, -ETIMEDOUT, reason);
}

/* Wait for the GIL: 0 when the code runs, else the command's answer. */
static int wait_for_gil(struct plugin *p, struct runner_job *job, struct probing_reply *out,
                        uint64_t timeout_ns)
{
    uint64_t until = p->host->now() + timeout_ns;
    for (;;) {
        uint64_t now = p->host->now();
        uint64_t step = now < until ? until - now : 0;
        if (runner_wait(p->runner, job, RUNNER_WAITS, step < LOOK_NS ? step : LOOK_NS) !=
            RUNNER_WAITS)
            return 0;
        bool gone = p->host->cancelled(out) != 0;
        if (!gone && p->host->now() < until)
            continue;
        bool behind = runner_is_behind(p->runner, job);
        if (!runner_take_back(p->runner, job))
            return 0;
        if (behind && !gone)
            return say_behind(p, timeout_ns);
        return gone ? -ECANCELED : say_stuck(p, out, timeout_ns);
    }
}

static struct runner_job *make_job(struct plugin *p, const struct eval_words *w)
{
    struct runner_job *job = calloc(1, sizeof(*job));
    struct eval *e = calloc(1, sizeof(*e));
    if (job && e) {
        *e = (struct eval){
            .plugin = p, .mode = w->mode, .code = strdup(w->code), .output = malloc(OUTPUT_MAX)};
        if (e->code && e->output) {
            *job = (struct runner_job){.fn = eval_job, .drop = eval_drop, .arg = e};
            return job;
        }
        eval_drop(e);
        e = NULL;
    }
    free(e);
    free(job);
    return NULL;
}

static int say_result(struct plugin *p, int result)
{
    const struct probing_host *h = p->host;
    switch (result) {
    case -ENODEV:
        return h->fail(h, result, "the Python interpreter is ending or has not begun");
    case -EDEADLK:
        return h->fail(h, result, "eval was called from inside an eval");
    case -EILSEQ:
        return h->fail(h, -EINVAL, "the code is not UTF-8");
    case -ENOMEM:
        return h->fail(h, result, "no memory to run the code");
    case -ETIMEDOUT:
        return h->fail(h, result, "the code ran longer than --timeout allows and was interrupted");
    default:
        return result;
    }
}

static int parse_arguments(struct plugin *p, int argc, const char *const *argv,
                           struct eval_words *ret)
{
    const struct probing_host *h = p->host;
    int i = 1;
    while (i < argc && argv[i][0] == '-' && argv[i][1]) {
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (strcmp(argv[i], "--line") == 0) {
            ret->mode = "line";
            i++;
            continue;
        }
        if (strcmp(argv[i], "--file") == 0 && i + 2 < argc) {
            *ret = (struct eval_words){.mode = "file",
                                       .file = argv[i + 1],
                                       .code = argv[i + 2],
                                       .args = argv + i + 3,
                                       .n_args = argc - i - 3,
                                       .timeout_ns = ret->timeout_ns};
            return 0;
        }
        if (strcmp(argv[i], "--timeout") != 0)
            break; /* code may begin with a minus: -1 */
        if (i + 1 == argc || parse_seconds(argv[i + 1], &ret->timeout_ns))
            return h->fail(h, -EINVAL, "eval: --timeout needs seconds, 0 to 86400: --timeout 2.5");
        i += 2;
    }
    if (i + 1 != argc)
        return h->fail(h, -EINVAL,
                       i >= argc ? "eval: no code given: eval \"print(1 + 1)\""
                                 : "eval: one piece of code, please: put it in quotes");
    ret->code = argv[i];
    return 0;
}

/* Have the runner's thread do it; answer with what it prints. */
static int run_words(struct plugin *p, const struct eval_words *w, struct probing_reply *out)
{
    uint64_t begin = p->host->now();
    struct runner_job *job = make_job(p, w);
    if (!job)
        return say_result(p, -ENOMEM);
    struct eval *e = job->arg;
    int result = runner_submit(p->runner, job);
    if (result < 0) {
        eval_drop(e);
        free(job);
        return say_result(p, result);
    }
    result = wait_for_gil(p, job, out, w->timeout_ns ? w->timeout_ns : GIL_NS);
    if (result == 0)
        result = say_result(p, follow(p, job, e, w->timeout_ns ? begin + w->timeout_ns : 0, out));
    if (result == REFUSED && e->reason[0])
        result = p->host->fail(p->host, -EINVAL, e->reason);
    runner_release(p->runner, job);
    return result;
}

/* A file: how many words there are, its name, its words, its text.  NULL: no memory. */
static char *joined(const struct eval_words *w)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    (void)fprintf(f, "%d%c%s%c", w->n_args, WORD_END, w->file, WORD_END);
    for (int i = 0; i < w->n_args; i++)
        (void)fprintf(f, "%s%c", w->args[i], WORD_END);
    (void)fputs(w->code, f);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

int eval_tool(struct plugin *p, int argc, const char *const *argv, struct probing_reply *out)
{
    return eval_tool_within(p, TOOL_NS, argc, argv, out);
}

int eval_tool_within(struct plugin *p, uint64_t timeout_ns, int argc, const char *const *argv,
                     struct probing_reply *out)
{
    size_t n = 1;
    for (int i = 1; i < argc; i++)
        n += strlen(argv[i]) + 1;
    char *words = malloc(n), *at = words;
    if (!words)
        return say_result(p, -ENOMEM);
    for (int i = 1; i < argc; i++) {
        size_t length = strlen(argv[i]);
        memcpy(at, argv[i], length);
        at[length] = WORD_END;
        at += length + 1;
    }
    *at = '\0';
    const struct eval_words w = {.mode = argv[0], .code = words, .timeout_ns = timeout_ns};
    int result = run_words(p, &w, out);
    free(words);
    return result;
}

static int eval_run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct eval_words w = {.mode = "run"};
    int r = parse_arguments(self, argc, argv, &w);
    if (r < 0 || !w.file)
        return r < 0 ? r : run_words(self, &w, out);
    char *whole = joined(&w);
    if (!whole)
        return say_result(self, -ENOMEM);
    w.code = whole;
    r = run_words(self, &w, out);
    free(whole);
    return r;
}

static int complete_run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct plugin *p = self;
    if (argc != 2)
        return p->host->fail(p->host, -EINVAL, "complete: one name, please: complete os.pat");
    const struct eval_words w = {.mode = "complete", .code = argv[1], .timeout_ns = COMPLETE_NS};
    return run_words(p, &w, out);
}

const struct probing_command eval_command = {
    .size = sizeof(struct probing_command),
    .flags = PROBING_WRITES,
    .name = "eval",
    .usage = "[--timeout SECONDS] [--line] CODE | --file NAME CODE [ARGUMENT...]",
    .doc = "Run Python code in the process; print what it prints and the value of its last line; "
           "--line: one statement, and 2 when more lines are needed; --file: the text of a file",
    .run = eval_run,
};

const struct probing_command complete_command = {
    .size = sizeof(struct probing_command),
    .flags = PROBING_WRITES,
    .name = "complete",
    .usage = "NAME",
    .doc = "What a Python name may become, one a line: for prompts",
    .run = complete_run,
};
