/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/runner_test.c - jobs, time limits and the end of the runner, with our own GIL.
 *
 * The interpreter is five functions and a lock here, so that "the GIL is stuck" is exact.
 */
#include "runner.h"

#include <errno.h>

#include "tests/test.h"

static pthread_mutex_t gil = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int ending, ran;

static int initialized(void)
{
    return 1;
}

static int finalizing(void)
{
    return atomic_load(&ending);
}

static int ensure(void)
{
    (void)pthread_mutex_lock(&gil);
    return 0;
}

static void release(int state)
{
    (void)state;
    (void)pthread_mutex_unlock(&gil);
}

static const struct cpython py = {.version = 0x030b02f0,
                                  .Py_IsInitialized = initialized,
                                  .Py_IsFinalizing = finalizing,
                                  .PyGILState_Ensure = ensure,
                                  .PyGILState_Release = release};

static int count(void *arg)
{
    atomic_fetch_add(&ran, 1);
    return *(int *)arg;
}

static struct runner *begin(void)
{
    struct runner *r = NULL;
    atomic_store(&ran, 0);
    atomic_store(&ending, 0);
    CHECK_INT(runner_new(&py, &r), 0);
    CHECK_INT(runner_start(r), 0);
    return r;
}

TEST(runs_jobs_in_turn)
{
    struct runner *r = begin();
    for (int i = 0; i < 200; i++)
        CHECK_INT(runner_call(r, count, &i, UINT64_C(10000000000)), i);
    CHECK_INT(atomic_load(&ran), 200);
    CHECK_INT(runner_stop(r), 0);
    CHECK_INT(runner_start(r), 0); /* and again */
    int seven = 7;
    CHECK_INT(runner_call(r, count, &seven, UINT64_C(10000000000)), 7);
    CHECK_INT(runner_stop(r), 0);
    CHECK_INT(runner_call(r, count, &seven, 1000), -ENODEV);
    runner_free(r);
}

TEST(a_job_out_of_time_never_runs)
{
    struct runner *r = begin();
    int one = 1;
    (void)pthread_mutex_lock(&gil);
    for (int i = 0; i < 5; i++) /* the first waits for the GIL, the others behind it */
        CHECK_INT(runner_call(r, count, &one, 2000000), -ETIMEDOUT);
    CHECK_INT(runner_stop(r), -EBUSY);
    (void)pthread_mutex_unlock(&gil);
    CHECK_INT(runner_call(r, count, &one, UINT64_C(10000000000)), 1);
    CHECK_INT(atomic_load(&ran), 1);
    CHECK_INT(runner_stop(r), 0);
    runner_free(r);
}

TEST(an_ending_interpreter_is_refused)
{
    struct runner *r = begin();
    int one = 1;
    atomic_store(&ending, 1);
    CHECK_INT(runner_call(r, count, &one, 1000000), -ENODEV);
    CHECK_INT(atomic_load(&ran), 0);
    CHECK_INT(runner_stop(r), 0);
    runner_free(r);
}

struct nested {
    struct runner *r;
    int result;
};

static int call_again(void *arg)
{
    struct nested *n = arg;
    int one = 1;
    n->result = runner_call(n->r, count, &one, 1000000);
    return 0;
}

TEST(a_job_cannot_wait_for_another)
{
    struct nested n = {.r = begin()};
    CHECK_INT(runner_call(n.r, call_again, &n, UINT64_C(10000000000)), 0);
    CHECK_INT(n.result, -EDEADLK);
    CHECK_INT(runner_stop(n.r), 0);
    runner_free(n.r);
}

int main(void)
{
    RUN(runs_jobs_in_turn);
    RUN(a_job_out_of_time_never_runs);
    RUN(an_ending_interpreter_is_refused);
    RUN(a_job_cannot_wait_for_another);
    return test_end();
}
