/* SPDX-License-Identifier: Apache-2.0
 *
 * core/compat/descriptors.c - where descriptors of ours, and of libraries linked into us, lie, and
 * how a forked child knows them.
 *
 * Threads: any; async-signal-safe as the calls themselves are.  The linker sends every such call in
 * libprobing.so here (core/SConscript), and plugins of this tree theirs (sdk/plugin_files.c).
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
 *
 * A fork may come between any two instructions of another thread, and Linux has no flag that closes
 * a descriptor in a child.  So each carries a mark that no descriptor of a program has, by which
 * the child closes it whatever its number is and whoever was about to do something with it:
 *
 *   open(), openat()   O_ASYNC, from birth.  The kernel keeps it and does nothing with it: signals
 *                      would need an owner, and files and folders have none to send.
 *   all others         F_SETSIG with MARK, which also means nothing without O_ASYNC.  For these few
 *                      calls a fork waits until they have it, FORK_WAIT_NS at most.
 *   O_PATH             can have none; known by number, and a fork waits as for the others.
 *
 * The mark is on the open file, not on the number: one that the program has closed and used again
 * stays with the child.  Which numbers to look at is told by what is claimed, unless some call of
 * ours was under way while the child was made: then it looks at all.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/guest/own_descriptors.h"
#include "sdk/lib/proc/proc_file.h"

#define END 1024 /* FD_SETSIZE; further up nobody looks for the server's (server_loop_new()) */
#define OURS 128
#define NUMBERS 8192 /* of those above only marks tell */
#define PAGE 4096
#define WORD_BITS 64
#define MARK 64                      /* a signal's number: the last, where a program begins last */
#define FORK_WAIT_NS (NS_PER_S / 4)  /* for a few instructions of a thread that may have no CPU */
#define CALL_WAIT_NS (NS_PER_S / 10) /* for a fork, which copies all page tables */
#define NAP_NS (NS_PER_S / 20000)

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
int __wrap_accept(int fd, struct sockaddr *ret, socklen_t *size);
int __wrap_accept4(int fd, struct sockaddr *ret, socklen_t *size, int flags);
int __wrap_eventfd(unsigned first_count, int flags);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_close(int fd);

/* In one page, so that a child has all of it as it was at one moment, after its descriptors were
 * copied (copy_process() of Linux). */
static struct {
    _Alignas(PAGE) _Atomic uint64_t claimed[NUMBERS / WORD_BITS]; /* that we have not closed */
    _Atomic uint64_t bare[NUMBERS / WORD_BITS];                   /* of these: without a mark */
    _Atomic uint64_t begun, ended;                                /* calls that change them */
    _Atomic uint32_t unmarked; /* calls whose descriptor may be there without its mark */
    _Atomic uint32_t forks;    /* that are under way */
    _Atomic int first;         /* number of ours; 0: not yet known */
} g;
_Static_assert(sizeof(g) == PAGE, "one page");

/* ---- numbers ---- */

/* It stays, or numbers that are claimed would be others. */
static int first_number(void)
{
    struct rlimit limit;
    int known = 0, n = END;
    if (atomic_load_explicit(&g.first, memory_order_relaxed))
        return atomic_load_explicit(&g.first, memory_order_relaxed);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < END)
        n = (int)limit.rlim_cur;
    n = n > 2 * OURS ? n - OURS : n / 2 + 1;
    return atomic_compare_exchange_strong_explicit(&g.first, &known, n, memory_order_relaxed,
                                                   memory_order_relaxed)
               ? n
               : known;
}

/* Gives whether it was set before. */
static bool set_bit(_Atomic uint64_t *bits, int fd, bool on)
{
    unsigned i = (unsigned)fd;
    uint64_t bit = UINT64_C(1) << i % WORD_BITS;
    if (i >= NUMBERS)
        return false;
    _Atomic uint64_t *word = &bits[i / WORD_BITS];
    uint64_t before = on ? atomic_fetch_or_explicit(word, bit, memory_order_relaxed)
                         : atomic_fetch_and_explicit(word, ~bit, memory_order_relaxed);
    return (before & bit) != 0;
}

static bool is_set(const _Atomic uint64_t *bits, int fd)
{
    unsigned i = (unsigned)fd;
    return i < NUMBERS && (atomic_load_explicit(&bits[i / WORD_BITS], memory_order_relaxed) &
                           UINT64_C(1) << i % WORD_BITS) != 0;
}

