/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/owned_signals_test.c - a signal taken, sent to threads that run late or never, and
 * given back: the process lives, and has what it had.
 *
 * Each case is a child of its own: what goes wrong here ends the process.
 */
#include "core/guest/owned_signals.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/test.h"

#define KIND 3
#define LATE 20 /* signals sent to a thread that does not run */

static _Atomic int came, foreign, theirs;
static _Atomic pid_t other;
static _Atomic bool stop, blocks, unblock;
static int number;

static bool on_ours(int kind, void *info, void *context) /* [signal] */
{
    (void)info;
    (void)context;
    if (kind == KIND)
        (void)atomic_fetch_add(&came, 1);
    else
        (void)atomic_fetch_add(&foreign, 1);
    return kind == KIND;
}

static void their_handler(int signo, siginfo_t *info, void *context)
{
    (void)signo;
    (void)info;
    (void)context;
    (void)atomic_fetch_add(&theirs, 1);
}

static bool is_default(int signo)
{
    struct sigaction now;
    return sigaction(signo, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
           now.sa_handler == SIG_DFL;
}

static void wait_until(const _Atomic bool *what)
{
    while (!atomic_load(what))
        (void)sched_yield();
}

/* 0, its exit code, or the number of the signal that ended it. */
static int run(void (*body)(void))
{
    int status = 1;
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        number = signals_take_below(SIGRTMAX, on_ours);
        CHECK(number > SIGRTMIN);
        body();
        (void)fflush(stdout);
        _exit(atomic_load_explicit(&test_bad_checks, memory_order_relaxed) ? 1 : 0);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void wait_count(const _Atomic int *what, int n)
{
    while (atomic_load(what) < n)
        (void)sched_yield();
}

static void sent_and_given_back(void)
{
    CHECK(!is_default(number));
    CHECK(signals_is_ours(number));
    CHECK_INT(signals_take(number, on_ours), 0); /* again: it is still there */
    CHECK_INT(signals_send(number, (pid_t)syscall(SYS_gettid), KIND), 0);
    wait_count(&came, 1);
    CHECK_INT(kill(getpid(), number), 0); /* nobody's: it had no handler when we took it */
    wait_count(&foreign, 1);
    CHECK_INT(signals_give(number), 0);
    CHECK(is_default(number));
    int second = signals_take_below(number, on_ours);
    CHECK(second > 0 && second < number);
    CHECK_INT(signals_give(second), 0);
    CHECK_INT(signals_give(second), 0); /* twice */
}

static void *blocker(void *arg)
{
    sigset_t all, none;
    (void)arg;
    (void)sigfillset(&all);
    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &all, NULL);
    atomic_store(&other, (pid_t)syscall(SYS_gettid));
    atomic_store(&blocks, true);
    wait_until(&unblock);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    return NULL;
}

static void pending_in_a_thread_that_blocks(void)
{
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, blocker, NULL), 0);
    wait_until(&blocks);
    CHECK_INT(signals_of_thread(number, other), SIGNALS_BLOCKED);
    for (int i = 0; i < LATE; i++)
        CHECK_INT(signals_send(number, other, KIND), 0);
    CHECK_INT(signals_of_thread(number, other), SIGNALS_BLOCKED | SIGNALS_PENDING);
    CHECK_INT(signals_give(number), 0);
    CHECK(is_default(number));
    CHECK_INT(signals_of_thread(number, other), SIGNALS_BLOCKED);
    atomic_store(&unblock, true);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(came, 0);
}

static int go[2];

static void *in_vfork(void *arg)
{
    char c;
    (void)arg;
    atomic_store(&other, (pid_t)syscall(SYS_gettid));
    pid_t child = vfork();
    if (child == 0) {
        atomic_store(&blocks, true); /* its parent's memory */
        _exit(read(go[0], &c, 1) == 1 ? 7 : 8);
    }
    int status = 0;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(WEXITSTATUS(status), 7);
    return NULL;
}

static void pending_in_vfork(void)
{
    pthread_t thread;
    CHECK_INT(pipe(go), 0);
    CHECK_INT(pthread_create(&thread, NULL, in_vfork, NULL), 0);
    wait_until(&blocks);
    CHECK_INT(signals_send(number, other, KIND), 0);
    CHECK_INT(signals_of_thread(number, other), SIGNALS_PENDING);
    CHECK_INT(signals_give(number), 0);
    CHECK(is_default(number));
    CHECK_INT(write(go[1], "", 1), 1);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(came, 0);
}

static void *waiter(void *arg)
{
    (void)arg;
    atomic_store(&other, (pid_t)syscall(SYS_gettid));
    while (!atomic_load(&stop))
        (void)sched_yield();
    return NULL;
}

/* A debugger: it stops the thread with a signal of ours in hand, and lets that through later. */
static int hold(pid_t tid, int from, int to)
{
    int status;
    char c;
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) == -1)
        return 77;
    if (write(to, "", 1) != 1)
        return 1;
    while (waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status) && status >> 16 != 0)
        (void)ptrace(PTRACE_CONT, tid, NULL, NULL);
    if (write(to, "", 1) != 1 || read(from, &c, 1) != 1)
        return 2;
    (void)ptrace(PTRACE_DETACH, tid, NULL, (void *)(intptr_t)WSTOPSIG(status));
    return 0;
}

