/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/e2e/stand_in/other_libc.c - a library to preload that lies, as libfaketime does: all clocks
 * are LIBC_AHEAD_S seconds ahead and run LIBC_RATE times as fast, waits end by these clocks, and
 * no process has files in /proc.  Any thread.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#define SHOWN __attribute__((visibility("default")))

static long long ahead, rate = 1, begun[16]; /* begun: each clock, when this process began */
static int files;                            /* /proc is hidden */
static int (*wait_until)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

static long long ns_of(const struct timespec *t)
{
    return (long long)t->tv_sec * NS_PER_S + t->tv_nsec;
}

static struct timespec time_of(long long ns)
{
    return (struct timespec){(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
}

static long long real(clockid_t clock)
{
    struct timespec t = {0};
    (void)syscall(SYS_clock_gettime, clock, &t);
    return ns_of(&t);
}

static long long base_of(clockid_t clock)
{
    return clock >= 0 && clock < 16 ? begun[clock] : 0; /* a thread's clock began with it */
}

static long long lie(clockid_t clock)
{
    return base_of(clock) + ahead * NS_PER_S + (real(clock) - base_of(clock)) * rate;
}

__attribute__((constructor)) static void begin(void)
{
    for (int i = 0; i < 16; i++)
        begun[i] = real(i);
    if (getenv("LIBC_AHEAD_S"))
        ahead = atoll(getenv("LIBC_AHEAD_S"));
    if (getenv("LIBC_RATE"))
        rate = atoll(getenv("LIBC_RATE"));
    files = getenv("LIBC_HIDES") != NULL;
    wait_until = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))dlsym(
        RTLD_NEXT, "pthread_cond_timedwait");
}

SHOWN int clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (syscall(SYS_clock_gettime, clock, ret) == -1)
        return -1;
    *ret = time_of(lie(clock));
    return 0;
}

SHOWN int gettimeofday(struct timeval *ret, void *zone)
{
    (void)zone;
    long long ns = lie(CLOCK_REALTIME);
    *ret = (struct timeval){(time_t)(ns / NS_PER_S), (suseconds_t)(ns % NS_PER_S / 1000)};
    return 0;
}

SHOWN time_t time(time_t *ret)
{
    time_t now = (time_t)(lie(CLOCK_REALTIME) / NS_PER_S);
    if (ret)
        *ret = now;
    return now;
}

SHOWN int nanosleep(const struct timespec *time, struct timespec *left)
{
    struct timespec t = time_of(ns_of(time) / rate);
    return (int)syscall(SYS_nanosleep, &t, left);
}

SHOWN int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                          struct timespec *left)
{
    long long ns = ns_of(time) - (flags & TIMER_ABSTIME ? lie(clock) : 0);
    struct timespec t = time_of(ns > 0 ? ns / rate : 0);
    return syscall(SYS_clock_nanosleep, clock, 0, &t, left) == -1 ? errno : 0;
}

/* The time does not say which clock it is of: the nearer one is taken. */
SHOWN int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                 const struct timespec *until)
{
    clockid_t clock =
        llabs(ns_of(until) - lie(CLOCK_REALTIME)) < llabs(ns_of(until) - lie(CLOCK_MONOTONIC))
            ? CLOCK_REALTIME
            : CLOCK_MONOTONIC;
    struct timespec t = time_of(real(clock) + (ns_of(until) - lie(clock)) / rate);
    return wait_until(cond, mutex, &t);
}

SHOWN int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    struct timespec t = time_of(timeout_ms * 1000000LL / rate);
    return (int)syscall(SYS_ppoll, fds, n, timeout_ms < 0 ? NULL : &t, NULL, 0);
}

SHOWN int getrusage(int who, struct rusage *ret)
{
    int rc = (int)syscall(SYS_getrusage, who, ret);
    ret->ru_utime.tv_sec += (time_t)ahead;
    return rc;
}

SHOWN ssize_t getrandom(void *bytes, size_t n, unsigned flags)
{
    (void)flags;
    memset(bytes, 7, n);
    return (ssize_t)n;
}

static int opened(const char *path, int flags, unsigned mode)
{
    if (files && strncmp(path, "/proc/", 6) == 0 && (path[6] == 's' || isdigit(path[6]))) {
        errno = ENOENT;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

SHOWN int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, unsigned) : 0;
    va_end(args);
    return opened(path, flags, mode);
}

SHOWN int open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, unsigned) : 0;
    va_end(args);
    return opened(path, flags, mode);
}
