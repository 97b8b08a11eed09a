/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/commands/backtrace.c - the command backtrace, the table python.backtrace, and who
 * holds the GIL.
 *
 * [worker].  The looking itself is snapshot.c's.
 */
#include <errno.h>
#include <probing/ext/draft/access.h>
#include <probing/ext/draft/rows.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"
#include "stack/snapshot.h"

#define REPR_NS (3 * PROBING_NS_PER_S) /* a program's own __repr__ may hang */
#define TASKS_SECONDS "2"              /* for tasks.py to look at tasks */
#define LOCALS_COLUMN 11               /* of python.backtrace */
#define IDS_BYTES ((size_t)1 << 20)    /* of the ids of all threads: 8,192 of 48 bytes at most */

/* A look at our own process.  0, or -ENOMEM.  Takes the lock that end_snapshot() gives back. */
static int begin_snapshot(struct snapshot *l, struct plugin *p)
{
    (void)pthread_mutex_lock(&p->stacks);
    int r = snapshot_begin(l, /* pid= */ 0, &p->py, p->host->extension(p->host, PROBING_STACK_1));
    if (r < 0)
        (void)pthread_mutex_unlock(&p->stacks);
    return r;
}

static void end_snapshot(struct snapshot *l, struct plugin *p)
{
    snapshot_done(l);
    (void)pthread_mutex_unlock(&p->stacks);
}

char *backtrace_holder(struct plugin *p, char *line, size_t line_size)
{
    struct snapshot l;
    (void)snprintf(line, line_size, "the thread that holds it could not be read");
    if (begin_snapshot(&l, p))
        return NULL;
    const struct walk_thread *holder = NULL;
    for (int i = 0; i < l.n_states && !holder; i++)
        holder = l.states[i].holds_gil ? &l.states[i] : NULL;
    char *text = NULL;
    if (!l.readable) {
        (void)snprintf(line, line_size, "the thread that holds it is not known: %s", l.why);
    } else if (!holder) {
        (void)snprintf(line, line_size, "no thread holds it now");
    } else if (runner_is_own(p->runner, holder->tid)) {
        (void)snprintf(line, line_size, "an earlier eval is still running (thread %d)",
                       holder->tid);
        l.options.all = true;
    } else {
        (void)snprintf(line, line_size, "the GIL is held by thread %d", holder->tid);
    }
    if (holder) {
        struct sink_text s;
        sink_text_begin(&s, 12);
        l.sink = &s.sink;
        l.options.all = true;
        (void)snapshot_show_thread(&l, holder->tid);
        if (s.first[0]) {
            size_t n = strlen(line);
            (void)snprintf(line + n, line_size - n, " in %s", s.first);
        }
        text = sink_text_end(&s);
    }
    end_snapshot(&l, p);
    return text;
}

int backtrace_subinterpreters(struct plugin *p)
{
    struct snapshot l;
    int n = 0;
    if (begin_snapshot(&l, p))
        return 0;
    for (int i = 0; i < l.n_states; i++) {
        bool again = l.states[i].interpreter == l.walk.main;
        for (int k = 0; k < i && !again; k++)
            again = l.states[k].interpreter == l.states[i].interpreter;
        n += !again;
    }
    end_snapshot(&l, p);
    return n;
}

/* ---- the command ---- */

/* "IDENT=TID " of each thread: Python code learns the kernel's ids by way of `threading` only,
 * which a program may not use. */
static void list_threads(struct plugin *p, struct buf *ret)
{
    struct snapshot l;
    if (begin_snapshot(&l, p))
        return;
    for (int i = 0; i < l.n_states; i++)
        if (l.states[i].thread_id && l.states[i].tid)
            (void)buf_addf(ret, "%llu=%d ", (unsigned long long)l.states[i].thread_id,
                           l.states[i].tid);
    end_snapshot(&l, p);
}

/* Ask Python code in the process for what only it can tell: it waits for the GIL, for a while. */
static int ask_python(struct plugin *p, const struct backtrace_words *o, struct probing_reply *out)
{
    char tid[16];
    struct buf threads;
    int n = 5;
    buf_init(&threads, IDS_BYTES);
    list_threads(p, &threads);
    const char *words[8] = {o->tasks ? "tasks" : "values", "--known", buf_text(&threads),
                            "--seconds", TASKS_SECONDS};
    (void)snprintf(tid, sizeof(tid), "%d", o->only);
    if (o->json)
        words[n++] = "--json";
    if (o->only) {
        words[n++] = "--thread";
        words[n++] = tid;
    }
    int r = o->tasks ? eval_tool(p, n, words, out) : eval_tool_within(p, REPR_NS, n, words, out);
    buf_done(&threads);
    return r;
}