static void held_by_a_debugger(void)
{
    pthread_t thread;
    struct buf kept;
    int to[2], from[2], status;
    char c;
    buf_init(&kept, 1000);
    CHECK_INT(pipe(to), 0);
    CHECK_INT(pipe(from), 0);
    CHECK_INT(pthread_create(&thread, NULL, waiter, NULL), 0);
    while (!atomic_load(&other))
        (void)sched_yield();
    pid_t debugger = fork();
    if (debugger == 0)
        _exit(hold(other, to[0], from[1]));
    if (read(from[0], &c, 1) == 1) {
        CHECK_INT(signals_send(number, other, KIND), 0);
        CHECK_INT(read(from[0], &c, 1), 1);
        CHECK_INT(signals_of_thread(number, other), 0); /* it is taken out, and not pending */
        CHECK_INT(signals_give(number), 1);
        CHECK(!is_default(number));
        CHECK_INT(signals_kept(&kept), 1);
        CHECK(kept.size > 0 && strstr(buf_text(&kept), "is traced"));
        CHECK_INT(write(to[1], "", 1), 1);
        CHECK_INT(waitpid(debugger, &status, 0), debugger);
        CHECK_INT(status, 0);
        /* Taken again, it is given back: the thread runs, so it has had it. */
        while (atomic_load(&came) == 0 && signals_take(number, on_ours) == 0 &&
               signals_send(number, other, KIND) == 0)
            (void)sched_yield();
        CHECK_INT(signals_give(number), 0);
        CHECK(is_default(number));
        CHECK_INT(signals_kept(&kept), 0);
    } else {
        CHECK_INT(waitpid(debugger, &status, 0), debugger);
        printf("# no right to trace: not tried\n");
    }
    atomic_store(&stop, true);
    CHECK_INT(pthread_join(thread, NULL), 0);
    buf_done(&kept);
}

static void timer_of_a_thread_that_blocks(void)
{
    pthread_t thread;
    int timer;
    struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = number};
    CHECK_INT(pthread_create(&thread, NULL, blocker, NULL), 0);
    wait_until(&blocks);
    event._sigev_un._tid = other;
    CHECK_INT(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer), 0);
    CHECK_INT(syscall(SYS_timer_settime, timer, 0, &soon, NULL), 0);
    while (!(signals_of_thread(number, other) & SIGNALS_PENDING))
        (void)sched_yield();
    CHECK_INT(syscall(SYS_timer_delete, timer), 0);
    CHECK_INT(signals_give(number), 0);
    CHECK(is_default(number));
    atomic_store(&unblock, true);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(foreign, 0);
}

static void over_ours_stays(void)
{
    struct sigaction now, mine = {.sa_sigaction = their_handler, .sa_flags = SA_SIGINFO};
    CHECK_INT(sigaction(number, &mine, NULL), 0);
    CHECK(!signals_is_ours(number));
    CHECK_INT(signals_take(number, on_ours), -EBUSY);
    CHECK_INT(signals_give(number), 0);
    CHECK_INT(sigaction(number, NULL, &now), 0);
    CHECK(now.sa_sigaction == their_handler);
    CHECK_INT(sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL), 0);
    CHECK_INT(signals_take(number, on_ours), 0); /* its default is free again */
    CHECK_INT(signals_give(number), 0);
}

/* As Go's runtime: one handler for all.  A program that has a handler for each loses none. */
static void beside_a_runtime(void)
{
    struct sigaction now,
        all = {.sa_sigaction = their_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    CHECK_INT(signals_give(number), 0);
    for (int i = SIGRTMIN; i <= SIGRTMAX; i++)
        CHECK_INT(sigaction(i, &all, NULL), 0);
    number = signals_take_below(SIGRTMAX, on_ours);
    CHECK_INT(number, SIGRTMAX - 1);
    CHECK_INT(signals_send(number, (pid_t)syscall(SYS_gettid), KIND), 0);
    wait_count(&came, 1);
    CHECK_INT(theirs, 0);
    CHECK_INT(raise(number), 0); /* not ours: it is theirs */
    CHECK_INT(theirs, 1);
    CHECK_INT(came, 1);
    int second = signals_take_below(number, on_ours);
    CHECK_INT(second, number - 1);
    CHECK_INT(signals_give(second), 0);
    CHECK_INT(signals_give(number), 0);
    CHECK_INT(sigaction(number, NULL, &now), 0);
    CHECK(now.sa_sigaction == their_handler && now.sa_flags & SA_ONSTACK);
    all.sa_flags = SA_SIGINFO | SA_ONSTACK; /* calls of theirs end with EINTR: not with ours */
    for (int i = SIGRTMIN; i <= SIGRTMAX; i++)
        CHECK_INT(sigaction(i, &all, NULL), 0);
    CHECK_INT(signals_take_below(SIGRTMAX, on_ours), -EBUSY);
}

static void not_in_a_child(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        signals_disable_in_child();
        _exit(is_default(number) && signals_take(number, on_ours) == 0 &&
                      signals_give(number) == 0 && is_default(number)
                  ? 0
                  : 1);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    CHECK(signals_is_ours(number));
    CHECK_INT(signals_give(number), 0);
}

#define CASE(name)               \
    TEST(of_##name)              \
    {                            \
        CHECK_INT(run(name), 0); \
    }

CASE(sent_and_given_back)
CASE(pending_in_a_thread_that_blocks)
CASE(pending_in_vfork)
CASE(held_by_a_debugger)
CASE(timer_of_a_thread_that_blocks)
CASE(over_ours_stays)
CASE(beside_a_runtime)
CASE(not_in_a_child)

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return test_skip("the thread sanitizer holds signals back until a thread waits");
#endif
    RUN(of_sent_and_given_back);
    RUN(of_pending_in_a_thread_that_blocks);
    RUN(of_pending_in_vfork);
    RUN(of_held_by_a_debugger);
    RUN(of_timer_of_a_thread_that_blocks);
    RUN(of_over_ours_stays);
    RUN(of_beside_a_runtime);
    RUN(of_not_in_a_child);
    return test_end();
}
