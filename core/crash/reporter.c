/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/reporter.c - the thread "probing/crash": makes reports, and between them sees that the
 * handlers are where they were and that threads have a stack to crash on.
 * After a fault it uses system calls, memory of its own and core/stack in a pool: the threads it
 * looks at stand still anywhere, with any lock.
 */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <probing/ext/draft/python_frames.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/rights.h"
#include "core/crash/internal.h"
#include "core/guest/thread.h"
#include "core/stack/stack.h"
#include "sdk/lib/hash.h"

#define POOL_BYTES ((size_t)32 << 20) /* address space; 1,000 modules and 4 MiB of pages use 8 */
#define TICK_NS NS_PER_S
#define EARLY_NS (NS_PER_S / 10)
#define EARLY_TICKS 20
#define PYTHON_FRAMES 256u       /* of a thread */
#define PYTHON_BYTES (64u << 10) /* what names them, until it is read again */
#define READY_NS NS_PER_S        /* for the thread to begin; without it the handler helps itself */
#define GATHER_NS (NS_PER_S / 5) /* for all threads to stand still */
#define THREAD_FRAMES 4u         /* its function, and libc's around it */
#define NAMES_SLOTS 32768u       /* distinct addresses, at most half full */

struct reporter {
    bool told[CRASH_FAULTS]; /* whose stack this report has */
    struct crash *crash;
    struct stack_process *self;
    struct altstack_pool *loans;
    pthread_t thread;
    _Atomic bool stop, wants_loans;
    _Atomic uint32_t ready; /* futex word */
    uint64_t deadline;
    struct lines lines;
    pid_t tids[STACK_GATHER_MAX];
    uint32_t n_tids;
    bool more_tids;
    struct stack_frame frames[STACK_FRAMES_MAX];
    const struct probing_python_frames_1 *python; /* NULL: no Python, or no plugin for it */
    void *python_scratch;
    uint32_t python_scratch_bytes;
    struct probing_python_frame python_frames[PYTHON_FRAMES];
    uint8_t python_bytes[PYTHON_BYTES];
    uint32_t n_names;
    uint64_t names[NAMES_SLOTS]; /* addresses to be named: a hash set */
};

/* ---- one thread's stack ---- */

static void want_name(struct reporter *r, uint64_t address)
{
    uint32_t at = (uint32_t)(hash_spread(address) >> 49);
    while (r->names[at] && r->names[at] != address)
        at = (at + 1) % NAMES_SLOTS;
    if (r->names[at] || r->n_names == NAMES_SLOTS / 2)
        return;
    r->names[at] = address;
    r->n_names++;
}

/* Is this the kernel's way back from a signal handler: rt_sigreturn? */
static bool is_way_back(struct reporter *r, uint64_t ip)
{
#if defined(__x86_64__)
    static const unsigned char code[] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 5};
#elif defined(__aarch64__)
    static const unsigned char code[] = {0x68, 0x11, 0x80, 0xd2, 1, 0, 0, 0xd4};
#endif
    unsigned char there[sizeof(code)];
    return stack_read_cached(r->self, ip, there, sizeof(there)) == 0 &&
           memcmp(there, code, sizeof(code)) == 0;
}

/* A handler that did not ask for a siginfo was given none, but the processor's own words of the
 * fault are in its context. */
static bool fault_of_context(struct reporter *r, uint64_t at, siginfo_t *ret)
{
    int signo = crash_state.faults[0].signo;
    *ret = (siginfo_t){.si_signo = signo};
#if defined(__x86_64__)
    greg_t g[REG_CR2 + 1];
    if (stack_read(r->self, at + offsetof(ucontext_t, uc_mcontext.gregs), g, sizeof(g)) < 0)
        return false;
    bool divides = signo == SIGFPE && g[REG_TRAPNO] == 0;
    ret->si_code = divides           ? FPE_INTDIV
                   : signo == SIGBUS ? BUS_ADRERR
                   : g[REG_ERR] & 1  ? SEGV_ACCERR
                                     : SEGV_MAPERR;
    ret->si_addr = (void *)(uintptr_t)g[divides ? REG_RIP : REG_CR2];
    return divides || (g[REG_TRAPNO] == 14 && (signo == SIGSEGV || signo == SIGBUS));
#else
    (void)r;
    (void)at;
    return false;
#endif
}

