/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/commands/debug.c - the command `debug`: stacks, a pdb session in the main thread,
 * debugpy.
 *
 * One session at a time, between three: the main thread, which waits here for a line with the GIL
 * let go; the client's `debug --pause`, a [worker] as long as the session lasts, so that a client
 * that dies ends it; and `debug --input`, a [worker] for each line.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/bindings.h"
#include "internal.h"
#include "lib/proc/identity.h"

#define OUTPUT_MAX (1u << 20)           /* bytes between two prompts */
#define LOOK_NS UINT64_C(100000000)     /* how often a worker asks for cancelled() */
#define PATIENCE_NS PROBING_NS_PER_S    /* then the client is told where the main thread is */
#define LEAVE_NS UINT64_C(2000000000)   /* for the main thread to go on when nobody asks it */
#define DAP_NS (600 * PROBING_NS_PER_S) /* debug.py ends sooner where nothing goes on */
#define MORE 2                          /* status: it waits for the next line */

enum state { NOBODY, CALLED, ASKS, RUNS, OVER };

static struct {
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    enum state state;
    char *line; /* for pdb; to be freed */
    char *output;
    size_t n;
    uint64_t life; /* of this session: who comes with another number is too late */
    bool cut, gone, stop;
    int inputs;     /* of `debug --input` that are inside */
    PyObject *come; /* lock: the GIL; what the main thread is to call */
} session = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void set_state(enum state state) /* locked */
{
    session.state = state;
    (void)pthread_cond_broadcast(&session.changed);
}

/* Locked; gives up the lock meanwhile, for LOOK_NS at most. */
static void wait_change(void)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until); /* the clock of a cond without attributes */
    uint64_t ns = (uint64_t)until.tv_nsec + LOOK_NS;
    until.tv_sec += (time_t)(ns / PROBING_NS_PER_S);
    until.tv_nsec = (long)(ns % PROBING_NS_PER_S);
    (void)pthread_cond_timedwait(&session.changed, &session.lock, &until);
}

static bool is_over(uint64_t life) /* locked */
{
    return session.gone || session.life != life;
}

/* ---- in the main thread, with the GIL ---- */

/* debug_read(life): the next line, or None when nobody is there any more. */
static PyObject *debug_read(PyObject *self, PyObject *number)
{
    const struct cpython *py = &natives_py;
    uint64_t life = py->PyLong_AsUnsignedLongLong(number);
    char *line = NULL;
    (void)self;
    void *saved = py->PyEval_SaveThread();
    (void)pthread_mutex_lock(&session.lock);
    if (!is_over(life))
        set_state(ASKS);
    while (!session.line && !is_over(life))
        wait_change();
    if (session.life == life) {
        line = session.line;
        session.line = NULL;
        set_state(RUNS);
    }
    (void)pthread_mutex_unlock(&session.lock);
    py->PyEval_RestoreThread(saved);
    PyObject *text =
        line ? py->PyUnicode_DecodeUTF8(line, (Py_ssize_t)strlen(line), "replace") : natives_none();
    free(line);
    return text;
}

static PyObject *debug_write(PyObject *self, PyObject *text)
{
    Py_ssize_t n;
    const char *utf8;
    (void)self;
    PyObject *bytes = natives_py.PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
    if (!bytes || natives_py.PyBytes_AsStringAndSize(bytes, (char **)(uintptr_t)&utf8, &n))
        return NULL;
    (void)pthread_mutex_lock(&session.lock);
    size_t room = session.output ? OUTPUT_MAX - session.n : 0;
    size_t some = (size_t)n < room ? (size_t)n : room;
    session.cut = session.cut || some < (size_t)n;
    if (some)
        memcpy(session.output + session.n, utf8, some);
    session.n += some;
    (void)pthread_cond_broadcast(&session.changed);
    (void)pthread_mutex_unlock(&session.lock);
    natives_py.Py_DecRef(bytes);
    return natives_none();
}

