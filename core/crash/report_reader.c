/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/report_reader.c - the file `crash` of a data directory: reports of crashes, as text.
 *
 * Written with write(2) by a process that dies, so every line may be the last, and nothing is
 * trusted.  Appended; what follows a word that is not known belongs to a later version.
 *
 *     crash NUMBER                          begins a report
 *     time NS                               UTC
 *     process PID
 *     fault TID SIGNO CODE [at ADDRESS | from PID UID | call NUMBER]
 *     registers MACHINE R0 R1 ...           in DWARF order, at the fault
 *     also TID SIGNO CODE ...               another thread that crashed meanwhile
 *     thread TID STATE NAME                 begins a thread; those that crashed come first
 *       frame IP OFFSET ADDRESS PATH        innermost first; OFFSET of ADDRESS in the module;
 *                                           ADDRESS is within the call where IP is behind it
 *       origin TID SIGNO CODE ...           of the handler that a frame is the end of
 *       lost, limit, unseen                 why there are not more frames
 *       inside PLUGIN FUNCTION [NAME]       of one that crashed: what it ran of a plugin; NAME of a
 *                                           table, a command, a topic or a setting
 *       at R0 R1 ... | at IP SP             instead of frames, where nobody could unwind ...
 *       memory ADDRESS HEX                  ... and the stack; see offline_unwind.c
 *     name ADDRESS OFFSET FUNC              of all frames' addresses
 *     map LINE                              of proc(5) maps, for `at` and `memory`
 *     end NS WORDS                          how long it took, and what is missing
 *     pythons TID                           begins a thread's Python frames
 *       python LINE ENTRY FILE<tab>FUNC     innermost first; ENTRY 1: outermost of one native call
 *     survived                              the process lived on
 *
 * Any thread.  It writes nothing.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/crash/crash.h"
#include "core/crash/offline_unwind.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/array.h"

#define FILE_MAX_BYTES ((size_t)64 << 20)
#define MEMORY_MAX_BYTES ((size_t)512 << 20)
#define REPORTS_MAX 1000u
#define THREADS_MAX 4096u
#define FRAMES_MAX 8192u   /* of a thread: native and Python's */
#define GUARD_BYTES 65536u /* a function's frame may begin so far behind the last one's end */

struct name {
    uint64_t address, offset;
    const char *func;
};

/* A frame as it is read: `address` names it. */
struct raw_frame {
    struct crash_frame frame;
    uint64_t address;
    bool entry;
};

struct reading {
    struct arena arena;
    struct buf text;
    struct crash_report list[REPORTS_MAX];
    uint32_t n;
    /* of the report that is being read */
    struct crash_thread threads[THREADS_MAX];
    uint32_t n_threads;
    struct raw_frame native[FRAMES_MAX], python[FRAMES_MAX];
    uint32_t n_native, n_python;
    struct name *names; /* in order of the file, then of address */
    uint32_t n_names, room_names;
    int32_t python_of; /* thread that the frames in `python` are of */
    uint64_t sp;       /* of the thread that crashed; 0: not known */
    bool has_origin, no_memory, unwind;
    struct dead *dead; /* what nobody could unwind; NULL: nothing */
};

/* ---- words of a line ---- */

static uint64_t take_number(char **at)
{
    char *end;
    while (**at == ' ')
        (*at)++;
    bool hex = (*at)[0] == '0' && (*at)[1] == 'x';
    uint64_t value =
        **at == '-' ? (uint64_t)strtoll(*at, &end, 10) : strtoull(*at, &end, hex ? 16 : 10);
    *at = end;
    return value;
}

/* The next word, ended by a NUL; "" at the end of the line. */
static const char *take_word(char **at)
{
    while (**at == ' ')
        (*at)++;
    char *word = *at;
    *at += strcspn(*at, " ");
    if (**at)
        *(*at)++ = '\0';
    return word;
}

/* ---- a report's lines ---- */

