/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/apart_test.c - looks that do not end, as at a process whose memory a driver holds, by
 * looks that wait for a pipe.  With a real one: tests/many/test_hung.py.  A test's own thread,
 * and those of looks.
 */
#include "cli/target/apart.c"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "cli/terminal/interrupt.h"
#include "cli/terminal/limits.h"
#include "tests/test.h"

volatile sig_atomic_t cli_interrupted;
static int said, freed;

void terminal_say(const char *format, ...)
{
    said += strstr(format, "%s") != NULL;
}

const char *cli_fork_why(int e)
{
    return strerror(e);
}

static int wait_for_pipe(void *arg)
{
    char byte;

    return read(*(int *)arg, &byte, 1) == 0 ? err_set(-EPERM, "late") : 0;
}

static int answer(void *arg)
{
    *(int *)arg += 1;
    return err_set(-ENOENT, "no %d", *(int *)arg);
}

static void release(void *arg)
{
    freed++;
    free(arg);
}

static int *number(int n)
{
    int *p = malloc(sizeof(*p));

    *p = n;
    return p;
}

TEST(a_look_that_ends)
{
    bool ended = false;
    int *n = number(6);

    CHECK_INT(apart_run(1, answer, n, release, &ended), -ENOENT);
    CHECK(ended && *n == 7 && freed == 0);
    CHECK(strcmp(err_text(), "no 7") == 0);
    CHECK_INT(apart_pass_over(1, -ENOENT, "x"), 0);
    CHECK_INT(apart_pass_over(1, -EMFILE, "x"), -EMFILE); /* ours: of no process it is known */
    CHECK_INT(said, 0);
    free(n);
}

/* Given up once, and at once as long as it lasts; said once; another process is not touched. */
TEST(a_look_that_does_not_end)
{
    int ends[2];
    bool ended = true;

    CHECK(pipe(ends) == 0);
    limit_ns = LOOK_MIN_NS;
    CHECK_INT(apart_run(77, wait_for_pipe, number(ends[0]), release, &ended), -ETIMEDOUT);
    CHECK(!ended && strstr(err_text(), "process 77") != NULL);
    CHECK_INT(apart_pass_over(77, -ETIMEDOUT, "x"), 0);
    int *own = number(ends[0]);
    CHECK_INT(apart_run(77, wait_for_pipe, own, release, &ended), -ETIMEDOUT);
    CHECK(ended); /* nobody has taken it */
    free(own);
    CHECK_INT(apart_pass_over(77, -ETIMEDOUT, "x"), 0);
    CHECK_INT(said, 1);
    int *n = number(1);
    CHECK_INT(apart_run(78, answer, n, release, &ended), -ENOENT);
    CHECK(ended);
    free(n);
    (void)close(ends[1]); /* it ends, and is freed when the next one asks */
    n = number(1);
    while (apart_run(77, answer, n, release, &ended) == -ETIMEDOUT)
        (void)sched_yield();
    CHECK(ended && *n == 2);
    CHECK_INT(freed, 1);
    free(n);
    (void)close(ends[0]);
}

static void on_alarm(int signo)
{
    (void)signo;
    cli_interrupted = 1;
}

TEST(a_look_that_is_interrupted)
{
    struct sigaction action = {.sa_handler = on_alarm};
    int ends[2];
    bool ended = true;

    CHECK(pipe(ends) == 0);
    limit_ns = 3600 * NS_PER_S;
    (void)sigaction(SIGALRM, &action, NULL);
    (void)alarm(1);
    CHECK_INT(apart_run(79, wait_for_pipe, number(ends[0]), release, &ended), -ECANCELED);
    CHECK(!ended);
    cli_interrupted = 0;
    CHECK_INT(apart_pass_over(79, -ECANCELED, "x"), -ECANCELED);
    (void)close(ends[1]);
}

/* A small stack is for the first thread, and address space for looks is little. */
TEST(small_limits)
{
    pid_t pid = fork();

    if (pid == 0) {
        struct rlimit stack = {.rlim_cur = 64 << 10, .rlim_max = 64 << 10};
        struct buf b;
        (void)setrlimit(RLIMIT_STACK, &stack);
        buf_init(&b, (size_t)8 << 20);
        int rc = apart_read(getpid(), "environ", &b);
        buf_done(&b);
        _exit(rc == 0 && freed == 0 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

TEST(a_file_that_is_too_long)
{
    struct buf b;

    buf_init(&b, 4);
    CHECK(apart_read(getpid(), "status", &b) < 0);
    CHECK_INT(b.size, 0);
    buf_done(&b);
}

int main(void)
{
    RUN(small_limits);
    RUN(a_look_that_ends);
    RUN(a_look_that_does_not_end);
    RUN(a_look_that_is_interrupted);
    RUN(a_file_that_is_too_long);
    return test_end();
}
