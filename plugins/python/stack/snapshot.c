/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/stack/snapshot.c - every thread's stack, Python and native in one.
 *
 * [worker], one look at a time.  Native stacks come from "probing.stack/1", Python ones from
 * frame_chain.c, without the GIL, while the thread stands still for the former: a millisecond or
 * so. They are merged only when it stood to the end and both sides agree on how often the eval
 * function is entered; else that is said.
 */
#include "stack/snapshot.h"

#include <errno.h>
#include <probing/ext/draft/python_frames.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec/runner.h"
#include "inspect/frame_locals.h"
#include "inspect/native_roles.h"
#include "inspect/thread_state.h"
#include "lib/stack/frame_merge.h"
#include "objects/object_json.h"
#include "probing_sdk.h"

#define NATIVE_MAX SINK_NATIVES
#define NATIVE_NS UINT64_C(100000000) /* for one thread to answer */
#define LOCALS_NS UINT64_C(1000000)   /* that a thread stands still more, for its variables */
#define TRIES 6 /* looks at a thread, until it stood still and both sides agree */
#define THREADS_MAX 16384
#define STACK_MAX (UINT64_C(1) << 30) /* bytes; larger ones are no thread's */

void snapshot_done(struct snapshot *l)
{
    walk_close(&l->walk);
    names_done(&l->names);
    free(l->states);
    free(l->frames);
    free(l->locals);
    free(l->native);
    free(l->symbols);
    free(l->kinds);
}

/* Up to 3.12 the state in which a thread enters another interpreter may say that it is the thread
 * that made the interpreter.  Whose it is, 3.11 and 3.12 betray: the eval function has local
 * variables on the stack of the thread that runs it, so not far beyond its stack pointer. */
struct stack_top {
    uint64_t sp; /* of a thread that waits */
    int32_t tid;
};

static int compare_tops(const void *a, const void *b)
{
    uint64_t x = ((const struct stack_top *)a)->sp, y = ((const struct stack_top *)b)->sp;
    return x < y ? -1 : x > y;
}

static int read_tops(const struct snapshot *l, struct stack_top *ret)
{
    struct threads_state now;
    int n = 0;
    for (int i = 0; i < l->n_states; i++)
        if (l->states[i].tid > 0 && threads_state(l->pid, l->states[i].tid, &now) == 0 && now.sp)
            ret[n++] = (struct stack_top){now.sp, l->states[i].tid};
    qsort(ret, (size_t)n, sizeof(*ret), compare_tops);
    return n;
}