static void read_fault(struct crash_report *c, char *at)
{
    c->tid = (int32_t)take_number(&at);
    c->signo = (int)take_number(&at);
    c->code = (int)take_number(&at);
    c->has_address = false;
    c->sender = 0;
    const char *word = take_word(&at);
    if (strcmp(word, "at") == 0) {
        c->has_address = true;
        c->address = take_number(&at);
    } else if (strcmp(word, "from") == 0) {
        c->sender = (int32_t)take_number(&at);
        c->sender_uid = (int32_t)take_number(&at);
    }
}

static const char *const *register_names(const char *machine, uint32_t *ret_n)
{
    static const char *const x86_64[] = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi",
                                         "rbp", "rsp", "r8",  "r9",  "r10", "r11",
                                         "r12", "r13", "r14", "r15", "rip"};
    static const char *const aarch64[] = {
        "x0",  "x1",  "x2",  "x3",  "x4",  "x5",  "x6",  "x7",  "x8",  "x9",  "x10",
        "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21",
        "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp",  "pc"};
    bool arm = strcmp(machine, "aarch64") == 0;
    *ret_n = arm ? sizeof(aarch64) / sizeof(aarch64[0]) : sizeof(x86_64) / sizeof(x86_64[0]);
    return arm ? aarch64 : x86_64;
}

static void read_registers(struct reading *r, struct crash_report *c, char *at)
{
    char text[1024];
    uint32_t n;
    int size = 0;
    const char *const *names = register_names(take_word(&at), &n);
    for (uint32_t i = 0; i < n && *at && size < (int)sizeof(text) - 40; i++) {
        uint64_t value = take_number(&at);
        if (strcmp(names[i], "rsp") == 0 || strcmp(names[i], "sp") == 0)
            r->sp = value;
        size += snprintf(text + size, sizeof(text) - (size_t)size, "%s%s=0x%llx", i ? " " : "",
                         names[i], (unsigned long long)value);
    }
    c->registers = arena_text(&r->arena, text, (size_t)size);
}

static void read_thread(struct reading *r, char *at)
{
    struct crash_thread *t = &r->threads[r->n_threads++];
    *t = (struct crash_thread){.tid = (int32_t)take_number(&at), .note = ""};
    t->state = take_word(&at);
    t->name = at;
    r->n_native = r->n_python = 0;
}

static void read_frame(struct reading *r, char *at)
{
    if (r->n_native == FRAMES_MAX)
        return;
    struct raw_frame *f = &r->native[r->n_native++];
    *f = (struct raw_frame){.frame = {.func = "", .file = ""}};
    f->frame.ip = take_number(&at);
    f->frame.offset = take_number(&at);
    f->address = take_number(&at);
    f->frame.module = *at == ' ' ? at + 1 : "";
}

static void read_python(struct reading *r, char *at)
{
    if (r->n_python == FRAMES_MAX)
        return;
    struct raw_frame *f = &r->python[r->n_python++];
    *f = (struct raw_frame){.frame = {.python = true, .module = ""}};
    f->frame.line = (int)take_number(&at);
    f->entry = take_number(&at) != 0;
    f->frame.file = *at == ' ' ? at + 1 : "";
    char *tab = strchr(at, '\t');
    f->frame.func = tab ? tab + 1 : "?";
    if (tab)
        *tab = '\0';
}

static void read_name(struct reading *r, char *at)
{
    struct name *more = array_grow(r->names, r->n_names, &r->room_names, sizeof(*more), UINT32_MAX);
    if (!more) {
        r->no_memory = true;
        return;
    }
    r->names = more;
    struct name *n = &r->names[r->n_names++];
    n->address = take_number(&at);
    n->offset = take_number(&at);
    n->func = *at == ' ' ? at + 1 : "";
}

/* ---- from lines to frames ---- */

/* Native and Python frames wait in two lists, one after the other; they are merged when names are
 * known.  `module_offset` of a native frame keeps its address until then. */
