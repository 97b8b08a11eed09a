/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/offsets_proof.c - read a stack that we know, and compare.
 *
 * The runner's thread comes in, with the GIL; proof_try() on [control] and [worker], one at a time.
 * It lets nothing be read that was not proved, and takes a refusal back only when the plugin is
 * started again.
 */
#include "exec/offsets_proof.h"

#include <errno.h>
#include <probing/ext/draft/note.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec/bindings.h"
#include "exec/pack.h"
#include "inspect/frame_locals.h"
#include "internal.h"

#define THREADS 1024 /* thread states read at most */
#define FRAMES 64
#define WHY 160

/* The state that read() of proof.py works with.  lock: the GIL */
static struct trial {
    struct walk *walk; /* NULL: there is no trial */
    int frames;        /* that were read and are right; 0: read() was not called */
    char why[WHY];     /* what is wrong; "": nothing */
} trial;

static const char *text_at(PyObject *tuple, Py_ssize_t i)
{
    size_t n;
    return natives_utf8(natives_py.PyTuple_GetItem(tuple, i), &n);
}

static int64_t number_at(PyObject *tuple, Py_ssize_t i)
{
    return natives_py.PyLong_AsLongLong(natives_py.PyTuple_GetItem(tuple, i));
}

/* Does this word of what is there hold this address? */
static bool holds_address(uint64_t from, int offset, const void *address)
{
    uint64_t word;
    return peek_u64(&trial.walk->peek, from + (uint64_t)offset, &word) == 0 &&
           word == address_of(address);
}

/* Check the offsets that threads' names are found by. */
static bool check_modules(void)
{
    const struct cpython *py = &natives_py;
    const struct offsets *o = &trial.walk->o;
    PyObject *sys = py->PyImport_AddModule("sys");
    return sys && holds_address(address_of(sys), o->module_dict, py->PyModule_GetDict(sys)) &&
           holds_address(trial.walk->main, o->is_modules, py->PyImport_GetModuleDict());
}

/* Our own thread's state is in the list, as it is, and so are those of all `idents`.  NULL: not. */
static const struct walk_thread *check_threads(const struct walk_thread *threads, int n,
                                               PyObject *idents)
{
    const struct cpython *py = &natives_py;
    const struct walk_thread *own = NULL;
    const struct walk *w = trial.walk;
    for (int i = 0; i < n; i++)
        if (threads[i].state == address_of(py->PyThreadState_Get()))
            own = &threads[i];
    if (!own || own->interpreter != w->main || own->tid != (int32_t)syscall(SYS_gettid) ||
        own->thread_id != (uint64_t)pthread_self() || (!w->o.threaded && !own->holds_gil))
        return NULL;
    for (Py_ssize_t k = 0; n < THREADS && k < py->PyList_Size(idents); k++) {
        uint64_t ident = py->PyLong_AsUnsignedLongLong(py->PyList_GetItem(idents, k));
        int i = 0;
        while (i < n && threads[i].thread_id != ident)
            i++;
        if (i == n)
            return NULL;
    }
    return own;
}

/* Does the frame read as the interpreter tells it?  false: trial.why says what does not. */
static bool check_frame(const struct walk_frame *f, PyObject *told)
{
    static char locals[LOCALS_BYTES]; /* lock: the GIL */
    struct walk_text text;
    walk_text(trial.walk, f, &text);
    const char *func = text_at(told, 0), *variables = text_at(told, 4);
    int column = (int)number_at(told, 3);
    if (!text.readable || strcmp(text.func, func) != 0 || strcmp(text.file, text_at(told, 1)) != 0)
        (void)snprintf(trial.why, WHY, "function %.40s of a trial stack reads as %.40s", func,
                       text.readable ? text.func : "none");
    else if (text.line != (int)number_at(told, 2) || (column && text.column != column))
        (void)snprintf(trial.why, WHY, "line %d of a trial stack reads as %d",
                       (int)number_at(told, 2), text.line);
    if (trial.why[0] || !variables[0])
        return !trial.why[0];
    locals_json(trial.walk, f, locals, sizeof(locals));
    size_t same = 0;
    while (locals[same] && locals[same] == variables[same])
        same++;
    if (locals[same] || variables[same])
        (void)snprintf(trial.why, WHY, "variables of %.40s in a trial stack read wrong (byte %zu)",
                       func, same);
    return !trial.why[0];
}

static void check_stack(const struct walk_thread *own, PyObject *frames)
{
    static struct walk_frame read[FRAMES]; /* lock: the GIL */
    const struct cpython *py = &natives_py;
    enum walk_end end;
    Py_ssize_t k = 0, told = py->PyList_Size(frames);
    int n = walk_stack(trial.walk, own, read, FRAMES, &end);
    for (int i = 0; i < n; i++) {
        if (walk_is_shim(trial.walk, &read[i]))
            continue;
        if (k == told || !check_frame(&read[i], py->PyList_GetItem(frames, k++)))
            break;
    }
    if (!trial.why[0] && (end != WALK_WHOLE || n == 0 || k != told))
        (void)snprintf(trial.why, WHY, "a trial stack of %d functions reads as one of %d",
                       (int)told, (int)k);
    trial.frames = trial.why[0] ? 0 : (int)k;
}