/* false: it is somebody's of us. */
static bool claim_number(int fd)
{
    return !set_bit(g.claimed, fd, true);
}

static void unclaim_number(int fd)
{
    (void)set_bit(g.claimed, fd, false);
}

bool descriptor_is_ours(int fd)
{
    return is_set(g.claimed, fd);
}

/* Not all that the program has closed is closed by us, too (server/loop.c, store/lmdb_env.c). */
static void forget_lost(void)
{
    for (int fd = first_number(); fd < first_number() + OURS; fd++)
        if (__real_fcntl(fd, F_GETFD) == -1)
            unclaim_number(fd);
}

/* -1: none is free up there. */
static int copy_once(int fd, int least)
{
    int end = first_number() + OURS;
    for (int at = least > first_number() ? least : first_number(); at < end; at++) {
        if (!claim_number(at))
            continue;
        int got = __real_fcntl(fd, F_DUPFD_CLOEXEC, at);
        if (got == at)
            return got;
        unclaim_number(at); /* it is the program's, or there is no more */
        if (got == -1)
            return -1;
        if (got >= end || claim_number(got))
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

/* Move a descriptor up; it stays at its number when nothing is free up there. */
static int raise_fd(int fd)
{
    if (fd >= first_number() + OURS || (fd >= first_number() && claim_number(fd)))
        return fd;
    int raised = copy_up(fd, 0);
    if (raised == -1)
        return fd;
    (void)__real_close(fd);
    return raised;
}

/* ---- calls and forks ---- */

static void wait_shortly(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

static void call_begin(void)
{
    (void)atomic_fetch_add_explicit(&g.begun, 1, memory_order_seq_cst);
}

static void call_end(void)
{
    (void)atomic_fetch_add_explicit(&g.ended, 1, memory_order_seq_cst);
}

void descriptor_begin(void)
{
    uint64_t begun = 0;
    call_begin();
    (void)atomic_fetch_add_explicit(&g.unmarked, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&g.forks, memory_order_seq_cst) != 0) {
        uint64_t now = clock_monotonic();
        begun = begun ? begun : now;
        if (now - begun > CALL_WAIT_NS)
            return;
        (void)atomic_fetch_sub_explicit(&g.unmarked, 1, memory_order_seq_cst);
        wait_shortly();
        (void)atomic_fetch_add_explicit(&g.unmarked, 1, memory_order_seq_cst);
    }
}

/* With one beyond the table some call is always under way: a child looks at all. */
static void keep_number(int fd)
{
    (void)claim_number(fd);
    if (fd >= NUMBERS)
        call_begin();
}

void descriptor_note(int fd)
{
    bool marked = __real_fcntl(fd, F_SETSIG, MARK) != -1;
    keep_number(fd);
    if (!marked)
        (void)set_bit(g.bare, fd, true);
}

int descriptor_end(int fd)
{
    if (fd != -1) {
        fd = raise_fd(fd);
        descriptor_note(fd);
    }
    descriptor_end_low();
    return fd;
}

void descriptor_end_low(void)
{
    (void)atomic_fetch_sub_explicit(&g.unmarked, 1, memory_order_seq_cst);
    call_end();
}

uint64_t descriptors_fork_before(void)
{
    uint64_t begun = clock_monotonic();
    (void)atomic_fetch_add_explicit(&g.forks, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&g.unmarked, memory_order_seq_cst) != 0 &&
           clock_monotonic() - begun < FORK_WAIT_NS)
        wait_shortly();
    return atomic_load_explicit(&g.ended, memory_order_seq_cst);
}

void descriptors_fork_after(void)
{
    (void)atomic_fetch_sub_explicit(&g.forks, 1, memory_order_seq_cst);
}

/* ---- in a forked child ---- */

/* We open files, folders and devices, and signals of the program's own have an owner.   [child] */
static bool is_marked(int fd, int flags)
{
    struct stat st;
    if (__real_fcntl(fd, F_GETSIG) == MARK && !(flags & O_ASYNC))
        return true;
    return (flags & O_ASYNC) != 0 && __real_fcntl(fd, F_GETOWN) == 0 && fstat(fd, &st) == 0 &&
           (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISCHR(st.st_mode));
}

static void drop_one(int fd) /* [child] */
{
    bool known = descriptor_is_ours(fd);
    int flags = __real_fcntl(fd, F_GETFL);
    if (flags != -1 && (is_marked(fd, flags) || (known && (flags & (O_PATH | O_ASYNC)) != 0)))
        (void)__real_close(fd);
}

static void drop_claimed(void) /* [child] */
{
    for (int i = 0; i < NUMBERS / WORD_BITS; i++) {
        uint64_t word = atomic_load_explicit(&g.claimed[i], memory_order_relaxed);
        for (; word; word &= word - 1)
            drop_one(i * WORD_BITS + __builtin_ctzll(word));
        atomic_store_explicit(&g.claimed[i], 0, memory_order_relaxed);
        atomic_store_explicit(&g.bare[i], 0, memory_order_relaxed);
    }
}

/* The folder is read by a descriptor of ours, too. */
static void drop_all(void) /* [child] */
{
    struct proc_numbers all;
    struct proc_number one;
    (void)proc_numbers_open(&all, "/proc/self/fd"); /* no /proc: what is claimed */
    while (proc_numbers_next(&all, &one))
        if ((int)one.value != all.fd)
            drop_one((int)one.value);
    proc_numbers_close(&all);
}

void descriptors_drop(uint64_t seen)
{
    uint64_t begun = atomic_load_explicit(&g.begun, memory_order_relaxed);
    bool all = begun != seen || begun != atomic_load_explicit(&g.ended, memory_order_relaxed);
    atomic_store_explicit(&g.forks, 0, memory_order_relaxed);
    atomic_store_explicit(&g.unmarked, 0, memory_order_relaxed);
    atomic_store_explicit(&g.ended, begun, memory_order_relaxed);
    if (all)
        drop_all();
    drop_claimed();
}

/* ---- what the linker sends here ---- */

static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(args, unsigned) : 0;
}