static void end_thread(struct reading *r)
{
    struct crash_thread *t = r->n_threads ? &r->threads[r->n_threads - 1] : NULL;
    for (uint32_t i = 0; r->python_of && i < r->n_threads; i++)
        t = r->threads[i].tid == r->python_of ? &r->threads[i] : t;
    uint32_t had = t ? t->n_frames : 0, n = r->n_native + r->n_python;
    struct crash_frame *frames = t && n ? arena_zalloc(&r->arena, had + n, sizeof(*frames)) : NULL;
    r->no_memory = r->no_memory || (t && n && !frames);
    for (uint32_t i = 0; frames && i < had; i++)
        frames[i] = t->frames[i];
    for (uint32_t i = 0; frames && i < r->n_native; i++) {
        frames[had + i] = r->native[i].frame;
        frames[had + i].function_offset = r->native[i].address;
    }
    for (uint32_t i = 0; frames && i < r->n_python; i++) {
        frames[had + r->n_native + i] = r->python[i].frame;
        frames[had + r->n_native + i].ip = r->python[i].entry;
    }
    if (frames) {
        t->frames = frames;
        t->n_frames = had + n;
    }
    r->n_native = r->n_python = 0;
    r->python_of = 0;
}

static int by_address(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    return x->address < y->address ? -1 : x->address > y->address;
}

static void give_name(const struct reading *r, struct crash_frame *f)
{
    if (f->func[0])
        return; /* unwound after death: it has one */
    struct name wanted = {.address = f->function_offset};
    const struct name *found =
        r->n_names ? bsearch(&wanted, r->names, r->n_names, sizeof(wanted), by_address) : NULL;
    f->func = found ? found->func : "";
    f->function_offset = found ? found->offset : 0;
}

static bool is_eval(const struct crash_frame *f)
{
    static const char name[] = "_PyEval_EvalFrameDefault";
    return strncmp(f->func, name, sizeof(name) - 1) == 0;
}

/* Replace each call of the interpreter's loop in the native stack by the Python frames that it
 * runs. */
static void merge_frames(struct reading *r, struct crash_thread *t)
{
    uint32_t native = 0, n = 0;
    while (native < t->n_frames && !t->frames[native].python)
        give_name(r, &t->frames[native++]);
    uint32_t next = native;
    if (next == t->n_frames)
        return;
    struct crash_frame *out = arena_zalloc(&r->arena, t->n_frames, sizeof(*out));
    if (!out) {
        r->no_memory = true;
        return;
    }
    for (uint32_t i = 0; i < native; i++) {
        if (!is_eval(&t->frames[i])) {
            out[n++] = t->frames[i];
            continue;
        }
        for (bool entry = false; next < t->n_frames && !entry; next++) {
            entry = t->frames[next].ip != 0;
            t->frames[next].ip = 0;
            if (t->frames[next].func[0])
                out[n++] = t->frames[next];
        }
    }
    for (; next < t->n_frames; next++) { /* more than there are loops: the native part is cut */
        t->frames[next].ip = 0;
        if (t->frames[next].func[0])
            out[n++] = t->frames[next];
    }
    t->frames = out;
    t->n_frames = n;
}

