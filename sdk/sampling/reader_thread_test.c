/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/reader_thread_test.c - it begins, with its signals blocked, in a program with much
 * thread-local storage, too.
 */
#include "reader_thread.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "tests/test.h"

/* More than a small stack: libc takes it out of each thread's. */
static _Thread_local char much[1u << 20];
static _Atomic int blocked;

static void *run(void *arg)
{
    sigset_t now;
    much[0] = much[sizeof(much) - 1] = 1;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &now);
    atomic_store_explicit(&blocked, sigismember(&now, SIGUSR1) && !sigismember(&now, SIGBUS),
                          memory_order_relaxed);
    return arg;
}

TEST(it_begins_where_thread_local_storage_is_large)
{
    pthread_t thread;
    void *gave = NULL;
    sigset_t after;
    if (!CHECK_INT(reader_thread_start(&thread, run, much), 0))
        return;
    CHECK_INT(pthread_join(thread, &gave), 0);
    CHECK(gave == much);
    CHECK_INT(atomic_load_explicit(&blocked, memory_order_relaxed), 1);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &after);
    CHECK(!sigismember(&after, SIGUSR1));
}

int main(void)
{
    RUN(it_begins_where_thread_local_storage_is_large);
    return test_end();
}