static PyObject *py_bool(bool value)
{
    return natives_py.PyBool_FromLong(value);
}

static PyObject *debug_gone(PyObject *self, PyObject *number)
{
    uint64_t life = natives_py.PyLong_AsUnsignedLongLong(number);
    (void)self;
    (void)pthread_mutex_lock(&session.lock);
    bool gone = is_over(life);
    (void)pthread_mutex_unlock(&session.lock);
    return py_bool(gone);
}

static PyObject *debug_life(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    (void)pthread_mutex_lock(&session.lock);
    uint64_t life = session.life;
    (void)pthread_mutex_unlock(&session.lock);
    return natives_py.PyLong_FromUnsignedLongLong(life);
}

/* Was Ctrl-C typed while it ran? */
static PyObject *debug_stop(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    (void)pthread_mutex_lock(&session.lock);
    bool stop = session.stop;
    session.stop = false;
    (void)pthread_mutex_unlock(&session.lock);
    return py_bool(stop);
}

static PyObject *debug_end(PyObject *self, PyObject *number)
{
    uint64_t life = natives_py.PyLong_AsUnsignedLongLong(number);
    (void)self;
    (void)pthread_mutex_lock(&session.lock);
    if (session.life == life)
        set_state(OVER);
    (void)pthread_mutex_unlock(&session.lock);
    return natives_none();
}

/* debug_user(): the user who may trace this process, or None: root alone may. */
static PyObject *debug_user(PyObject *self, PyObject *unused)
{
    struct proc_identity id;
    (void)self;
    (void)unused;
    identity_own(&id);
    const struct identity_peer peer = {.uid = id.uid[IDENTITY_EFFECTIVE],
                                       .gid = id.gid[IDENTITY_EFFECTIVE],
                                       .permitted = id.permitted};
    return identity_may_ask(&peer, &id) == IDENTITY_MAY_ASK
               ? natives_py.PyLong_FromUnsignedLongLong(peer.uid)
               : natives_none();
}

/* On the interpreter's main thread, between two of its instructions. */
static int arrive_on_main(void *arg)
{
    PyObject *come = session.come;
    (void)arg;
    session.come = NULL;
    if (!come)
        return 0;
    PyObject *done = natives_py.PyObject_CallFunctionObjArgs(come, NULL);
    natives_py.Py_DecRef(come);
    if (!done)
        return -1; /* what a signal handler of the program's raised */
    natives_py.Py_DecRef(done);
    return 0;
}

/* debug_begin(come): on the runner's thread.  That it holds the GIL matters: from 3.9 to 3.12 the
 * main thread looks for such calls only after it had to wait for the GIL. */
static PyObject *debug_begin(PyObject *self, PyObject *come)
{
    (void)self;
    if (session.come) /* one that never arrived: it will find the new one */
        natives_py.Py_DecRef(session.come);
    bool waits = session.come != NULL;
    natives_py.Py_IncRef(come);
    session.come = come;
    if (!waits && natives_py.Py_AddPendingCall(arrive_on_main, NULL)) {
        session.come = NULL;
        natives_py.Py_DecRef(come);
        natives_py.PyErr_SetString(natives_py.PyExc_RuntimeError,
                                   "the interpreter's queue of calls is full");
        return NULL;
    }
    return natives_none();
}