/* The first frame that is not how a signal is raised or a program ended. */
static const struct crash_frame *first_own_frame(const struct crash_report *c)
{
    static const char *const raising[] = {"raise",
                                          "abort",
                                          "gsignal",
                                          "pthread_kill",
                                          "__pthread_kill",
                                          "__pthread_kill_implementation",
                                          "__pthread_kill_internal",
                                          "__GI_raise",
                                          "__GI_abort",
                                          "kill",
                                          "tgkill"};
    const struct crash_thread *t = c->n_threads ? &c->threads[0] : NULL;
    const struct crash_frame *named = NULL;
    for (uint32_t i = 0; t && i < t->n_frames && !named; i++) {
        const struct crash_frame *f = &t->frames[i];
        bool skip = !f->func[0];
        for (size_t k = 0; k < sizeof(raising) / sizeof(raising[0]); k++)
            skip = skip || strcmp(f->func, raising[k]) == 0;
        named = skip ? NULL : f;
    }
    return named;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A function that calls itself without an end has come to the guard below its thread's stack. */
static bool is_full_stack(const struct reading *r, const struct crash_report *c)
{
    return c->signo == SIGSEGV && c->has_address && r->sp != 0 &&
           c->address - (r->sp - GUARD_BYTES) < 2 * GUARD_BYTES;
}

static void write_message(struct reading *r, struct crash_report *c)
{
    char text[900];
    const struct crash_frame *f = first_own_frame(c);
    const char *meaning = is_full_stack(r, c) ? "the stack of the thread is full" : c->meaning;
    int n = snprintf(text, sizeof(text), "%s", c->signal);
    if (meaning[0])
        n += snprintf(text + n, sizeof(text) - (size_t)n, ": %s", meaning);
    if (c->has_address)
        n += snprintf(text + n, sizeof(text) - (size_t)n, " (0x%llx)",
                      (unsigned long long)c->address);
    if (c->sender != 0 && c->sender != c->pid)
        n += snprintf(text + n, sizeof(text) - (size_t)n, " by process %d", c->sender);
    if (f && f->python)
        n += snprintf(text + n, sizeof(text) - (size_t)n, ", in %.100s (%.200s:%d)", f->func,
                      f->file, f->line);
    else if (f)
        n += snprintf(text + n, sizeof(text) - (size_t)n, ", in %.100s+0x%llx (%.100s)", f->func,
                      (unsigned long long)f->function_offset, file_name(f->module));
    if (c->plugin[0])
        n += snprintf(text + n, sizeof(text) - (size_t)n, "; plugin %.100s: %.200s", c->plugin,
                      c->function);
    if (n >= (int)sizeof(text))
        n = sizeof(text) - 1;
    c->message = arena_text(&r->arena, text, (size_t)n);
}

static void end_report(struct reading *r)
{
    if (r->n == 0)
        return;
    struct crash_report *c = &r->list[r->n - 1];
    end_thread(r);
    if (r->dead)
        dead_unwind(r->dead, &r->arena, r->threads, r->n_threads);
    dead_free(r->dead);
    r->dead = NULL;
    if (r->n_names)
        qsort(r->names, r->n_names, sizeof(*r->names), by_address);
    for (uint32_t i = 0; i < r->n_threads; i++)
        merge_frames(r, &r->threads[i]);
    c->threads = arena_zalloc(&r->arena, r->n_threads + 1u, sizeof(*c->threads));
    if (c->threads)
        memcpy(c->threads, r->threads, r->n_threads * sizeof(*c->threads));
    c->n_threads = c->threads ? r->n_threads : 0;
    c->thread_name = c->n_threads ? c->threads[0].name : "";
    const char *signal = crash_signal_name(c->signo), *meaning = "";
    const char *code = crash_code_name(c->signo, c->code, &meaning);
    char number[24];
    (void)snprintf(number, sizeof(number), "%d", signal ? c->code : c->signo);
    c->signal = signal ? signal : arena_text(&r->arena, number, strlen(number));
    c->code_name = code ? code : arena_text(&r->arena, number, strlen(number));
    c->meaning = meaning;
    write_message(r, c);
    if (!c->whole)
        c->note = "the report is incomplete: the process ended before it was written";
    r->n_threads = r->n_names = 0;
    r->sp = 0;
    r->has_origin = false;
}

static void begin_report(struct reading *r)
{
    end_report(r);
    if (r->n == REPORTS_MAX)
        return;
    struct crash_report *c = &r->list[r->n++];
    r->python_of = 0;
    *c = (struct crash_report){
        .signal = "", .plugin = "", .function = "", .registers = "", .note = ""};
    c->number = r->n; /* as they stand: several lives may have written to one file */
}

static void note_text(struct reading *r, const char *text)
{
    if (r->n_threads)
        r->threads[r->n_threads - 1].note = text;
}

/* The thread that crashed first is the first in a report. */
static void read_inside(struct reading *r, char *at)
{
    static const struct {
        const char *function, *words;
    } kinds[] = {{"scan", "scan() of table "},      {"command", "command "},
                 {"handler", "handler of topic "},  {"configure", "configure() of setting "},
                 {"extension", "extension() "},     {"constructor", "a constructor of its file"},
                 {"thread", "a thread of its own"}, {"code", "its code"}};
    struct crash_report *c = &r->list[r->n - 1];
    char text[300];
    if (r->n_threads != 1)
        return;
    c->plugin = take_word(&at);
    const char *function = take_word(&at), *words = NULL;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].function, function) == 0)
            words = kinds[i].words;
    int n = words ? snprintf(text, sizeof(text), "%s%.200s", words, at)
                  : snprintf(text, sizeof(text), "%.200s()", function);
    c->function = arena_text(&r->arena, text, (size_t)n);
}

