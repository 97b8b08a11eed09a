/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/backtrace.c - every thread's stack, Python and native in one: command and table.
 *
 * [worker], one look at a time.  Native stacks come from the core ("probing.stack/1"), Python
 * ones from walk.c, without the GIL, while the thread stands still for the core: a millisecond or
 * so.  They are merged only when it stood to the end and both sides agree on how often the eval
 * function is entered; else that is said.
 */
#include <errno.h>
#include <probing/ext/draft/python_frames.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "locals.h"
#include "names.h"
#include "native.h"
#include "plugin.h"
#include "sink.h"
#include "threads.h"
#include "walk.h"

#define NATIVE_MAX 512                /* frames */
#define NATIVE_NS UINT64_C(100000000) /* for one thread to answer */
#define TRIES 6 /* looks at a thread, until it stood still and both sides agree */
#define THREADS_MAX 16384

enum want { WANT_BOTH, WANT_NATIVE, WANT_PYTHON };

struct look {
    struct plugin *plugin;
    struct walk walk;
    const struct probing_stack_1 *stack; /* NULL: the core cannot */
    bool readable;                       /* Python stacks can be read */
    char why[200];                       /* when not */
    char interpreter[256];               /* the object file that holds the eval function */
    struct walk_thread *states;
    int n_states;
    struct walk_frame *frames;          /* WALK_FRAMES */
    struct probing_stack_frame *native; /* NATIVE_MAX */
    struct probing_stack_symbol *symbols;
    struct sink *sink;
    enum want want;
    int32_t only; /* a thread's id, 0: all */
    bool all;     /* ours too */
    bool locals;
};

static void look_done(struct look *l)
{
    walk_close(&l->walk);
    free(l->states);
    free(l->frames);
    free(l->native);
    free(l->symbols);
    (void)pthread_mutex_unlock(&l->plugin->stacks);
}

/* 0, or -ENOMEM.  Takes the lock that look_done() gives back. */
static int look_begin(struct look *l, struct plugin *p)
{
    (void)pthread_mutex_lock(&p->stacks);
    *l = (struct look){.plugin = p};
    l->readable = walk_open(&l->walk, &p->py, l->why, sizeof(l->why)) == 0;
    l->stack = p->host->extension(p->host, PROBING_STACK_1);
    l->states = malloc(WALK_THREADS * sizeof(*l->states));
    l->frames = malloc(WALK_FRAMES * sizeof(*l->frames));
    l->native = malloc(NATIVE_MAX * sizeof(*l->native));
    l->symbols = malloc(NATIVE_MAX * sizeof(*l->symbols));
    if (!l->states || !l->frames || !l->native || !l->symbols) {
        look_done(l);
        return -ENOMEM;
    }
    native_interpreter(l->stack, &p->py, l->interpreter, sizeof(l->interpreter));
    if (!l->readable)
        return 0;
    if (cpython_gone(&p->py)) {
        l->readable = false;
        (void)snprintf(l->why, sizeof(l->why), "the Python interpreter is ending or has not begun");
        return 0;
    }
    l->n_states = walk_threads(&l->walk, l->states, WALK_THREADS);
    if (l->n_states < 0) {
        l->readable = false;
        l->n_states = 0;
        (void)snprintf(l->why, sizeof(l->why), "Python's list of threads never stood still");
    } else if (walk_check(&l->walk, l->states, l->n_states, l->why, sizeof(l->why))) {
        l->readable = false;
        l->n_states = 0;
    }
    return 0;
}

/* ---- one thread ---- */

struct thread_look {
    const struct walk_thread *state; /* NULL: not a Python thread */
    int n;                           /* Python frames */
    enum walk_end end;
    struct probing_stack_thread native;
    bool has_native, moved;
};

static const struct walk_thread *state_of(const struct look *l, int32_t tid)
{
    for (int i = 0; i < l->n_states; i++)
        if (l->states[i].tid == tid)
            return &l->states[i];
    return NULL;
}

/* Native frames of calls of the eval function. */
static int count_evals(const struct look *l, uint32_t n)
{
    int evals = 0;
    for (uint32_t i = 0; i < n; i++)
        evals += native_is_eval(l->symbols[i].name);
    return evals;
}

/* The same number as the Python stack tells it. */
static int count_entries(const struct look *l, int n)
{
    int entries = 0;
    for (int i = 0; i < n; i++)
        entries += walk_is_entry(&l->walk, &l->frames[i]) || walk_is_shim(&l->walk, &l->frames[i]);
    return entries;
}

static void name_native(struct look *l, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        l->symbols[i] = (struct probing_stack_symbol){.size = sizeof(l->symbols[i])};
        /* a return address may be the first one after the function */
        (void)l->stack->symbol(l->native[i].ip - (i > 0), &l->symbols[i]);
    }
}

