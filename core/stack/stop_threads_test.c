/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/stop_threads_test.c - threads that stand still together, stacks that are lent, a view
 * that takes no memory, and one of a process that is gone.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/stack/stack.h"
#include "tests/fail_alloc.h"
#include "tests/test.h"

#define THREADS 8
#define LONG_NS UINT64_C(20000000000)
#define POOL_BYTES ((size_t)16 << 20)
#define ALT_STACK_BYTES ((size_t)64 << 10)

static _Atomic bool stop;
static _Atomic uint64_t turns[THREADS];
static _Atomic pid_t tids[THREADS];
static int pipe_ends[2];
static _Atomic bool masked;

__attribute__((noinline)) static void gather_spin(int i)
{
    while (!atomic_load(&stop))
        atomic_fetch_add(&turns[i], 1);
}

static void *spinner(void *arg)
{
    int i = (int)(intptr_t)arg;
    atomic_store(&tids[i], (pid_t)syscall(SYS_gettid));
    gather_spin(i);
    return NULL;
}

/* As a thread in one of our handlers does, it blocks all signals for a moment. */
static void *masker(void *arg)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    CHECK_INT(pthread_sigmask(SIG_SETMASK, &all, &before), 0);
    atomic_store(&tids[0], (pid_t)syscall(SYS_gettid));
    while (atomic_load(&masked))
        atomic_fetch_add(&turns[0], 1);
    CHECK_INT(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    gather_spin(0);
    return arg;
}

static void *reader(void *arg)
{
    int i = (int)(intptr_t)arg;
    char c;
    atomic_store(&tids[i], (pid_t)syscall(SYS_gettid));
    while (read(pipe_ends[0], &c, 1) == -1 && errno == EINTR)
        atomic_fetch_add(&turns[i], 1);
    return NULL;
}

/* The last of them waits in read(2), the others spin. */
static void start(pthread_t threads[THREADS])
{
    atomic_store(&stop, false);
    CHECK_INT(pipe(pipe_ends), 0);
    for (int i = 0; i < THREADS; i++) {
        atomic_store(&tids[i], 0);
        atomic_store(&turns[i], 0);
        CHECK_INT(pthread_create(&threads[i], NULL, i == THREADS - 1 ? reader : spinner,
                                 (void *)(intptr_t)i),
                  0);
    }
    for (int i = 0; i < THREADS; i++)
        while (!atomic_load(&tids[i]))
            (void)sched_yield();
}

static void finish(pthread_t threads[THREADS])
{
    atomic_store(&stop, true);
    CHECK_INT(write(pipe_ends[1], "x", 1), 1);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
}

static bool has_frame(struct stack_process *p, const struct stack_registers *r, const char *name)
{
    struct stack_frame frames[STACK_FRAMES_MAX];
    struct stack_symbol symbol;
    enum stack_end end;
    int n = stack_unwind(p, r, frames, STACK_FRAMES_MAX, &end);
    for (int i = 0; i < n; i++)
        if (stack_symbol(p, frames[i].ip - (i > 0), &symbol) == 0 && strcmp(symbol.name, name) == 0)
            return true;
    return false;
}

TEST(gathers_all_and_lets_them_go)
{
    pthread_t threads[THREADS];
    struct stack_process *p;
    start(threads);
    CHECK_INT(stack_gather_prepare(), 0);
    CHECK_INT(stack_process_open_pool(POOL_BYTES, &p), 0);
    for (int round = 0; round < 20; round++) {
        uint64_t before[THREADS];
        /* A thread that has just been let go may not have left the handler yet. */
        stack_gather_begin((const pid_t *)(const void *)tids, THREADS);
        stack_gather_wait(LONG_NS);
        for (int i = 0; i < THREADS; i++)
            before[i] = atomic_load(&turns[i]);
        CHECK_INT(stack_process_renew(p), 0);
        for (int i = 0; i < THREADS; i++) {
            struct stack_registers r = {.known = 0};
            int64_t call;
            CHECK(stack_gather_registers(tids[i], &r, &call));
            CHECK(r.known >> STACK_REG_FP & 1); /* all of them: it stands in the handler */
            CHECK(has_frame(p, &r, i == THREADS - 1 ? "reader" : "gather_spin"));
        }
        for (int i = 0; i < THREADS; i++)
            CHECK_INT(atomic_load(&turns[i]), before[i]);
        stack_gather_end();
        for (int i = 0; i < THREADS - 1; i++)
            while (atomic_load(&turns[i]) == before[i])
                (void)sched_yield();
    }
    CHECK_INT(atomic_load(&turns[THREADS - 1]), 0); /* read(2) never said EINTR */
    stack_process_free(p);
    finish(threads);
    stack_capture_off();
}