/* Lines of a thread, and of what could not be unwound. */
static void read_detail(struct reading *r, const char *word, char *at)
{
    if (strcmp(word, "frame") == 0)
        read_frame(r, at);
    else if (strcmp(word, "inside") == 0)
        read_inside(r, at);
    else if (strcmp(word, "python") == 0)
        read_python(r, at);
    else if (strcmp(word, "name") == 0)
        read_name(r, at);
    else if (strcmp(word, "lost") == 0)
        note_text(r, "outer frames are missing: there is no unwind information");
    else if (strcmp(word, "limit") == 0)
        note_text(r, "there are more frames than are read");
    else if (strcmp(word, "unseen") == 0)
        note_text(r, "the thread did not answer");
    else if (r->unwind &&
             (strcmp(word, "at") == 0 || strcmp(word, "memory") == 0 || strcmp(word, "map") == 0))
        r->no_memory = dead_line(&r->dead, word, at, r->n_threads) < 0 || r->no_memory;
}

static void read_line(struct reading *r, char *line)
{
    char *at = line;
    const char *word = take_word(&at);
    struct crash_report *c = r->n ? &r->list[r->n - 1] : NULL;
    if (strcmp(word, "crash") == 0) {
        begin_report(r);
    } else if (!c) {
        return;
    } else if (strcmp(word, "time") == 0) {
        c->utc_ns = (int64_t)take_number(&at);
    } else if (strcmp(word, "process") == 0) {
        c->pid = (int32_t)take_number(&at);
    } else if (strcmp(word, "fault") == 0) {
        read_fault(c, at);
    } else if (strcmp(word, "origin") == 0 && !r->has_origin && c->code == SI_TKILL) {
        r->has_origin = true; /* it was only raised again by a handler of the program's */
        read_fault(c, at);
    } else if (strcmp(word, "registers") == 0) {
        read_registers(r, c, at);
    } else if (strcmp(word, "thread") == 0 && r->n_threads < THREADS_MAX) {
        end_thread(r);
        read_thread(r, at);
    } else if (strcmp(word, "pythons") == 0) {
        end_thread(r);
        r->python_of = (int32_t)take_number(&at);
    } else if (strcmp(word, "end") == 0) {
        (void)take_number(&at);
        c->whole = true;
        c->note = at + strspn(at, " ");
    } else if (strcmp(word, "survived") == 0) {
        c->survived = true;
    } else {
        read_detail(r, word, at);
    }
}

/* A line without its end was being written when the process died. */
static void read_lines(struct reading *r)
{
    if (buf_addc(&r->text, '\0') != 0)
        return;
    for (char *line = r->text.data, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        read_line(r, line);
    }
    end_report(r);
}

static int read_reports(const struct datadir *d, bool unwind, struct crash_reports *ret)
{
    *ret = (struct crash_reports){.n = 0};
    if (!datadir_has(d, "crash", NULL))
        return 0;
    struct reading *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(-ENOMEM, "no memory to read %s/crash", d->path);
    r->unwind = unwind;
    arena_init(&r->arena, MEMORY_MAX_BYTES);
    buf_init(&r->text, FILE_MAX_BYTES);
    int rc = datadir_read(d, "crash", &r->text);
    if (rc == 0)
        read_lines(r);
    free(r->names);
    if (rc == 0 && r->no_memory)
        rc = err_set(-ENOMEM, "no memory to read %s/crash", d->path);
    *ret = (struct crash_reports){.list = r->list, .n = r->n, .memory = r};
    if (rc < 0)
        crash_reports_done(ret);
    return rc;
}

int crash_read(const struct datadir *d, struct crash_reports *ret)
{
    return read_reports(d, /* unwind= */ true, ret);
}

int crash_read_signals(const struct datadir *d, struct crash_reports *ret)
{
    return read_reports(d, /* unwind= */ false, ret);
}

void crash_reports_done(struct crash_reports *c)
{
    struct reading *r = c->memory;
    if (r) {
        arena_done(&r->arena);
        buf_done(&r->text);
        free(r);
    }
    *c = (struct crash_reports){.n = 0};
}