/* A core too old to say so is taken for one that would not let them. */
static bool may_only_read(struct plugin *p, const struct probing_reply *out)
{
    const struct probing_access_1 *access = p->host->extension(p->host, PROBING_ACCESS_1);
    return !access || access->read_only(out);
}

static int backtrace_run(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    struct plugin *p = self;
    const struct probing_host *h = p->host;
    struct snapshot l;
    struct backtrace_words options;
    struct sink_reply s;
    char text[300];
    int r = backtrace_words(argc, argv, BACKTRACE_INSIDE, &options, text, sizeof(text));
    if (r < 0)
        return h->fail(h, r, text);
    if (options.repr && may_only_read(p, out))
        return h->fail(h, -EACCES,
                       "--locals=repr runs the program's own code, and this client may only read; "
                       "--locals shows simple values without that");
    if (options.only && syscall(SYS_tgkill, getpid(), options.only, 0) == -1)
        return probing_failf(h, -ESRCH, "this process has no thread %d", options.only);
    bool of_python = options.want == WANT_PYTHON || options.tasks || options.repr;
    if (of_python && p->no_python[0])
        return h->fail(h, -ENODEV, p->no_python);
    if (options.tasks || options.repr)
        return ask_python(p, &options, out);
    if (begin_snapshot(&l, p))
        return h->fail(h, -ENOMEM, "no memory to read stacks");
    l.options = options;
    if (!l.readable && options.want == WANT_PYTHON) {
        r = h->fail(h, -ENOTSUP, l.why);
    } else {
        sink_reply_begin(&s, h, out, options.json);
        l.sink = &s.sink;
        if (strcmp(p->no_python, CPYTHON_PYPY) == 0)
            (void)snprintf(l.why, sizeof(l.why), "%s", p->no_python);
        if (l.why[0] && options.want != WANT_NATIVE)
            sink_reply_warn(&s, l.why);
        r = snapshot_show(&l);
        r = sink_reply_end(&s, r);
    }
    end_snapshot(&l, p);
    return r;
}

const struct probing_command backtrace_command = {
    .size = sizeof(struct probing_command),
    .name = "backtrace",
    .usage = BACKTRACE_USAGE,
    .doc = "stacks of all threads, Python and native, innermost frame first, read without the GIL",
    .run = backtrace_run,
};

/* ---- the table ---- */

static int backtrace_scan(void *self, struct probing_rows *out)
{
    struct plugin *p = self;
    struct snapshot l;
    if (begin_snapshot(&l, p))
        return p->host->fail(p->host, -ENOMEM, "no memory to read stacks");
    struct sink_table *s = malloc(sizeof(*s));
    int r = s ? 0 : p->host->fail(p->host, -ENOMEM, "no memory to read stacks");
    if (s) {
        const struct probing_rows_1 *rows = p->host->extension(p->host, PROBING_ROWS_1);
        l.options.locals = !rows || rows->wanted(out, LOCALS_COLUMN);
        sink_table_begin(s, p->host, out);
        l.sink = &s->sink;
        r = snapshot_show(&l);
    }
    free(s);
    end_snapshot(&l, p);
    return r == -ECANCELED ? 0 : r;
}

static const struct probing_column columns[] = {
    PROBING_I64_COLUMN("thread_id", PROBING_PLAIN, "the kernel's id of the thread"),
    PROBING_STR_COLUMN("thread_name", "its name in threading, else in the kernel"),
    PROBING_I64_COLUMN(
        "depth", PROBING_PLAIN,
        "number of the frame in the whole answer: 0 is the innermost Python frame of the main "
        "thread; its other frames, its native frames and the other threads follow"),
    PROBING_STR_COLUMN("frame_type", "python or native"),
    PROBING_STR_COLUMN("func", "function"),
    PROBING_STR_COLUMN("file", "source file of a python frame"),
    PROBING_I64_COLUMN("lineno", PROBING_PLAIN, "line that is running"),
    PROBING_I64_COLUMN("ip", PROBING_PLAIN, "address in a native frame"),
    PROBING_STR_COLUMN("module", "object file of a native frame"),
    PROBING_I64_COLUMN("gil", PROBING_PLAIN, "1: the thread held the GIL"),
    PROBING_STR_COLUMN("state", "running, waiting or idle"),
    PROBING_STR_COLUMN("locals", "local variables as JSON, simple values only and others by type; "
                                 "NULL: the frame is native, or it changed while it was read"),
    PROBING_I64_COLUMN("colno", PROBING_PLAIN, "column in that line, from 1"),
    PROBING_I64_COLUMN(
        "level", PROBING_PLAIN,
        "number of the frame in its thread's stack, including native frames; 0 is the innermost"),
};

const struct probing_table_desc backtrace_table =
    PROBING_COMPUTED_TABLE("python.backtrace", columns, backtrace_scan,
                           "stacks of all threads at the time of the query, main thread first");
