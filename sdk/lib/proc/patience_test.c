/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/patience_test.c - a thread that stands still is given up, one that works is not.
 */
#include "sdk/lib/proc/patience.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/test.h"

#define MS UINT64_C(1000000)

static _Atomic int32_t tid;
static _Atomic bool stop;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *waits(void *arg)
{
    (void)arg;
    atomic_store(&tid, (int32_t)syscall(SYS_gettid));
    (void)pthread_mutex_lock(&held);
    (void)pthread_mutex_unlock(&held);
    return NULL;
}

static void *works(void *arg)
{
    (void)arg;
    atomic_store(&tid, (int32_t)syscall(SYS_gettid));
    while (!atomic_load(&stop))
        (void)0;
    return NULL;
}

static struct patience given_up(struct patience p)
{
    while (patience_rest(&p, atomic_load(&tid)))
        continue;
    return p;
}

TEST(one_that_waits_for_something_else_than_a_processor)
{
    pthread_t thread;
    atomic_store(&tid, 0);
    (void)pthread_mutex_lock(&held);
    CHECK_INT(pthread_create(&thread, NULL, waits, NULL), 0);
    struct patience p = given_up((struct patience){.limit_ns = 100 * MS});
    CHECK(p.still_ns >= 100 * MS);
    CHECK_STR(patience_end(&p), "waits for something");
    (void)pthread_mutex_unlock(&held);
    (void)pthread_join(thread, NULL);
}

TEST(one_that_works_or_would_if_it_could)
{
    pthread_t thread;
    atomic_store(&tid, 0);
    CHECK_INT(pthread_create(&thread, NULL, works, NULL), 0);
    struct patience p = given_up((struct patience){.limit_ns = 100 * MS, .most_ns = 500 * MS});
    CHECK(p.still_ns < 100 * MS);
    CHECK(strstr(patience_end(&p), "no processor") != NULL);
    atomic_store(&stop, true);
    (void)pthread_join(thread, NULL);
}

TEST(one_that_has_ended)
{
    atomic_store(&tid, (int32_t)getpid() + 1000000000);
    struct patience p = given_up((struct patience){.limit_ns = 50 * MS});
    CHECK(p.still_ns >= 50 * MS);
}

int main(void)
{
    RUN(one_that_waits_for_something_else_than_a_processor);
    RUN(one_that_works_or_would_if_it_could);
    RUN(one_that_has_ended);
    return test_end();
}
