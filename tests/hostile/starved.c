/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/starved.c - a program with threads that a signal reaches late or never, for
 * tests/hostile/test_signals.py.
 *
 * usage: starved WORD...    each word makes threads of one kind; "ready" is printed when they stand
 *
 *   vfork    in vfork(2) beside a child that sleeps 300 ms, again and again
 *   nice     at nice 19, and  idle  under SCHED_IDLE, beside threads that keep every CPU busy
 *   deaf     blocks every signal, now and then lets them come
 *   waits    in calls that a signal ends
 *   comes    threads that are made and end
 *   onstack  takes signals on an alternate stack, if it has one
 *   urgent   makes none: the program has a handler on SIGURG
 *
 * It never links or calls anything of ours.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VFORK_NS 300000000
#define DEAF_NS 30000000

static _Atomic unsigned standing;

static void nap(int32_t ns)
{
    const struct timespec t = {.tv_nsec = ns};
    (void)nanosleep(&t, NULL);
}

static void spin(void)
{
    static _Atomic uint64_t turns;
    (void)atomic_fetch_add(&standing, 1);
    for (;;)
        atomic_store_explicit(&turns, atomic_load_explicit(&turns, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

static void *busy(void *arg)
{
    (void)arg;
    spin();
    return NULL;
}

static void *at_nice_19(void *arg)
{
    (void)arg;
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
    spin();
    return NULL;
}

static void *when_idle(void *arg)
{
    const struct sched_param none = {0};
    (void)arg;
    (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    spin();
    return NULL;
}

static void *in_vfork(void *arg)
{
    (void)arg;
    (void)atomic_fetch_add(&standing, 1);
    for (;;) {
        pid_t child = vfork();
        if (child == 0) {
            nap(VFORK_NS);
            _exit(0);
        }
        while (waitpid(child, NULL, 0) == -1 && errno == EINTR)
            ;
    }
    return NULL;
}

static void *deaf(void *arg)
{
    sigset_t all, none;
    (void)arg;
    (void)sigfillset(&all);
    (void)sigemptyset(&none);
    (void)atomic_fetch_add(&standing, 1);
    for (;;) {
        (void)pthread_sigmask(SIG_SETMASK, &all, NULL);
        nap(DEAF_NS);
        (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
        (void)sched_yield();
    }
    return NULL;
}

static void *waits(void *arg)
{
    struct epoll_event event;
    int fd = epoll_create1(EPOLL_CLOEXEC);
    (void)arg;
    (void)atomic_fetch_add(&standing, 1);
    for (;;) {
        (void)epoll_wait(fd, &event, 1, 7);
        (void)poll(NULL, 0, 7);
    }
    return NULL;
}

static void *ends(void *arg)
{
    (void)arg;
    nap(1000000);
    return NULL;
}

static void *comes(void *arg)
{
    pthread_t thread;
    (void)arg;
    (void)atomic_fetch_add(&standing, 1);
    for (;;)
        if (pthread_create(&thread, NULL, ends, NULL) == 0)
            (void)pthread_join(thread, NULL);
    return NULL;
}

static _Atomic unsigned taken; /* signals */

static void on_signal(int number)
{
    volatile char room[2000];
    memset((char *)room, number, sizeof(room));
    (void)atomic_fetch_add(&taken, 1);
}

/* Something else in the program wants every real-time signal that has a handler. */
static void on_take_all(int number)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction now;
    (void)number;
    for (int i = SIGRTMIN; i <= SIGRTMAX; i++)
        if (sigaction(i, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO))
            (void)sigaction(i, &action, NULL);
    (void)write(STDOUT_FILENO, "taken\n", 6);
}

/* When a hundred more were taken. */
static void on_ask(int number)
{
    static _Atomic unsigned goal;
    (void)number;
    atomic_store(&goal, atomic_load(&taken) + 100);
    while (atomic_load(&taken) < atomic_load(&goal))
        (void)sched_yield();
    (void)write(STDOUT_FILENO, "still here\n", 11);
}

static void *onstack(void *arg)
{
    (void)arg;
    (void)atomic_fetch_add(&standing, 1);
    for (;;) {
        (void)pthread_kill(pthread_self(), SIGUSR1);
        nap(1000000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *word;
        void *(*run)(void *);
        unsigned n;
        bool beside_busy;
    } kinds[] = {{"vfork", in_vfork, 3, false}, {"nice", at_nice_19, 3, true},
                 {"idle", when_idle, 3, true},  {"deaf", deaf, 2, false},
                 {"waits", waits, 2, false},    {"comes", comes, 1, false},
                 {"onstack", onstack, 2, false}};
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    unsigned made = 0, n_busy = 0;
    pthread_t thread;
    const struct sigaction take = {.sa_handler = on_take_all}, asked = {.sa_handler = on_ask};
    (void)sigaction(SIGUSR1, &action, NULL);
    (void)sigaction(SIGUSR2, &take, NULL);
    (void)sigaction(SIGWINCH, &asked, NULL);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "urgent") == 0)
            (void)sigaction(SIGURG, &action, NULL);
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
            if (strcmp(argv[i], kinds[k].word) != 0)
                continue;
            for (unsigned n = 0; n < kinds[k].n; n++)
                made += pthread_create(&thread, NULL, kinds[k].run, NULL) == 0;
            if (kinds[k].beside_busy && n_busy == 0)
                n_busy = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
        }
    }
    for (unsigned n = 0; n < n_busy; n++)
        made += pthread_create(&thread, NULL, busy, NULL) == 0;
    while (atomic_load(&standing) < made)
        nap(1000000);
    (void)puts("ready");
    (void)fflush(stdout);
    for (;;)
        (void)pause();
}