struct cpython_method debug_natives[] = {
    {"debug_begin", debug_begin, METH_O, NULL},
    {"debug_read", debug_read, METH_O, NULL},
    {"debug_write", debug_write, METH_O, NULL},
    {"debug_gone", debug_gone, METH_O, NULL},
    {"debug_stop", debug_stop, METH_NOARGS, NULL},
    {"debug_end", debug_end, METH_O, NULL},
    {"debug_life", debug_life, METH_NOARGS, NULL},
    {"debug_user", debug_user, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- the client's side ---- */

/* Send what pdb has written since the last time. */
struct output {
    char *text;
    size_t n;
    bool cut;
};

static struct output take_output(void) /* locked */
{
    struct output o = {.n = session.n, .cut = session.cut};
    o.text = o.n ? malloc(o.n) : NULL;
    if (o.text)
        memcpy(o.text, session.output, o.n);
    session.n = 0;
    session.cut = false;
    return o;
}

static int send_output(struct plugin *p, struct output o, struct probing_reply *out)
{
    static const char cut[] = "\n(the output was longer than 1 MB and is cut)\n";
    int r = o.text ? p->host->reply(out, o.text, o.n) : 0;
    free(o.text);
    return r < 0 || !o.cut ? r : p->host->reply(out, cut, sizeof(cut) - 1);
}

static int claim_debugger(struct plugin *p)
{
    char *output = malloc(OUTPUT_MAX);
    if (!output)
        return p->host->fail(p->host, -ENOMEM, "no memory for a session");
    uint64_t until = p->host->now() + LEAVE_NS;
    (void)pthread_mutex_lock(&session.lock);
    /* The last one may just be leaving: its client was told before its thread is done. */
    while ((session.state == OVER || (session.state != NOBODY && session.gone)) &&
           p->host->now() < until)
        wait_change();
    bool free_now = session.state == NOBODY;
    if (free_now) {
        session.state = CALLED;
        session.life++;
        session.output = output;
        session.n = 0;
        session.gone = session.stop = session.cut = false;
    }
    (void)pthread_mutex_unlock(&session.lock);
    if (free_now)
        return 0;
    free(output);
    return p->host->fail(p->host, -EBUSY, "this process is being debugged already");
}

static void release_debugger(void)
{
    (void)pthread_mutex_lock(&session.lock);
    while (session.inputs > 0) /* they send the last words */
        wait_change();
    free(session.output);
    free(session.line);
    session.output = session.line = NULL;
    session.life++;
    set_state(NOBODY);
    (void)pthread_mutex_unlock(&session.lock);
}

/* Say where the main thread is, as it does not come. */
static void say_waits(struct plugin *p, struct probing_reply *out)
{
    static const char text[] = "The main thread is not in Python code; it is paused as soon as it "
                               "comes back to it. It is here:\n";
    char tid[24];
    (void)snprintf(tid, sizeof(tid), "%d", (int)getpid());
    const char *words[] = {"backtrace", "--thread", tid};
    (void)p->host->reply(out, text, sizeof(text) - 1);
    (void)backtrace_command.run(p, 3, words, out);
}

/* Until it asks for a line, is over, or the client goes: the state it is in.  first: for the client
 * that paused it, whose part ends with the first prompt: from then on what is written belongs to
 * whoever gave the line, who may do so before we have seen that it was asked for. */
static enum state wait_prompt(struct plugin *p, struct probing_reply *out, bool first)
{
    uint64_t begin = p->host->now();
    bool told = !first;
    for (;;) {
        struct output o = {.n = 0};
        (void)pthread_mutex_lock(&session.lock);
        if (session.state != ASKS && session.state != OVER)
            wait_change();
        enum state state = session.state;
        bool not_ours = first && state == RUNS;
        if (!not_ours)
            o = take_output();
        (void)pthread_mutex_unlock(&session.lock);
        if (send_output(p, o, out) < 0 || p->host->cancelled(out) || state == ASKS ||
            state == OVER || not_ours)
            return state;
        if (!told && p->host->now() - begin > PATIENCE_NS) {
            told = true;
            say_waits(p, out);
        }
    }
}

/* The client has gone or wants no more: the main thread finds out and goes on. */
static void dismiss_client(struct plugin *p)
{
    uint64_t until = p->host->now() + LEAVE_NS;
    (void)pthread_mutex_lock(&session.lock);
    session.gone = true;
    (void)pthread_cond_broadcast(&session.changed);
    /* CALLED: it has not come yet, and will find nobody when it does */
    while (session.state == ASKS && p->host->now() < until)
        wait_change();
    (void)pthread_mutex_unlock(&session.lock);
}

static int run_pause(struct plugin *p, struct probing_reply *out)
{
    const char *words[] = {"debug", "pause"};
    int r = claim_debugger(p);
    if (r < 0)
        return r;
    r = eval_tool(p, 2, words, out);
    if (r == 0) {
        enum state state = wait_prompt(p, out, true);
        while (state != OVER && !p->host->cancelled(out)) { /* as long as the client is there */
            (void)pthread_mutex_lock(&session.lock);
            if (session.state != OVER)
                wait_change();
            state = session.state;
            (void)pthread_mutex_unlock(&session.lock);
        }
        if (state != OVER)
            dismiss_client(p);
    }
    release_debugger();
    return r;
}

/* Locked.  The line, once it is asked for: false when nobody asks. */
static bool put_line(struct plugin *p, const char *line, struct probing_reply *out)
{
    while ((session.state == CALLED || session.state == RUNS) && !p->host->cancelled(out))
        wait_change();
    if (session.state != ASKS || session.line)
        return false;
    session.line = strdup(line);
    set_state(RUNS);
    return session.line != NULL;
}

static int run_input(struct plugin *p, const char *line, struct probing_reply *out)
{
    enum state state = OVER;
    (void)pthread_mutex_lock(&session.lock);
    bool somebody = session.state != NOBODY && session.state != OVER;
    session.inputs++;
    somebody = somebody && (!line || put_line(p, line, out));
    (void)pthread_mutex_unlock(&session.lock);
    if (somebody)
        state = wait_prompt(p, out, false);
    (void)pthread_mutex_lock(&session.lock);
    /* Ctrl-C: the program stops where it is, for the next --input */
    session.stop = somebody && state == RUNS && p->host->cancelled(out);
    session.inputs--;
    (void)pthread_cond_broadcast(&session.changed);
    (void)pthread_mutex_unlock(&session.lock);
    if (!somebody)
        return p->host->fail(p->host, -ESRCH,
                             "no debug session is waiting for a line; debug --pause starts one");
    return state == ASKS ? MORE : 0;
}

static int run_dap(struct plugin *p, int argc, const char *const *argv, struct probing_reply *out)
{
    const char *words[16] = {"debug", "dap"};
    int n = 2;
    for (int i = 2; i < argc && n < 16; i++)
        words[n++] = argv[i];
    return eval_tool_within(p, DAP_NS, n, words, out);
}

static int debug_run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct plugin *p = self;
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "--dump") == 0)
        return backtrace_command.run(p, argc - 1, argv + 1, out);
    if (strcmp(what, "--pause") == 0 && argc == 2)
        return run_pause(p, out);
    if (strcmp(what, "--input") == 0 && argc <= 3)
        return run_input(p, argc == 3 ? argv[2] : NULL, out);
    if (strcmp(what, "--dap") == 0)
        return run_dap(p, argc, argv, out);
    return p->host->fail(p->host, -EINVAL,
                         "debug: --dump, --pause or --dap; `probing help debug` explains them");
}

const struct probing_command debug_command = {
    .size = sizeof(struct probing_command),
    .flags = PROBING_WRITES,
    .name = "debug",
    .usage = "--dump | --pause | --input [LINE] | --dap [--address HOST:PORT] [--open] "
             "[--debugpy DIR]",
    .doc = "--dump: stacks; --pause: pdb in the main thread, --input: a line for it; --dap: "
           "an editor may attach through debugpy",
    .run = debug_run,
};

void debug_stop_session(void)
{
    (void)pthread_mutex_lock(&session.lock);
    session.gone = true;
    (void)pthread_cond_broadcast(&session.changed);
    (void)pthread_mutex_unlock(&session.lock);
}