/* Write the fault before a raise(), as the handler of this frame was told of it. */
static void write_origin(struct reporter *r, pid_t tid, const struct stack_frame *way_back)
{
    siginfo_t info = {.si_signo = 0};
#if defined(__x86_64__)
    uint64_t context = way_back->sp, at = context + 304; /* struct rt_sigframe, kernel's ucontext */
#elif defined(__aarch64__)
    uint64_t at = way_back->sp, context = at + 128;
#endif
    if ((stack_read(r->self, at, &info, sizeof(info)) == 0 && crash_signal_name(info.si_signo)) ||
        fault_of_context(r, context, &info))
        write_fault(&r->lines, "origin", tid, &info);
}

/* A call through a wild pointer: the caller is where the call put its return address. */
static bool step_out_of_nowhere(struct reporter *r, struct stack_registers *registers)
{
    uint64_t back = 0;
    if (stack_is_code(r->self, registers->value[STACK_REG_IP]))
        return false;
#if defined(__x86_64__)
    if (stack_read(r->self, registers->value[STACK_REG_SP], &back, sizeof(back)) < 0)
        return false;
    registers->value[STACK_REG_SP] += sizeof(back);
#elif defined(__aarch64__)
    back = registers->value[30];
#endif
    if (!stack_is_code(r->self, back))
        return false;
    registers->value[STACK_REG_IP] = back;
    return true;
}

static uint32_t unwind_stack(struct reporter *r, const struct stack_registers *from,
                             enum stack_end *ret_end, bool *ret_nowhere)
{
    struct stack_registers registers = *from;
    uint32_t before = 0;
    *ret_end = STACK_END_LOST;
    *ret_nowhere = step_out_of_nowhere(r, &registers);
    if (*ret_nowhere)
        r->frames[before++] =
            (struct stack_frame){from->value[STACK_REG_IP], from->value[STACK_REG_SP]};
    int n =
        stack_unwind(r->self, &registers, r->frames + before, STACK_FRAMES_MAX - before, ret_end);
    return before + (n > 0 ? (uint32_t)n : 0);
}

static void write_frame(struct reporter *r, uint64_t ip, bool is_return)
{
    const struct stack_module *m = stack_module_at(r->self, ip);
    uint64_t address = ip - is_return; /* a return address may be the first after its function */
    lines_text(&r->lines, "frame");
    lines_hex(&r->lines, ip);
    lines_hex(&r->lines, m ? address - m->bias : 0);
    lines_hex(&r->lines, address);
    lines_text(&r->lines, " ");
    lines_clean(&r->lines, m ? m->path : "");
    lines_text(&r->lines, "\n");
    want_name(r, address);
}

static const struct crash_fault *fault_of(pid_t tid)
{
    for (int i = 0; i < CRASH_FAULTS; i++)
        if (atomic_load_explicit(&crash_state.faults[i].tid, memory_order_acquire) == tid)
            return &crash_state.faults[i];
    return NULL;
}

/* The plugin whose file frame i is in; NULL: none. */
static const char *plugin_of_frame(struct reporter *r, uint32_t i)
{
    const struct crash_options *o = &r->crash->options;
    const struct stack_module *m = stack_module_at(r->self, r->frames[i].ip - (i > 0));
    return m && o->plugin_at ? o->plugin_at(o->arg, m->bias) : NULL;
}

/* Which plugin did the thread that crashed run?  The core has marked it where it made the call.
 * Else it is a thread that the plugin has started, or, as in a hook, the program ran into it. */
static void write_owner(struct reporter *r, const struct crash_fault *f, uint32_t n,
                        enum stack_end end)
{
    if (write_call(&r->lines, f))
        return;
    bool thread = end == STACK_END_OUTERMOST && f->tid != getpid();
    const char *plugin = NULL;
    for (uint32_t i = n > THREAD_FRAMES ? n - THREAD_FRAMES : 0; i < n && thread && !plugin; i++)
        plugin = plugin_of_frame(r, i);
    thread = plugin != NULL;
    if (!plugin && n > 0)
        plugin = plugin_of_frame(r, 0);
    if (plugin)
        write_inside(&r->lines, plugin, thread ? "thread" : "code", "");
}

static void write_native(struct reporter *r, pid_t tid, const struct stack_registers *registers,
                         bool crashed)
{
    const struct crash_fault *fault = crashed ? fault_of(tid) : NULL;
    enum stack_end end;
    bool nowhere, interrupted = true; /* the first ip is where it stands, not where it returns to */
    uint32_t n = unwind_stack(r, registers, &end, &nowhere);
    bool has_origin = false;
    for (uint32_t i = 0; i < n; i++) {
        write_frame(r, r->frames[i].ip, !interrupted);
        interrupted = is_way_back(r, r->frames[i].ip);
        if (interrupted && crashed && !has_origin)
            write_origin(r, tid, &r->frames[i]);
        has_origin = has_origin || interrupted;
    }
    if (end == STACK_END_LOST)
        lines_text(&r->lines, "lost\n");
    if (end == STACK_END_LIMIT)
        lines_text(&r->lines, "limit\n");
    if (fault)
        write_owner(r, fault, n, end);
}