TEST(waits_for_who_takes_no_signal_for_a_moment)
{
    pthread_t thread;
    struct stack_registers r = {.known = 0};
    int64_t call;
    atomic_store(&stop, false);
    atomic_store(&masked, true);
    atomic_store(&tids[0], 0);
    CHECK_INT(pthread_create(&thread, NULL, masker, NULL), 0);
    while (!atomic_load(&tids[0]))
        (void)sched_yield();
    CHECK_INT(stack_gather_prepare(), 0);
    pid_t tid = atomic_load(&tids[0]);
    stack_gather_begin(&tid, 1);
    stack_gather_wait(NS_PER_S / 100); /* it still takes none */
    CHECK(!stack_gather_registers(tid, &r, &call));
    atomic_store(&masked, false);
    stack_gather_wait(LONG_NS);
    CHECK(stack_gather_registers(tid, &r, &call));
    stack_gather_end();
    atomic_store(&stop, true);
    CHECK_INT(pthread_join(thread, NULL), 0);
    stack_capture_off();
}

TEST(a_pool_needs_no_malloc)
{
    struct stack_process *p;
    struct stack_registers r = {.known = 0};
    ucontext_t here;
    CHECK_INT(stack_process_open_pool(POOL_BYTES, &p), 0);
    CHECK_INT(getcontext(&here), 0);
    stack_registers_of(&here, &r);
    CHECK(has_frame(p, &r, "main"));
    fail_alloc_at(1); /* from now on every allocation fails */
    bool found = stack_process_renew(p) == 0 && has_frame(p, &r, "main");
    CHECK(!fail_alloc_happened());
    fail_alloc_at(0);
    CHECK(found);
    stack_process_free(p);
}

/* ---- lending ---- */

/* The signal stack of each thread, as it sees it again and again. */
static _Atomic(void *) seen_at[THREADS];
static _Atomic int seen_flags[THREADS];

static void *look(void *arg)
{
    int i = (int)(intptr_t)arg;
    atomic_store(&tids[i], (pid_t)syscall(SYS_gettid));
    while (!atomic_load(&stop)) {
        stack_t now;
        (void)sigaltstack(NULL, &now);
        atomic_store(&seen_at[i], now.ss_sp);
        atomic_store(&seen_flags[i], now.ss_flags);
    }
    return NULL;
}

/* Sanitizers give each thread a stack: this one shall have none. */
static void *looker(void *arg)
{
    const stack_t none = {.ss_flags = SS_DISABLE};
    (void)sigaltstack(&none, NULL);
    return look(arg);
}

static void *owner(void *arg)
{
    stack_t own = {.ss_sp = malloc(ALT_STACK_BYTES), .ss_size = ALT_STACK_BYTES};
    (void)sigaltstack(&own, NULL);
    (void)look(arg);
    own.ss_flags = SS_DISABLE;
    (void)sigaltstack(&own, NULL);
    free(own.ss_sp);
    return NULL;
}

/* A thread that has just left the handler may be asked again a moment later. */
static int lend(pid_t tid, void *memory, bool take_back)
{
    int rc;
    while ((rc = altstack_give(tid, memory, ALT_STACK_BYTES, take_back, LONG_NS)) == -EAGAIN)
        (void)sched_yield();
    return rc;
}