/* The nearest stack pointer below the address. */
static int32_t thread_with(const struct stack_top *tops, int n, uint64_t address)
{
    int low = 0;
    for (int high = n; low < high;) {
        int middle = low + (high - low) / 2;
        if (tops[middle].sp <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && address - tops[low - 1].sp < STACK_MAX ? tops[low - 1].tid : 0;
}

static void correct_states(struct snapshot *l)
{
    struct stack_top *tops = NULL;
    int n = 0;
    for (int i = 0; i < l->n_states; i++) {
        struct walk_thread *t = &l->states[i];
        if (t->interpreter == l->states[l->n_states - 1].interpreter || !t->cframe)
            continue;
        if (!tops && (tops = malloc((size_t)l->n_states * sizeof(*tops))) != NULL)
            n = read_tops(l, tops);
        int32_t tid = tops ? thread_with(tops, n, t->cframe) : 0;
        if (!tid || tid == t->tid)
            continue;
        t->tid = tid;
        t->thread_id = 0; /* the other thread's, and so would be its name */
    }
    free(tops);
}

static int compare_states(const void *a, const void *b)
{
    const struct walk_thread *x = a, *y = b;
    return x->tid != y->tid ? (x->tid < y->tid ? -1 : 1) : x->place - y->place;
}

/* The lists of threads, if Python can be read at all. */
static void read_states(struct snapshot *l)
{
    if (l->pid == getpid() && cpython_gone(l->py)) {
        l->readable = false;
        (void)snprintf(l->why, sizeof(l->why), "the Python interpreter is ending or has not begun");
        return;
    }
    l->n_states = walk_threads(&l->walk, l->states, WALK_THREADS);
    if (l->n_states < 0) {
        l->readable = false;
        l->n_states = 0;
        (void)snprintf(l->why, sizeof(l->why), "Python's list of threads never stood still");
        return;
    }
    if (l->n_states == WALK_THREADS)
        (void)snprintf(l->why, sizeof(l->why), "Python stacks are read of %d threads at most",
                       WALK_THREADS);
    correct_states(l);
    if (walk_check(&l->walk, l->states, l->n_states, l->why, sizeof(l->why))) {
        l->readable = false;
        l->n_states = 0;
    }
    qsort(l->states, (size_t)l->n_states, sizeof(*l->states), compare_states);
}

int snapshot_begin(struct snapshot *l, pid_t pid, const struct cpython *py,
                   const struct probing_stack_1 *stack)
{
    *l = (struct snapshot){.pid = pid ? pid : getpid(), .py = py, .stack = stack};
    l->walk.peek.mem = -1; /* walk_close() closes it, opened or not */
    if (py->version)
        l->readable = walk_open(&l->walk, py, pid, l->why, sizeof(l->why)) == 0;
    l->states = malloc(WALK_THREADS * sizeof(*l->states));
    l->frames = malloc(WALK_FRAMES * sizeof(*l->frames));
    l->locals = malloc((size_t)LOOK_LOCALS * LOCALS_BYTES);
    l->native = malloc(NATIVE_MAX * sizeof(*l->native));
    l->symbols = malloc(NATIVE_MAX * sizeof(*l->symbols));
    l->kinds = malloc(NATIVE_MAX * sizeof(*l->kinds));
    if (!l->states || !l->frames || !l->locals || !l->native || !l->symbols || !l->kinds) {
        snapshot_done(l);
        return -ENOMEM;
    }
    if (stack && stack->size >= sizeof(*stack))
        (void)stack->refresh();
    if (py->version)
        native_interpreter(stack, py, l->interpreter, sizeof(l->interpreter));
    if (l->readable)
        read_states(l);
    return 0;
}

/* ---- one thread ---- */

struct thread_snapshot {
    const struct walk_thread *state; /* NULL: not a Python thread; else its newest */
    bool gil;
    int n;      /* Python frames */
    int locals; /* how many of them, from the innermost, have theirs in look.locals */
    bool whole; /* each of these could be read */
    int states; /* that they are of */
    enum walk_end end;
    struct probing_stack_thread native;
    bool has_native, moved; /* moved: both are not of one moment */
    bool differ;            /* they are, and still do not fit together */
};

/* A thread has a state in each interpreter that it has run in: the first of them, and behind it
 * the others.  NULL: it is no thread of Python's. */
static const struct walk_thread *state_of(const struct snapshot *l, int32_t tid)
{
    int low = 0;
    for (int high = l->n_states; low < high;) {
        int middle = low + (high - low) / 2;
        if (l->states[middle].tid < tid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < l->n_states && l->states[low].tid == tid ? &l->states[low] : NULL;
}

static const struct walk_thread *next_state(const struct snapshot *l, const struct walk_thread *t)
{
    return t + 1 < l->states + l->n_states && t[1].tid == t->tid ? t + 1 : NULL;
}

static void name_native(struct snapshot *l, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        l->symbols[i] = (struct probing_stack_symbol){.size = sizeof(l->symbols[i])};
        /* a return address may be the first one after the function */
        (void)l->stack->symbol(l->native[i].ip - (i > 0), &l->symbols[i]);
        l->kinds[i] =
            (uint8_t)native_kind(l->interpreter, l->symbols[i].name, l->symbols[i].module);
    }
}

/* Python frames of a thread.  It enters an interpreter from an older one, as a call does: so the
 * newest interpreter's frames are the innermost. */
static void walk_thread(struct snapshot *l, struct thread_snapshot *t)
{
    t->n = t->states = 0;
    t->end = WALK_WHOLE;
    t->gil = false;
    for (const struct walk_thread *s = t->state; s; s = next_state(l, s)) {
        enum walk_end end;
        t->gil = t->gil || s->holds_gil;
        int n = walk_stack(&l->walk, s, l->frames + t->n, (size_t)(WALK_FRAMES - t->n), &end);
        t->states += n > 0;
        t->n += n;
        if (end != WALK_WHOLE)
            t->end = end;
    }
}

/* Variables of the innermost frames with the stack itself, so of the same moment where the thread
 * stands still: no malloc here.  The walk that a moving frame breaks gives "". */
static void read_locals(struct snapshot *l, struct thread_snapshot *t)
{
    uint64_t end = runner_now_ns() + LOCALS_NS;
    t->locals = 0;
    t->whole = true;
    for (int i = 0; i < t->n && i < LOOK_LOCALS && runner_now_ns() < end; i++) {
        char *text = l->locals + (size_t)i * LOCALS_BYTES;
        text[0] = '\0';
        t->locals = i + 1;
        if (walk_is_shim(&l->walk, &l->frames[i]))
            continue;
        locals_json(&l->walk, &l->frames[i], text, LOCALS_BYTES);
        t->whole = t->whole && text[0];
    }
}

/* ---- both sides as one ---- */

struct both {
    struct snapshot *look;
    const struct thread_snapshot *thread;
};

static int kind_of(void *arg, uint32_t i)
{
    return ((const struct both *)arg)->look->kinds[i];
}

static uint64_t sp_of(void *arg, uint32_t i)
{
    return ((const struct both *)arg)->look->native[i].sp;
}

static struct frame_python python_of(void *arg, uint32_t i)
{
    const struct snapshot *l = ((const struct both *)arg)->look;
    const struct walk_frame *f = &l->frames[i];
    bool shim = walk_is_shim(&l->walk, f);
    return (struct frame_python){
        .mark = shim ? f->address : 0, .entry = shim || walk_is_entry(&l->walk, f), .shim = shim};
}

static struct frame_merge merge_of(struct both *b)
{
    const struct snapshot *l = b->look;
    const struct thread_snapshot *t = b->thread;
    struct frame_merge m = {.arg = b,
                            .kind = kind_of,
                            .sp = sp_of,
                            .python = python_of,
                            .n_native = t->native.n_frames,
                            .n_python = (uint32_t)t->n,
                            .native_whole = t->native.end == 0,
                            .python_whole = t->end != WALK_LIMIT,
                            .exact = t->states > 1 && l->walk.o.minor < 11};
    frame_merge_begin(&m);
    return m;
}

/* The part that runs while the thread stands still. */
struct held {
    struct snapshot *look;
    struct thread_snapshot *thread;
    bool ran;
};

static void walk_held(void *arg)
{
    struct held *h = arg;
    struct thread_snapshot *t = h->thread;
    h->ran = true;
    if (!t->state || h->look->options.want == WANT_NATIVE)
        return;
    walk_thread(h->look, t);
    if (h->look->options.locals)
        read_locals(h->look, t);
}

/* Nothing holds the thread: until a look finds it where its variables were read. */
static void snapshot_free(struct snapshot *l, struct thread_snapshot *t)
{
    struct held held = {.look = l, .thread = t};
    t->whole = true;
    for (int i = 0; i < TRIES && (i == 0 || !t->whole); i++)
        walk_held(&held);
}

/* Both stacks of one moment, if the thread can be made to stand still for it. */
static void look_both(struct snapshot *l, int32_t tid, struct thread_snapshot *t)
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

static void snapshot_thread(struct snapshot *l, int32_t tid, struct thread_snapshot *t)
{
    *t = (struct thread_snapshot){.state = l->readable ? state_of(l, tid) : NULL};
    bool hold = l->options.want != WANT_PYTHON || (l->options.locals && l->pid == getpid());
    if (!hold)
        snapshot_free(l, t);
    for (int i = 0; i < TRIES && hold; i++) {
        look_both(l, tid, t);
        if (!t->has_native) {
            snapshot_free(l, t);
            return;
        }
        if (!t->state || l->options.want == WANT_NATIVE) {
            t->moved = false; /* one stack is one moment by itself */
            return;
        }
        struct both both = {l, t};
        struct frame_merge m = merge_of(&both);
        t->moved = t->moved || (t->end != WALK_WHOLE && t->end != WALK_LIMIT);
        t->differ = !m.agree;
        if (m.based) /* what lies behind a greenlet's stack is none of it */
            t->native.end = 0;
        if (!t->moved && !t->differ)
            return;
    }
}

static int show_python(struct snapshot *l, const struct thread_snapshot *t, int i, uint32_t *depth)
{
    if (walk_is_shim(&l->walk, &l->frames[i]))
        return 0;
    struct walk_text text;
    walk_text(&l->walk, &l->frames[i], &text);
    if (text.setup)
        return 0;
    struct sink_frame f = {.depth = (*depth)++,
                           .python = true,
                           .func = text.func,
                           .file = text.file,
                           .line = text.line,
                           .column = text.column,
                           .end_column = text.end_column,
                           .module = ""};
    char locals[LOCALS_BYTES];
    if (l->options.locals) {
        f.locals = i < t->locals ? l->locals + (size_t)i * LOCALS_BYTES : "";
        if (!f.locals[0] && text.readable) {
            locals_json(&l->walk, &l->frames[i], locals, sizeof(locals));
            f.locals = locals;
        }
    }
    return l->sink->frame(l->sink, &f);
}

static int show_native(struct snapshot *l, uint32_t i, uint32_t *depth)
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
static int show_both(struct snapshot *l, const struct thread_snapshot *t, bool native)
{
    struct both both = {l, t};
    struct frame_merge m = merge_of(&both);
    uint32_t depth = 0, i;
    int r = 0;
    m.agree = m.agree && native;
    for (enum frame_side side; r == 0 && (side = frame_merge_next(&m, &i)) != FRAME_END;)
        r = side == FRAME_OF_NATIVE ? show_native(l, i, &depth) : show_python(l, t, (int)i, &depth);
    return r;
}

static int show_frames(struct snapshot *l, const struct thread_snapshot *t)
{
    uint32_t depth = 0;
    int r = 0;
    bool native = t->has_native && !t->moved && !t->differ && l->options.want != WANT_PYTHON;
    if (t->n > 0)
        code_cache_check(&l->walk, l->frames, (size_t)t->n);
    if (t->state && l->options.want != WANT_NATIVE)
        return show_both(l, t, native);
    for (uint32_t i = 0; native && r == 0 && i < t->native.n_frames; i++)
        r = show_native(l, i, &depth);
    return r;
}

/* Say what is incomplete, in one line each. */
static void show_notes(struct snapshot *l, const struct thread_snapshot *t)
{
    struct sink *s = l->sink;
    if (t->end == WALK_MOVING)
        s->note(s, "the thread continued: only its outer Python frames are complete");
    if (t->end == WALK_LIMIT)
        s->note(s, "there are more Python frames than are read");
    if (t->end == WALK_UNREADABLE)
        s->note(s, "its Python frames could not be read");
    if (l->options.want == WANT_PYTHON)
        return;
    if (!l->stack)
        s->note(s, "no native frames: this core does not offer them");
    else if (!t->has_native && l->pid != getpid())
        s->note(s, "no native frames: the thread is running, and from outside it is not stopped");
    else if (!t->has_native)
        s->note(s, "no native frames: the thread did not answer");
    else if (t->moved)
        s->note(s, "no native frames: the thread continued while it was read");
    else if (t->differ && t->states > 1 && l->walk.o.minor < 11)
        s->note(s, "no native frames: of a sub-interpreter's frames CPython before 3.11 does not "
                   "tell whether this thread runs them");
    else if (t->differ)
        s->note(s, "no native frames: they do not match the Python frames");
    else if (t->native.end == 1)
        s->note(s, "native outer frames are missing: there is no unwind information");
    else if (t->native.end == 2)
        s->note(s, "there are more native frames than are read");
}

/* A wait that was interrupted and goes on has lost its name; the function that called it tells. */
static int64_t waits_in(const struct snapshot *l, const struct thread_snapshot *t, int64_t number)
{
    for (uint32_t i = 0; number == SYS_restart_syscall && t->has_native && i < 3; i++) {
        if (i >= t->native.n_frames)
            break;
        if (strstr(l->symbols[i].name, "nanosleep"))
            return SYS_clock_nanosleep;
        if (strstr(l->symbols[i].name, "poll"))
            return SYS_ppoll;
        if (strncmp(l->symbols[i].name, "pthread_", 8) == 0 ||
            strncmp(l->symbols[i].name, "sem_", 4) == 0)
            return SYS_futex;
    }
    return number;
}

int snapshot_show_thread(struct snapshot *l, int32_t tid)
{
    struct threads_state now;
    struct thread_snapshot t;
    char name[128];
    if (threads_state(l->pid, tid, &now) < 0)
        return 0; /* it ended */
    if (!l->options.all && strncmp(now.name, "probing/", 8) == 0 && l->options.only != tid)
        return 0;
    snapshot_thread(l, tid, &t);
    now.syscall = waits_in(l, &t, now.syscall);
    struct sink_thread view = {.tid = tid,
                               .name = now.name,
                               .python = t.state != NULL,
                               .gil = t.state && t.gil,
                               .state = threads_state_word(now.letter, now.syscall),
                               .syscall = threads_syscall_name(now.syscall)};
    if (now.letter == 'R' || now.syscall < 0)
        view.syscall = NULL;
    if (view.gil && strcmp(view.state, "idle") == 0)
        view.state = "waiting"; /* others wait for it meanwhile */
    bool named = false;
    for (const struct walk_thread *s = t.state; s && !named; s = next_state(l, s))
        named = names_thread(&l->walk, &l->names, s, name, sizeof(name));
    if (named)
        view.name = name;
    else if (t.state && tid == (int32_t)l->pid)
        view.name = "MainThread"; /* as threading would call it */
    int r = l->sink->thread(l->sink, &view);
    if (r == 0)
        r = show_frames(l, &t);
    if (r == 0)
        show_notes(l, &t);
    return r < 0 ? r : l->sink->end(l->sink);
}

/* The look at the CPython whose thread it is. */
static struct snapshot *look_of(struct snapshot *l, int32_t tid)
{
    for (struct snapshot *one = l; one; one = one->next)
        if (state_of(one, tid)) {
            one->options = l->options;
            one->sink = l->sink;
            return one;
        }
    return l;
}

int snapshot_show(struct snapshot *l)
{
    int32_t *tids = malloc(THREADS_MAX * sizeof(*tids));
    if (!tids)
        return -ENOMEM;
    int n = threads_list(l->pid, tids, THREADS_MAX), r = n < 0 ? n : 0;
    int32_t main_tid = (int32_t)l->pid;
    if (l->options.locals && l->n_states > 0)
        group_find(&l->walk, l->states[l->n_states - 1].interpreter);
    for (int group = 0; group < 3 && r >= 0; group++)
        for (int i = 0; i < n && r >= 0; i++) {
            struct snapshot *one = look_of(l, tids[i]);
            int kind = tids[i] == main_tid ? 0 : state_of(one, tids[i]) ? 1 : 2;
            if (kind == group && (!l->options.only || l->options.only == tids[i]))
                r = snapshot_show_thread(one, tids[i]);
        }
    free(tids);
    return r;
}