static void write_thread(struct reporter *r, pid_t tid, const char *comm, const char *state,
                         const struct stack_registers *registers)
{
    lines_text(&r->lines, "thread");
    lines_number(&r->lines, tid);
    lines_text(&r->lines, " ");
    lines_text(&r->lines, state);
    lines_text(&r->lines, " ");
    lines_clean(&r->lines, comm);
    lines_text(&r->lines, "\n");
    if (registers)
        write_native(r, tid, registers, state[0] == 'c');
    else
        lines_text(&r->lines, "unseen\n");
    if (!atomic_load_explicit(&crash_state.given_up, memory_order_acquire))
        lines_flush(&r->lines);
    r->lines.n = 0;
}

/* ---- a report ---- */

static bool time_is_over(const struct reporter *r)
{
    return crash_now() >= r->deadline ||
           atomic_load_explicit(&crash_state.given_up, memory_order_acquire);
}

/* Called again after all others: a thread may crash while they are looked at. */
static void write_crashed(struct reporter *r)
{
    for (int i = 0; i < CRASH_FAULTS; i++) {
        const struct crash_fault *f = &crash_state.faults[i];
        struct stack_registers registers = {.known = 0};
        char comm[16];
        int32_t tid = atomic_load_explicit(&f->tid, memory_order_acquire);
        if (tid == 0 || r->told[i])
            continue;
        r->told[i] = true;
        stack_registers_of(f->context, &registers);
        task_comm(tid, comm);
        write_thread(r, tid, comm, "crashed", &registers);
    }
}

/* Gives how many could not be looked at for want of time. */
static uint32_t write_others(struct reporter *r)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < r->n_tids; i++) {
        struct stack_registers registers;
        int64_t call;
        char comm[16];
        task_comm(r->tids[i], comm);
        if (fault_of(r->tids[i]) || task_is_ours(comm))
            continue;
        if (time_is_over(r)) {
            left++;
            continue;
        }
        bool seen = stack_gather_registers(r->tids[i], &registers, &call);
        write_thread(r, r->tids[i], comm, call >= 0 ? "waiting" : "running",
                     seen ? &registers : NULL);
    }
    return left;
}

/* false: not all, for want of time. */
static bool write_names(struct reporter *r)
{
    struct stack_symbol symbol;
    for (uint32_t i = 0; i < NAMES_SLOTS; i++) {
        if (!r->names[i])
            continue;
        if (time_is_over(r))
            return false;
        if (stack_symbol(r->self, r->names[i], &symbol) < 0)
            continue;
        lines_text(&r->lines, "name");
        lines_hex(&r->lines, r->names[i]);
        lines_hex(&r->lines, symbol.offset);
        lines_text(&r->lines, " ");
        lines_clean(&r->lines, symbol.name);
        lines_text(&r->lines, "\n");
    }
    return true;
}

/* ---- Python's frames: after all else, because the plugin that names them takes memory, and a
 * thread that stands still may hold malloc's lock for ever ---- */

static void write_python_frame(struct reporter *r, const struct probing_python_look *look,
                               uint32_t i)
{
    const struct probing_python_frame *f = &look->frames[i];
    struct probing_python_text text = {.size = sizeof(text)};
    bool shim = f->flags & PROBING_PYTHON_SHIM;
    if (!shim)
        (void)r->python->name(look, i, &text);
    lines_text(&r->lines, "python");
    lines_number(&r->lines, text.line);
    lines_number(&r->lines, shim || (f->flags & PROBING_PYTHON_ENTRY));
    lines_text(&r->lines, " ");
    lines_clean(&r->lines, text.file);
    lines_text(&r->lines, "\t");
    lines_clean(&r->lines, shim ? "" : text.func[0] ? text.func : "?");
    lines_text(&r->lines, "\n");
}

static void write_python(struct reporter *r, pid_t tid)
{
    struct probing_python_look look = {.size = sizeof(look),
                                       .max_frames = PYTHON_FRAMES,
                                       .max_bytes = PYTHON_BYTES,
                                       .frames = r->python_frames,
                                       .bytes = r->python_bytes,
                                       .scratch = r->python_scratch};
    if (time_is_over(r) || r->python->of(tid, &look) < 0 || look.n_frames == 0)
        return;
    lines_text(&r->lines, "pythons");
    lines_number(&r->lines, tid);
    lines_text(&r->lines, "\n");
    for (uint32_t i = 0; i < look.n_frames; i++)
        write_python_frame(r, &look, i);
    if (!time_is_over(r))
        lines_flush(&r->lines);
    r->lines.n = 0;
}

