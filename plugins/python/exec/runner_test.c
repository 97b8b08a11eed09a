/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/runner_test.c - jobs, time limits and the end of the runner, with our own
 * GIL.
 *
 * The interpreter is some functions and a lock here, so that "the GIL is stuck" is exact.
 */
#include "exec/runner.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/entry.h"

#include "tests/test.h"

static pthread_mutex_t gil = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int ending, ran, interrupts;

static int initialized(void)
{
    return 1;
}

static int finalizing(void)
{
    return atomic_load(&ending);
}

static void *no_state(void)
{
    return NULL;
}

static void *interpreter(void)
{
    static int made;
    return &made;
}

static _Atomic int slowly, in_the_middle;

static void *new_state(void *of)
{
    atomic_store(&in_the_middle, 1);
    if (atomic_load(&slowly))
        (void)usleep(2000);
    atomic_store(&in_the_middle, 0);
    return of;
}

static void take_gil(void *state)
{
    (void)state;
    (void)pthread_mutex_lock(&gil);
}

static PyObject *no_dict(void *of)
{
    (void)of;
    return NULL;
}

static void nothing(void)
{
}

static void release(int state)
{
    (void)state;
    (void)pthread_mutex_unlock(&gil);
}

/* With the GIL. */
static int raise_in(unsigned long thread, PyObject *what)
{
    (void)thread;
    atomic_fetch_add(&interrupts, what != NULL);
    return 1;
}

static const struct cpython py = {.version = 0x030d02f0,
                                  .Py_IsInitialized = initialized,
                                  .Py_IsFinalizing = finalizing,
                                  .PyGILState_GetThisThreadState = no_state,
                                  .PyInterpreterState_Main = interpreter,
                                  .PyInterpreterState_GetDict = no_dict,
                                  .PyThreadState_New = new_state,
                                  .PyEval_RestoreThread = take_gil,
                                  .PyErr_Clear = nothing,
                                  .PyGILState_Release = release,
                                  .PyThreadState_SetAsyncExc = raise_in,
                                  .PyExc_KeyboardInterrupt = (PyObject *)(uintptr_t)8};

static int count(void *arg)
{
    atomic_fetch_add(&ran, 1);
    return *(int *)arg;
}

static struct runner *begin(void)
{
    struct runner *r = NULL;
    atomic_store(&ran, 0);
    atomic_store(&interrupts, 0);
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
    CHECK_INT(runner_stop(r), 0); /* the thread that waits for the GIL is left behind */
    CHECK_INT(runner_start(r), 0);
    (void)pthread_mutex_unlock(&gil);
    CHECK_INT(runner_call(r, count, &one, UINT64_C(10000000000)), 1);
    CHECK_INT(atomic_load(&ran), 1);
    CHECK_INT(runner_stop(r), 0);
    runner_free(r);
}

static int ask_nothing(int (*fn)(void *arg), void *arg)
{
    (void)fn, (void)arg;
    return -1;
}

static void *come_and_go(void *arg)
{
    struct cpython with = py;
    struct entry own = {.made = false};
    with.Py_AddPendingCall = ask_nothing;
    entry_open(&with);
    while (!atomic_load((_Atomic int *)arg))
        if (entry_take(&py, &own))
            entry_leave(&py, &own);
    return NULL;
}

