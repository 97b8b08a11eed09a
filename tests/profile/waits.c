/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/profile/waits.c - a thread in each kind of wait that a signal ends with EINTR, with a short
 * time limit, again and again; it prints how often each came to EINTR, and how often it waited.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 7

static const struct timespec limit = {.tv_nsec = WAIT_MS * 1000000};
static _Atomic int waited, interrupted;
static int pair[2];

static int in_poll(void)
{
    return poll(NULL, 0, WAIT_MS);
}

static int in_ppoll(void)
{
    return ppoll(NULL, 0, &limit, NULL);
}

static int in_select(void)
{
    struct timeval t = {.tv_usec = WAIT_MS * 1000};
    return select(0, NULL, NULL, NULL, &t);
}

static int in_epoll(void)
{
    static __thread int fd;
    struct epoll_event event;
    if (fd == 0)
        fd = epoll_create1(EPOLL_CLOEXEC);
    return epoll_wait(fd, &event, 1, WAIT_MS);
}

static int in_nanosleep(void)
{
    return nanosleep(&limit, NULL);
}

static int in_clock_nanosleep(void)
{
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &limit, NULL);
    return errno ? -1 : 0;
}

static int in_sem(void)
{
    static sem_t sem;
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += limit.tv_nsec;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return sem_timedwait(&sem, &until);
}

static int in_recv(void)
{
    char c;
    return (int)recv(pair[0], &c, 1, 0);
}

static int in_sigtimedwait(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR2);
    return sigtimedwait(&set, NULL, &limit);
}

static int in_semop(void)
{
    static _Atomic int id = -1;
    struct sembuf down = {0, -1, 0};
    if (id == -1)
        id = semget(IPC_PRIVATE, 1, 0600);
    int r = semtimedop(id, &down, 1, &limit);
    return r;
}

static int (*const waits[])(void) = {in_poll,      in_ppoll,           in_select, in_epoll,
                                     in_nanosleep, in_clock_nanosleep, in_sem,    in_recv,
                                     in_sigtimedwait, in_semop};

static void *wait_for_ever(void *arg)
{
    int (*const *fn)(void) = arg;
    for (;;) {
        errno = 0;
        if ((*fn)() == -1 && errno == EINTR)
            (void)atomic_fetch_add(&interrupted, 1);
        (void)atomic_fetch_add(&waited, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t thread;
    struct timeval t = {.tv_usec = WAIT_MS * 1000};
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == -1 ||
        setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)) == -1)
        return 1;
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
        if (pthread_create(&thread, NULL, wait_for_ever, (void *)(unsigned char *)&waits[i]) != 0)
            return 1;
    (void)printf("ready\n");
    for (;;) { /* by spinning: this thread must not be interrupted in a wait of its own */
        struct timespec begun, now;
        (void)clock_gettime(CLOCK_MONOTONIC, &begun);
        do
            (void)clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - begun.tv_sec) * 10 + (now.tv_nsec - begun.tv_nsec) / 100000000 < 2);
        (void)printf("waited %d interrupted %d\n", atomic_load(&waited),
                     atomic_load(&interrupted));
        (void)fflush(stdout);
    }
}