/* What runs while the thread stands still. */
struct held {
    struct look *look;
    struct thread_look *thread;
    bool ran;
};

static void walk_held(void *arg)
{
    struct held *h = arg;
    struct thread_look *t = h->thread;
    h->ran = true;
    if (t->state && h->look->want == WANT_BOTH)
        t->n = walk_stack(&h->look->walk, t->state, h->look->frames, WALK_FRAMES, &t->end);
}

/* Both stacks of one moment, if the thread can be made to stand still for it. */
static void look_both(struct look *l, int32_t tid, struct thread_look *t)
{
    struct held held = {.look = l, .thread = t};
    t->native = (struct probing_stack_thread){
        .size = sizeof(t->native), .tid = tid, .max_frames = NATIVE_MAX, .frames = l->native};
    int r = l->stack ? l->stack->thread_held(tid, NATIVE_NS, walk_held, &held, &t->native) : -1;
    t->has_native = r >= 0;
    t->moved = r == 0;
    if (t->has_native)
        name_native(l, t->native.n_frames);
    if (!held.ran)
        walk_held(&held);
}

static void look_thread(struct look *l, int32_t tid, struct thread_look *t)
{
    *t = (struct thread_look){.state = l->readable ? state_of(l, tid) : NULL};
    if (l->want == WANT_PYTHON && t->state)
        t->n = walk_stack(&l->walk, t->state, l->frames, WALK_FRAMES, &t->end);
    for (int i = 0; i < TRIES && l->want != WANT_PYTHON; i++) {
        look_both(l, tid, t);
        if (!t->has_native)
            return;
        if (!t->state || l->want == WANT_NATIVE) {
            t->moved = false; /* one stack is one moment by itself */
            return;
        }
        int evals = count_evals(l, t->native.n_frames), entries = count_entries(l, t->n);
        t->moved = t->moved || t->end != WALK_WHOLE ||
                   (t->native.end == 0 ? evals != entries : evals > entries);
        if (!t->moved)
            return;
    }
}

/* `outermost`: beyond the last Python frame, where it is only how a thread or program begins. */
static bool is_plumbing(const struct look *l, const struct probing_stack_symbol *s, bool outermost)
{
    int kind = native_kind(l->interpreter, s->name, s->module);
    return kind == PROBING_PYTHON_PLUMBING || (outermost && kind == PROBING_PYTHON_BEGIN);
}

static int show_python(struct look *l, int i, uint32_t *depth)
{
    if (walk_is_shim(&l->walk, &l->frames[i]))
        return 0;
    struct walk_text text;
    walk_text(&l->walk, &l->frames[i], &text);
    struct sink_frame f = {.depth = (*depth)++,
                           .python = true,
                           .func = text.func,
                           .file = text.file,
                           .line = text.line,
                           .module = ""};
    char locals[LOCALS_BYTES];
    if (l->locals) {
        locals_json(&l->walk, &l->frames[i], locals, sizeof(locals));
        f.locals = text.readable ? locals : "";
    }
    return l->sink->frame(l->sink, &f);
}

static int show_native(struct look *l, uint32_t i, uint32_t *depth)
{
    const struct probing_stack_symbol *s = &l->symbols[i];
    struct sink_frame f = {.depth = (*depth)++,
                           .func = s->name[0] ? s->name : "?",
                           .file = "",
                           .ip = l->native[i].ip,
                           .module = s->module,
                           .module_offset = s->module_offset};
    return l->sink->frame(l->sink, &f);
}

/* Frames of both kinds, innermost first. */
static int show_merged(struct look *l, const struct thread_look *t)
{
    uint32_t depth = 0;
    int next = 0, r = 0;
    bool native = t->has_native && !t->moved && l->want != WANT_PYTHON;
    for (uint32_t i = 0; native && r == 0 && i < t->native.n_frames; i++) {
        const struct probing_stack_symbol *s = &l->symbols[i];
        bool python = t->state && l->want == WANT_BOTH;
        if (!python) {
            r = show_native(l, i, &depth);
        } else if (native_is_eval(s->name)) {
            bool entry = false;
            while (r == 0 && next < t->n && !entry) {
                entry = walk_is_entry(&l->walk, &l->frames[next]) ||
                        walk_is_shim(&l->walk, &l->frames[next]);
                r = show_python(l, next++, &depth);
            }
        } else if (!is_plumbing(l, s, next > 0 && next == t->n)) {
            r = show_native(l, i, &depth);
        }
    }
    while (r == 0 && next < t->n)
        r = show_python(l, next++, &depth);
    return r;
}