/* read((frames, idents)) */
static PyObject *read_native(PyObject *self, PyObject *truth)
{
    static struct walk_thread threads[THREADS]; /* lock: the GIL */
    const struct cpython *py = &natives_py;
    (void)self;
    if (!trial.walk)
        return natives_none();
    int n = walk_threads(trial.walk, threads, THREADS);
    const struct walk_thread *own =
        check_threads(threads, n > 0 ? n : 0, py->PyTuple_GetItem(truth, 1));
    if (!own)
        (void)snprintf(trial.why, WHY, "its threads read differently from what it reports");
    else if (!check_modules())
        (void)snprintf(trial.why, WHY, "its modules read differently from what it reports");
    else
        check_stack(own, py->PyTuple_GetItem(truth, 0));
    py->PyErr_Clear();
    return natives_none();
}

static struct cpython_method read_method = {"read", read_native, METH_O, NULL};

/* Run proof.py: it calls read_native().  0, or -EIO and trial.why is set. */
static int run_trial(const struct cpython *py)
{
    PyObject *names = py->PyDict_New(), *code = NULL, *done = NULL;
    PyObject *read = py->PyCFunction_NewEx(&read_method, NULL, NULL);
    if (names && read && py->PyDict_SetItemString(names, "read", read) == 0 &&
        py->PyDict_SetItemString(names, "__name__", read) == 0 &&
        py->PyDict_SetItemString(names, "__builtins__", py->PyEval_GetBuiltins()) == 0)
        code = py->Py_CompileStringExFlags((const char *)pack_proof_py, NATIVES_FILE, Py_file_input,
                                           NULL, -1);
    if (code)
        done = py->PyEval_EvalCode(code, names, names);
    if (!done && !trial.why[0])
        (void)snprintf(trial.why, WHY, "the trial code did not run");
    int result = done ? 0 : -EIO;
    py->PyErr_Clear();
    if (names)
        py->PyDict_Clear(names); /* its functions refer to it */
    PyObject *const made[] = {names, code, done, read};
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
        if (made[i])
            py->Py_DecRef(made[i]);
    return result;
}

int proof_read(const struct cpython *py, struct walk *w, char *why, size_t why_size)
{
    trial = (struct trial){.walk = w};
    if (!offsets_possible(&w->o)) {
        (void)snprintf(why, why_size, "the offsets that it publishes are impossible");
        return -ENOTSUP;
    }
    int r = run_trial(py);
    trial.walk = NULL;
    (void)snprintf(why, why_size, "%s",
                   trial.why[0] || trial.frames ? trial.why : "the trial code did not run");
    return r == 0 && trial.frames > 0 ? 0 : -ENOTSUP;
}

/* ---- when ---- */

/* With the GIL, on the runner's thread. */
static int trial_job(void *arg)
{
    struct plugin *p = arg;
    struct walk w;
    char why[240];
    if (natives_load(p))
        return -ENODEV;
    int r = walk_open_unproved(&w, &p->py, why, sizeof(why));
    if (r == 0) {
        r = proof_read(&p->py, &w, why, sizeof(why));
        walk_close(&w);
    }
    offsets_prove(r < 0 ? why : NULL);
    return 0;
}

/* Report the proof's result, for people. */
static void report_proof(struct plugin *p)
{
    const struct probing_note_1 *note = p->host->extension(p->host, PROBING_NOTE_1);
    struct offsets unused;
    struct peek own;
    char text[300], why[300] = "";
    if (peek_open(&own, 0, 0))
        return;
    int r = offsets_find(&p->py, &own, &unused, why, sizeof(why));
    peek_close(&own);
    if (r < 0)
        (void)snprintf(text, sizeof(text), "%s", why);
    else
        (void)snprintf(text, sizeof(text),
                       "CPython 3.%u is newer than what is known here (3.%u); a trial stack was "
                       "read right, so Python stacks are read",
                       p->py.version >> 16 & 0xff, offsets_newest());
    p->host->log(p->host, r < 0 ? PROBING_WARN : PROBING_INFO, text);
    if (note)
        note->set(p->host, text);
}

int proof_try(struct plugin *p, uint64_t timeout_ns)
{
    if (offsets_proof(&p->py) != OFFSETS_UNPROVED)
        return 0;
    if (cpython_gone(&p->py) || runner_call(p->runner, trial_job, p, timeout_ns) < 0)
        return -EAGAIN;
    report_proof(p);
    return 0;
}