/* The child would have a lock that nobody lets go. */
TEST(a_fork_waits_for_who_makes_a_thread_state)
{
    static _Atomic int over;
    pthread_t thread;
    atomic_store(&slowly, 1);
    CHECK_INT(pthread_create(&thread, NULL, come_and_go, &over), 0);
    int in_time = 0;
    for (int i = 0; i < 20; i++) {
        int status = -1;
        while (!atomic_load(&in_the_middle))
            (void)sched_yield();
        pid_t pid = fork();
        if (pid == 0)
            _exit(atomic_load(&in_the_middle));
        CHECK_INT(waitpid(pid, &status, 0), pid);
        in_time += status == 0;
    }
    CHECK(in_time > 10); /* a fork waits 0.2 s at most, and a starved thread may need longer */
    atomic_store(&over, 1);
    (void)pthread_join(thread, NULL);
    atomic_store(&slowly, 0);
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

/* A client's code: waits without the GIL until it is told to end. */
struct code {
    struct runner *r;
    _Atomic int ends, hears; /* hears: at which interrupt it ends; 0: never */
};

static int client_code(void *arg)
{
    struct code *c = arg;
    runner_allow_interrupt(c->r, true);
    (void)pthread_mutex_unlock(&gil);
    runner_lock(c->r);
    while (!atomic_load(&c->ends) &&
           (!atomic_load(&c->hears) || atomic_load(&interrupts) < atomic_load(&c->hears)))
        runner_sleep(c->r, 1000000);
    runner_unlock(c->r);
    (void)pthread_mutex_lock(&gil);
    runner_allow_interrupt(c->r, false);
    atomic_fetch_add(&ran, 1);
    return 5;
}

static struct runner_job *begin_client(struct runner *r, struct code *c)
{
    struct runner_job *job = calloc(1, sizeof(*job));
    *c = (struct code){.r = r};
    *job = (struct runner_job){.fn = client_code, .arg = c, .client = true};
    CHECK_INT(runner_submit(r, job), 0);
    CHECK_INT(runner_wait(r, job, RUNNER_WAITS, UINT64_C(10000000000)), RUNNER_RUNS);
    return job;
}

TEST(nobody_waits_for_a_clients_code)
{
    struct runner *r = begin();
    struct code c[4];
    struct runner_job *jobs[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = begin_client(r, &c[i]);
        CHECK(runner_is_own(r, runner_tid_of(r, jobs[i])));
        CHECK_INT(runner_call(r, count, &i, UINT64_C(10000000000)), i);
    }
    for (int i = 0; i < 4; i++) {
        atomic_store(&c[i].ends, 1);
        CHECK_INT(runner_wait(r, jobs[i], RUNNER_RUNS, UINT64_C(10000000000)), RUNNER_DONE);
        CHECK_INT(jobs[i]->result, 5);
        runner_release(r, jobs[i]);
    }
    CHECK_INT(runner_stop(r), 0);
    runner_free(r);
}

TEST(too_many_clients_are_told)
{
    struct runner *r = begin();
    struct code c[8];
    struct runner_job *jobs[8], *late = calloc(1, sizeof(*late));
    int one = 1;
    for (int i = 0; i < 8; i++)
        jobs[i] = begin_client(r, &c[i]);
    *late = (struct runner_job){.fn = count, .arg = &one};
    CHECK_INT(runner_submit(r, late), 0);
    CHECK_INT(runner_wait(r, late, RUNNER_WAITS, 20000000), RUNNER_WAITS);
    CHECK(runner_is_behind(r, late) > 0);
    for (int i = 0; i < 8; i++) {
        atomic_store(&c[i].ends, 1);
        runner_release(r, jobs[i]);
    }
    CHECK_INT(runner_wait(r, late, RUNNER_RUNS, UINT64_C(10000000000)), RUNNER_DONE);
    runner_release(r, late);
    CHECK_INT(runner_stop(r), 0);
    runner_free(r);
}

static _Atomic int inside;

static int alone(void *arg)
{
    CHECK_INT(atomic_fetch_add(&inside, 1), 0);
    (void)pthread_mutex_unlock(&gil); /* as Python code does now and then */
    runner_lock(arg);
    runner_sleep(arg, 3000000);
    runner_unlock(arg);
    (void)pthread_mutex_lock(&gil);
    (void)atomic_fetch_sub(&inside, 1);
    return 0;
}

static void *call_alone(void *arg)
{
    for (int i = 0; i < 10; i++)
        CHECK_INT(runner_call(arg, alone, arg, UINT64_C(60000000000)), 0);
    return NULL;
}

TEST(our_own_jobs_run_one_after_the_other)
{
    struct runner *r = begin();
    struct code c[2];
    struct runner_job *jobs[] = {begin_client(r, &c[0]), begin_client(r, &c[1])};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        (void)pthread_create(&threads[i], NULL, call_alone, r);
    runner_lock(r);
    runner_sleep(r, 5000000);
    runner_unlock(r);
    for (int i = 0; i < 2; i++) {
        atomic_store(&c[i].ends, 1); /* their threads look for work now, too */
        runner_release(r, jobs[i]);
    }
    for (int i = 0; i < 3; i++)
        (void)pthread_join(threads[i], NULL);
    CHECK_INT(runner_stop(r), 0);
    runner_free(r);
}

TEST(code_that_catches_the_first_interrupt_hears_another)
{
    struct runner *r = begin();
    struct code c;
    struct runner_job *job = begin_client(r, &c);
    atomic_store(&c.hears, 3);
    runner_interrupt(r, job);
    CHECK_INT(runner_wait(r, job, RUNNER_RUNS, UINT64_C(20000000000)), RUNNER_DONE);
    runner_release(r, job);
    CHECK_INT(runner_stop(r), 0);
    runner_free(r);
}

static void wait_until(const _Atomic int *value)
{
    for (int i = 0; i < 20000 && !atomic_load(value); i++)
        (void)poll(NULL, 0, 1);
    CHECK(atomic_load(value) > 0);
}

TEST(code_is_left_behind_when_we_go)
{
    struct runner *r = begin();
    struct code c;
    struct runner_job *job = begin_client(r, &c);
    int seven = 7;
    CHECK_INT(runner_stop(r), 0);
    CHECK_INT(runner_start(r), 0); /* and again, beside it */
    CHECK_INT(runner_call(r, count, &seven, UINT64_C(10000000000)), 7);
    CHECK_INT(runner_stop(r), 0);
    runner_release(r, job);
    runner_hold(r); /* the code's, for the lock that it sleeps with */
    runner_free(r);
    atomic_store(&ran, 0);
    atomic_store(&c.ends, 1);
    wait_until(&ran);
    runner_drop(r);
}

int main(void)
{
    RUN(runs_jobs_in_turn);
    RUN(a_job_out_of_time_never_runs);
    RUN(a_fork_waits_for_who_makes_a_thread_state);
    RUN(an_ending_interpreter_is_refused);
    RUN(a_job_cannot_wait_for_another);
    RUN(nobody_waits_for_a_clients_code);
    RUN(too_many_clients_are_told);
    RUN(our_own_jobs_run_one_after_the_other);
    RUN(code_that_catches_the_first_interrupt_hears_another);
    RUN(code_is_left_behind_when_we_go);
    return test_end();
}