TEST(lends_a_stack_to_who_has_none_and_takes_it_back)
{
    pthread_t threads[2];
    static char memory[ALT_STACK_BYTES];
    atomic_store(&stop, false);
    CHECK_INT(stack_gather_prepare(), 0);
    for (int i = 0; i < 2; i++) {
        atomic_store(&tids[i], 0);
        CHECK_INT(pthread_create(&threads[i], NULL, i ? owner : looker, (void *)(intptr_t)i), 0);
        while (!atomic_load(&tids[i]))
            (void)sched_yield();
    }
    while (!atomic_load(&seen_at[1]))
        (void)sched_yield();
    int rc = lend(tids[0], memory, /* take_back= */ false);
    CHECK_INT(rc, 1);
    while (atomic_load(&seen_at[0]) != memory)
        (void)sched_yield();
    CHECK_INT(lend(tids[0], memory, /* take_back= */ false), 0);
    CHECK_INT(lend(tids[1], memory, /* take_back= */ false), 0);
    CHECK_INT(lend(tids[1], memory, /* take_back= */ true), 0);
    CHECK(atomic_load(&seen_at[1]) != memory);
    CHECK_INT(lend(tids[0], memory, /* take_back= */ true), 1);
    while (!(atomic_load(&seen_flags[0]) & SS_DISABLE))
        (void)sched_yield();
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    stack_capture_off();
}

static void *pauser(void *arg)
{
    const stack_t none = {.ss_flags = SS_DISABLE};
    (void)sigaltstack(&none, NULL);
    atomic_store((_Atomic pid_t *)arg, (pid_t)syscall(SYS_gettid));
    while (!atomic_load(&stop))
        (void)pause();
    atomic_store((_Atomic pid_t *)arg, 0);
    return NULL;
}

static void wake_up(int number)
{
    (void)number;
}

/* The handler that gives a stack back runs on that stack, so it may go only afterwards. */
TEST(what_was_taken_back_can_be_unmapped)
{
    pthread_t thread;
    int done = 0;
    atomic_store(&stop, false);
    atomic_store(&tids[0], 0);
    CHECK_INT(stack_gather_prepare(), 0);
    CHECK_INT(pthread_create(&thread, NULL, pauser, &tids[0]), 0);
    while (!atomic_load(&tids[0]))
        (void)sched_yield();
    for (int i = 0; i < 300; i++) {
        void *memory =
            mmap(NULL, ALT_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        done += lend(tids[0], memory, /* take_back= */ false) == 1 &&
                lend(tids[0], memory, /* take_back= */ true) == 1;
        (void)munmap(memory, ALT_STACK_BYTES);
    }
    CHECK_INT(done, 300);
    atomic_store(&stop, true);
    const struct sigaction ends_pause = {.sa_handler = wake_up};
    (void)sigaction(SIGUSR1, &ends_pause, NULL);
    while (atomic_load(&tids[0])) {
        (void)pthread_kill(thread, SIGUSR1);
        (void)sched_yield();
    }
    CHECK_INT(pthread_join(thread, NULL), 0);
    stack_capture_off();
}

/* ---- the dead ---- */

TEST(unwinds_from_a_copy_and_files)
{
    static unsigned char copy[16384];
    struct stack_registers r = {.known = 0};
    struct stack_process *p;
    ucontext_t here;
    size_t size = 0, room = (size_t)1 << 20;
    char *maps = malloc(room);
    CHECK_INT(getcontext(&here), 0);
    stack_registers_of(&here, &r);
    struct stack_piece piece = {.address = r.value[STACK_REG_SP] & ~UINT64_C(4095),
                                .bytes = copy}; /* whole pages */
    CHECK_INT(stack_process_open(getpid(), &p), 0);
    piece.size = stack_read_some(p, piece.address, copy, sizeof(copy));
    stack_process_free(p);
    FILE *f = fopen("/proc/self/maps", "re");
    size = fread(maps, 1, room - 1, f);
    (void)fclose(f);
    maps[size] = '\0';
    CHECK_INT(stack_process_open_dead(maps, size, &piece, 1, &p), 0);
    CHECK(has_frame(p, &r, "main"));
    stack_process_free(p);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return test_skip("the thread sanitizer holds signals back until a thread waits");
#endif
    RUN(gathers_all_and_lets_them_go);
    RUN(waits_for_who_takes_no_signal_for_a_moment);
    RUN(a_pool_needs_no_malloc);
    RUN(lends_a_stack_to_who_has_none_and_takes_it_back);
    RUN(what_was_taken_back_can_be_unmapped);
    RUN(unwinds_from_a_copy_and_files);
    return test_end();
}