static void write_pythons(struct reporter *r)
{
    if (!r->python || !r->python_scratch)
        return;
    for (int i = 0; i < CRASH_FAULTS; i++) {
        int32_t tid = atomic_load_explicit(&crash_state.faults[i].tid, memory_order_acquire);
        if (tid != 0)
            write_python(r, tid);
    }
    for (uint32_t i = 0; i < r->n_tids; i++)
        if (!fault_of(r->tids[i]))
            write_python(r, r->tids[i]);
}

static void find_python(struct reporter *r)
{
    const struct crash_options *o = &r->crash->options;
    const struct probing_python_frames_1 *part =
        o->extension ? o->extension(o->arg, PROBING_PYTHON_FRAMES_1) : NULL;
    if (part && part->scratch_bytes > 0 && !r->python_scratch) {
        void *memory = mmap(NULL, part->scratch_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        r->python_scratch = memory == MAP_FAILED ? NULL : memory;
        r->python_scratch_bytes = part->scratch_bytes;
    }
    r->python = part && part->scratch_bytes <= r->python_scratch_bytes ? part : NULL;
}

/* Is a thread that was told SIGABRT inside abort()? */
static bool is_in_abort(struct reporter *r)
{
    struct stack_registers registers = {.known = 0};
    struct stack_symbol symbol;
    enum stack_end end;
    bool nowhere;
    stack_registers_of(crash_state.faults[0].context, &registers);
    uint32_t n = unwind_stack(r, &registers, &end, &nowhere);
    for (uint32_t i = 1; i < n; i++)
        if (stack_symbol(r->self, r->frames[i].ip - 1, &symbol) == 0 &&
            strcmp(symbol.name, "abort") == 0)
            return true;
    return false;
}

/* All threads stand but ours and those that crashed, which wait for us anyway. */
static void gather_threads(struct reporter *r)
{
    uint32_t n = 0;
    r->n_tids = task_list(r->tids, STACK_GATHER_MAX, &r->more_tids);
    for (uint32_t i = 0; i < r->n_tids; i++) {
        char comm[16];
        task_comm(r->tids[i], comm);
        if (!task_is_ours(comm) || fault_of(r->tids[i]))
            r->tids[n++] = r->tids[i];
    }
    r->n_tids = n;
    n = 0;
    for (uint32_t i = 0; i < r->n_tids; i++) { /* those that crashed come last */
        pid_t tid = r->tids[i];
        if (!fault_of(tid)) {
            r->tids[i] = r->tids[n];
            r->tids[n++] = tid;
        }
    }
    stack_gather_begin(r->tids, n);
}

/* false: none was due. */
static bool make_report(struct reporter *r)
{
    uint64_t begin = crash_now();
    r->deadline = begin + CRASH_WAIT_NS;
    r->n_names = 0;
    memset(r->names, 0, sizeof(r->names));
    memset(r->told, 0, sizeof(r->told));
    bool only_abort = atomic_load_explicit(&crash_state.only_abort, memory_order_relaxed);
    if (only_abort && (stack_process_renew(r->self) < 0 || !is_in_abort(r)))
        return false;
    rights_keep();
    crash_open(&r->lines);
    write_head(&r->lines);
    gather_threads(r);
    bool readable = stack_process_renew(r->self) == 0;
    if (readable)
        write_crashed(r);
    stack_gather_wait(GATHER_NS);
    uint32_t left = readable ? write_others(r) : r->n_tids;
    if (readable)
        write_crashed(r);
    bool named = write_names(r);
    if (!atomic_load_explicit(&crash_state.given_up, memory_order_acquire))
        write_end(&r->lines, crash_now() - begin,
                  !readable      ? "the memory map could not be read"
                  : left > 0     ? "there was no time for all threads"
                  : !named       ? "there was no time for all names"
                  : r->more_tids ? "there are more threads than are inspected"
                                 : "");
    atomic_store_explicit(&crash_state.written, true, memory_order_release);
    write_pythons(r);
    crash_close(&r->lines);
    return true;
}

/* ---- between reports ---- */

/* Still here a second later: then it was no crash after all. */
static void note_survival(struct reporter *r)
{
    crash_open(&r->lines);
    lines_text(&r->lines, "survived\n");
    lines_flush(&r->lines);
    crash_close(&r->lines);
}

/* Faults are let through in this thread, so that one of its own does not end the process without a
 * word. */
static void let_faults_through(void)
{
    sigset_t faults;
    (void)sigemptyset(&faults);
    (void)sigaddset(&faults, SIGSEGV);
    (void)sigaddset(&faults, SIGBUS);
    (void)sigaddset(&faults, SIGFPE);
    (void)sigaddset(&faults, SIGILL);
    (void)pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}

/* Do now the work that would otherwise first be done after a fault, and then by malloc. */
static void rehearse_report(struct reporter *r)
{
    struct stack_registers registers = {.known = 0};
    struct stack_symbol symbol;
    enum stack_end end;
    bool nowhere;
    ucontext_t here;
    (void)err_set(-EAGAIN, "rehearsal");
    if (getcontext(&here) == -1 || stack_process_renew(r->self) < 0)
        return;
    stack_registers_of(&here, &registers);
    uint32_t n = unwind_stack(r, &registers, &end, &nowhere);
    for (uint32_t i = 0; i < n; i++)
        (void)stack_symbol(r->self, r->frames[i].ip, &symbol);
}

static void *report_thread(void *arg)
{
    struct reporter *r = arg;
    uint64_t ended = 0;
    uint32_t ticks = 0;
    bool made = false;
    let_faults_through();
    rehearse_report(r);
    find_python(r);
    atomic_store_explicit(&crash_state.reporter, (int32_t)syscall(SYS_gettid),
                          memory_order_release);
    atomic_store_explicit(&r->ready, 1, memory_order_release);
    crash_wake(&r->ready);
    while (!atomic_load_explicit(&r->stop, memory_order_acquire)) {
        uint32_t state = CRASH_ASKED;
        if (atomic_compare_exchange_strong_explicit(&crash_state.request, &state, CRASH_TAKEN,
                                                    memory_order_acq_rel, memory_order_acquire)) {
            made = make_report(r) || made;
            ended = crash_now();
            state = CRASH_TAKEN;
            (void)atomic_compare_exchange_strong_explicit(&crash_state.request, &state, CRASH_DONE,
                                                          memory_order_acq_rel,
                                                          memory_order_relaxed);
            crash_wake(&crash_state.request);
            continue;
        }
        if (made && crash_now() - ended >= TICK_NS) {
            note_survival(r);
            made = false;
        }
        if (!made) {
            crash_maintain(r->crash);
            find_python(r);
            altstack_pool_maintain(r->loans, &r->wants_loans);
        }
        /* Plugins and threads may still be coming. */
        crash_wait(&crash_state.request, state, ticks < EARLY_TICKS ? EARLY_NS : TICK_NS);
        ticks++;
    }
    altstack_pool_end(r->loans);
    atomic_store_explicit(&crash_state.reporter, 0, memory_order_release);
    return NULL;
}

int reporter_start(struct crash *c, struct reporter **ret)
{
    int rc = stack_gather_prepare();
    if (rc < 0)
        return rc;
    struct reporter *r =
        mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED)
        return err_set(-ENOMEM, "no memory for crash reports");
    r->crash = c;
    r->wants_loans = c->lends;
    r->lines.fd = -1;
    rc = stack_process_open_pool(POOL_BYTES, &r->self);
    if (rc == 0)
        rc = altstack_pool_new(&r->loans);
    if (rc == 0)
        rc = thread_start(&r->thread, "probing/crash", 0, report_thread, r);
    if (rc < 0) {
        altstack_pool_free(r->loans);
        stack_process_free(r->self);
        (void)munmap(r, sizeof(*r));
        return rc;
    }
    uint64_t end = crash_now() + READY_NS, now;
    while (!atomic_load_explicit(&r->ready, memory_order_acquire) && (now = crash_now()) < end)
        crash_wait(&r->ready, 0, end - now);
    *ret = r;
    return 0;
}

void reporter_stop(struct reporter *r)
{
    if (!r)
        return;
    atomic_store_explicit(&r->stop, true, memory_order_release);
    crash_wake(&crash_state.request);
    (void)pthread_join(r->thread, NULL);
    altstack_pool_free(r->loans);
    stack_process_free(r->self);
    if (r->python_scratch)
        (void)munmap(r->python_scratch, r->python_scratch_bytes);
    (void)munmap(r, sizeof(*r));
}

void reporter_alt_stack(struct reporter *r, bool on)
{
    atomic_store_explicit(&r->wants_loans, on, memory_order_relaxed);
}

void reporter_alt_stacks(const struct reporter *r, uint32_t ret[ALTSTACK_KINDS])
{
    altstack_pool_count(r->loans, ret);
}