/* One that has its mark. */
static int mark_opened(int fd)
{
    fd = fd == -1 ? -1 : raise_fd(fd);
    if (fd != -1)
        keep_number(fd);
    call_end();
    return fd;
}

int __wrap_openat(int dirfd, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    if (flags & O_PATH) {
        descriptor_begin();
        return descriptor_end(__real_openat(dirfd, path, flags | O_CLOEXEC, mode));
    }
    call_begin();
    return mark_opened(__real_openat(dirfd, path, flags | O_CLOEXEC | O_ASYNC, mode));
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return __wrap_openat(AT_FDCWD, path, flags, mode);
}

int __wrap_open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return __wrap_openat(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int __wrap_socket(int domain, int type, int protocol)
{
    descriptor_begin();
    return descriptor_end(__real_socket(domain, type | SOCK_CLOEXEC, protocol));
}

int __wrap_accept(int fd, struct sockaddr *ret, socklen_t *size)
{
    return __wrap_accept4(fd, ret, size, /* flags= */ 0);
}

int __wrap_accept4(int fd, struct sockaddr *ret, socklen_t *size, int flags)
{
    descriptor_begin();
    return descriptor_end(__real_accept4(fd, ret, size, flags | SOCK_CLOEXEC));
}

int __wrap_eventfd(unsigned first_count, int flags)
{
    descriptor_begin();
    return descriptor_end(__real_eventfd(first_count, flags | EFD_CLOEXEC));
}

/* A copy has the mark of what it is of. */
int __wrap_fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *arg = va_arg(args, void *); /* a number or an address, as libc takes it */
    va_end(args);
    if (command != F_DUPFD_CLOEXEC)
        return __real_fcntl(fd, command, arg);
    call_begin();
    int raised = copy_up(fd, (int)(intptr_t)arg);
    if (raised == -1)
        raised = __real_fcntl(fd, command, arg);
    if (raised != -1)
        keep_number(raised);
    call_end();
    return raised;
}

int __wrap_close(int fd)
{
    bool bare = is_set(g.bare, fd);
    if (bare)
        descriptor_begin();
    else
        call_begin();
    int rc = __real_close(fd);
    unclaim_number(fd); /* not before: it is open until then */
    (void)set_bit(g.bare, fd, false);
    if (bare)
        descriptor_end_low();
    else
        call_end();
    return rc;
}
