/* SPDX-License-Identifier: Apache-2.0
 *
 * core/compat/descriptors.c - where descriptors of ours, and of libraries linked into us, lie.
 *
 * Threads: any; async-signal-safe as the calls themselves are.  The linker sends every such call in
 * libprobing.so here (core/SConscript).
 *
 * None survives an exec: LMDB 0.9 opens its data file without O_CLOEXEC, and setting the flag
 * afterwards leaves a moment in which a vfork() of another thread hands the file on.
 *
 * And none has a low number.  A program may close descriptors that it never opened (closefrom(3),
 * as daemons do) and get the same numbers for files and connections of its own: the kernel gives
 * the lowest that is free.  What we then wrote, read or closed would be the program's.  Ours are
 * the last below 1024, where it comes to last.
 *
 * After that, too, a number is nobody else's here until we have closed it: whoever of us does not
 * know yet would write to a file of another part, or close it.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/own_descriptors.h"

#define END 1024 /* FD_SETSIZE; further up nobody looks for the server's (server_loop_new()) */
#define OURS 128
#define WORD_BITS 64

int __real_open(const char *path, int flags, ...);
int __real_open64(const char *path, int flags, ...);
int __real_openat(int dirfd, const char *path, int flags, ...);
int __real_socket(int domain, int type, int protocol);
int __real_accept4(int fd, struct sockaddr *ret, socklen_t *size, int flags);
int __real_eventfd(unsigned first_count, int flags);
int __real_fcntl(int fd, int command, ...);
int __real_close(int fd);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_openat(int dirfd, const char *path, int flags, ...);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_accept4(int fd, struct sockaddr *ret, socklen_t *size, int flags);
int __wrap_eventfd(unsigned first_count, int flags);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_close(int fd);

static _Atomic int begin; /* the first number of ours; 0: not yet known */
static _Atomic uint64_t
    claimed[OURS / WORD_BITS]; /* numbers from there on that we have not closed */

/* It stays, or numbers that are claimed would be others. */
static int first(void)
{
    struct rlimit limit;
    int known = 0, n = END;
    if (atomic_load_explicit(&begin, memory_order_relaxed))
        return atomic_load_explicit(&begin, memory_order_relaxed);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < END)
        n = (int)limit.rlim_cur;
    n = n > 2 * OURS ? n - OURS : n / 2 + 1;
    return atomic_compare_exchange_strong_explicit(&begin, &known, n, memory_order_relaxed,
                                                   memory_order_relaxed)
               ? n
               : known;
}

/* false: it is somebody's of us, or none of ours. */
static bool claim(int fd)
{
    unsigned i = (unsigned)(fd - first());
    uint64_t bit = UINT64_C(1) << i % WORD_BITS;
    return i < OURS &&
           !(atomic_fetch_or_explicit(&claimed[i / WORD_BITS], bit, memory_order_relaxed) & bit);
}

static void unclaim(int fd)
{
    unsigned i = (unsigned)(fd - first());
    uint64_t bit = UINT64_C(1) << i % WORD_BITS;
    if (i < OURS)
        (void)atomic_fetch_and_explicit(&claimed[i / WORD_BITS], ~bit, memory_order_relaxed);
}

bool descriptor_is_ours(int fd)
{
    unsigned i = (unsigned)(fd - first());
    return i < OURS && (atomic_load_explicit(&claimed[i / WORD_BITS], memory_order_relaxed) &
                        UINT64_C(1) << i % WORD_BITS) != 0;
}

/* Not all that the program has closed is closed by us, too (server/loop.c, store/lmdb_env.c). */
static void forget_lost(void)
{
    for (int fd = first(); fd < first() + OURS; fd++)
        if (__real_fcntl(fd, F_GETFD) == -1)
            unclaim(fd);
}

/* -1: none is free up there. */
static int copy_once(int fd, int least)
{
    int end = first() + OURS;
    for (int at = least > first() ? least : first(); at < end; at++) {
        if (!claim(at))
            continue;
        int got = __real_fcntl(fd, F_DUPFD_CLOEXEC, at);
        if (got == at)
            return got;
        unclaim(at); /* it is the program's, or there is no more */
        if (got == -1)
            return -1;
        if (got >= end || claim(got))
            return got;
        (void)__real_close(got);
    }
    return -1;
}

/* Another number for it, from `least` on; -1: none. */
static int copy_up(int fd, int least)
{
    int got = copy_once(fd, least);
    if (got != -1 || __real_fcntl(fd, F_GETFD) == -1)
        return got;
    forget_lost();
    return copy_once(fd, least);
}

/* Where it was given, when nothing is free up there. */
static int raise_fd(int fd)
{
    if (fd == -1 || fd >= first() + OURS || claim(fd))
        return fd;
    int raised = copy_up(fd, 0);
    if (raised == -1)
        return fd;
    (void)__real_close(fd);
    return raised;
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(args, unsigned) : 0;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return raise_fd(__real_open(path, flags | O_CLOEXEC, mode));
}

int __wrap_open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return raise_fd(__real_open64(path, flags | O_CLOEXEC, mode));
}

int __wrap_openat(int dirfd, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return raise_fd(__real_openat(dirfd, path, flags | O_CLOEXEC, mode));
}

int __wrap_socket(int domain, int type, int protocol)
{
    return raise_fd(__real_socket(domain, type | SOCK_CLOEXEC, protocol));
}

int __wrap_accept4(int fd, struct sockaddr *ret, socklen_t *size, int flags)
{
    return raise_fd(__real_accept4(fd, ret, size, flags | SOCK_CLOEXEC));
}

int __wrap_eventfd(unsigned first_count, int flags)
{
    return raise_fd(__real_eventfd(first_count, flags | EFD_CLOEXEC));
}

int __wrap_fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *arg = va_arg(args, void *); /* a number or an address, as libc takes it */
    va_end(args);
    int raised = command == F_DUPFD_CLOEXEC ? copy_up(fd, (int)(intptr_t)arg) : -1;
    return raised == -1 ? __real_fcntl(fd, command, arg) : raised;
}

int __wrap_close(int fd)
{
    int rc = __real_close(fd);
    unclaim(fd); /* not before: it is open until then */
    return rc;
}
