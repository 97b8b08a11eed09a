/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/soak/targets/busy.c - programs to be entered: each does one thing again and again, and
 * counts rounds, interrupted calls and wrong results in a file that soak.py reads.
 *
 * usage: busy KIND FILE [THREADS]       exit code 77: this machine has not what KIND needs
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 20 /* of each sleeping call: long beside the moment between two of them */
#define UNAVAILABLE 77

extern char **environ;

static struct counts {
    _Atomic uint64_t rounds, interrupted, wrong;
} *counts;

static int pipes[2], listener;
static struct sockaddr_un name;
static socklen_t name_size;

/* ---- those that work ---- */

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* A chunk handed out twice shows as a changed mark. */
static void allocate(uint64_t *seed)
{
    enum { KEPT = 64 };
    static __thread uint64_t *kept[KEPT];
    uint64_t at = next(seed) % KEPT;
    size_t size = 8 + next(seed) % (next(seed) % 16 ? 1000 : 300000);
    if (kept[at]) {
        counts->wrong += kept[at][0] != (uintptr_t)kept[at];
        free(kept[at]);
    }
    kept[at] = malloc(size);
    if (kept[at])
        kept[at][0] = (uintptr_t)kept[at];
}

static void do_malloc(uint64_t *seed)
{
    for (int i = 0; i < 1000; i++)
        allocate(seed);
}

static void do_dlopen(uint64_t *seed)
{
    (void)seed;
    void *handle = dlopen("libresolv.so.2", RTLD_NOW);
    counts->wrong += !handle;
    if (handle)
        (void)dlclose(handle);
}

static void do_fork(uint64_t *seed)
{
    int status = -1;
    do_malloc(seed);
    pid_t pid = fork();
    if (pid == 0) {
        do_malloc(seed);
        exit(0); /* with the handlers of exit */
    }
    counts->wrong += pid == -1 || waitpid(pid, &status, 0) != pid || status != 0;
}

static void do_spawn(uint64_t *seed)
{
    char *arguments[] = {"true", NULL};
    int status = -1;
    pid_t pid;
    allocate(seed);
    counts->wrong += posix_spawnp(&pid, "true", NULL, NULL, arguments, environ) != 0 ||
                     waitpid(pid, &status, 0) != pid || status != 0;
}

static void *short_life(void *arg)
{
    uint64_t seed = (uintptr_t)arg;
    void *p = malloc(next(&seed) % 1000);
    free(p);
    return NULL;
}

static void do_threads(uint64_t *seed)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, short_life, (void *)(uintptr_t)next(seed)) == 0)
        (void)pthread_join(thread, NULL);
    else
        counts->wrong++;
}

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
    (void)number;
    signals++;
}

static void do_signals(uint64_t *seed)
{
    static int armed;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 500}, {0, 500}}, half = {{0, 1000}, {0, 1000}};
    if (!armed) {
        armed = 1;
        (void)sigaction(SIGALRM, &action, NULL);
        (void)sigaction(SIGPROF, &action, NULL);
        (void)setitimer(ITIMER_REAL, &often, NULL);
        (void)setitimer(ITIMER_PROF, &half, NULL);
    }
    do_malloc(seed);
}

/* Vector and x87 registers hold what they held. */
static void do_vectors(uint64_t *seed)
{
#ifdef __x86_64__
    static uint64_t in[8], out[8]; /* not on the stack: its red zone is marked below */
    uint64_t rounds = 20000;
    for (int i = 0; i < 8; i++)
        in[i] = next(seed);
    __asm__ volatile("movdqu (%1), %%xmm0; movdqu 16(%1), %%xmm7; movdqu 32(%1), %%xmm8\n"
                     "movdqu 48(%1), %%xmm15; movq %%rsp, -64(%%rsp); fldpi\n"
                     "1: dec %0; jnz 1b\n"
                     "movdqu %%xmm0, (%2); movdqu %%xmm7, 16(%2); movdqu %%xmm8, 32(%2)\n"
                     "movdqu %%xmm15, 48(%2); cmpq %%rsp, -64(%%rsp); je 2f; notq (%2); 2:\n"
                     "fldpi; fcomip %%st(1), %%st; fstp %%st(0); je 3f; notq (%2); 3:\n"
                     : "+r"(rounds)
                     : "r"(in), "r"(out)
                     : "memory", "cc", "xmm0", "xmm7", "xmm8", "xmm15", "st");
    counts->wrong += memcmp(in, out, sizeof(in)) != 0;
#else
    do_malloc(seed);
#endif
}

/* ---- those that sleep ---- */

static void check(int64_t result, int64_t code, int64_t expected)
{
    if (result == -1 && code == EINTR)
        counts->interrupted++;
    else
        counts->wrong += (result == -1 ? -code : result) != expected;
}

static void in_read(uint64_t *seed)
{
    char c;
    (void)seed;
    int64_t n = read(pipes[0], &c, 1);
    check(n, errno, 1);
}

static void in_nanosleep(uint64_t *seed)
{
    struct timespec t = {.tv_nsec = WAIT_MS * 1000000};
    (void)seed;
    int64_t n = nanosleep(&t, NULL);
    check(n, errno, 0);
}