/* What is not whole, in one line each. */
static void show_notes(struct look *l, const struct thread_look *t)
{
    struct sink *s = l->sink;
    if (t->end == WALK_MOVING)
        s->note(s, "the thread ran on: only its outer Python frames stood still");
    if (t->end == WALK_LIMIT)
        s->note(s, "more Python frames than are read");
    if (t->end == WALK_UNREADABLE)
        s->note(s, "its Python frames could not be read");
    if (l->want == WANT_PYTHON)
        return;
    if (!l->stack)
        s->note(s, "no native frames: this core does not offer them");
    else if (!t->has_native)
        s->note(s, "no native frames: the thread did not answer");
    else if (t->moved)
        s->note(s, "no native frames: the thread ran on while it was looked at");
    else if (t->native.end == 1)
        s->note(s, "native frames further out are lost: no unwind information");
    else if (t->native.end == 2)
        s->note(s, "more native frames than are read");
}

static int show_thread(struct look *l, int32_t tid)
{
    struct threads_state now;
    struct thread_look t;
    char name[128];
    if (threads_state(tid, &now) < 0)
        return 0; /* it ended */
    if (!l->all && strncmp(now.name, "probing/", 8) == 0 && l->only != tid)
        return 0;
    look_thread(l, tid, &t);
    struct sink_thread view = {.tid = tid,
                               .name = now.name,
                               .python = t.state != NULL,
                               .gil = t.state && t.state->holds_gil,
                               .state = threads_state_word(now.letter, now.syscall),
                               .syscall = threads_syscall_name(now.syscall)};
    if (now.letter == 'R' || now.syscall < 0)
        view.syscall = NULL;
    if (view.gil && strcmp(view.state, "idle") == 0)
        view.state = "waiting"; /* others wait for it meanwhile */
    if (t.state && names_thread(&l->walk, t.state, name, sizeof(name)))
        view.name = name;
    else if (t.state && tid == (int32_t)getpid())
        view.name = "MainThread"; /* as threading would call it */
    int r = l->sink->thread(l->sink, &view);
    if (r == 0)
        r = show_merged(l, &t);
    if (r == 0)
        show_notes(l, &t);
    return r < 0 ? r : l->sink->end(l->sink);
}

/* Main thread, then Python threads, then others; each group by id. */
static int show_all(struct look *l)
{
    int32_t *tids = malloc(THREADS_MAX * sizeof(*tids));
    if (!tids)
        return -ENOMEM;
    int n = threads_list(tids, THREADS_MAX), r = n < 0 ? n : 0;
    int32_t main_tid = (int32_t)getpid();
    for (int group = 0; group < 3 && r >= 0; group++)
        for (int i = 0; i < n && r >= 0; i++) {
            int kind = tids[i] == main_tid ? 0 : state_of(l, tids[i]) ? 1 : 2;
            if (kind == group && (!l->only || l->only == tids[i]))
                r = show_thread(l, tids[i]);
        }
    free(tids);
    return r;
}

char *backtrace_holder(struct plugin *p, char *line, size_t line_size)
{
    struct look l;
    (void)snprintf(line, line_size, "who holds it could not be read");
    if (look_begin(&l, p))
        return NULL;
    const struct walk_thread *holder = NULL;
    for (int i = 0; i < l.n_states && !holder; i++)
        holder = l.states[i].holds_gil ? &l.states[i] : NULL;
    char *text = NULL;
    if (!l.readable) {
        (void)snprintf(line, line_size, "who holds it is not known: %s", l.why);
    } else if (!holder) {
        (void)snprintf(line, line_size, "no thread holds it just now");
    } else if (holder->tid == runner_tid(p->runner)) {
        (void)snprintf(line, line_size, "an earlier eval still runs (thread %d)", holder->tid);
        l.all = true;
    } else {
        (void)snprintf(line, line_size, "the GIL is held by thread %d", holder->tid);
    }
    if (holder) {
        struct sink_text s;
        sink_text_begin(&s, 12);
        l.sink = &s.sink;
        l.all = true;
        (void)show_thread(&l, holder->tid);
        if (s.first[0]) {
            size_t n = strlen(line);
            (void)snprintf(line + n, line_size - n, " in %s", s.first);
        }
        text = sink_text_end(&s);
    }
    look_done(&l);
    return text;
}

/* ---- the command ---- */

