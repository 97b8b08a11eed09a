/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/limited.c - waits once, with a time limit that the kernel begins anew after a stop,
 * for tests/hostile/test_signals.py.
 *
 * usage: limited CALL MS [beside]      beside: another thread waits without a limit
 *
 * It prints "ready", then "ended" when the time is up, or what else came of the call: an error, or
 * an end before its time.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int fd, pair[2], semaphores;
static struct timespec limit;

static int in_epoll_wait(int ms)
{
    struct epoll_event event;
    return epoll_wait(fd, &event, 1, ms);
}

static int in_epoll_pwait(int ms)
{
    struct epoll_event event;
    sigset_t none;
    (void)sigemptyset(&none);
    return epoll_pwait(fd, &event, 1, ms, &none);
}

static int in_sigtimedwait(int ms)
{
    sigset_t set;
    (void)ms;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR2);
    return sigtimedwait(&set, NULL, &limit) == -1 && errno == EAGAIN ? 0 : -1;
}

static int in_recv(int ms)
{
    char c;
    (void)ms;
    return recv(pair[0], &c, 1, 0) == -1 && errno == EAGAIN ? 0 : -1;
}

static int in_semtimedop(int ms)
{
    struct sembuf take = {0, -1, 0};
    (void)ms;
    return semtimedop(semaphores, &take, 1, &limit) == -1 && errno == EAGAIN ? 0 : -1;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void *waits_for_ever(void *arg)
{
    for (;;)
        (void)pause();
    return arg;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*wait)(int ms);
    } calls[] = {{"epoll_wait", in_epoll_wait},
                 {"epoll_pwait", in_epoll_pwait},
                 {"sigtimedwait", in_sigtimedwait},
                 {"recv", in_recv},
                 {"semtimedop", in_semtimedop}};
    pthread_t thread;
    sigset_t set;
    if (argc < 3)
        return 2;
    int ms = (int)strtol(argv[2], NULL, 10);
    struct timeval as_timeval = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    limit = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR2);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    fd = epoll_create1(EPOLL_CLOEXEC);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    if (fd == -1 || semaphores == -1 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == -1 ||
        setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &as_timeval, sizeof(as_timeval)) == -1)
        return 2;
    if (argc > 3 && pthread_create(&thread, NULL, waits_for_ever, NULL) != 0)
        return 2;
    (void)puts("ready");
    (void)fflush(stdout);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (strcmp(argv[1], calls[i].name) != 0)
            continue;
        uint64_t begin = now_ns();
        int rc = calls[i].wait(ms);
        uint64_t waited = now_ns() - begin;
        if (rc != 0)
            (void)printf("result %d, %s\n", rc, strerror(errno));
        else if (waited < (uint64_t)ms * 1000000)
            (void)printf("early: %llu ns\n", (unsigned long long)waited);
        else
            (void)printf("ended after %llu ms\n", (unsigned long long)waited / 1000000);
        (void)fflush(stdout);
    }
    (void)semctl(semaphores, 0, IPC_RMID);
    (void)waits_for_ever(NULL);
}