static void in_futex(uint64_t *seed)
{
    struct timespec t = {.tv_nsec = WAIT_MS * 1000000};
    uint32_t word = 0;
    (void)seed;
    int64_t n = syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t, NULL, 0);
    check(n, errno, -ETIMEDOUT);
}

static void in_epoll(uint64_t *seed)
{
    static int fd = -1;
    struct epoll_event event;
    (void)seed;
    if (fd == -1)
        fd = epoll_create1(EPOLL_CLOEXEC);
    int64_t n = epoll_wait(fd, &event, 1, WAIT_MS);
    check(n, errno, 0);
}

static void in_select(uint64_t *seed)
{
    struct timeval t = {.tv_usec = WAIT_MS * 1000};
    (void)seed;
    int64_t n = select(0, NULL, NULL, NULL, &t);
    check(n, errno, 0);
}

static void in_poll(uint64_t *seed)
{
    (void)seed;
    int64_t n = poll(NULL, 0, WAIT_MS);
    check(n, errno, 0);
}

static void in_accept(uint64_t *seed)
{
    (void)seed;
    int64_t n = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    int code = errno;
    if (n >= 0)
        (void)close((int)n);
    check(n >= 0 ? 0 : n, code, 0);
}

static void in_sigtimedwait(uint64_t *seed)
{
    struct timespec t = {.tv_nsec = WAIT_MS * 1000000};
    sigset_t set;
    (void)seed;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    int64_t n = sigtimedwait(&set, NULL, &t);
    check(n, errno, -EAGAIN);
}

static void in_recv(uint64_t *seed)
{
    static int pair[2] = {-1, -1};
    struct timeval t = {.tv_usec = WAIT_MS * 1000};
    char c;
    (void)seed;
    if (pair[0] == -1) {
        (void)socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
        (void)setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    }
    int64_t n = recv(pair[0], &c, 1, 0);
    check(n, errno, -EAGAIN);
}

static void in_io_uring(uint64_t *seed)
{
    static int fd = -1;
    struct io_uring_params parameters = {0};
    struct __kernel_timespec {
        int64_t s, ns;
    } t = {0, WAIT_MS * 1000000};
    struct io_uring_getevents_arg arg = {.ts = (uintptr_t)&t};
    (void)seed;
    if (fd == -1)
        fd = (int)syscall(SYS_io_uring_setup, 4, &parameters);
    if (fd == -1)
        exit(UNAVAILABLE);
    int64_t n = syscall(SYS_io_uring_enter, fd, 0, 1,
                        IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof(arg));
    check(n, errno, -ETIME);
}

/* Wakes those that have no time limit of their own. */
static void *wake(void *arg)
{
    for (;;) {
        (void)nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000}, NULL);
        if (arg == pipes) {
            (void)!write(pipes[1], "x", 1);
        } else {
            int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            (void)connect(fd, (struct sockaddr *)&name, name_size);
            (void)close(fd);
        }
    }
    return NULL;
}

/* ---- main ---- */

static const struct kind {
    const char *name;
    void (*once)(uint64_t *seed);
} kinds[] = {{"malloc", do_malloc},
             {"dlopen", do_dlopen},
             {"fork", do_fork},
             {"spawn", do_spawn},
             {"threads", do_threads},
             {"signals", do_signals},
             {"vectors", do_vectors},
             {"read", in_read},
             {"nanosleep", in_nanosleep},
             {"futex", in_futex},
             {"epoll_wait", in_epoll},
             {"select", in_select},
             {"poll", in_poll},
             {"accept", in_accept},
             {"sigtimedwait", in_sigtimedwait},
             {"recv", in_recv},
             {"io_uring_enter", in_io_uring}};

static const struct kind *kind;

static void *work(void *arg)
{
    uint64_t seed = 0x9e3779b97f4a7c15u ^ ((uintptr_t)arg << 32);
    for (;;) {
        kind->once(&seed);
        counts->rounds++;
    }
    return NULL;
}

static void prepare(void)
{
    pthread_t thread;
    name.sun_family = AF_UNIX;
    int n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "soak-%d", (int)getpid());
    name_size = (socklen_t)((char *)name.sun_path + 1 + n - (char *)&name);
    if (kind->once == in_read && pipe2(pipes, O_CLOEXEC) == 0)
        (void)pthread_create(&thread, NULL, wake, pipes);
    if (kind->once == in_accept) {
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(listener, (struct sockaddr *)&name, name_size) == 0 && listen(listener, 8) == 0)
            (void)pthread_create(&thread, NULL, wake, &listener);
    }
}

int main(int argc, char **argv)
{
    pthread_t thread;
    for (size_t i = 0; argc > 2 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].name, argv[1]) == 0)
            kind = &kinds[i];
    int fd = kind ? open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd == -1 || ftruncate(fd, 4096) == -1)
        return 2;
    counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (counts == MAP_FAILED)
        return 2;
    prepare();
    for (uintptr_t i = 1; argc > 3 && i < strtoul(argv[3], NULL, 10); i++)
        if (pthread_create(&thread, NULL, work, (void *)i))
            return UNAVAILABLE;
    (void)work(NULL);
    return 0;
}
