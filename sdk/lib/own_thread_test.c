/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/own_thread_test.c - it begins, with its signals blocked but for those of its own faults,
 * in a program with much thread-local storage, too.
 */
#include "sdk/lib/own_thread.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

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

int main(void)
{
    (void)sem_init(&looked, 0, 0);
    RUN(it_begins_where_thread_local_storage_is_large);
    RUN(one_that_nobody_joins_begins_alike);
    return test_end();
}