static int parse_arguments(const struct probing_host *h, int argc, const char *const *argv,
                           struct look *ret, bool *ret_json)
{
    char text[160];
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--json") == 0) {
            *ret_json = true;
        } else if (strcmp(word, "--locals") == 0) {
            ret->locals = true;
        } else if (strcmp(word, "--all") == 0) {
            ret->all = true;
        } else if (strcmp(word, "--native") == 0 && ret->want != WANT_PYTHON) {
            ret->want = WANT_NATIVE;
        } else if (strcmp(word, "--python") == 0 && ret->want != WANT_NATIVE) {
            ret->want = WANT_PYTHON;
        } else if (strcmp(word, "--native") == 0 || strcmp(word, "--python") == 0) {
            return h->fail(h, -EINVAL, "backtrace: --native and --python exclude each other");
        } else if (strcmp(word, "--thread") == 0) {
            int64_t tid = 0;
            const char *p = i + 1 < argc ? argv[++i] : "";
            for (; *p >= '0' && *p <= '9' && tid < INT32_MAX; p++)
                tid = tid * 10 + (*p - '0');
            if (tid <= 0 || tid > INT32_MAX || *p)
                return h->fail(h, -EINVAL, "backtrace: --thread needs a thread id: --thread 1234");
            ret->only = (int32_t)tid;
        } else {
            (void)snprintf(text, sizeof(text), "backtrace: unknown word '%.60s'; it takes %s", word,
                           backtrace_command.usage);
            return h->fail(h, -EINVAL, text);
        }
    }
    return 0;
}

static int backtrace_run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct plugin *p = self;
    const struct probing_host *h = p->host;
    struct look l, options = {.want = WANT_BOTH};
    struct sink_reply s;
    char text[300];
    bool json = false;
    int r = parse_arguments(h, argc, argv, &options, &json);
    if (r < 0)
        return r;
    if (options.only && syscall(SYS_tgkill, getpid(), options.only, 0) == -1) {
        (void)snprintf(text, sizeof(text), "no thread %d in this process", options.only);
        return h->fail(h, -ESRCH, text);
    }
    if (look_begin(&l, p))
        return h->fail(h, -ENOMEM, "no memory to read stacks");
    l.only = options.only;
    l.all = options.all;
    l.locals = options.locals;
    l.want = options.want;
    if (!l.readable && l.want == WANT_PYTHON) {
        r = h->fail(h, -ENOTSUP, l.why);
    } else if (sink_reply_begin(&s, h, out, json)) {
        r = h->fail(h, -ENOMEM, "no memory to read stacks");
    } else {
        l.sink = &s.sink;
        if (!l.readable && l.want != WANT_NATIVE)
            sink_reply_warn(&s, l.why);
        r = show_all(&l);
        r = sink_reply_end(&s, r);
    }
    look_done(&l);
    return r;
}

const struct probing_command backtrace_command = {
    .size = sizeof(struct probing_command),
    .name = "backtrace",
    .usage = "[--thread TID] [--native|--python] [--locals] [--json] [--all]",
    .doc = "Stacks of all threads, Python and native, innermost frame first, without the GIL",
    .run = backtrace_run,
};

/* ---- the table ---- */

static int backtrace_scan(void *self, struct probing_rows *out)
{
    struct plugin *p = self;
    struct look l;
    struct sink_table s;
    if (look_begin(&l, p))
        return p->host->fail(p->host, -ENOMEM, "no memory to read stacks");
    l.locals = true;
    sink_table_begin(&s, p->host, out);
    l.sink = &s.sink;
    int r = show_all(&l);
    look_done(&l);
    return r == -ECANCELED ? 0 : r;
}

static const struct probing_column columns[] = {
    {"thread_id", PROBING_I64, PROBING_PLAIN, "the kernel's id of the thread", {0}},
    {"thread_name", PROBING_STR, PROBING_PLAIN, "its name in threading, else in the kernel", {0}},
    {"depth", PROBING_I64, PROBING_PLAIN, "0 is the innermost frame", {0}},
    {"frame_type", PROBING_STR, PROBING_PLAIN, "python or native", {0}},
    {"func", PROBING_STR, PROBING_PLAIN, "function", {0}},
    {"file", PROBING_STR, PROBING_PLAIN, "source file of a python frame", {0}},
    {"lineno", PROBING_I64, PROBING_PLAIN, "line that runs now", {0}},
    {"ip", PROBING_I64, PROBING_PLAIN, "address in a native frame", {0}},
    {"module", PROBING_STR, PROBING_PLAIN, "object file of a native frame", {0}},
    {"gil", PROBING_I64, PROBING_PLAIN, "1: the thread held the GIL", {0}},
    {"state", PROBING_STR, PROBING_PLAIN, "running, waiting or idle", {0}},
    {"locals",
     PROBING_STR,
     PROBING_PLAIN,
     "local variables as JSON; others than simple values by type",
     {0}},
};

const struct probing_table_desc backtrace_table = {
    .size = sizeof(struct probing_table_desc),
    .column_size = sizeof(struct probing_column),
    .name = "python.backtrace",
    .doc = "Stacks of all threads at the moment of the query, main thread first",
    .columns = columns,
    .n_columns = sizeof(columns) / sizeof(columns[0]),
    .scan = backtrace_scan,
};
