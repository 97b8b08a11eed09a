/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/own_thread_test.c - it begins, with its signals blocked but for those of its own faults,
 * in a program with much thread-local storage, too; and it hears of it when its stack is full.
 */
#include "sdk/lib/own_thread.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

/* More than a small stack: libc takes it out of each thread's. */
static _Thread_local char much[1u << 20];
static _Atomic int right;
static sem_t looked;

static void *run(void *arg)
{
    sigset_t now;
    static const int program[] = {SIGUSR1, SIGPROF, SIGTERM, SIGABRT, SIGCHLD};
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    bool all = true;
    much[0] = much[sizeof(much) - 1] = 1;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (size_t i = 0; i < sizeof(program) / sizeof(program[0]); i++)
        all = all && sigismember(&now, program[i]) == 1;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        all = all && sigismember(&now, own[i]) == 0;
    atomic_store_explicit(&right, all ? 1 : -1, memory_order_release);
    (void)sem_post(&looked);
    return arg;
}

static void mask_is_as_it_was(void)
{
    sigset_t now;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &now);
    CHECK(!sigismember(&now, SIGUSR1));
}

TEST(it_begins_where_thread_local_storage_is_large)
{
    pthread_t thread;
    void *gave = NULL;
    atomic_store(&right, 0);
    if (!CHECK_INT(own_thread_start(&thread, (size_t)128 << 10, run, much), 0))
        return;
    CHECK_INT(pthread_join(thread, &gave), 0);
    CHECK(gave == much);
    CHECK_INT(sem_trywait(&looked), 0);
    CHECK_INT(atomic_load(&right), 1);
    mask_is_as_it_was();
}

TEST(one_that_nobody_joins_begins_alike)
{
    atomic_store(&right, 0);
    CHECK_INT(own_thread_start_detached(NULL, (size_t)128 << 10, run, much), 0);
    while (sem_wait(&looked) != 0) /* a signal */
        ;
    CHECK_INT(atomic_load(&right), 1);
    mask_is_as_it_was();
}

static volatile int depth;

static __attribute__((noinline)) int recurse(const volatile char *outer)
{
    volatile char frame[4096];
    frame[0] = outer[0];
    return ++depth > 0 ? recurse(frame) + frame[0] : 0;
}

static void *overflow(void *arg)
{
    char first = 0;
    (void)recurse(&first);
    return arg;
}

/* Code 7: it ran, on a stack that is not the full one. */
static void on_full_stack(int signo, siginfo_t *info, void *context)
{
    stack_t now;
    volatile char deep[32768]; /* as much as a handler of the program's may want */
    (void)signo, (void)info, (void)context;
    deep[0] = 0;
    bool on_it = sigaltstack(NULL, &now) == 0 && now.ss_flags & SS_ONSTACK;
    _exit(on_it && deep[0] == 0 ? 7 : 8);
}

TEST(a_full_stack_is_heard_of)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct sigaction a = {.sa_sigaction = on_full_stack, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        pthread_t thread;
        (void)sigaction(SIGSEGV, &a, NULL);
        if (own_thread_start(&thread, (size_t)128 << 10, overflow, NULL) == 0)
            (void)pthread_join(thread, NULL);
        _exit(9);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 7);
}

static void *resident(void *arg)
{
    char room[64];
    unsigned char in[32];
    size_t page = (size_t)getpagesize(), pages = 0;
    /* Outside of this frame: what the thread has touched before it ran this. */
    char *at = (char *)((uintptr_t)room / page * page);
    for (size_t i = 1; i < 12; i++)
        pages += mincore(at + i * page, page, in) == 0 && in[0] & 1;
    (void)arg;
    return (void *)(uintptr_t)pages; /* NOLINT(performance-no-int-to-ptr) */
}

TEST(its_room_takes_no_memory_before)
{
    pthread_t thread;
    void *pages = NULL;
    if (getpagesize() != 4096)
        return;
    if (!CHECK_INT(own_thread_start(&thread, (size_t)128 << 10, resident, NULL), 0))
        return;
    CHECK_INT(pthread_join(thread, &pages), 0);
    CHECK((uintptr_t)pages <= 2);
}

int main(void)
{
    (void)sem_init(&looked, 0, 0);
    RUN(it_begins_where_thread_local_storage_is_large);
    RUN(one_that_nobody_joins_begins_alike);
    RUN(a_full_stack_is_heard_of);
    RUN(its_room_takes_no_memory_before);
    return test_end();
}
